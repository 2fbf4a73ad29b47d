//! `lead-worker`: one answer, then exit. It outlives its lead: when the owner link ends it goes on
//! until its run is over, and a new lead may take it over meanwhile.

use std::collections::HashSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::boot::{Booted, boot};
use super::error::EndpointError;
use super::identity::{Identity, identify};
use super::lines::LineTeller;
use super::toolbox::{PortCall, QueuePort, tool_environment, toolbox};
use super::visitors::Visit;
use crate::agent::{Carried, Driver, Event as AgentEvent, Input, Parts, TurnEnd};
use crate::core::agent::{LiveState, Owner, RowState, RunStatus};
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::fault::{self, Fault};
use crate::core::frame::{AgentConfig, BUILD, Delivered, Delivery, Frame};
use crate::core::limits::{self, deadlines};
use crate::core::message::Caller;
use crate::core::paths::{AgentFiles, SessionFiles};
use crate::core::text;
use crate::model::{self, ReadAt};
use crate::permission::{Mode, Policy};
use crate::proc::{Signals, StopSignal, deadline};
use crate::store::runtime::{Registration, RuntimeDir, list};
use crate::tool::agents::AgentTool;
use crate::tool::{ToolContext, ToolOutput};
use crate::wire::{Inbox, Incoming, Link, take_parent_link};

/// Runs the program. Arguments are for `ps` only; what counts comes by the handshake.
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--version" || a == "-v") {
        let _ = writeln!(std::io::stdout(), "{BUILD} (lead-worker)");
        return ExitCode::SUCCESS;
    }
    start_log();
    let id = args.iter().skip_while(|a| *a != "--id").nth(1).cloned().unwrap_or_default();
    match run(&id) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "ends");
            ExitCode::from(match error {
                EndpointError::NotStartedByLead(_) => 2,
                _ => 1,
            })
        }
    }
}

/// Log lines go to stderr, which the parent made the agent's log file.
fn start_log() {
    let level = std::env::var(crate::core::env::LOG).ok().and_then(|l| l.parse().ok()).unwrap_or(tracing::Level::WARN);
    let _ = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(std::io::stderr).try_init();
}

fn run(id: &str) -> Result<u8, EndpointError> {
    let stream = take_parent_link().map_err(|_| EndpointError::NotStartedByLead("lead-worker"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| EndpointError::System { action: "can't start the runtime", source })?;
    let code = runtime.block_on(async {
        let signals =
            Signals::listen().map_err(|source| EndpointError::System { action: "can't listen to signals", source })?;
        let booted = boot(stream, "worker", id).await?;
        Worker::new(booted)?.live(signals).await
    });
    // A tool that ignores its cancellation must not hold the process up.
    runtime.shutdown_background();
    code
}

/// Where frames of the owner come from.
pub(super) struct OwnerLink {
    pub(super) link: Link,
    inbox: Option<Inbox>,
    /// Tells the owner what is written, if it wants to know.
    lines: Arc<LineTeller>,
}

/// A worker in its run.
pub(super) struct Worker {
    pub(super) config: AgentConfig,
    pub(super) files: AgentFiles,
    pub(super) driver: Driver,
    pub(super) events: mpsc::Receiver<AgentEvent>,
    pub(super) calls: mpsc::Receiver<PortCall>,
    pub(super) visits: mpsc::Receiver<Visit>,
    pub(super) owner: OwnerLink,
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
}

/// Why the run is being ended from outside.
pub(super) struct Stop {
    pub(super) status: RunStatus,
    pub(super) error: String,
    pub(super) signal: Option<StopSignal>,
}

impl Worker {
    fn new(booted: Booted) -> Result<Self, EndpointError> {
        let Booted { welcome, link, inbox, runtime, socket, registration, name, transcript, history, state, visits } =
            booted;
        let config = welcome.config;
        let (event_sender, events) = mpsc::channel(limits::LOOP_EVENTS);
        let (call_sender, calls) = mpsc::channel(limits::REQUESTS_IN_FLIGHT);
        let mode = Mode::parse(&config.permission_mode).unwrap_or(Mode::DontAsk);
        let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
        let (policy, warnings) = Policy::new(
            mode,
            &config.permissions,
            &config.cwd,
            config.scratchpad.as_deref(),
            home.as_deref(),
            config.read_only_bash,
        );
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let files = AgentFiles::of(&config.transcript);
        let session_files = SessionFiles::of(files.session_transcript().unwrap_or_default());
        let policy = policy.with_readable(&[session_files.folder()]);
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
        lines.tell(welcome.tell_lines.then(|| link.clone()));
        let carried = Carried::of(&history);
        let parts = Parts {
            place: config.place.clone(),
            agent: Some((config.id.clone(), config.run)),
            model,
            model_id,
            max_tokens: config.max_tokens,
            caller,
            system: config.system_prompt.clone(),
            toolbox: toolbox(&config.pool, &policy, || AgentTool {
                types: Vec::new(),
                always_background: false,
                background_allowed: false,
            }),
            policy,
            context: ToolContext {
                cwd: config.cwd.clone(),
                results: session_files.tool_results(),
                env: Arc::new(env),
                cancel: tokio_util::sync::CancellationToken::new(),
                tool_use_id: String::new(),
                agents: Arc::new(QueuePort(call_sender)),
            },
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
            owner: OwnerLink { link, inbox: Some(inbox), lines },
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
            config,
        };
        // Messages an earlier run took in and never showed come first, then what started this run.
        let mut inputs: Vec<Input> = history.enqueued.into_iter().map(waiting_input).collect();
        let prompt = welcome.prompt;
        if prompt.msg_id.as_ref().is_none_or(|id| worker.seen.insert(id.clone())) {
            inputs.push(Input {
                text: prompt.text,
                origin: None,
                msg_id: prompt.msg_id,
                from: Some(prompt.from),
                is_meta: false,
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

    async fn live(mut self, mut signals: Signals) -> Result<u8, EndpointError> {
        // First of all the parent hears that this agent is ready; one that is gone hears nothing.
        let _ = self.owner.link.flush(deadlines().reply).await;
        self.publish();
        loop {
            if let Some(end) = self.ended.take() {
                return self.finish(end).await;
            }
            let publish_at = self.published + deadlines().state_write;
            tokio::select! {
                Some(event) = self.events.recv() => self.on_agent(event),
                Some(call) = self.calls.recv() => self.on_call(call),
                Some(visit) = self.visits.recv() => self.on_visit(visit),
                incoming = receive(&mut self.owner.inbox) => self.on_owner(incoming),
                signal = signals.recv() => self.on_signal(signal),
                () = deadline(Some(publish_at)), if self.dirty => self.publish(),
            }
            self.note_state();
        }
    }

    fn on_agent(&mut self, event: AgentEvent) {
        self.state.last_event_ms = clock::now_ms();
        self.dirty = true;
        self.step(event);
    }

    fn step(&mut self, event: AgentEvent) {
        if let Some(end) = self.driver.handle(event) {
            self.ended = Some(end);
        }
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

    fn on_owner(&mut self, incoming: Option<Incoming>) {
        let Some(Incoming { seq, frame }) = incoming else {
            self.owner.inbox = None;
            if self.state.owner == Owner::Lead {
                self.state.owner = Owner::Lost;
                self.publish();
            }
            return;
        };
        let link = self.owner.link.clone();
        match frame {
            Frame::Release => {
                self.state.owner = Owner::None;
                self.publish();
                let _ = link.reply(seq, Frame::Done);
            }
            Frame::Deliver(delivery) => {
                let from = delivery.from.clone().unwrap_or_else(|| self.config.session.as_str().to_owned());
                let text = delivery.text.clone();
                let answer = self.deliver(delivery, from, text);
                let _ = link.reply(seq, answer);
            }
            Frame::Stop { reason, .. } => {
                let _ = link.reply(seq, Frame::Done);
                self.begin_stop(RunStatus::Killed, reason, None);
            }
            Frame::Status => {
                let _ = link.reply(seq, self.status());
            }
            Frame::Ping => {
                let _ = link.reply(seq, Frame::Pong);
            }
            _ => {
                let _ = link.reply(seq, unsupported());
            }
        }
    }

    pub(super) fn on_visit(&mut self, visit: Visit) {
        let Visit { link, inbox, seq, frame } = visit;
        match frame {
            Frame::Status => {
                let _ = link.reply(seq, self.status());
            }
            Frame::Deliver(delivery) => {
                let identity = identify(&self.runtime, link.peer());
                let text = match &identity {
                    Identity::Person => delivery.text.clone(),
                    other => format!(
                        "<cross-session-message from=\"{}\">\n{}\n</cross-session-message>",
                        text::escape_attribute(&other.label()),
                        text::escape(&delivery.text)
                    ),
                };
                let answer = self.deliver(delivery, identity.label(), text);
                let _ = link.reply(seq, answer);
            }
            Frame::Stop { reason, .. } => match identify(&self.runtime, link.peer()) {
                Identity::Agent(id) => {
                    let message =
                        format!("{id} is an agent, and agents can't stop other agents; its lead or the person can");
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                }
                Identity::Person | Identity::Lead(_) => {
                    let _ = link.reply(seq, Frame::Done);
                    self.begin_stop(RunStatus::Killed, reason, None);
                }
            },
            Frame::Adopt { session, tell_lines } => {
                let lead = list(&self.runtime).unwrap_or_default().into_iter().find(|r| {
                    r.alive
                        && r.entry.role == "lead"
                        && r.entry.session == self.config.session.as_str()
                        && r.entry.pid == link.peer().pid
                });
                if session != self.config.session || lead.is_none() {
                    let message = format!("only the live lead of session {} can adopt this agent", self.config.session);
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                    return;
                }
                self.owner.link.close();
                self.owner.link = link.clone();
                self.owner.inbox = inbox;
                self.state.owner = Owner::Lead;
                self.publish();
                let adopted = Frame::Adopted { state: Box::new(self.state.clone()), runtime: self.name.clone() };
                let _ = link.reply(seq, adopted);
                // From the answer on: what is on disk by now the new owner reads itself.
                self.owner.lines.tell(tell_lines.then_some(link));
            }
            _ => {
                let _ = link.reply(seq, unsupported());
            }
        }
    }

    /// Takes a message in: on disk first, then the sender is told (spec 2.3).
    fn deliver(&mut self, delivery: Delivery, from: String, text: String) -> Frame {
        let delivered =
            |outcome: &str, message: String| Frame::Delivered(Delivered { outcome: outcome.to_owned(), message });
        if self.seen.contains(&delivery.msg_id) {
            return delivered("queued", "this message was taken in before".to_owned());
        }
        if self.ending || self.stop.is_some() {
            return delivered("ended", "the agent's run is ending".to_owned());
        }
        if text.len() > limits::FRAME_BYTES / 2 || delivery.text.len() > limits::MESSAGE_BYTES {
            return delivered("refused", format!("messages are at most {} bytes", limits::MESSAGE_BYTES));
        }
        fault::point(Fault::DeliverBeforeEnqueue);
        let enqueued = Enqueued {
            msg_id: delivery.msg_id.clone(),
            from: from.clone(),
            content: text.clone(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.config.session.as_str().to_owned(),
        };
        if let Err(error) = self.driver.record(&Line::Enqueued(enqueued)) {
            return delivered("refused", format!("the agent can't write the message down: {error}"));
        }
        fault::point(Fault::EnqueueBeforeReply);
        self.seen.insert(delivery.msg_id.clone());
        let input = Input {
            text,
            origin: Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
            msg_id: Some(delivery.msg_id),
            from: Some(from),
            is_meta: false,
        };
        self.step(AgentEvent::Inputs(vec![input]));
        delivered("queued", "the agent sees it at its next step".to_owned())
    }

    fn on_signal(&mut self, signal: StopSignal) {
        // Whoever stops an agent says so, and why, before the first signal.
        let (status, reason) = match std::fs::read_to_string(self.files.stop_marker(self.config.run)) {
            Ok(reason) => (RunStatus::Killed, reason.trim().to_owned()),
            Err(_) => (RunStatus::Failed, format!("ended by {} from outside", signal.name())),
        };
        self.begin_stop(status, reason, Some(signal));
    }

    fn begin_stop(&mut self, status: RunStatus, reason: String, signal: Option<StopSignal>) {
        if let Some(stop) = &mut self.stop {
            stop.signal = stop.signal.or(signal);
            return;
        }
        let error = if reason.is_empty() { "stopped".to_owned() } else { reason };
        self.stop = Some(Stop { status, error, signal });
        self.step(AgentEvent::Cancel);
        self.state.state = RowState::Stopping;
        self.state.since_ms = clock::now_ms();
        self.publish();
    }

    fn status(&self) -> Frame {
        match self.registration.as_ref() {
            Some(registration) => Frame::StatusReply {
                entry: Box::new(registration.entry().clone()),
                state: Box::new(self.current_state()),
            },
            None => unsupported(),
        }
    }

    fn current_state(&self) -> LiveState {
        let mut state = self.state.clone();
        state.progress = self.driver.progress().clone();
        state.waiting_for = self.driver.stall_reason().map(str::to_owned);
        state
    }

    /// A stalled disk shows at once, counters at most five times a second.
    fn note_state(&mut self) {
        if self.driver.stall_reason().map(str::to_owned) != self.state.waiting_for {
            self.state.waiting_for = self.driver.stall_reason().map(str::to_owned);
            self.publish();
        }
    }

    fn publish(&mut self) {
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
        is_meta: false,
    }
}

fn unsupported() -> Frame {
    Frame::Error { code: "unsupported".to_owned(), message: "a worker can't do that".to_owned() }
}
