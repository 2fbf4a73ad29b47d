//! The pure half of an agent: what happened goes in as an [`Event`], what is to be done comes out
//! as [`Effect`]s, in the order in which they must be carried out. No clock, no file, no process.
//!
//! The orders that matter (spec 4.2) are orders of effects here: a reply is recorded before its
//! tools run, results are recorded before the next model call, and messages that wait are shown at
//! the next tool-round boundary or, when the turn would end, make it go on.

use std::collections::VecDeque;

use serde_json::Value;

use super::compact::{Attached, Compacted, Compaction, Trigger};
use super::input::{Input, UserLine};
use crate::core::agent::{Activity, Progress};
use crate::core::limits;
use crate::core::message::{Block, Known, Message, Reply, Role, Usage, text_of};
use crate::core::question::Verdict;
use crate::model::ModelError;
use crate::tool::ToolOutput;

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
    /// Something the model is told with whatever comes next: it starts no turn and prolongs none.
    Note(Input),
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
    /// The driver's own: the desk's answer to the question about a call.
    Answered {
        /// The call.
        call: Call,
        /// Whether it runs.
        verdict: Verdict,
    },
    /// The driver's own: the model call waits before it is repeated, for this reason; or goes on.
    ModelWaits(Option<String>),
    /// The driver's own: try again to write what could not be written.
    RetryWrite,
}

impl Event {
    /// Whether tools are called by it, so that what they may do is about to be decided.
    pub fn calls_tools(&self) -> bool {
        let call = |block: &Block| matches!(block, Block::Known(Known::ToolUse { .. }));
        matches!(self, Self::Reply(reply) if reply.content.iter().any(call))
    }
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
    notes: Vec<Input>,
    pub(super) cancelled: bool,
    replies: u32,
    /// Pauses of the provider in a row.
    pub(super) pauses: u32,
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
            notes: Vec::new(),
            cancelled: false,
            replies: 0,
            pauses: 0,
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

    /// Messages that wait for the next boundary.
    pub fn pending(&self) -> usize {
        self.pending.len()
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
            Event::Note(input) => {
                self.notes.push(input);
                if self.is_idle() { self.take_notes() } else { Vec::new() }
            }
            Event::Reply(reply) => self.on_reply(reply, classify),
            Event::Summarised { reply, files } => self.on_summary(&reply, &files),
            Event::ModelFailed(error) => self.on_failure(&error),
            Event::ToolDone { id, output } => self.on_tool_done(&id, output),
            Event::Cancel => self.on_cancel(),
            Event::Answered { .. } | Event::ModelWaits(_) | Event::RetryWrite => Vec::new(),
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
        self.notes.extend(self.pending.drain(..));
        self.take_notes()
    }

    fn take_notes(&mut self) -> Vec<Effect> {
        let inputs = std::mem::take(&mut self.notes);
        if inputs.is_empty() {
            return Vec::new();
        }
        self.give_up_open();
        for block in inputs.iter().flat_map(Input::content) {
            self.push_user(block);
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
        self.push_reply(&reply.content);
        let stop_reason = reply.stop_reason.clone();
        let mut effects = vec![Effect::RecordReply(reply)];
        if calls.is_empty() {
            let next = self.after_pause(stop_reason.as_deref());
            effects.extend(next.unwrap_or_else(|| self.finish(TurnEnd::Answer { text, stop_reason })));
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
        // A reply that was on its way when the turn was cancelled: none of its calls is run.
        effects.extend(self.boundary());
        effects
    }

    /// Ends the turn, or goes on if something waits to be said.
    pub(super) fn finish(&mut self, end: TurnEnd) -> Vec<Effect> {
        let goes_on = !self.pending.is_empty() && matches!(end, TurnEnd::Answer { .. }) && !self.cancelled;
        if !goes_on {
            self.phase = Phase::Idle;
            let mut effects = self.take_notes();
            effects.push(Effect::EndTurn(end));
            return effects;
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
            return self.compact(Trigger::Window, None);
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
                self.push_user(output.block(tool_use_id));
            }
        }
        let mut effects = vec![Effect::RecordUser(lines)];
        if self.cancelled {
            effects.extend(self.finish(TurnEnd::Cancelled));
            return effects;
        }
        if !self.must_wait() {
            effects.extend(self.take_pending());
        }
        effects.push(self.next_call());
        effects
    }

    fn on_failure(&mut self, error: &ModelError) -> Vec<Effect> {
        if matches!(error, ModelError::Thoughts { .. }) && self.forget_thoughts() {
            return match self.phase {
                Phase::Model => vec![self.call_model()],
                Phase::Summary(trigger) => vec![self.summarise(trigger)],
                Phase::Idle | Phase::Tools(_) => Vec::new(),
            };
        }
        match (&self.phase, error) {
            (Phase::Model, ModelError::Overflow { .. }) if self.may_compact() => {
                return vec![self.compact(Trigger::Overflow, Some(error))];
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

    /// Takes all thoughts out of what is sent from here on; false if there are none. They are another
    /// model's after a change of the model, and the transcript keeps them.
    fn forget_thoughts(&mut self) -> bool {
        let before: usize = self.messages.iter().map(|m| m.content.len()).sum();
        self.messages.iter_mut().for_each(|m| m.content.retain(|block| !block.is_thinking()));
        before > self.messages.iter().map(|m| m.content.len()).sum() && !self.cancelled
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
