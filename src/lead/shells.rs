//! The main conversation's background shells: each end is told once, and all of them end with the
//! session. What ended with an earlier life of it is told at resume (spec 2.2).

use serde_json::json;

use super::ask::Ask;
use super::queue::Priority;
use super::session::Session;
use super::told::Told;
use crate::agent::{lost_end, lost_shell_notification, shell_notification};
use crate::core::ids::{AgentId, ShellId};
use crate::core::shell::OpenShell;
use crate::supervisor::SlotState;
use crate::tool::ToolOutput;
use crate::tool::shell::{ShellEvent, ShellNews, StopRefused};

impl Session {
    pub(super) fn on_shell(&mut self, event: &ShellEvent) {
        self.last_event = std::time::Instant::now();
        self.dirty = true;
        match event.news {
            ShellNews::Started => {
                if let Some(shell) = self.shells.get(&event.id) {
                    self.say(&format!("background command {} \"{}\" started", shell.id, shell.description));
                    self.teller.tell(Told::ShellStarted(&shell));
                }
            }
            ShellNews::Ended => {
                let Some((shell, end)) = self.shells.take_end(&event.id) else { return };
                self.say(&format!("background command {} \"{}\" {}", shell.id, shell.description, end.how));
                self.teller.tell(Told::ShellEnded(&shell, &end));
                // In a session that ends no turn takes it any more; the next life tells of it then.
                self.queue.push(Priority::Later, shell_notification(&shell, &end));
            }
        }
    }

    /// Shells that an earlier life of this session started and did not report.
    pub(super) fn bring_back_shells(&mut self, open: &[OpenShell]) {
        for open in open {
            let end = lost_end();
            self.shells.insert_lost(open, end.clone());
            if let Some(shell) = self.shells.get(&open.id).filter(|_| self.teller.is_heard()) {
                self.teller.tell(Told::ShellEnded(&shell, &end));
            }
            self.queue.push(Priority::Later, lost_shell_notification(open));
        }
    }

    /// Ends what runs in the background; it is named in the result.
    pub(super) fn end_shells(&mut self, reason: &str) {
        let stopped = self.shells.stop_all(reason);
        self.leftovers.extend(stopped);
    }

    /// Carries out `TaskStop` of a background shell; answered when it has ended.
    pub(super) fn stop_shell_for(&self, ask: Ask, id: ShellId) {
        let over = match self.shells.stop(&id, "stopped by TaskStop") {
            Ok(over) => over,
            Err(StopRefused::Ended(status)) => {
                let text = format!("{id} has ended already ({status}); there is nothing to stop");
                return ask.answer(ToolOutput::error(text));
            }
            Err(StopRefused::Unknown) => return ask.answer(ToolOutput::error(self.no_shell(&id))),
        };
        let shells = self.shells.clone();
        tokio::spawn(async move {
            over.cancelled().await;
            let Some(shell) = shells.get(&id) else { return };
            let how = shell.end.map(|end| end.how).unwrap_or_default();
            let message = format!("{id} ended: {how}");
            ask.answer(ToolOutput::ok(message.clone()).with(json!({
                "message": message,
                "task_id": id.as_str(),
                "task_type": "local_bash",
                "command": shell.command,
            })));
        });
    }

    /// Why there is nothing to be done with this shell, in words for the model.
    pub(super) fn no_shell(&self, id: &ShellId) -> String {
        if let Some(agent) = self.agent_of_shell(id) {
            return format!("{id} belongs to agent {agent} and ends with it; only that agent is told of it");
        }
        let file = self.files.tool_results().join(format!("{id}.output"));
        if file.exists() {
            let file = file.display();
            return format!("{id} is of an earlier life of this session or of an agent, and has ended; see {file}");
        }
        let running: Vec<String> = self.shells.running().into_iter().map(|s| s.id.to_string()).collect();
        let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        format!("there is no background command {id} in this session; running: {running}")
    }

    /// The living agent that runs this shell.
    fn agent_of_shell(&self, id: &ShellId) -> Option<&AgentId> {
        let runs = |state: &SlotState| match state {
            SlotState::Live { live: Some(live), .. } => live.shells.iter().any(|shell| shell.id == *id),
            _ => false,
        };
        self.supervisor.iter().find(|(_, slot)| runs(&slot.state)).map(|(agent, _)| agent)
    }
}
