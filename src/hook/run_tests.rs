use std::fs;
use std::path::Path;

use super::*;
use crate::core::hook::Task;

fn hook(event: HookEvent, matcher: Option<&str>, command: &str) -> Hook {
    Hook { event, matcher: matcher.map(str::to_owned), command: command.to_owned(), timeout_ms: None }
}

fn hooks(dir: &Path, hooks: Vec<Hook>) -> Hooks {
    let set = HookSet { hooks, project: Some(dir.join("project")) };
    let place = HookPlace {
        session: "s-1".into(),
        transcript: "/t.jsonl".into(),
        cwd: dir.to_owned(),
        permission_mode: "default".into(),
    };
    Hooks::new(set, place, vec![("LEAD_RUN".into(), "0123456789ab".into())])
}

fn created() -> Occasion {
    Occasion::TaskCreated(Task { id: "7".into(), subject: "s".into(), description: "d\n\"é\"".into() })
}

fn who(teammate: Option<&str>) -> Who {
    Who { teammate: teammate.map(str::to_owned), team: teammate.map(|_| "t".to_owned()) }
}

async fn run(hooks: &Hooks, occasion: &Occasion, who: &Who) -> Ruling {
    hooks.run(occasion, who, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_hook_is_told_what_happens_where_and_to_whom() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cat > told.json; echo \"$CLAUDE_PROJECT_DIR $LEAD_RUN $PWD\" > env";
    let asked = hooks(dir.path(), HookEvent::ALL.map(|event| hook(event, None, script)).to_vec());
    let told = || serde_json::from_str::<Value>(&fs::read_to_string(dir.path().join("told.json")).unwrap()).unwrap();
    assert_eq!(run(&asked, &created(), &who(Some("bob"))).await, Ruling::Proceed);
    let common = |event: &str| {
        json!({
            "session_id": "s-1", "transcript_path": "/t.jsonl", "cwd": dir.path(), "permission_mode": "default",
            "hook_event_name": event,
        })
    };
    let mut wanted = common("TaskCreated");
    for (key, value) in [
        ("task_id", "7"),
        ("task_subject", "s"),
        ("task_description", "d\n\"é\""),
        ("teammate_name", "bob"),
        ("team_name", "t"),
    ] {
        wanted[key] = json!(value);
    }
    assert_eq!(told(), wanted);
    let env = fs::read_to_string(dir.path().join("env")).unwrap();
    assert_eq!(env.trim(), format!("{0}/project 0123456789ab {0}", dir.path().display()));
    assert_eq!(run(&asked, &Occasion::TeammateIdle, &who(None)).await, Ruling::Proceed);
    assert_eq!(told(), common("TeammateIdle"), "outside of a team nobody has a name");
}

#[tokio::test]
async fn the_first_that_refuses_ends_it_and_broken_ones_stop_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = HookEvent::TaskCreated;
    let asked = hooks(
        dir.path(),
        vec![
            hook(at, None, "echo 1 >> ran; exit 1"),
            hook(at, None, "no-such-program-anywhere"),
            hook(HookEvent::TaskCompleted, None, "echo wrong >> ran; exit 2"),
            hook(at, None, "echo 2 >> ran; echo 'not yet' >&2; exit 2"),
            hook(at, None, "echo 3 >> ran"),
        ],
    );
    assert_eq!(run(&asked, &created(), &who(None)).await, Ruling::Blocked("not yet".into()));
    assert_eq!(fs::read_to_string(dir.path().join("ran")).unwrap(), "1\n2\n");
    let says = hooks(dir.path(), vec![hook(at, None, r#"echo '{"decision": "block", "reason": "no"}'"#)]);
    assert_eq!(run(&says, &created(), &who(None)).await, Ruling::Blocked("no".into()));
    // What can't be started stops nothing either.
    let nowhere = hooks(&dir.path().join("gone"), vec![hook(at, None, "exit 2")]);
    assert_eq!(run(&nowhere, &created(), &who(None)).await, Ruling::Proceed);
}

#[tokio::test]
async fn matchers_are_about_the_whole_name() {
    let dir = tempfile::tempdir().unwrap();
    let asked = |matcher| hooks(dir.path(), vec![hook(HookEvent::TeammateIdle, Some(matcher), "exit 2")]);
    for (matcher, name, is_asked) in [
        ("bob", Some("bob"), true),
        ("bob", Some("bobby"), false),
        ("bob|eve", Some("eve"), true),
        ("bob|eve", Some("evening"), false),
        ("re.*", Some("researcher-2"), true),
        (".*", None, true),
        ("bob", None, false),
        ("(", Some("("), false),
    ] {
        let ruling = run(&asked(matcher), &Occasion::TeammateIdle, &who(name)).await;
        assert_eq!(matches!(ruling, Ruling::Blocked(_)), is_asked, "{matcher} {name:?}");
    }
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_killed_with_its_group_and_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Hook {
        timeout_ms: Some(300),
        ..hook(HookEvent::TaskCreated, None, "echo $$ > pid; (sleep 1000; echo late > late) & wait")
    };
    assert_eq!(run(&hooks(dir.path(), vec![slow]), &created(), &who(None)).await, Ruling::Proceed);
    let pid: i32 = fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    let mut left = 0;
    // What has ended may wait for the first process of the machine to take note.
    crate::proc::Snapshot::take(|process| left += usize::from(process.session == pid && process.state != 'Z'));
    assert_eq!(left, 0, "processes of its session live");
    assert!(!dir.path().join("late").exists());
}

#[tokio::test]
async fn whoever_is_cancelled_does_not_wait_for_hooks() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let endless = vec![hook(HookEvent::TaskCreated, None, "exec sleep 1000")];
    let asked = hooks(dir.path(), endless);
    cancel.cancel();
    assert_eq!(asked.run(&created(), &who(None), &cancel).await, Ruling::Cancelled);
}
