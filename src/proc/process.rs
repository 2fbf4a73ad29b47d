//! A running agent, whether it is our child or one that an earlier lead started. Children are
//! always reaped, handle or no handle; a group is only signalled while its leader's pid is
//! certainly still the leader's.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid};

use super::pidfd::PidFd;
use super::signals::signal_name;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Name of the signal that ended it, such as `SIGKILL`.
    pub signal: Option<String>,
    /// False for a process that is not our child: the system does not tell us.
    pub known: bool,
}

impl Exit {
    /// Of a process that is not our child.
    pub const UNKNOWN: Self = Self { code: None, signal: None, known: false };

    /// Whether it is known to have ended with code 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal().map(signal_name), known: true }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, &self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "killed by {signal}"),
            (None, None) => f.write_str("ended, exit code unknown"),
        }
    }
}

/// A process that leads its own group; clones share it.
#[derive(Clone, Debug)]
pub struct Process {
    pid: i32,
    pidfd: PidFd,
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    Ours(Arc<Mutex<OurChild>>),
    Adopted,
}

#[derive(Debug)]
enum OurChild {
    /// Pid and group id can't be reused.
    Unreaped(Child),
    Reaped(Exit),
}

impl OurChild {
    /// Only called after the child has ended, so it does not wait.
    fn reap(&mut self) -> Exit {
        let exit = match self {
            Self::Reaped(exit) => exit.clone(),
            Self::Unreaped(child) => child.wait().map_or(Exit::UNKNOWN, Exit::from),
        };
        *self = Self::Reaped(exit.clone());
        exit
    }
}

impl Process {
    /// Takes a child over that was started with a group of its own, and starts the task that
    /// reaps it.
    ///
    /// # Errors
    /// If it can't be watched (no descriptor left); it is killed then.
    pub(super) fn child(mut child: Child) -> io::Result<Self> {
        let pid = child.id().cast_signed();
        let pidfd = match PidFd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let child = Arc::new(Mutex::new(OurChild::Unreaped(child)));
        let process = Self { pid, pidfd, owner: Owner::Ours(child) };
        let reaper = process.clone();
        tokio::spawn(async move { reaper.wait().await });
        Ok(process)
    }

    /// A process that somebody else started; `pidfd` is of the process `pid`.
    pub fn adopt(pid: i32, pidfd: PidFd) -> Self {
        Self { pid, pidfd, owner: Owner::Adopted }
    }

    /// Its pid, which is its group's id too.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The hold on it.
    pub fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Whether it is our own child, so that its exit code will be known.
    pub fn is_child(&self) -> bool {
        matches!(self.owner, Owner::Ours(_))
    }

    /// Whether it has not ended yet. Never waits.
    pub fn is_alive(&self) -> bool {
        self.pidfd.is_alive()
    }

    /// Waits for its end. Any number of callers, any number of times.
    pub async fn wait(&self) -> Exit {
        self.pidfd.exited().await;
        match &self.owner {
            Owner::Ours(child) => child.lock().unwrap_or_else(PoisonError::into_inner).reap(),
            Owner::Adopted => Exit::UNKNOWN,
        }
    }

    /// Signals its group; tells whether there was one to signal. Nothing is sent once the leader
    /// is gone for certain: its number may be somebody else's by then, and what is left of the
    /// group is the sweep's.
    ///
    /// # Errors
    /// `PermissionDenied` for a process that is not ours.
    pub fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        match &self.owner {
            Owner::Ours(child) => {
                // Reaping takes the same lock, so the number is the child's until we are through.
                let child = child.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(*child, OurChild::Reaped(_)) { Ok(false) } else { signal_group_of(self.pid, signal) }
            }
            Owner::Adopted if !self.is_alive() => Ok(false),
            Owner::Adopted if getpgid(Some(Pid::from_raw(self.pid))) == Ok(Pid::from_raw(self.pid)) => {
                signal_group_of(self.pid, signal)
            }
            Owner::Adopted => self.pidfd.signal(signal).map(|()| true),
        }
    }

    /// SIGTERM to the group, and SIGCONT, without which a stopped process would not act on it.
    ///
    /// # Errors
    /// As [`Process::signal_group`].
    pub fn terminate(&self) -> io::Result<bool> {
        let sent = self.signal_group(Signal::SIGTERM)?;
        self.signal_group(Signal::SIGCONT)?;
        Ok(sent)
    }

    /// SIGKILL to the group.
    ///
    /// # Errors
    /// As [`Process::signal_group`].
    pub fn kill(&self) -> io::Result<bool> {
        self.signal_group(Signal::SIGKILL)
    }
}

/// Signals a group whose number is certainly not reused.
pub(super) fn signal_group_of(group: i32, signal: Signal) -> io::Result<bool> {
    match killpg(Pid::from_raw(group), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
