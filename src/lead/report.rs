//! What is reported of a session's run, or of one message's part of it.

use std::time::{Duration, Instant};

use super::options::{RunEnd, RunReport};
use super::session::Session;
use super::told::{InputKind, Told};
use crate::agent::TurnEnd;
use crate::core::message::{ServerToolUsage, Usage};
use crate::endpoint::joined;
use crate::proc::sweep;

/// What was reported before.
#[derive(Debug)]
pub(super) struct Reported {
    turns: u64,
    usage: Usage,
    denials: usize,
    api_time: Duration,
    /// Since when nothing was reported.
    pub since: Instant,
}

impl Reported {
    /// Nothing yet.
    pub(super) fn nothing() -> Self {
        Self { turns: 0, usage: Usage::default(), denials: 0, api_time: Duration::ZERO, since: Instant::now() }
    }
}

impl Session {
    /// Tells of the end, and reports it.
    pub(super) fn report(mut self) -> RunReport {
        if self.driver.progress().tool_uses > 0 {
            let swept = sweep(&self.runtime_name, &[]);
            self.leftovers = joined(std::mem::take(&mut self.leftovers), swept);
        }
        drop(self.registration.take());
        let stop_reason = stop_reason(self.last_end.as_ref());
        let signal = self.quit.as_ref().and_then(|q| q.signal);
        let end = match (signal, self.verdict.take(), &self.unusable, self.last_end.take()) {
            (Some(signal), ..) => RunEnd::Quit(signal),
            (None, Some(verdict), ..) => verdict,
            (None, None, Some(message), _) => RunEnd::Failed { status: None, message: message.clone() },
            (None, None, None, Some(end)) => run_end(&end),
            // Nobody said anything.
            (None, None, None, None) if self.input_kind == Some(InputKind::Messages) => RunEnd::Answer(String::new()),
            (None, None, None, None) => run_end(&TurnEnd::Cancelled),
        };
        let report = self.report_of(end, stop_reason);
        // With messages each has had its result, unless a signal ended them.
        if self.input_kind != Some(InputKind::Messages) || matches!(report.end, RunEnd::Quit(_)) {
            self.teller.tell(Told::Result(&report));
        }
        report
    }

    /// Gives the results that are due.
    pub(super) fn give_results(&mut self) {
        if self.quit.is_some() {
            return;
        }
        loop {
            let waiting = self.queue.snapshot();
            let reports = |id: &str| {
                waiting.iter().any(|e| e.input.origin.as_ref().is_some_and(|o| o.task_id.as_deref() == Some(id)))
            };
            let supervisor = &self.supervisor;
            let has_more = |id: &crate::core::ids::AgentId| {
                supervisor.get(id).is_some_and(|slot| slot.is_live()) || reports(id.as_str())
            };
            let Some(end) = self.owed.due(!self.driver.is_idle(), has_more) else { return };
            let report = self.report_of(run_end(&end), stop_reason(Some(&end)));
            self.teller.tell(Told::Result(&report));
            self.reported = Reported {
                turns: self.driver.progress().turns,
                usage: *self.driver.usage(),
                denials: self.driver.denials().len(),
                api_time: self.driver.api_time(),
                since: Instant::now(),
            };
        }
    }

    /// Of everything since the latest report.
    fn report_of(&mut self, end: RunEnd, stop_reason: Option<String>) -> RunReport {
        let models = self.ledger.rows(self.model.used());
        let before = &self.reported;
        let own = self.driver.denials().iter().skip(before.denials).cloned();
        RunReport {
            session: self.id.clone(),
            end,
            turns: self.driver.progress().turns - before.turns,
            usage: since(self.driver.usage(), &before.usage),
            models,
            structured: self.given.get().cloned(),
            handed_over: self.handing_over,
            detached: self.detached.clone().unwrap_or_default(),
            leftovers: self.leftovers.clone(),
            denials: own.chain(std::mem::take(&mut self.denied)).collect(),
            duration: before.since.elapsed(),
            api_time: self.driver.api_time().saturating_sub(before.api_time),
            stop_reason,
        }
    }
}

fn stop_reason(end: Option<&TurnEnd>) -> Option<String> {
    match end {
        Some(TurnEnd::Answer { stop_reason, .. }) => stop_reason.clone(),
        _ => None,
    }
}

fn run_end(end: &TurnEnd) -> RunEnd {
    match end {
        TurnEnd::Answer { text, .. } => RunEnd::Answer(text.clone()),
        TurnEnd::MaxTurns => RunEnd::MaxTurns,
        TurnEnd::Failed { status, message } => RunEnd::Failed { status: *status, message: message.clone() },
        TurnEnd::Cancelled => RunEnd::Failed { status: None, message: "the turn was cancelled".to_owned() },
    }
}

fn since(now: &Usage, before: &Usage) -> Usage {
    Usage {
        input_tokens: now.input_tokens - before.input_tokens,
        output_tokens: now.output_tokens - before.output_tokens,
        cache_creation_input_tokens: now.cache_creation_input_tokens - before.cache_creation_input_tokens,
        cache_read_input_tokens: now.cache_read_input_tokens - before.cache_read_input_tokens,
        server_tool_use: ServerToolUsage {
            web_search_requests: now.server_tool_use.web_search_requests - before.server_tool_use.web_search_requests,
        },
    }
}
