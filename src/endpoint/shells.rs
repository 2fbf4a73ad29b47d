//! An agent and its background shells: what it is told of their ends, and its run, which is not over
//! before theirs are (R071, spec 7.1). After `lead.backgroundWait` without one the rest is stopped.

use std::time::{Duration, Instant};

use super::agent::Agent;
use crate::agent::{Event as AgentEvent, TurnEnd, shell_notification};
use crate::core::agent::{Leftover, RowState};
use crate::core::clock;
use crate::core::frame::Frame;
use crate::core::ids::ShellId;
use crate::core::limits::deadlines;
use crate::tool::shell::{ShellEvent, ShellNews, Shells, StopRefused};
use crate::wire::Link;

/// An agent that has answered while shells of its own run.
pub(super) struct Held {
    end: TurnEnd,
    /// Replies of the model so far.
    replies: u64,
    /// Since when it waits; none once a turn has begun again.
    since: Option<Instant>,
}

impl Agent {
    /// Keeps a turn's end back as long as shells run; else returns the end of the run.
    pub(super) fn hold(&mut self, end: TurnEnd) -> Option<TurnEnd> {
        let replies = self.driver.progress().turns;
        let end = match (end, self.held.take()) {
            // It had answered, and has nothing to add to what it was told since, or no turn left for it.
            (TurnEnd::Answer { text, .. }, Some(held)) if text.trim().is_empty() => held.end,
            (TurnEnd::MaxTurns, Some(held)) if held.replies == replies => held.end,
            (end, _) => end,
        };
        if self.stop.is_some() || !matches!(end, TurnEnd::Answer { .. }) || !self.shells.any_open() {
            return Some(end);
        }
        self.held = Some(Held { end, replies, since: Some(Instant::now()) });
        self.set_state(RowState::Waiting);
        None
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.since.is_some())
    }

    /// A turn has begun while it waited.
    pub(super) fn note_turn(&mut self) {
        if self.is_waiting() && !self.driver.is_idle() {
            self.held.iter_mut().for_each(|held| held.since = None);
            self.set_state(RowState::Running);
        }
    }

    pub(super) fn on_shell(&mut self, event: &ShellEvent) {
        self.state.last_event_ms = clock::now_ms();
        self.dirty = true;
        // One that ends with its agent is told of when the agent goes on.
        if event.news == ShellNews::Started || self.stop.is_some() {
            return;
        }
        if let Some((shell, end)) = self.shells.take_end(&event.id) {
            self.step(AgentEvent::Inputs(vec![shell_notification(&shell, &end)]));
        }
    }

    /// When waiting for shells must end.
    pub(super) fn wait_limit(&self) -> Option<Instant> {
        Some(self.held.as_ref()?.since? + Duration::from_millis(self.config.background_wait_ms))
    }

    pub(super) fn on_wait_limit(&mut self) {
        let waited = humantime::format_duration(Duration::from_millis(self.config.background_wait_ms));
        let reason = format!("it had not ended {waited} after everything else (lead.backgroundWait)");
        self.end_shells(&reason);
        self.held.iter_mut().for_each(|held| held.since = Some(Instant::now()));
    }

    /// Ends what runs in the background; it is named in the outcome.
    pub(super) fn end_shells(&mut self, reason: &str) {
        let stopped = self.shells.stop_all(reason);
        if !stopped.is_empty() {
            tracing::warn!("{} background commands are stopped: {reason}", stopped.len());
        }
        self.leftovers.extend(stopped);
    }

    /// Waits for the shells that were stopped, as long as the ladder may take.
    pub(super) async fn shells_over(&self) {
        let limits = deadlines();
        let longest = limits.stop_term + limits.stop_kill * 2 + limits.drain;
        if tokio::time::timeout(longest, self.shells.all_over()).await.is_err() {
            tracing::error!("background commands survive SIGKILL");
        }
    }
}

/// `first`, then those of `more` that are other processes.
pub fn joined(mut first: Vec<Leftover>, more: Vec<Leftover>) -> Vec<Leftover> {
    for leftover in more {
        if first.iter().all(|known| known.pid != leftover.pid) {
            first.push(leftover);
        }
    }
    first
}

/// Ends a background shell for somebody who asked over a socket, and answers when it has ended.
pub fn stop_shell(shells: &Shells, id: &ShellId, reason: &str, link: &Link, seq: u64) {
    let refused = |code: &str, message: String| Frame::Error { code: code.to_owned(), message };
    match shells.stop(id, reason) {
        Ok(over) => {
            let link = link.clone();
            tokio::spawn(async move {
                over.cancelled().await;
                let _ = link.reply(seq, Frame::Done);
            });
        }
        Err(StopRefused::Ended(status)) => {
            let _ = link.reply(seq, refused("ended", format!("{id} has ended already ({status})")));
        }
        Err(StopRefused::Unknown) => {
            let _ = link.reply(seq, refused("not_found", format!("there is no background command {id} here")));
        }
    }
}
