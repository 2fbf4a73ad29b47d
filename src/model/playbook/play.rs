//! `play`: which turn a playbook answers a request with. Pure: the same book and request give the
//! same turn, ids included, in any process.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::book::{AgentRule, FaultKind, Match, Playbook, TurnRule};
use super::fill::Filler;
use super::history::History;
use crate::core::message::{Block, Caller, Known, Message, Reply, Request, Role, Usage, asks_for_summary};
use crate::core::server_tool;
use crate::core::text;

/// Most tokens of prompt and reply that an estimate comes to, together less than 90 % of the usual window:
/// a book compacts where it says so by its `usage`, not because a test sends a mebibyte.
const ESTIMATE: (u64, u64) = (120_000, 30_000);
/// Characters of the first message in a summary that no turn gives.
const SUMMARY_CHARS: usize = 2000;

/// What a playbook answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Which turn of the book this is; `None` if no agent of it matches.
    pub place: Option<Place>,
    /// How long the answer takes.
    pub delay: Duration,
    /// The answer, or the provider's error.
    pub answer: Result<Reply, PlayedError>,
    /// How the answer's stream is broken.
    pub fault: Option<FaultKind>,
    /// Pause before each event of the answer's stream.
    pub event_delay: Duration,
    /// What the book's author should know: variables that stand for nothing, tools not offered.
    pub warnings: Vec<String>,
}

/// A turn's place in its book, both numbers from 0. `otherwise` comes after the last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The agent.
    pub agent: usize,
    /// The turn.
    pub turn: usize,
}

/// An error that a turn gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedError {
    /// HTTP status.
    pub status: u16,
    /// What the provider says.
    pub message: String,
    /// What it asks to wait.
    pub retry_after: Option<Duration>,
}

/// How often each turn's error or fault was given. Neither leaves anything in the history, so whoever plays
/// a book for real has to remember.
pub type ErrorsGiven = HashMap<Place, u32>;

/// The turn `book` answers `request` with, if no error was given before.
pub fn play(book: &Playbook, request: &Request) -> Turn {
    play_after(book, request, &ErrorsGiven::new())
}

/// The turn `book` answers `request` with, after some errors were given.
pub fn play_after(book: &Playbook, request: &Request, given: &ErrorsGiven) -> Turn {
    let prompt = request.messages.iter().find(|m| m.role == Role::User).map(Message::text).unwrap_or_default();
    let Some(agent) = book.agents.iter().position(|a| is_for(&a.matches, request, &prompt)) else {
        let Caller { role, agent_type, name } = &request.caller;
        let text = format!("This playbook has no agent for role {role:?}, type {agent_type:?}, name {name:?}.");
        let reply = reply(request, vec![Block::text(&text)], None);
        return Turn {
            place: None,
            delay: Duration::ZERO,
            answer: Ok(reply),
            fault: None,
            event_delay: Duration::ZERO,
            warnings: vec![text],
        };
    };
    let rule = &book.agents[agent];

    let mut replay = Replay::of(rule);
    for message in &request.messages {
        let mut is_answered = message.role == Role::User;
        let mut blocks = message.content.len();
        while !is_answered && let Some(turn) = replay.choose(|_, turn| turn.is_error_only()) {
            replay.used[turn] += 1;
            // A reply that paused and went on is one message.
            let turn = &rule.turns[turn];
            blocks = blocks.saturating_sub(turn.blocks());
            is_answered = turn.stop_reason.as_deref() != Some(server_tool::PAUSED) || blocks == 0;
        }
        replay.history.take(message);
    }
    let given = |turn: usize| given.get(&Place { agent, turn }).copied().unwrap_or(0);
    let is_over = |at: usize, turn: &TurnRule| {
        turn.is_error_only() && turn.error.as_ref().is_some_and(|error| given(at) >= error.times)
    };
    replay.summary = asks_for_summary(&request.messages);
    let turn = match replay.choose(is_over) {
        None if replay.summary => return default_summary(request, &prompt),
        turn => turn.unwrap_or(rule.turns.len()),
    };
    answer(
        request,
        &replay.history,
        rule.turns.get(turn).unwrap_or(&rule.otherwise),
        Place { agent, turn },
        given(turn),
    )
}

fn is_for(wanted: &Match, request: &Request, prompt: &str) -> bool {
    let Caller { role, agent_type, name } = &request.caller;
    let all = [
        (&wanted.role, role.as_str()),
        (&wanted.agent_type, agent_type),
        (&wanted.name, name),
        (&wanted.system, &request.system),
        (&wanted.prompt, prompt),
    ];
    all.iter().all(|(pattern, text)| pattern.as_ref().is_none_or(|p| p.0.is_match(text)))
}

/// A history being passed over, and which turns its replies used up.
struct Replay<'a> {
    rule: &'a AgentRule,
    history: History<'a>,
    used: Vec<u32>,
    /// Per turn: how many messages its `any` was looked for in, and whether it was found.
    searched: Vec<(usize, bool)>,
    /// A summary of the conversation is asked for.
    summary: bool,
}

/// The answer to a request for a summary for which the book has no turn: the first message, so that
/// `prompt` matches as before.
fn default_summary(request: &Request, prompt: &str) -> Turn {
    let text = format!("The conversation in short: {}", text::one_line(prompt, SUMMARY_CHARS));
    Turn {
        place: None,
        delay: Duration::ZERO,
        answer: Ok(reply(request, vec![Block::text(text)], None)),
        fault: None,
        event_delay: Duration::ZERO,
        warnings: Vec::new(),
    }
}

impl<'a> Replay<'a> {
    fn of(rule: &'a AgentRule) -> Self {
        let turns = rule.turns.len();
        Self {
            rule,
            history: History::default(),
            used: vec![0; turns],
            searched: vec![(0, false); turns],
            summary: false,
        }
    }

    /// The first turn that is not used up, not skipped and may be played now.
    fn choose(&mut self, skip: impl Fn(usize, &TurnRule) -> bool) -> Option<usize> {
        let rule = self.rule;
        (0..rule.turns.len()).find(|&at| {
            let turn = &rule.turns[at];
            !turn.repeat.is_used_up(self.used[at]) && !skip(at, turn) && self.holds(at)
        })
    }

    fn holds(&mut self, at: usize) -> bool {
        let when = &self.rule.turns[at].when;
        when.summary == self.summary
            && when.notifications.is_none_or(|n| n.holds(self.history.notifications.len()))
            && when.mails.is_none_or(|n| n.holds(self.history.mails.len()))
            && when.results.is_none_or(|n| n.holds(self.history.results.len()))
            && when.latest.as_ref().is_none_or(|p| p.0.is_match(self.history.latest()))
            && when.any.as_ref().is_none_or(|p| {
                let (searched, found) = &mut self.searched[at];
                *found = *found || self.history.texts[*searched..].iter().any(|text| p.0.is_match(text));
                *searched = self.history.texts.len();
                *found
            })
    }
}

fn answer(request: &Request, history: &History<'_>, turn: &TurnRule, place: Place, given: u32) -> Turn {
    let delay = Duration::from_millis(turn.delay_ms);
    let event_delay = Duration::from_millis(turn.event_delay_ms);
    if let Some(error) = &turn.error
        && (given < error.times)
    {
        let retry_after = error.retry_after.map(Duration::from_secs);
        let error = PlayedError { status: error.status, message: error.message.clone(), retry_after };
        let (place, warnings) = (Some(place), Vec::new());
        return Turn { place, delay, answer: Err(error), fault: None, event_delay, warnings };
    }
    let errors = turn.error.as_ref().map_or(0, |error| error.times);
    let fault = turn.fault.filter(|fault| given.saturating_sub(errors) < fault.times).map(|fault| fault.kind);
    let mut filler = Filler { history, when: &turn.when, unmatched: Vec::new() };
    let mut content = Vec::new();
    if let Some(thinking) = &turn.thinking {
        let thinking = filler.text(thinking);
        content.push(Block::Other(
            json!({"type": "thinking", "thinking": thinking, "signature": sign(&request.model, &thinking)}),
        ));
    }
    content.extend(turn.blocks.iter().map(|block| Block::Other(filler.value_of(block))));
    if let Some(text) = &turn.text {
        content.push(Block::text(filler.text(text)));
    }
    let ids = Ids::of(request);
    let mut warnings = Vec::new();
    for (index, tool) in turn.tools.iter().enumerate() {
        // A model may call what it was not offered, and tests do; most often it is a mistake.
        if request.tools.iter().all(|offered| offered.name != tool.name) {
            warnings.push(format!("the tool {:?} is not offered to this agent", tool.name));
        }
        content.push(Block::tool_use(ids.id("toolu", index), &tool.name, filler.value_of(&tool.input)));
    }
    if content.iter().all(Block::is_thinking) {
        content.push(Block::text(""));
    }
    warnings.extend(filler.unmatched.iter().map(|name| format!("the variable {{{{{name}}}}} stands for nothing here")));
    let mut reply = reply(request, content, turn.usage);
    reply.stop_reason = turn.stop_reason.clone().or(reply.stop_reason);
    let answer = Ok(reply);
    Turn { place: Some(place), delay, answer, fault, event_delay, warnings }
}

/// A reply of `content`; ids and the estimate of tokens follow from the request.
fn reply(request: &Request, content: Vec<Block>, usage: Option<Usage>) -> Reply {
    let ids = Ids::of(request);
    let calls_tools = content.iter().any(|b| matches!(b, Block::Known(Known::ToolUse { .. })));
    let usage = usage.unwrap_or_else(|| Usage {
        input_tokens: prompt_tokens(request).min(ESTIMATE.0),
        output_tokens: tokens(content_size(&content)).min(ESTIMATE.1),
        ..Usage::default()
    });
    Reply {
        id: ids.id("msg", 0),
        model: request.model.clone(),
        content,
        stop_reason: Some(if calls_tools { "tool_use" } else { "end_turn" }.to_owned()),
        usage,
    }
}

/// The signature under a model's thought; who passes it back changed, or to another model, is found
/// out.
pub(in crate::model) fn sign(model: &str, thinking: &str) -> String {
    Sha256::digest(format!("{model} {thinking}")).iter().map(|b| format!("{b:02x}")).collect()
}

/// The estimate of a request's tokens.
pub(in crate::model) fn prompt_tokens(request: &Request) -> u64 {
    tokens(request.system.len() + size(&request.messages))
}

/// The ids of one reply. A conversation gives each once, since its length and its latest message
/// differ each time.
struct Ids(Sha256);

impl Ids {
    fn of(request: &Request) -> Self {
        let mut hash = Sha256::new();
        hash.update(format!("{} {} ", request.messages.len(), size(&request.messages)));
        if let Some(latest) = request.messages.last() {
            hash.update(serde_json::to_vec(latest).unwrap_or_default());
        }
        Self(hash)
    }

    fn id(&self, prefix: &str, index: usize) -> String {
        let hash = self.0.clone().chain_update(format!("{prefix} {index}")).finalize();
        let hex: String = hash.iter().take(12).map(|b| format!("{b:02x}")).collect();
        format!("{prefix}_{hex}")
    }
}

/// Bytes of text in `messages`, roughly as a model is sent them.
fn size(messages: &[Message]) -> usize {
    messages.iter().map(|m| content_size(&m.content)).sum()
}

fn content_size(content: &[Block]) -> usize {
    let of = |block: &Block| match block {
        Block::Known(Known::Text { text }) => text.len(),
        Block::Known(Known::ToolUse { name, input, .. }) => name.len() + json_size(input),
        Block::Known(Known::ToolResult { content, .. }) => content_size(content),
        Block::Other(value) => json_size(value),
    };
    content.iter().map(of).sum()
}

fn json_size(value: &serde_json::Value) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// The usual estimate: a token is about four characters.
fn tokens(size: usize) -> u64 {
    u64::try_from(size / 4).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
#[path = "play_tests.rs"]
mod tests;
