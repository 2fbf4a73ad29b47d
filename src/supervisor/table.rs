//! The owner's table of its agents: who they are, who runs, how many may. Touched only by the
//! owner's loop; nothing here waits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::backend::{Backend, Headless};
use super::error::LaunchError;
use super::event::{Command, Launched, SupervisorEvent};
use super::launch::{Launcher, Start};
use super::life::{Life, last_run};
use super::lines::Room;
use crate::core::agent::{LiveState, Meta, Outcome};
use crate::core::frame::{AgentConfig, Prompt};
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::{AgentFiles, ConfigDir, SessionFiles};
use crate::store::StoreError;
use crate::store::runtime::RuntimeDir;
use crate::store::session::{record_spawn, undo_spawn, unlink};

/// Commands that wait in one agent's task.
const COMMANDS: usize = 1024;

/// One agent of the session.
#[derive(Debug)]
pub struct Slot {
    /// Launch facts.
    pub meta: Meta,
    /// Its files.
    pub files: AgentFiles,
    /// Whether it runs.
    pub state: SlotState,
    /// Its latest run.
    pub run: u32,
    /// Whether that run's end was read by `TaskOutput`.
    pub retrieved: bool,
}

/// Whether an agent runs.
#[derive(Debug)]
pub enum SlotState {
    /// Its task lives.
    Live {
        /// To its task.
        commands: mpsc::Sender<Command>,
        /// Its process, once it is known.
        pid: Option<i32>,
        /// What it said of itself last.
        live: Option<Box<LiveState>>,
    },
    /// Its run is over.
    Ended,
}

/// All agents of one session.
pub struct Supervisor {
    launcher: Launcher,
    config_dir: ConfigDir,
    session: SessionId,
    session_files: SessionFiles,
    runtime: RuntimeDir,
    stall_after: Duration,
    max_alive: usize,
    max_total: usize,
    agents: HashMap<AgentId, Slot>,
    room: Room,
    events: mpsc::Sender<SupervisorEvent>,
}

/// What a supervisor is made of.
pub struct SupervisorParts {
    /// How agents are started.
    pub launcher: Launcher,
    /// Config folder.
    pub config_dir: ConfigDir,
    /// The session.
    pub session: SessionId,
    /// Its files.
    pub session_files: SessionFiles,
    /// Runtime folder.
    pub runtime: RuntimeDir,
    /// `lead.stallAfter`.
    pub stall_after: Duration,
    /// `lead.maxAgents`.
    pub max_alive: usize,
    /// `lead.maxAgentsTotal`.
    pub max_total: usize,
    /// The owner's loop.
    pub events: mpsc::Sender<SupervisorEvent>,
}

/// What a start gives back.
pub type ReadyReceiver = oneshot::Receiver<Result<Launched, LaunchError>>;

impl Supervisor {
    /// An empty table.
    pub fn new(parts: SupervisorParts) -> Self {
        Self {
            launcher: parts.launcher,
            config_dir: parts.config_dir,
            session: parts.session,
            session_files: parts.session_files,
            runtime: parts.runtime,
            stall_after: parts.stall_after,
            max_alive: parts.max_alive,
            max_total: parts.max_total,
            agents: HashMap::new(),
            room: Room::new(),
            events: parts.events,
        }
    }

    /// An agent by id.
    pub fn get(&self, id: &AgentId) -> Option<&Slot> {
        self.agents.get(id)
    }

    /// All agents.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Slot)> {
        self.agents.iter()
    }

    /// The agent of this name; of several the living one, else the latest.
    pub fn by_name(&self, name: &str) -> Option<&AgentId> {
        self.agents
            .iter()
            .filter(|(_, slot)| slot.meta.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name)))
            .max_by_key(|(_, slot)| (slot.is_live(), slot.meta.created_at))
            .map(|(id, _)| id)
    }

    /// The agent that this call started.
    pub fn by_tool_use(&self, tool_use_id: &str) -> Option<&AgentId> {
        self.agents.iter().find(|(_, s)| s.meta.tool_use_id.as_deref() == Some(tool_use_id)).map(|(id, _)| id)
    }

    /// Ids of those that run.
    pub fn live(&self) -> Vec<AgentId> {
        self.agents.iter().filter(|(_, s)| s.is_live()).map(|(id, _)| id.clone()).collect()
    }

    /// Whether any runs.
    pub fn any_live(&self) -> bool {
        self.agents.values().any(Slot::is_live)
    }

    /// Whether an agent is between its start and `Ready`.
    pub fn any_starting(&self) -> bool {
        self.agents.values().any(|slot| matches!(slot.state, SlotState::Live { pid: None, .. }))
    }

    /// Whether one more may start; the refusal names the setting (R101).
    pub fn check_room(&self, fresh: bool) -> Result<(), String> {
        let alive = self.agents.values().filter(|s| s.is_live()).count();
        if alive >= self.max_alive {
            return Err(format!(
                "{alive} agents are alive, which is the limit set by lead.maxAgents ({}); wait for one to end, or stop one",
                self.max_alive
            ));
        }
        if fresh && self.agents.len() >= self.max_total {
            return Err(format!(
                "this session has started {} agents, which is the limit set by lead.maxAgentsTotal ({}); continue an agent with SendMessage instead",
                self.agents.len(),
                self.max_total
            ));
        }
        Ok(())
    }

    /// The files a new agent will have.
    pub fn files_of(&self, id: &AgentId) -> AgentFiles {
        self.session_files.agent(id)
    }

    /// Starts a new agent: link and meta first, then the process (spec 4.1).
    pub fn spawn(&mut self, meta: Meta, config: AgentConfig, prompt: Prompt) -> Result<ReadyReceiver, LaunchError> {
        let id = config.id.clone();
        let files = self.files_of(&id);
        record_spawn(&self.config_dir, &files, &id, &meta)?;
        crate::core::fault::point(crate::core::fault::Fault::MetaBeforeProcess);
        let run = config.run;
        Ok(self.start(
            id,
            meta,
            files,
            run,
            Start::Spawn { config: Box::new(config), prompt, backend: Arc::new(Headless) },
        ))
    }

    /// Starts a new member of a team, whose transcript is a session of its own. A link that an earlier
    /// member of this name left behind is replaced: the name is this one's now.
    pub fn spawn_member(
        &mut self,
        meta: Meta,
        config: AgentConfig,
        prompt: Prompt,
        files: AgentFiles,
        backend: Arc<dyn Backend>,
    ) -> Result<ReadyReceiver, LaunchError> {
        let id = config.id.clone();
        unlink(&self.config_dir, &id)?;
        record_spawn(&self.config_dir, &files, &id, &meta)?;
        crate::core::fault::point(crate::core::fault::Fault::MetaBeforeProcess);
        let run = config.run;
        Ok(self.start(id, meta, files, run, Start::Spawn { config: Box::new(config), prompt, backend }))
    }

    /// Knows nothing more of an agent that has ended and is not to come back.
    pub fn forget(&mut self, id: &AgentId) {
        if self.agents.get(id).is_some_and(|slot| !slot.is_live()) {
            self.agents.remove(id);
        }
    }

    /// Starts the next run of an agent that has ended.
    pub fn resume(&mut self, id: &AgentId, config: AgentConfig, prompt: Prompt) -> Option<ReadyReceiver> {
        self.resume_in(id, config, prompt, Arc::new(Headless))
    }

    /// The same, by another backend.
    pub fn resume_in(
        &mut self,
        id: &AgentId,
        config: AgentConfig,
        prompt: Prompt,
        backend: Arc<dyn Backend>,
    ) -> Option<ReadyReceiver> {
        let slot = self.agents.get(id)?;
        let (meta, files, run) = (slot.meta.clone(), slot.files.clone(), config.run);
        Some(self.start(id.clone(), meta, files, run, Start::Spawn { config: Box::new(config), prompt, backend }))
    }

    /// Takes over an agent that an earlier lead of this session started.
    pub fn adopt(&mut self, id: AgentId, meta: Meta, files: AgentFiles, run: u32, start: Start) -> ReadyReceiver {
        self.start(id, meta, files, run, start)
    }

    /// Knows of an agent that has ended.
    pub fn insert_ended(&mut self, id: AgentId, meta: Meta, files: AgentFiles, run: u32) {
        self.agents.insert(id, Slot { meta, files, state: SlotState::Ended, run, retrieved: false });
    }

    /// Knows of an agent that runs and is not this process's to command: it only takes up room.
    pub fn insert_elsewhere(&mut self, id: AgentId, meta: Meta, files: AgentFiles, run: u32) {
        let (commands, _) = mpsc::channel(1);
        self.agents.insert(
            id,
            Slot { meta, files, state: SlotState::Live { commands, pid: None, live: None }, run, retrieved: false },
        );
    }

    /// The run that a resume of this agent would be.
    pub fn next_run(&self, id: &AgentId) -> Result<u32, StoreError> {
        let Some(slot) = self.agents.get(id) else {
            return Err(StoreError::Missing { path: PathBuf::from(id.as_str()) });
        };
        match last_run(&slot.files)? {
            0 => Err(StoreError::Missing { path: slot.files.transcript().to_path_buf() }),
            run => Ok(run + 1),
        }
    }

    fn start(&mut self, id: AgentId, meta: Meta, files: AgentFiles, run: u32, start: Start) -> ReadyReceiver {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (ready, answer) = oneshot::channel();
        let life = Life {
            id: id.clone(),
            session: self.session.clone(),
            files: files.clone(),
            runtime: self.runtime.clone(),
            launcher: self.launcher.clone(),
            stall_after: self.stall_after,
            commands: receiver,
            events: self.events.clone(),
            ready: Some(ready),
            early: VecDeque::new(),
            over: CancellationToken::new(),
            told: HashSet::new(),
            room: self.room.clone(),
        };
        tokio::spawn(life.live(start));
        let state = SlotState::Live { commands, pid: None, live: None };
        self.agents.insert(id, Slot { meta, files, state, run, retrieved: false });
        answer
    }

    /// Sends a command to an agent that runs; false if it does not, or has too many waiting.
    #[must_use]
    pub fn command(&self, id: &AgentId, command: Command) -> bool {
        match self.agents.get(id).map(|s| &s.state) {
            Some(SlotState::Live { commands, .. }) => commands.try_send(command).is_ok(),
            _ => false,
        }
    }

    /// The way to a living agent's task, for a task that asks it more than once.
    pub fn commands_of(&self, id: &AgentId) -> Option<mpsc::Sender<Command>> {
        match self.agents.get(id).map(|slot| &slot.state) {
            Some(SlotState::Live { commands, .. }) => Some(commands.clone()),
            _ => None,
        }
    }

    /// The end of its latest run was read by `TaskOutput`.
    pub fn mark_retrieved(&mut self, id: &AgentId) {
        if let Some(slot) = self.agents.get_mut(id) {
            slot.retrieved = true;
        }
    }

    /// Keeps the table true. The owner's loop calls it with every event before it acts on it.
    pub fn note(&mut self, event: &SupervisorEvent) {
        match event {
            SupervisorEvent::Ready { id, launched } => {
                if let Some(SlotState::Live { pid, .. }) = self.agents.get_mut(id).map(|s| &mut s.state) {
                    *pid = Some(launched.pid);
                }
            }
            SupervisorEvent::State { id, state } => {
                if let Some(slot) = self.agents.get_mut(id) {
                    slot.run = state.run;
                    if let SlotState::Live { live, .. } = &mut slot.state {
                        *live = Some(state.clone());
                    }
                }
            }
            SupervisorEvent::Ended { id, outcome } => self.note_ended(id, outcome),
            SupervisorEvent::NotStarted { id, fresh: true } => {
                if let Some(slot) = self.agents.remove(id)
                    && let Err(error) = undo_spawn(&self.config_dir, &slot.files, id)
                {
                    tracing::warn!(%id, %error, "what was made for an agent that never started is still there");
                }
            }
            SupervisorEvent::NotStarted { id, fresh: false } | SupervisorEvent::LetGo { id } => {
                if let Some(slot) = self.agents.get_mut(id) {
                    slot.state = SlotState::Ended;
                }
            }
            SupervisorEvent::Line { .. }
            | SupervisorEvent::Doing { .. }
            | SupervisorEvent::Call { .. }
            | SupervisorEvent::Permission { .. }
            | SupervisorEvent::Protocol { .. }
            | SupervisorEvent::Stalled { .. } => {}
        }
    }

    fn note_ended(&mut self, id: &AgentId, outcome: &Outcome) {
        if let Some(slot) = self.agents.get_mut(id) {
            slot.state = SlotState::Ended;
            slot.run = outcome.run;
        }
    }
}

impl Slot {
    /// Whether its task lives.
    pub fn is_live(&self) -> bool {
        matches!(self.state, SlotState::Live { .. })
    }
}
