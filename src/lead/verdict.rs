//! What ends a run beside its last turn: the budget, an answer that fits its schema, `--detach`.
//! And the change of its model, which does not end it.

use super::options::RunEnd;
use super::queue::Priority;
use super::session::Session;
use super::structured::STRUCTURED_OUTPUT;
use super::told::{Told, Who};
use crate::agent::{Input, TurnEnd};
use crate::core::agent::Outcome;
use crate::core::clock;
use crate::core::entry::{Line, ModelSwitch};
use crate::core::ids::{self, AgentId};
use crate::supervisor::Command;

/// How often a model that ended without the answer asked for is told so.
const REMINDERS: u32 = 2;

impl Session {
    /// Writes down and says that another model answers from here on; called before its reply is
    /// handled, so that the line stands before the reply's.
    pub(super) fn note_switch(&mut self) {
        if self.switched {
            return;
        }
        let (Some(reason), Some(to)) = (self.model.switched(), self.options.fallback.clone()) else { return };
        self.switched = true;
        let from = std::mem::replace(&mut self.options.model, to);
        let to = self.options.model.to_string();
        tracing::warn!("{from} failed: {reason}; {to} goes on (--fallback-model)");
        let switch = ModelSwitch {
            from: from.to_string(),
            to: to.clone(),
            reason,
            uuid: ids::random_uuid(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.id.to_string(),
        };
        let line = Line::Switched(switch);
        if let Err(error) = self.driver.record(&line) {
            tracing::warn!(%error, "the change of the model was not written down");
        }
        self.teller.tell(Told::Line(Who::Main, &line));
        self.state.model = Some(to);
    }

    /// Ends the run once an answer that fits the schema was given: before the round of its call is
    /// over, so that the model is not asked again.
    pub(super) fn take_answer(&mut self) {
        if let Some(answer) = self.given.get().filter(|_| self.verdict.is_none() && self.quit.is_none()) {
            self.verdict = Some(RunEnd::Answer(answer.to_string()));
            self.begin_quit(None, "the session gave its answer");
        }
    }

    /// A model that ends without the answer asked for is told so, and fails the run if that does not
    /// help. True if it was told.
    pub(super) fn ask_for_answer(&mut self) -> bool {
        let is_missing = self.options.json_schema.is_some()
            && self.given.get().is_none()
            && self.verdict.is_none()
            && self.quit.is_none()
            && self.driver.is_idle()
            && self.queue.is_empty()
            && (self.options.detach || !(self.supervisor.any_live() || self.shells.any_open()))
            && matches!(self.last_end, Some(TurnEnd::Answer { .. }));
        if !is_missing {
            return false;
        }
        if self.reminders >= REMINDERS {
            let message = format!("the model ended without a valid call of {STRUCTURED_OUTPUT} (--json-schema)");
            self.verdict = Some(RunEnd::Failed { status: None, message });
            return false;
        }
        self.reminders += 1;
        let text = format!("Your answer is only taken by the tool {STRUCTURED_OUTPUT}: call it now with the answer.");
        self.queue.push(Priority::Next, Input { text, is_meta: true, ..Input::default() });
        true
    }

    /// Ends the run when more was spent than is permitted.
    pub(super) fn keep_budget(&mut self) {
        if self.quit.is_some() {
            return;
        }
        let model = &self.model;
        if let Some(why) = self.ledger.overdrawn(|| model.used()) {
            self.verdict = Some(RunEnd::Budget(why.clone()));
            self.begin_quit(None, &why);
        }
    }

    /// Counts what an agent's run used.
    pub(super) fn count_agent(&mut self, id: &AgentId, outcome: &Outcome) {
        if let Some(tokens) = &outcome.tokens {
            let model = self.supervisor.get(id).and_then(|slot| slot.meta.model.clone());
            self.ledger.add_agent(&model.unwrap_or_else(|| self.options.model.to_string()), tokens);
            self.keep_budget();
        }
        if let Some(detached) = &mut self.detached {
            detached.retain(|let_go| let_go != id);
        }
    }

    /// With `--detach`: after the main turn every agent goes on without an owner. What waits to be
    /// told is told when the session is resumed.
    pub(super) fn let_go(&mut self) {
        let is_over = self.driver.is_idle() && matches!(self.last_end, Some(TurnEnd::Answer { .. }));
        if is_over && self.quit.is_none() {
            self.let_go_now();
        }
    }

    /// With `--detach`, if it was not done before: lets go of every agent that runs.
    pub(super) fn let_go_now(&mut self) {
        if !self.options.detach || self.detached.is_some() {
            return;
        }
        let live = self.supervisor.live();
        let let_go = live.into_iter().filter(|id| self.supervisor.command(id, Command::Release)).collect();
        self.detached = Some(let_go);
        // Shells belong to this process and can't go on without it.
        self.end_shells("the run ended and let its agents go (--detach)");
    }
}
