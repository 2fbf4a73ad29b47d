//! What a transcript's tail says: the conversation to go on with, and what else still counts. Pure,
//! but for [`resume`], which reads it. Called by whoever resumes an agent or session.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::StoreError;
use super::conversation::{Conversation, Said};
use super::reader::{Words, read_tail, run_of};
use crate::core::entry::{Enqueued, Line, ORIGIN_NOTIFICATION, Talk};
use crate::core::ids::AgentId;
use crate::core::knowledge::SHOWN_INSTRUCTIONS;
use crate::core::limits::MODEL_REQUEST_BYTES;
use crate::core::message::Message;
use crate::core::server_tool;
use crate::core::shell::{OpenShells, shell_folder};
use crate::core::tool_state::ToolState;

/// What a transcript's tail says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The conversation, fit to be sent.
    pub messages: Vec<Message>,
    /// The line to go on from: `parentUuid` of the next one.
    pub last_uuid: Option<String>,
    /// Messages that were taken in but not shown to the model yet, oldest first.
    pub enqueued: Vec<Enqueued>,
    /// Ids of all messages taken in, shown or not, each once, the latest last: one that comes again is a
    /// duplicate.
    pub seen_msg_ids: Vec<String>,
    /// Notifications that were shown.
    pub consumed: Consumed,
    /// Background shells that were started and whose end was not shown.
    pub open_shells: OpenShells,
    /// Where the next shell command runs, if it is not where the agent began.
    pub shell_cwd: Option<String>,
    /// The mode set last.
    pub mode: Option<String>,
    /// The latest run; 0 in a session.
    pub last_run: u32,
    /// Files the agent saw, and its todos.
    pub tool_state: ToolState,
    /// Tokens of the conversation, as its latest reply counted them; 0 without one.
    pub context_tokens: u64,
    /// Files of instructions that were shown with results of tools.
    pub shown_instructions: BTreeSet<PathBuf>,
    /// Whether the last turn did not come to its end.
    pub is_in_turn: bool,
}

impl History {
    /// Whether the model was told how `run` of `agent` ended.
    pub fn is_consumed(&self, agent: &str, run: u32) -> bool {
        self.consumed.contains(agent, run)
    }
}

/// Which runs' ends a conversation knows of. A later run that is known says nothing of an earlier
/// one, but for those that a compaction recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    runs: BTreeSet<(String, u32)>,
    /// From boundaries: all runs up to this.
    up_to: BTreeMap<String, u32>,
}

impl Consumed {
    /// Records one. Both spellings of agent ids are the same agent.
    pub fn insert(&mut self, agent: &str, run: u32) {
        self.runs.insert((canonical(agent), run));
    }

    /// Records the end that a line tells of, if it tells of one.
    pub fn note(&mut self, talk: &Talk) {
        if let Some(origin) = talk.origin.as_ref().filter(|o| o.kind == ORIGIN_NOTIFICATION)
            && let (Some(agent), Some(run)) = (&origin.task_id, origin.run)
        {
            self.insert(agent, run);
        }
        if let Some((agent, run)) = talk.tool_use_result.as_ref().and_then(answered) {
            self.insert(agent, run);
        }
    }

    /// The latest run of `agent` up to which a compaction recorded all; 0 without one.
    pub fn up_to(&self, agent: &str) -> u32 {
        self.up_to.get(&canonical(agent)).copied().unwrap_or_default()
    }

    /// Whether it was recorded.
    pub fn contains(&self, agent: &str, run: u32) -> bool {
        let agent = canonical(agent);
        self.up_to.get(&agent).is_some_and(|latest| run <= *latest) || self.runs.contains(&(agent, run))
    }

    /// For the next compaction boundary: agent → latest run. To be written when nothing waits to
    /// be told, since it stands for all runs up to that.
    pub fn latest(&self) -> BTreeMap<String, u32> {
        let mut latest = self.up_to.clone();
        for (agent, run) in &self.runs {
            let known = latest.entry(agent.clone()).or_default();
            *known = (*known).max(*run);
        }
        latest
    }
}

fn canonical(agent: &str) -> String {
    AgentId::parse(agent).map_or_else(|| agent.to_owned(), String::from)
}

/// Reads what a transcript's tail says. Of more words than a request to a model can hold, the latest
/// are kept and the first that a user said: the others could never be sent. Needs memory for what it
/// returns.
pub fn resume(path: &Path) -> Result<History, StoreError> {
    resume_within(path, MODEL_REQUEST_BYTES as u64)
}

fn resume_within(path: &Path, most: u64) -> Result<History, StoreError> {
    let mut lines = Lines::default();
    read_tail(path, most, |line, words| lines.take(line, words))?;
    Ok(lines.into_history())
}

/// What the lines of a tail say, oldest first.
#[cfg(test)]
pub(crate) fn conversation(lines: &[Line]) -> History {
    let mut taken = Lines::default();
    lines.iter().for_each(|line| taken.take(line.clone(), Words::Kept));
    taken.into_history()
}

/// The lines of a tail as they are read. Of each is kept what the conversation needs, and its words
/// are moved there.
#[derive(Default)]
struct Lines {
    history: History,
    said: Said,
    enqueued: Vec<Enqueued>,
    shown: HashSet<String>,
    /// Ids of messages as they came. Of those that a boundary repeats some may still wait, and are
    /// enqueued again behind it.
    seen: Vec<String>,
}

impl Lines {
    fn take(&mut self, line: Line, words: Words) {
        let history = &mut self.history;
        match line {
            Line::Talk(talk) => {
                self.seen.extend(talk.msg_id.clone());
                self.shown.extend(talk.msg_id.clone());
                history.note(&talk);
                self.said.hear(*talk, words);
            }
            Line::Outcome(outcome) => history.last_run = history.last_run.max(outcome.run),
            Line::Enqueued(e) => {
                self.seen.push(e.msg_id.clone());
                self.enqueued.push(e);
            }
            Line::Mode(mode) => history.mode = Some(mode.mode),
            Line::Boundary(boundary) => {
                for (agent, run) in &boundary.consumed {
                    let known = history.consumed.up_to.entry(canonical(agent)).or_default();
                    *known = (*known).max(*run);
                }
                boundary.shells.into_iter().for_each(|shell| history.open_shells.insert(shell));
                if boundary.shell_cwd.is_some() {
                    history.shell_cwd = boundary.shell_cwd;
                }
                history.tool_state.restore(&boundary.file_states, &boundary.todos);
                self.seen.extend(boundary.seen);
                self.said.begin_at(boundary.uuid);
            }
            Line::Switched(_) | Line::Other => {}
        }
    }

    fn into_history(self) -> History {
        let Self { mut history, said, enqueued, mut shown, seen } = self;
        history.enqueued = enqueued.into_iter().filter(|e| shown.insert(e.msg_id.clone())).collect();
        let mut known = HashSet::new();
        history.seen_msg_ids = seen.into_iter().filter(|id| known.insert(id.clone())).collect();
        let Conversation { messages, last_uuid, tokens, is_in_turn } = said.into_conversation();
        (history.messages, history.last_uuid, history.context_tokens) = (messages, last_uuid, tokens);
        history.is_in_turn = is_in_turn;
        // Something else is said next, whatever the provider was about to do.
        server_tool::drop_unpaired(&mut history.messages);
        history
    }
}

impl History {
    /// What a line says besides its words, on whichever branch it is.
    fn note(&mut self, talk: &Talk) {
        self.last_run = self.last_run.max(run_of(talk));
        self.consumed.note(talk);
        self.open_shells.note(talk);
        if let Some(folder) = shell_folder(talk) {
            self.shell_cwd = Some(folder.to_owned());
        }
        if let Some(result) = &talk.tool_use_result {
            self.tool_state.note(result);
        }
        let shown = talk.tool_use_result.as_ref().and_then(|result| result.get(SHOWN_INSTRUCTIONS)?.as_array());
        self.shown_instructions.extend(shown.into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from));
    }
}

/// The run whose end a structured tool result tells: that of a foreground agent. The launch of a
/// background one tells no end.
fn answered(result: &Value) -> Option<(&str, u32)> {
    let launched = result.get("isAsync").and_then(Value::as_bool) == Some(true)
        || result.get("status").and_then(Value::as_str) == Some("async_launched");
    if launched {
        return None;
    }
    let agent = result.get("agentId")?.as_str()?;
    let run = result.get("run")?.as_u64()?;
    Some((agent, u32::try_from(run).ok()?))
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
