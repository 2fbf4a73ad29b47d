//! The life of one agent as its owner sees it: a task from launch or adoption to the settled
//! outcome. It alone signals and reaps the process, so stop, crash and completion meet in one place.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::backend::{Backend, Begun, Keep, Order, PanePlace, pane_ended};
use super::error::LaunchError;
use super::event::{Command, Deliver, Launched, SupervisorEvent, not_answering};
use super::handshake::{adopt_link, shake_hands};
use super::launch::{Launcher, Start};
use super::lines::Room;
use super::permissions::set_permissions;
use crate::core::agent::{LiveState, Outcome};
use crate::core::fault::{self, Fault};
use crate::core::frame::{Delivered, Frame};
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::paths::AgentFiles;
use crate::proc::{Exit, Ladder, LadderAction, LadderEvent, Process, Rung, deadline};
use crate::store::StoreError;
use crate::store::lock::wait_shared;
use crate::store::reader::tail;
use crate::store::runtime::RuntimeDir;
use crate::store::session::mark_stop;
use crate::wire::{Inbox, Incoming, Link, WireError};

/// What a task needs for its whole life.
pub(super) struct Life {
    pub id: AgentId,
    pub session: SessionId,
    pub files: AgentFiles,
    pub runtime: RuntimeDir,
    pub launcher: Launcher,
    pub stall_after: Duration,
    pub commands: mpsc::Receiver<Command>,
    pub events: mpsc::Sender<SupervisorEvent>,
    pub ready: Option<oneshot::Sender<Result<Launched, LaunchError>>>,
    /// What was asked for while the agent started.
    pub early: VecDeque<Command>,
    /// Fires when the owner has been sent the end: who tries again after that finds it true.
    pub over: CancellationToken,
    /// Ids of the lines that the owner was told of.
    pub told: HashSet<String>,
    /// Shared by all agents of the owner.
    pub room: Room,
}

struct Running {
    process: Process,
    link: Link,
    inbox: Inbox,
    run: u32,
    runtime_name: Option<String>,
    pid: i32,
    pane: Option<PanePlace>,
}

/// How an agent's task ends.
enum End {
    /// The process is gone; none = it never got as far as a line.
    Settled(Option<Box<Outcome>>),
    /// It goes on without this owner.
    LetGo,
}

impl Life {
    /// Lives through one run. Ends when its outcome is settled and everybody who waited was answered.
    pub(super) async fn live(mut self, start: Start) {
        let (end, fresh) = match start {
            Start::Spawn { config, prompt, backend } => {
                let run = config.run;
                match self.launch(*config, prompt, &*backend).await {
                    Ok(running) => (self.run(running).await, false),
                    Err((error, exit)) => {
                        // The table first, so that whoever hears of the error finds it true.
                        self.send_failed_start(run, exit).await;
                        self.answer_ready(Err(error));
                        return self.drain();
                    }
                }
            }
            Start::Adopt { entry, session, run, pane } => {
                (self.adopt(entry.map(|e| *e), &session, run, pane).await, run <= 1)
            }
        };
        let id = self.id.clone();
        match end {
            End::Settled(Some(outcome)) => {
                fault::point(Fault::OutcomeBeforeNotification);
                self.send(SupervisorEvent::Ended { id, outcome }).await;
            }
            End::Settled(None) => self.send(SupervisorEvent::NotStarted { id, fresh }).await,
            End::LetGo => self.send(SupervisorEvent::LetGo { id }).await,
        }
        self.drain();
    }

    /// A first run that did not get ready is undone. A later one that got as far as its first line
    /// has begun and ends like any other; if it did not, nothing of it is on disk.
    async fn send_failed_start(&mut self, run: u32, exit: Option<Exit>) {
        let id = self.id.clone();
        let begun = if run == 1 { None } else { self.settle(run, exit, None).await };
        self.send(match begun.filter(|outcome| outcome.run == run) {
            Some(outcome) => SupervisorEvent::Ended { id, outcome: Box::new(outcome) },
            None => SupervisorEvent::NotStarted { id, fresh: run == 1 },
        })
        .await;
    }

    /// Whoever still waits is told that the run is over, and may resume the agent.
    fn drain(&mut self) {
        self.commands.close();
        while let Some(command) = self.early.pop_front().or_else(|| self.commands.try_recv().ok()) {
            if let Command::Deliver(deliver) = command {
                let _ = deliver.reply.send(ended());
            }
        }
        self.over.cancel();
    }

    async fn send(&self, event: SupervisorEvent) {
        let _ = self.events.send(event).await;
    }

    fn answer_ready(&mut self, answer: Result<Launched, LaunchError>) {
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(answer);
        }
    }

    /// Starts the process and shakes hands (spec 5.4). On error nothing of it is left running.
    async fn launch(
        &mut self,
        config: crate::core::frame::AgentConfig,
        prompt: crate::core::frame::Prompt,
        backend: &dyn Backend,
    ) -> Result<Running, (LaunchError, Option<Exit>)> {
        let _place = tokio::select! {
            place = self.launcher.place() => place,
            () = stop_asked(&mut self.commands, &mut self.early) => return Err((LaunchError::Stopped, None)),
        };
        let program = self.launcher.program(&config).map_err(|error| (error, None))?;
        let run = config.run;
        let ready_by = Instant::now() + deadlines().ready;
        let order = Order {
            id: self.id.clone(),
            program: program.clone(),
            arguments: Launcher::arguments(&config),
            cwd: config.cwd.clone(),
            environment: self.launcher.environment().to_vec(),
            files: self.files.clone(),
            until: ready_by,
        };
        let begun = tokio::select! {
            begun = backend.start(order) => begun.map_err(|error| (error, None))?,
            () = stop_asked(&mut self.commands, &mut self.early) => return Err((LaunchError::Stopped, None)),
        };
        fault::point(Fault::ProcessBeforeReady);
        let Begun { process, link, mut inbox, hello, pane } = begun;
        let pid = process.pid();
        let welcome = Frame::Welcome(Box::new(self.launcher.welcome(config, prompt)));
        let mut early = Vec::new();
        let shaken = {
            let mut shaking = std::pin::pin!(shake_hands(&link, &mut inbox, hello, welcome, &program, pid, &mut early));
            tokio::select! {
                shaken = &mut shaking => shaken,
                // A quick child is ready, done and gone before this is looked at; what it said is
                // still in the link, and a child that was ready is no failed start.
                exit = process.wait() => match tokio::time::timeout(deadlines().link_end, &mut shaking).await {
                    Ok(shaken) => shaken,
                    Err(_) => {
                        Err(LaunchError::Died { pid, exit: exit.to_string(), log: Launcher::log_tail(&self.files) })
                    }
                },
                () = deadline(Some(ready_by)) => {
                    Err(LaunchError::NotReady { pid, waited: deadlines().ready, log: Launcher::log_tail(&self.files) })
                }
                () = stop_asked(&mut self.commands, &mut self.early) => Err(LaunchError::Stopped),
            }
        };
        match shaken {
            Ok((address, name)) => {
                let launched = Launched { pid, address, pane: pane.clone() };
                let id = self.id.clone();
                self.send(SupervisorEvent::Ready { id, launched: launched.clone() }).await;
                for frame in early {
                    self.on_told(frame).await;
                }
                self.answer_ready(Ok(launched));
                Ok(Running { process, link, inbox, run, runtime_name: Some(name), pid, pane })
            }
            Err(error) => {
                link.close();
                let _ = process.kill();
                let mut exit = tokio::time::timeout(deadlines().stop_kill, process.wait()).await.ok();
                if let Some(pane) = &pane {
                    exit = pane_ended(&self.id, pane, self.launcher.environment(), Keep::No).await.or(exit);
                }
                self.sweep_registry().await;
                let error = match error {
                    // A closed link alone says nothing; the exit status does.
                    LaunchError::Died { pid, .. } => LaunchError::Died {
                        pid,
                        exit: exit.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string),
                        log: Launcher::log_tail(&self.files),
                    },
                    other => other,
                };
                Err((error, exit))
            }
        }
    }

    async fn adopt(
        &mut self,
        entry: Option<crate::core::agent::RegistryEntry>,
        session: &SessionId,
        run: u32,
        pane: Option<PanePlace>,
    ) -> End {
        if let Some(entry) = entry {
            match adopt_link(&entry, session, self.launcher.telling()).await {
                Ok((process, link, inbox, state, runtime_name)) => {
                    let launched = Launched { pid: entry.pid, address: entry.address.clone(), pane: pane.clone() };
                    let id = self.id.clone();
                    self.send(SupervisorEvent::Ready { id: id.clone(), launched: launched.clone() }).await;
                    self.answer_ready(Ok(launched));
                    let run = state.run;
                    self.send(SupervisorEvent::State { id, state }).await;
                    self.tell_untold(run).await;
                    let running =
                        Running { process, link, inbox, run, runtime_name: Some(runtime_name), pid: entry.pid, pane };
                    return self.run(running).await;
                }
                Err(error) => tracing::warn!(id = %self.id, %error, "a living agent could not be taken over yet"),
            }
        }
        // It lives, but can't be talked to: its end is the end of its lock.
        let path = self.files.transcript().to_path_buf();
        let mut gone = tokio::task::spawn_blocking(move || wait_shared(&path));
        loop {
            tokio::select! {
                _ = &mut gone => break,
                command = self.commands.recv() => match command {
                    Some(Command::Deliver(deliver)) => {
                        let message = "the agent still runs under an earlier lead and can't be reached".to_owned();
                        let _ = deliver.reply.send(Delivered { outcome: "refused".to_owned(), message });
                    }
                    Some(Command::Release) | None => return End::LetGo,
                    Some(
                        Command::Stop { .. }
                        | Command::SetPermissions(_)
                        | Command::Protocol(_)
                        | Command::Status(_)
                        | Command::Interrupt,
                    ) => {}
                },
            }
        }
        End::Settled(self.settle(run, None, None).await.map(Box::new))
    }

    /// From `Ready` to the settled outcome.
    async fn run(&mut self, mut running: Running) -> End {
        let mut ladder: Option<Ladder> = None;
        let mut linked = true;
        let mut broken_at: Option<Instant> = None;
        let mut reason = None;
        let mut last_event = Instant::now();
        let mut stalled = false;
        let mut exit = loop {
            let ladder_at = ladder.as_ref().and_then(Ladder::deadline);
            let stall_at = last_event + self.stall_after;
            tokio::select! {
                exit = running.process.wait() => break Some(exit),
                incoming = running.inbox.recv(), if linked => match incoming {
                    Some(incoming) => {
                        last_event = Instant::now();
                        stalled = false;
                        self.on_frame(&running, incoming).await;
                    }
                    None => {
                        // An ended link is no death yet, but a living process without one is broken.
                        linked = false;
                        broken_at = Some(Instant::now() + deadlines().link_end);
                    }
                },
                command = next_command(&mut self.early, &mut self.commands) => match command {
                    Some(Command::Deliver(deliver)) => self.deliver(&running, deliver),
                    Some(Command::Stop { reason: why, kill }) => {
                        self.mark(&running, &why);
                        reason.get_or_insert(why);
                        let rung = if kill { Rung::Kill } else { Rung::Ask };
                        let now = Instant::now();
                        let action = match &mut ladder {
                            Some(ladder) if kill => ladder.next(LadderEvent::Escalate, now),
                            Some(_) => continue,
                            None => ladder.insert(Ladder::new(rung, now)).next(LadderEvent::Started, now),
                        };
                        act(action, &running, reason.as_deref().unwrap_or_default());
                    }
                    Some(Command::SetPermissions(said)) => set_permissions(&self.id, &running.link, &said),
                    // What the link does not take, its end tells.
                    Some(Command::Protocol(message)) => drop(running.link.send(Frame::Protocol { message })),
                    Some(Command::Status(reply)) => ask_status(running.link.clone(), reply),
                    Some(Command::Interrupt) => drop(running.link.send(Frame::Interrupt)),
                    Some(Command::Release) => {
                        // One that is frozen finds it in its socket when it goes on.
                        let _ = running.link.request(Frame::Release, deadlines().status).await;
                        return End::LetGo;
                    }
                    // The owner is ending without a word: the agent goes on as an orphan.
                    None => return End::LetGo,
                },
                () = deadline(ladder_at), if ladder_at.is_some() => {
                    let Some(ladder) = &mut ladder else { continue };
                    let action = ladder.next(LadderEvent::DeadlinePassed, Instant::now());
                    if matches!(action, LadderAction::GiveUp) {
                        tracing::error!(id = %self.id, pid = running.pid, "the process survives SIGKILL");
                        break None;
                    }
                    act(action, &running, reason.as_deref().unwrap_or_default());
                }
                () = deadline(broken_at), if broken_at.is_some() && ladder.is_none() => {
                    let now = Instant::now();
                    let action = ladder.insert(Ladder::new(Rung::Term, now)).next(LadderEvent::Started, now);
                    act(action, &running, "");
                }
                () = deadline(Some(stall_at)), if !stalled && ladder.is_none() => {
                    stalled = true;
                    let id = self.id.clone();
                    self.send(SupervisorEvent::Stalled { id, silent: self.stall_after }).await;
                }
            }
        };
        // The agent's last words may still be in the socket; its file is what counts.
        running.link.close();
        if let Some(pane) = &running.pane {
            let keep = if ladder.is_some() { Keep::No } else { Keep::IfItFailed };
            exit = pane_ended(&self.id, pane, self.launcher.environment(), keep).await.or(exit);
        }
        End::Settled(self.settle(running.run, exit, running.runtime_name).await.map(Box::new))
    }

    async fn on_frame(&mut self, running: &Running, incoming: Incoming) {
        let id = self.id.clone();
        match incoming.frame {
            Frame::State { state } => self.send(SupervisorEvent::State { id, state }).await,
            Frame::Call { tool, tool_use_id, input } => {
                let (reply, answer) = oneshot::channel();
                self.send(SupervisorEvent::Call { id, tool, tool_use_id, input, reply }).await;
                let link = running.link.clone();
                tokio::spawn(async move {
                    let output = answer.await.unwrap_or_else(|_| {
                        crate::tool::ToolOutput::error("the lead is ending and did not carry it out")
                    });
                    let result = Frame::CallResult {
                        text: output.text,
                        is_error: output.is_error,
                        structured: output.structured,
                    };
                    let _ = link.reply(incoming.seq, result);
                });
            }
            Frame::Permission { question } => {
                let (reply, answer) = oneshot::channel();
                self.send(SupervisorEvent::Permission { id, question, reply }).await;
                let link = running.link.clone();
                tokio::spawn(async move {
                    // A lead that ends without an answer leaves the question to its successor.
                    if let Ok(verdict) = answer.await {
                        let _ = link.reply(incoming.seq, Frame::PermissionAnswer { verdict });
                    }
                });
            }
            Frame::Protocol { message } => self.send(SupervisorEvent::Protocol { id, message }).await,
            told @ (Frame::Entry { .. } | Frame::Compacting | Frame::ReplyPart { .. } | Frame::ModelWaits(_)) => {
                self.on_told(told).await;
            }
            Frame::Ping => {
                let _ = running.link.reply(incoming.seq, Frame::Pong);
            }
            // A hint: the line in the file counts, and it is read when the process is gone.
            Frame::Outcome { .. } | Frame::Progress { .. } => {}
            _ => {
                let message = "a lead can't do that for an agent".to_owned();
                let _ = running.link.reply(incoming.seq, Frame::Error { code: "unsupported".to_owned(), message });
            }
        }
    }

    /// Hands a message over in a task of its own, so that a frozen agent holds nothing up.
    fn deliver(&self, running: &Running, deliver: Deliver) {
        let link = running.link.clone();
        let pid = running.pid;
        let over = self.over.clone();
        tokio::spawn(async move {
            let answer = match link.request(Frame::Deliver(deliver.delivery), deadlines().reply).await {
                Ok(Frame::Delivered(delivered)) => delivered,
                Ok(Frame::Error { message, .. }) => Delivered { outcome: "refused".to_owned(), message },
                Ok(_) => {
                    Delivered { outcome: "refused".to_owned(), message: "the agent answered something else".to_owned() }
                }
                Err(WireError::Closed) => ended(),
                Err(WireError::TimedOut { .. }) => {
                    Delivered { outcome: "refused".to_owned(), message: not_answering(pid) }
                }
                Err(error) => Delivered { outcome: "refused".to_owned(), message: error.to_string() },
            };
            if answer.outcome == ENDED {
                // Whoever hears it tries again at once, and would find the agent still running.
                over.cancelled().await;
            }
            let _ = deliver.reply.send(answer);
        });
    }

    /// The marker is there before the first signal, so that a kill is told from a crash.
    fn mark(&self, running: &Running, reason: &str) {
        if let Err(error) = mark_stop(&self.files, running.run, reason) {
            tracing::warn!(id = %self.id, %error, "the stop marker was not written");
        }
        fault::point(Fault::MarkerBeforeSignal);
    }
}

/// What became of a message whose receiver's run is over.
const ENDED: &str = "ended";

fn ended() -> Delivered {
    Delivered { outcome: ENDED.to_owned(), message: "the agent's run is over".to_owned() }
}

/// Resolves when the owner wants the agent gone; what else it asks meanwhile waits in `early`.
async fn stop_asked(commands: &mut mpsc::Receiver<Command>, early: &mut VecDeque<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Stop { .. }) | None => return,
            Some(command) => early.push_back(command),
        }
    }
}

/// Asks in a task of its own, so that a frozen agent holds nothing up. Without an answer `reply` is dropped.
/// A member answers when it has looked at its mail and cards, for which it may wait for the team's lock.
fn ask_status(link: Link, reply: oneshot::Sender<Box<LiveState>>) {
    tokio::spawn(async move {
        if let Ok(Frame::StatusReply { state, .. }) = link.request(Frame::Status, deadlines().lock).await {
            let _ = reply.send(state);
        }
    });
}

async fn next_command(early: &mut VecDeque<Command>, commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
    match early.pop_front() {
        Some(command) => Some(command),
        None => commands.recv().await,
    }
}

fn act(action: LadderAction, running: &Running, reason: &str) {
    match action {
        LadderAction::AskStop => {
            let _ = running.link.send(Frame::Stop { id: None, kill: false, reason: reason.to_owned() });
        }
        LadderAction::TermGroup => report(running.pid, running.process.terminate()),
        LadderAction::KillGroup => report(running.pid, running.process.kill()),
        LadderAction::Done | LadderAction::GiveUp | LadderAction::Wait => {}
    }
}

fn report(pid: i32, signalled: std::io::Result<bool>) {
    if let Err(error) = signalled {
        tracing::warn!(pid, %error, "the agent's process could not be signalled");
    }
}

/// The last run a transcript knows, 0 if there is none.
pub(super) fn last_run(files: &AgentFiles) -> Result<u32, StoreError> {
    match tail(files.transcript()) {
        Ok(tail) => Ok(tail.last_run),
        Err(StoreError::Missing { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
