//! Starting an agent's process. No hook runs between fork and exec, so that the standard library
//! stays on `posix_spawn`: a fork of a large lead costs up to 90 times as much. What else a child
//! needs (signal mask, limits) it sets itself.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::net::UnixStream;

use super::error::ProcError;
use super::process::Process;
use crate::core::limits::LOG_BYTES;

/// A started agent.
#[derive(Debug)]
pub struct SpawnedAgent {
    /// Its process, which leads its own group.
    pub process: Process,
    /// Our end of the pair whose other end is its fd 0.
    pub link: UnixStream,
}

/// Starts `program` (an absolute path) in the folder `cwd` with exactly the environment `env`.
/// Its output is appended to the file `log`, whose folder exists; a log over [`LOG_BYTES`] becomes
/// `….log.1` first. Takes the time of a `posix_spawn`, and needs a runtime.
///
/// # Errors
/// [`ProcError::NoFolder`], [`ProcError::Start`]; [`ProcError::Io`] for the log, or if no
/// descriptor is left. Nothing is left running then.
pub fn spawn_agent(
    program: &Path,
    args: &[String],
    cwd: &Path,
    env: &[(String, String)],
    log: &Path,
) -> Result<SpawnedAgent, ProcError> {
    let (ours, theirs) = StdUnixStream::pair().map_err(|e| ProcError::io("making the link to an agent", e))?;
    let link = ours
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(ours))
        .map_err(|e| ProcError::io("making the link to an agent", e))?;
    let broken_log = |e| ProcError::io(format!("opening the log {log:?}"), e);
    let output = open_log(log).map_err(broken_log)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(output.try_clone().map_err(broken_log)?))
        .stderr(Stdio::from(output))
        .process_group(0);
    let child = command.spawn().map_err(|e| ProcError::start(program, cwd, e))?;
    // The command owns our copy of the child's end: as long as it lives, the child's death would
    // not end the link.
    drop(command);
    let process = Process::child(child).map_err(|e| ProcError::io(format!("watching {program:?}"), e))?;
    Ok(SpawnedAgent { process, link })
}

fn open_log(path: &Path) -> std::io::Result<File> {
    if fs::metadata(path).is_ok_and(|m| m.len() > LOG_BYTES) {
        let mut older: OsString = path.as_os_str().to_owned();
        older.push(".1");
        fs::rename(path, PathBuf::from(older))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
