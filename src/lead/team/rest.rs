//! The end of a headless run with a team (spec 3.2, 7.1, R091): when the main turn is over, every member
//! rests and nothing waits in a mailbox or on the board for any of them, the team shuts down in order.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};

use super::super::session::Session;
use super::led::{News, report};
use crate::core::agent::RowState;
use crate::core::ids::AgentId;
use crate::core::team::protocol::Content;
use crate::core::text::with_causes;
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
            && self.last_end.is_some()
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
        let (team, inner) = (led.team.clone(), self.inner.clone());
        let unable: Vec<String> = led.unable.iter().cloned().collect();
        let mut asked: Vec<_> =
            members.iter().filter_map(|id| Some((id.clone(), self.supervisor.commands_of(id)?))).collect();
        tokio::spawn(async move {
            // What was said to a member, and what it has read, it knows by the second answer.
            let before = all_rest(&mut asked).await;
            let looked = tokio::task::spawn_blocking(move || is_all_done(&team, &members, &unable)).await;
            let all_done = match looked {
                Ok(Ok(all_done)) => all_done,
                Ok(Err(error)) => {
                    tracing::warn!("whether the team has something to do is not known: {}", with_causes(&error));
                    true
                }
                Err(panic) => {
                    tracing::error!(%panic, "looking at the team failed");
                    true
                }
            };
            let all_done = all_done
                && match (before, all_rest(&mut asked).await) {
                    (Some(before), Some(after)) => after.iter().all(|(id, rest)| before.get(id) == Some(rest)),
                    _ => false,
                };
            report(&inner, News::Rest { all_done }).await;
        });
    }

    pub(super) fn on_team_rest(&mut self, all_done: bool) {
        let is_kept = self.is_kept_by_team();
        let Some(led) = &mut self.team else { return };
        led.looks = false;
        // What happened meanwhile is looked at again, and who is about to wake says so.
        if all_done && is_kept && !led.stirred {
            self.close_team("the session is over");
        }
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
