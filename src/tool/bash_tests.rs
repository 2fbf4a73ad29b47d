use super::*;
use crate::tool::AgentPort;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

struct NoAgents;

impl AgentPort for NoAgents {
    fn call<'a>(
        &'a self,
        _: &'static str,
        _: &'a str,
        _: &'a Value,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::error("none") })
    }
}

struct Place {
    dir: tempfile::TempDir,
    context: ToolContext,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().join("work");
    std::fs::create_dir(&cwd).unwrap();
    let context = ToolContext {
        cwd,
        results: dir.path().join("s/tool-results"),
        env: Arc::new(vec![("LEAD_AGENT_ID".into(), "a-1a2b3c4d5e6f7890".into())]),
        cancel: CancellationToken::new(),
        tool_use_id: "toolu_1".into(),
        agents: Arc::new(NoAgents),
    };
    Place { dir, context }
}

async fn call(place: &Place, input: Value) -> ToolOutput {
    tokio::time::timeout(Duration::from_secs(60), Bash.run(&input, &place.context)).await.expect("it ends")
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
    for command in ["cat", "read line || echo none", "head -c 10 < /dev/tty", "sudo -S true < /dev/null || true"] {
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
    assert_eq!(Bash.describe(&json!({"command": "ls\n-l"})).description, "ls -l");
    assert_eq!(Bash.describe(&json!({"command": "ls", "description": "List files"})).description, "List files");
    assert_eq!(Bash.describe(&json!({})).description, "");
    assert!(!Bash.is_read_only());
    let schema = Bash.spec().input_schema;
    assert!(schema["properties"].get("run_in_background").is_none());
}
