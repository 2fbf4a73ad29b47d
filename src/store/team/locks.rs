//! The locks of a team or task list. Every change to its files is made by [`Locks::run`].
//!
//! Ours exclude each other by one `flock` per team, on a file that is never removed. Other programs
//! (JavaScript, by the habits of `proper-lockfile`) know nothing of it and lock each file by the
//! folder `<file>.lock`, so whoever holds the flock makes those too, for the files it changes.
//!
//! Such a folder does not end with its maker. So that ours do, each is noted in the flock file, by
//! inode and time, before it gets its name: the next holder of the flock knows that those noted are
//! of a dead process, and removes them at once. Whatever else has the name is another program's: it
//! is waited for, and if nobody renewed it for 10 s it was left behind. It may change hands between
//! our looking and our removing it, hence it is renamed aside, looked at again, and put back unless
//! it is the one.
//!
//! Order: the team's flock; then config, inboxes by name, cards by number. While a folder of
//! another program is waited for nothing is held, so no order of theirs can end in a deadlock.

use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::TeamError;
use crate::core::limits::{self, Durability};
use crate::core::paths::ConfigDir;
use crate::store::StoreError;
use crate::store::atomic::{create_private_dir, folder_of, rename_new, sync_folder_of};
use crate::store::lock::{self, Backoff, FileLock};

/// How the files of one team are locked and written.
#[derive(Clone, Debug)]
pub struct Locks {
    config: ConfigDir,
    /// The file of the flock.
    flock: PathBuf,
    patience: Duration,
    durability: Durability,
    /// Renames onto a name that nobody has; some network file systems can't, which a test plays.
    rename_new: fn(&Path, &Path) -> io::Result<()>,
}

/// Why work under the locks did not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// Another program has a file: let go of everything and try again.
    Foreign { path: PathBuf, lock: PathBuf, age: Duration },
    /// A lock of ours was taken away, or a file changed before it was locked: start over.
    Lost { path: PathBuf },
    /// For good.
    Failed(TeamError),
}

impl<E: Into<TeamError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Locks {
    /// Of the team or list whose folders have this name, which leads out of no folder.
    pub(super) fn new(config: &ConfigDir, folder: &str, durability: Durability) -> Self {
        let flock = config.locks().join(format!("{folder}.flock"));
        Self { config: config.clone(), flock, patience: limits::deadlines().lock, durability, rename_new }
    }

    /// Waits no longer than this.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Does `work` while nobody of ours is at this team's files. It is done again from its
    /// beginning, until the time is up, when another program is in the way, so it must read what it
    /// needs by itself. Blocks.
    pub(super) fn run<T>(&self, mut work: impl FnMut(&mut Held<'_>) -> Result<T, Stop>) -> Result<T, TeamError> {
        let begun = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            let mut held = self.take(self.patience.saturating_sub(begun.elapsed()))?;
            let stop = match work(&mut held) {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(stop) => stop,
            };
            drop(held);
            let waited = begun.elapsed();
            if waited >= self.patience {
                return Err(match stop {
                    Stop::Foreign { path, lock, age } => TeamError::Foreign { path, lock, age, waited },
                    Stop::Lost { path } => TeamError::Lost { path, waited },
                    Stop::Failed(error) => error,
                });
            }
            backoff.wait();
        }
    }

    fn take(&self, patience: Duration) -> Result<Held<'_>, TeamError> {
        let flock = match lock::exclusive_within(&self.flock, patience) {
            Err(StoreError::Missing { .. }) => {
                create_private_dir(folder_of(&self.flock))?;
                lock::exclusive_within(&self.flock, patience)
            }
            taken => taken,
        };
        let flock = flock.map_err(|e| match e {
            StoreError::LockTimeout { path, waited, .. } => {
                let pid = fs::read(&path).ok().and_then(|note| Note::parse(&note)).map(|note| note.pid);
                TeamError::Busy { path, pid, waited }
            }
            other => other.into(),
        })?;
        let note = Note { pid: std::process::id(), held: Vec::new() };
        let held = Held { locks: self, flock, note, is_noted: false };
        held.remove_what_the_dead_left()?;
        Ok(held)
    }

    /// Takes the lock of `path` away if it still is what it was. Its name is free for somebody else then,
    /// so what is renamed aside is looked at again, and put back if it is not what was judged.
    fn take_away(&self, path: &Path, judged: Identity) -> Result<(), StoreError> {
        let (lock, aside) = (lock_of(path), going_lock_of(path));
        remove_any(&aside)?;
        match fs::rename(&lock, &aside) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            moved => moved.map_err(StoreError::at(&lock, "move"))?,
        }
        let is_judged = Identity::of(&aside).map_err(StoreError::at(&aside, "examine"))? == judged;
        let put_back = || match (self.rename_new)(&aside, &lock) {
            Err(e) if is_unsupported(&e) && !lock.exists() => fs::rename(&aside, &lock),
            renamed => renamed,
        };
        if !is_judged && put_back().is_ok() {
            return Ok(());
        }
        remove_any(&aside)
    }
}

/// A lock folder, as it can be told from any that has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    inode: u64,
    /// Nanoseconds since 1970.
    modified: i64,
}

impl Identity {
    fn of(lock: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(lock)?;
        let modified = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
        Ok(Self { inode: found.ino(), modified })
    }

    /// Time between the two, whichever was first: the clock may have been set.
    fn between(self, other: Self) -> Duration {
        Duration::from_nanos(self.modified.abs_diff(other.modified))
    }
}

/// What the flock file says while its holder has lock folders: one line. An empty one says that it
/// has none. It stays when the holder dies.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    pid: u32,
    held: Vec<Noted>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    /// The locked file, from the config folder.
    file: PathBuf,
    #[serde(flatten)]
    identity: Identity,
}

impl Note {
    fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes.split(|b| *b == b'\n').next()?).ok()
    }
}

/// The lock folder of a file.
pub(super) fn lock_of(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

/// What becomes its lock folder. Only the holder of the flock makes one, so the name needs nothing
/// random; what a dead one left is in nobody's way.
fn coming_lock_of(path: &Path) -> PathBuf {
    with_suffix(path, ".lock.lead")
}

/// What was its lock folder; see [`coming_lock_of`].
fn going_lock_of(path: &Path) -> PathBuf {
    with_suffix(path, ".lock.gone")
}

/// What becomes the file itself; see [`coming_lock_of`].
fn temp_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// How a lock folder came to its name.
enum Placed {
    /// Noted, then renamed.
    Renamed,
    /// Made, not noted yet.
    Made,
}

/// The flock of a team, and the lock folders of some of its files. All end when this is dropped.
pub(super) struct Held<'a> {
    locks: &'a Locks,
    flock: FileLock,
    note: Note,
    /// Whether the flock file says something.
    is_noted: bool,
}

impl Held<'_> {
    /// Locks a file (that need not exist, in a folder that does) against other programs. One that
    /// is locked stays so. To be called in the order of the module.
    pub(super) fn lock(&mut self, path: &Path) -> Result<(), Stop> {
        let file = self.noted_path(path);
        if self.note.held.iter().any(|noted| noted.file == file) {
            return Ok(());
        }
        let (lock, coming) = (lock_of(path), coming_lock_of(path));
        make_folder(&coming)?;
        let identity = Identity::of(&coming).map_err(StoreError::at(&coming, "examine"))?;
        self.note.held.push(Noted { file, identity });
        self.write_note()?;
        let placed = self.place(path, &coming, &lock, identity);
        if !matches!(placed, Ok(Placed::Renamed)) {
            // Best effort: the next to need the name removes it if this fails.
            let _ = fs::remove_dir(&coming);
            self.note.held.pop();
        }
        if let Placed::Made = placed? {
            let identity = Identity::of(&lock).map_err(StoreError::at(&lock, "examine"))?;
            self.note.held.push(Noted { file: self.noted_path(path), identity });
            self.write_note()?;
        }
        Ok(())
    }

    fn place(&self, path: &Path, coming: &Path, lock: &Path, ours: Identity) -> Result<Placed, Stop> {
        loop {
            let placed = match (self.locks.rename_new)(coming, lock) {
                // A network file system: should we die before it is noted, it goes stale like any.
                Err(e) if is_unsupported(&e) => DirBuilder::new().mode(0o700).create(lock).map(|()| Placed::Made),
                renamed => renamed.map(|()| Placed::Renamed),
            };
            match placed {
                Ok(placed) => return Ok(placed),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(StoreError::at(lock, "create")(e).into()),
            }
            let theirs = match Identity::of(lock) {
                Ok(theirs) => theirs,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(StoreError::at(lock, "examine")(e).into()),
            };
            // Both times are of one file system's clock.
            let age = ours.between(theirs);
            if age <= limits::FOREIGN_LOCK_STALE {
                return Err(Stop::Foreign { path: path.to_owned(), lock: lock.to_owned(), age });
            }
            self.locks.take_away(path, theirs)?;
        }
    }

    /// Replaces `path`, whose lock or that of `by` is held, by what `parts` make together.
    pub(super) fn replace(&self, by: &Path, path: &Path, parts: &[&[u8]]) -> Result<(), Stop> {
        let temp = temp_of(path);
        let replaced = self.write_temp(&temp, parts).and_then(|()| {
            self.check(by)?;
            fs::rename(&temp, path).map_err(StoreError::at(path, "replace"))?;
            Ok(())
        });
        if replaced.is_err() {
            let _ = fs::remove_file(&temp);
        }
        replaced?;
        Ok(sync_folder_of(path, self.locks.durability)?)
    }

    fn write_temp(&self, temp: &Path, parts: &[&[u8]]) -> Result<(), Stop> {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(temp)
            .map_err(StoreError::at(temp, "create"))?;
        write_all(&mut file, parts).map_err(StoreError::at(temp, "write"))?;
        if self.locks.durability == Durability::Disk {
            file.sync_all().map_err(StoreError::at(temp, "sync"))?;
        }
        Ok(())
    }

    /// Removes `path`, whose lock is held; it may be gone already.
    pub(super) fn remove(&self, path: &Path) -> Result<(), Stop> {
        self.check(path)?;
        crate::store::atomic::remove(path)?;
        Ok(sync_folder_of(path, self.locks.durability)?)
    }

    /// Whether the lock of `path` still is ours: another program may have found it stale while this
    /// process was stopped.
    fn check(&self, path: &Path) -> Result<(), Stop> {
        let file = self.noted_path(path);
        let ours = self.note.held.iter().find(|noted| noted.file == file).map(|noted| noted.identity);
        match Identity::of(&lock_of(path)) {
            Ok(there) if Some(there) == ours => Ok(()),
            _ => Err(Stop::Lost { path: path.to_owned() }),
        }
    }

    /// Paths are noted from the config folder, which may be moved or be reached by another way.
    fn noted_path(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.locks.config.root()).unwrap_or(path).to_owned()
    }

    fn write_note(&mut self) -> Result<(), StoreError> {
        self.is_noted = true;
        let mut line = serde_json::to_vec(&self.note).map_err(|e| StoreError::damaged(&self.locks.flock, e))?;
        line.push(b'\n');
        self.flock.file().write_all_at(&line, 0).map_err(StoreError::at(&self.locks.flock, "write"))
    }

    fn remove_what_the_dead_left(&self) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut part = [0; 1024];
        loop {
            let got = self.flock.file().read_at(&mut part, bytes.len() as u64);
            let got = got.map_err(StoreError::at(&self.locks.flock, "read"))?;
            bytes.extend_from_slice(&part[..got]);
            if got == 0 || bytes.contains(&b'\n') {
                break;
            }
        }
        for noted in Note::parse(&bytes).into_iter().flat_map(|note| note.held) {
            if !noted.file.components().all(|c| matches!(c, Component::Normal(_))) {
                continue;
            }
            let path = self.locks.config.root().join(&noted.file);
            if Identity::of(&lock_of(&path)).is_ok_and(|there| there == noted.identity) {
                self.locks.take_away(&path, noted.identity)?;
            }
            // Whatever of these is there is as dead; the next to need the name removes it too.
            let _ = fs::remove_dir(coming_lock_of(&path));
            let _ = fs::remove_dir(going_lock_of(&path));
            let _ = fs::remove_file(temp_of(&path));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for noted in self.note.held.iter().rev() {
            let lock = lock_of(&self.locks.config.root().join(&noted.file));
            if Identity::of(&lock).is_ok_and(|there| there == noted.identity) {
                let _ = fs::remove_dir(&lock);
            }
        }
        // Only then: the next holder removes what is noted and still there. But then for sure: a folder
        // of another program may get the inode that is free now.
        if self.is_noted {
            let _ = self.flock.file().write_all_at(b"\n", 0);
        }
    }
}

/// Makes an empty folder that nobody else makes, over what a dead process left of that name.
fn make_folder(path: &Path) -> Result<(), StoreError> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::remove_dir(path).and_then(|()| fs::create_dir(path)),
        made => made,
    }
    .map_err(StoreError::at(path, "create the folder"))
}

/// Removes a lock, which out of a backup may be a file or have something in it; it may be gone.
fn remove_any(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir(path).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        io::ErrorKind::NotADirectory => fs::remove_file(path),
        _ => fs::remove_dir_all(path),
    }) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::at(path, "remove")(e)),
        _ => Ok(()),
    }
}

/// Whether the file system can't say "but only if nobody has the name".
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

fn write_all(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
