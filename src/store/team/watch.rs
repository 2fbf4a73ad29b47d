//! Waking when mail comes or a card changes: one inotify instance per lead and teammate, on the
//! folders of its mailbox and its board.
//!
//! The folders are watched, not the files, which are replaced. What an event says is a hint: the
//! caller reads the file. Where the kernel can't tell of changes (no instance left, a folder on
//! another machine), a timer says every second that anything may have changed, and
//! [`Watch::polls`] why.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::core::limits;
use crate::store::StoreError;

/// What may be another now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These files: written, made or removed.
    Files(BTreeSet<PathBuf>),
    /// Anything.
    All,
    /// A folder is gone. Nothing more comes from it; if there is another in its place, a new watch
    /// is needed.
    Gone,
}

impl Changed {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Gone, _) | (_, Self::Gone) => Self::Gone,
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Files(mut a), Self::Files(b)) => {
                a.extend(b);
                Self::Files(a)
            }
        }
    }
}

/// Folders that are watched. Its descriptor ([`AsFd`]) becomes readable when
/// [`Self::try_changes`] has something.
#[derive(Debug)]
pub struct Watch {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Kernel { inotify: Inotify, folders: Vec<(WatchDescriptor, PathBuf)> },
    Timer { timer: TimerFd, reason: String },
}

impl Watch {
    /// Watches folders that are there.
    pub fn open(folders: &[&Path]) -> Result<Self, StoreError> {
        for folder in folders {
            if let Some(system) = network_file_system(folder)? {
                let reason = format!("{} is on a network file system ({system})", folder.display());
                return Self::polling(reason, limits::deadlines().poll);
            }
        }
        match Self::kernel(folders) {
            Err((folder, e)) if is_out_of_watches(e) => {
                let reason = format!("{} can't be watched: {}", folder.display(), e.desc());
                Self::polling(reason, limits::deadlines().poll)
            }
            watch => watch.map_err(|(folder, e)| StoreError::at(&folder, "watch")(e.into())),
        }
    }

    fn kernel(folders: &[&Path]) -> Result<Self, (PathBuf, Errno)> {
        let nowhere = folders.first().copied().unwrap_or_else(|| Path::new("."));
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(|e| (nowhere.to_owned(), e))?;
        // Renamed into place (our way), written in place, removed; and the folder's own end.
        let events = AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let mut watched = Vec::new();
        for folder in folders {
            let watch = inotify.add_watch(*folder, events).map_err(|e| ((*folder).to_owned(), e))?;
            watched.push((watch, (*folder).to_owned()));
        }
        Ok(Self { source: Source::Kernel { inotify, folders: watched } })
    }

    fn polling(reason: String, every: Duration) -> Result<Self, StoreError> {
        let failed = |e: Errno| StoreError::at(Path::new("a timer"), "make")(e.into());
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)
            .map_err(failed)?;
        let every = Expiration::Interval(TimeSpec::from_duration(every));
        timer.set(every, TimerSetTimeFlags::empty()).map_err(failed)?;
        Ok(Self { source: Source::Timer { timer, reason } })
    }

    /// Why it looks every second instead of being told; `None` if it is told.
    pub fn polls(&self) -> Option<&str> {
        match &self.source {
            Source::Kernel { .. } => None,
            Source::Timer { reason, .. } => Some(reason),
        }
    }

    /// What may have changed since the last call; `None` if nothing has. Never waits.
    pub fn try_changes(&mut self) -> Result<Option<Changed>, StoreError> {
        let mut changed = None;
        let mut add = |new: Changed| {
            changed = Some(match changed.take() {
                Some(old) => Changed::and(old, new),
                None => new,
            });
        };
        match &self.source {
            Source::Timer { timer, .. } => match timer.wait() {
                Ok(()) => add(Changed::All),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(StoreError::at(Path::new("a timer"), "read")(e.into())),
            },
            Source::Kernel { inotify, folders } => loop {
                match inotify.read_events() {
                    Ok(events) => {
                        for event in events {
                            let folder = folders.iter().find(|(watch, _)| *watch == event.wd).map(|(_, folder)| folder);
                            let name = event.name.as_deref().map(Path::new);
                            if let Some(new) = meaning(event.mask, folder.map(PathBuf::as_path), name) {
                                add(new);
                            }
                        }
                    }
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(e) => return Err(StoreError::at(Path::new("a watch"), "read")(e.into())),
                }
            },
        }
        Ok(changed)
    }

    /// Waits for a change; `None` when `deadline` passes first. Blocks.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Changed>, StoreError> {
        loop {
            if let Some(changed) = self.try_changes()? {
                return Ok(Some(changed));
            }
            let timeout = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => PollTimeout::NONE,
                Some(Duration::ZERO) => return Ok(None),
                // Rounded up, else the last millisecond would be spent turning.
                Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
            };
            match poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(StoreError::at(Path::new("a watch"), "wait for")(e.into())),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Kernel { inotify, .. } => inotify.as_fd(),
            Source::Timer { timer, .. } => timer.as_fd(),
        }
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// What an event says. Locks and temporary files come and go without anything being another.
fn meaning(mask: AddWatchFlags, folder: Option<&Path>, name: Option<&Path>) -> Option<Changed> {
    if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
        return Some(Changed::All);
    }
    let gone = AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_UNMOUNT
        | AddWatchFlags::IN_IGNORED;
    if mask.intersects(gone) {
        return Some(Changed::Gone);
    }
    let name = name.filter(|_| !mask.contains(AddWatchFlags::IN_ISDIR))?;
    let text = name.to_str()?;
    let is_ours = text.ends_with(".json") && !text.starts_with('.');
    Some(Changed::Files(BTreeSet::from([folder?.join(name)]))).filter(|_| is_ours)
}

fn is_out_of_watches(error: Errno) -> bool {
    matches!(error, Errno::EMFILE | Errno::ENFILE | Errno::ENOSPC | Errno::ENOMEM | Errno::ENOSYS)
}

/// The kind of network file system a folder is on: what other machines do to it, this kernel is not
/// told.
fn network_file_system(folder: &Path) -> Result<Option<&'static str>, StoreError> {
    let found = rustix::fs::statfs(folder).map_err(|e| StoreError::at(folder, "examine")(e.into()))?;
    // The low half: the type's sign differs between architectures.
    let kind = found.f_type as u32;
    let known = [
        (0x6969, "nfs"),
        (0xff53_4d42, "cifs"),
        (0xfe53_4d42, "smb"),
        (0x517b, "smb"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "fuse"),
        (0x00c3_6400, "ceph"),
        (0x5346_414f, "afs"),
        (0x7461_636f, "ocfs2"),
        (0x0bd0_0bd0, "lustre"),
    ];
    Ok(known.into_iter().find(|(magic, _)| *magic == kind).map(|(_, name)| name))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
