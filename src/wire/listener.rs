//! The own socket of a process. Its path is a random name that is never reused, so nothing is
//! probed, overwritten or removed here: who owns the registry entry removes the file, under the
//! entry's lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interprocess::local_socket::tokio::{Listener as LocalListener, Stream as LocalStream, prelude::*};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::address::check_socket_path;
use super::error::WireError;
use super::peer::PeerStream;
use crate::core::limits::CONNECTIONS;

/// How long accepting rests when the process has no descriptor left. No event tells that one is
/// free again, and trying at once would spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
pub struct Listener {
    listener: LocalListener,
    path: PathBuf,
    live: Arc<Semaphore>,
}

impl Listener {
    /// Binds `path` with mode 0600.
    ///
    /// # Errors
    /// [`WireError::Address`] if the path is too long (with the limit); [`WireError::Io`] if it
    /// exists (`AddrInUse`) or the folder can't be written.
    pub fn bind(path: &Path) -> Result<Self, WireError> {
        check_socket_path(path)?;
        let bound = path.to_fs_name::<GenericFilePath>().and_then(|name| {
            ListenerOptions::new().name(name).mode(0o600).reclaim_name(false).try_overwrite(false).create_tokio()
        });
        let listener = bound.map_err(|e| WireError::io(format!("binding the socket {path:?}"), e))?;
        Ok(Self { listener, path: path.to_owned(), live: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection of a process of ours (or root's); others are closed unread. At most
    /// [`CONNECTIONS`] are served at a time: more wait, unaccepted, until one ends. Can be dropped
    /// at any time without losing a connection.
    ///
    /// # Errors
    /// [`WireError::Io`] only if the socket itself is broken.
    pub async fn accept(&self) -> Result<PeerStream, WireError> {
        let permit = Arc::clone(&self.live).acquire_owned().await.map_err(|_| WireError::Closed)?;
        loop {
            let stream = match self.listener.accept().await {
                Ok(LocalStream::UdSocket(stream)) => UnixStream::from(stream),
                Err(e) if is_of_the_peer(&e) => continue,
                Err(e) if is_exhaustion(&e) => {
                    tracing::warn!(path = %self.path.display(), error = %e, "can't accept a connection now");
                    let _ = timeout(EXHAUSTED_PAUSE, std::future::pending::<()>()).await;
                    continue;
                }
                Err(e) => return Err(WireError::io(format!("accepting on {:?}", self.path), e)),
            };
            match PeerStream::new(stream) {
                Ok(stream) => return Ok(stream.with_permit(permit)),
                Err(error) => tracing::warn!(%error, "connection not accepted"),
            }
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

fn is_exhaustion(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM))
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
