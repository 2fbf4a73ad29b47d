//! The task board on disk, `tasks/<list>/N.json` (spec 3.7): reads the cards, asks the rules of
//! `core::team` what an operation changes, and writes that under the locks of the cards.
//!
//! Of the cards an operation changes the one it is about is written last, so that an operation that
//! is cut short is as if it had not been: a link counts on either side, and a number that was
//! taken is not given again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::TeamError;
use super::files::{Found, read};
use super::folder::file_names;
use super::locks::{Held, Locks, Stop};
use crate::core::limits::{self, Durability};
use crate::core::paths::ConfigDir;
use crate::core::team::board::{Actor, Cards, Changes, NewCard, Patch, Updated, create, delete, update};
use crate::core::team::claim::{Life, Wanted, claim, free};
use crate::core::team::list::{Row, rows};
use crate::core::team::refusal::unknown;
use crate::core::team::{Card, CardId, Kept, Status, name};
use crate::core::text;
use crate::store::StoreError;
use crate::store::atomic::create_private_dir;

/// Where new numbers are counted.
const MARK: &str = ".highwatermark";
/// What stands for the list itself when it is locked.
const LIST: &str = ".lock";

/// A task list.
#[derive(Clone, Debug)]
pub struct Board {
    folder: PathBuf,
    locks: Locks,
    /// The roster of the team whose list it is.
    roster: Option<PathBuf>,
}

/// Whether owners live, and what a card says that was taken from one who does not.
#[derive(Clone, Copy)]
pub struct Owners<'a> {
    /// Asked under the lock, so it answers from what it knows.
    pub life: &'a dyn Fn(&str) -> Life,
    /// By owner.
    pub note: &'a dyn Fn(&str) -> String,
}

/// A list as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The cards by number.
    pub rows: Vec<Row>,
    /// Those that this call took from owners who are gone.
    pub freed: Vec<CardId>,
    /// Those that can't be read, and why.
    pub damaged: Vec<(CardId, String)>,
}

/// A card that is one's own now.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// It.
    pub card: Card,
    /// Those that this call took from owners who are gone.
    pub freed: Vec<CardId>,
}

/// What was found in the folder.
#[derive(Default)]
struct OnDisk {
    /// Those that can't be read too, as [`unreadable`] ones: what waits for one goes on waiting.
    cards: Cards,
    damaged: BTreeMap<CardId, String>,
}

/// What stands for a card that can't be read. It is never written.
fn unreadable(id: CardId) -> Kept<Card> {
    Kept::new(Card { id: Some(id), status: Status::Other("damaged".to_owned()), ..Card::default() })
}

impl Board {
    pub(super) fn of_team(folder: PathBuf, roster: PathBuf, locks: Locks) -> Self {
        Self { folder, locks, roster: Some(roster) }
    }

    /// The list of a session, or of somebody's own name for one. Other programs write `-` for `_` in
    /// the names of folders: where one of theirs is there, it is the list of both names.
    /// [`TeamError::BadName`] if no folder can have that name.
    pub fn open(config: &ConfigDir, list: &str, durability: Durability) -> Result<Self, TeamError> {
        if !name::is_plain(list) {
            let suggestion = name::sanitise(list);
            let suggestion = suggestion.trim_start_matches('-');
            let suggestion = if suggestion.is_empty() { "list-1" } else { &suggestion[..suggestion.len().min(64)] };
            let shown = text::one_line(list, 80);
            return Err(TeamError::BadName(format!(
                "the task list id {shown:?} can't be used: ids are 1 to 64 letters, digits, `_` or `-`, and begin with a letter or digit; try {suggestion:?}"
            )));
        }
        let of_others = name::sanitise(list);
        // A list of ours says its name (see [`Self::prepare`]), and is of that name only.
        let is_of_others =
            |folder: &Path| folder.exists() && fs::read(folder.join(LIST)).unwrap_or_default().is_empty();
        let tasks = config.tasks();
        let is_there = tasks.join(list).exists();
        let folder = if !is_there && is_of_others(&tasks.join(&of_others)) { &of_others } else { list };
        Ok(Self { folder: tasks.join(folder), locks: Locks::new(config, folder, durability), roster: None })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Waits no longer than this for locks.
    #[must_use]
    pub fn with_patience(mut self, patience: std::time::Duration) -> Self {
        self.locks = self.locks.with_patience(patience);
        self
    }

    /// Makes the folder and what is locked to make a card, unless they are there.
    /// [`TeamError::Gone`] if the team of this list is.
    pub fn prepare(&self) -> Result<(), TeamError> {
        let name = self.folder.file_name().unwrap_or_default();
        if self.roster.as_ref().is_some_and(|roster| !roster.exists()) {
            return Err(TeamError::Gone { team: name.to_string_lossy().into_owned() });
        }
        create_private_dir(&self.folder)?;
        let path = self.list_path();
        match fs::File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // Other programs leave it empty.
            made => {
                made.and_then(|mut file| file.write_all(name.as_bytes())).map_err(StoreError::at(&path, "create"))?
            }
        }
        Ok(())
    }

    fn list_path(&self) -> PathBuf {
        self.folder.join(LIST)
    }

    fn card_path(&self, id: CardId) -> PathBuf {
        self.folder.join(id.file())
    }

    /// Makes a card under the next number, which no card had before. Blocks.
    pub fn create(&self, new: &NewCard) -> Result<Card, TeamError> {
        self.create_under(None, new)
    }

    /// Takes the next number for a card that is made later, or never: nobody else gets it. Blocks.
    pub fn reserve(&self) -> Result<CardId, TeamError> {
        self.locks.run(|held| {
            self.prepare()?;
            held.lock(&self.list_path())?;
            let id = self.next_id(&self.ids()?)?;
            self.raise_mark(held, id)?;
            Ok(id)
        })
    }

    /// Makes a card under a number of [`Self::reserve`], or under the next one if a program that knows
    /// nothing of that took it. Blocks.
    pub fn create_reserved(&self, id: CardId, new: &NewCard) -> Result<Card, TeamError> {
        self.create_under(Some(id), new)
    }

    fn create_under(&self, mut reserved: Option<CardId>, new: &NewCard) -> Result<Card, TeamError> {
        self.locks.run(|held| {
            self.prepare()?;
            held.lock(&self.list_path())?;
            let ids = self.ids()?;
            let id = match reserved.filter(|id| !ids.contains(id)) {
                Some(id) => id,
                None => self.next_id(&ids)?,
            };
            reserved = Some(id);
            let cards = if new.blocked_by.is_empty() { Cards::new() } else { self.read_all()?.cards };
            let changes = create(&cards, id, new)?;
            self.raise_mark(held, id)?;
            self.apply(held, &cards, &changes, Some(id))?;
            Ok(Card::clone(&changes.write[&id]))
        })
    }

    /// Sees to it that no card to come gets the number `id`. The list is locked.
    fn raise_mark(&self, held: &Held<'_>, id: CardId) -> Result<(), Stop> {
        let (list, mark) = (self.list_path(), self.folder.join(MARK));
        let marked = self.read_mark()?.max(id.number());
        held.replace(&list, &mark, &[marked.to_string().as_bytes()])
    }

    /// A card, as its file says. [`TeamError::Refused`] if there is none.
    pub fn get(&self, id: CardId) -> Result<Card, TeamError> {
        match self.read_one(id)? {
            Found::Whole(card, _) => Ok(Card::clone(&card)),
            Found::Damaged { reason, .. } => Err(StoreError::damaged(&self.card_path(id), reason).into()),
            Found::Missing => Err(unknown(&id.to_string(), &self.read_all()?.cards).into()),
        }
    }

    /// All cards, after those of owners who are gone were freed. Blocks.
    pub fn list(&self, owners: Owners<'_>) -> Result<Listing, TeamError> {
        let mut found = self.read_all()?;
        let mut freed = Vec::new();
        // Under the lock only where there is something to free.
        if !free(&found.cards, owners.life, owners.note).write.is_empty() {
            freed = self.free(owners)?;
            found = self.read_all()?;
        }
        Ok(Listing { rows: rows(&found.cards), freed, damaged: found.damaged.into_iter().collect() })
    }

    /// Changes a card. `members` are the names an owner can have, `None` where there is no team.
    /// [`TeamError::Refused`] if the rules do not allow it. Blocks.
    pub fn update(
        &self,
        id: CardId,
        patch: &Patch,
        actor: Actor<'_>,
        members: Option<&[&str]>,
    ) -> Result<Updated, TeamError> {
        self.change(|cards| {
            let (changes, updated) = update(cards, id, patch, actor, members)?;
            Ok((changes, Some(id), updated))
        })
    }

    /// Takes a card off the board. Its number is never given again. Blocks.
    pub fn delete(&self, id: CardId) -> Result<(), TeamError> {
        self.locks.run(|held| {
            delete(&self.read_all()?.cards, id)?;
            self.prepare()?;
            held.lock(&self.list_path())?;
            let cards = self.read_all()?.cards;
            let changes = delete(&cards, id)?;
            self.raise_mark(held, id)?;
            self.apply(held, &cards, &changes, None)
        })
    }

    /// Gives a card that can be begun to `me`, in progress: checked and set under one lock, so one
    /// of many gets it, and the others are told who. Cards of owners who are gone are freed first.
    /// Blocks.
    pub fn claim(&self, wanted: Wanted, me: &str, owners: Owners<'_>) -> Result<Claimed, TeamError> {
        // Where there is nothing to be had, a crowd that was woken by one card does not queue.
        let cards = self.read_all()?.cards;
        if free(&cards, owners.life, owners.note).write.is_empty() {
            claim(&cards, wanted, me)?;
        }
        let claimed = self.change(|cards| {
            let mut changes = free(cards, owners.life, owners.note);
            let freed: Vec<CardId> = changes.touched().collect();
            let mut now = cards.clone();
            now.extend(changes.write.clone());
            let (claimed, id) = match claim(&now, wanted, me) {
                Ok(claimed) => claimed,
                // What was freed is free nevertheless.
                Err(refusal) => return Ok((changes, None, Err(refusal))),
            };
            changes.write.extend(claimed.write);
            let card = Card::clone(&changes.write[&id]);
            Ok((changes, Some(id), Ok(Claimed { card, freed })))
        })?;
        Ok(claimed?)
    }

    /// Whether there is a card that `me` could begin.
    pub fn has_next(&self, me: &str) -> Result<bool, TeamError> {
        Ok(claim(&self.read_all()?.cards, Wanted::Next, me).is_ok())
    }

    /// Frees the cards of owners who are gone; their numbers. Blocks.
    pub fn free(&self, owners: Owners<'_>) -> Result<Vec<CardId>, TeamError> {
        self.change(|cards| {
            let changes = free(cards, owners.life, owners.note);
            let freed = changes.touched().collect();
            Ok((changes, None, freed))
        })
    }

    /// Frees the cards of one owner, who leaves. Blocks.
    pub fn release(&self, owner: &str, note: &str) -> Result<Vec<CardId>, TeamError> {
        let life = |name: &str| if name == owner { Life::Gone } else { Life::Alive };
        self.free(Owners { life: &life, note: &|_| note.to_owned() })
    }

    /// Does what `plan` says about all cards; with the card it is about.
    fn change<T>(
        &self,
        plan: impl Fn(&Cards) -> Result<(Changes, Option<CardId>, T), TeamError>,
    ) -> Result<T, TeamError> {
        self.locks.run(|held| {
            let cards = self.read_all()?.cards;
            let (changes, last, done) = plan(&cards)?;
            self.apply(held, &cards, &changes, last)?;
            Ok(done)
        })
    }

    /// Writes changes that were made of `cards`, `last` last.
    fn apply(&self, held: &mut Held<'_>, cards: &Cards, changes: &Changes, last: Option<CardId>) -> Result<(), Stop> {
        for id in changes.touched().collect::<BTreeSet<_>>() {
            let path = self.card_path(id);
            held.lock(&path)?;
            // Another program may have changed it before it was locked.
            let is_same = match self.read_one(id)? {
                Found::Whole(card, _) => cards.get(&id) == Some(&card),
                Found::Missing => !cards.contains_key(&id),
                Found::Damaged { reason, .. } if changes.write.contains_key(&id) => {
                    return Err(StoreError::damaged(&path, reason).into());
                }
                Found::Damaged { .. } => cards.get(&id) == Some(&unreadable(id)),
            };
            if !is_same {
                return Err(Stop::Lost { path });
            }
        }
        let rest = changes.write.iter().filter(|(id, _)| Some(**id) != last);
        for (id, card) in rest.chain(last.and_then(|id| changes.write.get_key_value(&id))) {
            let (path, bytes) = (self.card_path(*id), card.to_bytes());
            if bytes.len() > limits::CARD_BYTES {
                let what = format!("task #{id}");
                return Err(StoreError::TooLong { what, bytes: bytes.len(), limit: limits::CARD_BYTES }.into());
            }
            held.replace(&path, &path, &[&bytes])?;
        }
        changes.remove.map_or(Ok(()), |id| held.remove(&self.card_path(id)))
    }

    fn read_one(&self, id: CardId) -> Result<Found<Kept<Card>>, StoreError> {
        read(&self.card_path(id), |bytes| Kept::<Card>::parse(bytes, id))
    }

    fn read_all(&self) -> Result<OnDisk, StoreError> {
        let mut found = OnDisk::default();
        for id in self.ids()? {
            match self.read_one(id)? {
                Found::Whole(card, _) => drop(found.cards.insert(id, card)),
                Found::Damaged { reason, .. } => {
                    found.cards.insert(id, unreadable(id));
                    found.damaged.insert(id, reason);
                }
                // Removed just now.
                Found::Missing => {}
            }
        }
        Ok(found)
    }

    /// The numbers of all cards, those included that can't be read.
    fn ids(&self) -> Result<Vec<CardId>, StoreError> {
        let mut ids: Vec<CardId> = file_names(&self.folder)?.iter().filter_map(|f| CardId::of_file(f)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// A number above all that were given: what the mark says does not count where it is lower.
    fn next_id(&self, ids: &[CardId]) -> Result<CardId, StoreError> {
        let highest = ids.last().map_or(0, |id| id.number());
        let next = self.read_mark()?.max(highest) + 1;
        CardId::new(next).ok_or_else(|| StoreError::damaged(&self.folder, "there are no numbers left"))
    }

    /// The mark; 0 if there is none or it is damaged.
    fn read_mark(&self) -> Result<u64, StoreError> {
        let path = self.folder.join(MARK);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().parse().ok().filter(|mark| *mark < CardId::MAX).unwrap_or(0)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => Ok(0),
            Err(e) => Err(StoreError::at(&path, "read")(e)),
        }
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
