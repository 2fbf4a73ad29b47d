//! The end of a headless run with a team (spec 3.2, 7.1, R091): when the main turn is over, every member
//! rests and nothing waits in a mailbox or on the board for any of them, the team shuts down in order.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};

use super::super::session::Session;
use super::led::{News, report};
use super::others::{Other, working};
use crate::core::agent::RowState;
use crate::core::ids::AgentId;
use crate::core::team::Status;
use crate::core::team::list::Row;
use crate::core::team::protocol::Content;
use crate::core::team::roster::Backend;
use crate::core::text::with_causes;
use crate::endpoint::alive_test;
use crate::store::runtime::RuntimeDir;
use crate::store::team::board::Owners;
use crate::store::team::{Team, TeamError};
use crate::supervisor::Command;

impl Session {
    /// Whether the run would be over but for its team.
    fn is_kept_by_team(&self) -> bool {
        self.driver.is_idle()
            && self.queue.is_empty()
            && self.inputs.is_none()
            && self.quit.is_none()
            && self.detached.is_none()
            && !self.handing_over
            && !self.shells.any_open()
            && !self.any_busy()
    }

    /// Whether the model has said nothing yet, and nobody is there to say anything to it: the session was
    /// resumed without a prompt.
    pub(super) fn has_not_begun(&self) -> bool {
        self.driver.progress().turns == 0 && self.inputs.is_none() && self.quit.is_none()
    }

    /// Looks, after every event, whether the team has nothing to do any more.
    pub(in super::super) fn consider_rest(&mut self) {
        let is_kept = self.team.is_some() && self.is_kept_by_team();
        let members = self.live_members();
        let Some(led) = self.team.as_mut().filter(|_| is_kept) else { return };
        let waits = led.reads || led.has_mail || !led.rested.is_empty() || !led.starting.is_empty();
        if led.removal.is_some() || led.looks || !led.stirred || waits {
            return;
        }
        (led.looks, led.stirred) = (true, false);
        let (team, inner, runtime) = (led.team.clone(), self.inner.clone(), self.runtime.clone());
        let is_impatient = led.is_impatient;
        let unable: Vec<String> = led.unable.iter().cloned().collect();
        let mut asked: Vec<_> =
            members.iter().filter_map(|id| Some((id.clone(), self.supervisor.commands_of(id)?))).collect();
        tokio::spawn(async move {
            // What was said to a member, and what it has read, it knows by the second answer.
            let before = all_rest(&mut asked).await;
            let looked = tokio::task::spawn_blocking(move || {
                let others = if is_impatient { Vec::new() } else { busy_others(&runtime, &team)? };
                Ok((is_all_done(&team, &members, &unable)?, others))
            });
            let (is_done, others) = match looked.await {
                Ok(Ok(looked)) => looked,
                Ok(Err(error)) => {
                    let error: TeamError = error;
                    tracing::warn!("whether the team has something to do is not known: {}", with_causes(&error));
                    (true, Vec::new())
                }
                Err(panic) => {
                    tracing::error!(%panic, "looking at the team failed");
                    (true, Vec::new())
                }
            };
            let all_done = is_done
                && others.is_empty()
                && match (before, all_rest(&mut asked).await) {
                    (Some(before), Some(after)) => after.iter().all(|(id, rest)| before.get(id) == Some(rest)),
                    _ => false,
                };
            report(&inner, News::Rest { all_done, others }).await;
        });
    }

    pub(super) fn on_team_rest(&mut self, all_done: bool, others: Vec<Other>) {
        let (is_kept, has_not_begun) = (self.is_kept_by_team(), self.has_not_begun());
        let vigil = self.await_gone(&others, self.options.settings.lead.background_wait);
        let Some(led) = &mut self.team else { return };
        led.looks = false;
        (led.kept_by, led.vigil) = (others, vigil);
        // What happened meanwhile is looked at again, and who is about to wake says so.
        if !all_done || !is_kept || led.stirred {
            return;
        }
        if has_not_begun {
            led.is_needless = true;
        } else {
            self.close_team("the session is over");
        }
    }

    /// Whether there was nothing to resume the session for.
    pub(in super::super) fn is_needless(&self) -> bool {
        self.team.as_ref().is_some_and(|led| led.is_needless)
    }

    /// Whether the run would be over but for members that are no processes of this session.
    pub(in super::super) fn is_kept_by_others(&self) -> bool {
        self.team.as_ref().is_some_and(|led| !led.kept_by.is_empty())
    }

    /// Does not wait for those any more; their names.
    pub(in super::super) fn give_up_others(&mut self) -> Vec<String> {
        let Some(led) = self.team.as_mut().filter(|led| !led.kept_by.is_empty()) else { return Vec::new() };
        (led.is_impatient, led.stirred) = (true, true);
        std::mem::take(&mut led.kept_by).into_iter().map(|other| other.name).collect()
    }
}

/// Since when each member rests, and after how many replies; none if one of them does not. One that
/// does not answer is frozen or about to end: it counts as it was last heard, at rest, and is taken out,
/// since otherwise the session would never end (R055).
async fn all_rest(members: &mut Vec<(AgentId, mpsc::Sender<Command>)>) -> Option<HashMap<AgentId, (u64, u64)>> {
    let mut answers = Vec::new();
    for (id, member) in members.drain(..) {
        let (reply, answer) = oneshot::channel();
        if member.send(Command::Status(reply)).await.is_ok() {
            answers.push((id, member, answer));
        }
    }
    let mut all = HashMap::new();
    for (id, member, answer) in answers {
        let Ok(state) = answer.await else { continue };
        if state.state != RowState::Idle || !state.shells.is_empty() {
            return None;
        }
        all.insert(id.clone(), (state.since_ms, state.progress.turns));
        members.push((id, member));
    }
    Some(all)
}

/// Those who are no processes of this session and work on something: on a card that is theirs or, if
/// another program runs them, on a turn or on mail.
fn busy_others(runtime: &RuntimeDir, team: &Team) -> Result<Vec<Other>, TeamError> {
    let working = working(runtime, team)?;
    if working.is_empty() {
        return Ok(Vec::new());
    }
    let is_alive = alive_test(runtime, team);
    let life = |owner: &str| team.life(owner, &|member| is_alive(member));
    let rows = team.board().list(Owners { life: &life, note: &|owner| format!("{owner} is gone") })?.rows;
    let mut busy = Vec::new();
    for (member, pid) in working {
        let is_his = |row: &Row| row.owner.as_ref() == Some(&member.name) && row.status != Status::Completed;
        let has_card = rows.iter().any(|row| is_his(row) && row.blocked_by.is_empty());
        let is_agent = member.backend() != Backend::External;
        let has_mail = || {
            let seen = team.mailbox(&member.name)?.look()?;
            Ok::<_, TeamError>(seen.unread().any(|mail| !Content::is_protocol(&mail.text)))
        };
        if has_card || is_agent && (member.is_active == Some(true) || has_mail()?) {
            busy.push(Other { name: member.name, pid });
        }
    }
    Ok(busy)
}

/// Whether no member has unread mail, and no card is there that one of them could begin. What a member
/// has not been woken by yet is work all the same. Those who are `unable` take no cards.
fn is_all_done(team: &Team, members: &[AgentId], unable: &[String]) -> Result<bool, TeamError> {
    let names = members.iter().filter_map(|id| id.as_member()).map(|(name, _)| name);
    for name in names.clone() {
        let seen = team.mailbox(name)?.look()?;
        if seen.unread().any(|mail| !Content::is_protocol(&mail.text)) {
            return Ok(false);
        }
    }
    let board = team.board();
    for name in names.filter(|name| !unable.iter().any(|other| other == name)) {
        if board.has_next(name)? {
            return Ok(false);
        }
    }
    Ok(true)
}
