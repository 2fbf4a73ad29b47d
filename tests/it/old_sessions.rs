//! Sessions that lie on disk: how little of them a start reads, and who else can read them.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{World, bash, book, lead_rule, spawn, turn, worker_rule};

const OLD: &str = "11111111-1111-4111-8111-111111111111";
const OLDER: &str = "22222222-2222-4222-8222-222222222222";
const MIB: usize = 1 << 20;

/// The folder of this work tree's sessions.
fn sessions(world: &World) -> PathBuf {
    let folder = world.config().join("projects").join(lead::core::paths::sanitise_cwd(world.cwd()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A transcript of this size that ends with a boundary, a summary and an answer.
fn write_long(path: &Path, id: &str, bytes: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let line = |n: usize, kind: &str, parent: Value, text: &str| {
        json!({
            "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": format!("u{n}"), "sessionId": id,
            "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/x", "version": "0.1.0",
            "message": {"role": kind, "content": [{"type": "text", "text": text}]},
        })
    };
    let filling = "x".repeat(64 << 10);
    let count = bytes / filling.len();
    for n in 0..count {
        let kind = if n % 2 == 0 { "user" } else { "assistant" };
        let parent = if n == 0 { Value::Null } else { json!(format!("u{}", n - 1)) };
        writeln!(file, "{}", line(n, kind, parent, &filling)).unwrap();
    }
    let boundary = json!({
        "type": "system", "subtype": "compact_boundary", "uuid": "b", "consumed": {},
        "timestamp": "2026-01-01T00:00:00.000Z", "sessionId": id,
    });
    writeln!(file, "{boundary}").unwrap();
    let mut summary = line(count, "user", json!("b"), "the summary");
    summary["isCompactSummary"] = json!(true);
    writeln!(file, "{summary}").unwrap();
    writeln!(file, "{}", line(count + 1, "assistant", json!(format!("u{count}")), "understood")).unwrap();
    file.flush().unwrap();
}

/// The number behind this word, in what a tool saw of its lead's process.
fn seen(text: &str, word: &str) -> usize {
    let behind = text.split_once(word).unwrap_or_else(|| panic!("no {word} in {text}")).1;
    behind.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn r099_a_start_reads_no_more_of_old_transcripts_than_it_needs() {
    let world = World::new();
    let folder = sessions(&world);
    let look = "cat /proc/$PPID/io; grep VmHWM /proc/$PPID/status";
    let book = book(
        &world,
        &[lead_rule(&[
            json!({"when": {"latest": "^look$"}, "tools": [bash(look)], "repeat": true}),
            json!({"when": {"latest": "rchar"}, "text": "{{result.1}}", "repeat": true}),
        ])],
    );
    let run = |args: &[&str]| {
        let done = world.headless(&book.model(), "look").args(args).run();
        let text = done.expect(0).result();
        (seen(&text, "rchar:"), seen(&text, "VmHWM:"))
    };
    let (read_before, memory_before) = run(&[]);
    for id in [OLD, OLDER] {
        write_long(&folder.join(format!("{id}.jsonl")), id, 64 * MIB);
    }
    for args in [&[][..], &["--resume", OLD], &["--continue"]] {
        let (read, memory) = run(args);
        assert!(read < read_before + 2 * MIB, "{args:?}: {read} bytes read, {read_before} before");
        assert!(memory < memory_before + 8 * 1024, "{args:?}: {memory} kB of memory, {memory_before} before");
    }
    let resumed = book.requests().into_iter().filter(|r| r.prompt().contains("the summary")).count();
    assert!(resumed >= 2, "the resumed ones had what the old session ended with");
}

/// Python with the SDK, if it is installed.
fn python_with_sdk() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/sdk-venv/bin/python");
    let has_sdk = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import claude_agent_sdk"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    [installed, PathBuf::from("python3")].into_iter().find(has_sdk)
}

#[test]
fn the_public_sdk_reads_our_sessions() {
    let Some(python) = python_with_sdk() else {
        assert!(
            std::env::var_os("LEAD_REQUIRE_ALL").is_none(),
            "claude-agent-sdk is missing: scripts/check installs it"
        );
        println!("SKIPPED (no claude-agent-sdk)");
        return;
    };
    let world = World::new();
    let rules = [
        lead_rule(&[
            turn("Starting.", &[spawn("Look", "task one"), bash("echo out")]),
            json!({"when": {"notifications": ">=1"}, "text": "the last word"}),
            turn("waiting", &[]),
        ]),
        worker_rule("task one", &[turn("one done", &[])]),
    ];
    let book = book(&world, &rules);
    let done = world.headless(&book.model(), "the first prompt").run();
    let id = done.expect(0).session();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/read_session.py");
    let read = Command::new(python)
        .arg(script)
        .args([world.cwd().to_str().unwrap(), &id])
        .env_clear()
        .envs(world.environment())
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    let listed = read["listed"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["session_id"]), (1, &json!(id)), "{listed:#?}");
    assert_eq!(listed[0]["first_prompt"], "the first prompt", "{listed:#?}");
    let ours: Vec<Value> = world.session(&id).lines();
    let ours: Vec<&Value> = ours.iter().filter(|l| l["type"] == "user" || l["type"] == "assistant").collect();
    let theirs = read["messages"].as_array().unwrap();
    let uuids = |lines: &[&Value]| lines.iter().map(|l| l["uuid"].clone()).collect::<Vec<_>>();
    assert_eq!(uuids(&theirs.iter().collect::<Vec<_>>()), uuids(&ours), "every line, in order: {theirs:#?}");
    for (their, our) in theirs.iter().zip(&ours) {
        assert_eq!((&their["type"], &their["message"]), (&our["type"], &our["message"]));
    }
}
