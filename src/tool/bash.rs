//! `Bash`: runs a shell command. There is no terminal and nothing on stdin, so that whatever wants
//! to talk to a person fails at once instead of waiting; what waits for something else is ended by
//! the time limit.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::limits::{TOOL_OUTPUT_BYTES, TOOL_OUTPUT_CHARS};
use crate::core::message::ToolSpec;
use crate::core::text;
use crate::proc::{Captured, ProcError, Spill, ToolCommand, run_captured, signal_name};

/// Time limit of a call that names none, milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// Longest time limit, milliseconds.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// The tool.
pub struct Bash;

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Bash".into(),
            description: format!(
                "Runs a command with bash and returns its output, stdout and stderr together in the order they were \
                 written. Every call starts in the working folder with a fresh shell: `cd`, variables and functions \
                 do not carry over to the next call, files do. There is no terminal and stdin is empty, so use the \
                 non-interactive forms of programs. The call ends when the command ends; a process left running with \
                 `&` goes on, but its later output is lost unless it is redirected to a file. Output over \
                 {TOOL_OUTPUT_CHARS} characters is cut, and the whole is put in a file that is named. For reading, \
                 editing and searching files prefer the tools for that, where you have them."
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command, as one would type it into a shell."},
                    "timeout": {
                        "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS,
                        "description": format!(
                            "Time limit in milliseconds; {DEFAULT_TIMEOUT_MS} if absent, at most {MAX_TIMEOUT_MS}."
                        ),
                    },
                    "description": {"type": "string", "description": "What the command does, in 5 to 10 words."},
                },
                "required": ["command"],
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        let said = |field: &str| input[field].as_str().map(str::trim).filter(|s| !s.is_empty());
        let description = text::one_line(said("description").or(said("command")).unwrap_or_default(), 100);
        Activity { tool: "Bash".into(), description, is_search: false, is_read: false }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match parse(input) {
                Ok((command, limit)) => run(command, limit, context).await,
                Err(message) => ToolOutput::error(message),
            }
        })
    }
}

fn parse(input: &Value) -> Result<(&str, Duration), String> {
    let Some(command) = input["command"].as_str().filter(|c| !c.trim().is_empty()) else {
        return Err("Bash needs `command`, the shell command to run, as a text that is not empty".into());
    };
    let limit = match &input["timeout"] {
        Value::Null => DEFAULT_TIMEOUT_MS,
        value => match value.as_u64().or_else(|| value.as_f64().filter(|ms| *ms >= 1.0).map(|ms| ms as u64)) {
            Some(ms @ 1..=MAX_TIMEOUT_MS) => ms,
            _ => return Err(format!("`timeout` is a number of milliseconds from 1 to {MAX_TIMEOUT_MS}, not {value}")),
        },
    };
    Ok((command, Duration::from_millis(limit)))
}

async fn run(command: &str, limit: Duration, context: &ToolContext) -> ToolOutput {
    let tool_command = ToolCommand {
        program: shell().to_owned(),
        args: vec!["-c".into(), command.into()],
        cwd: context.cwd.clone(),
        env: context.env.to_vec(),
        time_limit: limit,
        // Enough for that many characters of four bytes, however the first is cut.
        output_bytes_kept: 4 * (TOOL_OUTPUT_CHARS + 1),
        spill: Some(Spill {
            path: context.results.join(format!("{}.txt", context.tool_use_id)),
            over: TOOL_OUTPUT_CHARS,
        }),
    };
    match run_captured(tool_command, &context.cancel).await {
        Ok(captured) => report(captured, limit),
        Err(error) => ToolOutput::error(explain(&error)),
    }
}

/// The first of bash and sh that exists.
fn shell() -> &'static Path {
    static SHELL: OnceLock<PathBuf> = OnceLock::new();
    SHELL.get_or_init(|| which::which("bash").or_else(|_| which::which("sh")).unwrap_or_else(|_| "/bin/sh".into()))
}

fn report(captured: Captured, limit: Duration) -> ToolOutput {
    let all = String::from_utf8_lossy(&captured.output);
    let is_cut = captured.truncated || all.chars().nth(TOOL_OUTPUT_CHARS).is_some();
    let shown: String = all.chars().take(TOOL_OUTPUT_CHARS).collect();
    let mut file = None;
    let mut parts = Vec::new();
    parts.extend(failure(&captured, limit));
    if !shown.trim().is_empty() {
        parts.push(shown.trim_end().to_owned());
    }
    if let Some(spilled) = &captured.spilled {
        if is_cut {
            parts.push(cut_notice(&captured));
            file = Some(spilled.path.display().to_string());
        } else {
            // More bytes than characters: it was not long after all.
            let _ = std::fs::remove_file(&spilled.path);
        }
    }
    if parts.is_empty() {
        parts.push("(no output)".into());
    }
    let is_error = captured.timed_out || captured.cancelled || !captured.exit.is_success();
    let mut structured = json!({
        "stdout": shown,
        "exitCode": captured.exit.code,
        "interrupted": captured.timed_out || captured.cancelled,
        "durationMs": u64::try_from(captured.duration.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(file) = file {
        structured["outputFile"] = Value::String(file);
    }
    ToolOutput { text: parts.join("\n"), is_error, structured: Some(structured) }
}

/// Why it failed, if it did.
fn failure(captured: &Captured, limit: Duration) -> Option<String> {
    if captured.cancelled {
        return Some("interrupted: the command and everything it had started were ended".into());
    }
    if captured.timed_out {
        return Some(format!(
            "timed out after {}: the command and everything it had started were ended. A call may have a longer \
             `timeout` (milliseconds, at most {MAX_TIMEOUT_MS}); what runs longer can be started with `&` and its \
             output redirected to a file",
            humantime::format_duration(limit)
        ));
    }
    match captured.exit.code {
        Some(0) => None,
        // A shell reports so that a signal ended its command.
        Some(code @ 129..=159) => Some(format!("exit code {code} (128 + {}: {})", code - 128, signal_name(code - 128))),
        _ => Some(captured.exit.to_string()),
    }
}

fn cut_notice(captured: &Captured) -> String {
    let total = captured.total_bytes;
    let notice = format!("[cut: the first {TOOL_OUTPUT_CHARS} characters of {total} bytes of output are shown;");
    let Some(spilled) = &captured.spilled else { return format!("{notice} the rest is lost]") };
    let path = spilled.path.display();
    match &spilled.error {
        Some(error) => format!("{notice} the rest could not be written to {path}: {error}]"),
        None if spilled.bytes < total => {
            format!("{notice} the first {} MiB are in {path}, the rest is lost]", TOOL_OUTPUT_BYTES >> 20)
        }
        None => format!("{notice} the whole is in {path}]"),
    }
}

fn explain(error: &ProcError) -> String {
    match error {
        ProcError::NoFolder { path } => format!(
            "the working folder {} does not exist any more, so no command can be run in it. Create it again by \
             another tool, or report this",
            path.display()
        ),
        ProcError::Start { source, .. } if source.kind() == std::io::ErrorKind::ArgumentListTooLong => {
            "the command is too long for the system (about 128 KiB): write it to a file and run that".into()
        }
        ProcError::Start { source, .. } | ProcError::Io { source, .. } => format!("{error}: {source}"),
    }
}

#[cfg(test)]
#[path = "bash_tests.rs"]
mod tests;
