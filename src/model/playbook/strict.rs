//! What a strict provider refuses. A playbook checks each request like one, so that every test that
//! runs on a playbook also tests that our histories are well formed.

use std::collections::HashSet;

use crate::core::message::{Block, Known, Message, Request, Role};
use crate::core::server_tool;

/// Checks `request` as the Messages API does: roles alternate and begin and end with the user, each
/// tool use is answered once in the very next message, answers come first in it, ids are not used
/// twice, tools are offered once each. The error says which message is wrong and how.
pub fn check_request(request: &Request) -> Result<(), String> {
    if request.max_tokens == 0 {
        return Err("max_tokens: must be at least 1".to_owned());
    }
    check_tools(request)?;
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut expected = Role::User;
    for (at, message) in request.messages.iter().enumerate() {
        let fail = |what: String| Err(format!("messages.{at}: {what}"));
        if message.role != expected {
            return fail("roles must alternate, beginning with the user".to_owned());
        }
        if message.content.is_empty() {
            return fail("content must not be empty".to_owned());
        }
        match message.role {
            Role::User => {
                check_results(message, &open).or_else(fail)?;
                open.clear();
                expected = Role::Assistant;
            }
            Role::Assistant => {
                open = uses(message).or_else(|what| fail(what).map(|()| Vec::new()))?;
                if let Some(twice) = open.iter().find(|id| !ids.insert(**id)) {
                    return fail(format!("the tool_use id {twice:?} was used before"));
                }
                expected = Role::User;
            }
        }
    }
    check_server_tools(&request.messages)?;
    match request.messages.last() {
        None => Err("messages: must not be empty".to_owned()),
        // One that the provider paused goes on.
        Some(last)
            if last.role == Role::Assistant && !last.content.iter().any(|b| server_tool::use_id(b).is_some()) =>
        {
            Err("messages: the last one must be the user's".to_owned())
        }
        Some(_) => Ok(()),
    }
}

/// Checks that each tool use of the provider's own has its result: in the same message, or at the
/// begin of the next one behind results of other tools alone. It may come yet if the request ends
/// before it could.
fn check_server_tools(messages: &[Message]) -> Result<(), String> {
    let mut used = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let later = messages.get(at + 1..).unwrap_or_default();
        let is_last = match later {
            [] => true,
            [results] => is_all_results(results),
            _ => false,
        };
        let in_time = |id: &str| {
            let answers = |m: &Message| m.content.iter().any(|b| server_tool::answered_id(b) == Some(id));
            answers(message) || matches!(later, [results, next, ..] if is_all_results(results) && answers(next))
        };
        for block in &message.content {
            if let Some(id) = server_tool::answered_id(block)
                && !used.contains(id)
            {
                return Err(format!("messages.{at}: the result of {id:?} has no server_tool_use before it"));
            }
            let Some(id) = server_tool::use_id(block) else { continue };
            if message.role == Role::User {
                return Err(format!("messages.{at}: a server_tool_use ({id:?}) in a user message"));
            }
            used.insert(id);
            if !is_last && !in_time(id) {
                return Err(format!("messages.{at}: the server_tool_use {id:?} was found without a result"));
            }
        }
    }
    Ok(())
}

fn is_all_results(message: &Message) -> bool {
    message.content.iter().all(|block| matches!(block, Block::Known(Known::ToolResult { .. })))
}

fn check_tools(request: &Request) -> Result<(), String> {
    let mut names = HashSet::new();
    for tool in &request.tools {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if tool.name.is_empty() || tool.name.len() > 128 || !tool.name.bytes().all(is_name) {
            return Err(format!("tools: {:?} is not a tool's name", tool.name));
        }
        if !names.insert(tool.name.as_str()) {
            return Err(format!("tools: {:?} is offered twice", tool.name));
        }
        if tool.input_schema.get("type").and_then(serde_json::Value::as_str) != Some("object") {
            return Err(format!("tools: the input schema of {:?} is not of type object", tool.name));
        }
    }
    Ok(())
}

/// The ids of an assistant message's tool uses.
fn uses(message: &Message) -> Result<Vec<&str>, String> {
    let mut ids = Vec::new();
    for block in &message.content {
        match block {
            Block::Known(Known::ToolUse { id, input, .. }) => {
                if !input.is_object() {
                    return Err(format!("the input of tool_use {id:?} is not an object"));
                }
                ids.push(id.as_str());
            }
            Block::Known(Known::ToolResult { tool_use_id, .. }) => {
                return Err(format!("a tool_result ({tool_use_id:?}) in an assistant message"));
            }
            Block::Known(Known::Text { .. }) | Block::Other(_) => {}
        }
    }
    Ok(ids)
}

/// Checks that a user message answers exactly the tool uses `open`, before anything else in it.
fn check_results(message: &Message, open: &[&str]) -> Result<(), String> {
    let mut answered = HashSet::new();
    let mut other_seen = false;
    for block in &message.content {
        match block {
            Block::Known(Known::ToolResult { tool_use_id, .. }) => {
                if other_seen {
                    return Err(format!("the tool_result of {tool_use_id:?} comes after other content"));
                }
                if !open.contains(&tool_use_id.as_str()) {
                    return Err(format!(
                        "the tool_result of {tool_use_id:?} answers no tool_use of the message before"
                    ));
                }
                if !answered.insert(tool_use_id.as_str()) {
                    return Err(format!("the tool_use {tool_use_id:?} is answered twice"));
                }
            }
            Block::Known(Known::ToolUse { id, .. }) => return Err(format!("a tool_use ({id:?}) in a user message")),
            Block::Known(Known::Text { .. }) | Block::Other(_) => other_seen = true,
        }
    }
    match open.iter().find(|id| !answered.contains(*id)) {
        Some(id) => Err(format!("the tool_use {id:?} of the message before has no tool_result")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::message::ToolSpec;
    use crate::model::playbook::testing::Conversation;

    fn check(messages: Vec<Message>) -> Result<(), String> {
        let mut request = Conversation::lead("x").request;
        request.messages = messages;
        check_request(&request)
    }

    fn call(ids: &[&str]) -> Message {
        Message::assistant(ids.iter().map(|id| Block::tool_use(*id, "Bash", json!({}))).collect())
    }

    fn results(ids: &[&str]) -> Message {
        Message::user(ids.iter().map(|id| Block::tool_result(*id, "out", false)).collect())
    }

    fn said(text: &str) -> Message {
        Message::user(vec![Block::text(text)])
    }

    #[test]
    fn a_well_formed_history_passes() {
        let mut both = results(&["b", "a"]);
        both.content.push(Block::text("and a message"));
        let history = vec![said("go"), call(&["a", "b"]), both, call(&["c"]), results(&["c"])];
        assert_eq!(check(history), Ok(()));
    }

    #[test]
    fn each_break_is_refused_with_its_place() {
        let late = Message::user(vec![Block::text("hm"), Block::tool_result("a", "out", false)]);
        let in_assistant = Message::assistant(vec![Block::tool_result("a", "out", false)]);
        let in_user = Message::user(vec![Block::tool_use("a", "Bash", json!({}))]);
        let no_object = Message::assistant(vec![Block::tool_use("a", "Bash", json!("ls"))]);
        let cases = [
            (vec![], "must not be empty"),
            (vec![call(&[])], "messages.0: roles"),
            (vec![said("a"), said("b")], "messages.1: roles"),
            (vec![said("a"), call(&[])], "messages.1: content must not be empty"),
            (vec![Message::user(vec![])], "messages.0: content"),
            (vec![said("a"), call(&["a"])], "last one must be the user's"),
            (vec![said("a"), call(&["a", "b"]), results(&["a"])], "messages.2: the tool_use \"b\""),
            (vec![said("a"), call(&["a"]), said("b")], "messages.2: the tool_use \"a\""),
            (vec![said("a"), call(&["a"]), results(&["a", "a"])], "answered twice"),
            (vec![said("a"), call(&["a"]), results(&["a", "z"])], "\"z\" answers no tool_use"),
            (vec![results(&["a"])], "messages.0: the tool_result of \"a\" answers no"),
            (vec![said("a"), call(&["a"]), results(&["a"]), call(&["b"]), results(&["b", "a"])], "messages.4"),
            (vec![said("a"), call(&["a"]), late], "comes after other content"),
            (vec![said("a"), call(&["a"]), results(&["a"]), call(&["a"]), results(&["a"])], "was used before"),
            (vec![said("a"), call(&["a", "a"]), results(&["a"])], "was used before"),
            (vec![said("a"), in_assistant, said("b")], "in an assistant message"),
            (vec![in_user], "in a user message"),
            (vec![said("a"), no_object, results(&["a"])], "is not an object"),
        ];
        for (messages, part) in cases {
            let shown = format!("{messages:?}");
            let error = check(messages).err().unwrap_or_default();
            assert!(error.contains(part), "{error} / {part}: {shown}");
        }
    }

    #[test]
    fn tools_of_the_provider_have_their_results_in_time() {
        let search =
            |id: &str| Block::Other(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}));
        let found =
            |id: &str| Block::Other(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}));
        let says = |content: &[Block]| Message::assistant(content.to_vec());
        let mixed = says(&[search("s"), Block::tool_use("a", "Bash", json!({}))]);
        let mut late = results(&["a"]);
        late.content.push(Block::text("and"));
        let good = [
            vec![said("go"), says(&[search("s"), found("s"), Block::text("t")]), said("more")],
            vec![said("go"), says(&[search("s"), found("s"), search("t")])],
            vec![said("go"), mixed.clone(), results(&["a"])],
            vec![said("go"), mixed.clone(), results(&["a"]), says(&[found("s"), Block::text("t")]), said("more")],
        ];
        for messages in good {
            assert_eq!(check(messages.clone()), Ok(()), "{messages:?}");
        }
        let bad = [
            (vec![said("go"), says(&[search("s")]), said("more")], "without a result"),
            (vec![said("go"), mixed.clone(), late], "without a result"),
            (vec![said("go"), mixed, results(&["a"]), says(&[Block::text("t")]), said("more")], "without a result"),
            (vec![said("go"), says(&[found("s"), Block::text("t")]), said("more")], "no server_tool_use before"),
            (vec![Message::user(vec![search("s")])], "in a user message"),
            (vec![said("go"), says(&[Block::text("t")])], "last one must be the user's"),
        ];
        for (messages, part) in bad {
            let error = check(messages.clone()).err().unwrap_or_default();
            assert!(error.contains(part), "{error}: {messages:?}");
        }
    }

    #[test]
    fn tools_are_checked_too() {
        let tool = |name: &str, kind: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            input_schema: json!({"type": kind}),
        };
        let check = |tools| {
            let mut request = Conversation::lead("x").request;
            request.tools = tools;
            check_request(&request).err().unwrap_or_default()
        };
        assert_eq!(check(vec![tool("Bash", "object"), tool("mcp__a__b-c", "object")]), "");
        assert!(check(vec![tool("Bash", "object"), tool("Bash", "object")]).contains("twice"));
        assert!(check(vec![tool("Ba sh", "object")]).contains("not a tool's name"));
        assert!(check(vec![tool("", "object")]).contains("not a tool's name"));
        assert!(check(vec![tool("Bash", "string")]).contains("not of type object"));
        let mut request = Conversation::lead("x").request;
        request.max_tokens = 0;
        assert!(check_request(&request).is_err_and(|e| e.contains("max_tokens")));
    }
}
