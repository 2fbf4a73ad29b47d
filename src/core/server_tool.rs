//! Tools that the provider runs by itself, such as its web search. Their blocks
//! (`server_tool_use`, `web_search_tool_result`, …) stand in the model's own messages and go back to
//! it as they came; nobody here answers them.
//!
//! A use may be *open*: the provider paused (`pause_turn`), or the model called one of our tools
//! beside it. The result then begins the provider's next reply, if the request ends with the paused
//! message, or with results of our tools and nothing else. After anything else the provider refuses
//! an open use, for ever; so it is dropped before something else is said.

use std::collections::HashSet;

use serde_json::Value;

use super::message::{Block, Message, Role};

/// `stop_reason` of a reply that the provider goes on with when it is sent back.
pub const PAUSED: &str = "pause_turn";

/// Stands for a message of which nothing is left.
const NOTHING_LEFT: &str = "(a search was begun and not finished)";

/// The id of a use, if the block is one.
pub fn use_id(block: &Block) -> Option<&str> {
    match block {
        Block::Other(value) if value["type"] == "server_tool_use" => value["id"].as_str(),
        _ => None,
    }
}

/// The id of the use that the block is the result of.
pub fn answered_id(block: &Block) -> Option<&str> {
    match block {
        Block::Other(value) if value["type"].as_str().is_some_and(|kind| kind.ends_with("_tool_result")) => {
            value["tool_use_id"].as_str()
        }
        _ => None,
    }
}

/// Whether the latest message of the model holds an open use.
pub fn is_open(messages: &[Message]) -> bool {
    let last = messages.iter().rev().find(|message| message.role == Role::Assistant);
    last.is_some_and(|message| {
        let is_answered = |id| message.content.iter().any(|block| answered_id(block) == Some(id));
        message.content.iter().filter_map(use_id).any(|id| !is_answered(id))
    })
}

/// Drops the uses that have no result in `messages`, and results that have no use.
pub fn drop_unpaired(messages: &mut [Message]) {
    let ids = |of: fn(&Block) -> Option<&str>, messages: &[Message]| -> HashSet<String> {
        messages.iter().flat_map(|message| &message.content).filter_map(of).map(str::to_owned).collect()
    };
    let (used, answered) = (ids(use_id, messages), ids(answered_id, messages));
    for message in messages.iter_mut().filter(|message| message.role == Role::Assistant) {
        let before = message.content.len();
        message.content.retain(|block| {
            use_id(block).is_none_or(|id| answered.contains(id))
                && answered_id(block).is_none_or(|id| used.contains(id))
        });
        if message.content.len() == before {
            continue;
        }
        // What was thought before a use that is gone would end the message, which is refused.
        while message.content.last().is_some_and(Block::is_thinking) {
            message.content.pop();
        }
        if message.content.is_empty() {
            message.content.push(Block::text(NOTHING_LEFT));
        }
    }
}

/// Whether the `citations` of a text block name what a search found; the block is kept whole then.
pub(super) fn cites(citations: &Value) -> bool {
    citations.as_array().is_some_and(|citations| !citations.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn search(id: &str) -> Block {
        Block::Other(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}))
    }

    fn found(id: &str) -> Block {
        Block::Other(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}))
    }

    fn thought() -> Block {
        Block::Other(json!({"type": "thinking", "thinking": "hm", "signature": "s"}))
    }

    #[test]
    fn a_use_is_open_until_its_result_comes() {
        let user = Message::user(vec![Block::text("x")]);
        let says = |content: Vec<Block>| Message::assistant(content);
        assert!(!is_open(&[]) && !is_open(std::slice::from_ref(&user)));
        assert!(!is_open(&[user.clone(), says(vec![search("a"), found("a"), Block::text("t")])]));
        assert!(is_open(&[user.clone(), says(vec![search("a"), found("a"), search("b")])]));
        let mixed = says(vec![search("a"), Block::tool_use("t", "Bash", json!({}))]);
        let results = Message::user(vec![Block::tool_result("t", "out", false)]);
        let history = vec![user.clone(), mixed.clone(), results.clone()];
        assert!(is_open(&history));
        let mut later = [history.clone(), vec![says(vec![found("a"), Block::text("t")])]].concat();
        assert!(!is_open(&later));
        let before = later.clone();
        drop_unpaired(&mut later);
        assert_eq!(later, before, "an answer in the next message is one");
        let mut cut = history;
        drop_unpaired(&mut cut);
        assert_eq!(cut[1], says(vec![Block::tool_use("t", "Bash", json!({}))]));
    }

    #[test]
    fn what_is_dropped_leaves_a_message_that_can_be_sent() {
        let mut messages = vec![Message::assistant(vec![found("x"), Block::text("t")])];
        drop_unpaired(&mut messages);
        assert_eq!(messages[0].content, [Block::text("t")]);
        let mut messages = vec![Message::assistant(vec![thought(), search("a")])];
        drop_unpaired(&mut messages);
        assert_eq!(messages, [Message::assistant(vec![Block::text(NOTHING_LEFT)])]);
        let mut messages =
            vec![Message::assistant(vec![Block::text("so"), thought(), search("a"), search("b"), found("b")])];
        drop_unpaired(&mut messages);
        assert_eq!(messages[0].content, [Block::text("so"), thought(), search("b"), found("b")]);
    }
}
