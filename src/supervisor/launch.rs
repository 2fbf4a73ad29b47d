//! How an agent's process is started: which program, with what environment, under what name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::backend::{Backend, PanePlace};
use super::error::LaunchError;
use crate::core::agent::{Owner, RegistryEntry};
use crate::core::env::Vars;
use crate::core::frame::{AgentConfig, Prompt, Telling, Welcome};
use crate::core::paths::AgentFiles;
use crate::core::provider::ProviderAccess;

/// How agents of one lead are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    worker: Arc<Path>,
    given: Arc<Given>,
    starting: Arc<Semaphore>,
}

/// Agents that may be between their start and `Ready` at a time. More would only take the processor
/// from each other, and with it the time that each has to get ready.
const STARTING: usize = 32;

/// The programs of agents: workers, and members of teams.
pub const AGENT_PROGRAMS: [&str; 2] = ["lead-worker", "lead-teammate"];

/// Where a program of this build is: next to the running one, else on PATH.
pub fn locate(name: &'static str) -> Result<PathBuf, LaunchError> {
    let here = std::env::current_exe().ok().and_then(|p| p.parent().map(Path::to_path_buf)).unwrap_or_default();
    let beside = here.join(name);
    if beside.is_file() {
        return Ok(beside);
    }
    which::which(name).map_err(|_| LaunchError::ProgramMissing { name, beside: here })
}

/// What every agent of one lead is given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Environment of its process.
    pub environment: Vars,
    /// Variables that only its tools have.
    pub secrets: Vars,
    /// How it reaches its model.
    pub access: ProviderAccess,
    /// What it tells its lead of its conversation.
    pub telling: Telling,
    /// Whether who starts it owns it, or it goes on without an owner.
    pub owner: Owner,
}

/// How an agent comes under supervision.
#[derive(Debug)]
pub enum Start {
    /// A new process.
    Spawn {
        /// Who it is.
        config: Box<AgentConfig>,
        /// What it is told first.
        prompt: Prompt,
        /// What runs it.
        backend: Arc<dyn Backend>,
    },
    /// A process that another lead started and that lives on.
    Adopt {
        /// Its registry entry; none = it holds its transcript's lock but is not registered (yet).
        entry: Option<Box<RegistryEntry>>,
        /// The session that adopts.
        session: crate::core::ids::SessionId,
        /// Its run, as far as the transcript tells.
        run: u32,
        /// Its pane, as far as the roster tells.
        pane: Option<PanePlace>,
    },
}

impl Launcher {
    /// Agents run `lead-worker`, which is next to the running program or on PATH; members of a team
    /// run `lead-teammate`.
    pub fn find(given: Given) -> Result<Self, LaunchError> {
        let worker = locate("lead-worker")?.into();
        Ok(Self { worker, given: Arc::new(given), starting: Arc::new(Semaphore::new(STARTING)) })
    }

    /// Waits for a place among those that start; it is given back when the permit is dropped.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed, so there is a place sooner or later.
        Arc::clone(&self.starting).acquire_owned().await.ok()
    }

    /// The program of this agent.
    pub fn program(&self, config: &AgentConfig) -> Result<PathBuf, LaunchError> {
        match config.membership {
            Some(_) => locate("lead-teammate"),
            None => Ok(self.worker.to_path_buf()),
        }
    }

    /// Environment of an agent's process.
    pub fn environment(&self) -> &[(String, String)] {
        &self.given.environment
    }

    /// Arguments: they tell `ps` and tmux who is who, nothing more.
    pub fn arguments(config: &AgentConfig) -> Vec<String> {
        let (role, session) = match &config.membership {
            Some(membership) => ("teammate", &membership.session),
            None => ("worker", &config.session),
        };
        ["--role", role, "--id", config.id.as_str(), "--session", session.as_str()].map(str::to_owned).to_vec()
    }

    /// What the process is told.
    pub fn welcome(&self, config: AgentConfig, prompt: Prompt) -> Welcome {
        Welcome {
            config,
            prompt,
            secrets: self.given.secrets.clone(),
            owner: self.given.owner,
            access: self.given.access.clone(),
            telling: self.given.telling,
        }
    }

    /// What agents tell of their conversations.
    pub fn telling(&self) -> Telling {
        self.given.telling
    }

    /// The end of an agent's log, for errors: on lines of its own, or empty.
    pub fn log_tail(files: &AgentFiles) -> String {
        let Ok(text) = std::fs::read(files.log()) else { return String::new() };
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        let tail: Vec<&str> = lines.into_iter().rev().collect();
        if tail.is_empty() { String::new() } else { format!("\n{}", crate::core::text::for_terminal(&tail.join("\n"))) }
    }
}
