//! L2: the tools a model can use. Each is a file; what a tool needs from the layers above comes
//! through [`AgentPort`].

pub mod agents;
mod arguments;
mod bash;
#[cfg(test)]
mod change_tests;
mod edit;
mod exit_plan;
#[cfg(test)]
mod file_tests;
mod files;
pub mod folder_instructions;
mod glob;
mod grep;
mod grep_sink;
mod image;
mod lines;
pub mod message;
mod missing;
mod nearest;
mod notebook;
mod notebook_edit;
mod patch;
pub mod pool;
mod read;
mod replace;
mod seen;
pub mod shell;
mod skill;
mod splice;
mod target;
mod task_output;
pub mod tasks;
pub mod team;
pub mod team_mail;
#[cfg(test)]
mod testing;
mod text_file;
mod todo;
mod web;
mod write;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::shell::{Shells, WorkingFolder};
use crate::core::agent::Activity;
use crate::core::message::{Block, Known, ToolSpec};
use crate::core::tool_state::ToolState;
pub use crate::model::BoxFuture;

pub use self::bash::{Background, Bash};
pub use self::edit::Edit;
pub use self::exit_plan::ExitPlanMode;
pub use self::files::HidePath;
use self::folder_instructions::FolderInstructions;
pub use self::glob::Glob;
pub use self::grep::Grep;
pub use self::notebook_edit::NotebookEdit;
pub use self::read::Read;
pub use self::skill::SkillTool;
pub use self::task_output::{TaskOutputInput, TaskOutputTool, output_tail};
pub use self::team::{TeamCreateInput, TeamDeleteInput, TeamTool};
pub use self::todo::TodoWrite;
pub use self::web::WebFetch;
pub use self::write::Write;

/// Every tool that exists, in the order in which tools are offered. `WebSearch` is run by the
/// provider, and offered in its words ([`crate::core::server_tool`]).
pub const TOOLS: [&str; 22] = [
    "Agent",
    "Bash",
    "Edit",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "NotebookEdit",
    "Read",
    "SendMessage",
    "Skill",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
    "Write",
];

/// Those of them that only a session has that can lead a team.
pub const TEAM_TOOLS: [&str; 2] = ["TeamCreate", "TeamDelete"];

/// A tool.
pub trait Tool: Send + Sync {
    /// The name in its [`spec`](Tool::spec), without making the rest of it: asked several times for
    /// each call.
    fn name(&self) -> Cow<'_, str> {
        Cow::Owned(self.spec().name)
    }
    /// Name, description and schema as offered to the model.
    fn spec(&self) -> ToolSpec;
    /// Whether calls change nothing, so that several may run at a time.
    fn is_read_only(&self) -> bool;
    /// What a call does, for lists.
    fn describe(&self, input: &Value) -> Activity;
    /// Runs one call. Bad input is an error output that says what was wrong, what exists instead
    /// and what to do. When `context.cancel` fires the tool ends soon, with whatever it has.
    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput>;
}

/// What a tool works with.
#[derive(Clone)]
pub struct ToolContext {
    /// Working folder of the agent.
    pub cwd: PathBuf,
    /// Where its shell commands run, which they may change.
    pub folder: Arc<WorkingFolder>,
    /// Its shell commands in the background.
    pub shells: Shells,
    /// `<session>/tool-results/`: where the whole of a long output goes, made when needed.
    pub results: PathBuf,
    /// Variables set for processes a tool starts, on top of this process's environment
    /// (`LEAD_AGENT_ID`, `LEAD_RUN`, …, and those withheld from the agent's own environment).
    pub env: Arc<Vec<(String, String)>>,
    /// Fires when the call should end.
    pub cancel: CancellationToken,
    /// The call's id, a safe file name.
    pub tool_use_id: String,
    /// Carries out tools that concern other agents.
    pub agents: Arc<dyn AgentPort>,
    /// What the agent's earlier calls saw and noted, shared by all its calls.
    pub tool_state: Arc<Mutex<ToolState>>,
    /// What is shown beside the files that are read.
    pub instructions: Arc<FolderInstructions>,
}

impl ToolContext {
    /// What earlier calls saw and noted. Never held across a wait.
    pub fn state(&self) -> MutexGuard<'_, ToolState> {
        // A call that broke down in between leaves a state that is whole: each change is one insertion.
        self.tool_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries out what concerns other agents for whoever runs a conversation: `Agent`, `SendMessage`, the task
/// board and teams, `TaskStop` and `TaskOutput`. That is the lead's own loop, or in an agent a call over its
/// owner link.
pub trait AgentPort: Send + Sync {
    /// Runs the tool `tool`.
    fn call<'a>(
        &'a self,
        tool: &'static str,
        tool_use_id: &'a str,
        input: &'a Value,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// What a tool answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// Text for the model, already cut to its limit.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// `toolUseResult` of the transcript entry.
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// Success.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, structured: None }
    }

    /// Failure, told to the model.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, structured: None }
    }

    /// The answer as the model is sent it: the text, with the image that [`Read`] found.
    pub fn block(&self, tool_use_id: &str) -> Block {
        let content = [image::block(self.structured.as_ref()), Some(Block::text(self.text.clone()))];
        Block::Known(Known::ToolResult {
            tool_use_id: tool_use_id.to_owned(),
            content: content.into_iter().flatten().collect(),
            is_error: self.is_error,
        })
    }

    /// With a structured result.
    #[must_use]
    pub fn with(mut self, structured: Value) -> Self {
        self.structured = Some(structured);
        self
    }
}
