//! How a member comes to rest: it looks for a card, asks whether it may rest, and says so once, with
//! how its work ended (spec 3.5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::member::{Done, Teammate};
use crate::agent::{Input, TurnEnd};
use crate::core::agent::{Owner, RowState};
use crate::core::clock;
use crate::core::hook::{Occasion, Who};
use crate::core::team::Refusal;
use crate::core::team::claim::Wanted;
use crate::core::team::payload::{IdleNotification, IdleReason};
use crate::core::team::{Card, Protocol, shown};
use crate::core::text::{self, with_causes};
use crate::endpoint::alive_test;
use crate::hook::Ruling;
use crate::store::team::TeamError;
use crate::store::team::board::Owners;

/// Characters of its last words in the notice.
const LAST_WORDS: usize = 4000;

/// How often in a row hooks can keep a member from resting while nothing else is said to it. One that
/// objects for ever would have it work, and cost, without end.
const OBJECTIONS: u32 = 5;

/// What a member will say of itself when it rests.
#[derive(Debug, Default)]
pub(super) struct Rest {
    reason: Option<IdleReason>,
    error: Option<String>,
    summary: Option<String>,
    completed: Option<String>,
    /// How often hooks have kept it from resting since anything else was said to it.
    objections: u32,
}

impl Rest {
    /// Something was said to it.
    pub(super) fn told(&mut self) {
        self.objections = 0;
    }

    /// A turn is over.
    pub(super) fn turn_ended(&mut self, end: &TurnEnd) {
        (self.reason, self.error) = match end {
            TurnEnd::Answer { .. } => (Some(IdleReason::Available), None),
            TurnEnd::Cancelled => (Some(IdleReason::Interrupted), None),
            TurnEnd::MaxTurns => (Some(IdleReason::Failed), Some("it reached its limit of turns".to_owned())),
            TurnEnd::Failed { message, .. } => (Some(IdleReason::Failed), Some(message.clone())),
        };
    }

    /// It sent a message to a peer.
    pub(super) fn sent(&mut self, to: &str, summary: &str) {
        self.summary = Some(format!("[to {to}] {summary}"));
    }

    /// It completed a card.
    pub(super) fn completed(&mut self, card: String) {
        self.completed = Some(card);
    }

    fn take(&mut self, from: &str, last_words: &str) -> IdleNotification {
        let rest = std::mem::take(self);
        let words = last_words.trim();
        IdleNotification {
            from: from.to_owned(),
            timestamp: clock::iso(clock::now_ms()),
            idle_reason: Some(rest.reason.unwrap_or(IdleReason::Available)),
            summary: rest.summary,
            result: (!words.is_empty()).then(|| text::cap(words, LAST_WORDS, |all| format!("[cut, {all} characters]"))),
            completed_task_id: rest.completed,
            error: rest.error,
        }
    }
}

impl Teammate {
    /// Takes a card that it can begin: of its own first, then of nobody's.
    pub(super) fn take_card(&self) {
        let (team, board, me) = (self.team.clone(), self.board(), self.me.name.clone());
        let (runtime, done) = (self.runtime.clone(), self.done.clone());
        tokio::spawn(async move {
            let claimed = tokio::task::spawn_blocking(move || {
                let is_alive = alive_test(&runtime, &team);
                let life = |owner: &str| team.life(owner, &|member| is_alive(member));
                let note = |owner: &str| format!("{owner} is gone");
                let claimed = board?.claim(Wanted::Next, &me, Owners { life: &life, note: &note });
                match claimed {
                    Ok(claimed) => Ok(Some(claimed.card)),
                    Err(TeamError::Refused(Refusal::NothingToClaim { .. })) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await;
            let claimed = claimed.unwrap_or_else(|panic| {
                tracing::error!(%panic, "taking a card failed");
                Ok(None)
            });
            let _ = done.send(Done::Card(claimed)).await;
        });
    }

    pub(super) fn on_card(&mut self, card: Result<Option<Card>, TeamError>) {
        match card {
            Ok(Some(card)) => {
                self.tell(vec![Input { text: shown::card(&card), is_meta: true, ..Input::default() }]);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("no card could be taken: {}", with_causes(&error)),
        }
    }

    /// Asks the user's hooks whether it may rest.
    pub(super) fn ask_for_rest(&self) {
        let (done, hooks) = (self.done.clone(), self.hooks());
        let who = Who { teammate: Some(self.me.name.clone()), team: Some(self.team.name()) };
        tokio::spawn(async move {
            let objection = match hooks.run(&Occasion::TeammateIdle, &who, &CancellationToken::new()).await {
                Ruling::Blocked(words) => Some(words),
                Ruling::Proceed | Ruling::Cancelled => None,
            };
            let _ = done.send(Done::Rest(objection)).await;
        });
    }

    /// It may rest, unless there is an objection, which is what it works on next (up to a limit), or
    /// something came up meanwhile.
    pub(super) fn on_rest(&mut self, objection: Option<String>) {
        if !self.agent.driver.is_idle() {
            return;
        }
        if let Some(text) = objection {
            let objections = self.rest.objections + 1;
            if objections <= OBJECTIONS {
                self.tell(vec![Input { text, is_meta: true, ..Input::default() }]);
                self.rest.objections = objections;
                return;
            }
            let words = text::one_line(&text, 500);
            self.rest.error =
                Some(format!("It rests although a TeammateIdle hook objects, {objections} times in a row: {words}"));
        }
        let may_take = self.agent.state.owner != Owner::Lost;
        if !self.attention.settle(may_take) {
            return;
        }
        let notice = self.rest.take(&self.me.name, self.agent.driver.last_text());
        self.agent.set_state(RowState::Idle);
        self.write_active(false);
        // Should its lead be gone, the next one is to know.
        self.tell_lead(Protocol::IdleNotification(notice));
    }

    /// Says in the roster, for other readers, whether it is in a turn.
    pub(super) fn write_active(&self, is_active: bool) {
        self.is_active.store(is_active, Ordering::SeqCst);
        let (team, me, is_active) = (self.team.clone(), self.me.name.clone(), Arc::clone(&self.is_active));
        tokio::task::spawn_blocking(move || {
            let written = team.change_roster(|roster| {
                // As it is when it is written: writes may overtake each other.
                let is_active = is_active.load(Ordering::SeqCst);
                roster.edit_member(&me, |member| member.is_active = Some(is_active));
                Ok(())
            });
            if let Err(error) = written {
                tracing::warn!("the roster does not say whether {me} works: {}", with_causes(&error));
            }
        });
    }
}
