//! What a model says with `SendMessage`, and who is meant (spec 2.3): from the input of the call to a value
//! that can be carried out, or the words of a refusal. Pure; leads and teammates ask here before they send.

use serde::Deserialize;
use serde_json::Value;

use super::agents::{SendMessageInput, parse_input};
use crate::core::clock::{Millis, iso};
use crate::core::limits::MESSAGE_BYTES;
use crate::core::team::Protocol;
use crate::core::team::name::{LEAD, same};
use crate::core::team::payload::{
    PlanApprovalResponse, ShutdownApproved, ShutdownRejected, ShutdownRequest, yes_or_no,
};
use crate::core::team::protocol::Role;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A text for the model.
    Plain(String),
    /// Will you end?
    ShutdownRequest {
        /// Why.
        reason: Option<String>,
    },
    /// The answer.
    ShutdownResponse {
        /// Which request.
        request_id: String,
        /// Yes or no.
        approve: bool,
        /// Why; there with a no.
        reason: Option<String>,
    },
    /// Whether a plan is good.
    PlanApprovalResponse {
        /// Which plan.
        request_id: String,
        /// Yes or no.
        approve: bool,
        /// What is missing; there with a no.
        feedback: Option<String>,
    },
}

/// A call of `SendMessage` that can be carried out as far as that can be seen from its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whom it is for: an address, `*`, or a name or id without blanks around it.
    pub to: String,
    /// What it says.
    pub said: Said,
    /// The same in a few words; there with a text.
    pub summary: String,
    /// Whether one notice comes when the receiving session has nothing to do any more.
    pub notify_when_idle: bool,
}

/// The objects that `message` can be.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Object {
    ShutdownRequest {
        #[serde(default)]
        reason: Option<String>,
    },
    ShutdownResponse {
        request_id: String,
        #[serde(deserialize_with = "yes_or_no")]
        approve: bool,
        #[serde(default)]
        reason: Option<String>,
    },
    PlanApprovalResponse {
        request_id: String,
        #[serde(deserialize_with = "yes_or_no")]
        approve: bool,
        #[serde(default)]
        feedback: Option<String>,
    },
}

impl Message {
    /// Reads the input of a call; the error says in words for the model what is wrong.
    pub fn parse(input: &Value) -> Result<Self, String> {
        Self::of(parse_input("SendMessage", input)?)
    }

    /// Checks what was said; the error says in words for the model what is wrong.
    pub fn of(input: SendMessageInput) -> Result<Self, String> {
        let to = input.to.trim().to_owned();
        let summary = input.summary.unwrap_or_default();
        let said = match input.message {
            Value::String(text) => plain(text, &summary)?,
            _ if is_address(&to) => {
                return Err("structured messages can't go to another session; send plain text".to_owned());
            }
            _ if to == "*" => return Err("structured messages go to one member, not to `*`".to_owned()),
            object => structured(object)?,
        };
        let notify_when_idle = input.notify_when_idle == Some(true);
        if to.is_empty() {
            return Err("`to` is empty: name whom the message is for".to_owned());
        }
        if notify_when_idle && !is_address(&to) {
            return Err(
                "notify_when_idle is for other sessions; an agent's end comes as a notification anyway".to_owned()
            );
        }
        if !is_address(&to) && to.contains('@') {
            return Err(format!("{to:?} is not how members are addressed: use the bare name, without @ and team"));
        }
        Ok(Self { to, said, summary, notify_when_idle })
    }
}

/// Whether `to` is an address, of whatever scheme.
pub fn is_address(to: &str) -> bool {
    to.contains(':')
}

fn plain(text: String, summary: &str) -> Result<Said, String> {
    if text.len() > MESSAGE_BYTES {
        return Err(format!(
            "the message has {} bytes, the limit is {MESSAGE_BYTES}; write it to a file and send its path",
            text.len()
        ));
    }
    if summary.trim().is_empty() {
        return Err("summary is missing: say the message in 5 to 10 words".to_owned());
    }
    Ok(Said::Plain(text))
}

fn structured(object: Value) -> Result<Said, String> {
    let shape = |why: &dyn std::fmt::Display| {
        format!(
            "`message` can't be used: {why}. It is a text, or an object of type shutdown_request {{reason?}}, \
shutdown_response {{request_id, approve, reason?}} or plan_approval_response {{request_id, approve, feedback?}}"
        )
    };
    let said = match serde_json::from_value(object).map_err(|e| shape(&e))? {
        Object::ShutdownRequest { reason } => Said::ShutdownRequest { reason: words(reason) },
        Object::ShutdownResponse { request_id, approve, reason } => {
            let reason = words(reason);
            if !approve && reason.is_none() {
                return Err("a no needs a `reason`: whoever asked must know what to wait for".to_owned());
            }
            Said::ShutdownResponse { request_id: id(request_id)?, approve, reason }
        }
        Object::PlanApprovalResponse { request_id, approve, feedback } => {
            let feedback = words(feedback);
            if !approve && feedback.is_none() {
                return Err("a no needs `feedback`: say what the plan lacks".to_owned());
            }
            Said::PlanApprovalResponse { request_id: id(request_id)?, approve, feedback }
        }
    };
    Ok(said)
}

fn words(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

fn id(text: String) -> Result<String, String> {
    match text.trim() {
        "" => Err("`request_id` is empty: give the id that came with the request".to_owned()),
        id => Ok(id.to_owned()),
    }
}

/// Who there is, as far as routing needs to know.
pub struct Around<'a> {
    /// Whether this is the name or id of a plain agent, running or ended, that can be sent text.
    pub is_agent: &'a dyn Fn(&str) -> bool,
    /// What the sender is called in its team; `None` = it is in none.
    pub me: Option<&'a str>,
    /// Whether the sender leads that team.
    pub role: Role,
    /// Exact names of the team's members and its lead.
    pub members: &'a [&'a str],
    /// The plain agents, as they may be addressed.
    pub agents: &'a [String],
}

/// Who gets a message, by the first rule of spec 2.3 that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The process at this address.
    Address(String),
    /// The agent of this name or id.
    Agent(String),
    /// All members but the sender.
    Everyone,
    /// The member of exactly this name.
    Member(String),
}

/// Finds who a message is for; the error says in words for the model who there is.
pub fn route(message: &Message, around: &Around<'_>) -> Result<Receiver, String> {
    let to = message.to.as_str();
    let is_plain = matches!(message.said, Said::Plain(_));
    if is_address(to) {
        return Ok(Receiver::Address(to.to_owned()));
    }
    if is_plain && to != "*" && (around.is_agent)(to) {
        return Ok(Receiver::Agent(to.to_owned()));
    }
    let Some(me) = around.me else {
        return Err(match to {
            "*" => "there is no team to send to: `*` reaches the members of a team".to_owned(),
            _ if is_plain => format!("there is no agent {to:?} in this session; it has: {}", list(around.agents)),
            _ => "structured messages are for members of a team, and you are in none; send plain text to an agent"
                .to_owned(),
        });
    };
    if to == "*" {
        return Ok(Receiver::Everyone);
    }
    if same(to, me) {
        return Err("that is yourself; a message is for somebody else".to_owned());
    }
    let find = |is: fn(&str, &str) -> bool| around.members.iter().copied().find(|member| is(member, to));
    match find(|a, b| a == b).or_else(|| find(same)) {
        Some(member) => {
            let role = if same(member, LEAD) { Role::Lead } else { Role::Member };
            message.said.may_go(around.role, role)?;
            Ok(Receiver::Member(member.to_owned()))
        }
        None if !is_plain && (around.is_agent)(to) => {
            Err(format!("{to:?} is a plain agent, and structured messages are for members of the team; send it text"))
        }
        None => {
            let others: Vec<String> =
                around.members.iter().filter(|member| !same(member, me)).map(|m| (*m).to_owned()).collect();
            let agents =
                if around.agents.is_empty() { String::new() } else { format!("; agents: {}", list(around.agents)) };
            Err(format!("there is nobody called {to:?}; members of the team: {}{agents}", list(&others)))
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Said {
    /// Its `type`; `None` for a text.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::ShutdownRequest { .. } => Some("shutdown_request"),
            Self::ShutdownResponse { .. } => Some("shutdown_response"),
            Self::PlanApprovalResponse { .. } => Some("plan_approval_response"),
        }
    }

    /// Whether one of this role may say it to one of that (spec 3.4); the error says who may.
    pub fn may_go(&self, from: Role, to: Role) -> Result<(), String> {
        let (who, whom) = match self {
            Self::Plain(_) => return Ok(()),
            Self::ShutdownRequest { .. } | Self::PlanApprovalResponse { .. } => (Role::Lead, Role::Member),
            Self::ShutdownResponse { .. } => (Role::Member, Role::Lead),
        };
        if (from, to) == (who, whom) {
            return Ok(());
        }
        let name = |role| if role == Role::Lead { "the lead" } else { "a member" };
        Err(format!("a {} goes from {} to {}", self.kind().unwrap_or_default(), name(who), name(whom)))
    }

    /// As it lies in a mailbox; `None` for a text. `from` and `to` are exact names; a request gets an id
    /// of its own, which the answer repeats.
    pub fn to_protocol(&self, from: &str, to: &str, sent_ms: Millis) -> Option<Protocol> {
        let (from, timestamp) = (from.to_owned(), iso(sent_ms));
        Some(match self.clone() {
            Self::Plain(_) => return None,
            Self::ShutdownRequest { reason } => {
                let request_id = format!("shutdown-{sent_ms}@{to}");
                Protocol::ShutdownRequest(ShutdownRequest { request_id, from, reason, timestamp })
            }
            Self::ShutdownResponse { request_id, approve: true, .. } => Protocol::ShutdownApproved(ShutdownApproved {
                request_id,
                from,
                timestamp,
                pane_id: None,
                backend_type: None,
            }),
            Self::ShutdownResponse { request_id, approve: false, reason } => {
                let reason = reason.unwrap_or_default();
                Protocol::ShutdownRejected(ShutdownRejected { request_id, from, reason, timestamp })
            }
            Self::PlanApprovalResponse { request_id, approve: approved, feedback } => {
                Protocol::PlanApprovalResponse(PlanApprovalResponse {
                    request_id,
                    approved,
                    timestamp,
                    permission_mode: None,
                    feedback,
                })
            }
        })
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
