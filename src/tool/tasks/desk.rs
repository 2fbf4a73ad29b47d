//! Work on a task board in somebody's name: what the board's own rules leave out. Hooks are asked before a card
//! is made or completed, a new owner is told, and cards of those who are gone come free before anybody looks.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::core::clock::{iso, now_ms};
use crate::core::hook::{self, HookEvent, Occasion, Who};
use crate::core::ids::random_uuid;
use crate::core::team::board::{Actor, NewCard, Patch, Updated};
use crate::core::team::claim::Life;
use crate::core::team::payload::TaskAssignment;
use crate::core::team::{Card, CardId, Letter, Member, Protocol, Status};
use crate::core::text::with_causes;
use crate::hook::{Hooks, Ruling};
use crate::store::team::board::{Listing, Owners};
use crate::store::team::{Board, Team, TeamError};

/// Whether the process of a member lives, as far as is known; asked on a thread that may wait.
pub type AliveTest = Arc<dyn Fn(&Member) -> bool + Send + Sync>;

/// A board and who works at it. Made for one call: it holds nothing.
#[derive(Clone)]
pub struct TaskDesk {
    /// The board.
    pub board: Board,
    /// The team one is in or leads; the board need not be its own.
    pub team: Option<Team>,
    /// One's name in the team; without a team whatever stands for oneself.
    pub me: String,
    /// One's colour in the team; none for a lead.
    pub colour: Option<String>,
    /// Whether that is a lead or a person, who owns nothing by touching it. Others are members.
    pub is_lead: bool,
    /// The user's hooks.
    pub hooks: Hooks,
    /// Whether a lead is reminded to have things checked (`lead.verificationNudge`).
    pub nudge: bool,
    /// Whose cards are free again.
    pub is_alive: AliveTest,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The board's rules, or its files.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// A hook of the user's does not allow it.
    #[error("a {} hook refused it: {words}", event.as_str())]
    Hook {
        /// At what.
        event: HookEvent,
        /// What it said.
        words: String,
    },
    /// Nobody wants it any more.
    #[error("nothing was done: it was cancelled while a {} hook ran", event.as_str())]
    Cancelled {
        /// At what.
        event: HookEvent,
    },
    /// The work broke down.
    #[error("the work at the task board broke down")]
    Broken(#[from] tokio::task::JoinError),
}

/// What an update came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// What is another now.
    pub updated: Updated,
    /// Why the new owner was not told. The card is its own all the same.
    pub untold: Option<String>,
}

impl TaskDesk {
    /// Makes a card, if no hook refuses it; then there is no trace of it but a number nobody gets.
    pub async fn create(&self, new: NewCard, cancel: &CancellationToken) -> Result<Card, TaskError> {
        let board = self.board.clone();
        if !self.hooks.concern(HookEvent::TaskCreated) {
            return blocking(move || board.create(&new)).await;
        }
        // Hooks are told the number, and nobody may take a card that they have not seen.
        let blockers = new.blocked_by.clone();
        let reserve = move || {
            // What can't be made anyway is nothing to ask about.
            blockers.into_iter().try_for_each(|id| board.get(id).map(drop))?;
            board.reserve()
        };
        let id = blocking(reserve).await?;
        self.ask(Occasion::TaskCreated(task(id, &new.subject, &new.description)), cancel).await?;
        let board = self.board.clone();
        blocking(move || board.create_reserved(id, &new)).await
    }

    /// A card.
    pub async fn get(&self, id: CardId) -> Result<Card, TaskError> {
        let board = self.board.clone();
        blocking(move || board.get(id)).await
    }

    /// All cards, after those of owners who are gone were freed.
    pub async fn list(&self) -> Result<Listing, TaskError> {
        let desk = self.clone();
        blocking(move || desk.with_owners(|owners| desk.board.list(owners))).await
    }

    /// Changes a card and tells its new owner; completed only if no hook refuses that.
    pub async fn update(&self, id: CardId, patch: Patch, cancel: &CancellationToken) -> Result<Changed, TaskError> {
        if patch.status == Some(Status::Completed) && self.hooks.concern(HookEvent::TaskCompleted) {
            let card = self.get(id).await?;
            if card.status != Status::Completed {
                let subject = patch.subject.as_ref().unwrap_or(&card.subject);
                let description = patch.description.as_ref().unwrap_or(&card.description);
                self.ask(Occasion::TaskCompleted(task(id, subject, description)), cancel).await?;
            }
        }
        let desk = self.clone();
        blocking(move || desk.change(id, &patch)).await
    }

    /// Takes a card off the board; what it was.
    pub async fn delete(&self, id: CardId) -> Result<Card, TaskError> {
        let board = self.board.clone();
        blocking(move || {
            let card = board.get(id)?;
            board.delete(id).map(|()| card)
        })
        .await
    }

    async fn ask(&self, occasion: Occasion, cancel: &CancellationToken) -> Result<(), TaskError> {
        let team = self.team.clone();
        let team = match team {
            Some(team) => Some(blocking(move || Ok(team.name())).await?),
            None => None,
        };
        let who = Who { teammate: team.is_some().then(|| self.me.clone()), team };
        let event = occasion.event();
        match self.hooks.run(&occasion, &who, cancel).await {
            Ruling::Proceed => Ok(()),
            Ruling::Blocked(words) => Err(TaskError::Hook { event, words }),
            Ruling::Cancelled => Err(TaskError::Cancelled { event }),
        }
    }

    fn with_owners<T>(&self, work: impl FnOnce(Owners<'_>) -> T) -> T {
        let life = |owner: &str| match &self.team {
            Some(team) => team.life(owner, &|member| (self.is_alive)(member)),
            None => Life::Alive,
        };
        work(Owners { life: &life, note: &|owner| format!("{owner} is gone") })
    }

    fn change(&self, id: CardId, patch: &Patch) -> Result<Changed, TeamError> {
        // To begin a card is to claim it, so it must not seem to be somebody's who is gone.
        if !self.is_lead && patch.status == Some(Status::InProgress) {
            self.with_owners(|owners| self.board.list(owners))?;
        }
        let actor = if self.is_lead { Actor::Main } else { Actor::Member(&self.me) };
        let roster = self.team.as_ref().map(Team::roster).transpose()?;
        let members = roster.as_ref().map(|roster| roster.names());
        let updated = self.board.update(id, patch, actor, members.as_deref())?;
        let untold = self.tell_owner(id, &updated).err().map(|error| with_causes(&error));
        Ok(Changed { updated, untold })
    }

    fn tell_owner(&self, id: CardId, updated: &Updated) -> Result<(), TeamError> {
        let owner = updated.new_owner.as_deref().filter(|owner| *owner != self.me);
        let (Some(team), Some(owner)) = (&self.team, owner) else { return Ok(()) };
        let sent_ms = now_ms();
        let assignment = Protocol::TaskAssignment(TaskAssignment {
            task_id: id.to_string(),
            subject: updated.card.subject.clone(),
            description: updated.card.description.clone(),
            assigned_by: self.me.clone(),
            timestamp: iso(sent_ms),
        });
        let letter = Letter {
            to: owner.to_owned(),
            from: self.me.clone(),
            text: assignment.to_text(),
            summary: None,
            color: self.colour.clone(),
            sent_ms,
            msg_id: random_uuid(),
        };
        team.send(&letter).map(drop)
    }
}

fn task(id: CardId, subject: &str, description: &str) -> hook::Task {
    hook::Task { id: id.to_string(), subject: subject.to_owned(), description: description.to_owned() }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TeamError> + Send + 'static,
) -> Result<T, TaskError> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
