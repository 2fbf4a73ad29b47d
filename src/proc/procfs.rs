//! What `/proc` tells about a process. Any of it may vanish at any time: then it is `None`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;

/// The kernel's own threads carry this flag.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// The process.
    pub pid: i32,
    /// `R S D T Z …`.
    pub state: char,
    /// Its parent; 0 for the first process of a pid namespace.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Whether it is a thread of the kernel.
    pub is_kernel: bool,
    /// Whether it has an environment: not while it is just being replaced by `exec`, not when it
    /// has ended, and 0 too where it is not ours to read.
    pub has_environ: bool,
    /// When it was started, clock ticks after boot.
    pub start: u64,
}

impl ProcessStat {
    /// Of a process that exists, a zombie included.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(pid, &read(&format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// The name of the program is in brackets and may itself hold brackets, blanks and line ends:
    /// the fields begin after the last bracket.
    fn parse(pid: i32, bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|&b| b == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(&bytes[end + 1..]).ok()?.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<i32>().ok();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            is_kernel: fields.get(6)?.parse::<u64>().ok()? & PF_KTHREAD != 0,
            start: fields.get(19)?.parse().ok()?,
            has_environ: fields.get(48).is_some_and(|end| *end != "0"),
        })
    }
}

/// All processes, in no order.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Those that existed, zombies included.
    pub processes: Vec<ProcessStat>,
    /// Whether one vanished while we looked, whose children may have been missed.
    pub is_blurred: bool,
}

impl Snapshot {
    /// Shows each process to `see` right when it is found. Costs two reads of `/proc` and one of
    /// each `stat`.
    pub fn take(mut see: impl FnMut(&ProcessStat)) -> Self {
        let mut snapshot = Self::default();
        let mut seen = HashSet::new();
        // Until nobody is new, since what was just started may not have been listed: a few times,
        // for there are systems on which something is always new.
        for _ in 0..4 {
            let Ok(entries) = fs::read_dir("/proc") else { break };
            let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
            let new: Vec<i32> = pids.filter(|&pid| seen.insert(pid)).collect();
            for &pid in &new {
                match ProcessStat::of(pid) {
                    Some(stat) => {
                        see(&stat);
                        snapshot.processes.push(stat);
                    }
                    None => snapshot.is_blurred = true,
                }
            }
            if new.is_empty() {
                break;
            }
        }
        snapshot
    }
}

/// The environment that a process was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Environ {
    /// `NAME=value`, each ended by a 0 byte.
    Known(Vec<u8>),
    /// It is in the middle of an `exec`, or of its end: ask again.
    Settling,
    /// Another user's, a kernel's thread, ended.
    Hidden,
}

impl Environ {
    /// Of a process that `stat` was just read from.
    pub fn of(stat: &ProcessStat) -> Self {
        let pid = stat.pid;
        if stat.is_kernel || stat.is_zombie() {
            return Self::Hidden;
        }
        let Ok(folder) = fs::metadata(format!("/proc/{pid}")) else { return Self::Settling };
        if folder.uid() != nix::unistd::geteuid().as_raw() {
            return Self::Hidden;
        }
        let environ = || read(&format!("/proc/{pid}/environ"));
        match environ() {
            Ok(bytes) if !bytes.is_empty() => Self::Known(bytes),
            // Empty, or in the middle of an `exec` that may have begun after `stat` was read.
            Ok(_) if !ProcessStat::of(pid).is_some_and(|now| now.has_environ) => Self::Settling,
            Ok(_) => environ().map_or(Self::Hidden, Self::Known),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Self::Hidden,
            Err(_) => Self::Settling,
        }
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let Self::Known(bytes) = self else { return None };
        bytes.split(|&b| b == 0).find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}

/// Reads a file whose size is not known before. In few steps: with nothing to go by, the standard
/// library feels its way in six.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4 << 10);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The value of a variable in the environment that a process of ours was started with. Waits a
/// moment for a process that is in the middle of an `exec`.
pub fn environ_value(pid: i32, name: &str) -> Option<Vec<u8>> {
    for _ in 0..1000 {
        match Environ::of(&ProcessStat::of(pid)?) {
            Environ::Settling => std::thread::yield_now(),
            environ => return environ.value(name).map(<[u8]>::to_vec),
        }
    }
    None
}

/// A living process of this user among whose arguments `flag` stands, followed by `value`: members of
/// teams of other programs are known by nothing else.
pub fn pid_with_argument(flag: &str, value: &str) -> Option<i32> {
    let uid = nix::unistd::geteuid().as_raw();
    let mut pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &i32| {
        let folder = format!("/proc/{pid}");
        let is_ours = fs::metadata(&folder).is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == uid);
        is_ours && fs::read(format!("{folder}/cmdline")).is_ok_and(|line| has_argument(&line, flag, value))
    })
}

fn has_argument(line: &[u8], flag: &str, value: &str) -> bool {
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    words.windows(2).any(|pair| pair == [flag.as_bytes(), value.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_and_line_ends_do_not_shift_the_fields() {
        let text = b"7 (a) b\n) (c) S 1 2 3 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = ProcessStat::parse(7, text);
        let expected = ProcessStat {
            pid: 7,
            state: 'S',
            parent: 1,
            group: 2,
            session: 3,
            is_kernel: true,
            has_environ: false,
            start: 4711,
        };
        assert_eq!(stat, Some(expected));
        for torn in [&b""[..], b"7 (a", b"7 (a) S 1 2", b"7 (a) S x 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711"] {
            assert_eq!(ProcessStat::parse(7, torn), None);
        }
    }

    #[test]
    fn this_process_is_there_and_reads_its_environment() {
        let pid = std::process::id() as i32;
        assert!(
            Snapshot::take(|_| {})
                .processes
                .iter()
                .any(|p| p.pid == pid && !p.is_zombie() && !p.is_kernel && p.has_environ)
        );
        assert_eq!(environ_value(pid, "PATH").is_some(), std::env::var_os("PATH").is_some());
        assert_eq!(environ_value(pid, "PAT"), None);
        assert_eq!(environ_value(i32::MAX, "PATH"), None);
    }

    #[test]
    fn a_process_is_found_by_two_arguments_in_a_row() {
        let line = b"cli\0--agent-id\0w@t\0--model\0m\0";
        assert!(has_argument(line, "--agent-id", "w@t"));
        for (flag, value) in [("--agent-id", "w@"), ("--agent-id", "m"), ("w@t", "--agent-id"), ("--agent-id w@t", "")]
        {
            assert!(!has_argument(line, flag, value), "{flag} {value}");
        }
        assert_eq!(pid_with_argument("--agent-id", "nobody-has-this@2f1c"), None);
    }
}
