//! What protocol messages carry, as other programs write it (formats A and B.5).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Why a member is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum IdleReason {
    /// Its turn is over.
    Available,
    /// Its turn was cut short.
    Interrupted,
    /// Its turn failed.
    Failed,
    /// One that we do not know.
    Other,
}

impl From<String> for IdleReason {
    fn from(word: String) -> Self {
        match word.as_str() {
            "available" => Self::Available,
            "interrupted" => Self::Interrupted,
            "failed" => Self::Failed,
            _ => Self::Other,
        }
    }
}

/// See [`super::Protocol::IdleNotification`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleNotification {
    /// The member.
    pub from: String,
    /// When.
    #[serde(default)]
    pub timestamp: String,
    /// Why; absent in some other programs.
    #[serde(default, alias = "idle_reason", skip_serializing_if = "Option::is_none")]
    pub idle_reason: Option<IdleReason>,
    /// Its last message to a peer, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Its last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The card it completed.
    #[serde(default, alias = "completed_task_id", skip_serializing_if = "Option::is_none")]
    pub completed_task_id: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// See [`super::Protocol::TeammateTerminated`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeammateTerminated {
    /// The member.
    pub name: String,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[serde(default)]
    pub timestamp: String,
}

/// See [`super::Protocol::TaskAssignment`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskAssignment {
    /// The card.
    #[serde(alias = "task_id")]
    pub task_id: String,
    /// Its subject.
    #[serde(default)]
    pub subject: String,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Who changed the owner.
    #[serde(default, alias = "assigned_by")]
    pub assigned_by: String,
    /// When.
    #[serde(default)]
    pub timestamp: String,
}

/// See [`super::Protocol::PermissionRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PermissionRequest {
    /// What the answer repeats.
    #[serde(alias = "requestId")]
    pub request_id: String,
    /// Name of the member that asks.
    #[serde(alias = "agentId")]
    pub agent_id: String,
    /// The tool.
    #[serde(alias = "toolName")]
    pub tool_name: String,
    /// The call.
    #[serde(default, alias = "toolUseId")]
    pub tool_use_id: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// What the tool is called with.
    #[serde(default)]
    pub input: Value,
    /// Rules that would permit it.
    #[serde(default, alias = "permissionSuggestions")]
    pub permission_suggestions: Vec<Value>,
}

/// See [`super::Protocol::SandboxPermissionRequest`]: one of host and path is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxPermissionRequest {
    /// What the answer repeats.
    #[serde(alias = "requestId")]
    pub request_id: String,
    /// Name of the member that asks.
    #[serde(alias = "agentId")]
    pub agent_id: String,
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The answer to a question of permission: `subtype` is `success` or `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PermissionResponse {
    /// Which question.
    #[serde(alias = "requestId")]
    pub request_id: String,
    /// Yes or no.
    pub subtype: Verdict,
    /// With a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Granted>,
    /// With a no: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Yes or no. Whatever we do not know is a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum Verdict {
    /// Yes.
    Success,
    /// No.
    Error,
}

impl From<String> for Verdict {
    fn from(word: String) -> Self {
        if word == "success" { Self::Success } else { Self::Error }
    }
}

/// What a yes brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// What to call the tool with instead.
    #[serde(default, alias = "updatedInput", skip_serializing_if = "Option::is_none")]
    pub updated_input: Option<Value>,
    /// Rules that hold from now on.
    #[serde(default, alias = "permissionUpdates")]
    pub permission_updates: Vec<Value>,
}

/// See [`super::Protocol::PlanApprovalRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanApprovalRequest {
    /// The member.
    pub from: String,
    /// When.
    #[serde(default)]
    pub timestamp: String,
    /// Where the plan is.
    #[serde(default, alias = "plan_file_path", skip_serializing_if = "Option::is_none")]
    pub plan_file_path: Option<String>,
    /// The plan.
    #[serde(default, alias = "plan_content")]
    pub plan_content: String,
    /// What the answer repeats.
    #[serde(alias = "request_id")]
    pub request_id: String,
}

/// See [`super::Protocol::PlanApprovalResponse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanApprovalResponse {
    /// Which plan.
    #[serde(alias = "request_id")]
    pub request_id: String,
    /// Yes or no.
    #[serde(alias = "approve", deserialize_with = "yes_or_no")]
    pub approved: bool,
    /// When.
    #[serde(default)]
    pub timestamp: String,
    /// With a yes: the mode to go on in.
    #[serde(default, alias = "permission_mode", skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// With a no: what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// See [`super::Protocol::ShutdownRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownRequest {
    /// What the answer repeats.
    #[serde(alias = "request_id")]
    pub request_id: String,
    /// Who asks.
    #[serde(default)]
    pub from: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    #[serde(default)]
    pub timestamp: String,
}

/// See [`super::Protocol::ShutdownApproved`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownApproved {
    /// Which request.
    #[serde(alias = "request_id")]
    pub request_id: String,
    /// The member.
    pub from: String,
    /// When.
    #[serde(default)]
    pub timestamp: String,
    /// Its pane, to be closed.
    #[serde(default, alias = "pane_id", skip_serializing_if = "Option::is_none")]
    pub pane_id: Option<String>,
    /// What runs it.
    #[serde(default, alias = "backend_type", skip_serializing_if = "Option::is_none")]
    pub backend_type: Option<String>,
}

/// See [`super::Protocol::ShutdownRejected`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownRejected {
    /// Which request.
    #[serde(alias = "request_id")]
    pub request_id: String,
    /// The member.
    pub from: String,
    /// Why not.
    #[serde(default)]
    pub reason: String,
    /// When.
    #[serde(default)]
    pub timestamp: String,
}

/// See [`super::Protocol::ModeSetRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeSetRequest {
    /// The mode.
    pub mode: String,
    /// Who asks.
    #[serde(default)]
    pub from: String,
}

/// See [`super::Protocol::TeamPermissionUpdate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeamPermissionUpdate {
    /// The rules.
    #[serde(default)]
    pub rules: Vec<Value>,
    /// The mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A bool, or what models write for one.
pub fn yes_or_no<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Value::deserialize(from)? {
        Value::Bool(answer) => Ok(answer),
        Value::String(word) if word.trim().eq_ignore_ascii_case("true") => Ok(true),
        Value::String(word) if word.trim().eq_ignore_ascii_case("false") => Ok(false),
        other => Err(serde::de::Error::custom(format!("{other} is neither true nor false"))),
    }
}
