//! What whoever called an agent in the foreground is told of its end.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::core::agent::{Meta, Outcome, RunStatus};
use crate::core::limits;
use crate::core::paths::AgentFiles;
use crate::core::text::cap;
use crate::tool::ToolOutput;

/// Whether an agent that has answered can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continued {
    /// With a message.
    BySendMessage,
    /// It can't.
    No,
}

/// Types whose result is not followed by how to continue them.
const ONE_SHOT: [&str; 2] = ["Explore", "Plan"];

/// The answer of the call that waited for a foreground agent.
pub fn foreground_answer(
    meta: &Meta,
    files: &AgentFiles,
    prompt: &str,
    outcome: &Outcome,
    continued: Continued,
) -> ToolOutput {
    let content: Vec<Value> = outcome.result.iter().map(|text| json!({"type": "text", "text": text})).collect();
    ToolOutput {
        text: words(meta, files, outcome, continued),
        is_error: outcome.status != RunStatus::Completed,
        structured: Some(json!({
            "status": outcome.status,
            "agentId": outcome.agent_id.as_str(),
            "run": outcome.run,
            "agentType": meta.agent_type,
            "prompt": prompt,
            "content": content,
            "resolvedModel": meta.model,
            "totalDurationMs": outcome.usage.duration_ms,
            "totalTokens": outcome.usage.total_tokens,
            "totalToolUseCount": outcome.usage.tool_uses,
            "error": outcome.error,
        })),
    }
}

/// Its text, then how to continue it and what it used.
fn words(meta: &Meta, files: &AgentFiles, outcome: &Outcome, continued: Continued) -> String {
    let output = files.transcript().to_string_lossy();
    let mut text = String::new();
    if let Some(error) = &outcome.error {
        let _ = writeln!(text, "The agent {}: {error}", outcome.status);
    }
    match limited_result(outcome, &output) {
        Some(result) => text.push_str(&result),
        None => text.push_str("It left no text."),
    }
    let id = outcome.agent_id.as_str();
    if continued == Continued::BySendMessage && !ONE_SHOT.contains(&meta.agent_type.as_str()) {
        let _ = write!(text, "\n\nagentId: {id} (SendMessage with to: \"{id}\" continues this agent)");
    }
    if !outcome.permission_denials.is_empty() {
        let denied: Vec<&str> = outcome.permission_denials.iter().map(|d| d.tool_name.as_str()).collect();
        let _ = write!(text, "\nNot permitted: {}", denied.join(", "));
    }
    let usage = &outcome.usage;
    let _ = write!(
        text,
        "\n<usage>total_tokens: {}\ntool_uses: {}\nduration_ms: {}</usage>",
        usage.total_tokens, usage.tool_uses, usage.duration_ms
    );
    text
}

/// What of an agent's answer is put into a conversation; the rest is in its output file.
pub fn limited_result(outcome: &Outcome, output: &str) -> Option<String> {
    let result = outcome.result.as_deref()?;
    Some(cap(result, limits::NOTIFICATION_RESULT_CHARS, |all| {
        format!("[cut at {} of {all} characters; the whole is in {output}]", limits::NOTIFICATION_RESULT_CHARS)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r100_an_answer_is_cut_and_says_how_it_ended() {
        let meta: Meta = serde_json::from_value(json!({"agentType": "worker"})).unwrap();
        let files = AgentFiles::of("/s/subagents/agent-a1a2b3c4d5e6f7890.jsonl");
        let mut outcome: Outcome = serde_json::from_value(json!({
            "agentId": "a-1a2b3c4d5e6f7890", "run": 1, "status": "completed",
            "result": "x".repeat(limits::NOTIFICATION_RESULT_CHARS + 1),
        }))
        .unwrap();
        let told = foreground_answer(&meta, &files, "p", &outcome, Continued::BySendMessage);
        assert!(told.text.contains("[cut at") && told.text.contains("continues this agent") && !told.is_error);
        let told = foreground_answer(&meta, &files, "p", &outcome, Continued::No);
        assert!(!told.text.contains("continues this agent"), "{}", told.text);
        outcome.status = RunStatus::Failed;
        outcome.error = Some("its process ended: signal SIGKILL".to_owned());
        let told = foreground_answer(&meta, &files, "p", &outcome, Continued::No);
        assert!(told.text.contains("SIGKILL") && told.is_error);
    }
}
