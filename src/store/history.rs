//! From transcript lines to the conversation to go on with. Pure.
//!
//! Called by whoever resumes an agent or session. What it returns is fit to be sent: roles
//! alternate and begin with the user, every tool use has its result in the message after it and
//! every result its use, however the lines were interleaved (other programs write the results of
//! parallel calls as branches of the tree, and blocks of one reply between them).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use serde_json::Value;

use super::reader::run_of;
use crate::core::entry::{Enqueued, Line, ORIGIN_NOTIFICATION, Talk};
use crate::core::ids::AgentId;
use crate::core::knowledge::SHOWN_INSTRUCTIONS;
use crate::core::message::{Block, Known, Message, Role};
use crate::core::server_tool;
use crate::core::shell::{OpenShells, shell_folder};
use crate::core::tool_state::ToolState;

/// `message.model` of lines that a program wrote in the model's place, such as API errors.
const SYNTHETIC: &str = "<synthetic>";

/// What a transcript's tail says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The conversation, fit to be sent.
    pub messages: Vec<Message>,
    /// The line to go on from: `parentUuid` of the next one.
    pub last_uuid: Option<String>,
    /// Messages that were taken in but not shown to the model yet, oldest first.
    pub enqueued: Vec<Enqueued>,
    /// Ids of all messages taken in, shown or not: one that comes again is a duplicate.
    pub seen_msg_ids: HashSet<String>,
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
    /// Ids of all tool uses, with or without result.
    pub used_tool_ids: HashSet<String>,
    /// Files the agent saw, and its todos.
    pub tool_state: ToolState,
    /// Tokens of the conversation, as its latest reply counted them; 0 without one.
    pub context_tokens: u64,
    /// Files of instructions that were shown with results of tools.
    pub shown_instructions: BTreeSet<PathBuf>,
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

/// Reads the lines of a tail, oldest first.
pub fn conversation(lines: &[Line]) -> History {
    let mut history = History::default();
    let mut enqueued = Vec::new();
    let mut shown = HashSet::new();
    // Of these some may still wait, and are enqueued again behind the boundary.
    let mut seen_before = Vec::new();
    for line in lines {
        match line {
            Line::Talk(talk) => {
                shown.extend(talk.msg_id.as_deref());
                history.note(talk);
            }
            Line::Outcome(outcome) => history.last_run = history.last_run.max(outcome.run),
            Line::Enqueued(e) => {
                if history.seen_msg_ids.insert(e.msg_id.clone()) {
                    enqueued.push(e);
                }
            }
            Line::Mode(mode) => history.mode = Some(mode.mode.clone()),
            Line::Boundary(boundary) => {
                for (agent, run) in &boundary.consumed {
                    let known = history.consumed.up_to.entry(canonical(agent)).or_default();
                    *known = (*known).max(*run);
                }
                seen_before.extend(&boundary.seen);
                boundary.shells.iter().cloned().for_each(|shell| history.open_shells.insert(shell));
                if boundary.shell_cwd.is_some() {
                    history.shell_cwd.clone_from(&boundary.shell_cwd);
                }
                history.tool_state.restore(&boundary.file_states, &boundary.todos);
            }
            Line::Switched(_) | Line::Other => {}
        }
    }
    history.enqueued = enqueued.into_iter().filter(|e| !shown.contains(e.msg_id.as_str())).cloned().collect();
    history.seen_msg_ids.extend(seen_before.into_iter().cloned());
    history.seen_msg_ids.extend(shown.into_iter().map(str::to_owned));
    let branch = branch(lines);
    let latest = branch.iter().rev().find_map(|talk| talk.message.usage);
    history.context_tokens = latest.map_or(0, |usage| usage.prompt_tokens() + usage.output_tokens);
    history.last_uuid = branch.last().map(|talk| talk.uuid.clone());
    history.messages = alternate(pair(group(&branch)));
    // Something else is said next, whatever the provider was about to do.
    server_tool::drop_unpaired(&mut history.messages);
    history
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
        self.used_tool_ids.extend(blocks(talk).iter().filter_map(use_id).map(str::to_owned));
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

fn blocks(talk: &Talk) -> &[Block] {
    &talk.message.message.content
}

fn use_id(block: &Block) -> Option<&str> {
    match block {
        Block::Known(Known::ToolUse { id, .. }) => Some(id),
        _ => None,
    }
}

fn result_id(block: &Block) -> Option<&str> {
    match block {
        Block::Known(Known::ToolResult { tool_use_id, .. }) => Some(tool_use_id),
        _ => None,
    }
}

/// The lines of the conversation that ends with the last line, in file order: its ancestors, the
/// other blocks of their replies, and the results of their tool uses.
fn branch(lines: &[Line]) -> Vec<&Talk> {
    let talks: Vec<&Talk> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Talk(talk) => Some(&**talk),
            _ => None,
        })
        .collect();
    // Older programs wrote what their agents said into the session's own file.
    let has_main = talks.iter().any(|t| !t.is_sidechain);
    let talks: Vec<&Talk> = talks.into_iter().filter(|t| !has_main || !t.is_sidechain).collect();
    let boundaries: HashSet<&str> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Boundary(b) => Some(b.uuid.as_str()),
            _ => None,
        })
        .collect();

    let mut place = HashMap::new();
    for (i, talk) in talks.iter().enumerate() {
        place.entry(talk.uuid.as_str()).or_insert(i);
    }
    let mut taken = vec![false; talks.len()];
    let mut at = talks.len().checked_sub(1);
    while let Some(i) = at {
        taken[i] = true;
        at = match talks[i].parent_uuid.as_deref() {
            None => None,
            Some(parent) if boundaries.contains(parent) => None,
            // A parent stands before its child; else it is not one, and following it could go
            // round in circles. One that is missing is a line of a kind we don't read, or was
            // lost: what was written before is the best guess.
            Some(parent) => place.get(parent).copied().filter(|p| *p < i).or(i.checked_sub(1)),
        };
    }

    let replies: HashSet<&str> =
        talks.iter().zip(&taken).filter(|(_, t)| **t).filter_map(|(t, _)| t.message.id.as_deref()).collect();
    for (talk, taken) in talks.iter().zip(&mut taken) {
        *taken |= talk.message.id.as_deref().is_some_and(|id| replies.contains(id));
    }
    let uses: HashSet<&str> =
        talks.iter().zip(&taken).filter(|(_, t)| **t).flat_map(|(t, _)| blocks(t)).filter_map(use_id).collect();
    for (talk, taken) in talks.iter().zip(&mut taken) {
        *taken |= blocks(talk).iter().filter_map(result_id).any(|id| uses.contains(id));
    }
    talks.into_iter().zip(taken).filter_map(|(talk, taken)| taken.then_some(talk)).collect()
}

/// A reply, or what was said between two, before uses and results are paired.
struct Turn {
    role: Role,
    /// Of a reply: `message.id`.
    id: Option<String>,
    content: Vec<Block>,
}

/// Joins the lines of each reply and the user lines between two replies. Blocks of a reply that
/// come after the results of its first ones still belong to it.
fn group(branch: &[&Talk]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for talk in branch {
        let said = &talk.message;
        if said.model.as_deref() == Some(SYNTHETIC) {
            continue;
        }
        let role = said.message.role;
        let last = turns.len().saturating_sub(1);
        // Those without an id (written by hand) end with the next user line.
        let continues = |at: usize, turn: &Turn| match role {
            Role::User => turn.role == role && at == last,
            Role::Assistant => turn.role == role && turn.id == said.id && (turn.id.is_some() || at == last),
        };
        let open = turns.iter_mut().enumerate().skip(last.saturating_sub(1));
        match open.rev().find(|(at, turn)| continues(*at, turn)) {
            Some((_, turn)) => turn.content.extend_from_slice(blocks(talk)),
            None => turns.push(Turn { role, id: said.id.clone(), content: blocks(talk).to_vec() }),
        }
    }
    turns
}

/// What the model said and what it was answered; either may be nothing.
type Exchange = (Vec<Block>, Vec<Block>);

/// Puts each tool use's result directly behind its reply, and drops uses and results that have no
/// counterpart.
fn pair(turns: Vec<Turn>) -> Vec<Exchange> {
    // Some models use an id again: a result belongs to the latest use before it.
    let mut open: HashMap<String, (usize, usize)> = HashMap::new();
    let mut results: HashMap<(usize, usize), Block> = HashMap::new();
    for (t, turn) in turns.iter().enumerate() {
        for (b, block) in turn.content.iter().enumerate() {
            if let (Role::Assistant, Some(id)) = (turn.role, use_id(block)) {
                open.insert(id.to_owned(), (t, b));
            } else if let (Role::User, Some(id)) = (turn.role, result_id(block))
                && let Some(place) = open.remove(id)
            {
                results.insert(place, block.clone());
            }
        }
    }
    let mut exchanges = Vec::new();
    for (t, turn) in turns.into_iter().enumerate() {
        match turn.role {
            Role::User => {
                let words = turn.content.into_iter().filter(|b| result_id(b).is_none() && use_id(b).is_none());
                exchanges.push((Vec::new(), words.collect()));
            }
            Role::Assistant => {
                let mut answers = Vec::new();
                let mut content = Vec::new();
                for (b, block) in turn.content.into_iter().enumerate() {
                    if use_id(&block).is_some() {
                        let Some(result) = results.remove(&(t, b)) else { continue };
                        answers.push(result);
                    }
                    content.push(block);
                }
                content.retain(|b| result_id(b).is_none());
                exchanges.push((content, answers));
            }
        }
    }
    exchanges
}

/// Drops what says nothing (blank text, replies of thinking only) and joins neighbours of one
/// role. Begins with the user.
fn alternate(exchanges: Vec<Exchange>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for (mut reply, answers) in exchanges {
        reply.retain(says_something);
        // Thinking before a use that was dropped would end the message, which is refused.
        while reply.last().is_some_and(Block::is_thinking) {
            reply.pop();
        }
        if !reply.is_empty() && messages.is_empty() {
            continue;
        }
        for (role, mut content) in [(Role::Assistant, reply), (Role::User, answers)] {
            content.retain(says_something);
            match messages.last_mut() {
                _ if content.is_empty() => {}
                Some(last) if last.role == role => last.content.append(&mut content),
                _ => messages.push(Message { role, content }),
            }
        }
    }
    messages
}

fn says_something(block: &Block) -> bool {
    block.as_text().is_none_or(|text| !text.trim().is_empty())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
