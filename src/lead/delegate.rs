//! Carries out `Agent`: decides by [`super::route`], starts the agent, and answers when it is ready
//! (background) or done (foreground).

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::ask::{Ask, Asker};
use super::person::reachable;
use super::roles::{BACKGROUND_NOTE, agent_prompt, background_disabled, definitions, simple, variable};
use super::route::{self, Plan, Route};
use super::session::{Inner, Session};
use super::told::Task;
use crate::core::agent::{Meta, Outcome};
use crate::core::clock;
use crate::core::env;
use crate::core::fault::{self, Fault};
use crate::core::frame::{AgentConfig, Prompt};
use crate::core::ids::AgentId;
use crate::core::paths::AgentFiles;
use crate::permission::{Mode, child_mode};
use crate::proc::deadline;
use crate::settings::AcceptCrossSession;
use crate::supervisor::{Command, Continued, ReadyReceiver, SlotState, foreground_answer};
use crate::tool::agents::{AgentInput, parse_input};
use crate::tool::pool::{Restriction, pool};
use crate::tool::{TOOLS, ToolOutput};

/// Everything the answer of a call needs once the agent is under way.
struct Launch {
    id: AgentId,
    meta: Meta,
    files: AgentFiles,
    route: Route,
    prompt: String,
    /// When a foreground agent moves to the background by itself.
    auto_background: Option<Duration>,
}

impl Session {
    /// Carries out one `Agent` call.
    pub(super) fn delegate(&mut self, ask: Ask) {
        if let Asker::Agent(id) = &ask.asker {
            let text = format!("{id} is an agent, and agents can't start agents; do the work yourself");
            return ask.answer(ToolOutput::error(text));
        }
        // A retried request finds what the first one started (R054).
        if let Some(id) = self.supervisor.by_tool_use(&ask.tool_use_id).cloned() {
            let (meta, files) = match self.supervisor.get(&id) {
                Some(slot) => (slot.meta.clone(), slot.files.clone()),
                None => return ask.answer(ToolOutput::error("the agent of this call is gone")),
            };
            return ask.answer(launched_output(&id, &meta, &files, ""));
        }
        if self.is_for_team(&ask.input) {
            return self.add_member(ask);
        }
        let planned = parse_input::<AgentInput>("Agent", &ask.input)
            .and_then(|input| self.plan(input))
            .and_then(|plan| self.supervisor.check_room(true).map(|()| plan));
        match planned {
            Err(refusal) => ask.answer(ToolOutput::error(refusal)),
            Ok(plan) => self.start_agent(ask, plan),
        }
    }

    pub(super) fn plan(&self, input: AgentInput) -> Result<Plan, String> {
        let definitions = definitions(&self.options, self.coordinator);
        let taken = |name: &str| {
            let id = self.supervisor.by_name(name)?;
            self.supervisor.get(id).filter(|s| s.is_live()).map(|_| id.as_str().to_owned())
        };
        let policy = self.policy.get();
        let context = route::Context {
            coordinator: self.coordinator,
            simple: simple(&self.options),
            background_disabled: background_disabled(&self.options),
            definitions: &definitions,
            policy: &policy,
            model: &self.options.model,
            models: &self.options.models,
            model_variable: variable(&self.options, env::SUBAGENT_MODEL),
            cwd: &self.options.cwd,
            name_taken: &taken,
        };
        route::plan(input, &context)
    }

    pub(super) fn start_agent(&mut self, ask: Ask, plan: Plan) {
        let id = AgentId::random();
        let files = self.supervisor.files_of(&id);
        let definition = &plan.definition;
        let mut tools = pool(
            plan.role,
            Restriction { tools: definition.tools.as_deref(), disallowed: &definition.disallowed_tools },
            &TOOLS,
        );
        let policy = self.policy.get();
        tools.retain(|tool| policy.denies_tool(tool).is_none());
        tools.retain(|tool| plan.bounds.tools.as_ref().is_none_or(|only| only.contains(tool)));
        let mode = child_mode(
            self.options.mode,
            definition.permission_mode.as_deref().and_then(|m| Mode::parse(m).ok()),
            None,
        );
        let meta = Meta {
            agent_type: definition.name.clone(),
            description: plan.description.clone(),
            name: plan.name.clone(),
            tool_use_id: Some(ask.tool_use_id.clone()),
            parent_id: Some(self.id.as_str().to_owned()),
            spawn_depth: 1,
            session_id: self.id.as_str().to_owned(),
            model: Some(plan.model.to_string()),
            permission_mode: Some(mode.as_str().to_owned()),
            asked_mode: None,
            pool: Some(tools),
            cwd: Some(plan.cwd.to_string_lossy().into_owned()),
            worktree_path: None,
            worktree_branch: None,
            origin: None,
            prefix_hash: None,
            detached: ask.asker == Asker::Person,
            max_turns: plan.bounds.max_turns,
            created_at: clock::now_ms(),
        };
        let config = match self.agent_config(&id, &meta, &files, 1) {
            Ok(config) => config,
            Err(reason) => return ask.answer(ToolOutput::error(reason)),
        };
        if meta.detached
            && let Err(error) = self.note_spawn(&id, &meta, &files, &plan.prompt)
        {
            self.note_not_started(&id, &meta);
            return ask.answer(ToolOutput::error(format!("the session can't write the start down: {error}")));
        }
        let prompt = Prompt { text: plan.prompt.clone(), msg_id: None, from: ask.asker.label(&self.id) };
        let ready = match self.supervisor.spawn(meta.clone(), config, prompt) {
            Ok(ready) => ready,
            Err(error) => {
                self.note_not_started(&id, &meta);
                return ask.answer(ToolOutput::error(format!("the agent was not started: {error}")));
            }
        };
        self.say(&format!("agent {id} \"{}\" started ({})", plan.description, meta.agent_type));
        if !meta.detached {
            self.owed.started(&id);
        }
        let task = Task { id: &id, meta: &meta, files: &files };
        self.teller.started(task, Some(&plan.prompt), plan.route != Route::Sync);
        let outcome = (plan.route == Route::Sync).then(|| {
            let (sender, receiver) = oneshot::channel();
            self.foreground.insert(id.clone(), sender);
            receiver
        });
        let auto_background =
            self.options.settings.lead.auto_background.filter(|_| !background_disabled(&self.options));
        let launch = Launch { id, meta, files, route: plan.route, prompt: plan.prompt, auto_background };
        tokio::spawn(answer_launch(ask, launch, ready, outcome, self.inner.clone()));
    }

    /// What an agent's process is told of itself. `meta` decides on a resume, so that an agent never
    /// has more than it had; the lead's own mode caps it where that is narrower by now.
    pub(super) fn agent_config(
        &self,
        id: &AgentId,
        meta: &Meta,
        files: &AgentFiles,
        run: u32,
    ) -> Result<AgentConfig, String> {
        self.config_with(id, meta, files, run, str::to_owned)
    }

    /// The same; `prompt_of` makes the beginning of its prompt from that of its type.
    pub(super) fn config_with(
        &self,
        id: &AgentId,
        meta: &Meta,
        files: &AgentFiles,
        run: u32,
        prompt_of: impl FnOnce(&str) -> String,
    ) -> Result<AgentConfig, String> {
        let pool = meta.pool.clone().ok_or_else(|| {
            format!(
                "{id} can't be continued: its launch facts do not say which tools it had ({})",
                files.meta().display()
            )
        })?;
        let known = definitions(&self.options, self.coordinator);
        let definition = known.iter().find(|d| d.name == meta.agent_type);
        let general = known.iter().find(|d| d.name == "general-purpose");
        let cwd = meta.cwd.clone().map_or_else(|| self.options.cwd.clone(), Into::into);
        if !cwd.is_dir() {
            return Err(format!(
                "its working folder {} is gone; make it again, or start a new agent in {}",
                cwd.display(),
                self.options.cwd.display()
            ));
        }
        let recorded = meta.permission_mode.as_deref().and_then(|m| Mode::parse(m).ok());
        let prompt = definition.or(general).map_or("", |d| d.system_prompt.as_str());
        let knowledge = self.known.of_agent(definition.is_some_and(|d| d.one_shot));
        let lead = &self.options.settings.lead;
        let resolved = meta.model.as_deref().and_then(|m| self.options.models.resolve(m).ok());
        let model = resolved.as_ref().unwrap_or(&self.options.model);
        let background_shells = !background_disabled(&self.options);
        let mut system_prompt = agent_prompt(&prompt_of(prompt), &cwd, self.scratchpad.as_deref());
        if background_shells && pool.iter().any(|tool| tool == "Bash") {
            system_prompt.push_str(BACKGROUND_NOTE);
        }
        Ok(AgentConfig {
            id: id.clone(),
            run,
            session: self.id.clone(),
            agent_type: meta.agent_type.clone(),
            description: meta.description.clone(),
            name: meta.name.clone(),
            model: meta.model.clone().unwrap_or_else(|| self.options.model.to_string()),
            max_tokens: model.max_tokens,
            context_window: model.window,
            system_prompt: system_prompt + &self.known.prompt(&knowledge, &pool),
            pool,
            permission_mode: child_mode(self.options.mode, recorded, None).as_str().to_owned(),
            permissions: self.options.rules.clone(),
            read_only_bash: definition.is_some_and(|d| d.read_only_bash),
            cwd,
            config_dir: self.options.config_dir.root().to_path_buf(),
            runtime_dir: self.options.runtime_dir.clone(),
            transcript: files.transcript().to_path_buf(),
            place: self.place.clone(),
            scratchpad: self.scratchpad.clone(),
            max_turns: meta.max_turns.or_else(|| definition.and_then(|d| d.max_turns)),
            background_shells,
            // Shorter than this session's own: an agent ends its shells itself before it is stopped
            // because it waits for them.
            background_wait_ms: u64::try_from((lead.background_wait * 9 / 10).as_millis()).unwrap_or(u64::MAX),
            accept_cross_session: lead.accept_cross_session != AcceptCrossSession::Off,
            detached: meta.detached,
            permission_timeout_ms: u64::try_from(lead.permission_timeout.as_millis()).unwrap_or(u64::MAX),
            durability: lead.durability.as_str().to_owned(),
            knowledge,
            membership: None,
            hooks: self.options.settings.hooks.clone(),
        })
    }

    /// Continues an agent that has ended, with a message as its next prompt. The error is in words.
    pub(super) fn resume_agent(&mut self, id: &AgentId, prompt: Prompt) -> Result<ReadyReceiver, String> {
        self.supervisor.check_room(false)?;
        let (meta, files) = match self.supervisor.get(id) {
            Some(slot) => (slot.meta.clone(), slot.files.clone()),
            None => return Err(format!("there is no agent {id} in this session")),
        };
        let run = self.supervisor.next_run(id).map_err(|e| format!("{id} can't be continued: {e}"))?;
        let config = self.agent_config(id, &meta, &files, run)?;
        let text = prompt.text.clone();
        let ready = self.supervisor.resume(id, config, prompt);
        let ready = ready.ok_or_else(|| format!("there is no agent {id} in this session"))?;
        self.owed.started(id);
        self.teller.started(Task { id, meta: &meta, files: &files }, Some(&text), true);
        Ok(ready)
    }
}

async fn answer_launch(
    ask: Ask,
    launch: Launch,
    ready: ReadyReceiver,
    outcome: Option<oneshot::Receiver<Outcome>>,
    inner: mpsc::Sender<Inner>,
) {
    let launched = match ready.await {
        Ok(Ok(launched)) => launched,
        Ok(Err(error)) => return ask.answer(ToolOutput::error(format!("the agent was not started: {error}"))),
        Err(_) => return ask.answer(ToolOutput::error("the agent was not started: the session is ending")),
    };
    fault::point(Fault::ReadyBeforeLaunched);
    let Some(mut outcome) = outcome.filter(|_| launch.route == Route::Sync) else {
        let output = launched_output(&launch.id, &launch.meta, &launch.files, &launch.prompt);
        return ask.answer(if launch.meta.detached { reachable(output, &launched) } else { output });
    };
    let ended = tokio::select! {
        ended = &mut outcome => ended,
        () = ask.cancel.cancelled() => {
            let stop = Inner::Stop { id: launch.id.clone(), reason: "the turn was cancelled".to_owned() };
            let _ = inner.send(stop).await;
            outcome.await
        }
        () = deadline(launch.auto_background.map(|pause| Instant::now() + pause)) => {
            let _ = inner.send(Inner::Background { id: launch.id.clone() }).await;
            outcome.await
        }
    };
    ask.answer(match ended {
        Ok(outcome) => {
            foreground_answer(&launch.meta, &launch.files, &launch.prompt, &outcome, Continued::BySendMessage)
        }
        // The loop let go of the wait: the agent goes on in the background.
        Err(_) => launched_output(&launch.id, &launch.meta, &launch.files, &launch.prompt),
    });
}

pub(super) fn launched_output(id: &AgentId, meta: &Meta, files: &AgentFiles, prompt: &str) -> ToolOutput {
    let file = files.transcript().to_string_lossy();
    ToolOutput::ok(format!(
        "Agent started in the background.\nagentId: {id}\noutput file: {file}\n\
It reports with a <task-notification> when it is done; SendMessage with to: \"{id}\" reaches it until then."
    ))
    .with(json!({
        "isAsync": true,
        "status": "async_launched",
        "agentId": id.as_str(),
        "description": meta.description,
        "resolvedModel": meta.model,
        "prompt": prompt,
        "outputFile": file,
    }))
}

impl Session {
    /// Asks an agent to stop; its end comes as an event. False if it does not run.
    pub(super) fn stop_agent(&self, id: &AgentId, reason: &str, kill: bool) -> bool {
        self.supervisor.command(id, Command::Stop { reason: reason.to_owned(), kill })
    }

    /// Pid of a living agent, for messages.
    pub(super) fn agent_pid(&self, id: &AgentId) -> Option<i32> {
        match self.supervisor.get(id).map(|s| &s.state) {
            Some(SlotState::Live { pid, .. }) => *pid,
            _ => None,
        }
    }
}
