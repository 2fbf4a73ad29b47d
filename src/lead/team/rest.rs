//! The end of a headless run with a team (spec 3.2, 7.1, R091): when the main turn is over, every member
//! rests and nothing waits in a mailbox or on the board for any of them, the team shuts down in order.

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
        let asked: Vec<_> = members.iter().filter_map(|id| self.supervisor.commands_of(id)).collect();
        tokio::spawn(async move {
            // What was said to a member, and what it has read, it knows by the second answer.
            let before = all_rest(&asked).await;
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
            let all_done = all_done && before.is_some() && before == all_rest(&asked).await;
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

/// Since when each member rests, and after how many replies; none if one of them does not.
async fn all_rest(members: &[mpsc::Sender<Command>]) -> Option<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for member in members {
        let (reply, answer) = oneshot::channel();
        member.send(Command::Status(reply)).await.ok()?;
        let state = answer.await.ok()?;
        if state.state != RowState::Idle || !state.shells.is_empty() {
            return None;
        }
        all.push((state.since_ms, state.progress.turns));
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
