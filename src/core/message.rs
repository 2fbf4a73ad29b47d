//! The Messages API's JSON: what a model is sent, what it answers, and what transcripts hold.
//! Blocks of a kind this build does not know are kept as they are ([`Block::Other`]).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::block::blocks_or_text;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person, tool results, notifications.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation. `content` may be a plain string on disk; it is read as one
/// text block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    #[serde(deserialize_with = "blocks_or_text")]
    pub content: Vec<Block>,
}

impl Message {
    /// A user message.
    pub fn user(content: Vec<Block>) -> Self {
        Self { role: Role::User, content }
    }

    /// An assistant message.
    pub fn assistant(content: Vec<Block>) -> Self {
        Self { role: Role::Assistant, content }
    }

    /// All text blocks, joined by newlines.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// All text blocks of `content`, joined by newlines; parts that cite a source are parts of a sentence.
pub fn text_of(content: &[Block]) -> String {
    let mut text = String::new();
    let mut before: Option<&Block> = None;
    for block in content {
        let Some(part) = block.as_text() else { continue };
        if before.is_some_and(|before| ![before, block].iter().any(|b| matches!(b, Block::Other(_)))) {
            text.push('\n');
        }
        text.push_str(part);
        before = Some(block);
    }
    text
}

/// What of a tool's `input` tells a person most: the value of the key that names what it works on, else all.
pub fn telling_input(input: &Value) -> String {
    let telling = ["command", "file_path", "pattern", "path", "description", "to", "task_id", "prompt", "query"];
    let told = telling.iter().find_map(|key| input.get(key)?.as_str());
    told.map_or_else(|| input.to_string(), str::to_owned)
}

/// One content block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Block {
    /// A kind this build works with.
    Known(Known),
    /// Any other kind (thinking, images, server tools, …) and texts that cite a source, passed through
    /// unmodified.
    Other(Value),
}

/// The kinds of block this build looks into.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Known {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model wants a tool run.
    ToolUse {
        /// Pairs the use with its result.
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments, an object.
        input: Value,
    },
    /// What a tool answered.
    ToolResult {
        /// The `id` of the tool use answered.
        tool_use_id: String,
        /// Text (as one block), or blocks.
        content: Vec<Block>,
        /// Whether the tool failed.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Known(Known::Text { text: text.into() })
    }

    /// A tool use.
    pub fn tool_use(id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        Self::Known(Known::ToolUse { id: id.into(), name: name.into(), input })
    }

    /// A tool result with text content.
    pub fn tool_result(tool_use_id: impl Into<String>, text: impl Into<String>, is_error: bool) -> Self {
        Self::Known(Known::ToolResult { tool_use_id: tool_use_id.into(), content: vec![Self::text(text)], is_error })
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Known(Known::Text { text }) => Some(text),
            Self::Other(value) if value["type"] == "text" => value["text"].as_str(),
            _ => None,
        }
    }

    /// Whether this is the model's private reasoning, which alone is no answer.
    pub fn is_thinking(&self) -> bool {
        match self {
            Self::Other(v) => matches!(v.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking")),
            Self::Known(_) => false,
        }
    }
}

/// How the text block begins that asks a model to summarise its conversation, always the last block
/// of its request. Fixed, so that playbooks and servers can tell such a request from others.
pub const SUMMARY_REQUEST: &str = "<summary-request>";

/// Whether a request with these messages asks for a summary.
pub fn asks_for_summary(messages: &[Message]) -> bool {
    let last = messages.last().and_then(|m| m.content.last());
    last.and_then(Block::as_text).is_some_and(|text| text.starts_with(SUMMARY_REQUEST))
}

/// Tokens as the API counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt tokens not read from or written to the cache.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// Prompt tokens written to the cache.
    pub cache_creation_input_tokens: u64,
    /// Prompt tokens read from the cache.
    pub cache_read_input_tokens: u64,
    /// Tools that the provider ran by itself.
    #[serde(skip_serializing_if = "ServerToolUsage::is_none")]
    pub server_tool_use: ServerToolUsage,
}

/// How often the provider ran tools of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerToolUsage {
    /// Web searches.
    pub web_search_requests: u64,
}

impl ServerToolUsage {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Usage {
    /// The whole prompt's size: fresh, written and read tokens together.
    pub fn prompt_tokens(&self) -> u64 {
        self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens
    }

    /// Adds another reply's tokens.
    pub fn add(&mut self, other: &Usage) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_creation_input_tokens += other.cache_creation_input_tokens;
        self.cache_read_input_tokens += other.cache_read_input_tokens;
        self.server_tool_use.web_search_requests += other.server_tool_use.web_search_requests;
    }
}

/// A tool as offered to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its input.
    pub input_schema: Value,
}

/// One call of the model.
#[derive(Clone, Debug)]
pub struct Request {
    /// Model id without its provider prefix.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The conversation so far; roles alternate and begin with the user.
    pub messages: Vec<Message>,
    /// The tools offered.
    pub tools: Vec<ToolSpec>,
    /// Whether the provider may search the web by itself, if it can.
    pub web_search: bool,
    /// The most tokens the reply may have.
    pub max_tokens: u32,
    /// Who asks; told to playbooks and loopback servers only.
    pub caller: Caller,
}

/// Who calls the model, as playbooks match on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// `lead`, `worker` or `teammate`.
    pub role: String,
    /// The agent's type; `main` or `coordinator` for a lead.
    #[serde(rename = "type")]
    pub agent_type: String,
    /// The agent's name, empty if it has none.
    pub name: String,
}

/// What the model answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The message's id.
    pub id: String,
    /// The model that answered.
    pub model: String,
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// `end_turn`, `tool_use`, `max_tokens`, …
    pub stop_reason: Option<String>,
    /// Tokens used.
    #[serde(default)]
    pub usage: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn string_content_reads_as_a_text_block_and_unknown_blocks_survive() {
        let m: Message =
            serde_json::from_value(json!({"role": "user", "content": "hello"})).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(m, Message::user(vec![Block::text("hello")]));
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let m: Message = serde_json::from_value(json!({"role": "assistant", "content": [thinking]}))
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(m.content[0].is_thinking());
        assert_eq!(serde_json::to_value(&m).unwrap_or_default()["content"][0], thinking);
    }

    #[test]
    fn texts_that_cite_are_kept_whole_and_read_as_one_sentence() {
        let cited = json!({"type": "text", "text": "it is 3 EUR", "citations": [{"type": "web_search_result_location", "url": "u"}]});
        let blocks = json!([
            {"type": "text", "text": "First.", "citations": null},
            {"type": "text", "text": "They say ", "citations": []},
            cited,
            {"type": "text", "text": "."},
        ]);
        let blocks: Vec<Block> = serde_json::from_value(blocks).unwrap_or_default();
        assert_eq!(blocks[0], Block::text("First."));
        assert_eq!(serde_json::to_value(&blocks[2]).unwrap_or_default(), cited);
        assert_eq!(text_of(&blocks), "First.\nThey say it is 3 EUR.");
    }

    #[test]
    fn uses_of_the_provider_s_tools_are_counted_and_left_out_where_there_are_none() {
        let json = json!({"input_tokens": 1, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}});
        let mut usage: Usage = serde_json::from_value(json).unwrap_or_default();
        usage.add(&usage.clone());
        assert_eq!((usage.input_tokens, usage.server_tool_use.web_search_requests), (2, 4));
        let plain = serde_json::to_value(Usage::default()).unwrap_or_default();
        assert!(plain.get("server_tool_use").is_none(), "{plain}");
    }
}
