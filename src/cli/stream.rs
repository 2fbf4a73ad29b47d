//! `--output-format stream-json`: what happens in a session as lines of JSON (formats A and B.1),
//! `type` first, each with `session_id` and `uuid`. Lines of ours have a subtype `lead_…`.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::result_line::ResultLine;
use super::sink::Sink;
use crate::core::agent::{Outcome, RunStatus};
use crate::core::clock;
use crate::core::entry::{Line, Talk};
use crate::core::frame::BUILD;
use crate::core::ids::{SessionId, random_uuid};
use crate::lead::{Listener, Setting, Task, Told};
use crate::model::{CallEvent, Retrying};

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

    fn put(&self, line: &impl Serialize) {
        match serde_json::to_vec(line) {
            Ok(json) => self.sink.line(json),
            Err(error) => tracing::error!(%error, "a line of the output was left out"),
        }
    }

    fn call(&self, session: &SessionId, event: CallEvent<'_>) {
        match event {
            CallEvent::Sent { .. } => self.put(&system(session, "status", json!({"status": "requesting"}))),
            CallEvent::Part { event, .. } if self.partial == Partial::Shown => {
                let Ok(event) = serde_json::from_str::<&RawValue>(event) else { return };
                self.put(&Part {
                    kind: "stream_event",
                    event,
                    parent_tool_use_id: None,
                    session_id: session.as_str(),
                    uuid: random_uuid(),
                });
            }
            CallEvent::Part { .. } => {}
            CallEvent::Waiting(retry) => self.put(&system(session, "lead_retry", retried(&retry))),
        }
    }
}

impl Listener for Stream {
    fn hear(&self, session: &SessionId, what: Told<'_>) {
        match what {
            Told::Turn(setting) => self.put(&system(session, "init", init(setting))),
            Told::Line(Line::Talk(talk)) => self.put(&said(session, talk, None)),
            Told::Line(Line::Boundary(boundary)) => {
                let mut line = system(session, "compact_boundary", json!({"compact_metadata": {"trigger": "auto"}}));
                line.insert("uuid".to_owned(), json!(boundary.uuid));
                self.put(&line);
            }
            Told::Line(_) => {}
            Told::Call(event) => self.call(session, event),
            Told::AgentLine(task, talk) => self.put(&said(session, talk, Some(task))),
            Told::Started { task, prompt, background } => {
                let fields = json!({
                    "subagent_type": task.meta.agent_type,
                    "task_type": "local_agent",
                    "prompt": prompt,
                    "is_backgrounded": background,
                });
                self.put(&task_line(session, "task_started", task, fields));
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
            Told::Result(report) => self.result(&ResultLine::of_run(report)),
        }
    }
}

#[derive(Serialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'a RawValue,
    parent_tool_use_id: Option<&'a str>,
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
        "skills": [],
        "plugins": [],
    })
}

/// A message as it is on disk, with whose it is.
fn said(session: &SessionId, talk: &Talk, task: Option<Task<'_>>) -> Object {
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

fn notified(task: Task<'_>, outcome: &Outcome) -> Value {
    let status = match outcome.status {
        RunStatus::Completed => "completed",
        RunStatus::Failed => "failed",
        // The word of these lines; the model is told `killed`.
        RunStatus::Killed => "stopped",
    };
    json!({
        "status": status,
        "output_file": task.files.transcript(),
        "summary": outcome.summary(&task.meta.description),
        "usage": outcome.usage,
    })
}
