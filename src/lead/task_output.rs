//! Carries out `TaskOutput` (spec 2.5): the state of an agent or background shell and what it has come
//! to. Who waits does so in a task of its own and comes back to the loop when there is something to see
//! or the time is up.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::ask::{Ask, Asker};
use super::session::{Inner, Session};
use crate::core::agent::{LiveState, Meta, Outcome};
use crate::core::ids::{AgentId, ShellId};
use crate::core::limits::TOOL_OUTPUT_CHARS;
use crate::core::paths::AgentFiles;
use crate::core::text::cap;
use crate::proc::deadline;
use crate::store::reader::tail;
use crate::supervisor::SlotState;
use crate::tool::shell::Shell;
use crate::tool::{TaskOutputInput, ToolOutput, output_tail};

impl Session {
    /// Carries out one `TaskOutput` call.
    pub(super) fn task_output(&mut self, ask: Ask) {
        if let Asker::Agent(id) = &ask.asker {
            let text = format!("{id} is an agent, and agents can't look into what others do");
            return ask.answer(ToolOutput::error(text));
        }
        let TaskOutputInput { task_id, wait } = match TaskOutputInput::parse(&ask.input) {
            Ok(input) => input,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        if let Some(id) = ShellId::parse(&task_id) {
            return self.shell_output(ask, id, wait);
        }
        let id = self.supervisor.by_name(&task_id).cloned().or_else(|| AgentId::parse(&task_id));
        match id.filter(|id| self.supervisor.get(id).is_some()) {
            Some(id) => self.agent_output(ask, id, wait),
            None => ask.answer(ToolOutput::error(self.no_task(&task_id))),
        }
    }

    fn no_task(&self, text: &str) -> String {
        let agents = self.supervisor.iter().map(|(id, _)| id.to_string());
        let shells = self.shells.running().into_iter().map(|s| s.id.to_string());
        let mut known: Vec<String> = agents.chain(shells).collect();
        known.sort();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("there is no agent or background command {text:?} in this session; it has: {known}")
    }

    fn shell_output(&self, ask: Ask, id: ShellId, wait: Duration) {
        let Some(shell) = self.shells.get(&id) else {
            return ask.answer(ToolOutput::error(self.no_shell(&id)));
        };
        let shells = self.shells.clone();
        tokio::spawn(async move {
            if !waited(&ask, wait, shell.over.cancelled()).await {
                return ask.answer(ToolOutput::error("cancelled"));
            }
            let shell = shells.get(&id).unwrap_or(shell);
            let file = shell.output_file.clone();
            let output = tokio::task::spawn_blocking(move || output_tail(&file)).await;
            let output = output.map_err(std::io::Error::other).flatten();
            if shell.end.is_some() {
                shells.mark_retrieved(&id);
            }
            ask.answer(shell_answer(&shell, output));
        });
    }

    /// Also the way back from waiting, with nothing left to wait for.
    pub(super) fn agent_output(&mut self, ask: Ask, id: AgentId, wait: Duration) {
        let Some(slot) = self.supervisor.get(&id) else {
            return ask.answer(ToolOutput::error(self.no_task(id.as_str())));
        };
        let (meta, files) = (slot.meta.clone(), slot.files.clone());
        match &slot.state {
            SlotState::Live { .. } if !wait.is_zero() => {
                let (sender, ended) = oneshot::channel();
                self.watchers.entry(id.clone()).or_default().push(sender);
                let inner = self.inner.clone();
                tokio::spawn(async move {
                    let ended = async { drop(ended.await) };
                    if !waited(&ask, wait, ended).await {
                        return ask.answer(ToolOutput::error("cancelled"));
                    }
                    let _ = inner.send(Inner::Output { ask, id }).await;
                });
            }
            SlotState::Live { live, .. } => ask.answer(living(&id, &meta, &files, live.as_deref())),
            SlotState::Ended => {
                self.supervisor.mark_retrieved(&id);
                tokio::spawn(async move {
                    let path = files.transcript().to_path_buf();
                    let last = tokio::task::spawn_blocking(move || tail(&path).map(|t| t.last_outcome)).await;
                    ask.answer(match last {
                        Ok(Ok(Some(outcome))) => ended(&id, &meta, &files, &outcome),
                        Ok(Ok(None)) => ToolOutput::error(format!("{id} has ended and left no outcome")),
                        Ok(Err(error)) => ToolOutput::error(format!("what {id} came to can't be read: {error}")),
                        Err(error) => ToolOutput::error(format!("what {id} came to can't be read: {error}")),
                    });
                });
            }
        }
    }
}

/// False if the turn was cancelled meanwhile.
async fn waited(ask: &Ask, wait: Duration, end: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = ask.cancel.cancelled() => false,
        () = end => true,
        () = deadline(Some(Instant::now() + wait)) => true,
    }
}

fn shell_answer(shell: &Shell, output: std::io::Result<String>) -> ToolOutput {
    let status = shell.end.as_ref().map_or_else(|| "running".to_owned(), |end| end.status.to_string());
    let how = shell.end.as_ref().map_or("running", |end| end.how.as_str());
    let file = &shell.output_file;
    let shown = match &output {
        Ok(text) if text.trim().is_empty() => "(no output)",
        Ok(text) => text.trim_end(),
        Err(_) => "",
    };
    let mut text = format!("{}: {how}\ncommand: {}\noutput file: {}\n", shell.id, shell.command, file.display());
    match &output {
        Ok(_) => text.push_str(&format!("\n{shown}")),
        Err(error) => text.push_str(&format!("its output can't be read: {error}")),
    }
    let mut structured = answer(shell.id.as_str(), "local_bash", &status, &shell.description, file.clone());
    structured["command"] = json!(shell.command);
    structured["exitCode"] = json!(shell.end.as_ref().and_then(|end| end.exit_code));
    structured["output"] = json!(output.ok());
    ToolOutput::ok(text).with(structured)
}

fn living(id: &AgentId, meta: &Meta, files: &AgentFiles, live: Option<&LiveState>) -> ToolOutput {
    let status = live.map_or("starting", |live| live.state.as_str());
    let activity = live.and_then(|live| live.progress.activity.last());
    let doing = match (live.and_then(|live| live.waiting_for.as_ref()), activity) {
        (Some(waiting), _) => format!("waits for {waiting}"),
        (None, Some(last)) => format!("last activity: {} {}", last.tool, last.description),
        (None, None) => "it has used no tool yet".to_owned(),
    };
    let file = files.transcript().to_path_buf();
    let text = format!("{id} \"{}\": {status}\noutput file: {}\n\n{doing}", meta.description, file.display());
    let mut structured = answer(id.as_str(), "local_agent", status, &meta.description, file);
    structured["output"] = json!(doing);
    ToolOutput::ok(text).with(structured)
}

fn ended(id: &AgentId, meta: &Meta, files: &AgentFiles, outcome: &Outcome) -> ToolOutput {
    let file = files.transcript().to_path_buf();
    let result = outcome.result.as_deref().unwrap_or("It left no text.");
    let result = cap(result, TOOL_OUTPUT_CHARS, |all| {
        format!("[cut at {TOOL_OUTPUT_CHARS} of {all} characters; the whole is in {}]", file.display())
    });
    let text = format!("{id}: {}\noutput file: {}\n\n{result}", outcome.summary(&meta.description), file.display());
    let status = outcome.status.to_string();
    let mut structured = answer(id.as_str(), "local_agent", &status, &meta.description, file);
    structured["output"] = json!(outcome.result);
    structured["error"] = json!(outcome.error);
    ToolOutput::ok(text).with(structured)
}

/// What every answer tells. The fields `agentId` and `run` are not among them: they would say that a
/// run's end was told by this, and its notification still comes.
fn answer(id: &str, kind: &str, status: &str, description: &str, file: PathBuf) -> Value {
    let has_ended = ["completed", "failed", "killed"].contains(&status);
    json!({
        "task_id": id,
        "task_type": kind,
        "status": status,
        "description": description,
        "outputFile": file,
        "retrieved": has_ended,
    })
}
