//! Which card waits for which. A link counts if either of its ends says so: programs that write the
//! two cards one after the other can be killed in between.

use std::collections::{BTreeMap, BTreeSet};

use super::board::Cards;
use super::card::{CardId, Status};

/// The links of a board, without those to cards that are not there or to oneself.
#[derive(Debug, Default)]
pub struct Links {
    /// Card → what it waits for.
    waits_for: BTreeMap<CardId, BTreeSet<CardId>>,
}

impl Links {
    /// Of these cards.
    pub fn of(cards: &Cards) -> Self {
        let mut links = Self::default();
        for (id, card) in cards {
            for blocker in &card.blocked_by {
                links.add(*blocker, *id, cards);
            }
            for blocked in &card.blocks {
                links.add(*id, *blocked, cards);
            }
        }
        links
    }

    fn add(&mut self, blocker: CardId, blocked: CardId, cards: &Cards) {
        if blocker != blocked && cards.contains_key(&blocker) && cards.contains_key(&blocked) {
            self.waits_for.entry(blocked).or_default().insert(blocker);
        }
    }

    /// What `id` waits for and is not completed.
    pub fn open_blockers(&self, id: CardId, cards: &Cards) -> Vec<CardId> {
        let is_open = |id: &CardId| cards.get(id).is_some_and(|c| c.status != Status::Completed);
        self.blockers(id).filter(is_open).collect()
    }

    /// All that `id` waits for or waited for.
    pub fn blockers(&self, id: CardId) -> impl Iterator<Item = CardId> {
        self.waits_for.get(&id).into_iter().flatten().copied()
    }

    /// The way by which `from` waits for `to`, both included, the waiting one first; `None` if it
    /// does not.
    pub fn path(&self, from: CardId, to: CardId) -> Option<Vec<CardId>> {
        let mut came_from = BTreeMap::new();
        let mut next = vec![from];
        let mut seen = BTreeSet::from([from]);
        while let Some(id) = next.pop() {
            if id == to {
                let mut path = vec![to];
                while let Some(before) = path.last().and_then(|id| came_from.get(id)) {
                    path.push(*before);
                }
                path.reverse();
                return Some(path);
            }
            for blocker in self.blockers(id) {
                if seen.insert(blocker) {
                    came_from.insert(blocker, id);
                    next.push(blocker);
                }
            }
        }
        None
    }
}
