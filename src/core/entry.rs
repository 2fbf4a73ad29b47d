//! Lines of a transcript (formats A and B.3). A reader turns each line into a [`Line`] and never
//! fails because of one it does not know; writers build the same types.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::agent::Outcome;
use super::flat::{All, FlatTalk, Words};
use super::message::{Block, Message, Reply, Role, Usage};
use super::shell::OpenShell;
use super::tool_state::{FileState, Todo};

/// `origin.kind` of a notification's user entry.
pub const ORIGIN_NOTIFICATION: &str = "task-notification";
/// `origin.kind` of a message another agent or process sent.
pub const ORIGIN_PEER: &str = "peer";
/// `origin.kind` of the user entry that tells of an agent which the person started by `lead spawn`.
pub const ORIGIN_SPAWN: &str = "agent-spawn";
/// What stands around the agent's prompt in that entry.
pub const SPAWN_PROMPT: (&str, &str) = ("<agent-prompt>\n", "\n</agent-prompt>");

/// One line, by what a reader does with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A `user` or `assistant` line: part of the conversation.
    Talk(Box<Talk>),
    /// The last line of a run.
    Outcome(Box<Outcome>),
    /// A message taken in but not yet shown to the model.
    Enqueued(Enqueued),
    /// The session's mode changed.
    Mode(Mode),
    /// The conversation before this line was replaced by a summary.
    Boundary(Box<Boundary>),
    /// Another model answers from here on.
    Switched(ModelSwitch),
    /// A line of another kind, kept on disk and ignored.
    Other,
}

/// A `user` or `assistant` line. Assistant replies have one line per content block, all with
/// `message.id` of the reply, each the child of the one before.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Talk {
    /// The line before it in the conversation; `null` for the first.
    pub parent_uuid: Option<String>,
    /// Whether it belongs to an agent's own transcript.
    pub is_sidechain: bool,
    /// The agent whose transcript this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// `user` or `assistant`.
    #[serde(rename = "type")]
    pub kind: Role,
    /// What was said.
    pub message: Said,
    /// Id of this line.
    pub uuid: String,
    /// ISO 8601, milliseconds, `Z`.
    pub timestamp: String,
    /// Where a user line came from, if it was not typed by a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Duplicate guard of a delivered message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
    /// Who sent a delivered message, as computed by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Structured result of the tool result in `message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_result: Option<Value>,
    /// A reminder that is not part of what the person said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_meta: Option<bool>,
    /// The summary that follows a boundary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_compact_summary: Option<bool>,
    /// Not part of the conversation as a person would be shown it (a summary).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_visible_in_transcript_only: Option<bool>,
    /// The run of the agent that this line belongs to (sidechains).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// The fields every line repeats for other readers.
    #[serde(flatten)]
    pub place: Place,
}

/// Fields that are the same on every line of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// `external`.
    pub user_type: String,
    /// `cli` or `sdk-cli`.
    pub entrypoint: String,
    /// Working folder.
    pub cwd: String,
    /// The session; of a sidechain the parent's.
    pub session_id: String,
    /// Version of the writer.
    pub version: String,
    /// `HEAD` outside git.
    pub git_branch: String,
    /// The team of a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_name: Option<String>,
    /// Its name there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
}

/// `message` of a line: what the model is sent, and for replies what the API said about them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Said {
    /// Id of the reply, shared by its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `message`, on replies.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Who speaks, and what.
    #[serde(flatten)]
    pub message: Message,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `end_turn`, `tool_use`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Tokens of the whole reply (repeated on each of its lines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Said {
    /// A user message's form on disk.
    pub fn user(content: Vec<Block>) -> Self {
        Self { id: None, kind: None, message: Message::user(content), model: None, stop_reason: None, usage: None }
    }

    /// One block of a reply, in the form on disk.
    pub fn reply_block(reply: &Reply, block: Block) -> Self {
        Self {
            id: Some(reply.id.clone()),
            kind: Some("message".to_owned()),
            message: Message::assistant(vec![block]),
            model: Some(reply.model.clone()),
            stop_reason: reply.stop_reason.clone(),
            usage: Some(reply.usage),
        }
    }
}

/// Where a user line came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// [`ORIGIN_NOTIFICATION`], [`ORIGIN_PEER`], …
    pub kind: String,
    /// The agent or background shell a notification tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The run of an agent that a notification tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
}

/// `{"type":"queue-operation","operation":"enqueue",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// The user entry made of it repeats this id.
    pub msg_id: String,
    /// Who sent it, as computed by the receiver.
    #[serde(default)]
    pub from: String,
    /// The text.
    pub content: String,
    /// ISO 8601.
    #[serde(default)]
    pub timestamp: String,
    /// The session.
    #[serde(default)]
    pub session_id: String,
}

/// `{"type":"mode","sessionId":…,"mode":"coordinator"|"normal"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mode {
    /// The session.
    pub session_id: String,
    /// `coordinator` or `normal`.
    pub mode: String,
}

/// `{"type":"system","subtype":"compact_boundary",…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Boundary {
    /// Always `null`: readers stop here.
    pub parent_uuid: Option<String>,
    /// The line before it. What goes on from there instead of from this line was written after the
    /// writer died between this line and its summary.
    pub logical_parent_uuid: Option<String>,
    /// Whether it belongs to an agent's own transcript.
    pub is_sidechain: bool,
    /// The agent whose transcript this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// For people.
    pub content: String,
    /// Notifications consumed so far: agent id → latest run.
    pub consumed: BTreeMap<String, u32>,
    /// Ids of the messages taken in last, the duplicate guards that would be lost with their lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
    /// Background shells whose end was not told so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shells: Vec<OpenShell>,
    /// The folder in which the next shell command runs, if it is not where the agent began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell_cwd: Option<String>,
    /// The files as the agent saw them last, the longest unseen first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_states: Vec<FileState>,
    /// Its list of things to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub todos: Vec<Todo>,
    /// Why and of what size.
    pub compact_metadata: CompactMetadata,
    /// Id of this line.
    pub uuid: String,
    /// ISO 8601.
    pub timestamp: String,
    /// The fields every line repeats for other readers.
    #[serde(flatten)]
    pub place: Place,
}

/// What a boundary tells of its compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompactMetadata {
    /// `auto` (90 % of the window) or `overflow`.
    pub trigger: String,
    /// Tokens of the conversation before, as the latest reply counted them.
    pub pre_tokens: u64,
    /// Prompt and output tokens of the summary request.
    pub summary_tokens: u64,
}

/// `{"type":"system","subtype":"lead_model_switch",…}`: the fallback model took over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelSwitch {
    /// The model that failed, with provider prefix.
    pub from: String,
    /// The model that answers now, with provider prefix.
    pub to: String,
    /// Why, in words.
    pub reason: String,
    /// Id of this line.
    pub uuid: String,
    /// ISO 8601.
    pub timestamp: String,
    /// The session.
    pub session_id: String,
}

/// Reads one line (without its newline). `Err` is a line that is not a JSON object, such as the
/// torn last line of a crashed writer.
pub fn parse_line(bytes: &[u8]) -> Result<Line, serde_json::Error> {
    parse::<All>(bytes)
}

/// Like [`parse_line`], but what is said in the line is passed over: its message has no content. At
/// a third of the cost.
pub fn parse_without_words(bytes: &[u8]) -> Result<Line, serde_json::Error> {
    parse::<IgnoredAny>(bytes)
}

fn parse<W: Words>(bytes: &[u8]) -> Result<Line, serde_json::Error> {
    #[derive(Deserialize)]
    struct Probe {
        #[serde(default, rename = "type", deserialize_with = "string_or_empty")]
        kind: String,
        #[serde(default, deserialize_with = "string_or_empty")]
        subtype: String,
        #[serde(default, deserialize_with = "string_or_empty")]
        operation: String,
    }
    // Most lines are talk, and others show at their `type` that they are not: most are read once.
    if let Ok(talk) = serde_json::from_slice::<FlatTalk<W>>(bytes) {
        return Ok(Line::Talk(Box::new(talk.into())));
    }
    let probe: Probe = serde_json::from_slice(bytes)?;
    let known = match (probe.kind.as_str(), probe.subtype.as_str(), probe.operation.as_str()) {
        ("system", "agent_outcome", _) => serde_json::from_slice(bytes).ok().map(|o| Line::Outcome(Box::new(o))),
        ("system", "compact_boundary", _) => serde_json::from_slice(bytes).ok().map(|b| Line::Boundary(Box::new(b))),
        ("system", "lead_model_switch", _) => serde_json::from_slice(bytes).ok().map(Line::Switched),
        ("queue-operation", _, "enqueue") => serde_json::from_slice(bytes).ok().map(Line::Enqueued),
        ("mode", _, _) => serde_json::from_slice(bytes).ok().map(Line::Mode),
        _ => None,
    };
    Ok(known.unwrap_or(Line::Other))
}

fn string_or_empty<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(s) => s,
        _ => String::new(),
    })
}

/// The JSON of a line, without newline.
pub fn render<T: Serialize>(kind: Option<(&str, &str)>, value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut object = serde_json::to_value(value)?;
    if let (Some((name, text)), Value::Object(map)) = (kind, &mut object) {
        map.shift_insert(0, "type".to_owned(), Value::String(name.to_owned()));
        if !text.is_empty() {
            let field = if name == "system" { "subtype" } else { "operation" };
            map.shift_insert(1, field.to_owned(), Value::String(text.to_owned()));
        }
    }
    serde_json::to_vec(&object)
}

impl Line {
    /// The bytes of this line without newline; [`Line::Other`] has none.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::Talk(t) => serde_json::to_vec(t),
            Self::Outcome(o) => render(Some(("system", "agent_outcome")), o),
            Self::Enqueued(e) => render(Some(("queue-operation", "enqueue")), e),
            Self::Mode(m) => render(Some(("mode", "")), m),
            Self::Boundary(b) => render(Some(("system", "compact_boundary")), b),
            Self::Switched(s) => render(Some(("system", "lead_model_switch")), s),
            Self::Other => Ok(Vec::new()),
        }
    }
}
