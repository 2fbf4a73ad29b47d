//! From a [`Request`] to the bytes that are sent.
//!
//! The order is fixed: what changes least comes first, messages come last, and every message is
//! rendered by itself. So the bytes of a request begin with those of the one before, which is what
//! a provider's cache is keyed by. The one thing that moves are the cache marks, and these are put
//! in behind a rendered block without rendering it anew.

use std::io;

use serde::Serialize;

use crate::core::message::{Block, Known, Message, Request, Role, ToolSpec};

/// Put in before the closing brace of a block: the provider caches everything up to there. Four are
/// allowed: tools, system, and the two latest user messages, so that a turn finds the cache of the
/// turn before.
pub const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// User messages that get a mark, from the end.
const MARKED_TURNS: usize = 2;

/// Stands for a message of which nothing may be sent: the API refuses messages and texts that are
/// empty.
const NO_CONTENT: &str = "(no text)";

/// Searches that the provider may make for one request.
const SEARCHES: u32 = 8;

/// A tool of a request.
#[derive(Serialize)]
#[serde(untagged)]
enum Offered<'a> {
    /// One that is run here.
    Ours(&'a ToolSpec),
    /// One that the provider runs.
    Theirs { r#type: &'static str, name: &'static str, max_uses: u32 },
}

impl Offered<'_> {
    const WEB_SEARCH: Self = Self::Theirs { r#type: "web_search_20250305", name: "web_search", max_uses: SEARCHES };
}

/// The body of a streamed call.
pub fn render(request: &Request) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(64 << 10);
    out.extend_from_slice(b"{\"model\":");
    json(&mut out, &request.model)?;
    out.extend_from_slice(format!(",\"max_tokens\":{},\"stream\":true", request.max_tokens).as_bytes());
    let offered = request.tools.iter().map(Offered::Ours).chain(request.web_search.then_some(Offered::WEB_SEARCH));
    let offered: Vec<Offered<'_>> = offered.collect();
    if !offered.is_empty() {
        out.extend_from_slice(b",\"tools\":");
        list(&mut out, &offered, json)?;
        mark(&mut out, 1);
    }
    if !request.system.trim().is_empty() {
        out.extend_from_slice(b",\"system\":");
        list(&mut out, &[Block::text(&request.system)], json)?;
        mark(&mut out, 1);
    }
    out.extend_from_slice(b",\"messages\":");
    let users = request.messages.iter().filter(|m| m.role == Role::User).count();
    let mut seen = 0;
    list(&mut out, &request.messages, |out, message| {
        render_message(out, message)?;
        if message.role == Role::User {
            seen += 1;
            if seen + MARKED_TURNS > users {
                mark(out, 2);
            }
        }
        Ok(())
    })?;
    out.push(b'}');
    Ok(out)
}

/// One message, without marks.
fn render_message(out: &mut Vec<u8>, message: &Message) -> io::Result<()> {
    out.extend_from_slice(b"{\"role\":");
    json(out, &message.role)?;
    out.extend_from_slice(b",\"content\":");
    let sent: Vec<&Block> = message.content.iter().filter(|b| is_sent(b)).collect();
    if sent.is_empty() {
        list(out, &[Block::text(NO_CONTENT)], json)?;
    } else {
        list(out, &sent, |out, block| render_block(out, block))?;
    }
    out.push(b'}');
    Ok(())
}

/// The API refuses texts of blanks only; some replies have them, and transcripts keep them.
fn is_sent(block: &Block) -> bool {
    match block {
        Block::Known(Known::Text { text }) => !text.trim().is_empty(),
        Block::Known(Known::ToolUse { .. } | Known::ToolResult { .. }) => true,
        Block::Other(value) => value.is_object(),
    }
}

fn render_block(out: &mut Vec<u8>, block: &Block) -> io::Result<()> {
    let Block::Known(Known::ToolResult { tool_use_id, content, is_error }) = block else {
        return json(out, block);
    };
    out.extend_from_slice(b"{\"type\":\"tool_result\",\"tool_use_id\":");
    json(out, tool_use_id)?;
    let sent: Vec<&Block> = content.iter().filter(|b| is_sent(b)).collect();
    if !sent.is_empty() {
        out.extend_from_slice(b",\"content\":");
        json(out, &sent)?;
    }
    if *is_error {
        out.extend_from_slice(b",\"is_error\":true");
    }
    out.push(b'}');
    Ok(())
}

fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}

fn list<T>(
    out: &mut Vec<u8>,
    items: &[T],
    mut render: impl FnMut(&mut Vec<u8>, &T) -> io::Result<()>,
) -> io::Result<()> {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        render(out, item)?;
    }
    out.push(b']');
    Ok(())
}

/// Marks the block that was rendered last; `closing` brackets were written after its own brace.
fn mark(out: &mut Vec<u8>, closing: usize) {
    let Some(at) = out.len().checked_sub(closing + 1) else { return };
    let rest = out.split_off(at);
    out.extend_from_slice(CACHE_MARK.as_bytes());
    out.extend_from_slice(&rest);
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
