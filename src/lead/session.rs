//! The lead's loop: every source becomes one call, handled one at a time. A headless run (`-p`)
//! ends when the turn is over, nothing is queued and no agent runs (spec 7.1).

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::ask::{Ask, Asker};
use super::cost::Ledger;
use super::desk::Desk;
use super::error::LeadError;
use super::knowledge::Known;
use super::message::Underway;
use super::notify::notification;
use super::options::{RunEnd, RunReport, SessionOptions};
use super::owed::Owed;
use super::queue::{Priority, Queue};
use super::quit::Quit;
use super::reload::SettingsWatch;
use super::report::Reported;
use super::setup::open;
use super::structured::Given;
use super::team::{Led, News, Seat};
use super::told::{InputKind, Inputs, Streams, Task, Teller, Told};
use super::turns::hear;
use crate::agent::{Driver, Event as AgentEvent, Input, TurnEnd, still_running};
use crate::core::agent::{Denial, Leftover, LiveState, Outcome, RowState};
use crate::core::clock;
use crate::core::entry::Place;
use crate::core::frame::Frame;
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::paths::SessionFiles;
use crate::endpoint::{Arrivals, Asked, PortCall, TeamWatch, Visit, changes_of};
use crate::model::MeteredModel;
use crate::permission::SharedPolicy;
use crate::proc::{Signals, deadline};
use crate::store::runtime::{Registration, RuntimeDir};
use crate::supervisor::{Nursery, Supervisor, SupervisorEvent};
use crate::tool::ToolOutput;
use crate::tool::shell::{ShellEvent, Shells};
use crate::tool::tasks::TaskTool;
use crate::wire::Link;

/// What tasks of the loop send back to it.
pub(super) enum Inner {
    /// A call that needs another round.
    Ask(Ask),
    /// An agent to stop.
    Stop { id: AgentId, reason: String },
    /// A foreground agent that goes on in the background.
    Background { id: AgentId },
    /// A `TaskOutput` that has waited.
    Output { ask: Ask, id: AgentId },
    /// A rule that the person gave for a question, and that is written down by now.
    Permitted { rule: String },
    /// Something to tell the model when it has time for it.
    Notice(Input),
    /// Something became of the team.
    Team(Box<News>),
}

/// A session that runs.
pub(super) struct Session {
    pub options: SessionOptions,
    pub id: SessionId,
    pub files: SessionFiles,
    pub place: Place,
    pub runtime: RuntimeDir,
    pub runtime_name: String,
    pub registration: Option<Registration>,
    pub state: LiveState,
    pub policy: SharedPolicy,
    pub scratchpad: Option<PathBuf>,
    /// What people wrote down for its agents.
    pub known: Known,
    pub coordinator: bool,
    pub driver: Driver,
    /// Whom the driver asks.
    pub model: Arc<MeteredModel>,
    pub ledger: Ledger,
    /// The answer that fits the schema, once there is one.
    pub given: Given,
    /// How often the model was told to give it.
    pub reminders: u32,
    /// Whether the fallback model's start was told.
    pub switched: bool,
    /// How the run ends, if that is decided otherwise than by its last turn.
    pub verdict: Option<RunEnd>,
    /// Agents that were let go; none = not yet.
    pub detached: Option<Vec<AgentId>>,
    pub queue: Queue,
    pub supervisor: Supervisor,
    /// Calls that wait for a foreground agent's outcome.
    pub foreground: HashMap<AgentId, oneshot::Sender<Outcome>>,
    /// Stops that wait for an outcome.
    pub watchers: HashMap<AgentId, Vec<oneshot::Sender<Outcome>>>,
    /// Ids of messages taken in.
    pub seen: HashSet<String>,
    /// Runs whose end was handed on. An agent that is taken over between its outcome line and its
    /// exit has its end both on disk, where a resume finds it, and still to come as an event.
    pub told: HashSet<(AgentId, u32)>,
    pub inner: mpsc::Sender<Inner>,
    pub quit: Option<Quit>,
    pub last_end: Option<TurnEnd>,
    /// When an agent was last heard of.
    pub last_event: Instant,
    pub published: Instant,
    pub dirty: bool,
    pub teller: Teller,
    /// What is said after the start; none = nothing more is.
    pub inputs: Option<Inputs>,
    pub input_kind: Option<InputKind>,
    /// What was said and can't be used.
    pub unusable: Option<String>,
    pub owed: Owed,
    pub reported: Reported,
    /// Background shells of the main conversation.
    pub shells: Shells,
    /// Those of them that the end of something ended.
    pub leftovers: Vec<Leftover>,
    /// Questions that wait for the person's answer.
    pub desk: Desk,
    /// Rules that the person gave for questions of this run.
    pub permitted: HashSet<String>,
    /// Calls of agents that were not permitted, since the latest report.
    pub denied: Vec<Denial>,
    pub arrivals: Arrivals,
    /// Messages on their way to other processes.
    pub underway: Underway,
    /// The session is let go after this turn; its agents are orphans until the next lead comes.
    pub handing_over: bool,
    /// Who is told before this process ends that it does.
    pub partings: Vec<Link>,
    /// Who wants to know when nothing is left to do, and of which message they asked it.
    pub idle_watchers: Vec<(Link, String)>,
    /// The team it leads.
    pub team: Option<Led>,
    pub is_making_team: bool,
    /// Where its members run.
    pub seat: Arc<Seat>,
    /// Members that are about to say hello.
    pub nursery: Nursery,
    /// A watch on another team than before, for the loop to take.
    pub next_watch: Option<Option<TeamWatch>>,
}

/// Where the loop's events come from.
pub(super) struct Sources {
    pub events: mpsc::Receiver<AgentEvent>,
    pub calls: mpsc::Receiver<PortCall>,
    pub asked: mpsc::Receiver<Asked>,
    pub supervised: mpsc::Receiver<SupervisorEvent>,
    pub inner: mpsc::Receiver<Inner>,
    pub visits: mpsc::Receiver<Visit>,
    pub shells: mpsc::Receiver<ShellEvent>,
    pub settings: SettingsWatch,
    pub team: Option<TeamWatch>,
    pub signals: Signals,
    pub unheard: CancellationToken,
}

/// Runs a session to its end.
pub async fn run(options: SessionOptions) -> Result<RunReport, LeadError> {
    run_with(options, Streams::default()).await
}

/// Runs a session to its end; what happens in it is told, and more is said to it, by `streams`.
pub async fn run_with(options: SessionOptions, streams: Streams) -> Result<RunReport, LeadError> {
    let opened = open(options, streams)?;
    let (mut session, sources) = (opened.session, opened.sources);
    if opened.resumed {
        session.bring_back(&opened.history)?;
    }
    match session.options.prompt.take() {
        Some(text) => session.queue.push(Priority::Next, Input { text, ..Input::default() }),
        None if session.inputs.is_none()
            && session.queue.is_empty()
            && !session.supervisor.any_live()
            && session.team.is_none() =>
        {
            return Err(nothing_to_do(""));
        }
        None => {}
    }
    session.live(sources).await
}

fn nothing_to_do(more: &str) -> LeadError {
    LeadError::Usage(format!("there is nothing to do: no prompt was given, and nothing waits to be delivered{more}"))
}

impl Session {
    async fn live(mut self, mut sources: Sources) -> Result<RunReport, LeadError> {
        self.settle_down();
        while !self.is_over() {
            if self.supervisor.any_live() {
                self.watch_settings(&mut sources.settings);
            }
            if let Some(watch) = self.next_watch.take() {
                sources.team = watch;
            }
            let publish_at = self.published + deadlines().state_write;
            let wait_until = self.wait_limit();
            tokio::select! {
                Some(event) = sources.events.recv() => {
                    if event.calls_tools() {
                        self.watch_settings(&mut sources.settings);
                    }
                    self.on_agent(event);
                }
                Some(call) = sources.calls.recv() => {
                    self.catch_up(&mut sources.supervised);
                    self.ask(Ask::of_main(call));
                }
                Some(Asked { question, reply }) = sources.asked.recv() => self.on_question(Asker::Main, question, reply),
                Some(event) = sources.supervised.recv() => self.on_supervised(event),
                Some(inner) = sources.inner.recv() => {
                    self.catch_up(&mut sources.supervised);
                    self.on_inner(inner);
                }
                Some(visit) = sources.visits.recv() => {
                    self.catch_up(&mut sources.supervised);
                    self.on_visit(visit);
                }
                Some(event) = sources.shells.recv() => self.on_shell(&event),
                () = sources.settings.changed() => self.on_settings_changed(),
                changes = changes_of(&mut sources.team) => self.on_team_changes(changes),
                signal = sources.signals.recv() => self.on_signal(signal),
                said = hear(&mut self.inputs), if self.takes_input() => self.on_said(said),
                () = sources.unheard.cancelled(), if self.quit.is_none() => {
                    self.begin_quit(None, "nobody reads the session's output any more");
                }
                () = deadline(Some(publish_at)), if self.dirty => self.publish(),
                () = deadline(wait_until), if wait_until.is_some() => self.on_wait_limit(),
                () = deadline(self.desk.next_until()), if self.desk.waits(None) => self.on_overdue_questions(),
            }
            self.settle_down();
        }
        self.seat.end().await;
        for link in self.partings.drain(..) {
            // Whoever asked for the end and does not listen to the answer does not need it.
            let _ = link.flush(deadlines().state_write).await;
        }
        match self.unusable.take_if(|_| self.input_kind == Some(InputKind::Prompt)) {
            Some(why) => {
                // A session in which nothing was said is none.
                if std::fs::metadata(self.files.transcript()).is_ok_and(|m| m.len() == 0) {
                    let _ = std::fs::remove_file(self.files.transcript());
                }
                Err(LeadError::Usage(why))
            }
            None if self.is_needless() && self.input_kind != Some(InputKind::Messages) => {
                let team = self.team.as_ref().map(|led| led.team.name()).unwrap_or_default();
                Err(nothing_to_do(&format!(
                    ", and team {team:?} rests; it is left as it is, and goes on with a prompt"
                )))
            }
            None => Ok(self.report()),
        }
    }

    /// Takes in what agents' tasks have said before a request is looked at: a task that has ended
    /// takes no commands any more, and its end must be known before somebody wonders why.
    fn catch_up(&mut self, supervised: &mut mpsc::Receiver<SupervisorEvent>) {
        while let Ok(event) = supervised.try_recv() {
            self.on_supervised(event);
        }
    }

    fn on_inner(&mut self, inner: Inner) {
        match inner {
            Inner::Ask(ask) => self.ask(ask),
            Inner::Notice(input) => self.queue.push(Priority::Later, input),
            Inner::Stop { id, reason } => {
                self.stop_agent(&id, &reason, false);
            }
            Inner::Background { id } => {
                self.move_to_background(&id);
            }
            Inner::Permitted { rule } => self.permit_alike(&rule),
            Inner::Output { ask, id } => self.agent_output(ask, id, Duration::ZERO),
            Inner::Team(news) => self.on_news(*news),
        }
    }

    /// Lets the call that waits for this agent go on without its answer; false if none waits.
    pub(super) fn move_to_background(&mut self, id: &AgentId) -> bool {
        let waited = self.foreground.remove(id).is_some();
        if let Some(slot) = self.supervisor.get(id).filter(|_| waited) {
            self.teller.tell(Told::Backgrounded(Task { id, meta: &slot.meta, files: &slot.files }));
        }
        waited
    }

    /// After every event: starts the next turn if something waits and none runs.
    fn settle_down(&mut self) {
        if !self.ask_for_answer() {
            self.let_go();
        }
        self.next_turn();
        self.give_results();
        self.end_team_with_session();
        self.tell_rested();
        self.consider_rest();
        let state = match (&self.quit, self.driver.is_idle()) {
            (Some(_), _) => RowState::Stopping,
            (None, true) => RowState::Idle,
            (None, false) if self.driver.is_asking() => RowState::Waiting,
            (None, false) => RowState::Running,
        };
        // What is over is taken out of the registry at once; nobody reads what it would say.
        if state == RowState::Idle && !self.any_busy() && !self.shells.any_open() && self.queue.is_empty() {
            for (link, msg_id) in self.idle_watchers.drain(..) {
                let _ = link.send(Frame::Idle { msg_id });
            }
        }
        if state != self.state.state && !self.is_over() {
            self.state.state = state;
            self.state.since_ms = clock::now_ms();
            self.publish();
        }
    }

    pub(super) fn step(&mut self, event: AgentEvent) {
        let before = self.driver.is_compacting();
        let end = self.driver.handle(event);
        if !before
            && self.driver.is_compacting()
            && let Some(reminder) = still_running(&self.agents_in_words(), &self.shells.running())
        {
            // It waits until the summary is there, and is shown behind it.
            self.driver.handle(AgentEvent::Inputs(vec![reminder]));
        }
        if let Some(end) = end {
            self.owed.turn_ended(&end);
            self.last_end = Some(end);
            // From here on the session waits for what is in the background.
            self.last_event = Instant::now();
            if self.has_failed() && self.quit.is_none() && !self.handing_over {
                // Nobody is left to use what agents would still report.
                self.begin_quit(None, "the session's run failed");
            }
        }
    }

    /// Whether the run is over by a failure. That of one message is no end for the others.
    pub(super) fn has_failed(&self) -> bool {
        let failed = matches!(self.last_end, Some(TurnEnd::Failed { .. } | TurnEnd::MaxTurns));
        failed && self.input_kind != Some(InputKind::Messages)
    }

    fn is_over(&self) -> bool {
        let at_rest = self.driver.is_idle() && !self.supervisor.any_live() && !self.shells.any_open();
        match &self.quit {
            // Who is being started is waited for: a lead that is gone before `Ready` takes it along.
            None if self.handing_over => self.driver.is_idle() && !self.supervisor.any_starting(),
            None if self.detached.is_some() => at_rest,
            Some(quit) => at_rest && self.team.is_none() || Instant::now() >= quit.deadline + deadlines().stop_kill,
            None => {
                at_rest && self.team.is_none() && self.queue.is_empty() && self.inputs.is_none()
                    || self.cant_begin()
                    || self.is_needless()
            }
        }
    }

    fn on_agent(&mut self, event: AgentEvent) {
        self.state.last_event_ms = clock::now_ms();
        self.dirty = true;
        self.note_switch();
        self.take_answer();
        self.step(event);
        self.keep_budget();
    }

    fn ask(&mut self, ask: Ask) {
        if self.quit.is_some() {
            return ask.answer(ToolOutput::error("the session is ending"));
        }
        match ask.tool.as_str() {
            "Agent" | "Task" => self.delegate(ask),
            "SendMessage" => self.send_message(ask),
            "TaskStop" => self.task_stop(ask),
            "TaskOutput" => self.task_output(ask),
            "TeamCreate" => self.team_create(ask),
            "TeamDelete" => self.team_delete(ask),
            tool if TaskTool::named(tool).is_some() => self.task_board(ask),
            other => {
                let text = format!("{other:?} is nothing that a lead carries out");
                ask.answer(ToolOutput::error(text));
            }
        }
    }

    fn on_supervised(&mut self, event: SupervisorEvent) {
        self.last_event = Instant::now();
        self.tell_of(&event);
        self.note_event(&event);
        match event {
            SupervisorEvent::Ready { .. }
            | SupervisorEvent::State { .. }
            | SupervisorEvent::Line { .. }
            | SupervisorEvent::Doing { .. } => {}
            SupervisorEvent::NotStarted { id, .. } | SupervisorEvent::LetGo { id } => {
                self.foreground.remove(&id);
                self.watchers.remove(&id);
            }
            SupervisorEvent::Call { id, tool, tool_use_id, input, reply } => {
                let has =
                    self.supervisor.get(&id).is_some_and(|s| s.meta.pool.as_ref().is_some_and(|p| p.contains(&tool)));
                let ask = Ask::of_agent(id, tool, tool_use_id, input, reply);
                if has {
                    self.ask(ask);
                } else {
                    let text = format!("{} is not among your tools", ask.tool);
                    ask.answer(ToolOutput::error(text));
                }
            }
            SupervisorEvent::Protocol { id, message } => self.on_protocol(&id, *message),
            SupervisorEvent::Permission { id, question, reply }
                if question.tool == "ExitPlanMode" && id.as_member().is_some() =>
            {
                self.on_plan(&id, &question, reply);
            }
            SupervisorEvent::Permission { id, question, reply } => self.on_question(Asker::Agent(id), question, reply),
            // It says nothing because it waits for an answer.
            SupervisorEvent::Stalled { id, .. } if self.desk.waits(Some(&id)) => {}
            SupervisorEvent::Stalled { id, silent } => self.on_stalled(&id, silent),
            SupervisorEvent::Ended { id, outcome } => self.on_ended(&id, *outcome),
        }
    }

    /// One outcome, one consumer: the call that waits for it, or a notification.
    fn on_ended(&mut self, id: &AgentId, outcome: Outcome) {
        self.say(&format!("agent {id} {}", outcome.status));
        self.forget_questions(id);
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            let _ = watcher.send(outcome.clone());
        }
        if !self.told.insert((id.clone(), outcome.run)) {
            return;
        }
        self.count_agent(id, &outcome);
        self.denied.extend_from_slice(&outcome.permission_denials);
        if id.as_member().is_some() {
            return self.on_member_ended(id, &outcome);
        }
        let outcome = match self.foreground.remove(id) {
            Some(waiting) => match waiting.send(outcome) {
                Ok(()) => return,
                Err(outcome) => outcome,
            },
            None => outcome,
        };
        if let Some(slot) = self.supervisor.get(id) {
            let input = notification(&slot.meta, &slot.files, &outcome);
            self.queue.push(Priority::Later, input);
        }
    }
}
