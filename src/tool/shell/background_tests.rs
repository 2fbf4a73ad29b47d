use super::*;
use crate::core::limits::TOOL_OUTPUT_BYTES;
use std::fs;
use std::future::Future;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("within the deadline")
}

/// A table, its events, and a folder that commands run in.
struct Place {
    dir: tempfile::TempDir,
    shells: Shells,
    events: mpsc::Receiver<ShellEvent>,
}

impl Place {
    fn new() -> Self {
        let (sender, events) = mpsc::channel(1000);
        Self { dir: tempfile::tempdir().unwrap(), shells: Shells::new(sender), events }
    }

    fn try_start(&self, script: &str) -> Result<Shell, String> {
        let command = ToolCommand {
            program: "bash".into(),
            args: vec!["-c".into(), script.into()],
            cwd: self.dir.path().to_owned(),
            env: Vec::new(),
            time_limit: Duration::ZERO,
            output_bytes_kept: 0,
            spill: None,
        };
        let said = Said { command: script, description: Some("Do it"), tool_use_id: "toolu_1" };
        self.shells.start(command, &self.dir.path().join("results"), said)
    }

    fn start(&self, script: &str) -> Shell {
        self.try_start(script).unwrap()
    }

    /// The end of the next shell that ends.
    async fn next_end(&mut self) -> (Shell, ShellEnd) {
        loop {
            let event = soon(self.events.recv()).await.unwrap();
            if event.news == ShellNews::Ended {
                return self.shells.take_end(&event.id).expect("an end is handed on once");
            }
        }
    }

    async fn written(&self, file: &str) {
        soon(async {
            while !self.dir.path().join(file).exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_shell_is_told_of_when_it_starts_and_once_when_it_ends() {
    let mut place = Place::new();
    let shell = place.start("echo out; echo err >&2; exit 3");
    assert!(shell.output_file.exists(), "the file that is named is there from the start");
    assert!(place.shells.any_open());
    let first = soon(place.events.recv()).await.unwrap();
    assert_eq!(first, ShellEvent { id: shell.id.clone(), news: ShellNews::Started });
    assert_eq!(place.shells.take_end(&shell.id).map(|_| ()), None, "it has not ended for its loop yet");
    let (ended, end) = place.next_end().await;
    assert_eq!((ended.id, ended.description.as_str()), (shell.id.clone(), "Do it"));
    assert_eq!((end.status, end.exit_code), (RunStatus::Failed, Some(3)));
    assert_eq!(end.how, "failed with exit code 3");
    assert_eq!(fs::read_to_string(&shell.output_file).unwrap(), "out\nerr\n");
    assert!(place.shells.take_end(&shell.id).is_none() && !place.shells.any_open());
    assert!(place.shells.running().is_empty());
    assert_eq!(place.shells.stop(&shell.id, "x").unwrap_err(), StopRefused::Ended(RunStatus::Failed));
}

#[tokio::test]
async fn every_way_to_end_has_its_words() {
    let mut place = Place::new();
    for (script, status, how) in [
        ("true", RunStatus::Completed, "completed (exit code 0)"),
        ("exit 255", RunStatus::Failed, "failed with exit code 255"),
        ("kill -SEGV $$", RunStatus::Failed, "failed: killed by SIGSEGV"),
        // Its child goes on holding the output; the shell ends all the same.
        ("sleep 1000 & exit 0", RunStatus::Completed, "completed (exit code 0)"),
    ] {
        place.start(script);
        let (_, end) = place.next_end().await;
        assert_eq!((end.status, end.how.as_str()), (status, how), "{script}");
    }
}

#[tokio::test]
async fn what_is_stopped_is_killed_whatever_its_exit_code_and_the_first_reason_counts() {
    let mut place = Place::new();
    let polite = place.start("trap 'exit 0' TERM; echo > up; while :; do :; done");
    place.written("up").await;
    let over = place.shells.stop(&polite.id, "first").unwrap();
    place.shells.stop(&polite.id, "second").unwrap();
    assert!(place.shells.stop_all("all").is_empty(), "it is ended for one reason");
    soon(over.cancelled()).await;
    let (_, end) = place.next_end().await;
    assert_eq!((end.status, end.how.as_str(), end.exit_code), (RunStatus::Killed, "killed: first", None));
    let unknown = ShellId::parse("b-00000000").unwrap();
    assert_eq!(place.shells.stop(&unknown, "x").unwrap_err(), StopRefused::Unknown);
}

#[tokio::test]
async fn all_are_ended_together_and_named() {
    let mut place = Place::new();
    let pids: Vec<i32> = (0..5).map(|n| place.start(&format!("sleep 100{n}")).pid).collect();
    let named: Vec<i32> = place.shells.stop_all("over").iter().map(|l| l.pid).collect();
    assert_eq!(named, pids);
    soon(place.shells.all_over()).await;
    for _ in 0..5 {
        assert_eq!(place.next_end().await.1.how, "killed: over");
    }
    assert!(!place.shells.any_open());
}

#[tokio::test]
async fn a_kill_waits_for_nothing() {
    let mut place = Place::new();
    let shell = place.start("trap '' TERM; echo > up; while :; do :; done");
    place.written("up").await;
    place.shells.stop(&shell.id, "politely").unwrap();
    place.shells.kill_all();
    let (_, end) = place.next_end().await;
    assert_eq!((end.status, end.how.as_str()), (RunStatus::Killed, "killed: politely"));
}

#[tokio::test]
async fn no_more_than_the_limit_run_at_a_time() {
    let mut place = Place::new();
    for _ in 0..BACKGROUND_SHELLS {
        place.start("sleep 1000");
    }
    let refused = place.try_start("sleep 1000").unwrap_err();
    assert!(refused.contains(&BACKGROUND_SHELLS.to_string()), "{refused}");
    let first = place.shells.running()[0].id.clone();
    place.shells.stop(&first, "room").unwrap();
    place.next_end().await;
    place.start("sleep 1000");
    place.shells.kill_all();
    soon(place.shells.all_over()).await;
}

#[tokio::test]
async fn what_can_not_be_started_leaves_nothing() {
    let place = Place::new();
    fs::write(place.dir.path().join("results"), "a file").unwrap();
    let refused = place.try_start("true").unwrap_err();
    assert!(refused.contains("results") && refused.contains("not started"), "{refused}");
    fs::remove_file(place.dir.path().join("results")).unwrap();
    let refused = place.try_start("echo \0").unwrap_err();
    assert!(refused.contains("nul"), "{refused}");
    assert!(fs::read_dir(place.dir.path().join("results")).unwrap().next().is_none(), "no output file either");
    assert!(!place.shells.any_open());
}

#[tokio::test]
async fn r098_endless_output_is_dropped_with_a_notice_and_the_command_goes_on() {
    let mut place = Place::new();
    let bytes = TOOL_OUTPUT_BYTES + 1;
    let shell = place.start(&format!("head -c {bytes} /dev/zero; echo more; echo > through; exit 4"));
    let (_, end) = place.next_end().await;
    assert_eq!(end.exit_code, Some(4), "it was not blocked");
    assert!(place.dir.path().join("through").exists());
    let written = fs::read(&shell.output_file).unwrap();
    let notice = String::from_utf8_lossy(&written[TOOL_OUTPUT_BYTES..]).into_owned();
    assert!(notice.contains("64 MiB") && notice.ends_with("dropped]\n") && !notice.contains("more"), "{notice}");
}

#[tokio::test]
async fn r098_a_command_that_reads_its_own_output_is_bounded_too() {
    let mut place = Place::new();
    // It knows its file by looking for it; every byte it reads there it writes there again.
    let shell = place.start("until f=$(ls results/*.output); do :; done; echo seed; while :; do cat $f; done");
    soon(async {
        while fs::metadata(&shell.output_file).unwrap().len() <= TOOL_OUTPUT_BYTES as u64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    place.shells.stop(&shell.id, "enough").unwrap();
    place.next_end().await;
    let len = fs::metadata(&shell.output_file).unwrap().len();
    assert!(len < TOOL_OUTPUT_BYTES as u64 + 200, "{len}");
}

#[tokio::test]
async fn a_lost_shell_is_known_and_not_open() {
    let place = Place::new();
    let id = ShellId::random();
    let open = OpenShell {
        id: id.clone(),
        tool_use_id: None,
        description: "Build".to_owned(),
        command: "make".to_owned(),
        output_file: "/o".to_owned(),
    };
    let end = ShellEnd { status: RunStatus::Killed, how: "killed".to_owned(), exit_code: None };
    place.shells.insert_lost(&open, end);
    assert!(!place.shells.any_open() && place.shells.running().is_empty());
    assert!(place.shells.take_end(&id).is_none());
    assert_eq!(place.shells.stop(&id, "x").unwrap_err(), StopRefused::Ended(RunStatus::Killed));
    soon(place.shells.all_over()).await;
    place.shells.mark_retrieved(&id);
    assert!(place.shells.get(&id).is_some_and(|s| s.retrieved && s.command == "make"));
}
