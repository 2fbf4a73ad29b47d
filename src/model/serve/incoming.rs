//! Requests as they come over the wire: read into a [`Request`], and checked as strictly as asked.

use std::collections::HashSet;

use hyper::header::{self, HeaderMap};
use serde::Deserialize;
use serde_json::Value;

use crate::core::message::{Block, Caller, Known, Message, Request, ToolSpec};
use crate::model::playbook::{check_request, sign};

/// The API takes no more cache marks than this.
const CACHE_MARKS: usize = 4;

/// The name of the provider's search, as a request offers it.
const WEB_SEARCH: &str = "web_search";

/// What is checked about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// That they can be read.
    Lenient,
    /// Everything a strict provider refuses: order of roles, pairs of tool uses and results,
    /// unknown tools, empty texts, changed thoughts, too many cache marks, missing headers.
    Strict,
}

/// A request, read.
pub(super) struct Incoming {
    /// What is asked.
    pub request: Request,
    /// Whether the answer is streamed.
    pub stream: bool,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Why, in words.
    pub message: String,
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal { status: 400, message: message.into() }
}

#[derive(Deserialize)]
struct Body {
    model: String,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    system: Option<System>,
    #[serde(default)]
    tools: Vec<Tool>,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum System {
    Text(String),
    Blocks(Vec<Block>),
}

/// A tool of the client's, or of the provider's (which has a type and no schema).
#[derive(Deserialize)]
struct Tool {
    #[serde(default)]
    r#type: Option<String>,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: Option<Value>,
}

impl Tool {
    fn is_providers(&self) -> bool {
        self.r#type.as_deref().is_some_and(|kind| kind != "custom")
    }
}

/// Reads a body of `/v1/messages` (or `count_tokens`, where `max_tokens` may be missing).
pub(super) fn read(headers: &HeaderMap, body: &str) -> Result<Incoming, Refusal> {
    let body: Body = serde_json::from_str(body).map_err(|e| invalid(format!("the body can't be read: {e}")))?;
    let header = |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let caller = Caller {
        role: header("x-lead-role").unwrap_or_default(),
        agent_type: header("x-lead-type").unwrap_or_default(),
        name: header("x-lead-name").unwrap_or_default(),
    };
    let system = match body.system {
        None => String::new(),
        Some(System::Text(text)) => text,
        Some(System::Blocks(blocks)) => crate::core::message::text_of(&blocks),
    };
    let (theirs, ours): (Vec<Tool>, Vec<Tool>) = body.tools.into_iter().partition(Tool::is_providers);
    let tool = |tool: Tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema.unwrap_or_else(|| serde_json::json!({"type": "object"})),
    };
    let request = Request {
        model: body.model,
        system,
        messages: body.messages,
        tools: ours.into_iter().map(tool).collect(),
        web_search: theirs.iter().any(|tool| tool.name == WEB_SEARCH),
        max_tokens: body.max_tokens.unwrap_or(0),
        caller,
    };
    Ok(Incoming { request, stream: body.stream })
}

/// Refuses what a strict provider would refuse.
pub(super) fn check_strictly(headers: &HeaderMap, body: &str, request: &Request) -> Result<(), Refusal> {
    let is_there = |name: &str| headers.get(name).is_some_and(|v| !v.is_empty());
    if !is_there("x-api-key") && !is_there(header::AUTHORIZATION.as_str()) {
        return Err(Refusal { status: 401, message: "x-api-key header is required".to_owned() });
    }
    if !is_there("anthropic-version") {
        return Err(invalid("anthropic-version: header is required"));
    }
    let json: Value = serde_json::from_str(body).map_err(|e| invalid(e.to_string()))?;
    let marks = cache_marks(&json);
    if marks > CACHE_MARKS {
        return Err(invalid(format!(
            "a maximum of {CACHE_MARKS} blocks with cache_control may be provided, found {marks}"
        )));
    }
    check_tools(&json).map_err(invalid)?;
    check_request(request).map_err(invalid)?;
    let offered: HashSet<&str> = request.tools.iter().map(|t| t.name.as_str()).collect();
    for (at, message) in request.messages.iter().enumerate() {
        for block in &message.content {
            check_block(block, &request.model, &offered).map_err(|what| invalid(format!("messages.{at}: {what}")))?;
        }
    }
    Ok(())
}

/// A tool has a schema, or is one that the provider has.
fn check_tools(json: &Value) -> Result<(), String> {
    for (at, tool) in json["tools"].as_array().into_iter().flatten().enumerate() {
        let (kind, name) = (tool["type"].as_str().unwrap_or("custom"), tool["name"].as_str().unwrap_or_default());
        match kind {
            "custom" if tool["input_schema"].is_object() => {}
            "custom" => return Err(format!("tools.{at}.input_schema: field required")),
            kind if kind.starts_with("web_search_") => {
                if name != WEB_SEARCH {
                    return Err(format!("tools.{at}.name: must be {WEB_SEARCH:?}"));
                }
                if let Some(field) = ["input_schema", "description"].iter().find(|field| tool.get(**field).is_some()) {
                    return Err(format!("tools.{at}.{field}: extra inputs are not permitted"));
                }
                if tool.get("max_uses").is_some_and(|uses| uses.as_u64().is_none_or(|n| n == 0)) {
                    return Err(format!("tools.{at}.max_uses: must be at least 1"));
                }
            }
            kind => return Err(format!("tools.{at}.type: there is no tool of type {kind:?}")),
        }
    }
    Ok(())
}

fn check_block(block: &Block, model: &str, offered: &HashSet<&str>) -> Result<(), String> {
    match block {
        Block::Known(Known::Text { text }) if text.trim().is_empty() => {
            Err("text content blocks must contain text that is not blank".to_owned())
        }
        Block::Known(Known::ToolUse { name, .. }) if !offered.contains(name.as_str()) => {
            Err(format!("the tool {name:?} is not among the tools of this request"))
        }
        Block::Known(Known::ToolResult { content, .. }) => {
            content.iter().try_for_each(|b| check_block(b, model, offered))
        }
        Block::Other(value) if value["type"] == "thinking" => {
            let thinking = value["thinking"].as_str().unwrap_or_default();
            let is_signed = value["signature"].as_str() == Some(&sign(model, thinking));
            is_signed
                .then_some(())
                .ok_or_else(|| "thinking blocks cannot be modified: the signature is none of this model".to_owned())
        }
        Block::Known(_) | Block::Other(_) => Ok(()),
    }
}

fn cache_marks(json: &Value) -> usize {
    match json {
        Value::Object(fields) => {
            usize::from(fields.contains_key("cache_control")) + fields.values().map(cache_marks).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(cache_marks).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static("any"));
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        headers
    }

    fn check(headers: &HeaderMap, body: &Value) -> Result<(), Refusal> {
        let text = body.to_string();
        let incoming = read(headers, &text)?;
        check_strictly(headers, &text, &incoming.request)
    }

    fn body() -> Value {
        json!({
            "model": "m", "max_tokens": 5, "stream": true,
            "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
            "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "web_search_1", "name": "web_search"}],
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": sign("m", "hm")},
                    {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
                ]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
            ],
        })
    }

    #[test]
    fn a_request_is_read_with_who_asks() {
        let mut headers = headers();
        headers.insert("x-lead-role", HeaderValue::from_static("worker"));
        headers.insert("x-lead-name", HeaderValue::from_bytes("größe".as_bytes()).unwrap());
        let incoming = read(&headers, &body().to_string()).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(incoming.stream);
        assert_eq!(incoming.request.system, "a\nb");
        let caller = incoming.request.caller;
        assert_eq!((caller.role.as_str(), caller.agent_type.as_str(), caller.name.as_str()), ("worker", "", "größe"));
        assert_eq!(incoming.request.messages[2].content, [Block::tool_result("t", "out", false)]);
        assert_eq!((incoming.request.tools.len(), incoming.request.web_search), (1, true));
        assert_eq!(check(&headers, &body()), Ok(()));
        assert_eq!(read(&headers, "{").map(|_| ()).map_err(|e| e.status), Err(400));
    }

    type Change<'a> = dyn Fn(&mut Value) + 'a;

    #[test]
    fn strictness_names_what_is_wrong() {
        let refused = |change: &Change<'_>| {
            let mut body = body();
            change(&mut body);
            let refusal = check(&headers(), &body).err().unwrap_or_else(|| panic!("{body}"));
            assert_eq!(refusal.status, 400);
            refusal.message
        };
        let mark = json!({"type": "ephemeral"});
        let cases: [(&Change<'_>, &str); 13] = [
            (&|b| b["tools"][0] = json!({"name": "Bash"}), "tools.0.input_schema: field required"),
            (&|b| b["tools"][1]["name"] = json!("search"), "tools.1.name"),
            (&|b| b["tools"][1]["input_schema"] = json!({"type": "object"}), "tools.1.input_schema: extra"),
            (&|b| b["tools"][1]["max_uses"] = json!(0), "tools.1.max_uses"),
            (&|b| b["tools"][1]["type"] = json!("no_such_1"), "no tool of type"),
            (&|b| b["messages"][2]["content"] = json!("no result"), "has no tool_result"),
            (&|b| b["messages"][2]["role"] = json!("assistant"), "roles must alternate"),
            (&|b| b["messages"][1]["content"][1]["name"] = json!("Nope"), "\"Nope\" is not among"),
            (&|b| b["tools"] = json!([]), "\"Bash\" is not among"),
            (&|b| b["messages"][0]["content"] = json!(" "), "messages.0: text content"),
            (&|b| b["messages"][2]["content"][0]["content"] = json!(""), "messages.2: text content"),
            (&|b| b["messages"][1]["content"][0]["thinking"] = json!("hm!"), "cannot be modified"),
            (&|b| b["max_tokens"] = Value::Null, "max_tokens"),
        ];
        for (change, part) in cases {
            let message = refused(change);
            assert!(message.contains(part), "{message} / {part}");
        }
        let marks = |body: &mut Value, n: usize| {
            let blocks: Vec<Value> =
                (0..n).map(|_| json!({"type": "text", "text": "x", "cache_control": mark})).collect();
            body["system"] = json!(blocks);
        };
        assert!(refused(&|b| marks(b, 5)).contains("maximum of 4"));
        let mut four = body();
        marks(&mut four, 4);
        assert_eq!(check(&headers(), &four), Ok(()));
    }

    #[test]
    fn headers_are_needed_but_any_key_will_do() {
        let mut without = headers();
        without.remove("x-api-key");
        assert_eq!(check(&without, &body()).map_err(|e| e.status), Err(401));
        without.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert_eq!(check(&without, &body()), Ok(()));
        without.remove("anthropic-version");
        assert_eq!(check(&without, &body()).map_err(|e| e.status), Err(400));
    }
}
