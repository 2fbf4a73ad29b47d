use super::*;
use crate::tool::testing::context;
use std::sync::Arc;

struct Place {
    dir: tempfile::TempDir,
    context: ToolContext,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().join("work");
    std::fs::create_dir(&cwd).unwrap();
    let env = Arc::new(vec![("LEAD_AGENT_ID".into(), "a-1a2b3c4d5e6f7890".into())]);
    let context = ToolContext { env, ..context(&cwd, &dir.path().join("s/tool-results")) };
    Place { dir, context }
}

const BASH: Bash = Bash(Background::Offered);

async fn call(place: &Place, input: Value) -> ToolOutput {
    place.context.folder.settle();
    tokio::time::timeout(Duration::from_secs(60), BASH.run(&input, &place.context)).await.expect("it ends")
}

async fn bash(place: &Place, command: &str) -> ToolOutput {
    call(place, json!({ "command": command })).await
}

#[tokio::test]
async fn output_and_exit_codes_are_reported() {
    let place = place();
    let ok = bash(&place, "echo out; echo err >&2; echo $LEAD_AGENT_ID").await;
    assert_eq!((ok.text.as_str(), ok.is_error), ("out\nerr\na-1a2b3c4d5e6f7890", false));
    let structured = ok.structured.unwrap();
    assert_eq!(structured["stdout"], "out\nerr\na-1a2b3c4d5e6f7890\n");
    assert_eq!((&structured["exitCode"], &structured["interrupted"]), (&json!(0), &json!(false)));
    assert!(structured["durationMs"].is_u64() && structured.get("outputFile").is_none());

    assert_eq!(bash(&place, "true").await.text, "(no output)");
    for (command, text) in [
        ("echo why; exit 3", "exit code 3\nwhy"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("exit 137", "exit code 137 (128 + 9: SIGKILL)"),
    ] {
        let failed = bash(&place, command).await;
        assert_eq!((failed.text.as_str(), failed.is_error), (text, true));
    }
}

#[tokio::test]
async fn what_waits_for_a_person_fails_at_once() {
    let place = place();
    for command in [
        "cat",
        "read line || echo none",
        "head -c 10 < /dev/tty",
        "sudo -S true < /dev/null || true",
        "python3 -i",
        "bash -i",
        "${EDITOR} x",
        "yes 2>/dev/null | ${PAGER:-false} | head -n 3",
    ] {
        let output = call(&place, json!({"command": command, "timeout": 30_000})).await;
        assert!(!output.text.contains("timed out"), "{command}: {}", output.text);
    }
}

#[tokio::test]
async fn the_time_limit_is_named_with_the_way_to_raise_it() {
    let place = place();
    let output = call(&place, json!({"command": "echo begun; yes > /dev/null", "timeout": 300})).await;
    assert!(output.is_error);
    for part in ["timed out after 300ms", "`timeout`", "600000", "begun"] {
        assert!(output.text.contains(part), "{}", output.text);
    }
    assert_eq!(output.structured.unwrap()["interrupted"], true);
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let place = place();
    place.context.cancel.cancel();
    let output = bash(&place, "sleep 1000").await;
    assert!(output.is_error && output.text.contains("interrupted"), "{}", output.text);
}

#[tokio::test]
async fn long_output_is_cut_and_the_whole_is_in_a_named_file() {
    let place = place();
    let file = place.context.results.join("toolu_1.txt");
    let write = |n: usize| format!("head -c {n} /dev/zero | tr '\\0' x");

    let fits = bash(&place, &write(TOOL_OUTPUT_CHARS)).await;
    assert_eq!(fits.text.len(), TOOL_OUTPUT_CHARS);
    assert!(!file.exists());

    let cut = bash(&place, &write(TOOL_OUTPUT_CHARS + 1)).await;
    assert!(!cut.is_error);
    let (shown, notice) = cut.text.split_once('\n').unwrap();
    assert_eq!(shown.len(), TOOL_OUTPUT_CHARS);
    assert!(notice.contains(&format!("the whole is in {}", file.display())), "{notice}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), TOOL_OUTPUT_CHARS as u64 + 1);
    assert_eq!(cut.structured.unwrap()["outputFile"], file.display().to_string());
    drop(place.dir);
}

#[tokio::test]
async fn characters_are_counted_not_bytes() {
    let place = place();
    let file = place.context.results.join("toolu_1.txt");
    let write = |n: usize| format!("printf 'a'; for i in $(seq {n}); do printf '\u{1F600}'; done");
    let fits = bash(&place, &write(TOOL_OUTPUT_CHARS - 1)).await;
    assert_eq!(fits.text.chars().count(), TOOL_OUTPUT_CHARS);
    assert!(!fits.text.contains('\u{FFFD}') && !file.exists());
    let cut = bash(&place, &write(TOOL_OUTPUT_CHARS)).await;
    assert_eq!(cut.text.lines().next().unwrap().chars().count(), TOOL_OUTPUT_CHARS);
    assert!(!cut.text.contains('\u{FFFD}') && file.exists());
}

#[tokio::test]
async fn bytes_that_are_no_text_do_not_fail() {
    let output = bash(&place(), "printf 'a\\xff\\x00b'").await;
    assert_eq!((output.text.as_str(), output.is_error), ("a\u{FFFD}\0b", false));
}

#[tokio::test]
async fn a_vanished_folder_and_bad_input_are_explained() {
    let place = place();
    for (input, part) in [
        (json!({}), "`command`"),
        (json!({"command": "  "}), "`command`"),
        (json!({"command": ["ls"]}), "`command`"),
        (json!({"command": "ls", "timeout": 0}), "600000"),
        (json!({"command": "ls", "timeout": 600_001}), "600000"),
        (json!({"command": "ls", "timeout": "soon"}), "milliseconds"),
        (json!({"command": "x".repeat(200_000)}), "file"),
        (json!({"command": "echo a\0b"}), "nul"),
    ] {
        let output = call(&place, input).await;
        assert!(output.is_error && output.text.to_lowercase().contains(part), "{}", output.text);
    }
    for good in [json!(600_000), json!(1000.0), Value::Null] {
        assert!(!call(&place, json!({"command": "true", "timeout": good})).await.is_error);
    }
    std::fs::remove_dir(&place.context.cwd).unwrap();
    let output = bash(&place, "ls").await;
    assert!(output.is_error && output.text.contains(&place.context.cwd.display().to_string()), "{}", output.text);
}

#[test]
fn calls_are_described_on_one_line() {
    assert_eq!(BASH.describe(&json!({"command": "ls\n-l"})).description, "ls -l");
    assert_eq!(BASH.describe(&json!({"command": "ls", "description": "List files"})).description, "List files");
    assert_eq!(BASH.describe(&json!({})).description, "");
    assert!(!BASH.is_read_only());
}

#[tokio::test]
async fn the_background_is_offered_only_where_it_is_allowed() {
    let offers = |background| Bash(background).spec().input_schema["properties"].get("run_in_background").is_some();
    assert!(offers(Background::Offered) && !offers(Background::Disabled));
    let place = place();
    let input = json!({"command": "touch made", "run_in_background": true});
    let refused = Bash(Background::Disabled).run(&input, &place.context).await;
    assert!(refused.is_error && refused.text.contains("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"), "{}", refused.text);
    assert!(!place.context.shells.any_open() && !place.context.cwd.join("made").exists());
    place.context.cancel.cancel();
    let late = call(&place, input).await;
    assert!(late.is_error && late.text.contains("cancelled") && !place.context.shells.any_open(), "{}", late.text);
    let bad = call(&place, json!({"command": "true", "run_in_background": "soon"})).await;
    assert!(bad.is_error && bad.text.contains("true or false"), "{}", bad.text);
}

#[tokio::test]
async fn a_changed_folder_is_kept_reported_and_recorded() {
    let place = place();
    let moved = bash(&place, "mkdir sub; cd sub; export X=1; f() { :; }; echo there").await;
    let sub = place.context.cwd.join("sub").canonicalize().unwrap();
    assert_eq!(moved.text, format!("there\n[working folder of your next command: {}]", sub.display()));
    assert_eq!(moved.structured.unwrap()["shellCwd"], sub.display().to_string());
    let next = bash(&place, "pwd; echo \"X=$X\"; type f 2>&1 | grep -c 'not found'").await;
    assert_eq!(next.text, format!("{}\nX=\n1", sub.display()), "variables and functions are not kept");
    assert!(next.structured.unwrap().get("shellCwd").is_none(), "nothing changed");
    let back = bash(&place, "cd ..; exit 3").await;
    assert!(back.is_error && back.text.starts_with("exit code 3\n[working folder"), "{}", back.text);
    let left: Vec<_> = std::fs::read_dir(&place.context.results).unwrap().collect();
    assert!(left.is_empty(), "the files in which shells wrote their folders are gone: {left:?}");
}

#[tokio::test]
async fn r081_a_folder_that_disappears_is_left_for_the_project_s_and_that_is_said() {
    let place = place();
    bash(&place, "mkdir sub; cd sub").await;
    let gone = bash(&place, "rmdir \"$PWD\"; echo removed").await;
    assert_eq!(gone.text, "removed", "this command still ran there");
    let output = bash(&place, "pwd").await;
    let cwd = place.context.cwd.canonicalize().unwrap();
    let note =
        format!("[the working folder {}/sub is gone; this ran in {}]", cwd.display(), place.context.cwd.display());
    assert_eq!(output.text, format!("{}\n{note}", cwd.display()));
    assert_eq!(output.structured.unwrap()["shellCwd"], place.context.cwd.display().to_string());
    assert_eq!(bash(&place, "pwd").await.text, cwd.display().to_string(), "it is said once");
}

#[tokio::test]
async fn a_background_process_does_not_hold_the_call_nor_move_its_folder() {
    let place = place();
    let output = bash(&place, "(cd /; exec sleep 1000) & echo $! > pid; echo said").await;
    assert_eq!(output.text, "said");
    let pid: i32 = std::fs::read_to_string(place.context.cwd.join("pid")).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}
