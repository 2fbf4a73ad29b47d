//! Calls of a [`Driver`] and their permission: what rules and mode permit runs, what they forbid is
//! told to the model, and what they leave open is asked at a desk while other calls go on.

use std::sync::Arc;

use super::driver::Driver;
use super::step::{Call, Event};
use crate::core::agent::Denial;
use crate::core::question::{Question, Verdict};
use crate::model::BoxFuture;
use crate::permission::Decision;
use crate::tool::{Tool, ToolContext, ToolOutput};

/// Decides what neither rules nor mode decide.
pub trait Desk: Send + Sync {
    /// Resolves when the question was answered, or nobody will answer it; within a time limit of the
    /// desk's own. Dropped when the turn is cancelled.
    fn ask(&self, question: Question) -> BoxFuture<'_, Verdict>;
}

/// A call whose question waits for an answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    id: String,
    /// What is asked, in words.
    what: String,
}

impl Driver {
    pub(super) fn run_tool(&mut self, call: Call) {
        let Some(tool) = self.parts.toolbox.get(&call.name).cloned() else {
            let text = format!(
                "there is no tool named {:?} here; the tools are: {}",
                call.name,
                self.parts.toolbox.names(&self.parts.policy.get()).join(", ")
            );
            return self.answer_call(call.id, ToolOutput::error(text));
        };
        match self.decide(&call) {
            Decision::Allow { .. } => self.start_tool(tool, call),
            Decision::Deny { reason } => self.refuse_call(&call, &reason),
            Decision::Ask { reason } => self.ask(&*tool, call, reason),
        }
    }

    fn decide(&self, call: &Call) -> Decision {
        // Before the decision: a command is judged by the folder in which it will run.
        let ToolContext { folder, cwd, .. } = &self.parts.context;
        let folder = if call.name == "Bash" { folder.settle() } else { cwd.clone() };
        self.parts.policy.get().decide_from(&call.name, &call.input, &folder)
    }

    /// The desk's answer to the question about `call`.
    pub(super) fn on_verdict(&mut self, call: Call, verdict: Verdict) {
        self.asked.retain(|asked| asked.id != call.id);
        match (verdict, self.parts.toolbox.get(&call.name).cloned()) {
            (Verdict::Allow, Some(tool)) => match self.decide(&call) {
                // Rules and mode may have become narrower while the question waited, and a yes never
                // outweighs what they forbid (spec 8.2).
                // Who approves a plan ends the mode in which there are plans.
                Decision::Deny { reason } if call.name != "ExitPlanMode" => self.refuse_call(&call, &reason),
                Decision::Deny { .. } | Decision::Allow { .. } | Decision::Ask { .. } => self.start_tool(tool, call),
            },
            // The mode in which it was asked has ended by this very answer.
            (Verdict::AllowIn { .. }, Some(tool)) => self.start_tool(tool, call),
            (Verdict::Allow | Verdict::AllowIn { .. }, None) => {
                let text = format!("{} is not among your tools any more", call.name);
                self.answer_call(call.id, ToolOutput::error(text));
            }
            (Verdict::Deny { reason }, _) => self.refuse_call(&call, &reason),
        }
    }

    /// What the oldest open question is about, in words.
    pub(super) fn open_question(&self) -> Option<&str> {
        self.asked.first().map(|asked| asked.what.as_str())
    }

    /// Whether a call waits for somebody's permission.
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    fn ask(&mut self, tool: &dyn Tool, call: Call, reason: String) {
        let description = tool.describe(&call.input).description;
        let what = match call.name.as_str() {
            "ExitPlanMode" => "approval of its plan".to_owned(),
            name => format!("permission for {name} {description}"),
        };
        self.asked.push(Asked { id: call.id.clone(), what: what.trim_end().to_owned() });
        let question = Question {
            tool_use_id: call.id.clone(),
            tool: call.name.clone(),
            input: call.input.clone(),
            description,
            reason,
        };
        let desk = Arc::clone(&self.parts.desk);
        let cancel = self.cancel.child_token();
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let verdict = tokio::select! {
                verdict = desk.ask(question) => verdict,
                () = cancel.cancelled() => Verdict::Deny { reason: "the turn was cancelled before anybody answered".to_owned() },
            };
            let _ = events.send(Event::Answered { call, verdict }).await;
        });
    }

    fn start_tool(&self, tool: Arc<dyn Tool>, call: Call) {
        let events = self.parts.events.clone();
        let mut context = self.parts.context.clone();
        context.cancel = self.cancel.child_token();
        context.tool_use_id.clone_from(&call.id);
        let Call { id, name, input } = call;
        let run = tokio::spawn(async move { tool.run(&input, &context).await });
        tokio::spawn(async move {
            let output = match run.await {
                Ok(output) => output,
                Err(panic) => ToolOutput::error(format!("the tool {name} failed inside: {panic}")),
            };
            let _ = events.send(Event::ToolDone { id, output }).await;
        });
    }

    fn refuse_call(&mut self, call: &Call, reason: &str) {
        self.denials.push(Denial {
            tool_name: call.name.clone(),
            tool_use_id: call.id.clone(),
            tool_input: call.input.clone(),
        });
        let text =
            format!("Permission denied: {reason}. Do it another way, or say in your answer what could not be done.");
        self.answer_call(call.id.clone(), ToolOutput::error(text));
    }

    /// Answers a call that ran nothing; as an event, since a turn is not handled inside another.
    fn answer_call(&self, id: String, output: ToolOutput) {
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let _ = events.send(Event::ToolDone { id, output }).await;
        });
    }
}
