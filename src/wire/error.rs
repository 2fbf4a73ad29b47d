//! What can go wrong on a socket, by what the caller can do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::address::AddressError;

/// Why something on a socket failed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection has ended; what is in flight on it is lost.
    #[error("the connection is closed")]
    Closed,
    /// The peer takes nothing in: the queue to it is full. Drop a viewer, try later otherwise.
    #[error("the queue is full, pid {pid} does not read what it is sent")]
    Slow {
        /// The peer.
        pid: i32,
    },
    /// No answer within the deadline. The connection stays open.
    #[error("does not answer (stopped?{}): no reply to {what} within {waited:?}", pid_suffix(*pid))]
    TimedOut {
        /// What was asked.
        what: String,
        /// How long was waited.
        waited: Duration,
        /// The peer, where it is known.
        pid: Option<i32>,
    },
    /// A frame is over the limit; nothing was sent.
    #[error("a frame of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not a frame, or not one that was expected here.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// The peer does not accept us.
    #[error("refused: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// The peer belongs to another user.
    #[error("the peer belongs to another user (uid {uid})")]
    PeerUid {
        /// That user.
        uid: u32,
    },
    /// Nobody listens there.
    #[error("nobody listens at {path:?}")]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The address can't be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Anything else of the system.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl WireError {
    pub(super) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }
}

fn pid_suffix(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" pid {pid}")).unwrap_or_default()
}
