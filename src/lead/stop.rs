//! Carries out `TaskStop` (spec 2.5), and stops asked for over the socket.

use serde_json::json;

use super::ask::{Ask, Asker};
use super::session::Session;
use crate::core::agent::Outcome;
use crate::core::ids::{AgentId, ShellId};
use crate::tool::ToolOutput;
use crate::tool::agents::{TaskStopInput, parse_input};

impl Session {
    /// Carries out one `TaskStop` call; answered when the agent is gone and its outcome on disk.
    pub(super) fn task_stop(&mut self, ask: Ask) {
        if let Asker::Agent(id) = &ask.asker {
            let text = format!("{id} is an agent, and agents can't stop agents");
            return ask.answer(ToolOutput::error(text));
        }
        let text = parse_input::<TaskStopInput>("TaskStop", &ask.input)
            .and_then(|input| input.task_id.or(input.shell_id).ok_or_else(|| "task_id is missing".to_owned()));
        if let Some(id) = text.as_ref().ok().and_then(|text| ShellId::parse(text.trim())) {
            return self.stop_shell_for(ask, id);
        }
        let id = match text.and_then(|text| self.running(&text)) {
            Ok(id) => id,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        let description = self.supervisor.get(&id).map(|s| s.meta.description.clone()).unwrap_or_default();
        let Some(ended) = self.stop_and_watch(&id, "stopped by TaskStop") else {
            return ask.answer(ToolOutput::error(format!("{id} has too many requests waiting; try again")));
        };
        tokio::spawn(async move {
            let output = match ended.await {
                Ok(outcome) => {
                    let message = format!("{id} ended: {}", outcome.status);
                    ToolOutput::ok(message.clone()).with(json!({
                        "message": message,
                        "task_id": id.as_str(),
                        "task_type": "local_agent",
                        "command": description,
                    }))
                }
                Err(_) => ToolOutput::error(format!("{id} was asked to stop; the session ended before it did")),
            };
            ask.answer(output);
        });
    }

    /// Starts the stop ladder; the receiver resolves with the outcome.
    pub(super) fn stop_and_watch(
        &mut self,
        id: &AgentId,
        reason: &str,
    ) -> Option<tokio::sync::oneshot::Receiver<Outcome>> {
        if !self.stop_agent(id, reason, false) {
            return None;
        }
        let (sender, ended) = tokio::sync::oneshot::channel();
        self.watchers.entry(id.clone()).or_default().push(sender);
        Some(ended)
    }

    /// The running agent of this id or name; the error says whether it is unknown or has ended.
    pub(super) fn running(&self, text: &str) -> Result<AgentId, String> {
        let id = self.supervisor.by_name(text).cloned().or_else(|| AgentId::parse(text));
        let slot = id.as_ref().and_then(|id| self.supervisor.get(id));
        match (id, slot) {
            (Some(id), Some(slot)) if slot.is_live() => Ok(id),
            (Some(id), Some(_)) => Err(format!("{id} has ended already; there is nothing to stop")),
            _ => {
                let running: Vec<String> = self.agents_in_words().into_iter().map(|(called, _)| called).collect();
                let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
                Err(format!("there is no agent {text:?} in this session; running: {running}"))
            }
        }
    }
}
