//! What an agent says, told to its owner line by line: as the agent tells it over its link, and from
//! its transcript what the link did not carry, because the agent crashed, was taken over from
//! another lead, or wrote faster than the link took.

use std::collections::HashSet;

use super::event::SupervisorEvent;
use super::life::Life;
use crate::core::entry::{Line, Talk, parse_line};
use crate::core::paths::AgentFiles;
use crate::store::StoreError;
use crate::store::reader::lines_from_end;

/// The lines of one run that are not in `told`, oldest first. Blocks; reads no further back than the
/// run's beginning.
pub fn lines_of_run(files: &AgentFiles, run: u32, told: &HashSet<String>) -> Result<Vec<Talk>, StoreError> {
    let mut found = Vec::new();
    for bytes in lines_from_end(files.transcript())? {
        match parse_line(&bytes?) {
            Ok(Line::Talk(talk)) if talk.run.is_some_and(|r| r < run) => break,
            Ok(Line::Outcome(outcome)) if outcome.run < run => break,
            // Another program's lines name no run: they belong to the one they stand in.
            Ok(Line::Talk(talk)) if talk.run.is_none_or(|r| r == run) && !told.contains(&talk.uuid) => {
                found.push(*talk);
            }
            _ => {}
        }
    }
    found.reverse();
    Ok(found)
}

impl Life {
    /// Hands on a line the agent told of.
    pub(super) async fn on_entry(&mut self, json: &str) {
        match parse_line(json.as_bytes()) {
            Ok(Line::Talk(talk)) => self.tell(talk).await,
            // Whatever it is, it is no part of the conversation.
            Ok(_) => {}
            Err(error) => tracing::warn!(id = %self.id, %error, "the agent told of a line that is none"),
        }
    }

    /// Hands on what the agent's file has of this run and nobody was told.
    pub(super) async fn tell_untold(&mut self, run: u32) {
        if !self.launcher.tells_lines() {
            return;
        }
        let (files, told) = (self.files.clone(), std::mem::take(&mut self.told));
        let read = tokio::task::spawn_blocking(move || (lines_of_run(&files, run, &told), told)).await;
        let Ok((lines, told)) = read else { return };
        self.told = told;
        match lines {
            Ok(lines) => {
                for line in lines {
                    self.tell(Box::new(line)).await;
                }
            }
            Err(StoreError::Missing { .. }) => {}
            Err(error) => tracing::warn!(id = %self.id, %error, "what the agent said can't be read"),
        }
    }

    async fn tell(&mut self, line: Box<Talk>) {
        if self.told.insert(line.uuid.clone()) {
            let id = self.id.clone();
            let _ = self.events.send(SupervisorEvent::Line { id, line }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_lines_of_a_run_come_in_order_and_without_those_told() {
        let folder = tempfile::tempdir().unwrap();
        let files = AgentFiles::of(folder.path().join("agent-a1a2b3c4d5e6f7890.jsonl"));
        let line = |uuid: &str, run: u32| json!({"parentUuid": null, "type": "user", "message": {"role": "user", "content": uuid}, "uuid": uuid, "run": run});
        let outcome = |run: u32| json!({"type": "system", "subtype": "agent_outcome", "agentId": "a-1a2b3c4d5e6f7890", "run": run, "status": "completed"});
        let lines = [line("a", 1), outcome(1), line("b", 2), line("c", 2), line("d", 2), outcome(2), line("e", 3)];
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        std::fs::write(files.transcript(), text).unwrap();
        let of = |run, told: &[&str]| {
            let told = told.iter().map(|t| (*t).to_owned()).collect();
            let lines = lines_of_run(&files, run, &told).unwrap();
            lines.into_iter().map(|l| l.uuid).collect::<Vec<_>>()
        };
        assert_eq!(of(1, &[]), ["a"]);
        assert_eq!(of(2, &[]), ["b", "c", "d"]);
        assert_eq!(of(2, &["c"]), ["b", "d"]);
        assert_eq!(of(3, &["e"]), [""; 0]);
        assert_eq!(of(4, &[]), [""; 0]);
    }
}
