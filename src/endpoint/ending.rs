//! The end of an agent's run, by its last turn or from outside: sweep, outcome line, event, exit, in
//! the order that makes it happen exactly once (spec 4.2).

use std::time::Duration;

use super::agent::Agent;
use super::shells::joined;
use crate::agent::{Event as AgentEvent, TurnEnd};
use crate::core::agent::{Outcome, RowState, RunStatus, RunUsage};
use crate::core::clock;
use crate::core::entry::Line;
use crate::core::fault::{self, Fault};
use crate::core::frame::Frame;
use crate::core::ids;
use crate::core::limits::deadlines;
use crate::proc::{StopSignal, sweep};

/// Why the run is being ended from outside.
pub(super) struct Stop {
    pub(super) status: RunStatus,
    pub(super) error: String,
    pub(super) signal: Option<StopSignal>,
}

/// How a run ends.
pub struct RunEnding {
    /// Whether it did what it was for.
    pub status: RunStatus,
    /// Its last words.
    pub result: Option<String>,
    /// Why it ended otherwise.
    pub error: Option<String>,
}

impl Agent {
    pub(super) fn on_signal(&mut self, signal: StopSignal) {
        // Whoever stops an agent says so, and why, before the first signal.
        let (status, reason) = match std::fs::read_to_string(self.files.stop_marker(self.config.run)) {
            Ok(reason) => (RunStatus::Killed, reason.trim().to_owned()),
            Err(_) => (RunStatus::Failed, format!("ended by {} from outside", signal.name())),
        };
        self.begin_stop(status, reason, Some(signal));
    }

    pub(super) fn begin_stop(&mut self, status: RunStatus, reason: String, signal: Option<StopSignal>) {
        if let Some(stop) = &mut self.stop {
            stop.signal = stop.signal.or(signal);
            return;
        }
        let error = if reason.is_empty() { "stopped".to_owned() } else { reason };
        self.end_shells(&format!("its agent was ended: {error}"));
        self.stop = Some(Stop { status, error, signal });
        if self.is_waiting() {
            // No turn runs that the cancellation could end.
            self.ended = Some(TurnEnd::Cancelled);
        }
        self.step(AgentEvent::Cancel);
        self.state.state = RowState::Stopping;
        self.state.since_ms = clock::now_ms();
        self.publish();
    }

    /// Its team is gone, and with it what it was for.
    pub fn lose_team(&mut self) {
        self.begin_stop(RunStatus::Killed, "its team was deleted".to_owned(), None);
    }

    /// The end of the run, in the order that makes it happen exactly once: shells, sweep, outcome
    /// line, event, exit.
    pub async fn finish(&mut self, end: TurnEnd) -> u8 {
        let ending = self.verdict(end);
        self.finish_as(ending).await
    }

    /// The same, with an end that its last turn does not tell.
    pub async fn finish_as(&mut self, ending: RunEnding) -> u8 {
        let RunEnding { status, result, error } = ending;
        fault::point(Fault::FinalBeforeOutcome);
        self.ending = true;
        let progress = self.driver.progress().clone();
        self.end_shells("its agent's run ended");
        self.shells_over().await;
        let swept = if progress.tool_uses > 0 {
            let name = self.name.clone();
            tokio::task::spawn_blocking(move || sweep(&name, &[])).await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let leftovers = joined(std::mem::take(&mut self.leftovers), swept);
        let signal = self.stop.as_ref().and_then(|s| s.signal);
        let outcome = Outcome {
            agent_id: self.config.id.clone(),
            run: self.config.run,
            status,
            result,
            error,
            exit: None,
            signal: signal.map(|s| s.name().to_owned()),
            usage: RunUsage {
                total_tokens: progress.total_tokens(),
                tool_uses: progress.tool_uses,
                duration_ms: clock::now_ms().saturating_sub(self.started_ms),
            },
            tokens: Some(*self.driver.usage()),
            permission_denials: self.driver.denials().to_vec(),
            leftovers,
            uuid: ids::random_uuid(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.config.session.as_str().to_owned(),
            is_sidechain: self.config.membership.is_none(),
        };
        self.write_outcome(outcome, status).await;
        fault::point(Fault::OutcomeBeforeEvent);
        let _ = self.owner.link.send(Frame::Outcome { run: self.config.run });
        let _ = self.owner.link.flush(deadlines().reply).await;
        fault::point(Fault::EventBeforeExit);
        drop(self.registration.take());
        match (signal, status) {
            (Some(signal), _) => signal.exit_code(),
            (None, RunStatus::Completed) => 0,
            (None, _) => 1,
        }
    }

    /// A full disk keeps the agent alive until its outcome is written or it is killed.
    async fn write_outcome(&mut self, outcome: Outcome, status: RunStatus) {
        let line = Line::Outcome(Box::new(outcome));
        let mut pause = Duration::from_millis(500);
        while let Err(error) = self.driver.record(&line) {
            tracing::error!(%error, "the outcome can't be written; trying again in {pause:?}");
            self.state.waiting_for = Some(format!("the outcome can't be written: {error}"));
            if let Some(registration) = &self.registration {
                let _ = registration.set_state(&self.state);
            }
            if let Ok(Some(visit)) = tokio::time::timeout(pause, self.visits.recv()).await {
                self.on_visit(visit);
            }
            pause = (pause * 2).min(Duration::from_secs(10));
        }
        self.state.state = status.into();
    }

    fn verdict(&self, end: TurnEnd) -> RunEnding {
        if let Some(stopped) = self.stopped() {
            return stopped;
        }
        let (result, error) = match end {
            TurnEnd::Answer { text, .. } if !text.trim().is_empty() => {
                return RunEnding { status: RunStatus::Completed, result: Some(text), error: None };
            }
            TurnEnd::Answer { .. } => (self.partial(), "it ended without a final answer".to_owned()),
            TurnEnd::MaxTurns => {
                let limit = self.config.max_turns.unwrap_or_default();
                (self.partial(), format!("it reached its limit of {limit} turns"))
            }
            TurnEnd::Failed { message, .. } => (self.partial(), message),
            TurnEnd::Cancelled => {
                let error = Some("stopped".to_owned());
                return RunEnding { status: RunStatus::Killed, result: self.partial(), error };
            }
        };
        RunEnding { status: RunStatus::Failed, result, error: Some(error) }
    }

    /// The end of one that is being stopped from outside.
    pub fn stopped(&self) -> Option<RunEnding> {
        let stop = self.stop.as_ref()?;
        Some(RunEnding { status: stop.status, result: self.partial(), error: Some(stop.error.clone()) })
    }

    /// The latest text it said, if any.
    pub fn partial(&self) -> Option<String> {
        Some(self.driver.last_text().to_owned()).filter(|t| !t.trim().is_empty())
    }
}
