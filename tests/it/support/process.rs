//! Processes, as `/proc` tells of them.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process.
#[derive(Clone, Debug)]
pub struct Proc {
    /// Its pid.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// `R`, `S`, `T` (stopped), `Z` (defunct), …
    pub state: char,
    /// Its command line.
    pub command: String,
}

impl Proc {
    /// A process by pid; none if there is no such process.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may hold anything.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        Some(Self { pid, parent, state, command })
    }
}

fn all() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// All processes in whose environment this stands.
pub fn processes_with(variable: &str) -> Vec<Proc> {
    let carries = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v == variable.as_bytes()))
    };
    all().filter(carries).filter_map(Proc::of).filter(|p| p.state != 'Z').collect()
}

/// The children of a process, defunct ones too.
pub fn children_of(parent: i32) -> Vec<Proc> {
    all().filter_map(Proc::of).filter(|p| p.parent == parent).collect()
}

/// Whether a process exists and is not defunct.
pub fn exists(pid: i32) -> bool {
    Proc::of(pid).is_some_and(|p| p.state != 'Z')
}

/// Sends a signal to a process that is there.
pub fn signal(pid: i32, signal: Signal) {
    assert!(pid > 1, "{pid} is no pid to send a signal to");
    kill(Pid::from_raw(pid), signal).unwrap_or_else(|e| panic!("{signal} to pid {pid}: {e}"));
}
