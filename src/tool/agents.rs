//! `Agent`, `SendMessage` and `TaskStop`: their schemas, and the way to whoever carries them out
//! ([`super::AgentPort`]). The decisions are the lead's.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text;
use crate::permission::Mode;

/// What names of agents and teams look like.
pub(super) const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$";

/// Input of `Agent`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentInput {
    /// 3-5 words.
    pub description: String,
    /// Self-contained task.
    pub prompt: String,
    /// Type of agent.
    #[serde(default)]
    pub subagent_type: Option<String>,
    /// Addressable name.
    #[serde(default)]
    pub name: Option<String>,
    /// Team of a teammate.
    #[serde(default)]
    pub team_name: Option<String>,
    /// Model.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether the call returns at once.
    #[serde(default, alias = "async")]
    pub run_in_background: Option<bool>,
    /// `worktree` or `remote`.
    #[serde(default)]
    pub isolation: Option<String>,
    /// Working folder.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Permission mode of a teammate.
    #[serde(default)]
    pub mode: Option<String>,
}

/// Input of `SendMessage`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendMessageInput {
    /// Name, id or address.
    pub to: String,
    /// Text, or a structured object.
    pub message: Value,
    /// 5-10 words.
    #[serde(default)]
    pub summary: Option<String>,
    /// Whether one notice comes when the receiving session has nothing to do any more.
    #[serde(default)]
    pub notify_when_idle: Option<bool>,
}

/// Input of `TaskStop`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TaskStopInput {
    /// Id of the agent or background shell.
    #[serde(default)]
    pub task_id: Option<String>,
    /// The older name of `task_id`.
    #[serde(default)]
    pub shell_id: Option<String>,
}

/// Reads a tool's input; the error says what is wrong in words for the model.
pub fn parse_input<T: for<'de> Deserialize<'de>>(tool: &str, input: &Value) -> Result<T, String> {
    T::deserialize(input).map_err(|e| format!("the input of {tool} can't be used: {e}"))
}

/// Starts an agent.
pub struct AgentTool {
    /// The types on offer, with what each is for.
    pub types: Vec<(String, String)>,
    /// Whether everything goes to the background anyway, so that asking makes no sense.
    pub always_background: bool,
    /// Whether anything may go to the background.
    pub background_allowed: bool,
    /// Whether a call with a name can start a member of a team.
    pub teammates: bool,
}

impl Tool for AgentTool {
    fn name(&self) -> Cow<'_, str> {
        "Agent".into()
    }

    fn spec(&self) -> ToolSpec {
        let types: Vec<String> = self.types.iter().map(|(name, what)| format!("- {name}: {what}")).collect();
        let names: Vec<&str> = self.types.iter().map(|(name, _)| name.as_str()).collect();
        let mut properties = json!({
            "description": {"type": "string", "description": "What the agent does, in 3 to 5 words"},
            "prompt": {"type": "string", "description": "The whole task: the agent sees nothing else"},
            "subagent_type": {"type": "string", "enum": names, "description": "The type of agent"},
            "name": {"type": "string", "description": "A name by which SendMessage reaches it", "pattern": NAME_PATTERN},
            "cwd": {"type": "string", "description": "Working folder, an absolute path; default: yours"},
        });
        if let Some(properties) = properties.as_object_mut() {
            if !self.always_background {
                properties.insert(
                    "model".to_owned(),
                    json!({"type": "string", "description": "Model of the agent; default: yours"}),
                );
            }
            if self.background_allowed && !self.always_background {
                properties.insert(
                    "run_in_background".to_owned(),
                    json!({"type": "boolean", "description": "Return at once; the result comes as a notification"}),
                );
            }
        }
        if let Some(properties) = properties.as_object_mut().filter(|_| self.teammates) {
            properties.insert(
                "team_name".to_owned(),
                json!({"type": "string", "description": "Your team: with a name, the agent becomes a member of it"}),
            );
            properties.insert(
                "mode".to_owned(),
                json!({
                    "type": "string", "enum": Mode::ALL.map(Mode::as_str),
                    "description": "Permission mode of a member, no wider than yours; plan: it needs your approval before it changes anything",
                }),
            );
        }
        let how = if self.always_background {
            "The call returns at once with the agent's id; its result comes later as a <task-notification>."
        } else {
            "The call returns the agent's final answer, or at once with run_in_background."
        };
        ToolSpec {
            name: "Agent".to_owned(),
            description: format!(
                "Start another agent, a process of its own that works on the prompt with its own tools and sees nothing of \
this conversation. {how} Several calls in one message run at the same time.\nTypes:\n{}",
                types.join("\n")
            ),
            input_schema: json!({
                "type": "object",
                "properties": properties,
                "required": ["description", "prompt"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("Agent", input.get("description"))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call("Agent", &context.tool_use_id, input, &context.cancel)
    }
}

/// Sends a message to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMessageTool {
    /// Where only plain agents and sessions can be reached.
    ToAgents,
    /// Where members of a team can be reached, too.
    ToMembers,
}

impl SendMessageTool {
    fn message(self) -> Value {
        let text = json!({"type": "string", "description": "The text"});
        if self == Self::ToAgents {
            return text;
        }
        let why = json!({"type": "string", "description": "Why; needed with a no"});
        let id = json!({"type": "string", "description": "The id that came with the request"});
        let object = |kind: &str, mut properties: Value, required: &[&str]| {
            properties["type"] = json!({"const": kind});
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
        };
        let answer = ["type", "request_id", "approve"];
        json!({"anyOf": [
            text,
            object("shutdown_request", json!({"reason": {"type": "string"}}), &["type"]),
            object(
                "shutdown_response",
                json!({"request_id": id, "approve": {"type": "boolean"}, "reason": why}),
                &answer,
            ),
            object(
                "plan_approval_response",
                json!({"request_id": id, "approve": {"type": "boolean"}, "feedback": why}),
                &answer,
            ),
        ]})
    }
}

impl Tool for SendMessageTool {
    fn name(&self) -> Cow<'_, str> {
        "SendMessage".into()
    }

    fn spec(&self) -> ToolSpec {
        let mut description = "Send a message to an agent by its id or name, or to another session by its address \
(uds:/path.sock). An agent that runs sees it at its next step; one that has ended goes on in the background with \
everything it knew, and reports again."
            .to_owned();
        let to = match self {
            Self::ToAgents => "Agent id, name, or uds: address",
            Self::ToMembers => {
                description.push_str(
                    "\nMembers of your team are reached by their bare names, your lead as team-lead, all but you as `*`. \
Nothing else that you write is seen by them. The objects ask a member to end, and answer such a request or a plan.",
                );
                "Agent id, name, `*` for the whole team, or uds: address"
            }
        };
        ToolSpec {
            name: "SendMessage".to_owned(),
            description,
            input_schema: json!({
                "type": "object",
                "properties": {
                    "to": {"type": "string", "description": to},
                    "message": self.message(),
                    "summary": {"type": "string", "maxLength": 200, "description": "The message in 5 to 10 words; needed with a text"},
                    "notify_when_idle": {"type": "boolean", "description": "For another session: tell me once when it has nothing to do any more, if I am still there"}
                },
                "required": ["to", "message"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("SendMessage", input.get("summary").or_else(|| input.get("to")))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call("SendMessage", &context.tool_use_id, input, &context.cancel)
    }
}

/// Stops an agent or a background command.
pub struct TaskStopTool;

impl Tool for TaskStopTool {
    fn name(&self) -> Cow<'_, str> {
        "TaskStop".into()
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "TaskStop".to_owned(),
            description:
                "Stop a running agent or background command. Its end comes as a notification, with the partial \
result of an agent; SendMessage continues an agent."
                    .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {"task_id": {"type": "string", "description": "Id of the agent or background command"}},
                "required": ["task_id"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("TaskStop", input.get("task_id"))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call("TaskStop", &context.tool_use_id, input, &context.cancel)
    }
}

fn activity(tool: &str, what: Option<&Value>) -> Activity {
    let description = what.and_then(Value::as_str).map(|t| text::one_line(t, 80)).unwrap_or_default();
    Activity { tool: tool.to_owned(), description, is_search: false, is_read: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn async_is_read_as_an_alias_and_unknown_fields_are_named() {
        let input = json!({"description": "d", "prompt": "p", "async": true});
        assert_eq!(parse_input::<AgentInput>("Agent", &input).map(|i| i.run_in_background), Ok(Some(true)));
        let error = parse_input::<AgentInput>("Agent", &json!({"description": "d", "prompt": "p", "colour": 1}));
        assert!(error.is_err_and(|e| e.contains("colour")));
        let error = parse_input::<AgentInput>("Agent", &json!({"description": "d"}));
        assert!(error.is_err_and(|e| e.contains("prompt")));
    }

    #[test]
    fn the_schema_offers_only_what_applies() {
        let tool = |always_background, background_allowed| {
            AgentTool { types: vec![], always_background, background_allowed, teammates: false }.spec().input_schema["properties"].clone()
        };
        assert!(tool(false, true).get("run_in_background").is_some());
        assert!(tool(false, false).get("run_in_background").is_none());
        let coordinator = tool(true, true);
        assert!(coordinator.get("run_in_background").is_none() && coordinator.get("model").is_none());
        for absent in ["team_name", "mode", "isolation"] {
            assert!(coordinator.get(absent).is_none(), "{absent} has no route");
        }
        let with_teammates =
            AgentTool { types: vec![], always_background: false, background_allowed: true, teammates: true };
        let properties = &with_teammates.spec().input_schema["properties"];
        assert!(properties["team_name"].is_object() && properties.get("isolation").is_none());
        let modes = json!(["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]);
        assert_eq!(properties["mode"]["enum"], modes);
    }

    #[test]
    fn only_members_are_offered_what_is_said_between_members() {
        let message = |tool: SendMessageTool| tool.spec().input_schema["properties"]["message"].clone();
        assert_eq!(message(SendMessageTool::ToAgents)["type"], "string");
        let forms = message(SendMessageTool::ToMembers)["anyOf"].clone();
        let kinds: Vec<&Value> =
            forms.as_array().unwrap()[1..].iter().map(|f| &f["properties"]["type"]["const"]).collect();
        assert_eq!(kinds, ["shutdown_request", "shutdown_response", "plan_approval_response"]);
    }
}
