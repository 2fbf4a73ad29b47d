//! Killing a set of processes until none of it is left, however they fork meanwhile.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pidfd::{open_raw, send};
use super::process::signal_group_of;
use super::procfs::{ProcessStat, Snapshot};

/// Longest wait for the dead of one round before looking again.
const ROUND: Duration = Duration::from_millis(200);
/// Processes whose end is waited for at a time; each costs a descriptor.
const HELD: usize = 128;
/// How long the number of a group that was seen is certainly not another's: in that time nobody
/// can use up all numbers.
const FRESH: Duration = Duration::from_millis(250);
/// Looks in a row that find nobody but are not certain.
const UNSETTLED: usize = 10;

/// What one look found.
#[derive(Default)]
pub(super) struct Found {
    /// To be killed. None of them is a zombie.
    pub victims: Vec<ProcessStat>,
    /// Groups that hold no one but victims.
    pub groups: HashSet<i32>,
    /// Somebody may have been missed, who was just starting or ending: look again.
    pub is_unsettled: bool,
}

impl Found {
    /// The victims among `all` processes.
    pub(super) fn among(all: &Snapshot, is_victim: impl Fn(&ProcessStat) -> bool) -> Self {
        let (victims, others): (Vec<ProcessStat>, Vec<ProcessStat>) =
            all.processes.iter().filter(|p| !p.is_zombie()).partition(|p| is_victim(p));
        let mut groups: HashSet<i32> = victims.iter().map(|p| p.group).filter(|&g| g > 1).collect();
        for other in others {
            groups.remove(&other.group);
        }
        Self { victims, groups, is_unsettled: all.is_blurred }
    }
}

/// Kills what `find` finds, round after round, until it finds none or `limit` is over. `killed` is
/// told of each process before its signal, perhaps more than once. Blocks.
pub(super) fn kill_until_none(limit: Duration, mut find: impl FnMut() -> Found, mut killed: impl FnMut(&ProcessStat)) {
    let deadline = Instant::now() + limit;
    let mut refused = HashSet::new();
    let mut unsettled = 0;
    loop {
        let looked = Instant::now();
        let mut found = find();
        found.victims.retain(|p| !refused.contains(&(p.pid, p.start)));
        unsettled = if found.is_unsettled && found.victims.is_empty() { unsettled + 1 } else { 0 };
        let is_done = found.victims.is_empty() && !(1..=UNSETTLED).contains(&unsettled);
        if is_done || Instant::now() >= deadline {
            return;
        }
        found.victims.iter().for_each(&mut killed);
        // The kernel signals a group as a whole and no fork slips through, which ends even a chain
        // of processes that live shorter than a look.
        for group in found.groups.into_iter().filter(|_| looked.elapsed() < FRESH) {
            let _ = signal_group_of(group, Signal::SIGKILL);
        }
        let mut held = Vec::new();
        for victim in &found.victims {
            let Some(pidfd) = hold(victim) else { continue };
            if send(&pidfd, Signal::SIGKILL).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
                refused.insert((victim.pid, victim.start));
            } else if held.len() < HELD {
                held.push(pidfd);
            }
        }
        let round = deadline.min(Instant::now() + ROUND);
        held.iter().for_each(|pidfd| wait_until(pidfd, round));
        if held.is_empty() {
            std::thread::yield_now();
        }
    }
}

/// A hold on exactly the process that was listed; none if it has ended since.
pub(super) fn hold(listed: &ProcessStat) -> Option<OwnedFd> {
    let pidfd = open_raw(listed.pid).ok()?;
    (ProcessStat::of(listed.pid)?.start == listed.start).then_some(pidfd)
}

/// The command line of a process on one line, at most 120 characters.
pub(super) fn command_of(pid: i32) -> String {
    let read = |what| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let mut bytes = read("cmdline");
    if bytes.is_empty() {
        bytes = read("comm");
    }
    bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    crate::core::text::one_line(&String::from_utf8_lossy(&bytes), 120)
}

fn wait_until(pidfd: &OwnedFd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let Ok(left) = Timespec::try_from(left) else { return };
    let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left));
}
