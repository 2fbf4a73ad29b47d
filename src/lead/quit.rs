//! What ends a session beside its last turn: a signal, nobody who listens, a failed run, and agents and
//! shells that say nothing for too long (spec 7.1). Asked politely first, killed when that takes too long.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::agent::Event as AgentEvent;
use crate::core::ids::AgentId;
use crate::core::limits::deadlines;
use crate::proc::StopSignal;

/// How long a session that quits may take for its agents before it kills them.
const QUIT_GRACE: Duration = Duration::from_millis(4500);

/// The session is being ended.
pub(super) struct Quit {
    /// By whom; none = because the run is over and agents are left.
    pub signal: Option<StopSignal>,
    pub deadline: Instant,
    pub killed: bool,
}

impl Session {
    /// When waiting must end: agents and shells that say nothing, or a quit that takes too long. Shells
    /// may go on as long as more may be said to the session.
    pub(super) fn wait_limit(&self) -> Option<Instant> {
        match &self.quit {
            Some(quit) if quit.killed => Some(quit.deadline + deadlines().stop_kill),
            Some(quit) => Some(quit.deadline),
            // A question has a limit of its own.
            None if self.desk.waits(None) || self.handing_over => None,
            None if self.driver.is_idle()
                && (self.supervisor.any_live() || self.is_kept_by_shells() || self.is_kept_by_others()) =>
            {
                Some(self.last_event + self.options.settings.lead.background_wait)
            }
            None => None,
        }
    }

    pub(super) fn on_wait_limit(&mut self) {
        if self.quit.is_some() {
            self.kill_all();
            return;
        }
        let live = self.supervisor.live();
        let shells = if self.is_kept_by_shells() { self.shells.running() } else { Vec::new() };
        let names = live.iter().map(AgentId::as_str).chain(shells.iter().map(|s| s.id.as_str()));
        let names = names.collect::<Vec<_>>().join(", ");
        let waited = humantime::format_duration(self.options.settings.lead.background_wait);
        let others = self.give_up_others();
        if !others.is_empty() {
            let others = others.join(", ");
            self.say(&format!("nothing was heard for {waited} (lead.backgroundWait); waiting no longer for {others}"));
        }
        if !names.is_empty() {
            self.say(&format!("nothing was heard for {waited} (lead.backgroundWait); stopping {names}"));
        }
        for id in &live {
            self.end_or_release(id, "it said nothing for lead.backgroundWait", false);
        }
        if !shells.is_empty() {
            self.end_shells(&format!("it had not ended {waited} after everything else (lead.backgroundWait)"));
        }
        self.last_event = Instant::now();
    }

    /// Whether the run would be over but for its background shells.
    fn is_kept_by_shells(&self) -> bool {
        self.inputs.is_none() && self.shells.any_open()
    }

    pub(super) fn on_signal(&mut self, signal: StopSignal) {
        if self.quit.as_ref().is_some_and(|q| q.signal.is_some()) {
            self.kill_all();
            return;
        }
        let why = format!("the session was ended by {}", signal.name());
        self.begin_quit(Some(signal), &why);
    }

    /// Ends the turn and asks every agent to stop; the loop goes on until they are gone.
    pub(super) fn begin_quit(&mut self, signal: Option<StopSignal>, reason: &str) {
        // With --detach the end of the session is nobody else's.
        self.let_go_now();
        self.quit = Some(Quit { signal, deadline: Instant::now() + QUIT_GRACE, killed: false });
        self.end_shells(reason);
        for id in self.supervisor.live() {
            if !self.detached.as_ref().is_some_and(|let_go| let_go.contains(&id)) {
                self.end_or_release(&id, reason, false);
            }
        }
        self.step(AgentEvent::Cancel);
    }

    fn kill_all(&mut self) {
        for id in self.supervisor.live() {
            self.end_or_release(&id, "", true);
        }
        self.shells.kill_all();
        if let Some(quit) = &mut self.quit {
            quit.killed = true;
            quit.deadline = quit.deadline.min(Instant::now());
        }
    }
}
