//! Why an operation of the task board is refused, worded for a model.

use super::board::Cards;
use super::card::CardId;

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such card.
    #[error("there is no task {id}; {}", known(known_ids))]
    Unknown {
        /// What was asked for.
        id: String,
        /// What there is.
        known_ids: Vec<CardId>,
    },
    /// A card can't wait for itself.
    #[error("task #{0} can't block itself")]
    Itself(CardId),
    /// Cards would wait for each other.
    #[error("that would be a circle of tasks that wait for each other: {}", arrows(path))]
    Circle {
        /// The cards, each waiting for the next, the first one again at the end.
        path: Vec<CardId>,
    },
    /// Somebody else has it.
    #[error("task #{id} belongs to {owner:?}")]
    Owned {
        /// The card.
        id: CardId,
        /// Who.
        owner: String,
    },
    /// It is not waiting to be begun.
    #[error("task #{id} is {status}, not pending")]
    NotPending {
        /// The card.
        id: CardId,
        /// What it is.
        status: String,
    },
    /// It waits for others.
    #[error("task #{id} is blocked by {}", list(by))]
    Blocked {
        /// The card.
        id: CardId,
        /// For what.
        by: Vec<CardId>,
    },
    /// No card can be begun.
    #[error("no task can be claimed: {blocked} blocked, {in_progress} in progress, {completed} completed")]
    NothingToClaim {
        /// Pending ones that wait for others, or belong to somebody.
        blocked: usize,
        /// Those being worked on.
        in_progress: usize,
        /// Those done.
        completed: usize,
    },
    /// An owner has to be in the team.
    #[error("{owner:?} is not a member of the team; the members are {}", members.join(", "))]
    NotMember {
        /// Who was to be the owner.
        owner: String,
        /// Who can be.
        members: Vec<String>,
    },
}

fn list(ids: &[CardId]) -> String {
    ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ")
}

fn arrows(ids: &[CardId]) -> String {
    ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(" → ")
}

fn known(ids: &[CardId]) -> String {
    match ids {
        [] => "the list is empty".to_owned(),
        [first, .., last] if ids.len() > 20 => format!("there are {} of them, from #{first} to #{last}", ids.len()),
        _ => format!("there are {}", list(ids)),
    }
}

/// The refusal for a card that is not there.
pub fn unknown(id: &str, cards: &Cards) -> Refusal {
    Refusal::Unknown { id: format!("#{}", id.trim_start_matches('#')), known_ids: cards.keys().copied().collect() }
}
