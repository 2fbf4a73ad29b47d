//! Who really speaks: a peer process, or the agent that one of its ancestors is. This guards
//! against models that reach for the shell, not against hostile programs of the same user.

use crate::core::env;
use crate::core::ids::AgentId;
use crate::proc::ProcessStat;

/// Longest chain of parents that is followed.
const MAX_STEPS: usize = 64;

/// Walks from `pid` up its parents, `pid` included and up to pid 1, and returns the first answer
/// of `known`. None also if a process of the chain has vanished.
pub fn descends_from<T>(pid: i32, known: &dyn Fn(i32) -> Option<T>) -> Option<T> {
    let mut pid = pid;
    let mut child_start = u64::MAX;
    for _ in 0..MAX_STEPS {
        let stat = ProcessStat::of(pid)?;
        // A parent is older than its child; a younger one has got the pid of a parent that died
        // since we read it.
        if stat.start > child_start {
            return None;
        }
        if let Some(found) = known(pid) {
            return Some(found);
        }
        if pid <= 1 || stat.parent <= 0 {
            return None;
        }
        child_start = stat.start;
        pid = stat.parent;
    }
    None
}

/// The agent that `pid` says it works for (`LEAD_AGENT_ID`), if the process is ours to read.
pub fn agent_of_environ(pid: i32) -> Option<AgentId> {
    AgentId::parse(std::str::from_utf8(&crate::proc::environ_value(pid, env::AGENT_ID)?).ok()?)
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
