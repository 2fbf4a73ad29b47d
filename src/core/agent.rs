//! What an agent is on disk and in lists: launch facts, outcome of a run, progress, row.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::AgentId;
use super::message::Usage;
use super::shell::ShellState;
use super::text;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// The agent gave its final answer.
    Completed,
    /// It ended without one.
    Failed,
    /// Somebody stopped it.
    Killed,
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Killed => "killed",
        })
    }
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUsage {
    /// Latest prompt tokens + all output tokens of the run (spec 1.7).
    pub total_tokens: u64,
    /// Tool calls.
    pub tool_uses: u64,
    /// Wall time.
    pub duration_ms: u64,
}

/// A process that outlived its agent and was killed by the sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Its pid.
    pub pid: i32,
    /// Its command line, shortened.
    pub command: String,
}

/// A tool call that was not permitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denial {
    /// The tool.
    pub tool_name: String,
    /// The call.
    pub tool_use_id: String,
    /// What it was called with.
    pub tool_input: Value,
}

/// The outcome line of a run (formats A), without `type` and `subtype`, which
/// [`super::entry::Line::to_bytes`] adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The agent.
    pub agent_id: AgentId,
    /// The run that ended.
    pub run: u32,
    /// How it ended.
    pub status: RunStatus,
    /// Its final text, or what there was of it.
    #[serde(default)]
    pub result: Option<String>,
    /// Why it failed or who killed it.
    #[serde(default)]
    pub error: Option<String>,
    /// Exit code, where it is known and no signal ended the process.
    #[serde(default)]
    pub exit: Option<i32>,
    /// Name of the signal that ended the process, such as `SIGKILL`.
    #[serde(default)]
    pub signal: Option<String>,
    /// What the run used.
    #[serde(default)]
    pub usage: RunUsage,
    /// The tokens of all its replies, added up: what was paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Usage>,
    /// Tool calls that were not permitted.
    #[serde(default)]
    pub permission_denials: Vec<Denial>,
    /// What the sweep killed.
    #[serde(default)]
    pub leftovers: Vec<Leftover>,
    /// Id of the line.
    #[serde(default)]
    pub uuid: String,
    /// ISO 8601.
    #[serde(default)]
    pub timestamp: String,
    /// The session the agent belongs to.
    #[serde(default)]
    pub session_id: String,
    /// Always true.
    #[serde(default)]
    pub is_sidechain: bool,
}

/// `agent-a….meta.json`: launch facts, written once by the spawner before the process starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The type of agent.
    pub agent_type: String,
    /// 3-5 words.
    #[serde(default)]
    pub description: String,
    /// Addressable name.
    #[serde(default)]
    pub name: Option<String>,
    /// The call that started it.
    #[serde(default)]
    pub tool_use_id: Option<String>,
    /// Id of the agent that started it; a lead's is its session id.
    #[serde(default)]
    pub parent_id: Option<String>,
    /// 1 for agents of a lead.
    #[serde(default)]
    pub spawn_depth: u32,
    /// The session it belongs to.
    #[serde(default)]
    pub session_id: String,
    /// Model with provider prefix, as resolved at spawn.
    #[serde(default)]
    pub model: Option<String>,
    /// Permission mode, as resolved at spawn.
    #[serde(default)]
    pub permission_mode: Option<String>,
    /// The mode of its own that it was given, if its lead's does not decide alone; of members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_mode: Option<String>,
    /// Names of its tools.
    #[serde(default)]
    pub pool: Option<Vec<String>>,
    /// Working folder.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Its worktree.
    #[serde(default)]
    pub worktree_path: Option<String>,
    /// Its worktree's branch.
    #[serde(default)]
    pub worktree_branch: Option<String>,
    /// `fork`, or none.
    #[serde(default)]
    pub origin: Option<String>,
    /// Of a fork: its prefix file.
    #[serde(default)]
    pub prefix_hash: Option<String>,
    /// Whether the person started it by `lead spawn`: no lead's end is its end.
    #[serde(default)]
    pub detached: bool,
    /// Most model replies of a run, if its start said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub created_at: u64,
}

/// The state of a runtime row (spec 1.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowState {
    /// Launched, has not answered yet.
    Starting,
    /// In a turn.
    Running,
    /// Waits for a permission, a plan's approval, or its own background shells.
    Waiting,
    /// Has nothing to do.
    Idle,
    /// Was asked to end.
    Stopping,
    /// Gave its answer.
    Completed,
    /// Ended without one.
    Failed,
    /// Was stopped.
    Killed,
    /// Its process is gone and it left no outcome.
    Lost,
}

impl RowState {
    /// The exact word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Idle => "idle",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for RowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<RunStatus> for RowState {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Killed => Self::Killed,
        }
    }
}

/// Something an agent did recently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The tool.
    pub tool: String,
    /// A short description of the call.
    pub description: String,
    /// Whether it searches.
    #[serde(default)]
    pub is_search: bool,
    /// Whether it reads.
    #[serde(default)]
    pub is_read: bool,
}

/// Counters of one agent (spec 1.7). The prompt counter is the latest reply's (it is cumulative on
/// the API's side), the output counter is the sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Model replies so far.
    pub turns: u64,
    /// Tool calls so far.
    pub tool_uses: u64,
    /// Prompt tokens of the latest reply.
    pub input_tokens: u64,
    /// Output tokens of all replies.
    pub output_tokens: u64,
    /// Cached prompt tokens of the latest reply.
    pub cache_read_tokens: u64,
    /// The five most recent activities, latest last.
    pub activity: Vec<Activity>,
}

impl Progress {
    /// Counts a reply.
    pub fn reply(&mut self, usage: &Usage) {
        self.turns += 1;
        self.input_tokens = usage.prompt_tokens();
        self.output_tokens += usage.output_tokens;
        self.cache_read_tokens = usage.cache_read_input_tokens;
    }

    /// Counts a tool call.
    pub fn tool(&mut self, activity: Activity) {
        self.tool_uses += 1;
        if self.activity.len() >= 5 {
            self.activity.remove(0);
        }
        self.activity.push(activity);
    }

    /// Latest prompt + all output.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

/// `<hex>.json` of the registry: who a process is; immutable, its lock is held for life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryEntry {
    /// `uds:/…`.
    pub address: String,
    /// The process.
    pub pid: i32,
    /// `lead`, `worker`, `teammate`.
    pub role: String,
    /// Agent id; of a lead its session id.
    pub agent_id: String,
    /// Addressable name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The session it belongs to.
    pub session: String,
    /// Working folder.
    pub cwd: String,
    /// Config folder.
    pub config_dir: String,
    /// Milliseconds since the epoch.
    pub started: u64,
    /// Build of the program.
    pub version: String,
}

/// Who owns an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// A lead at the other end of the owner link.
    #[default]
    Lead,
    /// Nobody, on purpose: detached.
    None,
    /// The lead is gone: orphaned.
    Lost,
}

/// `<hex>.state` of the registry: what a process is doing; replaced on every change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    /// What it is doing.
    pub state: RowState,
    /// Who owns it.
    pub owner: Owner,
    /// The run.
    pub run: u32,
    /// Type of agent.
    #[serde(rename = "type")]
    pub agent_type: String,
    /// 3-5 words.
    pub description: String,
    /// Model with provider prefix.
    pub model: Option<String>,
    /// What it waits for, in words.
    pub waiting_for: Option<String>,
    /// Its transcript.
    pub transcript: String,
    /// Its worktree.
    pub worktree: Option<String>,
    /// Since when it is in this state, milliseconds since the epoch.
    pub since_ms: u64,
    /// Time of the last event, milliseconds since the epoch.
    pub last_event_ms: u64,
    /// Counters.
    #[serde(default)]
    pub progress: Progress,
    /// Its background shells that run, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shells: Vec<ShellState>,
}

impl Outcome {
    /// `Agent "…" completed`, with the reason where it did not.
    pub fn summary(&self, description: &str) -> String {
        let what = format!("Agent \"{}\" {}", text::one_line(description, 200), self.status);
        match &self.error {
            Some(error) if self.status != RunStatus::Completed => format!("{what}: {}", text::one_line(error, 500)),
            _ => what,
        }
    }
}
