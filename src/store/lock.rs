//! Advisory locks (`flock`). The only file that calls fs2, and always as `FileExt::method(&file)`:
//! `File` has methods of the same names that win over the trait's and return other errors.
//!
//! A lock belongs to an open file, so it ends with its holder however that ends, and a lock file
//! copied in from elsewhere is free. "Alive" and "being written" mean an exclusive lock that is
//! held for life; whoever only wants to know takes a shared lock for a moment, which is why takers
//! of exclusive locks wait such moments out. Everything is opened close-on-exec (std's default): an
//! inherited lock would outlive its holder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fs2::FileExt;

use super::StoreError;
use crate::core::limits;

/// Enough for a few system calls.
const WAITER_STACK: usize = 128 << 10;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// A file that must be there.
    Existing,
    /// A file, which is made, 0600, if it is not there.
    Create,
    /// A folder that must be there.
    Folder,
    /// The same, and what is written goes where it is told to instead of to the end: for a lock
    /// file that says who holds it.
    CreateToRewrite,
}

/// An exclusive lock. Ends when dropped, or with the process.
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Locks a file that this process has just made and nobody else uses yet.
    pub(crate) fn of_new(file: File, path: &Path) -> Result<Self, StoreError> {
        match Attempt::of(FileExt::try_lock_exclusive(&file), path)? {
            Attempt::Got => Ok(Self { file }),
            Attempt::Contended => Err(locked(path)),
        }
    }

    /// The locked file, open for reading and appending (for writing if [`OpenMode::CreateToRewrite`]).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Turns this into a shared lock, which keeps exclusive lockers out and lets probes pass:
    /// what is locked counts as dead from here on. `None` if another locker got in between.
    pub(crate) fn downgrade(self, path: &Path) -> Result<Option<Self>, StoreError> {
        match Attempt::of(FileExt::try_lock_shared(&self.file), path)? {
            Attempt::Got => Ok(Some(self)),
            Attempt::Contended => Ok(None),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing would do, were it not for children that are just being started: until their exec
        // they share the lock. If this fails, closing is left.
        let _ = FileExt::unlock(&self.file);
    }
}

enum Attempt {
    Got,
    Contended,
}

impl Attempt {
    fn of(result: io::Result<()>, path: &Path) -> Result<Self, StoreError> {
        match result {
            Ok(()) => Ok(Self::Got),
            Err(e) if e.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(Self::Contended),
            Err(e) => Err(StoreError::at(path, "lock")(e)),
        }
    }
}

fn locked(path: &Path) -> StoreError {
    StoreError::Locked { path: path.to_owned(), holder_pid: None }
}

/// Takes the exclusive lock of `path` or fails at once with [`StoreError::Locked`], be it because
/// of a holder or of a passing probe.
pub fn try_exclusive(path: &Path, mode: OpenMode) -> Result<FileLock, StoreError> {
    exclusive(path, mode, FileExt::try_lock_exclusive)
}

fn exclusive(path: &Path, mode: OpenMode, take: fn(&File) -> io::Result<()>) -> Result<FileLock, StoreError> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::Folder)
            .append(matches!(mode, OpenMode::Existing | OpenMode::Create))
            .create(matches!(mode, OpenMode::Create | OpenMode::CreateToRewrite))
            .mode(0o600)
            .open(path)
            .map_err(StoreError::at(path, "open"))?;
        match Attempt::of(uninterrupted(|| take(&file)), path)? {
            Attempt::Contended => return Err(locked(path)),
            Attempt::Got if is_current(&file, path)? => return Ok(FileLock { file }),
            // Its last holder removed or replaced it between our open and our lock: what we hold
            // is no longer what others lock.
            Attempt::Got => {}
        }
    }
}

/// fs2 hands signals through.
fn uninterrupted(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Whether `path` still names `file`.
fn is_current(file: &File, path: &Path) -> Result<bool, StoreError> {
    let held = file.metadata().map_err(StoreError::at(path, "examine"))?;
    match std::fs::metadata(path) {
        Ok(named) => Ok(named.dev() == held.dev() && named.ino() == held.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(StoreError::at(path, "examine")(e)),
    }
}

/// Takes the exclusive lock of `path` ([`OpenMode::CreateToRewrite`]) for a short piece of work, waiting
/// in the kernel's queue with others who do the same: [`StoreError::LockTimeout`] after `deadline`.
/// Blocks.
///
/// Trying again and again instead lets a few win all the time and others wait for seconds. A
/// `flock` knows no deadline, so a thread does the waiting; one that is given up ends when it gets
/// the lock, which it lets go at once.
pub fn exclusive_within(path: &Path, deadline: Duration) -> Result<FileLock, StoreError> {
    within(path, OpenMode::CreateToRewrite, deadline)
}

/// Like [`exclusive_within`], for an existing folder: whoever changes files in it in this way does so
/// one after the other. Fails with [`StoreError::Io`] on file systems that can't lock folders.
pub fn folder_within(path: &Path, deadline: Duration) -> Result<FileLock, StoreError> {
    within(path, OpenMode::Folder, deadline)
}

fn within(path: &Path, mode: OpenMode, deadline: Duration) -> Result<FileLock, StoreError> {
    match try_exclusive(path, mode) {
        Err(StoreError::Locked { .. }) => {}
        done => return done,
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let waited_for = path.to_owned();
    let wait = move || drop(sender.send(exclusive(&waited_for, mode, FileExt::lock_exclusive)));
    thread::Builder::new()
        .name("lock".to_owned())
        .stack_size(WAITER_STACK)
        .spawn(wait)
        .map_err(StoreError::at(path, "start a thread to lock"))?;
    receiver
        .recv_timeout(deadline)
        .unwrap_or_else(|_| Err(StoreError::LockTimeout { path: path.to_owned(), waited: deadline, setting: "lock" }))
}

/// How long [`exclusive_unless_held`] waits, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the holder of the exclusive lock: it may be about to exit.
    pub holder: Duration,
    /// For holders of shared locks: each holds it for microseconds.
    pub probes: Duration,
}

impl Patience {
    /// `holder` as given, passing probes up to the deadline `probe`.
    pub fn with_holder(holder: Duration) -> Self {
        Self { holder, probes: limits::deadlines().probe }
    }
}

/// Takes the exclusive lock of the existing `path`, whose holder, if there is one, holds it for
/// life. [`StoreError::Locked`] when `patience` is at its end. Blocks.
pub fn exclusive_unless_held(path: &Path, patience: Patience) -> Result<FileLock, StoreError> {
    let started = Instant::now();
    let mut backoff = Backoff::new();
    loop {
        match try_exclusive(path, OpenMode::Existing) {
            Err(e @ StoreError::Locked { .. }) => {
                let waited = started.elapsed();
                let left = if is_held(path)? { patience.holder } else { patience.probes };
                if waited >= left {
                    return Err(e);
                }
                backoff.wait();
            }
            other => return other,
        }
    }
}

/// Whether somebody holds the exclusive lock of `path`: a shared lock that does not wait fails.
/// This is the one test of life there is (spec 5.2).
pub fn is_held(path: &Path) -> Result<bool, StoreError> {
    let file = File::open(path).map_err(StoreError::at(path, "open"))?;
    is_file_held(&file, path)
}

/// Like [`is_held`], for a file that is open already and not locked by the caller.
pub(crate) fn is_file_held(file: &File, path: &Path) -> Result<bool, StoreError> {
    match Attempt::of(FileExt::try_lock_shared(file), path)? {
        Attempt::Contended => Ok(true),
        Attempt::Got => FileExt::unlock(file).map(|()| false).map_err(StoreError::at(path, "unlock")),
    }
}

/// Waits until nobody holds the exclusive lock of `path`, without a deadline: for a thread that the
/// caller can abandon. Returns at once if nobody does.
pub fn wait_shared(path: &Path) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::at(path, "open"))?;
    uninterrupted(|| FileExt::lock_shared(&file)).map_err(StoreError::at(path, "lock"))?;
    FileExt::unlock(&file).map_err(StoreError::at(path, "unlock"))
}

/// 0.1 ms at first, for passing probes; 20 ms at most, so that a holder's end is soon noticed. For
/// what no event tells of: probes, and the lock folders and half-written files of other programs.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(Duration::from_micros(100))
    }

    pub(super) fn wait(&mut self) {
        pause(self.0);
        self.0 = (self.0 * 2).min(Duration::from_millis(20));
    }
}

/// Lets `duration` pass, or less if a signal comes. Only for [`Backoff`]; nothing else may wait like
/// this.
fn pause(duration: Duration) {
    use nix::sys::time::TimeSpec;
    // The result says only whether a signal came.
    let _ = nix::poll::ppoll(&mut [], Some(TimeSpec::from_duration(duration)), None);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const NO_TIME: Duration = Duration::ZERO;

    fn file_in(dir: &tempfile::TempDir) -> std::path::PathBuf {
        let path = dir.path().join("x.flock");
        std::fs::write(&path, b"").unwrap();
        path
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        assert!(!is_held(&path).unwrap());
        let lock = try_exclusive(&path, OpenMode::Existing).unwrap();
        assert!(is_held(&path).unwrap());
        assert!(matches!(try_exclusive(&path, OpenMode::Existing), Err(StoreError::Locked { .. })));
        drop(lock);
        assert!(!is_held(&path).unwrap());
        assert!(try_exclusive(&path, OpenMode::Existing).is_ok());
    }

    #[test]
    fn missing_files_are_made_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        assert!(matches!(try_exclusive(&path, OpenMode::Existing), Err(StoreError::Missing { .. })));
        assert!(matches!(is_held(&path), Err(StoreError::Missing { .. })));
        let lock = try_exclusive(&path, OpenMode::Create).unwrap();
        assert_eq!(lock.file().metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn r046_a_wait_for_a_lock_ends_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        let _held = try_exclusive(&path, OpenMode::Existing).unwrap();
        let error = exclusive_within(&path, Duration::from_millis(30)).unwrap_err();
        assert!(matches!(error, StoreError::LockTimeout { waited, .. } if waited >= Duration::from_millis(30)));
        assert!(matches!(exclusive_unless_held(&path, Patience::with_holder(NO_TIME)), Err(StoreError::Locked { .. })));
    }

    #[test]
    fn folders_can_be_locked() {
        let dir = tempfile::tempdir().unwrap();
        let held = folder_within(dir.path(), NO_TIME).unwrap();
        assert!(matches!(folder_within(dir.path(), NO_TIME), Err(StoreError::LockTimeout { .. })));
        drop(held);
        assert!(folder_within(dir.path(), LONG).is_ok());
        assert!(matches!(folder_within(&dir.path().join("gone"), NO_TIME), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn r046_a_lock_file_without_a_holder_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        std::fs::write(&path, b"left by process 1").unwrap();
        assert!(exclusive_within(&path, NO_TIME).is_ok());
    }

    #[test]
    fn r046_a_waiter_that_gave_up_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        for _ in 0..20 {
            // Not tried once only: the waiter of the round before may be about to let go.
            let held = exclusive_within(&path, LONG).unwrap();
            assert!(exclusive_within(&path, NO_TIME).is_err());
            drop(held);
            assert!(exclusive_within(&path, LONG).is_ok());
            wait_shared(&path).unwrap();
        }
    }

    #[test]
    fn probes_are_waited_out_and_holders_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        let probe = File::open(&path).unwrap();
        FileExt::lock_shared(&probe).unwrap();
        assert!(matches!(try_exclusive(&path, OpenMode::Existing), Err(StoreError::Locked { .. })));
        let (started, when_started) = mpsc::channel();
        std::thread::scope(|s| {
            let taker = s.spawn(|| {
                started.send(()).unwrap();
                exclusive_unless_held(&path, Patience::with_holder(NO_TIME)).map(|_| ())
            });
            when_started.recv_timeout(LONG).unwrap();
            drop(probe);
            taker.join().unwrap().unwrap();
        });
    }

    #[test]
    fn r047_a_lock_on_a_removed_file_does_not_count() {
        // Each round one thread takes the lock and removes the file; whoever holds the lock must
        // hold that of the file that is there, so the counter never sees two at a time.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.flock");
        let inside = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..50 {
                        let lock = exclusive_within(&path, LONG).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        std::fs::remove_file(&path).unwrap();
                        drop(lock);
                    }
                });
            }
        });
    }

    #[test]
    fn waiting_for_the_holder_ends_with_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        wait_shared(&path).unwrap();
        let lock = try_exclusive(&path, OpenMode::Existing).unwrap();
        let (done, when_done) = mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(|| done.send(wait_shared(&path).is_ok()).unwrap());
            assert!(when_done.recv_timeout(Duration::from_millis(20)).is_err());
            drop(lock);
            assert!(when_done.recv_timeout(LONG).unwrap());
        });
        assert!(try_exclusive(&path, OpenMode::Existing).is_ok(), "the waiter keeps nothing");
    }

    #[test]
    fn a_downgraded_lock_reads_as_dead_and_keeps_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(&dir);
        let shared = try_exclusive(&path, OpenMode::Existing).unwrap().downgrade(&path).unwrap();
        assert!(shared.is_some());
        assert!(!is_held(&path).unwrap());
        assert!(matches!(try_exclusive(&path, OpenMode::Existing), Err(StoreError::Locked { .. })));
    }
}
