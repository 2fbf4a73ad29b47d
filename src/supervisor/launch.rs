//! How an agent's process is started: which program, with what environment, under what name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::LaunchError;
use crate::core::agent::{Owner, RegistryEntry};
use crate::core::env::Vars;
use crate::core::frame::{AgentConfig, Prompt, Telling, Welcome};
use crate::core::paths::AgentFiles;
use crate::core::provider::ProviderAccess;

/// How agents of one lead are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: Arc<Path>,
    given: Arc<Given>,
    starting: Arc<Semaphore>,
}

/// Agents that may be between their start and `Ready` at a time. More would only take the processor
/// from each other, and with it the time that each has to get ready.
const STARTING: usize = 32;

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
    },
    /// A process that another lead started and that lives on.
    Adopt {
        /// Its registry entry; none = it holds its transcript's lock but is not registered (yet).
        entry: Option<Box<RegistryEntry>>,
        /// The session that adopts.
        session: crate::core::ids::SessionId,
        /// Its run, as far as the transcript tells.
        run: u32,
    },
}

impl Launcher {
    /// Agents run `name`, which is next to the running program or on PATH.
    pub fn find(name: &'static str, given: Given) -> Result<Self, LaunchError> {
        let here = std::env::current_exe().ok().and_then(|p| p.parent().map(Path::to_path_buf)).unwrap_or_default();
        let beside = here.join(name);
        let program = if beside.is_file() {
            beside
        } else {
            which::which(name).map_err(|_| LaunchError::ProgramMissing { name, beside: here })?
        };
        Ok(Self { program: program.into(), given: Arc::new(given), starting: Arc::new(Semaphore::new(STARTING)) })
    }

    /// Waits for a place among those that start; it is given back when the permit is dropped.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed, so there is a place sooner or later.
        Arc::clone(&self.starting).acquire_owned().await.ok()
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.program.to_path_buf()
    }

    /// Environment of an agent's process.
    pub fn environment(&self) -> &[(String, String)] {
        &self.given.environment
    }

    /// Arguments: they tell `ps` and tmux who is who, nothing more.
    pub fn arguments(config: &AgentConfig) -> Vec<String> {
        let mut args = vec!["--role".to_owned(), "worker".to_owned(), "--id".to_owned(), config.id.as_str().to_owned()];
        args.extend(["--session".to_owned(), config.session.as_str().to_owned()]);
        args
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
