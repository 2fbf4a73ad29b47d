//! What making, changing and deleting a card does to the task board (spec 3.7), over cards as
//! values. `store::team::board` reads the cards, asks here and writes the [`Changes`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::card::{Card, CardId, Status};
use super::kept::{Kept, Object};
use super::links::Links;
use super::refusal::{Refusal, unknown};

/// The cards of a board by number.
pub type Cards = BTreeMap<CardId, Kept<Card>>;

/// What is to be written: whole cards, and one that goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New content by number.
    pub write: Cards,
    /// The card to be removed, after all else.
    pub remove: Option<CardId>,
}

impl Changes {
    /// The cards that are written or removed.
    pub fn touched(&self) -> impl Iterator<Item = CardId> {
        self.write.keys().copied().chain(self.remove)
    }
}

/// Cards and what becomes of them.
pub(super) struct Draft<'a> {
    cards: &'a Cards,
    pub(super) changes: Changes,
}

impl<'a> Draft<'a> {
    pub(super) fn of(cards: &'a Cards) -> Self {
        Self { cards, changes: Changes::default() }
    }

    fn get(&self, id: CardId) -> Option<&Kept<Card>> {
        self.changes.write.get(&id).or_else(|| self.cards.get(&id))
    }

    /// Changes a card that is there; it is only written if that makes a difference.
    pub(super) fn edit(&mut self, id: CardId, change: impl FnOnce(&mut Card)) {
        let Some(mut card) = self.get(id).cloned() else { return };
        card.edit(change);
        if self.cards.get(&id) == Some(&card) {
            self.changes.write.remove(&id);
        } else {
            self.changes.write.insert(id, card);
        }
    }

    /// As the board will be.
    fn result(&self) -> Cards {
        let mut cards = self.cards.clone();
        cards.extend(self.changes.write.clone());
        cards
    }

    fn link(&mut self, blocker: CardId, blocked: CardId) -> Result<(), Refusal> {
        if blocker == blocked {
            return Err(Refusal::Itself(blocker));
        }
        for id in [blocker, blocked] {
            if self.get(id).is_none() {
                return Err(unknown(&id.to_string(), self.cards));
            }
        }
        if let Some(mut path) = Links::of(&self.result()).path(blocker, blocked) {
            path.insert(0, blocked);
            return Err(Refusal::Circle { path });
        }
        self.edit(blocker, |c| insert(&mut c.blocks, blocked));
        self.edit(blocked, |c| insert(&mut c.blocked_by, blocker));
        Ok(())
    }
}

fn insert(ids: &mut Vec<CardId>, id: CardId) {
    if !ids.contains(&id) {
        ids.push(id);
    }
}

/// A card to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewCard {
    /// What is to be done, in a few words.
    pub subject: String,
    /// What is to be done.
    pub description: String,
    /// What is being done while it is in progress.
    pub active_form: Option<String>,
    /// Cards it waits for.
    pub blocked_by: Vec<CardId>,
    /// Anything.
    pub metadata: Option<Object>,
}

/// Makes the card `id`, which is not there yet.
pub fn create(cards: &Cards, id: CardId, new: &NewCard) -> Result<Changes, Refusal> {
    let mut draft = Draft::of(cards);
    let card = Card {
        id: Some(id),
        subject: new.subject.clone(),
        description: new.description.clone(),
        active_form: new.active_form.clone(),
        metadata: new.metadata.clone(),
        ..Card::default()
    };
    draft.changes.write.insert(id, Kept::new(card));
    for blocker in &new.blocked_by {
        draft.link(*blocker, id)?;
    }
    Ok(draft.changes)
}

/// What is to become of a card; `None` and empty leave things as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    /// New subject.
    pub subject: Option<String>,
    /// New description.
    pub description: Option<String>,
    /// New words for while it is in progress.
    pub active_form: Option<String>,
    /// New status.
    pub status: Option<Status>,
    /// New owner, exactly spelt; empty for none.
    pub owner: Option<String>,
    /// Cards that shall wait for it.
    pub add_blocks: Vec<CardId>,
    /// Cards it shall wait for.
    pub add_blocked_by: Vec<CardId>,
    /// Keys to set; null takes one out.
    pub metadata: Option<Object>,
}

/// Who changes a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor<'a> {
    /// A session, or a person: owns nothing by touching it.
    Main,
    /// The member of this name: what it sets in progress becomes its own.
    Member(&'a str),
}

/// What an update did.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// The card as it is now.
    pub card: Card,
    /// Fields that are another now, as in the file.
    pub fields: Vec<&'static str>,
    /// The status before and now.
    pub status: Option<(Status, Status)>,
    /// Whose it is now and was not before: to be told by a `task_assignment`.
    pub new_owner: Option<String>,
}

/// Changes the card `id`. `members` are the names an owner can have; `None` where there is no team.
pub fn update(
    cards: &Cards,
    id: CardId,
    patch: &Patch,
    actor: Actor<'_>,
    members: Option<&[&str]>,
) -> Result<(Changes, Updated), Refusal> {
    let before = cards.get(&id).ok_or_else(|| unknown(&id.to_string(), cards))?;
    let mut owner = patch.owner.clone();
    if let (Some(owner), Some(members)) = (owner.as_deref().filter(|o| !o.is_empty()), members)
        && !members.contains(&owner)
    {
        let members = members.iter().map(|m| (*m).to_owned()).collect();
        return Err(Refusal::NotMember { owner: owner.to_owned(), members });
    }
    // Setting in progress is a claim by another name.
    if let (Actor::Member(me), Some(Status::InProgress), None) = (actor, &patch.status, &patch.owner) {
        match before.owner() {
            Some(other) if other != me => return Err(Refusal::Owned { id, owner: other.to_owned() }),
            _ => {}
        }
        let by = Links::of(cards).open_blockers(id, cards);
        if !by.is_empty() {
            return Err(Refusal::Blocked { id, by });
        }
        owner = Some(me.to_owned());
    }
    let mut draft = Draft::of(cards);
    draft.edit(id, |card| {
        set(&mut card.subject, patch.subject.as_ref());
        set(&mut card.description, patch.description.as_ref());
        set(&mut card.status, patch.status.as_ref());
        card.active_form = patch.active_form.clone().or(card.active_form.take());
        if let Some(owner) = owner {
            card.owner = Some(owner).filter(|o| !o.is_empty());
        }
        merge(&mut card.metadata, patch.metadata.as_ref());
    });
    for blocked in &patch.add_blocks {
        draft.link(id, *blocked)?;
    }
    for blocker in &patch.add_blocked_by {
        draft.link(*blocker, id)?;
    }
    let after: &Card = draft.get(id).unwrap_or(before);
    let differs = [
        ("subject", before.subject != after.subject),
        ("description", before.description != after.description),
        ("activeForm", before.active_form != after.active_form),
        ("status", before.status != after.status),
        ("owner", before.owner() != after.owner()),
        ("blocks", before.blocks != after.blocks),
        ("blockedBy", before.blocked_by != after.blocked_by),
        ("metadata", before.metadata != after.metadata),
    ];
    let updated = Updated {
        card: after.clone(),
        fields: differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect(),
        status: (before.status != after.status).then(|| (before.status.clone(), after.status.clone())),
        new_owner: after.owner().filter(|o| before.owner() != Some(o)).map(str::to_owned),
    };
    Ok((draft.changes, updated))
}

fn set<T: Clone>(field: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}

fn merge(metadata: &mut Option<Object>, patch: Option<&Object>) {
    for (key, value) in patch.into_iter().flatten() {
        match value {
            Value::Null => {
                if let Some(object) = metadata {
                    object.shift_remove(key);
                }
            }
            value => drop(metadata.get_or_insert_default().insert(key.clone(), value.clone())),
        }
    }
}

/// Takes the card `id` off the board, and out of the links of all others.
pub fn delete(cards: &Cards, id: CardId) -> Result<Changes, Refusal> {
    if !cards.contains_key(&id) {
        return Err(unknown(&id.to_string(), cards));
    }
    let mut draft = Draft::of(cards);
    for other in cards.keys().filter(|other| **other != id) {
        let card = &cards[other];
        if card.blocks.contains(&id) || card.blocked_by.contains(&id) {
            draft.edit(*other, |c| {
                c.blocks.retain(|link| *link != id);
                c.blocked_by.retain(|link| *link != id);
            });
        }
    }
    draft.changes.remove = Some(id);
    Ok(draft.changes)
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
