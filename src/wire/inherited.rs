//! The link to the parent, which a started agent finds on fd 0. Called first thing in `main`,
//! before the runtime and before anything could read stdin.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{SockType, getsockopt, sockopt};

use super::error::WireError;

/// Moves fd 0 to a close-on-exec descriptor and opens /dev/null in its place, so that neither the
/// agent's tools inherit the link nor anything reads from it by accident.
///
/// # Errors
/// [`WireError::Io`] if fd 0 is not a Unix stream socket: the program was not started by a lead.
pub fn take_parent_link() -> Result<UnixStream, WireError> {
    let link = claim(io::stdin().as_fd()).map_err(|e| WireError::io("taking the parent's link from fd 0", e))?;
    let null = File::open("/dev/null").map_err(|e| WireError::io("opening /dev/null", e))?;
    nix::unistd::dup2_stdin(&null).map_err(|e| WireError::io("replacing fd 0", e))?;
    Ok(link)
}

/// A close-on-exec duplicate (3 or above) of `fd`, if that is a connected Unix stream socket.
fn claim(fd: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let not_a_link = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a Unix stream socket");
    if !getsockopt(&fd, sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream) {
        return Err(not_a_link());
    }
    let stream = UnixStream::from(fd.try_clone_to_owned()?);
    stream.local_addr().map_err(|_| not_a_link())?;
    stream.peer_addr().map_err(|_| not_a_link())?;
    Ok(stream)
}

#[cfg(test)]
#[path = "inherited_tests.rs"]
mod tests;
