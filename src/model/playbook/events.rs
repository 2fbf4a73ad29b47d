//! A reply as the events of a stream, as the Messages API sends them.

use serde_json::{Value, json};

use crate::core::message::{Block, Known, Reply};

/// Characters of a delta, so that even short texts come in parts.
const DELTA_CHARS: usize = 16;
/// Most deltas of one block, so that a long text does not become a thousand events.
const DELTAS: usize = 64;

/// The events of `reply`, in order. The indexes of blocks are those of its content.
pub fn events(reply: &Reply) -> Vec<Value> {
    let mut start = message(reply);
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    if let Some(usage) = start["usage"].as_object_mut() {
        usage.shift_remove("server_tool_use");
    }
    let mut out = vec![json!({"type": "message_start", "message": start}), json!({"type": "ping"})];
    for (index, block) in reply.content.iter().enumerate() {
        let (begin, deltas) = block_events(block);
        out.push(json!({"type": "content_block_start", "index": index, "content_block": begin}));
        let of = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        out.extend(deltas.into_iter().map(of));
        out.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": reply.stop_reason, "stop_sequence": null});
    let mut usage = json!({"output_tokens": reply.usage.output_tokens});
    if let Some(uses) = json!(reply.usage).get("server_tool_use") {
        usage["server_tool_use"] = uses.clone();
    }
    out.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    out.push(json!({"type": "message_stop"}));
    out
}

/// The whole message, as an answer that is not streamed.
pub fn message(reply: &Reply) -> Value {
    json!({
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": reply.content,
        "stop_reason": reply.stop_reason,
        "stop_sequence": null,
        "usage": reply.usage,
    })
}

/// How a block begins, and what is added to it.
fn block_events(block: &Block) -> (Value, Vec<Value>) {
    let text_delta = |text: String| json!({"type": "text_delta", "text": text});
    let json_delta = |json: String| json!({"type": "input_json_delta", "partial_json": json});
    let thinking_delta = |text: String| json!({"type": "thinking_delta", "thinking": text});
    match block {
        Block::Known(Known::Text { text }) => {
            (json!({"type": "text", "text": ""}), parts(text).map(text_delta).collect())
        }
        Block::Known(Known::ToolUse { id, name, input }) => {
            let begin = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            (begin, parts(&input.to_string()).map(json_delta).collect())
        }
        Block::Other(value) if value["type"] == "server_tool_use" => {
            let mut begin = value.clone();
            begin["input"] = json!({});
            (begin, parts(&value["input"].to_string()).map(json_delta).collect())
        }
        Block::Other(value) if value["type"] == "text" => {
            let citation = |citation: &Value| json!({"type": "citations_delta", "citation": citation});
            let citations = value["citations"].as_array().into_iter().flatten().map(citation);
            let text = value["text"].as_str().unwrap_or_default();
            let begin = json!({"type": "text", "text": "", "citations": []});
            (begin, citations.chain(parts(text).map(text_delta)).collect())
        }
        Block::Other(value) if value["type"] == "thinking" => {
            let text = value["thinking"].as_str().unwrap_or_default();
            let signature = json!({"type": "signature_delta", "signature": value["signature"]});
            let begin = json!({"type": "thinking", "thinking": "", "signature": ""});
            (begin, parts(text).map(thinking_delta).chain([signature]).collect())
        }
        Block::Known(Known::ToolResult { .. }) | Block::Other(_) => (json!(block), Vec::new()),
    }
}

/// `text` in parts of at least [`DELTA_CHARS`], [`DELTAS`] at the most.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    let size = DELTA_CHARS.max(chars.len().div_ceil(DELTAS));
    let parts: Vec<String> = chars.chunks(size).map(|part| part.iter().collect()).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::message::Usage;

    #[test]
    fn long_texts_come_in_few_parts_and_nothing_is_lost() {
        for len in [0, 1, 15, 16, 17, 16 * 64, 16 * 64 + 1, 100_000] {
            let text: String = "äbc".chars().cycle().take(len).collect();
            let all: Vec<String> = parts(&text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.len() <= DELTAS && (len <= DELTA_CHARS || all.len() > 1), "{len}: {}", all.len());
        }
    }

    #[test]
    fn blocks_are_opened_and_closed_in_order() {
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let content = vec![Block::Other(thinking), Block::text(""), Block::tool_use("t", "Bash", json!({}))];
        let reply = Reply { id: "m".into(), model: "x".into(), content, stop_reason: None, usage: Usage::default() };
        let kinds: Vec<String> = events(&reply).iter().map(|e| e["type"].as_str().unwrap_or("").to_owned()).collect();
        let block = |deltas: usize| {
            let inner = vec!["content_block_delta"; deltas];
            [vec!["content_block_start"], inner, vec!["content_block_stop"]].concat()
        };
        let wanted =
            [vec!["message_start", "ping"], block(2), block(0), block(1), vec!["message_delta", "message_stop"]]
                .concat();
        assert_eq!(kinds, wanted);
    }
}
