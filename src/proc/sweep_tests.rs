use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A name that no other test and no earlier run of this one uses.
fn run_name() -> String {
    crate::core::ids::random_runtime_name()
}

/// Starts a shell in a session of its own, as a tool is. The script writes a line for each pid
/// that the test wants to know, then `ready`.
fn tool(run: &str, script: &str) -> (Shell, Vec<i32>) {
    let mut command = Command::new("bash");
    command.args(["-c", script]).env(RUN, run).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    super::super::tool::in_own_session(&mut command);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pids = lines.take_while(|l| l != "ready").map(|l| l.parse().unwrap()).collect();
    (Shell(child), pids)
}

/// Ends with its session, however its test ends.
struct Shell(Child);

impl Shell {
    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Once it is reaped, its number may be somebody else's.
        if self.is_alive() {
            super::super::tool::kill_session(self.pid());
            self.0.wait().unwrap();
        }
    }
}

fn is_gone(pid: i32) -> bool {
    ProcessStat::of(pid).is_none_or(|s| s.is_zombie())
}

fn pids(leftovers: &[Leftover]) -> Vec<i32> {
    let mut pids: Vec<i32> = leftovers.iter().map(|l| l.pid).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn all_of_a_run_is_ended_and_named_and_nothing_else() {
    let (run, other) = (run_name(), run_name());
    let (shell, mut expected) = tool(&run, "sleep 1000 & echo $!; setsid sleep 1001 & echo $!; echo ready; wait");
    let (mut another, _) = tool(&other, "echo ready; exec sleep 1000");
    expected.push(shell.pid());
    expected.sort_unstable();
    let leftovers = sweep(&run, &[]);
    assert_eq!(pids(&leftovers), expected);
    let main = leftovers.iter().find(|l| l.pid == shell.pid()).unwrap();
    assert!(main.command.starts_with("bash -c sleep 1000 & echo"), "{main:?}");
    assert!(expected.iter().all(|&pid| is_gone(pid)));
    assert!(another.is_alive());
    assert_eq!(sweep(&run, &[]), [], "zombies are not found again");
}

#[test]
fn what_hides_its_environment_is_found_by_its_session() {
    let run = run_name();
    let script = "env -i sleep 1000 & echo $!; set -m; env -i sleep 1000 & echo $!; echo ready; wait";
    let (shell, mut expected) = tool(&run, script);
    expected.push(shell.pid());
    expected.sort_unstable();
    assert_eq!(pids(&sweep(&run, &[])), expected);
    assert!(expected.iter().all(|&pid| is_gone(pid)));
}

/// A carrier in the session of this very process, as when somebody exports the variable in a
/// terminal: it is ended, the session is not. The same goes for the sessions of spared processes.
#[test]
fn the_own_session_and_spared_processes_survive() {
    struct Sleep(Child);
    impl Drop for Sleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            self.0.wait().unwrap();
        }
    }
    let run = run_name();
    let start = |carries: bool| {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        if carries {
            command.env(RUN, &run);
        }
        Sleep(command.spawn().unwrap())
    };
    let (carrier, mut bystander, mut spared) = (start(true), start(false), start(true));
    let (mut shell, of_shell) = tool(&run, "sleep 1000 & echo $!; env -i sleep 1000 & echo $!; echo ready; wait");
    while crate::proc::environ_value(of_shell[1], RUN).is_some() {
        std::thread::yield_now();
    }
    let spare = [spared.0.id().cast_signed(), shell.pid()];
    let mut expected = [carrier.0.id().cast_signed(), of_shell[0]];
    expected.sort_unstable();
    assert_eq!(pids(&sweep(&run, &spare)), expected);
    assert!(bystander.0.try_wait().unwrap().is_none() && spared.0.try_wait().unwrap().is_none());
    assert!(shell.is_alive() && !is_gone(of_shell[1]));
}

#[test]
fn stopped_and_deaf_processes_are_ended() {
    let run = run_name();
    let script = "trap '' TERM HUP INT; (kill -STOP $BASHPID) & echo $!; echo ready; while :; do sleep 1000; done";
    let (mut shell, stopped) = tool(&run, script);
    assert!(sweep(&run, &[]).len() >= 2);
    assert!(is_gone(stopped[0]) && !shell.is_alive());
}

/// Each process lives shorter than a look at `/proc` takes.
#[test]
fn a_chain_of_short_lived_processes_is_ended() {
    let run = run_name();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script =
        format!("f() {{ [ $1 -gt 0 ] && {{ echo >> {}; f $(($1 - 1)) & }}; }}; f 20000; echo ready", log.display());
    let (mut shell, _) = tool(&run, &script);
    shell.0.wait().unwrap();
    sweep(&run, &[]);
    let links = || std::fs::metadata(&log).unwrap().len();
    let before = links();
    assert_eq!(sweep(&run, &[]), []);
    assert_eq!(links(), before, "still forking");
    assert!(before > 0 && before < 20000, "it was ended, it did not run out: {before}");
}

#[test]
fn processes_in_the_middle_of_their_start_are_not_missed() {
    for _ in 0..50 {
        let run = run_name();
        let (mut shell, _) = tool(&run, "for i in 1 2 3; do sleep 1000 & done; echo ready");
        shell.0.wait().unwrap();
        assert_eq!(sweep(&run, &[]).len(), 3);
    }
}

#[test]
fn an_empty_name_is_nobodys() {
    let (mut shell, _) = tool("", "echo ready; exec sleep 1000");
    assert_eq!(sweep("", &[]), []);
    assert!(shell.is_alive());
}
