//! Whose a card is: claimed by one who can begin it, and free again when its owner is gone.

use std::collections::BTreeSet;

use super::board::{Cards, Changes, Draft};
use super::card::{Card, CardId, Status};
use super::kept::Kept;
use super::links::Links;
use super::refusal::{Refusal, unknown};
use super::roster::{Backend, Member, Roster};

/// Which card is to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one.
    This(CardId),
    /// The first that one can begin: of one's own before those of nobody, in the order of numbers.
    Next,
}

/// Gives a pending card that waits for nothing and belongs to nobody else to `me`, in progress.
pub fn claim(cards: &Cards, wanted: Wanted, me: &str) -> Result<(Changes, CardId), Refusal> {
    let links = Links::of(cards);
    let id = match wanted {
        Wanted::This(id) => {
            let card = cards.get(&id).ok_or_else(|| unknown(&id.to_string(), cards))?;
            check_claim(cards, &links, id, card, me)?;
            id
        }
        Wanted::Next => {
            let can = |(id, card): &(&CardId, &Kept<Card>)| check_claim(cards, &links, **id, card, me).is_ok();
            let mut open = cards.iter().filter(can);
            let mine = open.clone().find(|(_, card)| card.owner() == Some(me));
            mine.or_else(|| open.next()).map(|(id, _)| *id).ok_or_else(|| nothing_to_claim(cards))?
        }
    };
    let mut draft = Draft::of(cards);
    draft.edit(id, |card| {
        card.owner = Some(me.to_owned());
        card.status = Status::InProgress;
    });
    Ok((draft.changes, id))
}

fn check_claim(cards: &Cards, links: &Links, id: CardId, card: &Card, me: &str) -> Result<(), Refusal> {
    if let Some(owner) = card.owner().filter(|o| *o != me) {
        return Err(Refusal::Owned { id, owner: owner.to_owned() });
    }
    if card.status != Status::Pending {
        return Err(Refusal::NotPending { id, status: card.status.as_str().to_owned() });
    }
    let by = links.open_blockers(id, cards);
    if by.is_empty() { Ok(()) } else { Err(Refusal::Blocked { id, by }) }
}

fn nothing_to_claim(cards: &Cards) -> Refusal {
    let count = |status: &Status| cards.values().filter(|c| c.status == *status).count();
    Refusal::NothingToClaim {
        blocked: count(&Status::Pending),
        in_progress: count(&Status::InProgress),
        completed: count(&Status::Completed),
    }
}

/// Whether the owner of a card can still work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It can, or nobody can say that it can't (scripts, owners outside of a team).
    Alive,
    /// It is gone, or has left the team.
    Gone,
}

/// Whether an owner lives: one who is not in the team has left it, a script never dies by itself,
/// and of all others `is_alive` knows. Without a team nobody can say.
pub fn life_of(owner: &str, roster: Option<&Roster>, is_alive: &dyn Fn(&Member) -> bool) -> Life {
    let Some(roster) = roster else { return Life::Alive };
    match roster.members().find(|member| member.name == owner) {
        Some(member) if member.backend() == Backend::External || is_alive(member) => Life::Alive,
        _ => Life::Gone,
    }
}

/// Frees the cards that are not completed and whose owners are gone; `note` says why, by owner.
pub fn free(cards: &Cards, life: &dyn Fn(&str) -> Life, note: &dyn Fn(&str) -> String) -> Changes {
    let owned = |card: &Card| {
        let open = matches!(card.status, Status::Pending | Status::InProgress);
        card.owner().filter(|_| open).map(str::to_owned)
    };
    let owners: BTreeSet<String> = cards.values().filter_map(|c| owned(c)).collect();
    let gone: BTreeSet<String> = owners.into_iter().filter(|o| life(o) == Life::Gone).collect();
    let mut draft = Draft::of(cards);
    for (id, card) in cards {
        if let Some(owner) = owned(card).filter(|o| gone.contains(o)) {
            draft.edit(*id, |c| c.free(note(&owner)));
        }
    }
    draft.changes
}
