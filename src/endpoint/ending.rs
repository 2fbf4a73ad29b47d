//! The end of a worker's run, by its last turn or from outside: sweep, outcome line, event, exit, in
//! the order that makes it happen exactly once (spec 4.2).

use std::time::Duration;

use super::error::EndpointError;
use super::shells::joined;
use super::worker::Worker;
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

impl Worker {
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

    /// The end of the run, in the order that makes it happen exactly once: shells, sweep, outcome
    /// line, event, exit.
    pub(super) async fn finish(mut self, end: TurnEnd) -> Result<u8, EndpointError> {
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
        let (status, result, error) = self.verdict(end);
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
            is_sidechain: true,
        };
        self.write_outcome(outcome, status).await;
        fault::point(Fault::OutcomeBeforeEvent);
        let _ = self.owner.link.send(Frame::Outcome { run: self.config.run });
        let _ = self.owner.link.flush(deadlines().reply).await;
        fault::point(Fault::EventBeforeExit);
        drop(self.registration.take());
        Ok(match (signal, status) {
            (Some(signal), _) => signal.exit_code(),
            (None, RunStatus::Completed) => 0,
            (None, _) => 1,
        })
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

    fn verdict(&self, end: TurnEnd) -> (RunStatus, Option<String>, Option<String>) {
        let partial = Some(self.driver.last_text().to_owned()).filter(|t| !t.trim().is_empty());
        if let Some(stop) = &self.stop {
            return (stop.status, partial, Some(stop.error.clone()));
        }
        match end {
            TurnEnd::Answer { text, .. } if !text.trim().is_empty() => (RunStatus::Completed, Some(text), None),
            TurnEnd::Answer { .. } => (RunStatus::Failed, partial, Some("it ended without a final answer".to_owned())),
            TurnEnd::MaxTurns => {
                let limit = self.config.max_turns.unwrap_or_default();
                (RunStatus::Failed, partial, Some(format!("it reached its limit of {limit} turns")))
            }
            TurnEnd::Failed { message, .. } => (RunStatus::Failed, partial, Some(message)),
            TurnEnd::Cancelled => (RunStatus::Killed, partial, Some("stopped".to_owned())),
        }
    }
}
