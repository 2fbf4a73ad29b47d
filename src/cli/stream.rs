//! `--output-format stream-json`: what happens in a session as lines of JSON (formats A and B.1),
//! `type` first, each with `session_id` and `uuid`. Lines of ours have a subtype `lead_…`.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::result_line::ResultLine;
use super::sink::Sink;
use crate::agent::shell_summary;
use crate::core::agent::{Outcome, RunStatus};
use crate::core::clock;
use crate::core::entry::{Boundary, CompactMetadata, Line, Talk};
use crate::core::frame::{BUILD, Telling};
use crate::core::ids::{SessionId, random_uuid};
use crate::lead::{Listener, Setting, Task, Told, Who};
use crate::model::{CallEvent, Retrying};
use crate::tool::shell::Shell;

/// Whether the parts of a reply are shown as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    /// Each as a `stream_event`.
    Shown,
    /// Only the whole.
    Left,
}

/// Turns what happens into lines for a sink.
pub(super) struct Stream {
    sink: Sink,
    partial: Partial,
}

impl Stream {
    pub(super) fn new(sink: Sink, partial: Partial) -> Self {
        Self { sink, partial }
    }

    /// Where the lines go.
    pub(super) fn sink(&self) -> &Sink {
        &self.sink
    }

    /// The result of a run, or of one that was refused.
    pub(super) fn result(&self, line: &ResultLine) {
        self.put(line);
    }

    /// The answer to a request that controls the session and is not carried out.
    pub(super) fn control_error(&self, request_id: &Value, error: &str) {
        let response = json!({"subtype": "error", "request_id": request_id, "error": error});
        self.put(&json!({"type": "control_response", "response": response}));
    }

    fn put(&self, line: &impl Serialize) {
        match serde_json::to_vec(line) {
            Ok(json) => self.sink.line(json),
            Err(error) => tracing::error!(%error, "a line of the output was left out"),
        }
    }

    fn call(&self, session: &SessionId, who: Who<'_>, event: CallEvent<'_>) {
        match event {
            CallEvent::Sent { .. } => self.put(&of(session, who, "status", json!({"status": "requesting"}))),
            CallEvent::Part { event, .. } if self.partial == Partial::Shown => {
                let Ok(event) = serde_json::from_str::<&RawValue>(event) else { return };
                self.put(&Part {
                    kind: "stream_event",
                    event,
                    parent_tool_use_id: task_of(who).and_then(|t| t.meta.tool_use_id.as_deref()),
                    agent_id: task_of(who).map(|t| t.id.as_str()),
                    session_id: session.as_str(),
                    uuid: random_uuid(),
                });
            }
            CallEvent::Part { .. } => {}
            CallEvent::Waiting(retry) => self.put(&of(session, who, "lead_retry", retried(&retry))),
        }
    }
}

impl Listener for Stream {
    fn hear(&self, session: &SessionId, what: Told<'_>) {
        match what {
            Told::Turn(setting) => self.put(&system(session, "init", init(setting))),
            Told::Line(who, Line::Talk(talk)) => self.put(&said(session, talk, who)),
            Told::Line(who, Line::Boundary(boundary)) => {
                let mut line = of(session, who, "compact_boundary", compacted(boundary));
                line.insert("uuid".to_owned(), json!(boundary.uuid));
                self.put(&line);
            }
            Told::Line(who, Line::Switched(switch)) => {
                let fields = json!({"from": switch.from, "to": switch.to, "reason": switch.reason});
                self.put(&of(session, who, "lead_model_switch", fields));
            }
            Told::Line(..) => {}
            Told::Call(who, event) => self.call(session, who, event),
            Told::Compacting(who) => self.put(&of(session, who, "status", json!({"status": "compacting"}))),
            Told::Started { task, prompt, background } => {
                let fields = json!({
                    "subagent_type": task.meta.agent_type,
                    "task_type": "local_agent",
                    "prompt": prompt,
                    "is_backgrounded": background,
                });
                self.put(&task_line(session, "task_started", task, fields));
            }
            Told::Backgrounded(task) => {
                let patch = json!({"is_backgrounded": true});
                self.put(&system(session, "task_updated", json!({"task_id": task.id.as_str(), "patch": patch})));
            }
            Told::Progress { task, progress, duration } => {
                let fields = json!({
                    "subagent_type": task.meta.agent_type,
                    "usage": {
                        "total_tokens": progress.total_tokens(),
                        "tool_uses": progress.tool_uses,
                        "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                    },
                    "last_tool_name": progress.activity.last().map(|a| &a.tool),
                });
                self.put(&task_line(session, "task_progress", task, fields));
            }
            Told::Ended(task, outcome) => {
                let patch = patch(&outcome.status.to_string(), outcome.error.as_deref());
                self.put(&system(session, "task_updated", json!({"task_id": task.id.as_str(), "patch": patch})));
                self.put(&task_line(session, "task_notification", task, notified(task, outcome)));
            }
            Told::NotStarted(task) => {
                let patch = patch("failed", Some("it did not start"));
                self.put(&system(session, "task_updated", json!({"task_id": task.id.as_str(), "patch": patch})));
            }
            Told::ShellStarted(shell) => {
                self.put(&shell_line(session, "task_started", shell, json!({"is_backgrounded": true})));
            }
            Told::ShellEnded(shell, end) => {
                let error = (end.status != RunStatus::Completed).then_some(end.how.as_str());
                let patch = patch(&end.status.to_string(), error);
                self.put(&system(session, "task_updated", json!({"task_id": shell.id.as_str(), "patch": patch})));
                let fields = json!({
                    "status": notified_status(end.status),
                    "output_file": shell.output_file,
                    "summary": shell_summary(&shell.description, end),
                });
                self.put(&shell_line(session, "task_notification", shell, fields));
            }
            Told::Result(report) => self.result(&ResultLine::of_run(report)),
        }
    }

    fn telling(&self) -> Telling {
        match self.partial {
            Partial::Shown => Telling::Parts,
            Partial::Left => Telling::Lines,
        }
    }
}

#[derive(Serialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'a RawValue,
    parent_tool_use_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    session_id: &'a str,
    uuid: String,
}

type Object = Map<String, Value>;

/// A `system` line with these fields.
fn system(session: &SessionId, subtype: &str, fields: Value) -> Object {
    let mut line = Object::new();
    line.insert("type".to_owned(), json!("system"));
    line.insert("subtype".to_owned(), json!(subtype));
    add(&mut line, fields);
    line.insert("session_id".to_owned(), json!(session.as_str()));
    line.insert("uuid".to_owned(), json!(random_uuid()));
    line
}

fn add(line: &mut Object, fields: Value) {
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
}

fn task_line(session: &SessionId, subtype: &str, task: Task<'_>, fields: Value) -> Object {
    let mut all = json!({
        "task_id": task.id.as_str(),
        "tool_use_id": task.meta.tool_use_id,
        "description": task.meta.description,
    });
    if let Value::Object(all) = &mut all {
        add(all, fields);
    }
    system(session, subtype, all)
}

fn shell_line(session: &SessionId, subtype: &str, shell: &Shell, fields: Value) -> Object {
    let mut all = json!({
        "task_id": shell.id.as_str(),
        "tool_use_id": shell.tool_use_id,
        "description": shell.description,
        "task_type": "local_bash",
    });
    if let Value::Object(all) = &mut all {
        add(all, fields);
    }
    system(session, subtype, all)
}

fn init(setting: &Setting) -> Value {
    json!({
        "cwd": setting.cwd,
        "tools": setting.tools,
        "mcp_servers": [],
        "model": setting.model,
        "permissionMode": setting.mode,
        "slash_commands": [],
        "apiKeySource": setting.credentials,
        "claude_code_version": BUILD,
        "output_style": "default",
        "agents": setting.agents,
        "skills": setting.skills,
        "plugins": [],
    })
}

fn task_of(who: Who<'_>) -> Option<Task<'_>> {
    match who {
        Who::Main => None,
        Who::Agent(task) => Some(task),
    }
}

/// A `system` line of somebody's conversation.
fn of(session: &SessionId, who: Who<'_>, subtype: &str, mut fields: Value) -> Object {
    if let (Some(task), Value::Object(fields)) = (task_of(who), &mut fields) {
        fields.insert("parent_tool_use_id".to_owned(), json!(task.meta.tool_use_id));
        fields.insert("agent_id".to_owned(), json!(task.id.as_str()));
    }
    system(session, subtype, fields)
}

/// What readers of other programs' lines look for, with the reason beside it: their word for every
/// compaction that nobody asked for is `auto`.
fn compacted(boundary: &Boundary) -> Value {
    let CompactMetadata { trigger, pre_tokens, summary_tokens } = &boundary.compact_metadata;
    let metadata = json!({
        "trigger": "auto",
        "pre_tokens": pre_tokens,
        "summary_tokens": summary_tokens,
        "lead_trigger": trigger,
    });
    json!({"compact_metadata": metadata})
}

/// A message as it is on disk, with whose it is.
fn said(session: &SessionId, talk: &Talk, who: Who<'_>) -> Object {
    let task = task_of(who);
    let mut line = Object::new();
    line.insert("type".to_owned(), json!(talk.kind));
    line.insert("message".to_owned(), json!(talk.message));
    line.insert("parent_tool_use_id".to_owned(), json!(task.and_then(|t| t.meta.tool_use_id.as_deref())));
    if let Some(task) = task {
        line.insert("agent_id".to_owned(), json!(task.id.as_str()));
        line.insert("subagent_type".to_owned(), json!(task.meta.agent_type));
        line.insert("task_description".to_owned(), json!(task.meta.description));
    }
    let optional = [
        ("tool_use_result", talk.tool_use_result.clone()),
        ("origin", talk.origin.as_ref().map(|o| json!(o))),
        ("isCompactSummary", talk.is_compact_summary.map(Value::Bool)),
    ];
    line.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    line.insert("timestamp".to_owned(), json!(talk.timestamp));
    line.insert("session_id".to_owned(), json!(session.as_str()));
    line.insert("uuid".to_owned(), json!(talk.uuid));
    line
}

fn retried(retry: &Retrying<'_>) -> Value {
    json!({
        "attempt": retry.attempt,
        "max_attempts": retry.attempts,
        "delay_ms": u64::try_from(retry.delay.as_millis()).unwrap_or(u64::MAX),
        "discarded_message_id": retry.discarded_message_id,
        "reason": retry.reason,
    })
}

fn patch(status: &str, error: Option<&str>) -> Value {
    let mut patch = json!({"status": status, "end_time": clock::now_ms()});
    if let Some(error) = error {
        patch["error"] = json!(error);
    }
    patch
}

/// The word of these lines; the model is told `killed`.
fn notified_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "completed",
        RunStatus::Failed => "failed",
        RunStatus::Killed => "stopped",
    }
}

fn notified(task: Task<'_>, outcome: &Outcome) -> Value {
    json!({
        "status": notified_status(outcome.status),
        "output_file": task.files.transcript(),
        "summary": outcome.summary(&task.meta.description),
        "usage": outcome.usage,
    })
}
