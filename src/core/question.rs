//! Questions of permission, as they travel from an agent to its lead's desk and to whoever answers
//! them there (spec 8.2).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call that neither rule nor mode permits or forbids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The call's id.
    pub tool_use_id: String,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Value,
    /// What the call does, for people: one line.
    pub description: String,
    /// Which rule, mode or path makes it a question.
    pub reason: String,
}

/// What was decided about a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// The call runs, and its agent works in this permission mode from now on: its plan is approved.
    AllowIn {
        /// The mode.
        mode: String,
    },
    /// It does not.
    Deny {
        /// Why, in words for the model.
        reason: String,
    },
}

/// A question that waits at a lead's desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// `p-` + 8 hex digits.
    pub id: String,
    /// Who asks: an agent id, or the session's id for its main conversation.
    pub agent: String,
    /// The agent's name or type.
    pub name: String,
    /// The session.
    pub session: String,
    /// The call.
    pub question: Question,
    /// Milliseconds since the epoch.
    pub since_ms: u64,
    /// When it is denied if nobody answers, milliseconds since the epoch.
    pub until_ms: u64,
}
