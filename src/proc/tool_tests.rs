use super::*;
use crate::proc::ProcessStat;
use std::fs;
use std::future::Future;
use std::path::Path;

const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("within the deadline")
}

fn bash(dir: &Path, script: &str) -> ToolCommand {
    ToolCommand {
        program: "bash".into(),
        args: vec!["-c".into(), script.into()],
        cwd: dir.to_owned(),
        env: vec![("LEAD_RUN".into(), "0123456789ab".into())],
        time_limit: SOON,
        output_bytes_kept: 1 << 20,
        spill: None,
    }
}

async fn run(command: ToolCommand) -> Captured {
    soon(run_captured(command, &CancellationToken::new())).await.unwrap()
}

fn text(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.output).into_owned()
}

/// A hold on the process whose pid a script wrote to `file` in `dir`, once it has.
async fn written_pid(dir: &Path, file: &str) -> PidFd {
    let pid = soon(async {
        loop {
            match fs::read_to_string(dir.join(file)).ok().and_then(|t| t.strip_suffix('\n')?.parse().ok()) {
                Some(pid) => return pid,
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    PidFd::open(pid).unwrap()
}

#[tokio::test]
async fn both_streams_come_in_order_with_the_exit() {
    let dir = tempfile::tempdir().unwrap();
    let captured = run(bash(dir.path(), "echo a; echo b >&2; echo c; pwd; echo $LEAD_RUN; exit 7")).await;
    assert_eq!(text(&captured), format!("a\nb\nc\n{}\n0123456789ab\n", dir.path().display()));
    assert_eq!(captured.exit, Exit { code: Some(7), signal: None, known: true });
    assert_eq!(captured.total_bytes, captured.output.len() as u64);
    assert!(!captured.timed_out && !captured.cancelled && !captured.truncated);
}

#[tokio::test]
async fn there_is_no_terminal_no_stdin_and_a_session_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cat; (: < /dev/tty) 2>/dev/null && echo terminal; cut -d' ' -f5,6 /proc/$$/stat; echo $$";
    let captured = run(bash(dir.path(), script)).await;
    let words = text(&captured);
    let [group, session, pid] = words.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{words}") };
    assert_eq!((group, session), (pid, pid));
}

#[test]
fn what_names_an_agent_and_credentials_are_not_inherited() {
    let command = prepare(&bash(Path::new("/"), ""));
    let changes: Vec<_> = command.get_envs().map(|(n, v)| (n.to_str().unwrap(), v.and_then(|v| v.to_str()))).collect();
    for name in withheld_from_tools() {
        let given = (name == "LEAD_RUN").then_some("0123456789ab");
        assert!(changes.contains(&(name, given)), "{name}: {changes:?}");
    }
}

#[tokio::test]
async fn a_background_process_that_holds_the_pipe_does_not_hold_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let captured = run(bash(dir.path(), "sleep 1000 & echo $! > pid; echo started")).await;
    assert_eq!(text(&captured), "started\n");
    assert!(begun.elapsed() < SOON / 2);
    let sleep = written_pid(dir.path(), "pid").await;
    assert!(sleep.is_alive(), "a server started by one call is there for the next");
    sleep.signal(Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_background_process_can_still_write_and_a_flood_is_shut_off() {
    let dir = tempfile::tempdir().unwrap();
    // It writes more than a pipe holds after the call has ended, then says so.
    let script =
        "(trap '' HUP; while [ ! -e go ]; do :; done; head -c 300000 /dev/zero; echo ok > done) & echo $! > pid";
    run(bash(dir.path(), script)).await;
    let writer = written_pid(dir.path(), "pid").await;
    fs::write(dir.path().join("go"), "").unwrap();
    soon(writer.exited()).await;
    assert!(dir.path().join("done").exists());

    run(bash(dir.path(), "yes & echo $! > flood")).await;
    soon(written_pid(dir.path(), "flood").await.exited()).await;
}

#[tokio::test]
async fn late_output_of_a_pipe_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let captured = run(bash(dir.path(), "exec > >(while read l; do echo \"<$l>\"; done); echo a; echo b")).await;
    assert_eq!(text(&captured), "<a>\n<b>\n");
}

#[tokio::test]
async fn output_that_is_closed_early_is_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let captured = run(bash(dir.path(), "exec >&- 2>&-; while [ ! -e x ]; do : > x; done; exit 5")).await;
    assert_eq!(captured.exit.code, Some(5));
}

#[tokio::test]
async fn the_time_limit_ends_the_session_whatever_it_does() {
    let dir = tempfile::tempdir().unwrap();
    // Ignores SIGTERM, has a child in another group and one that is stopped.
    let script = "trap '' TERM; set -m; sleep 1000 & echo $! > group; set +m
        (kill -STOP $BASHPID; sleep 1000) & echo $! > stopped
        echo before; while :; do sleep 1000; done";
    let mut command = bash(dir.path(), script);
    command.time_limit = Duration::from_millis(300);
    let captured = run(command).await;
    assert!(captured.timed_out && !captured.cancelled);
    assert_eq!(text(&captured), "before\n");
    assert_eq!(captured.exit.signal.as_deref(), Some("SIGKILL"));
    for file in ["group", "stopped"] {
        let pid: i32 = fs::read_to_string(dir.path().join(file)).unwrap().trim().parse().unwrap();
        assert!(ProcessStat::of(pid).is_none_or(|s| s.is_zombie()), "{file} is gone when the call returns");
    }
}

#[tokio::test]
async fn a_command_may_clean_up_when_it_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo cleaned; exit 9' TERM; echo $$ > pid; while :; do :; done";
    let cancel = CancellationToken::new();
    let ends = async {
        written_pid(dir.path(), "pid").await;
        cancel.cancel();
    };
    let (captured, ()) = soon(async { tokio::join!(run_captured(bash(dir.path(), script), &cancel), ends) }).await;
    let captured = captured.unwrap();
    assert!(captured.cancelled && !captured.timed_out);
    assert_eq!((text(&captured).as_str(), captured.exit.code), ("cleaned\n", Some(9)));
}

#[tokio::test]
async fn endless_output_is_ended_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results/t.txt");
    let mut command = bash(dir.path(), "yes");
    command.time_limit = Duration::from_millis(500);
    command.output_bytes_kept = 1000;
    command.spill = Some(Spill { path: file.clone(), over: 500 });
    let captured = run(command).await;
    assert!(captured.timed_out && captured.truncated);
    assert_eq!(captured.output.len(), 1000);
    let written = fs::metadata(&file).unwrap().len();
    assert!(written >= 1000 && written <= TOOL_OUTPUT_BYTES as u64 + 200 && written <= captured.total_bytes);
}

/// Processes that live shorter than one look at `/proc` takes.
#[tokio::test]
async fn a_chain_of_short_lived_processes_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let script = "f() { [ $1 -gt 0 ] && { echo >> log; f $(($1 - 1)) & }; }; f 20000; while :; do :; done";
    let mut command = bash(dir.path(), script);
    command.time_limit = Duration::from_millis(300);
    let captured = run(command).await;
    assert!(captured.timed_out);
    let links = || fs::metadata(dir.path().join("log")).unwrap().len();
    let before = links();
    let _ = timeout(Duration::from_millis(100), std::future::pending::<()>()).await;
    assert_eq!(links(), before, "still forking");
    assert!(before > 0 && before < 20000, "it was ended, it did not run out: {before}");
}

#[tokio::test]
async fn a_dropped_call_kills_its_session_and_leaves_no_zombie() {
    let dir = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & echo $! > child; echo $$ > main; wait";
    let cancel = CancellationToken::new();
    let call = run_captured(bash(dir.path(), script), &cancel);
    let (child, main) = tokio::select! {
        _ = call => panic!("ended"),
        both = async { (written_pid(dir.path(), "child").await, written_pid(dir.path(), "main").await) } => both,
    };
    soon(child.exited()).await;
    soon(main.exited()).await;
    let pid: i32 = fs::read_to_string(dir.path().join("main")).unwrap().trim().parse().unwrap();
    soon(async {
        while ProcessStat::of(pid).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_started_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let mut missing = bash(dir.path(), "");
    missing.program = "no-such-program".into();
    assert!(matches!(run_captured(missing, &cancel).await, Err(ProcError::Start { .. })));
    let nowhere = bash(&dir.path().join("gone"), "pwd");
    assert!(
        matches!(run_captured(nowhere, &cancel).await, Err(ProcError::NoFolder { path }) if path.ends_with("gone"))
    );
    let mut with_nul = bash(dir.path(), "");
    with_nul.args.push("a\0b".into());
    assert!(matches!(run_captured(with_nul, &cancel).await, Err(ProcError::Start { .. })));
}

#[tokio::test]
async fn what_is_given_to_read_is_read_and_errors_come_apart() {
    let dir = tempfile::tempdir().unwrap();
    let answered = |script: &str, input: &[u8]| {
        let (command, input) = (bash(dir.path(), script), input.to_vec());
        async move { soon(run_with_input(command, &input, &CancellationToken::new())).await.unwrap() }
    };
    let large = b"0123456789abcdef".repeat(1 << 15);
    let told = answered("wc -c; yes error | head -c 300000 >&2; echo out; exit 2", &large).await;
    assert_eq!(told.stdout, b"524288\nout\n");
    assert_eq!((told.stderr.len(), told.exit.code), (300_000, Some(2)));
    assert!(!told.timed_out && !told.cancelled);
    // Nobody has to read it.
    assert_eq!(answered("exit 0", &large).await.exit.code, Some(0));
    let mut slow = bash(dir.path(), "echo a; echo b >&2; trap '' TERM; sleep 1000 & wait; wait");
    slow.time_limit = Duration::from_millis(200);
    let stopped = soon(run_with_input(slow, b"", &CancellationToken::new())).await.unwrap();
    assert!(stopped.timed_out);
    assert_eq!((stopped.stdout.as_slice(), stopped.stderr.as_slice()), (&b"a\n"[..], &b"b\n"[..]));
}
