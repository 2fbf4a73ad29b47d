//! Compaction, the pure half (spec 7.4): when a conversation is summarised, what the model is asked
//! for it, and what takes the conversation's place. Part of [`Conversation`]'s steps; `driver` asks
//! the model, reads the files again and writes the boundary.
//!
//! It begins only where a request would be sent: every tool use has its result by then, and what was
//! summarised as a whole is never cut between the two.

use super::prompts::{summary_head, summary_request};
use super::step::{Conversation, Effect, Phase, TurnEnd};
use crate::core::message::{Block, Known, Message, Reply, Role, Usage, text_of};
use crate::core::server_tool;
use crate::core::text;
use crate::model::ModelError;

/// Failures in a row that end the run: of the summary request, or of compactions to make room.
const FAILURES: u32 = 3;
/// A compaction has made room if the conversation goes on for so many replies before the next one is
/// due. A model that fills its window with every round of tools would be summarised for ever.
const REPLIES: u32 = 3;
/// Files that are shown again.
const FILES: usize = 5;
/// Bytes of what waits for an answer that are kept word for word, where the window is unknown.
const KEPT_BYTES: usize = 200_000;

/// Why a conversation is summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// 90 % of the window are used.
    Window,
    /// The provider refused a request as too long.
    Overflow,
}

/// A file as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// As the model named it.
    pub path: String,
    /// What the model is shown of it.
    pub text: String,
}

/// What takes the conversation's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Compacted {
    /// The user message: summary, files, and word for word what waits for an answer.
    pub content: Vec<Block>,
    /// Why.
    pub trigger: Trigger,
    /// Tokens of the conversation before, as its latest reply counted them.
    pub pre_tokens: u64,
    /// Tokens the summary request took.
    pub summary_tokens: u64,
}

/// Where a conversation stands towards its window.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// Tokens; 0 = unknown.
    pub(super) window: u64,
    /// Prompt and output tokens of the latest reply.
    pub(super) used: u64,
    /// Replies since the last compaction; none = there was none.
    replies: Option<u32>,
    /// Compactions in a row that made no room.
    useless: u32,
    /// Failures of the summary request in a row.
    failures: u32,
    /// How often the provider refused the summary request as too long.
    refused: usize,
    /// Files read before the last compaction, oldest first.
    files: Vec<String>,
}

impl Compaction {
    pub(super) fn note_reply(&mut self, usage: &Usage) {
        self.used = usage.prompt_tokens() + usage.output_tokens;
        self.replies = self.replies.map(|replies| replies + 1);
    }

    /// Whether the conversation is to be summarised before the next request: 90 % of the window are
    /// used.
    pub(super) fn is_due(&self) -> bool {
        self.window > 0 && self.used.saturating_mul(10) >= self.window.saturating_mul(9)
    }

    fn kept_bytes(&self) -> usize {
        match usize::try_from(self.window) {
            // A token is about four bytes, so this is a quarter of the window.
            Ok(window) if window > 0 => window.min(1 << 20),
            _ => KEPT_BYTES,
        }
    }
}

impl Conversation {
    /// Whether the model is summarising.
    pub fn is_compacting(&self) -> bool {
        matches!(self.phase, Phase::Summary(_))
    }

    /// Whether a refused request may become shorter by a compaction.
    pub(super) fn may_compact(&self) -> bool {
        self.compaction.replies != Some(0) && !self.cancelled
    }

    /// Begins a compaction, or ends the turn if the latest ones made no room. `refusal` is the error
    /// that asks for it, if it is one.
    pub(super) fn compact(&mut self, trigger: Trigger, refusal: Option<&ModelError>) -> Effect {
        let is_soon = self.compaction.replies.is_some_and(|replies| replies < REPLIES);
        self.compaction.useless = if is_soon { self.compaction.useless + 1 } else { 0 };
        if self.compaction.useless < FAILURES {
            return self.summarise(trigger);
        }
        // The next turn tries anew.
        self.compaction.useless = 0;
        self.phase = Phase::Idle;
        let Compaction { used, window, .. } = self.compaction;
        let now = refusal.map_or_else(|| format!("{used} of {window} tokens are used"), ToString::to_string);
        let message = format!(
            "the conversation was summarised {FAILURES} times and each time fell short of {REPLIES} more replies before \
it was too long again ({now}); it needs smaller tool outputs, or a model with a larger window (lead.contextWindow)"
        );
        Effect::EndTurn(TurnEnd::Failed { status: refusal.and_then(ModelError::status), message })
    }

    pub(super) fn summarise(&mut self, trigger: Trigger) -> Effect {
        self.phase = Phase::Summary(trigger);
        let mut messages = shortened(&self.messages, self.compaction.refused, FAILURES as usize);
        server_tool::drop_unpaired(&mut messages);
        let request = Block::text(summary_request());
        match messages.last_mut() {
            Some(last) if last.role == Role::User => last.content.push(request),
            _ => messages.push(Message::user(vec![request])),
        }
        Effect::Summarise { messages, files: latest_reads(&self.compaction.files, &self.messages) }
    }

    pub(super) fn on_summary(&mut self, reply: &Reply, files: &[Attached]) -> Vec<Effect> {
        let Phase::Summary(trigger) = self.phase else { return Vec::new() };
        self.progress.reply(&reply.usage);
        self.usage.add(&reply.usage);
        if self.cancelled {
            return self.give_up(TurnEnd::Cancelled);
        }
        let summary = text_of(&reply.content);
        let calls_tools = reply.content.iter().any(|b| matches!(b, Block::Known(Known::ToolUse { .. })));
        if calls_tools || summary.trim().is_empty() {
            let what = if calls_tools { "called a tool instead" } else { "answered without text" };
            return self.on_summary_failure(trigger, &ModelError::NoReply(format!("the model {what}")));
        }
        let mut content = vec![Block::text(format!("{}{}", summary_head(), summary.trim()))];
        content.extend(files.iter().map(|file| {
            Block::text(format!("The file {} as it is now (read again, not asked for):\n{}", file.path, file.text))
        }));
        content.extend(unanswered(&self.messages, self.compaction.kept_bytes()));
        let compacted = Compacted {
            content: content.clone(),
            trigger,
            pre_tokens: self.compaction.used,
            summary_tokens: reply.usage.prompt_tokens() + reply.usage.output_tokens,
        };
        self.compaction.files = latest_reads(&self.compaction.files, &self.messages);
        self.messages = vec![Message::user(content)];
        self.compaction.used = 0;
        self.compaction.replies = Some(0);
        self.compaction.failures = 0;
        self.compaction.refused = 0;
        let mut effects = vec![Effect::RecordCompaction(compacted)];
        effects.extend(self.take_pending());
        effects.push(self.next_call());
        effects
    }

    pub(super) fn on_summary_failure(&mut self, trigger: Trigger, error: &ModelError) -> Vec<Effect> {
        if self.cancelled || matches!(error, ModelError::Cancelled) {
            return self.give_up(TurnEnd::Cancelled);
        }
        self.compaction.failures += 1;
        self.compaction.refused += usize::from(matches!(error, ModelError::Overflow { .. }));
        if self.compaction.failures < FAILURES {
            return vec![self.summarise(trigger)];
        }
        let message =
            format!("the conversation could not be summarised, as was tried {FAILURES} times; the last time: {error}");
        self.give_up(TurnEnd::Failed { status: error.status(), message })
    }

    fn give_up(&mut self, end: TurnEnd) -> Vec<Effect> {
        self.compaction.failures = 0;
        self.compaction.refused = 0;
        self.finish(end)
    }
}

/// `messages` without their oldest exchanges, `part` of `parts` of them by size. The first message
/// stays, since it says what all of it is about, and so does the latest exchange. An exchange is a
/// reply and what it was answered, so no tool use loses its result.
fn shortened(messages: &[Message], part: usize, parts: usize) -> Vec<Message> {
    let mut out = messages.to_vec();
    if part == 0 {
        return out;
    }
    let sizes: Vec<usize> = messages.iter().map(size).collect();
    let wanted = sizes.iter().skip(1).sum::<usize>() * part / parts;
    let (mut end, mut dropped) = (1, 0);
    while end + 4 <= messages.len() && dropped < wanted {
        dropped += sizes[end] + sizes[end + 1];
        end += 2;
    }
    if end > 1 {
        out.drain(1..end);
        out[0].content.push(Block::text("[What came next is left out here, since it is too long.]"));
    }
    out
}

fn size(message: &Message) -> usize {
    serde_json::to_vec(message).map_or(0, |bytes| bytes.len())
}

/// What waits for an answer: the last message without tool results. Its words are kept up to `limit`
/// bytes, images as they are, since what they cost does not show in their bytes.
fn unanswered(messages: &[Message], limit: usize) -> Vec<Block> {
    let last = messages.last().filter(|m| m.role == Role::User);
    let mut left = limit;
    let mut kept = Vec::new();
    for block in last.iter().flat_map(|m| &m.content) {
        let Some(words) = block.as_text() else {
            kept.extend(matches!(block, Block::Other(_)).then(|| block.clone()));
            continue;
        };
        let end = (0..=left.min(words.len())).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
        left -= end;
        kept.push(if end == words.len() {
            Block::text(words)
        } else {
            Block::text(format!("{}\n[cut: {} bytes in all]", &words[..end], words.len()))
        });
    }
    if !kept.is_empty() {
        kept.insert(0, Block::text("Not answered yet, word for word:"));
    }
    kept
}

/// The files read last, each once, oldest first; `before` were read earlier than `messages`.
fn latest_reads(before: &[String], messages: &[Message]) -> Vec<String> {
    let calls = messages.iter().flat_map(|m| &m.content).filter_map(|block| match block {
        Block::Known(Known::ToolUse { name, input, .. }) if name == "Read" => input.get("file_path")?.as_str(),
        _ => None,
    });
    let all: Vec<&str> = before.iter().map(String::as_str).chain(calls).collect();
    let mut latest: Vec<String> = Vec::new();
    for path in all.into_iter().rev() {
        if latest.len() < FILES && latest.iter().all(|known| known != path) {
            latest.push(path.to_owned());
        }
    }
    latest.reverse();
    latest
}

/// `output` within what is `left` of the bytes that files may have together; none if nothing is.
pub(super) fn attach(path: &str, output: &str, left: &mut usize) -> Option<Attached> {
    if *left == 0 {
        return None;
    }
    let end = (0..=(*left).min(output.len())).rev().find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    *left -= end;
    let mut shown = output[..end].to_owned();
    if end < output.len() {
        *left = 0;
        shown.push_str("\n[cut here; Read shows the rest]");
    }
    Some(Attached { path: text::one_line(path, 4096), text: shown })
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
