//! How an owner and an agent come to be linked (spec 5.3, 5.4): the handshake with a child it
//! started, and the adoption of an agent that another lead started.

use std::path::Path;

use super::error::LaunchError;
use crate::core::agent::{LiveState, RegistryEntry};
use crate::core::frame::{Frame, Hello, PROTOCOL, Telling, build};
use crate::core::ids::SessionId;
use crate::core::limits::deadlines;
use crate::proc::{PidFd, Process};
use crate::wire::{Inbox, Incoming, Link, WireError, dial_and_greet, parse_address};

/// Hello (unless it was said), welcome, ready: address and runtime name of the child. What it tells of
/// its conversation before it is ready goes to `early`.
pub(super) async fn shake_hands(
    link: &Link,
    inbox: &mut Inbox,
    hello: Option<Hello>,
    welcome: Frame,
    program: &Path,
    pid: i32,
    early: &mut Vec<Frame>,
) -> Result<(String, String), LaunchError> {
    let died = || LaunchError::Died { pid, exit: String::new(), log: String::new() };
    let hello = match hello {
        Some(hello) => hello,
        None => match inbox.recv().await {
            Some(Incoming { frame: Frame::Hello(hello), .. }) => hello,
            Some(_) | None => return Err(died()),
        },
    };
    if hello.protocol != PROTOCOL || hello.build != build() {
        let reason = format!("this lead is build {}, you are build {}", build(), hello.build);
        let _ = link.send(Frame::Refused { reason });
        let _ = link.flush(deadlines().status).await;
        return Err(LaunchError::OtherBuild {
            program: program.to_path_buf(),
            theirs: hello.build,
            their_protocol: hello.protocol,
            ours: build(),
            our_protocol: PROTOCOL,
        });
    }
    link.send(welcome).map_err(|_| died())?;
    loop {
        match inbox.recv().await {
            Some(Incoming { frame: Frame::Ready { address, runtime }, .. }) => return Ok((address, runtime)),
            Some(Incoming { frame: Frame::Refused { reason }, .. }) => {
                return Err(LaunchError::Refused { pid, reason });
            }
            Some(Incoming { frame: frame @ (Frame::Entry { .. } | Frame::Compacting), .. }) => early.push(frame),
            Some(_) => {}
            None => return Err(died()),
        }
    }
}

/// A taken-over agent: process, owner link, its frames, its state, its runtime name.
pub(super) type AdoptedLink = (Process, Link, Inbox, Box<LiveState>, String);

/// Dials a living agent and becomes its owner.
pub(super) async fn adopt_link(
    entry: &RegistryEntry,
    session: &SessionId,
    telling: Telling,
) -> Result<AdoptedLink, WireError> {
    let path = parse_address(&entry.address).map_err(|e| WireError::Malformed(e.to_string()))?;
    let (link, inbox, _) = dial_and_greet(&path, "lead", session.as_str()).await?;
    let pidfd = link.peer().pidfd.clone();
    match link.request(Frame::Adopt { session: session.clone(), telling }, deadlines().reply).await? {
        Frame::Adopted { state, runtime } => {
            let pidfd = match &pidfd {
                Some(peer) => PidFd::from_peer(peer),
                // An old kernel: the pid is certain as long as the connection is.
                None => PidFd::open(entry.pid),
            };
            let pidfd = pidfd.map_err(|e| WireError::Malformed(format!("pid {}: {e}", entry.pid)))?;
            let process = Process::adopt(entry.pid, pidfd);
            Ok((process, link, inbox, state, runtime))
        }
        Frame::Error { message, .. } => Err(WireError::Refused { reason: message }),
        _ => Err(WireError::Malformed("an unexpected answer to adopt".to_owned())),
    }
}
