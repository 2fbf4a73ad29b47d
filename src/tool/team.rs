//! `TeamCreate` and `TeamDelete`: their schemas and inputs. The lead's main loop carries them out, through
//! [`super::AgentPort`].

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

use super::agents::NAME_PATTERN;
use super::arguments::Arguments;
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;

/// The longest `TeamDelete` may wait, milliseconds.
const MAX_WAIT_MS: usize = 600_000;

/// The tools of [`super::TEAM_TOOLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamTool {
    /// `TeamCreate`.
    Create,
    /// `TeamDelete`.
    Delete,
}

/// Input of `TeamCreate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamCreateInput {
    /// The name it is to have, unchecked.
    pub team_name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Type of the lead, as other programs write it into the roster.
    pub agent_type: Option<String>,
}

/// Input of `TeamDelete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamDeleteInput {
    /// How long members are asked and waited for; none = those that are active are in the way.
    pub wait: Option<Duration>,
}

impl TeamCreateInput {
    /// Reads the input; the error says what is wrong in words for the model.
    pub fn parse(input: &Value) -> Result<Self, String> {
        let read = || {
            let arguments = Arguments::new(input, &["team_name", "description", "agent_type"])?;
            let text = |key| Ok::<_, String>(arguments.text(key)?.filter(|t| !t.trim().is_empty()).map(str::to_owned));
            Ok(Self {
                team_name: arguments.required("team_name")?.trim().to_owned(),
                description: text("description")?,
                agent_type: text("agent_type")?,
            })
        };
        read().map_err(|why: String| format!("the input of TeamCreate can't be used: {why}"))
    }
}

impl TeamDeleteInput {
    /// Reads the input; the error says what is wrong in words for the model.
    pub fn parse(input: &Value) -> Result<Self, String> {
        let read = || {
            let wait = Arguments::new(input, &["wait_ms"])?.count("wait_ms")?;
            match wait {
                Some(wait) if wait > MAX_WAIT_MS => {
                    Err(format!("`wait_ms` is {wait}, expected milliseconds from 0 to {MAX_WAIT_MS}"))
                }
                wait => Ok(Self { wait: wait.map(|ms| Duration::from_millis(ms as u64)) }),
            }
        };
        read().map_err(|why: String| format!("the input of TeamDelete can't be used: {why}"))
    }
}

impl TeamTool {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "TeamCreate",
            Self::Delete => "TeamDelete",
        }
    }
}

impl Tool for TeamTool {
    fn name(&self) -> Cow<'_, str> {
        self.as_str().into()
    }

    fn spec(&self) -> ToolSpec {
        let (description, input_schema) = match self {
            Self::Create => (
                "Make a team that you lead, with a task board of its own. Then put cards on the board with TaskCreate, \
and add members with Agent and a `name`. A session leads one team at a time. If the name is taken, the answer says \
which one the team got.",
                json!({
                    "type": "object",
                    "properties": {
                        "team_name": {"type": "string", "pattern": NAME_PATTERN, "description": "Letters, digits, `_` and `-`"},
                        "description": {"type": "string", "description": "What the team is for"},
                        "agent_type": {"type": "string", "description": "Your own role in it, for those who look"}
                    },
                    "required": ["team_name"],
                    "additionalProperties": false
                }),
            ),
            Self::Delete => (
                "Remove the team you lead: its members, messages and cards. Members that still run are in the way and \
are named; with wait_ms they are asked to end and waited for that long, and nothing is removed if one refuses or does \
not answer.",
                json!({
                    "type": "object",
                    "properties": {
                        "wait_ms": {
                            "type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS,
                            "description": "Ask members to end, and wait for them so many milliseconds at the most",
                        }
                    },
                    "additionalProperties": false
                }),
            ),
        };
        ToolSpec { name: self.as_str().to_owned(), description: description.to_owned(), input_schema }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        let description = input["team_name"].as_str().map(|name| one_line(name, 80)).unwrap_or_default();
        Activity { tool: self.as_str().to_owned(), description, is_search: false, is_read: false }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call(self.as_str(), &context.tool_use_id, input, &context.cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::TEAM_TOOLS;

    #[test]
    fn inputs_are_read_or_refused_in_words() {
        let made = TeamCreateInput::parse(&json!({"team_name": " t ", "description": " ", "agent_type": "lead"}));
        let wanted = TeamCreateInput { team_name: "t".into(), description: None, agent_type: Some("lead".into()) };
        assert_eq!(made, Ok(wanted));
        assert!(TeamCreateInput::parse(&json!({})).is_err_and(|why| why.contains("`team_name` is missing")));
        assert!(TeamCreateInput::parse(&json!({"team_name": "t", "x": 1})).is_err_and(|why| why.contains("`x`")));
        let wait = |input| TeamDeleteInput::parse(&input).map(|i| i.wait);
        assert_eq!(wait(json!({})), Ok(None));
        assert_eq!(wait(json!({"wait_ms": 600_000})), Ok(Some(Duration::from_secs(600))));
        assert!(wait(json!({"wait_ms": 600_001})).is_err_and(|why| why.contains("0 to 600000")));
        assert!(wait(json!({"wait_ms": -1})).is_err());
    }

    #[test]
    fn they_are_those_that_are_listed() {
        let names: Vec<String> = [TeamTool::Create, TeamTool::Delete].map(|tool| tool.spec().name).into();
        assert_eq!(names, TEAM_TOOLS);
    }
}
