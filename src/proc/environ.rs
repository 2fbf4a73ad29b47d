//! Takes secrets out of this process's environment block, which `/proc/<pid>/environ` shows to every
//! process of the user. Called first thing in `main`, after the values were read.
//!
//! The block is where the kernel put it at the start: what was set later is elsewhere and not shown.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Fields of `/proc/<pid>/stat` behind the name, the first being the state: where the block begins.
const ENV_START: usize = 47;

/// Overwrites the values of all variables whose name is `secret`; what this process or its children
/// read of them from then on is empty. To be called while there is one thread only: nobody may read
/// the environment meanwhile.
///
/// # Errors
/// If the system does not let a process write to its own memory; nothing has changed then.
pub fn hide_values(secret: impl Fn(&str) -> bool) -> io::Result<()> {
    let block = fs::read("/proc/self/environ")?;
    let values = values_of(&block, secret);
    if values.is_empty() {
        return Ok(());
    }
    let start = env_start(&fs::read("/proc/self/stat")?).ok_or_else(|| io::Error::other("stat has no env_start"))?;
    // By the kernel, which refuses an address that is not this process's: a pointer made from a
    // number could not be checked.
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    values.into_iter().try_for_each(|(offset, value)| overwrite(&memory, start + offset, value))
}

fn overwrite(memory: &File, at: u64, value: &[u8]) -> io::Result<()> {
    let mut there = vec![0; value.len()];
    memory.read_exact_at(&mut there, at)?;
    if there != value {
        return Err(io::Error::other("the environment is not where the kernel says"));
    }
    memory.write_all_at(&vec![0; value.len()], at)
}

/// Offsets and bytes of the values.
fn values_of(block: &[u8], secret: impl Fn(&str) -> bool) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    let mut offset = 0;
    for entry in block.split(|byte| *byte == 0) {
        if let Some(at) = entry.iter().position(|byte| *byte == b'=')
            && std::str::from_utf8(&entry[..at]).is_ok_and(&secret)
            && at + 1 < entry.len()
        {
            found.push(((offset + at + 1) as u64, &entry[at + 1..]));
        }
        offset += entry.len() + 1;
    }
    found
}

fn env_start(stat: &[u8]) -> Option<u64> {
    let behind_name = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[behind_name + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(ENV_START)?.parse().ok().filter(|start| *start > 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let block = b"PATH=/bin\0A_KEY=secret\0EMPTY_KEY=\0\xff_KEY=x\0NOT\0B_KEY=a=b\0";
        let found = values_of(block, |name| name.ends_with("_KEY"));
        assert_eq!(found, [(16, &b"secret"[..]), (60, &b"a=b"[..])].map(|(_, v)| (offset_of(block, v), v)));
        assert_eq!(values_of(b"", |_| true), []);
    }

    fn offset_of(block: &[u8], value: &[u8]) -> u64 {
        block.windows(value.len()).position(|w| w == value).unwrap() as u64
    }

    const CHILD: &str = "LEAD_TEST_HIDE_CHILD";

    /// In a process of its own, which is this test program again: its environment is nobody else's.
    #[test]
    fn a_hidden_value_is_gone_from_the_process_and_the_others_stay() {
        if std::env::var_os(CHILD).is_some() {
            hide_values(|name| name == "A_KEY").unwrap();
            let shown = fs::read("/proc/self/environ").unwrap();
            let holds = |text: &str| shown.windows(text.len()).any(|w| w == text.as_bytes());
            assert!(!holds("secret") && holds("A_KEY=") && holds("B=kept"));
            assert_eq!(std::env::var("A_KEY").unwrap(), "");
            assert_eq!(std::env::var("B").unwrap(), "kept");
            hide_values(|name| name == "A_KEY").unwrap();
            return;
        }
        let name = "proc::environ::tests::a_hidden_value_is_gone_from_the_process_and_the_others_stay";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads", "1"])
            .envs([(CHILD, "1"), ("A_KEY", "secret"), ("B", "kept")])
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    }
}
