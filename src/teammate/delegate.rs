//! Agents that a member starts: plain ones in the foreground, whose answer is the result of the call
//! (spec 1.2). What they ask for goes to the member's lead as a question of the member's own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::member::{Done, Teammate};
use crate::core::agent::{Meta, Outcome, Owner};
use crate::core::clock;
use crate::core::frame::{AgentConfig, Prompt, SetPermissions, Telling};
use crate::core::ids::AgentId;
use crate::core::limits::{self, PROMPT_BYTES, deadlines};
use crate::core::paths::{ConfigDir, SessionFiles};
use crate::endpoint::{PortCall, agent_types};
use crate::permission::{Mode, child_mode};
use crate::settings::definitions::{Definition, default_type, find};
use crate::supervisor::{
    Command, Continued, Given, LaunchError, Launcher, ReadyReceiver, Supervisor, SupervisorEvent, SupervisorParts,
    foreground_answer,
};
use crate::tool::agents::{AgentInput, parse_input};
use crate::tool::pool::{Restriction, Role, pool};
use crate::tool::{TOOLS, ToolOutput};

/// How long an agent of a member may say nothing before that is logged.
const STALL_AFTER: Duration = Duration::from_secs(300);

/// The agents of a member, and who waits for their answers.
pub(super) struct Agents {
    supervisor: Supervisor,
    pub(super) events: mpsc::Receiver<SupervisorEvent>,
    waiting: HashMap<AgentId, oneshot::Sender<Outcome>>,
}

/// What the next of a member's agents says; with none, never. Can be dropped and asked again.
pub(super) async fn said(agents: &mut Option<Agents>) -> SupervisorEvent {
    match agents {
        Some(agents) => match agents.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Teammate {
    /// Carries out `Agent`.
    pub(super) fn delegate(&mut self, call: PortCall) {
        let planned = parse_input::<AgentInput>("Agent", &call.input).and_then(|input| self.plan(input));
        let (definition, input) = match planned {
            Ok(planned) => planned,
            Err(refusal) => return answer(call, ToolOutput::error(refusal)),
        };
        match self.start(&definition, &input, &call.tool_use_id) {
            Ok((meta, id, ready, outcome)) => {
                let files = SessionFiles::of(&self.agent.config.transcript).agent(&id);
                let done = self.done.clone();
                tokio::spawn(async move {
                    let output = match ready.await {
                        Ok(Ok(_)) => match ended(outcome, &call.cancel, &id, &done).await {
                            Some(outcome) => foreground_answer(&meta, &files, &input.prompt, &outcome, Continued::No),
                            None => ToolOutput::error("the agent was lost: this member is ending"),
                        },
                        Ok(Err(error)) => ToolOutput::error(format!("the agent was not started: {error}")),
                        Err(_) => ToolOutput::error("the agent was not started: this member is ending"),
                    };
                    answer(call, output);
                });
            }
            Err(refusal) => answer(call, ToolOutput::error(refusal)),
        }
    }

    fn plan(&self, input: AgentInput) -> Result<(Definition, AgentInput), String> {
        for (given, what) in [
            (input.name.is_some(), "give agents names; yours answers this call and is gone"),
            (input.team_name.is_some(), "add members to the team; ask the lead to"),
            (input.run_in_background == Some(true), "start agents in the background; its answer is this call's result"),
            (input.isolation.is_some(), "isolate agents; it works where you do"),
            (input.mode.is_some(), "choose an agent's mode; it follows from yours"),
            (input.model.is_some(), "choose an agent's model; it is yours"),
        ] {
            if given {
                return Err(format!("a member of a team can't {what}. Leave it out"));
            }
        }
        if input.prompt.trim().is_empty() {
            return Err("the prompt is empty; the agent sees nothing else, so write the whole task into it".to_owned());
        }
        if input.prompt.len() > PROMPT_BYTES {
            return Err(format!("the prompt has {} bytes, the limit is {PROMPT_BYTES}", input.prompt.len()));
        }
        let wanted = input.subagent_type.as_deref().unwrap_or_else(|| default_type(false));
        if wanted == "fork" {
            return Err("a member of a team can't fork; name one of the types on offer".to_owned());
        }
        let definition = find(&agent_types(), wanted).map_err(|e| e.to_string())?.clone();
        if let Some(rule) = self.agent.policy().get().denies_agent_type(&definition.name) {
            let (name, rule, source) = (&definition.name, &rule.rule, &rule.source);
            return Err(format!("agents of type {name:?} are denied by rule {rule} ({source})"));
        }
        Ok((definition, input))
    }

    fn start(
        &mut self,
        definition: &Definition,
        input: &AgentInput,
        tool_use_id: &str,
    ) -> Result<(Meta, AgentId, ReadyReceiver, oneshot::Receiver<Outcome>), String> {
        let id = AgentId::random();
        let mut config = self.config_of(definition, input, &id)?;
        let meta = Meta {
            agent_type: config.agent_type.clone(),
            description: config.description.clone(),
            name: None,
            tool_use_id: Some(tool_use_id.to_owned()),
            parent_id: Some(self.agent.config.id.as_str().to_owned()),
            spawn_depth: 2,
            session_id: self.me.session.as_str().to_owned(),
            model: Some(config.model.clone()),
            permission_mode: Some(config.permission_mode.clone()),
            asked_mode: None,
            pool: Some(config.pool.clone()),
            cwd: Some(config.cwd.to_string_lossy().into_owned()),
            worktree_path: None,
            worktree_branch: None,
            origin: None,
            prefix_hash: None,
            detached: false,
            max_turns: config.max_turns,
            created_at: clock::now_ms(),
        };
        if self.agents.is_none() {
            self.agents = Some(self.no_agents().map_err(|e| format!("the agent was not started: {e}"))?);
        }
        let Some(agents) = &mut self.agents else { return Err("the agent was not started".to_owned()) };
        agents.supervisor.check_room(true)?;
        config.transcript = agents.supervisor.files_of(&id).transcript().to_path_buf();
        let prompt =
            Prompt { text: input.prompt.clone(), msg_id: None, from: meta.parent_id.clone().unwrap_or_default() };
        let ready = agents
            .supervisor
            .spawn(meta.clone(), config, prompt)
            .map_err(|error| format!("the agent was not started: {error}"))?;
        let (sender, outcome) = oneshot::channel();
        agents.waiting.insert(id.clone(), sender);
        Ok((meta, id, ready, outcome))
    }

    /// What an agent is told of itself: the member's own place and limits, and never more than it may.
    fn config_of(&self, definition: &Definition, input: &AgentInput, id: &AgentId) -> Result<AgentConfig, String> {
        let own = &self.agent.config;
        let cwd = match &input.cwd {
            None => own.cwd.clone(),
            Some(folder) => {
                let folder = own.cwd.join(folder);
                let found = folder.canonicalize().ok().filter(|folder| folder.is_dir());
                found.ok_or_else(|| format!("cwd {} is not a folder that exists", folder.display()))?
            }
        };
        let restriction = Restriction { tools: definition.tools.as_deref(), disallowed: &definition.disallowed_tools };
        let mut tools = pool(Role::SyncWorker, restriction, &TOOLS);
        let policy = self.agent.policy().get();
        tools.retain(|tool| policy.denies_tool(tool).is_none());
        let said = definition.permission_mode.as_deref().and_then(|word| Mode::parse(word).ok());
        let mut config = own.clone();
        config.id = id.clone();
        config.run = 1;
        config.session = self.me.session.clone();
        config.agent_type.clone_from(&definition.name);
        config.description.clone_from(&input.description);
        config.name = None;
        config.system_prompt = prompt_of(&definition.system_prompt, &cwd, &self.me.agents_prompt);
        config.pool = tools;
        config.permission_mode = child_mode(self.agent.mode(), said, None).as_str().to_owned();
        config.permissions = self.agent.rules().clone();
        config.read_only_bash = definition.read_only_bash;
        config.cwd = cwd;
        config.place.cwd = config.cwd.to_string_lossy().into_owned();
        config.place.team_name = None;
        config.place.agent_name = None;
        config.max_turns = definition.max_turns;
        config.membership = None;
        Ok(config)
    }

    fn no_agents(&self) -> Result<Agents, LaunchError> {
        let config = &self.agent.config;
        let (sender, events) = mpsc::channel(limits::LOOP_EVENTS);
        let given = Given {
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            secrets: self.agent.given.secrets.clone(),
            access: self.agent.given.access.clone(),
            telling: Telling::Nothing,
            owner: Owner::Lead,
        };
        let (max_alive, max_total) = self.me.max_agents;
        let supervisor = Supervisor::new(SupervisorParts {
            launcher: Launcher::find(given)?,
            config_dir: ConfigDir::new(&config.config_dir),
            session: self.me.session.clone(),
            session_files: SessionFiles::of(&config.transcript),
            runtime: self.runtime.clone(),
            stall_after: STALL_AFTER,
            max_alive,
            max_total,
            events: sender,
        });
        Ok(Agents { supervisor, events, waiting: HashMap::new() })
    }

    /// One of its agents says something.
    pub(super) fn on_agents(&mut self, event: SupervisorEvent) {
        let Some(agents) = &mut self.agents else { return };
        agents.supervisor.note(&event);
        match event {
            SupervisorEvent::Ended { id, outcome } => {
                if let Some(waiting) = agents.waiting.remove(&id) {
                    let _ = waiting.send(*outcome);
                }
            }
            SupervisorEvent::NotStarted { id, .. } | SupervisorEvent::LetGo { id } => {
                agents.waiting.remove(&id);
            }
            SupervisorEvent::Permission { question, reply, .. } => self.agent.ask_for(question, reply),
            SupervisorEvent::Call { tool, tool_use_id, input, reply, .. } if tool == "SendMessage" => {
                self.on_call(PortCall { tool, tool_use_id, input, cancel: CancellationToken::new(), reply });
            }
            SupervisorEvent::Call { tool, reply, .. } => {
                let _ = reply.send(ToolOutput::error(format!("{tool} is not among your tools")));
            }
            SupervisorEvent::Stalled { id, silent } => {
                tracing::warn!(%id, "the agent has said nothing for {silent:?}");
            }
            SupervisorEvent::Ready { .. }
            | SupervisorEvent::State { .. }
            | SupervisorEvent::Line { .. }
            | SupervisorEvent::Doing { .. }
            | SupervisorEvent::Protocol { .. } => {}
        }
    }

    /// Stops one of its agents.
    pub(super) fn stop_agent(&self, id: &AgentId, reason: &str) {
        if let Some(agents) = &self.agents {
            // One that has ended takes no commands, and needs none.
            let _ = agents.supervisor.command(id, Command::Stop { reason: reason.to_owned(), kill: false });
        }
    }

    /// Its agents obey new rules, too, and never have more than it has.
    pub(super) fn hand_on(&self, said: &SetPermissions) {
        let Some(agents) = &self.agents else { return };
        let mode = child_mode(self.agent.mode(), None, None).as_str().to_owned();
        let said = Arc::new(SetPermissions { mode: Some(mode), rules: said.rules.clone(), narrows: false });
        for id in agents.supervisor.live() {
            let _ = agents.supervisor.command(&id, Command::SetPermissions(Arc::clone(&said)));
        }
    }

    /// Ends the agents it started; they do not outlive it.
    pub(super) async fn end_agents(&mut self) {
        let Some(agents) = &mut self.agents else { return };
        for id in agents.supervisor.live() {
            let reason = "the member that started it ended".to_owned();
            let _ = agents.supervisor.command(&id, Command::Stop { reason, kill: false });
        }
        let gone = async {
            while agents.supervisor.any_live() {
                let Some(event) = agents.events.recv().await else { return };
                agents.supervisor.note(&event);
            }
        };
        if tokio::time::timeout(deadlines().stop_ask, gone).await.is_err() {
            tracing::warn!("agents of this member still run; they end with their answers");
        }
    }
}

fn prompt_of(definition: &str, cwd: &Path, rest: &str) -> String {
    format!("{definition}\n\nWorking folder: {}\n{rest}", cwd.display())
}

/// The outcome of an agent; when its call is cancelled it is stopped, and waited for.
async fn ended(
    mut outcome: oneshot::Receiver<Outcome>,
    cancel: &CancellationToken,
    id: &AgentId,
    done: &mpsc::Sender<Done>,
) -> Option<Outcome> {
    tokio::select! {
        ended = &mut outcome => ended.ok(),
        () = cancel.cancelled() => {
            let _ = done.send(Done::Unwanted(id.clone())).await;
            outcome.await.ok()
        }
    }
}

fn answer(call: PortCall, output: ToolOutput) {
    let _ = call.reply.send(output);
}
