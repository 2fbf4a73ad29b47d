//! When a turn of the main conversation begins, and with what: the prompt, messages that are said to
//! the session while it runs, and what agents report.

use std::time::Instant;

use super::queue::Priority;
use super::session::Session;
use super::told::{InputKind, Inputs, SessionInput};
use crate::agent::{Event as AgentEvent, Input, TurnEnd};
use crate::core::ids::AgentId;

impl Session {
    /// Whether something that is said now would be dealt with.
    pub(super) fn takes_input(&self) -> bool {
        let now = self.input_kind == Some(InputKind::Prompt) || self.driver.is_idle();
        self.inputs.is_some() && self.quit.is_none() && !self.handing_over && now
    }

    /// Something was said to the session, or nothing more will be.
    pub(super) fn on_said(&mut self, said: Option<SessionInput>) {
        let is_message = self.input_kind == Some(InputKind::Messages);
        match said {
            None => self.inputs = None,
            Some(SessionInput::Message { text, blocks, .. }) if !is_message => {
                self.queue.push(Priority::Next, Input { text, blocks, ..Input::default() });
                self.inputs = None;
            }
            Some(SessionInput::Message { id: Some(id), .. }) if self.seen.contains(&id) => {
                tracing::warn!("message {id} was said before and is left out");
            }
            Some(SessionInput::Message { text, blocks, id }) => {
                self.seen.extend(id.clone());
                self.owe();
                self.begin_turn(vec![Input { text, blocks, msg_id: id, ..Input::default() }]);
            }
            Some(SessionInput::Refused(why)) => self.owe_failure(why),
            Some(SessionInput::Unusable(why)) => {
                self.inputs = None;
                if is_message {
                    self.owe_failure(why.clone());
                }
                self.unusable = Some(why);
            }
        }
    }

    /// One more message is to have a result.
    fn owe(&mut self) {
        if !self.owed.is_any() {
            self.reported.since = Instant::now();
        }
        self.owed.message();
    }

    /// The same for a message for which there is no turn.
    fn owe_failure(&mut self, message: String) {
        self.owe();
        let end = TurnEnd::Failed { status: None, message };
        self.owed.turn_ended(&end);
        self.last_end = Some(end);
    }

    /// Starts the next turn if something waits and none runs.
    pub(super) fn next_turn(&mut self) {
        if self.quit.is_some()
            || self.handing_over
            || self.detached.is_some()
            || !self.driver.is_idle()
            || self.has_failed()
        {
            return;
        }
        loop {
            let said = match &mut self.inputs {
                Some(Inputs { kind: InputKind::Prompt, .. }) => return,
                // What a person says comes before what agents report.
                Some(Inputs { kind: InputKind::Messages, receiver }) => receiver.try_recv().ok(),
                None => None,
            };
            let Some(said) = said else { break };
            self.on_said(Some(said));
            // Not everything that is said is a turn.
            if !self.driver.is_idle() {
                return;
            }
        }
        let mut inputs = self.queue.drain();
        if inputs.is_empty() {
            return;
        }
        inputs.extend(self.take_rested());
        if self.input_kind == Some(InputKind::Messages) {
            let reported = inputs.iter().filter_map(|i| AgentId::parse(i.origin.as_ref()?.task_id.as_deref()?));
            self.owed.notified(&reported.collect::<Vec<_>>());
        }
        self.begin_turn(inputs);
    }

    fn begin_turn(&mut self, inputs: Vec<Input>) {
        self.teller.turn();
        self.step(AgentEvent::Inputs(inputs));
    }

    /// Whether the prompt can't be used.
    pub(super) fn cant_begin(&self) -> bool {
        self.unusable.is_some() && self.input_kind == Some(InputKind::Prompt)
    }
}

/// What is said next; none = nothing more is.
pub(super) async fn hear(inputs: &mut Option<Inputs>) -> Option<SessionInput> {
    match inputs {
        Some(inputs) => inputs.receiver.recv().await,
        None => std::future::pending().await,
    }
}
