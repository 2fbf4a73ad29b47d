//! `lead stop b-…`: has a background shell ended by the process that runs it. There is no other way:
//! only that process knows its end, and tells its model of it.

use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::ended_row::EndedRow;
use super::error::CliError;
use crate::core::frame::Frame;
use crate::core::ids::ShellId;
use crate::core::limits::deadlines;
use crate::store::runtime::Registered;
use crate::wire::{WireError, dial_and_greet, parse_address};

/// A background shell and who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellTarget {
    pub id: ShellId,
    /// The agent's id, or the session's.
    owner: String,
    address: String,
}

/// The running shell whose id begins with `text`; none if there is none.
pub(super) fn find_shell(text: &str, registered: &[Registered]) -> Result<Option<ShellTarget>, CliError> {
    let text = text.trim();
    if !text.starts_with("b-") {
        return Ok(None);
    }
    let mut found: Vec<ShellTarget> = Vec::new();
    for owner in registered.iter().filter(|r| r.alive) {
        let shells = owner.state.iter().flat_map(|state| &state.shells);
        found.extend(shells.filter(|shell| shell.id.as_str().starts_with(text)).map(|shell| ShellTarget {
            id: shell.id.clone(),
            owner: owner.entry.agent_id.clone(),
            address: owner.entry.address.clone(),
        }));
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let candidates = found.into_iter().map(|target| target.id.to_string()).collect();
            Err(CliError::Ambiguous { text: text.to_owned(), candidates })
        }
    }
}

/// Ends it; returns when it has ended.
pub(super) async fn stop_shell(
    target: ShellTarget,
    reason: &str,
    deadline: Instant,
    waited: Duration,
) -> Result<EndedRow, CliError> {
    let ShellTarget { id, owner, address } = target;
    let path = parse_address(&address).map_err(WireError::from)?;
    let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
    let request = Frame::StopShell { id: id.clone(), reason: reason.to_owned() };
    // The whole of the time: the answer comes when it has ended, which may take the ladder.
    let left = deadline.saturating_duration_since(Instant::now()).max(deadlines().reply);
    match timeout_at(deadline.into(), link.request(request, left)).await {
        Ok(Ok(Frame::Done)) => Ok(EndedRow::without_outcome(id.as_str(), "killed", None)),
        Ok(Ok(Frame::Error { message, .. })) => Err(CliError::Refused(format!("{message} ({owner} runs it)"))),
        Ok(Ok(_)) => Err(CliError::Refused(format!("{owner}, which runs {id}, answered something else"))),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            Err(CliError::TimedOut { what: format!("background command {id} of {owner} is still running"), waited })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn running(agent: &str, shells: &[&str], alive: bool) -> Registered {
        let shell = |id: &&str| json!({"id": id, "description": "d", "pid": 7, "started_ms": 1, "cwd": "/w", "output_file": "/o"});
        Registered {
            name: "0123456789ab".to_owned(),
            entry: serde_json::from_value(json!({
                "address": "uds:/r/0123456789ab.sock", "pid": 42, "role": "worker", "agentId": agent,
                "session": "s", "cwd": "/w", "configDir": "/c", "started": 1000, "version": "0.1.0",
            }))
            .unwrap(),
            state: Some(
                serde_json::from_value(json!({
                    "state": "running", "owner": "lead", "run": 1, "type": "worker", "description": "Look",
                    "model": null, "waiting_for": null, "transcript": "/t", "worktree": null, "since_ms": 2000,
                    "last_event_ms": 3000, "shells": shells.iter().map(shell).collect::<Vec<_>>(),
                }))
                .unwrap(),
            ),
            alive,
        }
    }

    #[test]
    fn shells_are_found_by_the_beginning_of_their_id_in_whoever_runs_them() {
        let all = [
            running("a-1a2b3c4d5e6f7890", &["b-11111111", "b-22222222"], true),
            running("a-2a2b3c4d5e6f7890", &["b-22333333"], true),
            running("a-3a2b3c4d5e6f7890", &["b-44444444"], false),
        ];
        let found = |text: &str| find_shell(text, &all).unwrap().map(|t| (t.id.to_string(), t.owner));
        assert_eq!(found("b-1"), Some(("b-11111111".to_owned(), "a-1a2b3c4d5e6f7890".to_owned())));
        assert_eq!(found("b-223"), Some(("b-22333333".to_owned(), "a-2a2b3c4d5e6f7890".to_owned())));
        for none in ["b-4", "b-9", "a-1", ""] {
            assert_eq!(found(none), None, "{none}");
        }
        let error = find_shell("b-22", &all).unwrap_err().to_string();
        assert!(error.contains("b-22222222, b-22333333"), "{error}");
    }
}
