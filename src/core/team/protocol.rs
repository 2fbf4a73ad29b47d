//! Messages between runtimes, as JSON in the text of a mail or over the owner link (spec 3.4):
//! recognised by `type`, never shown to a model as chat.
//!
//! Both spellings of the shared fields are read (`requestId` and `request_id`), and `approve` as a
//! word too; each is written as other programs write it (formats B.5).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::payload::{
    IdleNotification, ModeSetRequest, PermissionRequest, PermissionResponse, PlanApprovalRequest, PlanApprovalResponse,
    SandboxPermissionRequest, ShutdownApproved, ShutdownRejected, ShutdownRequest, TaskAssignment,
    TeamPermissionUpdate, TeammateTerminated,
};

/// A protocol message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Protocol {
    /// A member is idle.
    IdleNotification(IdleNotification),
    /// A member's process is gone.
    TeammateTerminated(TeammateTerminated),
    /// A card has a new owner.
    TaskAssignment(TaskAssignment),
    /// May I use this tool?
    PermissionRequest(PermissionRequest),
    /// The answer.
    PermissionResponse(PermissionResponse),
    /// May I reach this host or path?
    SandboxPermissionRequest(SandboxPermissionRequest),
    /// The answer.
    SandboxPermissionResponse(PermissionResponse),
    /// Is this plan good?
    PlanApprovalRequest(PlanApprovalRequest),
    /// The answer.
    PlanApprovalResponse(PlanApprovalResponse),
    /// Will you end?
    ShutdownRequest(ShutdownRequest),
    /// Yes.
    ShutdownApproved(ShutdownApproved),
    /// No.
    ShutdownRejected(ShutdownRejected),
    /// Work in this mode from now on.
    ModeSetRequest(ModeSetRequest),
    /// These rules hold for all members now.
    TeamPermissionUpdate(TeamPermissionUpdate),
}

/// What the text of a mail is.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Something said, for the model.
    Plain,
    /// A message between runtimes.
    Protocol(Box<Protocol>),
    /// A message between runtimes that lacks something: of a type of ours, and why it can't be
    /// used. Nobody's chat either.
    Broken {
        /// Its type.
        kind: String,
        /// What is wrong with it.
        reason: String,
    },
    /// JSON with a `type` that is none of ours: a later release's, or a text that happens to be
    /// JSON. All of it, to be decided by the reader.
    Unknown(Map<String, Value>),
}

impl Content {
    /// What `text` is.
    pub fn of(text: &str) -> Self {
        if !text.trim_start().starts_with('{') {
            return Self::Plain;
        }
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) else { return Self::Plain };
        let Some(kind) = object.get("type").and_then(Value::as_str) else { return Self::Plain };
        if !Protocol::TYPES.contains(&kind) {
            return Self::Unknown(object);
        }
        let kind = kind.to_owned();
        match serde_json::from_value(Value::Object(object)) {
            Ok(protocol) => Self::Protocol(Box::new(protocol)),
            Err(e) => Self::Broken { kind, reason: e.to_string() },
        }
    }

    /// Whether it counts as a protocol message: for a runtime, not for a model.
    pub fn is_protocol(text: &str) -> bool {
        matches!(Self::of(text), Self::Protocol(_) | Self::Broken { .. })
    }
}

/// What a member is in its team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Lead,
    /// It is led.
    Member,
}

impl Protocol {
    /// Every `type`.
    pub const TYPES: [&str; 14] = [
        "idle_notification",
        "teammate_terminated",
        "task_assignment",
        "permission_request",
        "permission_response",
        "sandbox_permission_request",
        "sandbox_permission_response",
        "plan_approval_request",
        "plan_approval_response",
        "shutdown_request",
        "shutdown_approved",
        "shutdown_rejected",
        "mode_set_request",
        "team_permission_update",
    ];

    /// Its `type`.
    pub fn kind(&self) -> &'static str {
        let at = match self {
            Self::IdleNotification(_) => 0,
            Self::TeammateTerminated(_) => 1,
            Self::TaskAssignment(_) => 2,
            Self::PermissionRequest(_) => 3,
            Self::PermissionResponse(_) => 4,
            Self::SandboxPermissionRequest(_) => 5,
            Self::SandboxPermissionResponse(_) => 6,
            Self::PlanApprovalRequest(_) => 7,
            Self::PlanApprovalResponse(_) => 8,
            Self::ShutdownRequest(_) => 9,
            Self::ShutdownApproved(_) => 10,
            Self::ShutdownRejected(_) => 11,
            Self::ModeSetRequest(_) => 12,
            Self::TeamPermissionUpdate(_) => 13,
        };
        Self::TYPES[at]
    }

    /// As the text of a mail.
    pub fn to_text(&self) -> String {
        // Structs of strings and JSON values can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the answer repeats, for questions and answers.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::PermissionRequest(p) => Some(&p.request_id),
            Self::SandboxPermissionRequest(p) => Some(&p.request_id),
            Self::PermissionResponse(p) | Self::SandboxPermissionResponse(p) => Some(&p.request_id),
            Self::PlanApprovalRequest(p) => Some(&p.request_id),
            Self::PlanApprovalResponse(p) => Some(&p.request_id),
            Self::ShutdownRequest(p) => Some(&p.request_id),
            Self::ShutdownApproved(p) => Some(&p.request_id),
            Self::ShutdownRejected(p) => Some(&p.request_id),
            Self::IdleNotification(_)
            | Self::TeammateTerminated(_)
            | Self::TaskAssignment(_)
            | Self::ModeSetRequest(_)
            | Self::TeamPermissionUpdate(_) => None,
        }
    }

    /// Whether `from` may send this to `to` (the table of spec 3.4); the error says who may.
    /// Whether an answer has a question is for the receiver, who asked.
    pub fn may_send(&self, from: Role, to: Role, to_oneself: bool) -> Result<(), String> {
        let (senders, receivers) = match self {
            Self::TaskAssignment(_) if to_oneself => {
                return Err("a task_assignment goes to the new owner, not to oneself".to_owned());
            }
            Self::TaskAssignment(_) => return Ok(()),
            Self::IdleNotification(_)
            | Self::TeammateTerminated(_)
            | Self::PermissionRequest(_)
            | Self::SandboxPermissionRequest(_)
            | Self::PlanApprovalRequest(_)
            | Self::ShutdownApproved(_)
            | Self::ShutdownRejected(_) => (Role::Member, Role::Lead),
            Self::PermissionResponse(_)
            | Self::SandboxPermissionResponse(_)
            | Self::PlanApprovalResponse(_)
            | Self::ShutdownRequest(_)
            | Self::ModeSetRequest(_)
            | Self::TeamPermissionUpdate(_) => (Role::Lead, Role::Member),
        };
        if (from, to) == (senders, receivers) {
            return Ok(());
        }
        let name = |role| match role {
            Role::Lead => "the lead",
            Role::Member => "a member",
        };
        Err(format!("a {} goes from {} to {}", self.kind(), name(senders), name(receivers)))
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
