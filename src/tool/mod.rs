//! L2: the tools a model can use. Each is a file; what a tool needs from the layers above comes
//! through [`AgentPort`].

pub mod agents;
mod arguments;
mod bash;
#[cfg(test)]
mod file_tests;
mod files;
mod glob;
mod grep;
mod grep_sink;
pub mod pool;
mod read;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
pub use crate::model::BoxFuture;

pub use self::bash::Bash;
pub use self::files::HidePath;
pub use self::glob::Glob;
pub use self::grep::Grep;
pub use self::read::Read;

/// Every tool that exists, in the order in which tools are offered.
pub const TOOLS: [&str; 7] = ["Agent", "Bash", "Glob", "Grep", "Read", "SendMessage", "TaskStop"];

/// A tool.
pub trait Tool: Send + Sync {
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
}

/// Carries out `Agent`, `SendMessage` and `TaskStop` for whoever runs a conversation: the lead's
/// own loop, or in an agent a call over its owner link.
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

    /// With a structured result.
    #[must_use]
    pub fn with(mut self, structured: Value) -> Self {
        self.structured = Some(structured);
        self
    }
}
