//! A hold on one process: it can be waited for and signalled, and never be mistaken for a later
//! one with the same pid.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A pidfd on the current runtime; clones share it.
#[derive(Clone, Debug)]
pub struct PidFd(Arc<AsyncFd<OwnedFd>>);

impl PidFd {
    /// Of a process that is known to be the right one: a child that is not reaped, or one whose
    /// identity is checked afterwards (registry lock, start time).
    ///
    /// # Errors
    /// `NotFound` if there is none; anything of the system, such as no descriptor left.
    pub fn open(pid: i32) -> io::Result<Self> {
        Self::register(open_raw(pid)?)
    }

    /// From the pidfd of a connection's peer.
    ///
    /// # Errors
    /// Anything of the system, such as no descriptor left.
    pub fn from_peer(pidfd: &OwnedFd) -> io::Result<Self> {
        Self::register(pidfd.try_clone()?)
    }

    #[expect(deprecated, reason = "its successor is unsafe for types that may not own the descriptor; this one does")]
    fn register(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(AsyncFd::with_interest(fd, Interest::READABLE)?)))
    }

    /// Returns when the process has ended (it may not be reaped yet).
    pub async fn exited(&self) {
        // Readiness is kept: an ended process stays ended. The only error is a runtime on its end.
        let _ = self.0.readable().await;
    }

    /// Whether it has not ended yet. Never waits.
    pub fn is_alive(&self) -> bool {
        !has_ended(self.0.get_ref())
    }

    /// Signals the process alone, not its group. One that has ended is no error.
    ///
    /// # Errors
    /// `PermissionDenied` for a process that is not ours.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        send(self.0.get_ref(), signal)
    }
}

/// A pidfd for use without a runtime.
pub(super) fn open_raw(pid: i32) -> io::Result<OwnedFd> {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    let pid = rustix::process::Pid::from_raw(pid.max(0)).ok_or_else(not_found)?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|e| if e == rustix::io::Errno::SRCH { not_found() } else { e.into() })
}

/// Whether the process behind a pidfd has ended.
pub(super) fn has_ended(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

/// Signals the process behind a pidfd; one that has ended is no error.
pub(super) fn send(pidfd: impl AsFd, signal: Signal) -> io::Result<()> {
    let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match pidfd_send_signal(pidfd, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}
