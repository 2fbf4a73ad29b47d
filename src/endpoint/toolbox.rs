//! Puts an agent's tools together: the pool's names become tools, and the port through which tools
//! that concern other agents reach the main loop.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::agent::Toolbox;
use crate::core::env;
use crate::permission::Policy;
use crate::tool::agents::{AgentTool, SendMessageTool, TaskStopTool};
use crate::tool::{AgentPort, Bash, BoxFuture, Glob, Grep, HidePath, Read, Tool, ToolOutput};

/// A call that the main loop carries out or passes on.
pub struct PortCall {
    /// `Agent`, `SendMessage` or `TaskStop`.
    pub tool: String,
    /// The call's id.
    pub tool_use_id: String,
    /// Its input.
    pub input: Value,
    /// Fires when the turn is cancelled.
    pub cancel: CancellationToken,
    /// Takes the answer.
    pub reply: oneshot::Sender<ToolOutput>,
}

/// An [`AgentPort`] that queues calls for the main loop.
pub struct QueuePort(pub mpsc::Sender<PortCall>);

impl AgentPort for QueuePort {
    fn call<'a>(
        &'a self,
        tool: &'static str,
        tool_use_id: &'a str,
        input: &'a Value,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let call = PortCall {
                tool: tool.to_owned(),
                tool_use_id: tool_use_id.to_owned(),
                input: input.clone(),
                cancel: cancel.clone(),
                reply,
            };
            if self.0.send(call).await.is_err() {
                return ToolOutput::error(format!("{tool} can't be carried out: this process is ending"));
            }
            answer
                .await
                .unwrap_or_else(|_| ToolOutput::error(format!("{tool} was not carried out: this process is ending")))
        })
    }
}

/// The tools of `pool`, in its order. Searches leave out what `policy` denies reading; `agent_tool`
/// is how `Agent` is offered, where it is.
pub fn toolbox(pool: &[String], policy: &Policy, agent_tool: impl Fn() -> AgentTool) -> Toolbox {
    let hides = || -> HidePath {
        let policy = policy.clone();
        Arc::new(move |path| policy.denies_reading(path))
    };
    let tools = pool.iter().filter_map(|name| -> Option<Arc<dyn Tool>> {
        Some(match name.as_str() {
            "Read" => Arc::new(Read),
            "Glob" => Arc::new(Glob::hiding(hides())),
            "Grep" => Arc::new(Grep::hiding(hides())),
            "Bash" => Arc::new(Bash),
            "Agent" => Arc::new(agent_tool()),
            "SendMessage" => Arc::new(SendMessageTool),
            "TaskStop" => Arc::new(TaskStopTool),
            _ => return None,
        })
    });
    Toolbox::new(tools.collect())
}

/// Variables of an agent's tools: what its own environment lacks, and who it is (spec 9.2).
pub fn tool_environment(
    secrets: &[(String, String)],
    session: &str,
    agent: &str,
    runtime: &str,
    socket: &str,
) -> env::Vars {
    let mut vars = secrets.to_vec();
    let own = [
        (env::CLAUDECODE, "1"),
        (env::SESSION_ID, session),
        (env::AGENT_ID, agent),
        (env::RUN, runtime),
        (env::SOCKET, socket),
    ];
    vars.extend(own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    vars
}
