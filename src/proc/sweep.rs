//! What an agent's tools leave running is ended with the agent. A tool's processes are known by
//! `LEAD_RUN` in their environment, or by a session that they share with one that has it; what
//! sheds both escapes.

use std::collections::HashSet;
use std::time::Duration;

use nix::unistd::{Pid, getsid};

use super::kill::{Found, command_of, kill_until_none};
use super::procfs::{Environ, ProcessStat, Snapshot};
use crate::core::agent::Leftover;
use crate::core::env::RUN;

/// Longest time a sweep takes.
const LIMIT: Duration = Duration::from_secs(2);
/// Leftovers that are named; more are killed all the same.
const NAMED: usize = 100;

/// Kills every process of this user that was started by the tools of the agent process whose
/// runtime name is `run`, until none is found. Never this process nor one of `spare`. Returns what
/// was found, at most 100 of it.
///
/// Blocks for up to two seconds if something can't be killed, else about as long as reading `/proc`
/// takes: call it through `spawn_blocking`.
pub fn sweep(run: &str, spare: &[i32]) -> Vec<Leftover> {
    let mut leftovers: Vec<(u64, Leftover)> = Vec::new();
    let killed = |p: &ProcessStat| {
        let is_new = !leftovers.iter().any(|(start, l)| l.pid == p.pid && *start == p.start);
        if is_new && leftovers.len() < NAMED {
            leftovers.push((p.start, Leftover { pid: p.pid, command: command_of(p.pid) }));
        }
    };
    if !run.is_empty() {
        kill_until_none(LIMIT, || find(run, spare), killed);
    }
    leftovers.into_iter().map(|(_, leftover)| leftover).collect()
}

fn find(run: &str, spare: &[i32]) -> Found {
    let own = std::process::id().cast_signed();
    let mut is_unsettled = false;
    let mut carriers = HashSet::new();
    let mut sessions = HashSet::new();
    let all = Snapshot::take(|process| match Environ::of(process) {
        Environ::Settling => is_unsettled = true,
        environ if environ.value(RUN) == Some(run.as_bytes()) => {
            carriers.insert(process.pid);
            sessions.insert(process.session);
        }
        Environ::Known(_) | Environ::Hidden => {}
    });
    // Tools have sessions of their own. One that holds this process or a spared one is somebody's
    // terminal, into which a carrier came by other ways.
    for pid in spare.iter().chain([&own]) {
        if let Ok(session) = getsid(Some(Pid::from_raw(*pid))) {
            sessions.remove(&session.as_raw());
        }
    }
    let is_victim = |p: &ProcessStat| {
        (carriers.contains(&p.pid) || (p.session > 0 && sessions.contains(&p.session)))
            && p.pid > 1
            && p.pid != own
            && !spare.contains(&p.pid)
    };
    let mut found = Found::among(&all, is_victim);
    found.is_unsettled |= is_unsettled;
    found
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
