//! `ExitPlanMode`: shows a plan to whoever decides about it. The decision is that about the call itself
//! ([`crate::permission::Policy`] asks about every one); whoever gives it changes the mode.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;
use crate::permission::{Mode, SharedPolicy};

/// The tool.
#[derive(Clone, Debug)]
pub struct ExitPlanMode(SharedPolicy);

impl ExitPlanMode {
    /// For a conversation under this policy.
    pub fn new(policy: &SharedPolicy) -> Self {
        Self(policy.clone())
    }
}

impl Tool for ExitPlanMode {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "ExitPlanMode".to_owned(),
            description: "In plan mode, where nothing may be changed: hands in your plan once it is complete, and waits \
                          for the decision. When it is approved you may go on to carry it out; when it is not, revise it \
                          as you are told and hand it in again. For work that only finds something out there is nothing \
                          to hand in."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "plan": {
                        "type": "string", "minLength": 1,
                        "description": "The whole plan: what is changed in which files, in which order, and how it is checked"
                    }
                },
                "required": ["plan"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        let description = input["plan"].as_str().map(|plan| one_line(plan, 80)).unwrap_or_default();
        Activity { tool: "ExitPlanMode".to_owned(), description, is_search: false, is_read: false }
    }

    fn run<'a>(&'a self, input: &'a Value, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            // Other programs' models say what else they will ask for.
            let plan = Arguments::new(input, &["plan", "allowedPrompts"]).and_then(|a| a.required("plan"));
            match plan {
                Err(why) => ToolOutput::error(format!("the input of ExitPlanMode can't be used: {why}")),
                Ok(plan) => approved(plan, self.0.get().mode()),
            }
        })
    }
}

fn approved(plan: &str, mode: Mode) -> ToolOutput {
    let next = match mode {
        Mode::Plan => "Mode plan is still in force, so nothing may be changed yet",
        Mode::Default | Mode::AcceptEdits | Mode::DontAsk | Mode::BypassPermissions => "Carry it out now",
    };
    ToolOutput::ok(format!("The plan is approved; the permission mode is {mode}. {next}."))
        .with(json!({"plan": plan, "approved": true, "mode": mode.as_str()}))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::core::frame::PermissionRules;
    use crate::permission::Policy;
    use crate::tool::testing;

    #[tokio::test]
    async fn the_answer_names_the_mode_that_holds_by_then() {
        let rules = PermissionRules::default();
        let policy = |mode| Policy::new(mode, &rules, Path::new("/"), None, None, false).0;
        let shared = SharedPolicy::new(policy(Mode::Plan));
        let (tool, context) = (ExitPlanMode::new(&shared), testing::context(Path::new("/"), Path::new("/")));
        shared.set(policy(Mode::AcceptEdits));
        let input = json!({"plan": "p", "allowedPrompts": [{"tool": "Bash", "prompt": "run tests"}]});
        let output = tool.run(&input, &context).await;
        assert!(!output.is_error && output.text.contains("mode is acceptEdits"), "{output:?}");
        assert_eq!(output.structured, Some(json!({"plan": "p", "approved": true, "mode": "acceptEdits"})));
        for bad in [json!({}), json!({"plan": ""}), json!({"plan": "p", "x": 1})] {
            assert!(tool.run(&bad, &context).await.is_error, "{bad}");
        }
    }
}
