//! Puts an agent's tools together: the pool's names become tools, and the port through which tools
//! that concern other agents reach the main loop.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::agent::Toolbox;
use crate::core::env;
use crate::core::frame::AgentConfig;
use crate::core::knowledge::Skill;
use crate::core::provider::Proxy;
use crate::permission::SharedPolicy;
use crate::settings::definitions::{Definition, builtin};
use crate::tool::agents::{AgentTool, SendMessageTool, TaskStopTool};
use crate::tool::tasks::TaskTool;
use crate::tool::{
    AgentPort, Background, Bash, BoxFuture, Edit, ExitPlanMode, Glob, Grep, HidePath, NotebookEdit, Read, SkillTool,
    TaskOutputTool, TeamTool, TodoWrite, Tool, ToolOutput, WebFetch, Write,
};

/// A call that the main loop carries out or passes on.
pub struct PortCall {
    /// `Agent`, `SendMessage`, `TaskOutput`, a tool of the task board, …
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

/// What tools are made with.
pub struct Equipment<'a> {
    /// Searches leave out what it denies reading.
    pub policy: &'a SharedPolicy,
    /// Whether commands may run in the background.
    pub background: Background,
    /// The way to web pages.
    pub proxy: &'a Proxy,
    /// The skills there are.
    pub skills: &'a [Skill],
    /// The model with provider prefix: not each provider searches the web.
    pub model: &'a str,
}

/// Tells which files `policy` denies reading.
pub fn hidden(policy: &SharedPolicy) -> HidePath {
    let policy = policy.clone();
    Arc::new(move |path| policy.get().denies_reading(path))
}

/// The tools of `pool`, in its order; `agent_tool` is how `Agent` is offered, where it is.
pub fn toolbox(pool: &[String], equipment: &Equipment<'_>, agent_tool: impl Fn() -> AgentTool) -> Toolbox {
    let hides = || hidden(equipment.policy);
    // Who works at a board is, or can be, in a team; a lead without one in coordinator mode still sends.
    let in_team = pool.iter().any(|name| ["Agent", "TaskCreate", "TaskUpdate"].contains(&name.as_str()));
    let tools = pool.iter().filter_map(|name| -> Option<Arc<dyn Tool>> {
        Some(match name.as_str() {
            "Read" => Arc::new(Read),
            "Glob" => Arc::new(Glob::hiding(hides())),
            "Grep" => Arc::new(Grep::hiding(hides())),
            "Bash" => Arc::new(Bash(equipment.background)),
            "Agent" => Arc::new(agent_tool()),
            "SendMessage" if in_team => Arc::new(SendMessageTool::ToMembers),
            "SendMessage" => Arc::new(SendMessageTool::ToAgents),
            "TaskCreate" => Arc::new(TaskTool::Create),
            "TaskGet" => Arc::new(TaskTool::Get),
            "TaskList" => Arc::new(TaskTool::List),
            "TaskUpdate" => Arc::new(TaskTool::Update),
            "TeamCreate" => Arc::new(TeamTool::Create),
            "TeamDelete" => Arc::new(TeamTool::Delete),
            "ExitPlanMode" => Arc::new(ExitPlanMode::new(equipment.policy)),
            "TaskStop" => Arc::new(TaskStopTool),
            "TaskOutput" => Arc::new(TaskOutputTool),
            "Edit" => Arc::new(Edit),
            "Write" => Arc::new(Write),
            "NotebookEdit" => Arc::new(NotebookEdit),
            "TodoWrite" => Arc::new(TodoWrite),
            "WebFetch" => Arc::new(WebFetch::new(equipment.proxy.clone())),
            "Skill" => Arc::new(SkillTool::new(equipment.skills)?),
            _ => return None,
        })
    });
    let toolbox = Toolbox::new(tools.collect());
    let searches = equipment.model.starts_with("anthropic:") && pool.iter().any(|name| name == "WebSearch");
    if searches { toolbox.with_web_search() } else { toolbox }
}

/// The types of agents that a member can start.
pub fn agent_types() -> Vec<Definition> {
    let disabled = std::env::var(env::DISABLE_BUILTIN_AGENTS).is_ok_and(|value| env::truthy(&value));
    builtin(false, disabled)
}

/// The tools of an agent.
pub(super) fn agent_toolbox(config: &AgentConfig, policy: &SharedPolicy, proxy: &Proxy) -> Toolbox {
    let equipment = Equipment {
        policy,
        background: if config.background_shells { Background::Offered } else { Background::Disabled },
        proxy,
        skills: &config.knowledge.skills,
        model: &config.model,
    };
    let now = policy.get();
    let offered = agent_types().into_iter().filter(|d| now.denies_agent_type(&d.name).is_none());
    let types: Vec<(String, String)> = offered.map(|d| (d.name, d.description)).collect();
    let agent_tool =
        || AgentTool { types: types.clone(), always_background: false, background_allowed: false, teammates: false };
    toolbox(&config.pool, &equipment, agent_tool)
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
    vars.extend(own.iter().chain(&env::UNATTENDED).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    vars
}
