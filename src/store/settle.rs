//! One outcome line per run, whoever writes it (spec 4.3): the agent at its end, or after its
//! death the first of all who notice, each of whom comes here.

use std::collections::HashSet;
use std::time::Duration;

use super::StoreError;
use super::atomic::Durability;
use super::reader::{lines_from_end, run_of};
use super::session::has_stop_marker;
use super::transcript::TranscriptWriter;
use crate::core::agent::{Activity, Outcome, Progress, RunStatus, RunUsage};
use crate::core::clock::{self, Millis};
use crate::core::entry::{Line, Talk, parse_line};
use crate::core::ids::{AgentId, SessionId, random_uuid};
use crate::core::message::{Block, Known, Role, Usage};
use crate::core::paths::AgentFiles;
use crate::core::{limits, text};

/// Most characters of a partial text in an outcome: escaped, it must fit into a line.
const PARTIAL_CHARS: usize = 1 << 20;
/// Activities that progress keeps.
const ACTIVITIES: usize = 5;

/// How the last run of an agent ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It was recorded before.
    Existing(Outcome),
    /// It was recorded by this call.
    Written(Outcome),
    /// There is no run: the agent never recorded a prompt.
    NeverStarted,
}

/// Sees to it that the last run of a dead agent has an outcome line, and returns it.
///
/// If it has none, `make` is asked, with the run, its last text and its counters, for status,
/// error, exit, signal and leftovers. Everything else is filled in here: ids, time, usage and
/// partial text unless `make` set them; and the status is `killed` if somebody was stopping the
/// run. [`StoreError::Locked`] if the agent lives, after the deadline `probe`. Blocks.
///
/// The line is not synced, whatever `lead.durability` says: were it lost with the power, the next
/// caller would write it again.
pub fn settle(
    files: &AgentFiles,
    id: &AgentId,
    session: &SessionId,
    make: impl FnOnce(u32, Option<String>, Progress) -> Outcome,
) -> Result<Settled, StoreError> {
    // As patient with a holder as with a probe: it may be another who settles.
    settle_within(limits::deadlines().probe, files, id, session, make)
}

fn settle_within(
    grace: Duration,
    files: &AgentFiles,
    id: &AgentId,
    session: &SessionId,
    make: impl FnOnce(u32, Option<String>, Progress) -> Outcome,
) -> Result<Settled, StoreError> {
    let path = files.transcript();
    let mut writer = match TranscriptWriter::open_within(path, Durability::Process, grace) {
        Err(StoreError::Missing { .. }) => return Ok(Settled::NeverStarted),
        opened => opened?,
    };
    let mut last = LastRun::default();
    for bytes in lines_from_end(path)? {
        let Ok(line) = parse_line(&bytes?) else { continue };
        match line {
            Line::Outcome(outcome) if last.run == 0 || outcome.run == last.run => {
                return Ok(Settled::Existing(*outcome));
            }
            Line::Outcome(_) => break,
            Line::Talk(talk) if !last.see(&talk) => break,
            _ => {}
        }
    }
    if last.run == 0 {
        return Ok(Settled::NeverStarted);
    }
    let outcome = last.into_outcome(files, id, session, make);
    writer.append(&Line::Outcome(Box::new(outcome.clone())))?;
    Ok(Settled::Written(outcome))
}

/// A run as its lines tell of it, seen from the end.
#[derive(Default)]
struct LastRun {
    run: u32,
    /// Texts of the last reply that has any, last first, and its id.
    texts: Vec<String>,
    texts_of: Option<String>,
    /// Of each reply, last first.
    usages: Vec<Usage>,
    replies: HashSet<String>,
    /// Names of the last tools used, last first.
    tools: Vec<String>,
    tool_uses: u64,
    ended: Option<Millis>,
    started: Option<Millis>,
}

impl LastRun {
    /// Takes the line before the ones seen. False if it belongs to an earlier run, or to none.
    fn see(&mut self, talk: &Talk) -> bool {
        let run = run_of(talk);
        if run == 0 || (self.run != 0 && run != self.run) {
            return false;
        }
        self.run = run;
        if let Some(time) = clock::parse_iso(&talk.timestamp) {
            self.started = Some(time);
            self.ended.get_or_insert(time);
        }
        let said = &talk.message;
        if said.message.role == Role::User {
            return true;
        }
        if said.id.as_ref().is_none_or(|id| self.replies.insert(id.clone())) {
            self.usages.push(said.usage.unwrap_or_default());
        }
        let continued = self.texts.is_empty() || (said.id.is_some() && said.id == self.texts_of);
        for block in said.message.content.iter().rev() {
            if let Some(text) = block.as_text().filter(|text| continued && !text.trim().is_empty()) {
                self.texts.push(text.to_owned());
                self.texts_of.clone_from(&said.id);
            }
            if let Block::Known(Known::ToolUse { name, .. }) = block {
                self.tool_uses += 1;
                if self.tools.len() < ACTIVITIES {
                    self.tools.push(name.clone());
                }
            }
        }
        true
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        self.usages.iter().rev().for_each(|usage| progress.reply(usage));
        for tool in self.tools.iter().rev() {
            let tool = tool.clone();
            progress.tool(Activity { tool, description: String::new(), is_search: false, is_read: false });
        }
        progress.tool_uses = self.tool_uses;
        progress
    }

    fn partial_text(&self) -> Option<String> {
        let texts: Vec<&str> = self.texts.iter().rev().map(String::as_str).collect();
        let note = |chars| format!("[cut: {chars} characters in all]");
        (!texts.is_empty()).then(|| text::cap(&texts.join("\n"), PARTIAL_CHARS, note))
    }

    fn into_outcome(
        self,
        files: &AgentFiles,
        id: &AgentId,
        session: &SessionId,
        make: impl FnOnce(u32, Option<String>, Progress) -> Outcome,
    ) -> Outcome {
        let progress = self.progress();
        let partial = self.partial_text();
        let usage = RunUsage {
            total_tokens: progress.total_tokens(),
            tool_uses: progress.tool_uses,
            duration_ms: self.ended.zip(self.started).map_or(0, |(end, start)| end.saturating_sub(start)),
        };
        let mut tokens = Usage::default();
        self.usages.iter().for_each(|usage| tokens.add(usage));
        let mut outcome = make(self.run, partial.clone(), progress);
        outcome.agent_id = id.clone();
        outcome.run = self.run;
        outcome.session_id = session.to_string();
        outcome.is_sidechain = true;
        outcome.result = outcome.result.or(partial);
        if has_stop_marker(files, self.run) {
            outcome.status = RunStatus::Killed;
        }
        if outcome.usage == RunUsage::default() {
            outcome.usage = usage;
        }
        outcome.tokens = outcome.tokens.or(Some(tokens));
        if outcome.uuid.is_empty() {
            outcome.uuid = random_uuid();
        }
        if outcome.timestamp.is_empty() {
            outcome.timestamp = clock::iso(clock::now_ms());
        }
        outcome
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
