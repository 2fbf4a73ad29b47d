//! Carries out the effects of a [`Conversation`]: writes its transcript, calls the model, runs
//! tools. Owned by the main loop of a lead or an agent, which feeds it events and is told when a
//! turn ends. Nothing here waits: what takes time runs in tasks that send their end as an event.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::boundary::Carried;
use super::compact::Compacted;
use super::input::UserLine;
use super::permit::{Asked, Desk};
use super::step::{Call, Class, Classify, Conversation, Effect, Event, TurnEnd};
use super::witness::Witness;
use crate::core::agent::{Activity, Denial, Progress};
use crate::core::clock;
use crate::core::entry::{Line, ORIGIN_NOTIFICATION, Place, Said, Talk};
use crate::core::fault::{self, Fault};
use crate::core::ids::{self, AgentId};
use crate::core::message::{Block, Caller, Message, Reply, Role, ToolSpec, Usage};
use crate::model::Model;
use crate::permission::{Decision, Policy, SharedPolicy};
use crate::store::StoreError;
use crate::store::transcript::TranscriptWriter;
use crate::tool::{Tool, ToolContext};

/// Longest pause between two tries to write what the disk refused.
const WRITE_RETRY_CAP: Duration = Duration::from_secs(10);

/// Why the driver could not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The transcript can't be written for now; it tries again by itself.
    #[error("can't write the transcript")]
    Transcript(#[from] StoreError),
}

/// The tools of one agent, in the order in which they are offered.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    web_search: bool,
}

impl Toolbox {
    /// These tools.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self { tools, web_search: false }
    }

    /// With the provider's own web search.
    #[must_use]
    pub fn with_web_search(mut self) -> Self {
        self.web_search = true;
        self
    }

    /// Whether the provider's own web search is offered. It asks nobody before it searches, so only
    /// where nobody would be asked.
    pub fn offers_web_search(&self, policy: &Policy) -> bool {
        let decision = || policy.decide("WebSearch", &Value::Object(serde_json::Map::new()));
        self.web_search && matches!(decision(), Decision::Allow { .. })
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// As offered to the model.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|t| t.spec()).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        // `Task` is how other programs name the same tool.
        let name = if name == "Task" { "Agent" } else { name };
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// Names of what is offered, as people and lists know them.
    pub fn names(&self, policy: &Policy) -> Vec<String> {
        let searches = self.offers_web_search(policy).then(|| "WebSearch".to_owned());
        self.tools.iter().map(|tool| tool.name().into_owned()).chain(searches).collect()
    }
}

impl Classify for Toolbox {
    fn classify(&self, call: &Call) -> (Class, Activity) {
        match self.get(&call.name) {
            Some(tool) => {
                let class = match call.name.as_str() {
                    "Agent" | "Task" | "SendMessage" | "TaskStop" | "TaskOutput" => Class::Agents,
                    _ if tool.is_read_only() => Class::Read,
                    // Calls of the task board and of teams, too: cards of one message get their numbers in the
                    // order in which they are written.
                    _ => Class::Exclusive,
                };
                (class, tool.describe(&call.input))
            }
            None => {
                let activity =
                    Activity { tool: call.name.clone(), description: String::new(), is_search: false, is_read: false };
                (Class::Read, activity)
            }
        }
    }
}

/// What a driver is made of.
pub struct Parts {
    /// Fields repeated on every line.
    pub place: Place,
    /// Of an agent: its id and run.
    pub agent: Option<(AgentId, u32)>,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// Model id told to it.
    pub model_id: String,
    /// Most tokens of a reply.
    pub max_tokens: u32,
    /// Who asks.
    pub caller: Caller,
    /// System prompt.
    pub system: String,
    /// Tools.
    pub toolbox: Toolbox,
    /// Permissions.
    pub policy: SharedPolicy,
    /// Who is asked what they leave open.
    pub desk: Arc<dyn Desk>,
    /// What tools work with; `tool_use_id` and `cancel` are set per call.
    pub context: ToolContext,
    /// The transcript, open and locked.
    pub transcript: TranscriptWriter,
    /// The conversation so far.
    pub history: Vec<Message>,
    /// Its last line.
    pub last_uuid: Option<String>,
    /// What its lines say besides.
    pub carried: Carried,
    /// The model's context window, tokens; 0 = unknown.
    pub context_window: u64,
    /// Tokens of the conversation so far; 0 = unknown.
    pub context_tokens: u64,
    /// Most replies of this run.
    pub max_turns: Option<u32>,
    /// Who is told what happens.
    pub witness: Arc<dyn Witness>,
    /// Where ends of model calls and tools are sent; the loop hands them to [`Driver::handle`].
    pub events: mpsc::Sender<Event>,
}

/// A conversation with everything it needs to go on.
pub struct Driver {
    pub(super) parts: Parts,
    pub(super) conversation: Conversation,
    pub(super) cancel: CancellationToken,
    pub(super) denials: Vec<Denial>,
    /// Calls that wait for an answer of the desk, oldest first.
    pub(super) asked: Vec<Asked>,
    /// Time spent in model calls.
    api_time: Duration,
    pub(super) call_began: Option<Instant>,
    stalled: VecDeque<Effect>,
    retry_after: Duration,
    stall_reason: Option<String>,
    /// Why the model call waits before it is repeated.
    model_wait: Option<String>,
}

impl Driver {
    /// A driver at rest.
    pub fn new(mut parts: Parts) -> Self {
        let conversation = Conversation::new(std::mem::take(&mut parts.history), parts.max_turns)
            .with_window(parts.context_window, parts.context_tokens);
        Self {
            parts,
            conversation,
            cancel: CancellationToken::new(),
            denials: Vec::new(),
            asked: Vec::new(),
            api_time: Duration::ZERO,
            call_began: None,
            stalled: VecDeque::new(),
            retry_after: Duration::from_millis(500),
            stall_reason: None,
            model_wait: None,
        }
    }

    /// Handles one event; `Some` when a turn ended by it.
    pub fn handle(&mut self, event: Event) -> Option<TurnEnd> {
        let retry = matches!(event, Event::RetryWrite);
        let event = match event {
            Event::ModelWaits(reason) => {
                self.model_wait = reason;
                return None;
            }
            Event::Answered { call, verdict } => {
                self.on_verdict(call, verdict);
                return None;
            }
            event => event,
        };
        if matches!(event, Event::Reply(_) | Event::Summarised { .. } | Event::ModelFailed(_)) {
            self.api_time += self.call_began.take().map(|at| at.elapsed()).unwrap_or_default();
            self.model_wait = None;
        }
        let effects = self.conversation.step(event, &self.parts.toolbox);
        self.stalled.extend(effects);
        if self.stall_reason.is_some() && !retry {
            return None;
        }
        self.run_effects()
    }

    /// Whether a turn runs.
    pub fn is_idle(&self) -> bool {
        self.conversation.is_idle() && self.stalled.is_empty()
    }

    /// Whether a summary of the conversation is being made.
    pub fn is_compacting(&self) -> bool {
        self.conversation.is_compacting()
    }

    /// Messages that wait to be shown to the model.
    pub fn pending(&self) -> usize {
        self.conversation.pending()
    }

    /// Counters.
    pub fn progress(&self) -> &Progress {
        self.conversation.progress()
    }

    /// Tokens of all replies, added up.
    pub fn usage(&self) -> &Usage {
        self.conversation.usage()
    }

    /// Time spent in model calls.
    pub fn api_time(&self) -> Duration {
        self.api_time
    }

    /// Text of the latest reply that had any.
    pub fn last_text(&self) -> &str {
        self.conversation.last_text()
    }

    /// Why nothing goes on at present: a write that the disk refused, a model call that is to be
    /// repeated, a summary being made, or a question that nobody has answered yet.
    pub fn stall_reason(&self) -> Option<&str> {
        let compacting = || self.conversation.is_compacting().then_some("compacting");
        let stalled = self.stall_reason.as_deref().or(self.model_wait.as_deref());
        stalled.or_else(compacting).or_else(|| self.open_question())
    }

    /// Calls that were not permitted so far.
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Replaces system prompt, tools and who asks (a lead's mode changed), from the next call on.
    pub fn set_role(&mut self, caller: Caller, system: String, toolbox: Toolbox) {
        self.parts.caller = caller;
        self.parts.system = system;
        self.parts.toolbox = toolbox;
    }

    /// Writes a line that is not part of the conversation.
    pub fn record(&mut self, line: &Line) -> Result<(), StoreError> {
        self.parts.transcript.append(line)?;
        self.parts.carried.note(line);
        Ok(())
    }

    fn run_effects(&mut self) -> Option<TurnEnd> {
        let mut ended = None;
        while let Some(effect) = self.stalled.pop_front() {
            let written = match &effect {
                Effect::RecordReply(reply) => self.record_reply(reply),
                Effect::RecordUser(lines) => self.record_user(lines),
                Effect::RecordCompaction(compacted) => self.record_compaction(compacted),
                _ => Ok(()),
            };
            if let Err(error) = written {
                self.stalled.push_front(effect);
                self.wait_for_disk(&error);
                return ended;
            }
            match effect {
                Effect::RecordReply(_) | Effect::RecordUser(_) | Effect::RecordCompaction(_) => {}
                Effect::CallModel => {
                    fault::point(Fault::ResultsBeforeModel);
                    self.call_model();
                }
                Effect::Summarise { messages, files } => self.summarise(messages, files),
                Effect::RunTools(calls) => {
                    fault::point(Fault::ReplyBeforeTools);
                    calls.into_iter().for_each(|call| self.run_tool(call));
                }
                Effect::CancelRunning => self.cancel.cancel(),
                Effect::EndTurn(end) => {
                    self.cancel = CancellationToken::new();
                    ended = Some(end);
                }
            }
        }
        self.stall_reason = None;
        self.retry_after = Duration::from_millis(500);
        ended
    }

    /// A full or read-only disk stops this agent, not the lines it has still to write.
    fn wait_for_disk(&mut self, error: &StoreError) {
        tracing::error!(%error, "can't write the transcript; trying again in {:?}", self.retry_after);
        self.stall_reason = Some(format!("the transcript can't be written: {error}"));
        let pause = self.retry_after;
        self.retry_after = (pause * 2).min(WRITE_RETRY_CAP);
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(pause, events.closed()).await;
            let _ = events.send(Event::RetryWrite).await;
        });
    }

    fn talk(&self, kind: Role, message: Said, parent: Option<String>) -> Talk {
        Talk {
            parent_uuid: parent,
            is_sidechain: self.parts.agent.as_ref().is_some_and(|(id, _)| id.as_member().is_none()),
            agent_id: self.parts.agent.as_ref().map(|(id, _)| id.as_str().to_owned()),
            kind,
            message,
            uuid: ids::random_uuid(),
            timestamp: clock::iso(clock::now_ms()),
            origin: None,
            msg_id: None,
            from: None,
            tool_use_result: None,
            is_meta: None,
            is_compact_summary: None,
            is_visible_in_transcript_only: None,
            run: self.parts.agent.as_ref().map(|(_, run)| *run),
            place: self.parts.place.clone(),
        }
    }

    fn append(&mut self, talks: Vec<Talk>) -> Result<(), StoreError> {
        self.append_lines(&talks.into_iter().map(|t| Line::Talk(Box::new(t))).collect::<Vec<_>>())
    }

    /// All lines of one record in one write, so that a crash leaves all or (torn) some of them.
    fn append_lines(&mut self, lines: &[Line]) -> Result<(), StoreError> {
        self.parts.transcript.append_all(lines)?;
        for line in lines {
            self.parts.carried.note(line);
            self.parts.witness.line(line);
            if let Line::Talk(talk) = line {
                self.parts.last_uuid = Some(talk.uuid.clone());
            }
        }
        Ok(())
    }

    fn record_compaction(&mut self, compacted: &Compacted) -> Result<(), StoreError> {
        let summary = self.talk(Role::User, Said::user(compacted.content.clone()), None);
        let last = self.parts.last_uuid.clone();
        let lines = self.parts.carried.lines(compacted, summary, last, &self.parts.context.state());
        self.append_lines(&lines)?;
        self.parts.context.instructions.forget();
        Ok(())
    }

    fn record_reply(&mut self, reply: &Reply) -> Result<(), StoreError> {
        let mut parent = self.parts.last_uuid.clone();
        let blocks = if reply.content.is_empty() { vec![Block::text("")] } else { reply.content.clone() };
        let mut talks = Vec::with_capacity(blocks.len());
        for block in blocks {
            let talk = self.talk(Role::Assistant, Said::reply_block(reply, block), parent);
            parent = Some(talk.uuid.clone());
            talks.push(talk);
        }
        self.append(talks)
    }

    fn record_user(&mut self, lines: &[UserLine]) -> Result<(), StoreError> {
        if matches!(lines.first(), Some(UserLine::ToolResult { .. })) {
            fault::point(Fault::ToolsBeforeResults);
        }
        let mut parent = self.parts.last_uuid.clone();
        let mut talks = Vec::with_capacity(lines.len());
        for line in lines {
            let mut talk = match line {
                UserLine::Input(input) => {
                    let mut talk = self.talk(Role::User, Said::user(input.content()), parent.take());
                    talk.origin.clone_from(&input.origin);
                    talk.msg_id.clone_from(&input.msg_id);
                    talk.from.clone_from(&input.from);
                    talk.is_meta = input.is_meta.then_some(true);
                    talk
                }
                UserLine::ToolResult { tool_use_id, output } => {
                    let mut talk = self.talk(Role::User, Said::user(vec![output.block(tool_use_id)]), parent.take());
                    talk.tool_use_result = Some(match &output.structured {
                        Some(structured) => structured.clone(),
                        None if output.is_error => Value::String(format!("Error: {}", output.text)),
                        None => Value::String(output.text.clone()),
                    });
                    talk
                }
            };
            talk.timestamp = clock::iso(clock::now_ms());
            parent = Some(talk.uuid.clone());
            talks.push(talk);
        }
        let notified = talks.iter().any(|t| t.origin.as_ref().is_some_and(|o| o.kind == ORIGIN_NOTIFICATION));
        self.append(talks)?;
        if notified {
            fault::point(Fault::NotificationBeforeModel);
        }
        Ok(())
    }
}
