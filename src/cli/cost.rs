//! What a process costs at this moment, from `/proc`. Reading its memory makes the kernel walk its
//! pages, so it is only done when asked for.

use std::fs;

/// Memory and time of one process; what can't be read (it is gone, or another user's) is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Proportional share of memory, bytes.
    pub pss_bytes: Option<u64>,
    /// Time on processors, user and system.
    pub cpu_ms: Option<u64>,
}

impl Cost {
    /// Of the process `pid`.
    pub(super) fn of(pid: i32) -> Self {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
        let ticks_per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
        let ticks_per_second = ticks_per_second.and_then(|t| u64::try_from(t).ok()).filter(|t| *t > 0).unwrap_or(100);
        Self {
            pss_bytes: read("smaps_rollup").and_then(|text| pss(&text)),
            cpu_ms: read("stat").and_then(|text| cpu_ticks(&text)).map(|t| t * 1000 / ticks_per_second),
        }
    }
}

fn pss(smaps_rollup: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(smaps_rollup).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// User and system time. Fields are counted from the last bracket: the name before it may hold
/// anything.
fn cpu_ticks(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(number(11)? + number(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_and_blanks_shift_nothing() {
        let stat = b"7 (a) b (c) S 1 2 3 0 -1 4 5 6 7 8 40 2 0 0 20 0 1 0 4711 0 0\n";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks(b"7 (a"), None);
        assert_eq!(pss(b"00400000-7ff [rollup]\nRss:  900 kB\nPss:     123 kB\nPss_Dirty: 5 kB\n"), Some(123 * 1024));
        assert_eq!(pss(b"Rss: 1 kB\n"), None);
    }

    #[test]
    fn this_process_costs_something_and_one_that_is_not_there_nothing() {
        let pid = nix::unistd::getpid().as_raw();
        let cost = Cost::of(pid);
        assert!(cost.cpu_ms.is_some());
        assert!(cost.pss_bytes.is_none_or(|b| b > 0));
        assert_eq!(Cost::of(i32::MAX), Cost::default());
    }
}
