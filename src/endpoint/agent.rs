//! An agent in its run: its conversation, its owner, its socket, its questions, its shells. What it
//! hears comes out of [`Agent::next`] one at a time and is carried out by [`Agent::handle`]; the loop
//! around them is that of a worker (one answer, then exit) or of a teammate (which may look at what it
//! hears first). It outlives its lead: a new one may take it over.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::arrivals::Arrivals;
use super::boot::Booted;
use super::ending::Stop;
use super::error::EndpointError;
use super::lines::LineTeller;
use super::permissions::Permissions;
use super::questions::{Asked, QuestionEvent, Questions};
use super::shells::Held;
use super::toolbox::{PortCall, QueuePort, agent_toolbox, hidden, tool_environment};
use super::visitors::Visit;
use crate::agent::{
    Carried, Driver, Event as AgentEvent, Input, Parts, TurnEnd, Witness, lost_end, lost_shell_notification,
    still_running,
};
use crate::core::agent::{Leftover, LiveState, Owner, RowState};
use crate::core::clock;
use crate::core::entry::{Enqueued, ORIGIN_PEER, Origin};
use crate::core::env::{TEAM, Vars};
use crate::core::frame::{AgentConfig, Frame, PermissionRules};
use crate::core::limits::{self, deadlines};
use crate::core::message::Caller;
use crate::core::paths::{AgentFiles, SessionFiles};
use crate::core::provider::ProviderAccess;
use crate::core::question::{Question, Verdict};
use crate::model::{self, ReadAt};
use crate::permission::{Mode, SharedPolicy};
use crate::proc::{Signals, StopSignal, deadline};
use crate::store::runtime::{Registration, RuntimeDir};
use crate::tool::folder_instructions::FolderInstructions;
use crate::tool::shell::{ShellEvent, Shells, WorkingFolder};
use crate::tool::{ToolContext, ToolOutput};
use crate::wire::{Inbox, Incoming, Link};

/// Where frames of the owner come from.
pub struct OwnerLink {
    /// To the owner.
    pub link: Link,
    pub(super) inbox: Option<Inbox>,
    /// Tells the owner what is written, if it wants to know.
    pub(super) lines: Arc<LineTeller>,
    /// Whether it goes on by itself when the link ends, instead of as an orphan.
    pub(super) is_free: bool,
}

/// What an agent hands on to those that it starts.
#[derive(Clone, Debug)]
pub struct Given {
    /// Variables that only their tools have.
    pub secrets: Vars,
    /// How they reach their model.
    pub access: ProviderAccess,
}

/// Something an agent hears.
pub enum Heard {
    /// A model call, a tool or a pause of its conversation ended.
    Conversation(AgentEvent),
    /// Its model calls a tool that the main loop carries out.
    Call(PortCall),
    /// Somebody who connected to its socket wants something.
    Visit(Visit),
    /// A background shell started or ended.
    Shell(ShellEvent),
    /// A question of permission, or its answer.
    Question(QuestionEvent),
    /// The owner says something, or its link ended.
    Owner(Option<Incoming>),
    /// A signal.
    Signal(StopSignal),
    /// The state is to be published.
    PublishDue,
    /// Waiting for shells must end.
    WaitLimit,
}

/// An agent in its run.
pub struct Agent {
    /// Who it is and how it works.
    pub config: AgentConfig,
    pub(super) files: AgentFiles,
    /// Its conversation.
    pub driver: Driver,
    pub(super) events: mpsc::Receiver<AgentEvent>,
    pub(super) calls: mpsc::Receiver<PortCall>,
    pub(super) visits: mpsc::Receiver<Visit>,
    pub(super) questions: Questions,
    pub(super) arrivals: Arrivals,
    /// Its owner.
    pub owner: OwnerLink,
    pub(super) permissions: Permissions,
    pub(super) runtime: RuntimeDir,
    pub(super) registration: Option<Registration>,
    pub(super) name: String,
    /// What it does, as far as its conversation does not say it.
    pub state: LiveState,
    pub(super) published: Instant,
    pub(super) dirty: bool,
    /// Ids of messages taken in.
    pub seen: HashSet<String>,
    pub(super) started_ms: u64,
    pub(super) stop: Option<Stop>,
    /// The turn that ended last, until the loop takes it.
    pub ended: Option<TurnEnd>,
    /// The outcome is being written: nothing is taken in any more.
    pub(super) ending: bool,
    pub(super) shells: Shells,
    shell_events: mpsc::Receiver<ShellEvent>,
    /// The answer that was given while shells of its own ran.
    pub(super) held: Option<Held>,
    /// Shells that were ended for it.
    pub(super) leftovers: Vec<Leftover>,
    /// Variables of its tools, and of its hooks.
    pub tool_env: Arc<Vars>,
    /// What agents that it starts are given.
    pub given: Given,
    signals: Signals,
}

impl Agent {
    /// Begins a run, and records what it is told first. `witness` sees its conversation.
    pub fn new(booted: Booted, signals: Signals, witness: Option<Arc<dyn Witness>>) -> Result<Self, EndpointError> {
        let Booted { welcome, link, inbox, runtime, socket, registration, name, transcript, history, state, visits } =
            booted;
        let config = welcome.config;
        let given = Given { secrets: welcome.secrets.clone(), access: welcome.access.clone() };
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
        let mut env = tool_environment(
            &welcome.secrets,
            config.session.as_str(),
            config.id.as_str(),
            &name,
            &crate::wire::address(&socket),
        );
        if let Some(membership) = &config.membership {
            env.push((TEAM.to_owned(), membership.team.clone()));
        }
        let env = Arc::new(env);
        let caller = Caller {
            role: if config.membership.is_some() { "teammate" } else { "worker" }.to_owned(),
            agent_type: config.agent_type.clone(),
            name: config.name.clone().unwrap_or_default(),
        };
        let model = model::open_with(&config.model, ReadAt::FirstCall, &welcome.access)?;
        let model_id = config.model.split_once(':').map_or(config.model.as_str(), |(_, id)| id).to_owned();
        let lines = Arc::new(LineTeller::beside(witness));
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
                env: Arc::clone(&env),
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
            witness: Arc::clone(&lines) as Arc<dyn Witness>,
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
            seen: history.seen_msg_ids.into_iter().collect(),
            started_ms: clock::now_ms(),
            stop: None,
            ended: None,
            ending: false,
            shells,
            shell_events,
            held: None,
            leftovers: Vec::new(),
            tool_env: env,
            given,
            signals,
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
        if prompt.text.is_empty() {
            let text = "Your process had ended and was started again, with all you knew. A call that ran then may or may \
not have done its work; look before you repeat it, and go on from where you were.";
            inputs.push(Input { text: text.to_owned(), is_meta: true, ..Input::default() });
        } else if prompt.msg_id.as_ref().is_none_or(|id| worker.seen.insert(id.clone())) {
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

    /// Says that it is ready. To be called once, before anything is heard.
    pub async fn announce(&mut self) {
        // First of all the parent hears that this agent is ready; one that is gone hears nothing.
        let _ = self.owner.link.flush(deadlines().reply).await;
        self.publish();
    }

    /// What happens next. Can be dropped and called again.
    pub async fn next(&mut self) -> Heard {
        let publish_at = self.published + deadlines().state_write;
        let wait_until = self.wait_limit();
        tokio::select! {
            Some(event) = self.events.recv() => Heard::Conversation(event),
            Some(call) = self.calls.recv() => Heard::Call(call),
            Some(visit) = self.visits.recv() => Heard::Visit(visit),
            Some(event) = self.shell_events.recv() => Heard::Shell(event),
            event = self.questions.next() => Heard::Question(event),
            incoming = receive(&mut self.owner.inbox) => Heard::Owner(incoming),
            signal = self.signals.recv() => Heard::Signal(signal),
            () = deadline(Some(publish_at)), if self.dirty => Heard::PublishDue,
            () = deadline(wait_until), if wait_until.is_some() => Heard::WaitLimit,
        }
    }

    /// Carries out what follows from it.
    pub fn handle(&mut self, heard: Heard) {
        match heard {
            Heard::Conversation(event) => self.on_agent(event),
            Heard::Call(call) => self.on_call(call),
            Heard::Visit(visit) => self.on_visit(visit),
            Heard::Shell(event) => self.on_shell(&event),
            Heard::Question(event) => self.on_question(event),
            Heard::Owner(incoming) => self.on_owner(incoming),
            Heard::Signal(signal) => self.on_signal(signal),
            Heard::PublishDue => self.publish(),
            Heard::WaitLimit => self.on_wait_limit(),
        }
        self.note_state();
    }

    /// Puts a question of somebody that it started to its owner, as its own.
    pub fn ask_for(&mut self, question: Question, reply: oneshot::Sender<Verdict>) {
        self.on_question(QuestionEvent::Asked(Asked { question, reply }));
    }

    /// The rules that hold for it.
    pub fn rules(&self) -> &PermissionRules {
        self.permissions.rules()
    }

    /// What it may do.
    pub fn policy(&self) -> SharedPolicy {
        self.permissions.policy()
    }

    fn on_question(&mut self, event: QuestionEvent) {
        // An approved plan brings the mode in which it is carried out.
        if let QuestionEvent::Answered(_, Verdict::AllowIn { mode }) = &event {
            self.permissions.set_mode(mode);
        }
        self.questions.handle(event, self.state.owner, &self.owner.link);
    }

    fn on_agent(&mut self, event: AgentEvent) {
        self.state.last_event_ms = clock::now_ms();
        self.dirty = true;
        self.step(event);
    }

    /// Hands an event to the conversation.
    pub fn step(&mut self, event: AgentEvent) {
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

    /// What it does now.
    pub fn current_state(&self) -> LiveState {
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

    /// The permission mode it works in.
    pub fn mode(&self) -> Mode {
        self.permissions.mode()
    }

    /// Whether it is being stopped from outside.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Its state changed; everybody is told.
    pub fn set_state(&mut self, state: RowState) {
        self.state.state = state;
        self.state.since_ms = clock::now_ms();
        self.publish();
    }

    /// Tells the registry and the owner what it does.
    pub fn publish(&mut self) {
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
