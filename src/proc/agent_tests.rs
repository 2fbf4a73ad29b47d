use super::*;
use crate::proc::{Exit, Ladder, LadderAction, LadderEvent, PidFd, ProcessStat, Rung, Signal};
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("within the deadline")
}

/// Starts a shell as an agent; what it writes to fd 0 comes out of the link.
fn shell(dir: &Path, script: &str) -> SpawnedAgent {
    let env = [("PATH".to_owned(), std::env::var("PATH").unwrap()), ("MARK".to_owned(), "x y".to_owned())];
    spawn_agent(Path::new("/bin/sh"), &["-c".into(), script.into()], dir, &env, &dir.join("a.log")).unwrap()
}

/// A line that the agent writes to its link.
async fn line(agent: &mut SpawnedAgent) -> String {
    let mut text = String::new();
    soon(BufReader::new(&mut agent.link).read_line(&mut text)).await.unwrap();
    text.trim_end().to_owned()
}

#[tokio::test]
async fn an_agent_has_a_link_a_log_a_folder_and_only_its_environment() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = shell(dir.path(), "echo out; echo err >&2; env >&0; pwd >&0; read line; echo got $line >&0");
    let mut said = Vec::new();
    agent.link.write_all(b"hello\n").await.unwrap();
    soon(agent.link.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("MARK=x y\n") && !said.contains("CARGO"), "{said}");
    assert!(said.contains(&format!("{}\n", dir.path().display())), "{said}");
    assert!(said.ends_with("got hello\n"), "{said}");
    assert_eq!(soon(agent.process.wait()).await, Exit { code: Some(0), signal: None, known: true });
    let log = dir.path().join("a.log");
    assert_eq!(fs::read_to_string(&log).unwrap(), "out\nerr\n");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_link_ends_with_the_child_and_its_exit_is_known() {
    let dir = tempfile::tempdir().unwrap();
    for (script, code, signal, text) in [
        ("exit 3", Some(3), None, "exit code 3"),
        ("kill -9 $$", None, Some("SIGKILL".to_owned()), "killed by SIGKILL"),
    ] {
        let mut agent = shell(dir.path(), script);
        assert_eq!(soon(agent.link.read(&mut [0; 1])).await.unwrap(), 0, "nobody else holds the child's end");
        let exit = soon(agent.process.wait()).await;
        assert_eq!(exit.to_string(), text);
        assert_eq!(exit, Exit { code, signal, known: true });
        assert_eq!(soon(agent.process.wait()).await, exit);
        assert!(!agent.process.is_alive());
        assert!(!agent.process.kill().unwrap(), "a reaped pid is never signalled");
    }
}

#[tokio::test]
async fn a_dropped_handle_leaves_no_zombie() {
    let dir = tempfile::tempdir().unwrap();
    let agent = shell(dir.path(), "read line");
    let (pid, watch) = (agent.process.pid(), agent.process.pidfd().clone());
    drop(agent);
    soon(watch.exited()).await;
    soon(async {
        while ProcessStat::of(pid).is_some_and(|s| s.parent == std::process::id().cast_signed()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_started_is_named_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let start = |program: &Path, cwd: &Path, log: &Path| spawn_agent(program, &[], cwd, &[], log).unwrap_err();
    let (sh, log) = (Path::new("/bin/sh"), dir.path().join("a.log"));
    let missing = start(&dir.path().join("no-program"), dir.path(), &log);
    assert!(matches!(&missing, ProcError::Start { .. }) && missing.to_string().contains("no-program"), "{missing}");
    let no_folder = start(sh, &dir.path().join("gone"), &log);
    assert!(matches!(&no_folder, ProcError::NoFolder { path } if path.ends_with("gone")), "{no_folder}");
    let no_log = start(sh, dir.path(), &dir.path().join("gone/a.log"));
    assert!(no_log.to_string().contains("a.log"), "{no_log}");
}

#[tokio::test]
async fn a_long_log_is_rotated_once() {
    let dir = tempfile::tempdir().unwrap();
    let (log, older) = (dir.path().join("a.log"), dir.path().join("a.log.1"));
    fs::write(&log, vec![b'x'; usize::try_from(LOG_BYTES).unwrap()]).unwrap();
    soon(shell(dir.path(), "echo first").process.wait()).await;
    assert!(!older.exists(), "at the limit it is appended to");
    soon(shell(dir.path(), "echo second").process.wait()).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), "second\n");
    assert!(fs::read_to_string(&older).unwrap().ends_with("xfirst\n"));
}

/// A stopped process that ignores SIGTERM, with a child in its group: the ladder ends them all.
#[tokio::test]
async fn a_frozen_group_is_ended_by_the_ladder() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = shell(dir.path(), "trap '' TERM; sleep 1000 & echo $! >&0; wait; wait");
    let child: i32 = line(&mut agent).await.parse().unwrap();
    let child = PidFd::open(child).unwrap();
    let process = &agent.process;
    assert!(process.signal_group(Signal::SIGSTOP).unwrap());
    let mut now = Instant::now();
    let mut ladder = Ladder::new(Rung::Ask, now);
    let mut event = LadderEvent::Started;
    let mut seen = Vec::new();
    let exit = loop {
        let action = ladder.next(event, now);
        seen.push(action);
        match action {
            LadderAction::TermGroup => assert!(process.terminate().unwrap()),
            LadderAction::KillGroup => {
                assert!(process.kill().unwrap());
                break soon(process.wait()).await;
            }
            LadderAction::AskStop => {}
            other => panic!("{other:?}"),
        }
        (event, now) = (LadderEvent::DeadlinePassed, ladder.deadline().unwrap());
    };
    assert_eq!(seen, [LadderAction::AskStop, LadderAction::TermGroup, LadderAction::KillGroup]);
    assert_eq!(ladder.next(LadderEvent::Exited, now), LadderAction::Done);
    assert_eq!(exit.signal.as_deref(), Some("SIGKILL"));
    soon(child.exited()).await;
}

/// SIGTERM alone would wait until somebody continues it.
#[tokio::test]
async fn a_stopped_process_acts_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let agent = shell(dir.path(), "read line");
    agent.process.signal_group(Signal::SIGSTOP).unwrap();
    assert!(agent.process.terminate().unwrap());
    assert_eq!(soon(agent.process.wait()).await.signal.as_deref(), Some("SIGTERM"));
}

#[tokio::test]
async fn an_adopted_process_is_watched_and_ended_without_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let agent = shell(dir.path(), "read line");
    let adopted = Process::adopt(agent.process.pid(), PidFd::open(agent.process.pid()).unwrap());
    assert!(!adopted.is_child() && adopted.is_alive());
    assert!(timeout(Duration::from_millis(20), adopted.wait()).await.is_err());
    assert!(adopted.kill().unwrap());
    assert_eq!(soon(adopted.wait()).await, Exit::UNKNOWN);
    assert!(!adopted.signal_group(Signal::SIGTERM).unwrap(), "the leader is gone");
    assert_eq!(soon(agent.process.wait()).await.signal.as_deref(), Some("SIGKILL"));
}

/// An adopted process that does not lead its group: the others in it are not ours to end.
#[tokio::test]
async fn a_member_of_a_foreign_group_is_signalled_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = shell(dir.path(), "sleep 1000 & echo $! >&0; wait; read line");
    let member: i32 = line(&mut agent).await.parse().unwrap();
    let adopted = Process::adopt(member, PidFd::open(member).unwrap());
    assert!(adopted.kill().unwrap());
    soon(adopted.wait()).await;
    assert!(agent.process.is_alive());
}

#[tokio::test]
async fn nobody_has_no_pidfd() {
    for pid in [0, -1, i32::MIN, i32::MAX] {
        assert_eq!(PidFd::open(pid).err().map(|e| e.kind()), Some(std::io::ErrorKind::NotFound), "{pid}");
    }
}

#[tokio::test]
async fn a_hundred_children_at_once_are_all_reaped() {
    let dir = tempfile::tempdir().unwrap();
    let agents: Vec<_> = (0..100).map(|i| (i, shell(dir.path(), &format!("exit {}", i % 7)))).collect();
    for (i, agent) in agents {
        assert_eq!(soon(agent.process.wait()).await.code, Some(i % 7));
        assert_eq!(ProcessStat::of(agent.process.pid()).filter(ProcessStat::is_zombie), None);
    }
}
