//! `lead wait --idle`: an agent or session is waited for until it says that it has nothing to do, or
//! is gone. What it says is its state in the registry; nothing is asked and nothing polled.

use super::ended::{appears, end_of};
use super::error::CliError;
use super::logs::wait;
use super::lookup::Subject;
use crate::core::agent::RowState;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::store::watch::Watch;

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It has nothing to do.
    Idle,
    /// Its process is gone, or there never was one.
    Gone,
}

/// Blocks until `subject` is idle or gone.
pub(super) fn wait_idle(subject: &Subject, runtime: &RuntimeDir) -> Result<Rest, CliError> {
    if let Subject::Agent(target) = subject
        && !appears(&target.files)?
    {
        return Ok(Rest::Gone);
    }
    let watch = Watch::open(runtime)?;
    let mut end = end_of(subject.transcript())?;
    loop {
        watch.clear()?;
        if is_idle(subject.id(), runtime)? {
            return Ok(Rest::Idle);
        }
        if wait(&watch, &mut end)? {
            return Ok(Rest::Gone);
        }
    }
}

fn is_idle(id: &str, runtime: &RuntimeDir) -> Result<bool, CliError> {
    let found = find_alive(runtime, |e| e.agent_id == id)?;
    Ok(found.and_then(|r| r.state).is_some_and(|s| s.state == RowState::Idle))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use serde_json::json;

    use super::*;
    use crate::core::agent::{LiveState, RegistryEntry};
    use crate::core::ids::SessionId;
    use crate::store::atomic::Durability;
    use crate::store::runtime::Registration;
    use crate::store::transcript::TranscriptWriter;

    fn registered(dir: &RuntimeDir, id: &SessionId) -> Registration {
        let entry: RegistryEntry = serde_json::from_value(json!({
            "address": "uds:/x", "pid": 1, "role": "lead", "agentId": id, "session": id, "cwd": "/", "configDir": "/",
            "started": 1, "version": "0",
        }))
        .unwrap();
        Registration::publish(dir, &dir.reserve_name(), &entry).unwrap()
    }

    fn state(state: &str, transcript: &Path) -> LiveState {
        serde_json::from_value(json!({
            "state": state, "owner": "none", "run": 1, "type": "main", "description": "", "transcript": transcript,
            "since_ms": 1, "last_event_ms": 1,
        }))
        .unwrap()
    }

    #[test]
    fn it_returns_when_the_state_says_so_or_the_lock_is_free_and_not_before() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let dir = RuntimeDir::open(&folder.path().join("r")).unwrap();
            let (id, path) = (SessionId::random(), folder.path().join("s.jsonl"));
            let writer = TranscriptWriter::create(&path, Durability::Process).unwrap();
            let registration = registered(&dir, &id);
            let (rested, rest) = mpsc::channel();
            std::thread::scope(|s| {
                let wait = || {
                    let (subject, dir, rested) =
                        (Subject::Session(id.clone(), path.clone()), dir.clone(), rested.clone());
                    s.spawn(move || rested.send(wait_idle(&subject, &dir).unwrap()).unwrap());
                };
                registration.set_state(&state("running", &path)).unwrap();
                wait();
                registration.set_state(&state("running", &path)).unwrap();
                assert!(rest.try_recv().is_err());
                registration.set_state(&state("idle", &path)).unwrap();
                assert_eq!(rest.recv().unwrap(), Rest::Idle);
                wait();
                assert_eq!(rest.recv().unwrap(), Rest::Idle, "it is so already");
                registration.set_state(&state("running", &path)).unwrap();
                wait();
                // As if it was killed: nothing is said, the lock is free.
                std::mem::forget(registration);
                drop(writer);
                assert_eq!(rest.recv().unwrap(), Rest::Gone);
            });
        }
    }
}
