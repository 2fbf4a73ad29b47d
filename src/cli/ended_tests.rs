use std::fs;
use std::sync::mpsc;

use serde_json::json;

use super::*;
use crate::core::agent::RunStatus;
use crate::core::limits::Durability;
use crate::core::paths::{ConfigDir, SessionFiles};
use crate::store::session::{mark_stop, record_spawn};
use crate::store::transcript::TranscriptWriter;

const PROMPT: &str = r#"{"type":"user","isSidechain":true,"parentUuid":null,"message":{"role":"user","content":"x"},"uuid":"u","run":1}"#;
const REPLY: &str = r#"{"type":"assistant","isSidechain":true,"parentUuid":"u","message":{"role":"assistant","id":"m","content":[{"type":"text","text":"half"}]},"uuid":"v","run":1}"#;

struct Site {
    dir: tempfile::TempDir,
    runtime: RuntimeDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::open(&dir.path().join("r")).unwrap();
        Self { dir, runtime }
    }

    fn agent(&self, created_at: u64) -> Target {
        let session = SessionId::random();
        let id = AgentId::random();
        let files = SessionFiles::of(self.dir.path().join(format!("projects/p/{session}.jsonl"))).agent(&id);
        let meta =
            serde_json::from_value(json!({"agentType": "worker", "sessionId": session, "createdAt": created_at}))
                .unwrap();
        record_spawn(&ConfigDir::new(self.dir.path()), &files, &id, &meta).unwrap();
        Target { id, files }
    }

    fn fate(&self, target: &Target) -> Fate {
        fate(target, &self.runtime, Lead::MayRecord).unwrap()
    }
}

fn writer(target: &Target) -> TranscriptWriter {
    let mut writer = TranscriptWriter::create(target.files.transcript(), Durability::Process).unwrap();
    writer.append_raw(&[PROMPT, REPLY]).unwrap();
    writer
}

#[test]
fn an_end_that_nobody_recorded_is_recorded_once() {
    let site = Site::new();
    let target = site.agent(0);
    drop(writer(&target));
    let Fate::Ended(first) = site.fate(&target) else { panic!("it has ended") };
    assert_eq!((first.status, first.run, first.result.as_deref()), (RunStatus::Failed, 1, Some("half")));
    assert_eq!(first.session_id, session_of(&target.files).unwrap().as_str());
    let before = fs::read(target.files.transcript()).unwrap();
    assert_eq!(site.fate(&target), Fate::Ended(first));
    assert_eq!(fs::read(target.files.transcript()).unwrap(), before);
}

#[test]
fn what_was_stopped_was_killed() {
    let site = Site::new();
    let target = site.agent(0);
    drop(writer(&target));
    mark_stop(&target.files, 1, "enough").unwrap();
    let Fate::Ended(outcome) = site.fate(&target) else { panic!("it has ended") };
    assert_eq!((outcome.status, outcome.error.as_deref()), (RunStatus::Killed, Some("enough")));
}

#[test]
fn what_holds_its_transcript_runs() {
    let site = Site::new();
    let target = site.agent(0);
    let _writer = writer(&target);
    assert_eq!(site.fate(&target), Fate::Running);
}

#[test]
fn what_left_nothing_in_time_never_started() {
    let site = Site::new();
    assert_eq!(site.fate(&site.agent(0)), Fate::NeverStarted);
}

#[test]
fn what_is_being_started_is_waited_for() {
    let site = Site::new();
    let target = site.agent(clock::now_ms());
    let (ready, when_ready) = mpsc::channel();
    std::thread::scope(|s| {
        let target = &target;
        let starter = s.spawn(move || {
            when_ready.recv().unwrap();
            writer(target)
        });
        assert!(!target.files.transcript().exists());
        ready.send(()).unwrap();
        assert!(appears(&target.files).unwrap());
        let _writer = starter.join().unwrap();
        assert_eq!(site.fate(target), Fate::Running);
    });
}

#[test]
fn an_outcome_that_comes_while_it_is_waited_for_is_taken() {
    let site = Site::new();
    for _ in 0..20 {
        let target = site.agent(0);
        let mut writer = writer(&target);
        let outcome = json!({"type": "system", "subtype": "agent_outcome", "agentId": target.id, "run": 1, "status": "completed"});
        std::thread::scope(|s| {
            s.spawn(|| writer.append_raw(&[outcome.to_string()]).unwrap());
            let found = wait_for_outcome(target.files.transcript(), 1, Duration::from_secs(30)).unwrap();
            assert_eq!(found.map(|o| o.status), Some(RunStatus::Completed));
        });
    }
}
