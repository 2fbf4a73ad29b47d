//! What a compaction boundary must carry over (spec 4.3): a resume reads back to it and no further,
//! so whatever earlier lines say that still counts is said again behind it.

use std::collections::VecDeque;

use super::compact::{Compacted, Trigger};
use crate::core::entry::{Boundary, CompactMetadata, Enqueued, Line, Mode, Place, Talk};
use crate::core::shell::{OpenShells, shell_folder};
use crate::core::tool_state::ToolState;
use crate::core::{clock, ids, limits};
use crate::store::history::{Consumed, History};

/// Ids of messages that a boundary repeats. A sender tries again within seconds, and mail is marked read
/// before more of it is taken in ([`limits::HAND_OVER`]), so older ones don't come again.
const SEEN: usize = 2 * limits::HAND_OVER;

/// What the lines so far say besides the conversation. Kept up to date by each line that is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carried {
    consumed: Consumed,
    mode: Option<String>,
    /// Messages taken in and not shown to the model yet, oldest first.
    waiting: Vec<Enqueued>,
    /// Ids of the latest messages taken in.
    seen: VecDeque<String>,
    /// Background shells whose end was not told.
    shells: OpenShells,
    /// Where the next shell command runs, if it is not where the agent began.
    shell_cwd: Option<String>,
}

impl Carried {
    /// What a transcript's tail says.
    pub fn of(history: &History) -> Self {
        let seen = &history.seen_msg_ids;
        let latest = &seen[seen.len().saturating_sub(SEEN)..];
        Self {
            consumed: history.consumed.clone(),
            mode: history.mode.clone(),
            waiting: history.enqueued.clone(),
            seen: latest.iter().cloned().collect(),
            shells: history.open_shells.clone(),
            shell_cwd: history.shell_cwd.clone(),
        }
    }

    /// Takes in a line that was written.
    pub fn note(&mut self, line: &Line) {
        match line {
            Line::Talk(talk) => {
                self.consumed.note(talk);
                self.shells.note(talk);
                if let Some(folder) = shell_folder(talk) {
                    self.shell_cwd = Some(folder.to_owned());
                }
                if let Some(id) = &talk.msg_id {
                    self.waiting.retain(|e| e.msg_id != *id);
                    self.saw(id);
                }
            }
            Line::Enqueued(enqueued) if self.waiting.iter().all(|e| e.msg_id != enqueued.msg_id) => {
                self.waiting.push(enqueued.clone());
                self.saw(&enqueued.msg_id);
            }
            Line::Mode(mode) => self.mode = Some(mode.mode.clone()),
            Line::Enqueued(_) | Line::Outcome(_) | Line::Boundary(_) | Line::Switched(_) | Line::Other => {}
        }
    }

    fn saw(&mut self, id: &str) {
        if self.seen.iter().all(|known| known != id) {
            self.seen.push_back(id.to_owned());
            if self.seen.len() > SEEN {
                self.seen.pop_front();
            }
        }
    }

    /// The lines of a compaction, to be written at once. The summary is the last one: a boundary
    /// without it, left by a writer that died in the middle, replaces nothing. `summary` becomes the
    /// boundary's child; `last` is the line before; `tools` is what the agent's tools know.
    pub(super) fn lines(
        &self,
        compacted: &Compacted,
        mut summary: Talk,
        last: Option<String>,
        tools: &ToolState,
    ) -> Vec<Line> {
        let uuid = ids::random_uuid();
        summary.parent_uuid = Some(uuid.clone());
        summary.is_compact_summary = Some(true);
        summary.is_visible_in_transcript_only = Some(true);
        let Place { session_id, .. } = summary.place.clone();
        let boundary = Boundary {
            parent_uuid: None,
            logical_parent_uuid: last,
            is_sidechain: summary.is_sidechain,
            agent_id: summary.agent_id.clone(),
            content: "The conversation before was replaced by a summary".to_owned(),
            consumed: self.consumed.latest(),
            seen: self.seen.iter().cloned().collect(),
            shells: self.shells.as_slice().to_vec(),
            shell_cwd: self.shell_cwd.clone(),
            file_states: tools.files(),
            todos: tools.todos.clone(),
            compact_metadata: CompactMetadata {
                trigger: match compacted.trigger {
                    Trigger::Window => "auto",
                    Trigger::Overflow => "overflow",
                }
                .to_owned(),
                pre_tokens: compacted.pre_tokens,
                summary_tokens: compacted.summary_tokens,
            },
            uuid,
            timestamp: clock::iso(clock::now_ms()),
            place: summary.place.clone(),
        };
        let mut lines = vec![Line::Boundary(Box::new(boundary))];
        lines.extend(self.mode.clone().map(|mode| Line::Mode(Mode { session_id, mode })));
        lines.extend(self.waiting.iter().cloned().map(Line::Enqueued));
        lines.push(Line::Talk(Box::new(summary)));
        lines
    }
}

#[cfg(test)]
#[path = "boundary_tests.rs"]
mod tests;
