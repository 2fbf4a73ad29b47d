//! What a session is run with, and what is reported of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::cost::ModelUse;
use crate::core::agent::{Denial, Leftover, Owner};
use crate::core::env::Vars;
use crate::core::frame::PermissionRules;
use crate::core::ids::{AgentId, SessionId};
use crate::core::message::Usage;
use crate::core::paths::ConfigDir;
use crate::permission::Mode;
use crate::proc::StopSignal;
use crate::settings::models::{ModelTable, ResolvedModel};
use crate::settings::{Settings, SettingsSources};

/// Which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one of this id.
    New(SessionId),
    /// An existing one.
    Resume(SessionId),
    /// The latest one of the working folder.
    Continue,
}

/// What becomes of questions of permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Questions {
    /// Nobody is asked: they are denied at once.
    #[default]
    Denied,
    /// They wait at the session's desk for the person's answer.
    Desk,
}

/// Where members of a team run (spec 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeammateMode {
    /// In panes if the lead runs inside tmux, else without a terminal.
    #[default]
    Auto,
    /// Without a terminal.
    Headless,
    /// In panes beside the lead's own; without tmux nowhere.
    Tmux,
    /// In panes on a tmux server of the session's own.
    Private,
}

impl TeammateMode {
    /// What `teammateMode` and `--teammate-mode` say; the error names what they can say.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            // Of other programs, whose members may be inside the lead.
            "headless" | "in-process" => Ok(Self::Headless),
            "tmux" => Ok(Self::Tmux),
            other => Err(format!("{other:?} is no teammate mode; there are auto, headless (or in-process) and tmux")),
        }
    }
}

/// As what a process opens a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// As its lead: in the registry, to be talked to, owner of its agents.
    #[default]
    Lead,
    /// For one act in place of a lead that it has not: what it starts goes on without an owner.
    StandIn,
}

impl Standing {
    /// Who owns what such a process starts.
    pub(super) fn owner(self) -> Owner {
        match self {
            Self::Lead => Owner::Lead,
            Self::StandIn => Owner::None,
        }
    }
}

/// Everything a session depends on: the command line, the environment and the settings resolved
/// to values, so that nothing below reads them again.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Config folder.
    pub config_dir: ConfigDir,
    /// Runtime folder.
    pub runtime_dir: PathBuf,
    /// Working folder, a real path.
    pub cwd: PathBuf,
    /// Home folder.
    pub home: Option<PathBuf>,
    /// This process's environment.
    pub environment: Vars,
    /// Settings.
    pub settings: Arc<Settings>,
    /// Rules of settings and flags.
    pub rules: PermissionRules,
    /// Where rules and mode come from: read again when a file changes.
    pub sources: Arc<SettingsSources>,
    /// Permission mode.
    pub mode: Mode,
    /// Who is asked what neither rules nor the mode decide.
    pub questions: Questions,
    /// The model.
    pub model: ResolvedModel,
    /// All models.
    pub models: ModelTable,
    /// Which session.
    pub session: SessionChoice,
    /// Goes on with a copy of that session under this id, and leaves the session itself alone.
    pub fork: Option<SessionId>,
    /// As what it is opened.
    pub standing: Standing,
    /// Coordinator mode asked for, and by what.
    pub coordinator: Option<&'static str>,
    /// What the model is told first.
    pub prompt: Option<String>,
    /// Most replies of the run.
    pub max_turns: Option<u32>,
    /// Answers when the model is overloaded or broken.
    pub fallback: Option<ResolvedModel>,
    /// Most USD of the run, its agents included.
    pub max_budget_usd: Option<f64>,
    /// The only tools of the main conversation; none = all of its role.
    pub tools: Option<Vec<String>>,
    /// Schema of the answer.
    pub json_schema: Option<Value>,
    /// Whether the run ends with the main turn and leaves agents running.
    pub detach: bool,
    /// Replaces the system prompt.
    pub system_prompt: Option<String>,
    /// Is added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Where members of a team run.
    pub teammates: TeammateMode,
    /// Whether agents' coming and going is told on stderr.
    pub progress: bool,
}

/// What is known of a session's live process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLead {
    /// Its pid.
    pub pid: i32,
    /// Its address.
    pub address: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// With this text.
    Answer(String),
    /// At the limit of replies.
    MaxTurns,
    /// More was spent than is permitted; in words.
    Budget(String),
    /// The model failed.
    Failed {
        /// HTTP status, if it was the API's error.
        status: Option<u16>,
        /// In words.
        message: String,
    },
    /// A signal ended it.
    Quit(StopSignal),
}

/// What is reported of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The session, always resumable.
    pub session: SessionId,
    /// How it ended.
    pub end: RunEnd,
    /// Replies of the model.
    pub turns: u64,
    /// Tokens of the main conversation.
    pub usage: Usage,
    /// Tokens and cost by model, agents included.
    pub models: Vec<ModelUse>,
    /// The answer in the form of the schema that was asked for.
    pub structured: Option<Value>,
    /// Whether the session was handed over: it goes on elsewhere.
    pub handed_over: bool,
    /// Agents that were left running.
    pub detached: Vec<AgentId>,
    /// Background shells that were ended because the run was over or had waited long enough, and what
    /// other processes tools had left.
    pub leftovers: Vec<Leftover>,
    /// Calls that were not permitted, of the main conversation and then of agents.
    pub denials: Vec<Denial>,
    /// Wall time.
    pub duration: Duration,
    /// Time in model calls.
    pub api_time: Duration,
    /// Why the last reply ended.
    pub stop_reason: Option<String>,
}
