//! The outcome of an agent that left none: built by whoever settles it after its death.

use crate::core::agent::{Leftover, Outcome, RunStatus, RunUsage};
use crate::core::clock;
use crate::core::ids::{self, AgentId, SessionId};
use crate::core::paths::AgentFiles;
use crate::proc::Exit;

/// What is known of a dead agent's run. What it had said and used is in its transcript, and
/// `store::settle` takes it from there.
pub struct Remains {
    /// The run.
    pub run: u32,
    /// How its process ended, where that is known.
    pub exit: Option<Exit>,
    /// What the sweep killed.
    pub leftovers: Vec<Leftover>,
}

/// `killed` if somebody was stopping it (its marker lies there), else `failed` with what is known.
pub fn outcome_of_dead(id: &AgentId, session: &SessionId, files: &AgentFiles, remains: Remains) -> Outcome {
    let stopped = std::fs::read_to_string(files.stop_marker(remains.run)).ok();
    let error = match (&stopped, &remains.exit) {
        (Some(reason), _) if !reason.trim().is_empty() => reason.trim().to_owned(),
        (Some(_), _) => "stopped".to_owned(),
        (None, Some(exit)) => format!("its process ended: {exit}"),
        (None, None) => "its process was lost".to_owned(),
    };
    Outcome {
        agent_id: id.clone(),
        run: remains.run,
        status: if stopped.is_some() { RunStatus::Killed } else { RunStatus::Failed },
        result: None,
        error: Some(error),
        exit: remains.exit.as_ref().and_then(|e| e.code),
        signal: remains.exit.as_ref().and_then(|e| e.signal.clone()),
        usage: RunUsage::default(),
        tokens: None,
        permission_denials: Vec::new(),
        leftovers: remains.leftovers,
        uuid: ids::random_uuid(),
        timestamp: clock::iso(clock::now_ms()),
        session_id: session.as_str().to_owned(),
        is_sidechain: true,
    }
}
