//! Waiting for a change of the runtime folder: a process comes, goes or says what it does. Woken by
//! the kernel (inotify), never by a clock. A process that is killed changes nothing there: its end is
//! the end of its transcript's lock.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::StoreError;
use super::runtime::RuntimeDir;

/// A watched runtime folder. Its descriptor becomes readable when something changed since it was
/// opened or last [`Self::clear`]ed: look after that, and nothing is missed.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    inotify: Inotify,
}

impl Watch {
    /// Begins to watch.
    pub fn open(dir: &RuntimeDir) -> Result<Self, StoreError> {
        let path = dir.path().to_owned();
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|e| StoreError::at(&path, "watch")(e.into()))?;
        // States are replaced by a rename; entries come by one and go by being deleted.
        let changes = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify.add_watch(&path, changes).map_err(|e| StoreError::at(&path, "watch")(e.into()))?;
        Ok(Self { path, inotify })
    }

    /// Waits for a change. False if none came within `longest`. Blocks.
    pub fn wait(&self, longest: Duration) -> Result<bool, StoreError> {
        let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(count) => Ok(count > 0),
            // Somebody looks again anyway.
            Err(Errno::EINTR) => Ok(true),
            Err(e) => Err(StoreError::at(&self.path, "watch")(e.into())),
        }
    }

    /// Forgets what has changed so far.
    pub fn clear(&self) -> Result<(), StoreError> {
        loop {
            match self.inotify.read_events() {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => return Err(StoreError::at(&self.path, "watch")(e.into())),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
