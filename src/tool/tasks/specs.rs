//! What a model is told of the tools of the task board.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;
use crate::tool::{BoxFuture, Tool, ToolContext, ToolOutput};

/// A tool of the task board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskTool {
    /// `TaskCreate`.
    Create,
    /// `TaskGet`.
    Get,
    /// `TaskList`.
    List,
    /// `TaskUpdate`.
    Update,
}

impl TaskTool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Create, Self::Get, Self::List, Self::Update];

    /// The tool of this name, if it is one of the board's.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "TaskCreate",
            Self::Get => "TaskGet",
            Self::List => "TaskList",
            Self::Update => "TaskUpdate",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Create => {
                "Put a card on the task board: a piece of work that can be done and checked by itself. The card is \
pending and nobody's; TaskUpdate says what it waits for and whose it is. Use the board for work of many pieces, and \
for all that a team shares."
            }
            Self::Get => "Show one card of the task board with its whole description and what it waits for.",
            Self::List => {
                "List the cards of the task board: number, status, subject, owner, and what each still waits for. A \
card that nobody owns, that is pending and waits for nothing, can be begun."
            }
            Self::Update => {
                "Change a card of the task board. Set it in_progress before you begin, and completed only when it is \
done and checked, never with errors left. `owner` gives it to a member of the team, who is told. `deleted` takes it off \
the board for good."
            }
        }
    }

    fn schema(self) -> Value {
        let text = |about: &str| json!({"type": "string", "description": about});
        let ids = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
        let (properties, required): (Value, &[&str]) = match self {
            Self::Create => (
                json!({
                    "subject": text("What is to be done, in a few words: Fix the parser"),
                    "description": text("All that whoever takes the card must know, and how it is seen to be done"),
                    "activeForm": text("What is said while it is being done: Fixing the parser"),
                    "metadata": {"type": "object", "description": "Anything to be kept with it"},
                }),
                &["subject", "description"],
            ),
            Self::Get => (json!({"taskId": text("The number of the card")}), &["taskId"]),
            Self::List => (json!({}), &[]),
            Self::Update => (
                json!({
                    "taskId": text("The number of the card"),
                    "subject": text("A new subject"),
                    "description": text("A new description"),
                    "activeForm": text("New words for while it is being done"),
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "deleted"]},
                    "addBlocks": ids("Numbers of cards that shall wait for this one"),
                    "addBlockedBy": ids("Numbers of cards that this one shall wait for"),
                    "owner": text("The member whose it is, by its exact name; empty for nobody"),
                    "metadata": {"type": "object", "description": "Keys to set; null takes a key out"},
                }),
                &["taskId"],
            ),
        };
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema["additionalProperties"] = json!(false);
        schema
    }
}

impl Tool for TaskTool {
    fn name(&self) -> Cow<'_, str> {
        self.as_str().into()
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.as_str().to_owned(),
            description: self.description().to_owned(),
            input_schema: self.schema(),
        }
    }

    /// Those that look count as changing, too: they must see what the calls before them in the same
    /// message do.
    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        let id = input.get("taskId").map(|id| match id {
            Value::String(id) => format!("#{}", id.trim().trim_start_matches('#')),
            id => format!("#{id}"),
        });
        let words = ["subject", "status", "owner"].into_iter().find_map(|key| input.get(key)?.as_str());
        let parts: Vec<&str> = id.as_deref().into_iter().chain(words).collect();
        Activity {
            tool: self.as_str().to_owned(),
            description: one_line(&parts.join(" "), 80),
            is_search: false,
            is_read: matches!(self, Self::Get | Self::List),
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call(self.as_str(), &context.tool_use_id, input, &context.cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::TOOLS;

    #[test]
    fn schemas_take_what_other_programs_models_send() {
        let keys = |tool: TaskTool| -> Vec<String> {
            let schema = tool.spec().input_schema;
            assert_eq!(schema["additionalProperties"], false);
            schema["properties"].as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(TaskTool::Create), ["subject", "description", "activeForm", "metadata"]);
        assert_eq!(keys(TaskTool::Get), ["taskId"]);
        assert!(keys(TaskTool::List).is_empty() && TaskTool::List.spec().input_schema.get("required").is_none());
        let update = "taskId subject description activeForm status addBlocks addBlockedBy owner metadata";
        assert_eq!(keys(TaskTool::Update).join(" "), update);
        for tool in TaskTool::ALL {
            assert!(TOOLS.contains(&tool.as_str()) && TaskTool::named(tool.as_str()) == Some(tool));
        }
        assert_eq!(TaskTool::named("TaskStop"), None);
    }

    #[test]
    fn lists_of_agents_say_which_card_they_are_at() {
        let describe = |tool: TaskTool, input| tool.describe(&input).description;
        assert_eq!(describe(TaskTool::Update, json!({"taskId": "#3", "status": "completed"})), "#3 completed");
        assert_eq!(describe(TaskTool::Create, json!({"subject": "a\nb"})), "a b");
        assert_eq!(describe(TaskTool::Get, json!({"taskId": 4})), "#4");
        assert_eq!(describe(TaskTool::List, json!({})), "");
    }
}
