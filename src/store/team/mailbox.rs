//! A member's mailbox, `inboxes/<name>.json` (spec 3.3): sending into it, and reading one's own.
//!
//! The reader's three steps: [`Mailbox::unread`] gives every message an id, in the file; the caller
//! appends it to its transcript under that id; [`Mailbox::mark`] marks it read. A reader that dies
//! in between finds it unread again, and its id in its transcript.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::TeamError;
use super::compact::{Weight, kept};
use super::entries::{self, Entry, Fate, rebuild};
use super::files::{Found, read, read_short};
use super::folder::{Team, ensure};
use super::locks::{Held, Locks, Stop};
use super::salvage::{file_of, salvage};
use super::splice;
use crate::core::clock::{iso, now_ms};
use crate::core::ids::random_uuid;
use crate::core::limits;
use crate::core::team::protocol::Content;
use crate::core::team::{Letter, Mail};
use crate::core::text;
use crate::store::StoreError;
use crate::store::atomic::folder_of;

/// A mailbox without messages.
const EMPTY: &[u8] = b"[]";

/// The mailbox of a member.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// Exact name of its owner.
    name: String,
    path: PathBuf,
    locks: Locks,
}

/// What a mailbox holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The messages, oldest first.
    pub mail: Vec<Mail>,
    /// Entries that are no messages: they stay in the file and are passed over.
    pub bad: Vec<Bad>,
    /// What became of a broken file, if this call found one.
    pub rescue: Option<Rescue>,
}

impl Seen {
    /// The messages that were not read.
    pub fn unread(&self) -> impl Iterator<Item = &Mail> {
        self.mail.iter().filter(|mail| !mail.read)
    }

    /// Each once, by its id.
    fn keep_unread(&mut self) {
        let mut ids = HashSet::new();
        self.mail.retain(|mail| !mail.read && mail.msg_id.as_ref().is_some_and(|id| ids.insert(id.clone())));
    }
}

/// An entry that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its place in the file, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
    /// Its beginning.
    pub excerpt: String,
}

/// A broken file was put aside, and what there was of it kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescue {
    /// The broken file.
    pub moved_to: PathBuf,
    /// What was wrong with it.
    pub reason: String,
    /// How many messages were found in it.
    pub kept: usize,
}

/// A message lies in the mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Sent {
    /// Exact name of the receiver.
    pub to: String,
    /// What became of a broken file, if this call found one.
    pub rescue: Option<Rescue>,
}

/// What marking did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Messages that are read now and were not.
    pub marked: usize,
    /// Messages that were read earlier and are dropped.
    pub dropped: usize,
}

impl Team {
    /// Puts a message into the mailbox of a member. When this returns, it is there; on an error it
    /// is not, unless the error is one of syncing. [`TeamError::NoMember`] names the members and
    /// makes no file. Blocks.
    pub fn send(&self, letter: &Letter) -> Result<Sent, TeamError> {
        if letter.text.len() > limits::MAIL_TEXT_BYTES {
            return Err(TeamError::MailTooLong { bytes: letter.text.len(), limit: limits::MAIL_TEXT_BYTES });
        }
        let is_protocol = Content::is_protocol(&letter.text);
        let entry = serde_json::to_vec(&letter.to_mail()).map_err(|e| StoreError::damaged(&self.inboxes(), e))?;
        let mut rescue = None;
        let to = self.locks().run(|held| {
            // Under the lock: nobody of ours is taken out while we write to it.
            let (to, path) = self.find_mailbox(&letter.to)?;
            let mailbox = Mailbox::new(to, path, self.locks().clone());
            mailbox.append(held, &entry, is_protocol, &mut rescue)?;
            Ok(mailbox.name)
        })?;
        Ok(Sent { to, rescue })
    }
}

impl Mailbox {
    pub(super) fn new(name: String, path: PathBuf, locks: Locks) -> Self {
        Self { name, path, locks }
    }

    /// Exact name of its owner.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn append(
        &self,
        held: &mut Held<'_>,
        entry: &[u8],
        is_protocol: bool,
        rescue: &mut Option<Rescue>,
    ) -> Result<(), Stop> {
        match held.lock(&self.path) {
            // Another program's team, in which nobody has got mail yet.
            Err(Stop::Failed(TeamError::Store(StoreError::Missing { .. }))) => {
                ensure(folder_of(&self.path))?;
                held.lock(&self.path)?;
            }
            locked => locked?,
        }
        let mut bytes = match read(&self.path, splice::place)? {
            Found::Missing => EMPTY.to_vec(),
            Found::Whole(_, bytes) => bytes,
            Found::Damaged { bytes, reason } => self.mend(held, bytes, reason, rescue)?,
        };
        if is_protocol && bytes.len() > limits::MAILBOX_UNCOUNTED_BYTES {
            bytes = self.whole(held, bytes, rescue)?;
            let weights = weights(&entries::parse(&bytes).unwrap_or_default());
            let count = weights.iter().filter(|w| w.is_protocol && !w.is_done).count();
            let limit = limits::MAILBOX_UNREAD_PROTOCOL;
            if count >= limit {
                return Err(TeamError::TooMuchProtocol { to: self.name.clone(), count, limit }.into());
            }
        }
        if length_with(&bytes, entry) > limits::MAILBOX_BYTES {
            bytes = self.whole(held, bytes, rescue)?;
            bytes = compacted(&bytes).unwrap_or(bytes);
            let (bytes, limit) = (length_with(&bytes, entry), limits::MAILBOX_BYTES);
            if bytes > limit {
                return Err(TeamError::MailboxFull { to: self.name.clone(), bytes, limit }.into());
            }
        }
        let place = splice::place(&bytes).map_err(|reason| StoreError::damaged(&self.path, reason))?;
        held.replace(&self.path, &self.path, &place.parts(&bytes, entry))
    }

    /// `bytes` if they are a mailbox from beginning to end, else what there is of one.
    fn whole(&self, held: &Held<'_>, bytes: Vec<u8>, rescue: &mut Option<Rescue>) -> Result<Vec<u8>, Stop> {
        match entries::parse(&bytes) {
            Ok(_) => Ok(bytes),
            Err(reason) => self.mend(held, bytes, reason, rescue),
        }
    }

    /// Puts a broken file aside and keeps what can be read of it; the new content. An empty one is
    /// no loss.
    fn mend(
        &self,
        held: &Held<'_>,
        bytes: Vec<u8>,
        reason: String,
        rescue: &mut Option<Rescue>,
    ) -> Result<Vec<u8>, Stop> {
        if bytes.trim_ascii().is_empty() {
            return Ok(EMPTY.to_vec());
        }
        let moved_to = put_aside(&self.path)?;
        let found = salvage(&bytes);
        let content = file_of(&found);
        held.replace(&self.path, &self.path, &[&content])?;
        *rescue = Some(Rescue { moved_to, reason, kept: found.len() });
        Ok(content)
    }

    /// Everything in it. Takes no lock, and changes nothing unless the file is broken.
    pub fn look(&self) -> Result<Seen, TeamError> {
        self.look_with(entries::parse)
    }

    fn look_with(&self, parse: impl Fn(&[u8]) -> Result<Vec<Entry>, String>) -> Result<Seen, TeamError> {
        match read(&self.path, |bytes| parse(bytes).map(|entries| seen(bytes, &entries)))? {
            Found::Missing => Ok(Seen::default()),
            Found::Whole(seen, _) => Ok(seen),
            Found::Damaged { bytes, .. } if bytes.trim_ascii().is_empty() => Ok(Seen::default()),
            Found::Damaged { .. } => {
                self.change(|bytes, entries| (None, seen(bytes, entries))).map(|(mut seen, rescue)| {
                    seen.rescue = rescue;
                    seen
                })
            }
        }
    }

    /// What is not read yet, each message with an id that stays its own; one that is there twice
    /// comes once. `bad` (of what is not marked read) and `rescue` are told as by [`Self::look`]. Blocks.
    pub fn unread(&self) -> Result<Seen, TeamError> {
        let mut found = self.look_with(entries::parse_unread)?;
        if found.unread().any(|mail| id_of(mail).is_none()) {
            let (stamped, rescue) = self.change(stamp)?;
            found = Seen { rescue: found.rescue.or(rescue), ..stamped };
        }
        found.keep_unread();
        Ok(found)
    }

    /// The same, if it takes no longer than to have a thread do it: nothing of a file that is long, broken
    /// or missing, or that has messages without ids.
    pub fn unread_at_once(&self) -> Option<Seen> {
        let bytes = read_short(&self.path, limits::MAILBOX_AT_ONCE_BYTES).ok()??;
        let mut found = seen(&bytes, &entries::parse_unread(&bytes).ok()?);
        if found.unread().any(|mail| id_of(mail).is_none()) {
            return None;
        }
        found.keep_unread();
        Some(found)
    }

    /// Marks the messages with these ids read, and drops what need not be kept (spec 3.3). Ids that
    /// are not there are passed over: another program may have removed them. Blocks.
    pub fn mark(&self, ids: &[&str]) -> Result<Marked, TeamError> {
        let ids: HashSet<&str> = ids.iter().copied().collect();
        Ok(self.change(|bytes, entries| mark(bytes, entries, &ids))?.0)
    }

    /// Drops what need not be kept; how many. Blocks.
    pub fn compact(&self) -> Result<usize, TeamError> {
        Ok(self.mark(&[])?.dropped)
    }

    /// Reads the file under its lock and writes what `change` makes of it, if that is anything.
    fn change<T: Default>(
        &self,
        change: impl Fn(&[u8], &[Entry]) -> (Option<Vec<u8>>, T),
    ) -> Result<(T, Option<Rescue>), TeamError> {
        let mut rescue = None;
        let done = self.locks.run(|held| {
            match held.lock(&self.path) {
                // The folder is not there either.
                Err(Stop::Failed(TeamError::Store(StoreError::Missing { .. }))) => return Ok(T::default()),
                locked => locked?,
            }
            let (entries, bytes) = match read(&self.path, entries::parse)? {
                Found::Missing => return Ok(T::default()),
                Found::Whole(entries, bytes) => (entries, bytes),
                Found::Damaged { bytes, reason } => {
                    let bytes = self.mend(held, bytes, reason, &mut rescue)?;
                    (entries::parse(&bytes).map_err(|reason| StoreError::damaged(&self.path, reason))?, bytes)
                }
            };
            let (content, done) = change(&bytes, &entries);
            if let Some(content) = content {
                held.replace(&self.path, &self.path, &[&content])?;
            }
            Ok(done)
        })?;
        Ok((done, rescue))
    }
}

/// Length of the file with one more entry; what it is now if that can't be told.
fn length_with(bytes: &[u8], entry: &[u8]) -> usize {
    splice::place(bytes).map_or(bytes.len(), |place| place.parts(bytes, entry).iter().map(|part| part.len()).sum())
}

fn id_of(mail: &Mail) -> Option<&str> {
    mail.msg_id.as_deref().filter(|id| !id.is_empty())
}

fn text_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a str {
    // The parser has seen that it is UTF-8.
    std::str::from_utf8(&bytes[entry.at.clone()]).unwrap_or_default()
}

fn seen(bytes: &[u8], entries: &[Entry]) -> Seen {
    let mut seen = Seen::default();
    for entry in entries {
        match &entry.mail {
            Ok(mail) => seen.mail.push(mail.clone()),
            Err(reason) => {
                let excerpt = text::one_line(text_of(bytes, entry), 120);
                seen.bad.push(Bad { index: entry.index, reason: reason.clone(), excerpt });
            }
        }
    }
    seen
}

/// Gives an id to what is unread and has none.
fn stamp(bytes: &[u8], entries: &[Entry]) -> (Option<Vec<u8>>, Seen) {
    let mut seen = seen(bytes, entries);
    let mut mail = seen.mail.iter_mut();
    let mut fate = |entry: &Entry| {
        let mail = entry.mail.is_ok().then(|| mail.next()).flatten()?;
        if mail.read || id_of(mail).is_some() {
            return None;
        }
        let id = random_uuid();
        let text = entry.stamped(text_of(bytes, entry), &id);
        mail.msg_id = Some(id);
        Some(Fate::Become(text))
    };
    let fates: Vec<Fate> = entries.iter().map(|entry| fate(entry).unwrap_or(Fate::Keep)).collect();
    (changed(bytes, entries, &fates), seen)
}

fn mark(bytes: &[u8], entries: &[Entry], ids: &HashSet<&str>) -> (Option<Vec<u8>>, Marked) {
    let is_new = |entry: &Entry| {
        entry.mail.as_ref().is_ok_and(|mail| !mail.read && id_of(mail).is_some_and(|id| ids.contains(id)))
    };
    let mut weights = weights(entries);
    for (entry, weight) in entries.iter().zip(&mut weights) {
        weight.is_done |= is_new(entry);
    }
    let mut marked = Marked::default();
    let fates: Vec<Fate> = entries
        .iter()
        .zip(kept(&weights))
        .map(|(entry, keep)| {
            marked.marked += usize::from(is_new(entry));
            marked.dropped += usize::from(!keep);
            match (keep, is_new(entry)) {
                (false, _) => Fate::Drop,
                (true, true) => Fate::Become(entry.marked(text_of(bytes, entry))),
                (true, false) => Fate::Keep,
            }
        })
        .collect();
    (changed(bytes, entries, &fates), marked)
}

fn changed(bytes: &[u8], entries: &[Entry], fates: &[Fate]) -> Option<Vec<u8>> {
    fates.iter().any(|fate| *fate != Fate::Keep).then(|| rebuild(bytes, entries, fates))
}

fn weights(entries: &[Entry]) -> Vec<Weight> {
    let weight = |entry: &Entry| Weight {
        bytes: entry.at.len(),
        is_done: entry.is_done(),
        is_protocol: entry.mail.as_ref().is_ok_and(|mail| Content::is_protocol(&mail.text)),
    };
    entries.iter().map(weight).collect()
}

/// The file without what need not be kept; `None` if that is nothing.
fn compacted(bytes: &[u8]) -> Option<Vec<u8>> {
    let entries = entries::parse(bytes).ok()?;
    let fates: Vec<Fate> =
        kept(&weights(&entries)).into_iter().map(|keep| if keep { Fate::Keep } else { Fate::Drop }).collect();
    changed(bytes, &entries, &fates)
}

/// Gives a broken file a second name, `<name>.json.corrupt-<time>`, so that it is never without
/// either its old content or what was found in it.
fn put_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let time = iso(now_ms()).replace([':', '.'], "-");
    let mut number = 1;
    loop {
        let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".corrupt-{time}"));
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let aside = path.with_file_name(name);
        let named = fs::hard_link(path, &aside).or_else(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Err(e),
            // Some file systems know no second names.
            _ => fs::copy(path, &aside).map(drop),
        });
        match named {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            named => return named.map(|()| aside).map_err(StoreError::at(path, "put aside")),
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
