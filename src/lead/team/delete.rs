//! The end of a team (spec 3.2): members are asked, waited for, and where they have to go stopped by the
//! ladder. Its files are removed when nobody works in it any more, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::super::ask::{Ask, Asker};
use super::super::session::Session;
use super::led::{News, report};
use super::others::Other;
use crate::core::clock;
use crate::core::ids::AgentId;
use crate::core::team::Protocol;
use crate::core::team::name::LEAD;
use crate::core::team::payload::ShutdownRequest;
use crate::core::text::with_causes;
use crate::proc::deadline;
use crate::store::team::delete;
use crate::supervisor::Command;
use crate::tool::ToolOutput;
use crate::tool::team::TeamDeleteInput;

/// How a team is being removed.
pub(in super::super) struct Removal {
    /// Which removal it is.
    since: Instant,
    /// Who waits for it: a call, which nobody has to obey; none at the end of the session, when whoever
    /// is still there after its grace is stopped.
    ask: Option<Ask>,
    /// Members that said no, and why.
    refused: BTreeMap<String, String>,
    /// Those who are no processes of this session are not waited for (any more).
    is_overdue: bool,
    /// Its files are being removed.
    is_removing: bool,
    /// Tells when one of those is gone.
    _vigil: JoinSet<()>,
}

impl Removal {
    /// One that begins.
    fn begun(since: Instant, ask: Option<Ask>, is_overdue: bool, vigil: JoinSet<()>) -> Self {
        Self { since, ask, refused: BTreeMap::new(), is_overdue, is_removing: false, _vigil: vigil }
    }

    /// Whether its files are being removed.
    pub(super) fn is_removing(&self) -> bool {
        self.is_removing
    }
}

/// An id for a question to a member; other programs write them so.
pub(super) fn shutdown_request(name: &str, reason: Option<String>) -> ShutdownRequest {
    let now = clock::now_ms();
    ShutdownRequest {
        request_id: format!("shutdown-{now}@{name}"),
        from: LEAD.to_owned(),
        reason,
        timestamp: clock::iso(now),
    }
}

impl Session {
    /// Carries out `TeamDelete`.
    pub(in super::super) fn team_delete(&mut self, ask: Ask) {
        if let Asker::Agent(id) = &ask.asker {
            let text = format!("{id} is an agent, and agents don't remove teams");
            return ask.answer(ToolOutput::error(text));
        }
        let input = match TeamDeleteInput::parse(&ask.input) {
            Ok(input) => input,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        // By force, which is the person's alone, what is not of this session is not in the way.
        let is_forced = ask.asker == Asker::Person && input.wait.is_none();
        let active = self.in_the_way(is_forced);
        let Some(led) = &mut self.team else {
            let output = ToolOutput::ok("This session leads no team, so there is nothing to remove.");
            return ask.answer(output.with(json!({"success": true, "message": "no team"})));
        };
        if led.removal.is_some() {
            return ask.answer(ToolOutput::error("the team is being removed already"));
        }
        if !led.starting.is_empty() {
            return ask.answer(ToolOutput::error("a member is being started; try again when it is ready"));
        }
        match input.wait {
            None if !active.is_empty() => {
                ask.answer(ToolOutput::error(format!(
                    "members are active: {}. Ask them to end with a shutdown_request, or call TeamDelete with wait_ms, \
which asks and waits; nothing was removed",
                    active.join(", ")
                )));
            }
            wait => {
                let grace = wait.unwrap_or_default();
                self.begin_removal(Some(ask), grace, is_forced, "the lead removes the team");
            }
        }
    }

    /// Ends the team with the session.
    pub(super) fn close_team(&mut self, reason: &str) {
        if self.team.as_ref().is_some_and(|led| led.removal.is_none()) {
            let grace = self.options.settings.lead.shutdown_grace;
            self.begin_removal(None, grace, false, reason);
        }
    }

    /// Names of the members that still work.
    fn in_the_way(&self, is_overdue: bool) -> Vec<String> {
        let live = self.live_members();
        let mut names: Vec<String> =
            live.iter().filter_map(|id| id.as_member()).map(|(name, _)| name.to_owned()).collect();
        if !is_overdue {
            names.extend(self.working_others().into_iter().map(|other| other.name));
        }
        names
    }

    fn begin_removal(&mut self, ask: Option<Ask>, grace: Duration, is_overdue: bool, reason: &str) {
        let since = Instant::now();
        let others = if is_overdue { Vec::new() } else { self.working_others() };
        for Other { name, .. } in &others {
            let told = name.clone();
            self.ask_other_to_end(name, Some(reason.to_owned()), move |asked| {
                if let Err(why) = asked {
                    tracing::warn!("{told} was not asked to end: {why}");
                }
            });
        }
        let vigil = self.await_gone(&others, grace);
        for id in self.live_members() {
            let Some((name, _)) = id.as_member() else { continue };
            let request = shutdown_request(name, Some(reason.to_owned()));
            if !self.supervisor.command(&id, Command::Protocol(Box::new(Protocol::ShutdownRequest(request)))) {
                tracing::warn!(%id, "the member was not asked to end: too many requests wait");
            }
        }
        let Some(led) = &mut self.team else { return };
        led.removal = Some(Removal::begun(since, ask, is_overdue, vigil));
        let inner = self.inner.clone();
        tokio::spawn(async move {
            deadline(Some(since + grace)).await;
            report(&inner, News::GraceOver { of: since }).await;
        });
        self.remove_if_empty();
    }

    /// A member does not end.
    pub(super) fn on_refusal(&mut self, name: &str, reason: &str) {
        let Some(led) = &mut self.team else { return };
        match &mut led.removal {
            Some(removal) => {
                removal.refused.insert(name.to_owned(), reason.to_owned());
                self.give_up_if_refused();
            }
            None => {
                let id = AgentId::member(name, led.team.folder());
                let asked = id.and_then(|id| led.asked.remove(&id)).unwrap_or_default();
                if asked.is_empty() {
                    return self.tell_refusal(name, reason);
                }
                // The model did not ask.
                asked.into_iter().for_each(|ask| ask.answer(super::person::refused_answer(name, reason)));
            }
        }
    }

    /// A call that asked gives up when all that are left have said no.
    fn give_up_if_refused(&mut self) {
        let Some(removal) = self.team.as_ref().and_then(|led| led.removal.as_ref()) else { return };
        let left = self.in_the_way(removal.is_overdue);
        let all_refused = !left.is_empty() && left.iter().all(|name| removal.refused.contains_key(name));
        if all_refused && removal.ask.is_some() {
            self.give_up();
        }
    }

    pub(super) fn on_grace_over(&mut self, of: Instant) {
        let Some(removal) = self.team.as_ref().and_then(|led| led.removal.as_ref()) else { return };
        if removal.since != of || removal.is_removing || self.in_the_way(removal.is_overdue).is_empty() {
            return;
        }
        if removal.ask.is_some() {
            return self.give_up();
        }
        // What this session did not start is not its to stop (R061).
        for Other { name, pid } in self.working_others() {
            self.say(&format!("{name} (pid {pid}), which is not of this session, works on without the team"));
        }
        if let Some(removal) = self.team.as_mut().and_then(|led| led.removal.as_mut()) {
            removal.is_overdue = true;
        }
        self.remove_if_empty();
        for id in self.live_members() {
            self.say(&format!("member {id} did not end by itself and is stopped"));
            self.stop_agent(&id, "the session is over and it did not end within lead.shutdownGrace", false);
        }
    }

    /// Nothing is removed, and the call is told who is in the way.
    fn give_up(&mut self) {
        let Some(removal) = self.team.as_mut().and_then(|led| led.removal.take()) else { return };
        let left = self.in_the_way(removal.is_overdue);
        let Removal { ask: Some(ask), refused, .. } = removal else { return };
        let (mut no, mut silent) = (Vec::new(), Vec::new());
        for name in left {
            match refused.get(&name) {
                Some(reason) => no.push(format!("{name} ({reason})")),
                None => silent.push(name),
            }
        }
        let parts: Vec<String> = [("refused", &no), ("did not answer in time", &silent)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        let text = format!("the team is still there, nothing was removed. {}", parts.join("; "));
        ask.answer(ToolOutput::error(text).with(json!({"success": false, "refused": no, "unanswered": silent})));
    }

    /// Somebody is gone: what waits for that goes on.
    pub(super) fn note_gone(&mut self) {
        self.remove_if_empty();
        self.give_up_if_refused();
    }

    /// A session that ends otherwise than by its last turn ends its team, too: its members were stopped
    /// like all agents. A run that failed leaves the team to whoever resumes the session.
    pub(in super::super) fn end_team_with_session(&mut self) {
        let Some(quit) = &self.quit else { return };
        if self.detached.is_some() || quit.signal.is_none() {
            if self.live_members().is_empty() && self.team.as_ref().is_some_and(|led| led.removal.is_none()) {
                self.team = None;
            }
            return;
        }
        if let Some(led) = self.team.as_mut().filter(|led| led.removal.is_none()) {
            led.removal = Some(Removal::begun(Instant::now(), None, true, JoinSet::new()));
        }
        self.remove_if_empty();
    }

    /// Removes the files of a team that is to be removed, once nobody works in it.
    fn remove_if_empty(&mut self) {
        let Some(removal) = self.team.as_ref().and_then(|led| led.removal.as_ref()) else { return };
        if removal.is_removing || !self.in_the_way(removal.is_overdue).is_empty() {
            return;
        }
        let Some(led) = &mut self.team else { return };
        let Some(removal) = &mut led.removal else { return };
        removal.is_removing = true;
        let (team, inner) = (led.team.clone(), self.inner.clone());
        let seat = Arc::clone(&self.seat);
        tokio::spawn(async move {
            if let Err(error) = seat.close_all(&team).await {
                return report(&inner, News::Removed(Err(with_causes(&error)))).await;
            }
            let removed = tokio::task::spawn_blocking(move || delete(&team)).await;
            let removed = removed.unwrap_or_else(|panic| {
                tracing::error!(%panic, "removing the team failed");
                Ok(())
            });
            report(&inner, News::Removed(removed.map_err(|error| with_causes(&error)))).await;
        });
    }

    pub(super) fn on_removed(&mut self, removed: Result<(), String>) {
        let Some(mut led) = self.team.take() else { return };
        let name = led.team.name();
        let ask = led.removal.take().and_then(|removal| removal.ask);
        match removed {
            Ok(()) => {
                for id in self.members_ended() {
                    self.supervisor.forget(&id);
                }
                self.next_watch = Some(None);
                self.say(&format!("team {name} was removed"));
                if let Some(ask) = ask {
                    let text = format!("Team {name:?} is removed: roster, messages and cards.");
                    ask.answer(ToolOutput::ok(text).with(json!({"success": true, "team_name": name})));
                }
            }
            Err(why) => match ask {
                Some(ask) => {
                    self.team = Some(led);
                    ask.answer(ToolOutput::error(format!("the team was not removed: {why}")));
                }
                None => self.say(&format!("team {name} was not removed: {why}")),
            },
        }
    }

    fn members_ended(&self) -> Vec<AgentId> {
        self.supervisor.iter().map(|(id, _)| id).filter(|id| id.as_member().is_some()).cloned().collect()
    }
}
