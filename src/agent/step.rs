//! The pure half of an agent: what happened goes in as an [`Event`], what is to be done comes out
//! as [`Effect`]s, in the order in which they must be carried out. No clock, no file, no process.
//!
//! The orders that matter (spec 4.2) are orders of effects here: a reply is recorded before its
//! tools run, results are recorded before the next model call, and messages that wait are shown at
//! the next tool-round boundary or, when the turn would end, make it go on.

use std::collections::VecDeque;

use serde_json::Value;

use super::compact::{Attached, Compacted, Compaction, Trigger};
use crate::core::agent::{Activity, Progress};
use crate::core::entry::Origin;
use crate::core::limits;
use crate::core::message::{Block, Known, Message, Reply, Role, Usage, text_of};
use crate::model::ModelError;
use crate::tool::ToolOutput;

/// Something to tell the model as a user message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// What is said.
    pub text: String,
    /// Where it came from; none = typed by a person or the first prompt.
    pub origin: Option<Origin>,
    /// Duplicate guard of a delivered message.
    pub msg_id: Option<String>,
    /// Who sent it.
    pub from: Option<String>,
    /// Not part of what anybody said: a reminder.
    pub is_meta: bool,
}

/// A user line to record.
#[derive(Clone, Debug, PartialEq)]
pub enum UserLine {
    /// An input.
    Input(Input),
    /// The result of a tool.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// What the tool answered.
        output: ToolOutput,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// How a tool's calls go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing: up to [`limits::PARALLEL_TOOLS`] at a time.
    Read,
    /// Starts or addresses agents: any number at a time, since agents are capped elsewhere.
    Agents,
    /// Anything else: alone, in order.
    Exclusive,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Things to tell the model in one user message, now if it is idle, else at the next boundary.
    Inputs(Vec<Input>),
    /// The model answered.
    Reply(Reply),
    /// The model summarised the conversation; these files are to be shown again.
    Summarised {
        /// The summary.
        reply: Reply,
        /// Oldest read first.
        files: Vec<Attached>,
    },
    /// The model did not answer.
    ModelFailed(ModelError),
    /// A tool answered.
    ToolDone {
        /// The call.
        id: String,
        /// The answer.
        output: ToolOutput,
    },
    /// End the turn: running calls are to end soon.
    Cancel,
    /// The driver's own: the model call waits before it is repeated, for this reason; or goes on.
    ModelWaits(Option<String>),
    /// The driver's own: try again to write what could not be written.
    RetryWrite,
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write the lines of a reply.
    RecordReply(Reply),
    /// Write user lines.
    RecordUser(Vec<UserLine>),
    /// Call the model with the conversation as it is.
    CallModel,
    /// Ask the model to summarise the conversation.
    Summarise {
        /// The request's messages.
        messages: Vec<Message>,
        /// Files to be shown again, oldest read first.
        files: Vec<String>,
    },
    /// Write the boundary and the summary.
    RecordCompaction(Compacted),
    /// Run these calls.
    RunTools(Vec<Call>),
    /// Make what runs end soon; its events still come.
    CancelRunning,
    /// The turn is over.
    EndTurn(TurnEnd),
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    /// With an answer, which may be empty.
    Answer {
        /// The text of the last reply.
        text: String,
        /// `end_turn`, `max_tokens`, …
        stop_reason: Option<String>,
    },
    /// The limit of model replies was reached.
    MaxTurns,
    /// The model failed.
    Failed {
        /// HTTP status, if it was the API's error.
        status: Option<u16>,
        /// In words.
        message: String,
    },
    /// It was cancelled.
    Cancelled,
}

#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    Model,
    /// The model summarises.
    Summary(Trigger),
    Tools(Vec<Slot>),
}

#[derive(Debug)]
pub(super) struct Slot {
    call: Call,
    class: Class,
    activity: Activity,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    Waiting,
    Running,
    Done(ToolOutput),
}

/// A conversation: what was said, and where it stands.
#[derive(Debug)]
pub struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) phase: Phase,
    pending: VecDeque<Input>,
    pub(super) cancelled: bool,
    replies: u32,
    max_turns: Option<u32>,
    pub(super) progress: Progress,
    pub(super) usage: Usage,
    last_text: String,
    pub(super) compaction: Compaction,
}

/// Tells what the machine needs to know of a call.
pub trait Classify {
    /// How its calls go together, and what this one does.
    fn classify(&self, call: &Call) -> (Class, Activity);
}

impl Conversation {
    /// A conversation that goes on from `messages`. `max_turns` limits the replies of one run.
    pub fn new(messages: Vec<Message>, max_turns: Option<u32>) -> Self {
        Self {
            messages,
            phase: Phase::Idle,
            pending: VecDeque::new(),
            cancelled: false,
            replies: 0,
            max_turns,
            progress: Progress::default(),
            usage: Usage::default(),
            last_text: String::new(),
            compaction: Compaction::default(),
        }
    }

    /// With a context window of so many tokens (0 = unknown), of which so many are used.
    #[must_use]
    pub fn with_window(mut self, window: u64, used: u64) -> Self {
        self.compaction.window = window;
        self.compaction.used = used;
        self
    }

    /// What was said so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether nothing runs.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether messages wait for the next boundary.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Counters.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Tokens of all replies, added up.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Text of the latest reply that had any, or empty.
    pub fn last_text(&self) -> &str {
        &self.last_text
    }

    /// Handles one event.
    pub fn step(&mut self, event: Event, classify: &dyn Classify) -> Vec<Effect> {
        match event {
            Event::Inputs(inputs) => {
                self.pending.extend(inputs);
                if self.is_idle() && !self.pending.is_empty() { self.start_turn() } else { Vec::new() }
            }
            Event::Reply(reply) => self.on_reply(reply, classify),
            Event::Summarised { reply, files } => self.on_summary(&reply, &files),
            Event::ModelFailed(error) => self.on_failure(&error),
            Event::ToolDone { id, output } => self.on_tool_done(&id, output),
            Event::Cancel => self.on_cancel(),
            Event::ModelWaits(_) | Event::RetryWrite => Vec::new(),
        }
    }

    /// Begins a turn with what is pending; several inputs become one user message.
    fn start_turn(&mut self) -> Vec<Effect> {
        self.cancelled = false;
        let mut effects = self.take_pending();
        effects.push(self.next_call());
        effects
    }

    pub(super) fn take_pending(&mut self) -> Vec<Effect> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let inputs: Vec<Input> = self.pending.drain(..).collect();
        for input in &inputs {
            self.push_user(Block::text(input.text.clone()));
        }
        vec![Effect::RecordUser(inputs.into_iter().map(UserLine::Input).collect())]
    }

    fn call_model(&mut self) -> Effect {
        self.phase = Phase::Model;
        Effect::CallModel
    }

    fn push_user(&mut self, block: Block) {
        match self.messages.last_mut() {
            Some(last) if last.role == Role::User => last.content.push(block),
            _ => self.messages.push(Message::user(vec![block])),
        }
    }

    fn on_reply(&mut self, reply: Reply, classify: &dyn Classify) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Model) {
            return Vec::new();
        }
        self.replies += 1;
        self.progress.reply(&reply.usage);
        self.usage.add(&reply.usage);
        self.compaction.note_reply(&reply.usage);
        let text = text_of(&reply.content);
        if !text.trim().is_empty() {
            self.last_text.clone_from(&text);
        }
        let calls: Vec<Call> = reply
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Known(Known::ToolUse { id, name, input }) => {
                    Some(Call { id: id.clone(), name: name.clone(), input: input.clone() })
                }
                _ => None,
            })
            .collect();
        // A reply of white space only is no message that could be sent back to the API.
        if !calls.is_empty() || !text.trim().is_empty() {
            self.messages.push(Message::assistant(reply.content.clone()));
        }
        let stop_reason = reply.stop_reason.clone();
        let mut effects = vec![Effect::RecordReply(reply)];
        if calls.is_empty() {
            effects.extend(self.finish(TurnEnd::Answer { text, stop_reason }));
            return effects;
        }
        let slots = calls
            .into_iter()
            .map(|call| {
                let (class, activity) = classify.classify(&call);
                Slot { call, class, activity, state: SlotState::Waiting }
            })
            .collect();
        self.phase = Phase::Tools(slots);
        effects.extend(self.run_ready());
        effects
    }

    /// Ends the turn, or goes on if something waits to be said.
    pub(super) fn finish(&mut self, end: TurnEnd) -> Vec<Effect> {
        let goes_on = !self.pending.is_empty() && matches!(end, TurnEnd::Answer { .. }) && !self.cancelled;
        if !goes_on {
            self.phase = Phase::Idle;
            return vec![Effect::EndTurn(end)];
        }
        let mut effects = self.take_pending();
        effects.push(self.next_call());
        effects
    }

    pub(super) fn next_call(&mut self) -> Effect {
        if self.max_turns.is_some_and(|max| self.replies >= max) {
            self.phase = Phase::Idle;
            return Effect::EndTurn(TurnEnd::MaxTurns);
        }
        if self.compaction.is_due() {
            return self.summarise(Trigger::Window);
        }
        self.call_model()
    }

    /// Starts every waiting call that may run now: reads together, others alone and in order.
    fn run_ready(&mut self) -> Vec<Effect> {
        let Phase::Tools(slots) = &mut self.phase else { return Vec::new() };
        if self.cancelled {
            for slot in slots.iter_mut().filter(|s| matches!(s.state, SlotState::Waiting)) {
                slot.state = SlotState::Done(ToolOutput::error("not run: the turn was cancelled"));
            }
        }
        let mut ready = Vec::new();
        let mut reads =
            slots.iter().filter(|s| matches!(s.state, SlotState::Running) && s.class == Class::Read).count();
        let mut all_before_done = true;
        for slot in slots.iter_mut() {
            let may_run = match slot.class {
                Class::Exclusive => all_before_done,
                Class::Agents => true,
                Class::Read => reads < limits::PARALLEL_TOOLS,
            };
            if matches!(slot.state, SlotState::Waiting) && may_run {
                slot.state = SlotState::Running;
                reads += usize::from(slot.class == Class::Read);
                self.progress.tool(slot.activity.clone());
                ready.push(slot.call.clone());
            }
            if !matches!(slot.state, SlotState::Done(_)) {
                all_before_done = false;
                // Nothing overtakes a call that may change what later ones see.
                if slot.class == Class::Exclusive {
                    break;
                }
            }
        }
        if ready.is_empty() { Vec::new() } else { vec![Effect::RunTools(ready)] }
    }

    fn on_tool_done(&mut self, id: &str, output: ToolOutput) -> Vec<Effect> {
        let Phase::Tools(slots) = &mut self.phase else { return Vec::new() };
        let Some(slot) = slots.iter_mut().find(|s| s.call.id == id && matches!(s.state, SlotState::Running)) else {
            return Vec::new();
        };
        slot.state = SlotState::Done(output);
        let effects = self.run_ready();
        if !effects.is_empty() {
            return effects;
        }
        self.boundary()
    }

    /// If every call of the round is done: records the results and what waited, and goes on.
    fn boundary(&mut self) -> Vec<Effect> {
        let Phase::Tools(slots) = &mut self.phase else { return Vec::new() };
        if !slots.iter().all(|s| matches!(s.state, SlotState::Done(_))) {
            return Vec::new();
        }
        let mut lines = Vec::with_capacity(slots.len());
        for slot in std::mem::take(slots) {
            if let SlotState::Done(output) = slot.state {
                lines.push(UserLine::ToolResult { tool_use_id: slot.call.id, output });
            }
        }
        for line in &lines {
            if let UserLine::ToolResult { tool_use_id, output } = line {
                self.push_user(Block::tool_result(tool_use_id, &output.text, output.is_error));
            }
        }
        let mut effects = vec![Effect::RecordUser(lines)];
        if self.cancelled {
            effects.extend(self.finish(TurnEnd::Cancelled));
            return effects;
        }
        effects.extend(self.take_pending());
        effects.push(self.next_call());
        effects
    }

    fn on_failure(&mut self, error: &ModelError) -> Vec<Effect> {
        match (&self.phase, error) {
            (Phase::Model, ModelError::Overflow { .. }) if self.may_compact() => {
                return vec![self.summarise(Trigger::Overflow)];
            }
            (Phase::Model, _) => {}
            (Phase::Summary(trigger), _) => return self.on_summary_failure(*trigger, error),
            (Phase::Idle | Phase::Tools(_), _) => return Vec::new(),
        }
        let end = match error {
            ModelError::Cancelled => TurnEnd::Cancelled,
            error => TurnEnd::Failed { status: error.status(), message: error.to_string() },
        };
        self.finish(end)
    }

    fn on_cancel(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Idle => Vec::new(),
            Phase::Model | Phase::Summary(_) => {
                self.cancelled = true;
                vec![Effect::CancelRunning]
            }
            Phase::Tools(_) => {
                self.cancelled = true;
                let mut effects = vec![Effect::CancelRunning];
                effects.extend(self.run_ready());
                effects.extend(self.boundary());
                effects
            }
        }
    }
}
