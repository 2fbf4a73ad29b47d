//! `Bash`: runs a shell command, and waits for it or leaves it to the background. There is no terminal
//! and nothing on stdin, so that whatever wants to talk to a person fails at once instead of waiting;
//! what waits for something else is ended by the time limit.

use std::borrow::Cow;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::shell::{Said, Shell, recorded, remembering};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::env::DISABLE_BACKGROUND;
use crate::core::limits::{TOOL_OUTPUT_BYTES, TOOL_OUTPUT_CHARS};
use crate::core::message::ToolSpec;
use crate::core::shell::{SHELL_FOLDER, STARTED_SHELL};
use crate::core::text;
use crate::proc::{Captured, ProcError, Spill, ToolCommand, run_captured, signal_name};

/// Time limit of a call that names none, milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// Longest time limit, milliseconds.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// Whether commands may go on in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// They may, if the call asks for it.
    Offered,
    /// They may not, and the parameter does not exist.
    Disabled,
}

/// The tool.
pub struct Bash(pub Background);

impl Tool for Bash {
    fn name(&self) -> Cow<'_, str> {
        "Bash".into()
    }

    fn spec(&self) -> ToolSpec {
        let mut description = format!(
            "Runs a command with bash and returns its output, stdout and stderr together in the order they were \
             written. Every call has a fresh shell: a changed folder (`cd`) is kept for your next call, and only for \
             you; variables and functions are not kept. There is no terminal, stdin is empty, and editors and pagers \
             are switched off, so use the non-interactive forms of programs. The call ends when the command ends; a \
             process left running with `&` goes on, but its later output is lost unless it is redirected to a file. \
             Output over {TOOL_OUTPUT_CHARS} characters is cut, and the whole is put in a file that is named. For \
             reading, editing and searching files prefer the tools for that, where you have them."
        );
        let mut properties = json!({
            "command": {"type": "string", "description": "The command, as one would type it into a shell."},
            "timeout": {
                "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS,
                "description": format!(
                    "Time limit in milliseconds; {DEFAULT_TIMEOUT_MS} if absent, at most {MAX_TIMEOUT_MS}."
                ),
            },
            "description": {"type": "string", "description": "What the command does, in 5 to 10 words."},
        });
        if self.0 == Background::Offered {
            description.push_str(
                " With run_in_background the call returns at once: the output goes to a file that is named, and a \
                 <task-notification> tells of the end. Do not wait for it in a loop.",
            );
            properties["run_in_background"] = json!({
                "type": "boolean",
                "description": "Return at once and let the command go on without a time limit. It ends with you.",
            });
        }
        let input_schema = json!({"type": "object", "properties": properties, "required": ["command"]});
        ToolSpec { name: "Bash".into(), description, input_schema }
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
                Err(message) => ToolOutput::error(message),
                Ok(call) if !call.in_background => run(call.command, call.limit, context).await,
                Ok(_) if self.0 == Background::Disabled => ToolOutput::error(format!(
                    "{DISABLE_BACKGROUND} is set, so nothing runs in the background; run the command without \
                     run_in_background, with a longer `timeout` if it needs one"
                )),
                Ok(call) => start(&call, context),
            }
        })
    }
}

struct BashCall<'a> {
    command: &'a str,
    limit: Duration,
    in_background: bool,
    description: Option<&'a str>,
}

fn parse(input: &Value) -> Result<BashCall<'_>, String> {
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
    let in_background = match &input["run_in_background"] {
        Value::Null => false,
        Value::Bool(asked) => *asked,
        Value::String(text) if text == "true" || text == "false" => text == "true",
        other => return Err(format!("`run_in_background` is {other}, expected true or false")),
    };
    let description = input["description"].as_str().map(str::trim).filter(|d| !d.is_empty());
    Ok(BashCall { command, limit: Duration::from_millis(limit), in_background, description })
}

/// Starts a command that nobody waits for.
fn start(call: &BashCall<'_>, context: &ToolContext) -> ToolOutput {
    // Whoever ends a session or agent cancels its turn first; what began after that would be nobody's.
    if context.cancel.is_cancelled() {
        return ToolOutput::error("not run: the turn was cancelled");
    }
    let command = ToolCommand {
        program: shell().to_owned(),
        args: vec!["-c".into(), call.command.into()],
        cwd: context.folder.get(),
        env: context.env.to_vec(),
        time_limit: call.limit,
        output_bytes_kept: 0,
        spill: None,
    };
    let said = Said { command: call.command, description: call.description, tool_use_id: &context.tool_use_id };
    match context.shells.start(command, &context.results, said) {
        Ok(shell) => started(&shell, folder_note(None, context)),
        Err(message) => ToolOutput::error(message),
    }
}

fn started(shell: &Shell, folder: FolderNote) -> ToolOutput {
    let file = shell.output_file.display().to_string();
    let mut text = folder.text.map(|text| format!("{text}\n")).unwrap_or_default();
    text.push_str(&format!(
        "Running in the background.\nid: {}\noutput file: {file}\nA <task-notification> comes when it has ended.",
        shell.id
    ));
    let mut structured = json!({
        "stdout": "",
        "interrupted": false,
        STARTED_SHELL: shell.id.as_str(),
        "outputFile": file,
        "description": shell.description,
        "command": shell.command,
    });
    if let Some(now) = folder.now {
        structured[SHELL_FOLDER] = Value::String(now);
    }
    ToolOutput::ok(text).with(structured)
}

/// What is told of the shell's folder, and where the next command runs if that changed.
struct FolderNote {
    text: Option<String>,
    now: Option<String>,
}

/// `ended_in`: where the command left its shell.
fn folder_note(ended_in: Option<PathBuf>, context: &ToolContext) -> FolderNote {
    let lost = context.folder.take_lost();
    let ran_in = context.folder.get();
    let moved = ended_in.is_some_and(|folder| context.folder.moved(folder));
    let now = context.folder.get();
    let mut parts = Vec::new();
    if let Some(lost) = &lost {
        parts.push(format!("[the working folder {} is gone; this ran in {}]", lost.display(), ran_in.display()));
    }
    if moved {
        parts.push(format!("[working folder of your next command: {}]", now.display()));
    }
    let has_changed = moved || lost.is_some();
    FolderNote {
        text: (!parts.is_empty()).then(|| parts.join("\n")),
        now: has_changed.then(|| now.to_str().map(str::to_owned)).flatten(),
    }
}

async fn run(command: &str, limit: Duration, context: &ToolContext) -> ToolOutput {
    let record = context.results.join(format!("{}.cwd", context.tool_use_id));
    // Where the folder can't be remembered the command runs all the same, and the folder stays.
    let remembers = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&context.results).is_ok();
    // What a crash has left there would be taken for this call's.
    let _ = std::fs::remove_file(&record);
    let args = remembers.then(|| remembering(command, &record, shell())).flatten();
    let tool_command = ToolCommand {
        program: shell().to_owned(),
        args: args.unwrap_or_else(|| vec!["-c".into(), command.into()]),
        cwd: context.folder.get(),
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
        Ok(captured) => report(captured, limit, folder_note(recorded(&record), context)),
        Err(error) => ToolOutput::error(explain(&error)),
    }
}

/// The first of bash and sh that exists.
fn shell() -> &'static Path {
    static SHELL: OnceLock<PathBuf> = OnceLock::new();
    SHELL.get_or_init(|| which::which("bash").or_else(|_| which::which("sh")).unwrap_or_else(|_| "/bin/sh".into()))
}

fn report(captured: Captured, limit: Duration, folder: FolderNote) -> ToolOutput {
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
    parts.extend(folder.text);
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
    if let Some(now) = folder.now {
        structured[SHELL_FOLDER] = Value::String(now);
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
             `timeout` (milliseconds, at most {MAX_TIMEOUT_MS}); what runs longer can be left to the \
             background, where that is offered, or started with `&` and its output redirected to a file",
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

pub(super) fn explain(error: &ProcError) -> String {
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
