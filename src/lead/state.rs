//! What a session tells of itself and its agents: to the registry, to whoever listens, and to the person
//! who watches.

use std::time::Instant;

use super::session::Session;
use super::told::{Task, Told, Who};
use crate::core::agent::{LiveState, RowState};
use crate::core::ids::AgentId;
use crate::core::text;
use crate::supervisor::SupervisorEvent;

impl Session {
    /// Tells the listener of what happens to an agent.
    pub(super) fn tell_of(&mut self, event: &SupervisorEvent) {
        let (SupervisorEvent::Line { id, .. }
        | SupervisorEvent::Doing { id, .. }
        | SupervisorEvent::State { id, .. }
        | SupervisorEvent::NotStarted { id, .. }
        | SupervisorEvent::Ended { id, .. }) = event
        else {
            return;
        };
        let Some(slot) = self.supervisor.get(id) else { return };
        let task = Task { id, meta: &slot.meta, files: &slot.files };
        match event {
            SupervisorEvent::Line { line, .. } => self.teller.tell(Told::Line(Who::Agent(task), line)),
            SupervisorEvent::Doing { what, .. } => self.teller.doing(task, what),
            SupervisorEvent::State { state, .. } => self.teller.state(task, state),
            SupervisorEvent::NotStarted { .. } => self.teller.not_started(task),
            SupervisorEvent::Ended { outcome, .. } => self.teller.ended(task, outcome),
            _ => {}
        }
    }

    pub(super) fn on_stalled(&mut self, id: &AgentId, silent: std::time::Duration) {
        use crate::supervisor::SlotState;
        if let Some(SlotState::Live { live: Some(live), .. }) = self.supervisor.get(id).map(|s| &s.state)
            && matches!(live.state, RowState::Waiting | RowState::Idle)
        {
            return;
        }
        let last = match self.supervisor.get(id).map(|s| &s.state) {
            Some(SlotState::Live { live: Some(live), .. }) => {
                live.progress.activity.last().map(|a| format!("{} {}", a.tool, a.description))
            }
            _ => None,
        };
        let last = last.unwrap_or_else(|| "none".to_owned());
        let silent = humantime::format_duration(silent);
        self.say(&format!("agent {id} is stalled: silent for {silent} (lead.stallAfter); last activity: {last}"));
    }

    pub(super) fn current_state(&self) -> LiveState {
        let mut state = self.state.clone();
        state.progress = self.driver.progress().clone();
        state.waiting_for = match self.driver.stall_reason() {
            Some(reason) => Some(reason.to_owned()),
            None if self.driver.is_idle() => self.background_in_words(),
            None => None,
        };
        state.shells = self.shells.running();
        state
    }

    fn background_in_words(&self) -> Option<String> {
        let members = self.live_members().len();
        let agents = self.supervisor.live().len() - members;
        let shells = self.shells.running().len();
        let counts = [(agents, "agents"), (members, "members of the team"), (shells, "background commands")];
        let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }

    pub(super) fn publish(&mut self) {
        self.state = self.current_state();
        self.dirty = false;
        self.published = Instant::now();
        if let Some(registration) = &self.registration
            && let Err(error) = registration.set_state(&self.state)
        {
            tracing::warn!(%error, "the state file was not written");
        }
    }

    /// Tells the person who watches what happens.
    pub(super) fn say(&self, what: &str) {
        if self.options.progress {
            tracing::warn!(target: "lead", "{}", text::for_terminal(what));
        } else {
            tracing::info!("{what}");
        }
    }
}
