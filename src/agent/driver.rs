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
use super::step::{Call, Class, Classify, Conversation, Effect, Event, TurnEnd, UserLine};
use super::witness::Witness;
use crate::core::agent::{Activity, Denial, Progress};
use crate::core::clock;
use crate::core::entry::{Line, ORIGIN_NOTIFICATION, Place, Said, Talk};
use crate::core::fault::{self, Fault};
use crate::core::ids::{self, AgentId};
use crate::core::message::{Block, Caller, Message, Reply, Role, ToolSpec, Usage};
use crate::model::Model;
use crate::permission::{Decision, Policy};
use crate::store::StoreError;
use crate::store::transcript::TranscriptWriter;
use crate::tool::{Tool, ToolContext, ToolOutput};

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
pub struct Toolbox(Vec<Arc<dyn Tool>>);

impl Toolbox {
    /// These tools.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self(tools)
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.0.push(tool);
        self
    }

    /// As offered to the model.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.0.iter().map(|t| t.spec()).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        // `Task` is how other programs name the same tool.
        let name = if name == "Task" { "Agent" } else { name };
        self.0.iter().find(|t| t.spec().name == name)
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|t| t.spec().name).collect();
        names.join(", ")
    }
}

impl Classify for Toolbox {
    fn classify(&self, call: &Call) -> (Class, Activity) {
        match self.get(&call.name) {
            Some(tool) => {
                let class = match call.name.as_str() {
                    "Agent" | "Task" | "SendMessage" | "TaskStop" => Class::Agents,
                    _ if tool.is_read_only() => Class::Read,
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
    pub policy: Policy,
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
    denials: Vec<Denial>,
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
        match &event {
            Event::Reply(_) | Event::Summarised { .. } | Event::ModelFailed(_) => {
                self.api_time += self.call_began.take().map(|at| at.elapsed()).unwrap_or_default();
                self.model_wait = None;
            }
            Event::ModelWaits(reason) => {
                self.model_wait.clone_from(reason);
                return None;
            }
            _ => {}
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

    /// Whether messages wait to be shown to the model.
    pub fn has_pending(&self) -> bool {
        self.conversation.has_pending()
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
    /// repeated, or a summary being made.
    pub fn stall_reason(&self) -> Option<&str> {
        let compacting = || self.conversation.is_compacting().then_some("compacting");
        self.stall_reason.as_deref().or(self.model_wait.as_deref()).or_else(compacting)
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
            is_sidechain: self.parts.agent.is_some(),
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
        let lines = self.parts.carried.lines(compacted, summary, self.parts.last_uuid.clone());
        self.append_lines(&lines)
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
                    let mut talk =
                        self.talk(Role::User, Said::user(vec![Block::text(input.text.clone())]), parent.take());
                    talk.origin.clone_from(&input.origin);
                    talk.msg_id.clone_from(&input.msg_id);
                    talk.from.clone_from(&input.from);
                    talk.is_meta = input.is_meta.then_some(true);
                    talk
                }
                UserLine::ToolResult { tool_use_id, output } => {
                    let block = Block::tool_result(tool_use_id, &output.text, output.is_error);
                    let mut talk = self.talk(Role::User, Said::user(vec![block]), parent.take());
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

    fn run_tool(&mut self, call: Call) {
        let answer = match self.parts.toolbox.get(&call.name) {
            None => Err(ToolOutput::error(format!(
                "there is no tool named {:?} here; the tools are: {}",
                call.name,
                self.parts.toolbox.names()
            ))),
            Some(tool) => match self.parts.policy.decide(&call.name, &call.input) {
                Decision::Allow { .. } => Ok(Arc::clone(tool)),
                Decision::Ask { reason } => Err(self.deny(
                    &call,
                    &format!("it needs a person's permission ({reason}), and nobody can be asked in this run"),
                )),
                Decision::Deny { reason } => Err(self.deny(&call, &reason)),
            },
        };
        let events = self.parts.events.clone();
        match answer {
            Err(output) => {
                tokio::spawn(async move {
                    let _ = events.send(Event::ToolDone { id: call.id, output }).await;
                });
            }
            Ok(tool) => {
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
        }
    }

    fn deny(&mut self, call: &Call, reason: &str) -> ToolOutput {
        self.denials.push(Denial {
            tool_name: call.name.clone(),
            tool_use_id: call.id.clone(),
            tool_input: call.input.clone(),
        });
        ToolOutput::error(format!(
            "Permission denied: {reason}. Do it another way, or say in your answer what could not be done."
        ))
    }
}
