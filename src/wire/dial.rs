//! Connecting to a process at its address.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use interprocess::local_socket::tokio::{Stream as LocalStream, prelude::*};
use interprocess::local_socket::{GenericFilePath, ToFsName};
use tokio::net::UnixStream;
use tokio::time::{interval, timeout};

use super::address::check_socket_path;
use super::connection::{Connection, Inbox, Link};
use super::error::WireError;
use super::peer::PeerStream;
use crate::core::agent::RegistryEntry;
use crate::core::frame::{Frame, Hello, PROTOCOL, build};
use crate::core::limits::deadlines;

/// Time between two tries while the listener's backlog is full.
const RETRY: Duration = Duration::from_millis(10);

/// Connects to the process that listens at `path`.
///
/// # Errors
/// [`WireError::Unreachable`] at once where nobody listens (no such file, or a dead process's);
/// [`WireError::TimedOut`] if the backlog stays full; [`WireError::PeerUid`];
/// [`WireError::Address`] for a path that is too long.
pub async fn dial(path: &Path, deadline: Duration) -> Result<(Link, Inbox), WireError> {
    check_socket_path(path)?;
    let connecting = async {
        let mut tries = interval(RETRY);
        loop {
            tries.tick().await;
            let stream = connect(path).await;
            if stream.as_ref().is_err_and(is_full_backlog) {
                continue;
            }
            return stream.map_err(|source| WireError::Unreachable { path: path.to_owned(), source });
        }
    };
    let stream = timeout(deadline, connecting).await.unwrap_or_else(|_| {
        Err(WireError::TimedOut { what: format!("connecting to {path:?}"), waited: deadline, pid: None })
    })?;
    Ok(Connection::start(PeerStream::new(stream)?))
}

/// Connects, says who we are (`role`: `lead`, `worker`, `teammate`, `shell`; `id`: agent or
/// session id, or empty) and learns who listens there, all within the handshake's deadline.
///
/// # Errors
/// As [`dial`]; [`WireError::Refused`] with the listener's reason; [`WireError::TimedOut`] with its
/// pid if it does not answer.
pub async fn dial_and_greet(path: &Path, role: &str, id: &str) -> Result<(Link, Inbox, RegistryEntry), WireError> {
    let begun = Instant::now();
    let deadline = deadlines().handshake;
    let (link, inbox) = dial(path, deadline).await?;
    let hello = Hello { protocol: PROTOCOL, build: build().to_owned(), role: role.to_owned(), id: id.to_owned() };
    match link.request(&Frame::Hello(hello), deadline.saturating_sub(begun.elapsed())).await? {
        Frame::HelloOk { entry } => Ok((link, inbox, *entry)),
        Frame::Refused { reason } | Frame::Error { message: reason, .. } => Err(WireError::Refused { reason }),
        _ => Err(WireError::Malformed("a Hello was answered with something else".into())),
    }
}

/// A connected socket. While the backlog is full the connection attempt is reported as a success
/// that isn't one; only asking for the peer's name shows it (`NotConnected`).
async fn connect(path: &Path) -> io::Result<UnixStream> {
    let LocalStream::UdSocket(stream) = LocalStream::connect(path.to_fs_name::<GenericFilePath>()?).await?;
    let stream = UnixStream::from(stream);
    stream.peer_addr()?;
    Ok(stream)
}

fn is_full_backlog(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::WouldBlock)
}
