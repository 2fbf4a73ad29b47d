//! Who is at the other end of a socket, from the kernel and before a byte is read.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::error::WireError;

/// The process at the other end. A pid alone can be reused: whoever signals uses `pidfd`.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its pid when it connected (or called `listen`).
    pub pid: i32,
    /// Its effective uid then.
    pub uid: u32,
    /// Taken from the socket; none on kernels before 6.5.
    pub pidfd: Option<Arc<OwnedFd>>,
}

/// A connected socket whose peer is known and belongs to us (or is root's): what
/// [`super::Connection::start`] takes. Nothing was read from it yet.
#[derive(Debug)]
pub struct PeerStream {
    pub(super) stream: UnixStream,
    pub(super) peer: Peer,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl PeerStream {
    /// Asks the kernel who the peer is.
    ///
    /// # Errors
    /// [`WireError::PeerUid`] for another user's process: the socket is closed unread.
    /// [`WireError::Io`] if it is not connected.
    pub fn new(stream: UnixStream) -> Result<Self, WireError> {
        let credentials = getsockopt(&stream, sockopt::PeerCredentials)
            .map_err(|e| WireError::io("reading the credentials of a peer", e))?;
        let uid = credentials.uid();
        if !is_trusted(uid, nix::unistd::geteuid().as_raw()) {
            return Err(WireError::PeerUid { uid });
        }
        let pidfd = getsockopt(&stream, sockopt::PeerPidfd).ok().map(Arc::new);
        Ok(Self { stream, peer: Peer { pid: credentials.pid(), uid, pidfd }, permit: None })
    }

    /// The same for a socket from before the runtime was started ([`super::take_parent_link`]).
    ///
    /// # Errors
    /// As [`PeerStream::new`]; also if there is no runtime's driver to register it with.
    pub fn from_std(stream: StdUnixStream) -> Result<Self, WireError> {
        stream.set_nonblocking(true).map_err(|e| WireError::io("preparing a socket", e))?;
        Self::new(UnixStream::from_std(stream).map_err(|e| WireError::io("registering a socket", e))?)
    }

    /// The parent's end of the pair that a child got as fd 0. The kernel names whoever made the
    /// pair as the peer, which is ourselves, so the child is told by the caller.
    pub fn of_child(stream: UnixStream, pid: i32, pidfd: Option<Arc<OwnedFd>>) -> Self {
        let uid = nix::unistd::geteuid().as_raw();
        Self { stream, peer: Peer { pid, uid, pidfd }, permit: None }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn with_permit(mut self, permit: OwnedSemaphorePermit) -> Self {
        self.permit = Some(permit);
        self
    }
}

/// The trust boundary is the user; root could do anything anyway.
fn is_trusted(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_and_root_are_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0) && !is_trusted(u32::MAX, 0));
    }
}
