//! `lead transcript`: the whole conversation of an agent or session, as Markdown or as it is on
//! disk.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};

use clap::{Args, ValueEnum};
use serde::de::IgnoredAny;

use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::{find_subject, ours};
use super::output::Output;
use crate::core::entry::{Line, ORIGIN_NOTIFICATION, ORIGIN_PEER, Talk, parse_line};
use crate::core::message::{Block, Known, Role, text_of};
use crate::core::server_tool;
use crate::store::StoreError;

/// Arguments of `lead transcript`.
#[derive(Args, Debug)]
pub(super) struct TranscriptArgs {
    /// The agent or session: its id, the beginning of it, or the name of an agent that runs
    agent: String,
    /// Print it in this form
    #[arg(long, value_name = "FORM", default_value = "md")]
    format: Format,
    /// Print JSON: an array of its lines
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Markdown
    Md,
    /// Its lines as they are
    Jsonl,
}

pub(super) fn run(args: &TranscriptArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let runtime = folders.open_runtime()?;
    let subject = find_subject(&args.agent, folders, &ours(folders, &runtime)?)?;
    let path = subject.transcript();
    let mut lines = BufReader::new(File::open(path).map_err(StoreError::at(path, "open"))?);
    let mut bytes = Vec::new();
    let mut first = true;
    loop {
        bytes.clear();
        let read = lines.read_until(b'\n', &mut bytes).map_err(StoreError::at(path, "read"))?;
        if read == 0 {
            break;
        }
        match (args.json, args.format) {
            (true, _) => {
                // A torn last line would spoil the array.
                if serde_json::from_slice::<IgnoredAny>(&bytes).is_err() {
                    continue;
                }
                out.text(if first { "[" } else { ",\n" })?;
                out.bytes(bytes.trim_ascii())?;
                first = false;
            }
            (false, Format::Jsonl) => out.bytes(&bytes)?,
            (false, Format::Md) => {
                if let Ok(line) = parse_line(&bytes) {
                    out.answer_part(&markdown(&line))?;
                }
            }
        }
    }
    if args.json {
        out.line(if first { "[]" } else { "]" })?;
    }
    Ok(Exit::Success)
}

/// One line as Markdown with an empty line behind it; empty for what is no part of the talk.
fn markdown(line: &Line) -> String {
    match line {
        Line::Talk(talk) if talk.is_meta == Some(true) => String::new(),
        Line::Talk(talk) => of_talk(talk),
        Line::Outcome(outcome) => {
            let error = outcome.error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
            format!("---\n\n*Run {} {}{error}*\n\n", outcome.run, outcome.status)
        }
        Line::Boundary(_) => "---\n\n*What came before was replaced by a summary*\n\n".to_owned(),
        Line::Enqueued(_) | Line::Mode(_) | Line::Switched(_) | Line::Other => String::new(),
    }
}

fn of_talk(talk: &Talk) -> String {
    let mut out = String::new();
    for block in &talk.message.message.content {
        let _ = match block {
            Block::Known(Known::Text { .. }) | Block::Other(_) if block.as_text().is_some() => {
                match block.as_text().map(str::trim_end) {
                    None | Some("") => Ok(()),
                    Some(text) => write!(out, "## {}\n\n{text}\n\n", speaker(talk)),
                }
            }
            Block::Known(Known::Text { .. }) => Ok(()),
            Block::Known(Known::ToolUse { name, input, .. }) => {
                let input = serde_json::to_string_pretty(input).unwrap_or_else(|_| input.to_string());
                write!(out, "**{name}**\n\n{}\n\n", fenced("json", &input))
            }
            Block::Known(Known::ToolResult { content, is_error, .. }) => {
                let title = if *is_error { "**Error**\n\n" } else { "" };
                write!(out, "{title}{}\n\n", fenced("", &text_of(content)))
            }
            Block::Other(value) if server_tool::use_id(block).is_some() => {
                let name = value["name"].as_str().unwrap_or_default();
                write!(out, "**{name}**\n\n{}\n\n", fenced("json", &value["input"].to_string()))
            }
            Block::Other(_) => Ok(()),
        };
    }
    out
}

fn speaker(talk: &Talk) -> String {
    match (talk.kind, talk.origin.as_ref().map(|o| o.kind.as_str())) {
        (Role::Assistant, _) => "Assistant".to_owned(),
        (Role::User, Some(ORIGIN_NOTIFICATION)) => "Notification".to_owned(),
        (Role::User, Some(ORIGIN_PEER)) => format!("Message from {}", talk.from.as_deref().unwrap_or("somebody")),
        (Role::User, _) => "User".to_owned(),
    }
}

/// A code block whose fence no line of the content can close.
fn fenced(language: &str, content: &str) -> String {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", content.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(line: serde_json::Value) -> String {
        markdown(&parse_line(line.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn a_conversation_reads_as_markdown() {
        let talk = |kind: &str, content| {
            shown(json!({"type": kind, "parentUuid": null, "uuid": "u", "message": {"role": kind, "content": content}}))
        };
        assert_eq!(talk("user", json!("hello\n")), "## User\n\nhello\n\n");
        let call =
            talk("assistant", json!([{"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "x"}}]));
        assert_eq!(call, "**Read**\n\n```json\n{\n  \"file_path\": \"x\"\n}\n```\n\n");
        let search = talk(
            "assistant",
            json!([
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tea"}},
                {"type": "text", "text": "3 EUR", "citations": [{"url": "u"}]},
            ]),
        );
        assert_eq!(search, "**web_search**\n\n```json\n{\"query\":\"tea\"}\n```\n\n## Assistant\n\n3 EUR\n\n");
        let answer = talk(
            "user",
            json!([{"type": "tool_result", "tool_use_id": "t", "content": "a\n```\nb", "is_error": true}]),
        );
        assert_eq!(answer, "**Error**\n\n````\na\n```\nb\n````\n\n");
        let end =
            shown(json!({"type": "system", "subtype": "agent_outcome", "agentId": "a-1a2b3c4d5e6f7890", "run": 2,
            "status": "failed", "error": "lost"}));
        assert_eq!(end, "---\n\n*Run 2 failed: lost*\n\n");
        assert_eq!(shown(json!({"type": "summary"})), "");
    }
}
