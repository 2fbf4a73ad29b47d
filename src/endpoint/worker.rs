//! `lead-worker`: one answer, then exit. It outlives its lead: when the owner link ends it goes on
//! until its run is over, and a new lead may take it over meanwhile.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::arrivals::Arrivals;
use super::boot::Booted;
use super::ending::Stop;
use super::error::EndpointError;
use super::lines::LineTeller;
use super::permissions::Permissions;
use super::questions::Questions;
use super::shells::Held;
use super::toolbox::{PortCall, QueuePort, agent_toolbox, hidden, tool_environment};
use super::visitors::Visit;
use crate::agent::{
    Carried, Driver, Event as AgentEvent, Input, Parts, TurnEnd, lost_end, lost_shell_notification, still_running,
};
use crate::core::agent::{Leftover, LiveState, Owner, RowState};
use crate::core::clock;
use crate::core::entry::{Enqueued, ORIGIN_PEER, Origin};
use crate::core::frame::{AgentConfig, Frame};
use crate::core::limits::{self, deadlines};
use crate::core::message::Caller;
use crate::core::paths::{AgentFiles, SessionFiles};
use crate::model::{self, ReadAt};
use crate::proc::{Signals, deadline};
use crate::store::runtime::{Registration, RuntimeDir};
use crate::tool::folder_instructions::FolderInstructions;
use crate::tool::shell::{ShellEvent, Shells, WorkingFolder};
use crate::tool::{ToolContext, ToolOutput};
use crate::wire::{Inbox, Incoming, Link};

/// Where frames of the owner come from.
pub(super) struct OwnerLink {
    pub(super) link: Link,
    pub(super) inbox: Option<Inbox>,
    /// Tells the owner what is written, if it wants to know.
    pub(super) lines: Arc<LineTeller>,
    /// Whether it goes on by itself when the link ends, instead of as an orphan.
    pub(super) is_free: bool,
}

/// A worker in its run.
pub(super) struct Worker {
    pub(super) config: AgentConfig,
    pub(super) files: AgentFiles,
    pub(super) driver: Driver,
    pub(super) events: mpsc::Receiver<AgentEvent>,
    pub(super) calls: mpsc::Receiver<PortCall>,
    pub(super) visits: mpsc::Receiver<Visit>,
    pub(super) questions: Questions,
    pub(super) arrivals: Arrivals,
    pub(super) owner: OwnerLink,
    pub(super) permissions: Permissions,
    pub(super) runtime: RuntimeDir,
    pub(super) registration: Option<Registration>,
    pub(super) name: String,
    pub(super) state: LiveState,
    pub(super) published: Instant,
    pub(super) dirty: bool,
    pub(super) seen: HashSet<String>,
    pub(super) started_ms: u64,
    pub(super) stop: Option<Stop>,
    /// A turn that ended while something else than a driver's event was handled.
    pub(super) ended: Option<TurnEnd>,
    /// The outcome is being written: nothing is taken in any more.
    pub(super) ending: bool,
    pub(super) shells: Shells,
    shell_events: mpsc::Receiver<ShellEvent>,
    /// The answer that was given while shells of its own ran.
    pub(super) held: Option<Held>,
    /// Shells that were ended for it.
    pub(super) leftovers: Vec<Leftover>,
}

impl Worker {
    pub(super) fn new(booted: Booted) -> Result<Self, EndpointError> {
        let Booted { welcome, link, inbox, runtime, socket, registration, name, transcript, history, state, visits } =
            booted;
        let config = welcome.config;
        let (event_sender, events) = mpsc::channel(limits::LOOP_EVENTS);
        let (call_sender, calls) = mpsc::channel(limits::REQUESTS_IN_FLIGHT);
        let (shell_sender, shell_events) = mpsc::channel(limits::LOOP_EVENTS);
        let shells = Shells::new(shell_sender);
        let files = AgentFiles::of(&config.transcript);
        let session_files = SessionFiles::of(files.session_transcript().unwrap_or_default());
        let mut readable = config.knowledge.skill_folders();
        readable.push(session_files.folder());
        let permissions = Permissions::of(&config, readable);
        let policy = permissions.policy();
        let env = tool_environment(
            &welcome.secrets,
            config.session.as_str(),
            config.id.as_str(),
            &name,
            &crate::wire::address(&socket),
        );
        let caller = Caller {
            role: "worker".to_owned(),
            agent_type: config.agent_type.clone(),
            name: config.name.clone().unwrap_or_default(),
        };
        let model = model::open_with(&config.model, ReadAt::FirstCall, &welcome.access)?;
        let model_id = config.model.split_once(':').map_or(config.model.as_str(), |(_, id)| id).to_owned();
        let lines = Arc::new(LineTeller::default());
        lines.tell(link.clone(), welcome.telling);
        let is_free = config.detached || welcome.owner == Owner::None;
        let carried = Carried::of(&history);
        let last_folder = history.shell_cwd.map(PathBuf::from);
        let folder = WorkingFolder::new(&config.cwd, Path::new(&config.place.cwd), last_folder);
        let (questions, desk) = Questions::new(Duration::from_millis(config.permission_timeout_ms));
        let instructions =
            FolderInstructions::new(&config.knowledge, hidden(&policy), history.shown_instructions.iter().cloned());
        let parts = Parts {
            place: config.place.clone(),
            agent: Some((config.id.clone(), config.run)),
            model,
            model_id,
            max_tokens: config.max_tokens,
            caller,
            system: config.system_prompt.clone(),
            toolbox: agent_toolbox(&config, &policy, &welcome.access.proxy),
            desk: Arc::new(desk),
            context: ToolContext {
                cwd: config.cwd.clone(),
                folder: Arc::new(folder),
                shells: shells.clone(),
                results: session_files.tool_results(),
                env: Arc::new(env),
                cancel: tokio_util::sync::CancellationToken::new(),
                tool_use_id: String::new(),
                agents: Arc::new(QueuePort(call_sender)),
                tool_state: Arc::new(history.tool_state.into()),
                instructions: Arc::new(instructions),
            },
            policy,
            transcript,
            history: history.messages,
            last_uuid: history.last_uuid,
            carried,
            context_window: config.context_window,
            context_tokens: history.context_tokens,
            max_turns: config.max_turns,
            witness: Arc::clone(&lines) as Arc<dyn crate::agent::Witness>,
            events: event_sender,
        };
        let mut worker = Self {
            driver: Driver::new(parts),
            files,
            events,
            calls,
            visits,
            questions,
            arrivals: Arrivals::default(),
            owner: OwnerLink { link, inbox: Some(inbox), lines, is_free },
            permissions,
            runtime,
            registration: Some(registration),
            name,
            state,
            published: Instant::now(),
            dirty: false,
            seen: history.seen_msg_ids,
            started_ms: clock::now_ms(),
            stop: None,
            ended: None,
            ending: false,
            shells,
            shell_events,
            held: None,
            leftovers: Vec::new(),
            config,
        };
        // Messages an earlier run took in and never showed come first, then the ends of shells that it left
        // untold, then what started this run.
        let mut inputs: Vec<Input> = history.enqueued.into_iter().map(waiting_input).collect();
        for open in history.open_shells.as_slice() {
            worker.shells.insert_lost(open, lost_end());
            inputs.push(lost_shell_notification(open));
        }
        let prompt = welcome.prompt;
        if prompt.msg_id.as_ref().is_none_or(|id| worker.seen.insert(id.clone())) {
            inputs.push(Input {
                text: prompt.text,
                msg_id: prompt.msg_id,
                from: Some(prompt.from),
                ..Input::default()
            });
        }
        if inputs.is_empty() {
            // The message that started this run was shown in an earlier one, whose answer was lost.
            let text = "The message that continues you was shown to you before; go on from where you were.".to_owned();
            inputs.push(Input { text, is_meta: true, ..Input::default() });
        }
        // Recorded here, before anybody is told that this agent is ready.
        worker.ended = worker.driver.handle(AgentEvent::Inputs(inputs));
        let ready = Frame::Ready { address: crate::wire::address(&socket), runtime: worker.name.clone() };
        // A parent that is gone already has nothing to be told; the run goes on.
        let _ = worker.owner.link.send(ready);
        Ok(worker)
    }

    pub(super) async fn live(mut self: Box<Self>, mut signals: Signals) -> Result<u8, EndpointError> {
        // First of all the parent hears that this agent is ready; one that is gone hears nothing.
        let _ = self.owner.link.flush(deadlines().reply).await;
        self.publish();
        loop {
            if let Some(end) = self.ended.take().and_then(|end| self.hold(end)) {
                return self.finish(end).await;
            }
            let publish_at = self.published + deadlines().state_write;
            let wait_until = self.wait_limit();
            tokio::select! {
                Some(event) = self.events.recv() => self.on_agent(event),
                Some(call) = self.calls.recv() => self.on_call(call),
                Some(visit) = self.visits.recv() => self.on_visit(visit),
                Some(event) = self.shell_events.recv() => self.on_shell(&event),
                event = self.questions.next() => self.questions.handle(event, self.state.owner, &self.owner.link),
                incoming = receive(&mut self.owner.inbox) => self.on_owner(incoming),
                signal = signals.recv() => self.on_signal(signal),
                () = deadline(Some(publish_at)), if self.dirty => self.publish(),
                () = deadline(wait_until), if wait_until.is_some() => self.on_wait_limit(),
            }
            self.note_state();
        }
    }

    fn on_agent(&mut self, event: AgentEvent) {
        self.state.last_event_ms = clock::now_ms();
        self.dirty = true;
        self.step(event);
    }

    pub(super) fn step(&mut self, event: AgentEvent) {
        let before = self.driver.is_compacting();
        if let Some(end) = self.driver.handle(event) {
            self.ended = Some(end);
        }
        if !before
            && self.driver.is_compacting()
            && let Some(reminder) = still_running(&[], &self.shells.running())
        {
            self.driver.handle(AgentEvent::Inputs(vec![reminder]));
        }
        self.note_turn();
    }

    /// A tool that the lead carries out: asked over the owner link, in a task of its own.
    fn on_call(&mut self, call: PortCall) {
        let link = self.owner.link.clone();
        tokio::spawn(async move {
            let request = Frame::Call { tool: call.tool.clone(), tool_use_id: call.tool_use_id, input: call.input };
            let output = tokio::select! {
                answer = link.request(request, deadlines().resume) => match answer {
                    Ok(Frame::CallResult { text, is_error, structured }) => ToolOutput { text, is_error, structured },
                    Ok(Frame::Error { message, .. }) => ToolOutput::error(message),
                    Ok(_) => ToolOutput::error(format!("the lead answered {} with something else", call.tool)),
                    Err(error) => ToolOutput::error(format!("{} needs the lead, which can't be reached: {error}", call.tool)),
                },
                () = call.cancel.cancelled() => ToolOutput::error("cancelled"),
            };
            let _ = call.reply.send(output);
        });
    }

    pub(super) fn current_state(&self) -> LiveState {
        let mut state = self.state.clone();
        state.progress = self.driver.progress().clone();
        state.waiting_for = self.waiting_for();
        state.shells = self.shells.running();
        if matches!(state.state, RowState::Running | RowState::Waiting) && !self.is_waiting() {
            let now = if self.driver.is_asking() { RowState::Waiting } else { RowState::Running };
            if state.state != now {
                state.since_ms = clock::now_ms();
                state.state = now;
            }
        }
        state
    }

    /// A stalled disk shows at once, counters at most five times a second.
    fn note_state(&mut self) {
        if self.waiting_for() != self.state.waiting_for {
            self.publish();
        }
    }

    fn waiting_for(&self) -> Option<String> {
        let shells = || self.is_waiting().then(|| format!("{} background commands", self.shells.running().len()));
        self.driver.stall_reason().map(str::to_owned).or_else(shells)
    }

    pub(super) fn publish(&mut self) {
        self.state = self.current_state();
        self.dirty = false;
        self.published = Instant::now();
        if let Some(registration) = &self.registration
            && let Err(error) = registration.set_state(&self.state)
        {
            tracing::warn!(%error, "the state file was not written");
        }
        let _ = self.owner.link.send(Frame::State { state: Box::new(self.state.clone()) });
    }
}

async fn receive(inbox: &mut Option<Inbox>) -> Option<Incoming> {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

fn waiting_input(enqueued: Enqueued) -> Input {
    Input {
        text: enqueued.content,
        origin: Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
        msg_id: Some(enqueued.msg_id),
        from: Some(enqueued.from),
        ..Input::default()
    }
}
