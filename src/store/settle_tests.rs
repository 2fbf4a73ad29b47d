use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::store::reader::tail;
use crate::store::session::mark_stop;

struct Agent {
    _dir: tempfile::TempDir,
    files: AgentFiles,
    id: AgentId,
    session: SessionId,
}

impl Agent {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let id = AgentId::random();
        let files = AgentFiles::of(dir.path().join(format!("{}.jsonl", id.file_stem())));
        Self { _dir: dir, files, id, session: SessionId::random() }
    }

    fn write(&self, lines: &[Value]) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.files.transcript()).unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
    }

    fn settle(&self, status: RunStatus) -> Result<Settled, StoreError> {
        settle(&self.files, &self.id, &self.session, |run, _, _| outcome(run, status))
    }

    fn outcome_lines(&self) -> usize {
        fs::read_to_string(self.files.transcript()).unwrap().matches("agent_outcome").count()
    }
}

fn outcome(run: u32, status: RunStatus) -> Outcome {
    let json = json!({"agentId": AgentId::random(), "run": run, "status": status, "error": "process lost"});
    serde_json::from_value(json).unwrap()
}

fn user(run: u32, second: u32) -> Value {
    json!({
        "parentUuid": null, "type": "user", "uuid": "u", "isSidechain": true, "run": run,
        "timestamp": format!("2026-01-01T00:00:{second:02}.000Z"), "message": {"role": "user", "content": "go"},
    })
}

fn reply(run: u32, second: u32, id: &str, block: Value) -> Value {
    json!({
        "parentUuid": "u", "type": "assistant", "uuid": "a", "isSidechain": true, "run": run,
        "timestamp": format!("2026-01-01T00:00:{second:02}.500Z"),
        "message": {
            "role": "assistant", "id": id, "content": [block],
            "usage": {"input_tokens": 100 + second, "output_tokens": 10, "cache_read_input_tokens": 5},
        },
    })
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn tool(name: &str) -> Value {
    json!({"type": "tool_use", "id": name, "name": name, "input": {}})
}

fn written(settled: Settled) -> Outcome {
    match settled {
        Settled::Written(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_run_is_recorded_with_what_there_was_of_it() {
    let agent = Agent::new();
    agent.write(&[
        user(1, 0),
        reply(1, 1, "m0", text("of run 1")),
        serde_json::from_slice(&Line::Outcome(Box::new(outcome(1, RunStatus::Completed))).to_bytes().unwrap()).unwrap(),
        user(2, 10),
        reply(2, 11, "m1", text("first")),
        reply(2, 12, "m1", tool("Grep")),
        reply(2, 13, "m2", text("second")),
        reply(2, 13, "m2", text("part")),
        reply(2, 14, "m2", tool("Read")),
        reply(2, 15, "m3", tool("Bash")),
    ]);
    let mut seen = None;
    let settled = settle(&agent.files, &agent.id, &agent.session, |run, partial, progress| {
        seen = Some((run, partial, progress));
        outcome(0, RunStatus::Failed)
    });
    let outcome = written(settled.unwrap());
    let (run, partial, progress) = seen.unwrap();
    assert_eq!((run, partial.as_deref()), (2, Some("second\npart")));
    assert_eq!((progress.turns, progress.tool_uses, progress.output_tokens), (3, 3, 30));
    assert_eq!(progress.input_tokens, 120, "of the latest reply");
    assert_eq!(progress.activity.iter().map(|a| a.tool.as_str()).collect::<Vec<_>>(), ["Grep", "Read", "Bash"]);
    assert_eq!((outcome.run, outcome.status, &outcome.agent_id), (2, RunStatus::Failed, &agent.id));
    assert_eq!(outcome.result.as_deref(), Some("second\npart"));
    assert_eq!(outcome.usage, RunUsage { total_tokens: 150, tool_uses: 3, duration_ms: 5500 });
    assert!(outcome.is_sidechain && !outcome.uuid.is_empty() && !outcome.timestamp.is_empty());
    let tail = tail(agent.files.transcript()).unwrap();
    assert_eq!((tail.open_run, tail.last_outcome), (None, Some(outcome)));
}

#[test]
fn an_outcome_that_is_there_is_returned_and_not_written_again() {
    let agent = Agent::new();
    agent.write(&[user(1, 0)]);
    let first = written(agent.settle(RunStatus::Failed).unwrap());
    assert_eq!(agent.settle(RunStatus::Killed).unwrap(), Settled::Existing(first));
    assert_eq!(agent.outcome_lines(), 1);
    agent.write(&[user(2, 1)]);
    assert_eq!(written(agent.settle(RunStatus::Failed).unwrap()).run, 2);
    assert_eq!(agent.outcome_lines(), 2);
}

#[test]
fn a_run_that_was_being_stopped_was_killed() {
    let agent = Agent::new();
    agent.write(&[user(1, 0)]);
    mark_stop(&agent.files, 1, "by a test").unwrap();
    assert_eq!(written(agent.settle(RunStatus::Failed).unwrap()).status, RunStatus::Killed);
    agent.write(&[user(2, 1)]);
    assert_eq!(written(agent.settle(RunStatus::Failed).unwrap()).status, RunStatus::Failed, "another run's marker");
}

#[test]
fn an_agent_without_a_prompt_never_started() {
    let agent = Agent::new();
    assert_eq!(agent.settle(RunStatus::Failed).unwrap(), Settled::NeverStarted);
    assert!(!agent.files.transcript().exists());
    fs::write(agent.files.transcript(), b"{\"type\":\"us").unwrap();
    assert_eq!(agent.settle(RunStatus::Failed).unwrap(), Settled::NeverStarted);
    let session = Agent::new();
    session.write(&[
        json!({"parentUuid": null, "type": "user", "uuid": "u", "message": {"role": "user", "content": "x"}}),
    ]);
    assert_eq!(session.settle(RunStatus::Failed).unwrap(), Settled::NeverStarted);
    assert_eq!(session.outcome_lines(), 0);
}

#[test]
fn r063_a_living_agent_is_not_settled() {
    let agent = Agent::new();
    agent.write(&[user(1, 0)]);
    let writer = TranscriptWriter::open(agent.files.transcript(), Durability::Process).unwrap();
    let grace = Duration::from_millis(10);
    let refused = settle_within(grace, &agent.files, &agent.id, &agent.session, |_, _, _| panic!("not asked"));
    assert!(matches!(refused, Err(StoreError::Locked { .. })));
    assert_eq!(agent.outcome_lines(), 0);
    drop(writer);
    written(agent.settle(RunStatus::Failed).unwrap());
}

#[test]
fn a_torn_line_is_cut_before_the_outcome_is_written() {
    let agent = Agent::new();
    agent.write(&[user(1, 0), reply(1, 1, "m", text("said"))]);
    let mut file = OpenOptions::new().append(true).open(agent.files.transcript()).unwrap();
    file.write_all(b"{\"type\":\"assistant\",\"mess").unwrap();
    assert_eq!(written(agent.settle(RunStatus::Failed).unwrap()).result.as_deref(), Some("said"));
    let content = fs::read_to_string(agent.files.transcript()).unwrap();
    assert!(content.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()), "{content}");
}

#[test]
fn a_text_too_long_for_a_line_is_cut() {
    let agent = Agent::new();
    agent.write(&[user(1, 0), reply(1, 1, "m", text(&"\u{1}".repeat(PARTIAL_CHARS + 1)))]);
    let result = written(agent.settle(RunStatus::Failed).unwrap()).result.unwrap();
    assert!(result.ends_with("characters in all]"));
    assert_eq!(tail(agent.files.transcript()).unwrap().open_run, None);
}

#[test]
fn of_many_who_settle_one_writes() {
    for _ in 0..20 {
        let agent = Agent::new();
        agent.write(&[user(1, 0), reply(1, 1, "m", text("said"))]);
        let all: Vec<Settled> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..16).map(|_| s.spawn(|| agent.settle(RunStatus::Failed).unwrap())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(all.iter().filter(|s| matches!(s, Settled::Written(_))).count(), 1);
        let outcomes: HashSet<String> = all
            .into_iter()
            .map(|s| match s {
                Settled::Existing(o) | Settled::Written(o) => o.uuid,
                Settled::NeverStarted => panic!("it did"),
            })
            .collect();
        assert_eq!((outcomes.len(), agent.outcome_lines()), (1, 1));
    }
}

/// The path of the transcript that this process, a copy of the test program, is to settle.
const SETTLE_PATH: &str = "LEAD_TEST_SETTLE";

#[test]
fn of_many_processes_who_settle_one_writes() {
    if let Ok(path) = std::env::var(SETTLE_PATH) {
        let files = AgentFiles::of(PathBuf::from(path));
        let id = files.agent_id().unwrap();
        settle(&files, &id, &SessionId::random(), |run, _, _| outcome(run, RunStatus::Failed)).unwrap();
        return;
    }
    let agent = Agent::new();
    agent.write(&[user(1, 0)]);
    let me = std::env::current_exe().unwrap();
    let this_test = ["--exact", "store::settle::tests::of_many_processes_who_settle_one_writes"];
    let all: Vec<_> = (0..8)
        .map(|_| {
            let mut process = std::process::Command::new(&me);
            process.args(this_test).env(SETTLE_PATH, agent.files.transcript());
            process.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut process in all {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(agent.outcome_lines(), 1);
}
