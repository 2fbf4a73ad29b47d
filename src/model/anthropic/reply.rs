//! From the events of a stream to a [`Reply`]: a state machine without I/O. What it can't make
//! sense of is an error, never a guess: half a tool call must not run.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::core::message::{Block, Known, Reply, ServerToolUsage, Usage};

/// What an event did.
#[derive(Debug, PartialEq)]
pub enum Taken {
    /// The reply grew, or its state changed.
    Progress,
    /// A sign of life only.
    Ping,
    /// The reply is whole.
    Done(Reply),
}

/// Why a stream gives no reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The stream breaks the API's rules.
    #[error("the stream is malformed: {0}")]
    Malformed(String),
    /// The provider reports an error within the stream.
    #[error("{message}")]
    Api {
        /// The HTTP status it would have had.
        status: u16,
        /// What it said.
        message: String,
    },
}

/// A reply being put together.
#[derive(Debug, Default)]
pub struct Assembly {
    reply: Option<Reply>,
    parts: Vec<Part>,
}

/// A block being put together.
#[derive(Debug)]
struct Part {
    /// The block as it began, grown by the deltas.
    block: Map<String, Value>,
    /// The JSON text of a tool's input so far.
    input: String,
    is_closed: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: usize,
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        index: usize,
        delta: Delta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: End,
        #[serde(default)]
        usage: Option<PartialUsage>,
    },
    MessageStop,
    Ping,
    Error {
        error: ApiError,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Start {
    id: String,
    model: String,
    #[serde(default)]
    usage: Option<PartialUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "citations_delta")]
    Citation { citation: Value },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct End {
    #[serde(default)]
    stop_reason: Option<String>,
}

/// Counts so far; what an event leaves out stays as it was.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    server_tool_use: Option<ServerToolUsage>,
}

/// The error of an answer's body, or of an event.
#[derive(Debug, Deserialize)]
pub struct ApiError {
    /// Such as `overloaded_error`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// In words.
    #[serde(default)]
    pub message: String,
}

impl ApiError {
    /// The HTTP status that belongs to the error's type.
    pub fn status(&self) -> u16 {
        match self.kind.as_str() {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" => 429,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => 500,
        }
    }
}

impl Assembly {
    /// The reply's id, once it has begun.
    pub fn message_id(&self) -> Option<&str> {
        self.reply.as_ref().map(|reply| reply.id.as_str())
    }

    /// Takes the next event in; `data` is its JSON.
    pub fn take(&mut self, data: &[u8]) -> Result<Taken, StreamError> {
        let event = serde_json::from_slice(data).map_err(|e| malformed(format!("an event is not readable: {e}")))?;
        match event {
            Event::Ping => return Ok(Taken::Ping),
            Event::Unknown => {}
            Event::Error { error } => {
                return Err(StreamError::Api { status: error.status(), message: error.message });
            }
            Event::MessageStart { message } => self.start(message)?,
            Event::ContentBlockStart { index, content_block } => {
                if self.reply.is_none() || index != self.parts.len() {
                    return Err(malformed(format!("block {index} begins out of order")));
                }
                self.parts.push(Part { block: content_block, input: String::new(), is_closed: false });
            }
            Event::ContentBlockDelta { index, delta } => self.open_part(index)?.grow(delta),
            Event::ContentBlockStop { index } => self.open_part(index)?.is_closed = true,
            Event::MessageDelta { delta, usage } => {
                let reply = self.reply.as_mut().ok_or_else(|| malformed("it ends before it begins".to_owned()))?;
                usage.unwrap_or_default().apply(&mut reply.usage);
                reply.stop_reason = delta.stop_reason.or(reply.stop_reason.take());
            }
            Event::MessageStop => return self.finish().map(Taken::Done),
        }
        Ok(Taken::Progress)
    }

    fn start(&mut self, Start { id, model, usage }: Start) -> Result<(), StreamError> {
        if self.reply.is_some() {
            return Err(malformed("it begins twice".to_owned()));
        }
        let mut reply = Reply { id, model, content: Vec::new(), stop_reason: None, usage: Usage::default() };
        usage.unwrap_or_default().apply(&mut reply.usage);
        self.reply = Some(reply);
        Ok(())
    }

    fn open_part(&mut self, index: usize) -> Result<&mut Part, StreamError> {
        let part = self.parts.get_mut(index).filter(|part| !part.is_closed);
        part.ok_or_else(|| malformed(format!("block {index} is not open")))
    }

    fn finish(&mut self) -> Result<Reply, StreamError> {
        let mut reply = self.reply.take().ok_or_else(|| malformed("it ends before it begins".to_owned()))?;
        let cut_off = matches!(reply.stop_reason.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
        for (index, part) in std::mem::take(&mut self.parts).into_iter().enumerate() {
            if !part.is_closed {
                return Err(malformed(format!("block {index} is not closed")));
            }
            match part.into_block() {
                Ok(block) => reply.content.push(block),
                // The model ran out of tokens within the call: what it said before stays.
                Err(_) if cut_off => {}
                Err(what) => return Err(malformed(format!("block {index}: {what}"))),
            }
        }
        Ok(reply)
    }
}

impl Part {
    fn grow(&mut self, delta: Delta) {
        match delta {
            Delta::Text { text } => self.append("text", &text),
            Delta::Thinking { thinking } => self.append("thinking", &thinking),
            Delta::Signature { signature } => self.append("signature", &signature),
            Delta::InputJson { partial_json } => self.input.push_str(&partial_json),
            Delta::Citation { citation } => match self.block.get_mut("citations") {
                Some(Value::Array(citations)) => citations.push(citation),
                _ => {
                    self.block.insert("citations".to_owned(), Value::Array(vec![citation]));
                }
            },
            Delta::Unknown => {}
        }
    }

    fn append(&mut self, field: &str, more: &str) {
        match self.block.get_mut(field) {
            Some(Value::String(text)) => text.push_str(more),
            _ => {
                self.block.insert(field.to_owned(), Value::String(more.to_owned()));
            }
        }
    }

    fn into_block(mut self) -> Result<Block, String> {
        if !self.input.is_empty() {
            let input = serde_json::from_str(&self.input).map_err(|e| format!("a tool's input is no JSON: {e}"))?;
            self.block.insert("input".to_owned(), input);
        }
        let is_call = self.block.get("type").and_then(Value::as_str) == Some("tool_use");
        let block = serde_json::from_value(Value::Object(self.block)).map_err(|e| e.to_string())?;
        match &block {
            Block::Known(Known::ToolUse { input, .. }) if !input.is_object() => {
                Err("a tool's input is not an object".to_owned())
            }
            Block::Known(Known::ToolUse { id, name, .. }) if id.is_empty() || name.is_empty() => {
                Err("a tool call without id or name".to_owned())
            }
            Block::Other(_) if is_call => Err("a tool call without id or name".to_owned()),
            _ => Ok(block),
        }
    }
}

impl PartialUsage {
    fn apply(self, usage: &mut Usage) {
        let set = |to: &mut u64, from: Option<u64>| *to = from.unwrap_or(*to);
        set(&mut usage.input_tokens, self.input_tokens);
        set(&mut usage.output_tokens, self.output_tokens);
        set(&mut usage.cache_creation_input_tokens, self.cache_creation_input_tokens);
        set(&mut usage.cache_read_input_tokens, self.cache_read_input_tokens);
        usage.server_tool_use = self.server_tool_use.unwrap_or(usage.server_tool_use);
    }
}

fn malformed(what: String) -> StreamError {
    StreamError::Malformed(what)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
