use serde_json::{Value, json};

use super::*;
use crate::core::message::{Caller, Reply, ToolSpec};

fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: format!("does {name}"),
        input_schema: json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {"minimum": 1.5}}}),
    };
    Request {
        model: "claude-x".into(),
        system: "be good".into(),
        messages,
        tools: vec![tool("Bash"), tool("Read")],
        web_search: false,
        max_tokens: 32_000,
        caller: Caller::default(),
    }
}

fn rendered(request: &Request) -> String {
    String::from_utf8(render(request).unwrap()).unwrap()
}

fn parsed(request: &Request) -> Value {
    serde_json::from_str(&rendered(request)).unwrap()
}

fn said(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

#[test]
fn fields_stand_in_a_fixed_order_with_four_marks() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let call = Message::assistant(vec![
        Block::Other(thinking.clone()),
        Block::tool_use("t1", "Bash", json!({"command": "ls", "a": 1.50})),
    ]);
    let request =
        request(vec![said("one"), call, Message::user(vec![Block::tool_result("t1", "out", true)]), said("three")]);
    let text = rendered(&request);
    let places: Vec<Option<usize>> = [
        "{\"model\":\"claude-x\",\"max_tokens\":32000,\"stream\":true,",
        "\"tools\":[",
        "\"system\":[",
        "\"messages\":[",
    ]
    .map(|part| text.find(part))
    .to_vec();
    assert!(places[0] == Some(0) && places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    assert_eq!(text.matches(CACHE_MARK).count(), 4);
    let body = parsed(&request);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["tools"][1]["cache_control"], mark);
    assert_eq!(body["system"], json!([{"type": "text", "text": "be good", "cache_control": mark}]));
    assert_eq!(body["messages"][1]["content"][0], thinking);
    assert!(body["messages"][0]["content"][0].get("cache_control").is_none());
    assert_eq!(
        body["messages"][2]["content"][0],
        json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "out"}], "is_error": true, "cache_control": mark})
    );
    assert_eq!(body["messages"][3]["content"][0]["cache_control"], mark);
    assert_eq!(body["tools"][0]["input_schema"], request.tools[0].input_schema);
}

#[test]
fn nothing_empty_is_sent() {
    let mut request = request(vec![
        said(" \n"),
        Message::assistant(vec![Block::text(""), Block::tool_use("t", "Bash", json!({})), Block::Other(json!("odd"))]),
        Message::user(vec![Block::tool_result("t", "", false), Block::text("")]),
    ]);
    request.system = " ".into();
    request.tools.clear();
    let body = parsed(&request);
    assert!(body.get("system").is_none() && body.get("tools").is_none());
    assert_eq!(body["messages"][0]["content"][0]["text"], NO_CONTENT);
    assert_eq!(body["messages"][1]["content"], json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]));
    let result = &body["messages"][2]["content"];
    assert_eq!(result.as_array().map(Vec::len), Some(1));
    assert!(result[0].get("content").is_none(), "{result}");
}

#[test]
fn over_thirty_turns_each_request_begins_with_the_one_before() {
    // Numbers, escapes and orders that a second rendering might change; every third turn the
    // history comes back from its transcript, as after a resume.
    let inputs = [
        json!({"z": 0.1, "a": 1e300, "m": [1.5, -0.0, 7, 18446744073709551615u64, 0.30000000000000004]}),
        serde_json::from_str(
            r#"{"n": 1.10, "big": 123456789012345678901234567890, "e": 1e2, "u": "\u00e9\u2028\ud83d\ude00\/"}"#,
        )
        .unwrap(),
        json!({"text": "quote \" back \\ tab \t nul \u{0} del \u{7f} 研究"}),
    ];
    let mut request = request(vec![said("go")]);
    let mut before: Option<String> = None;
    for turn in 0..30 {
        let text = rendered(&request);
        if let Some(before) = before {
            let upto = before.rfind(CACHE_MARK).unwrap();
            let unmarked = before[..upto].replace(CACHE_MARK, "");
            assert!(text.replace(CACHE_MARK, "").starts_with(&unmarked), "turn {turn}");
            // What was sent behind the last mark are closing brackets alone.
            assert_eq!(&before[upto + CACHE_MARK.len()..], "}]}]}");
        }
        before = Some(text);
        let reply = Reply {
            id: format!("msg_{turn}"),
            model: String::new(),
            content: vec![
                Block::Other(json!({"type": "thinking", "thinking": format!("hm {turn}"), "signature": "c2ln/+="})),
                Block::text(if turn % 4 == 0 { "" } else { "calling" }),
                Block::tool_use(format!("toolu_{turn}"), "Bash", inputs[turn % 3].clone()),
            ],
            stop_reason: Some("tool_use".into()),
            usage: Default::default(),
        };
        request.messages.push(Message::assistant(reply.content));
        let mut answer = Message::user(vec![Block::tool_result(format!("toolu_{turn}"), "x\u{1b}[0m", turn % 5 == 0)]);
        if turn % 7 == 0 {
            answer.content.push(Block::text("and something else"));
        }
        request.messages.push(answer);
        if turn % 3 == 0 {
            let lines: Vec<String> = request.messages.iter().map(|m| serde_json::to_string(m).unwrap()).collect();
            request.messages = lines.iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        }
    }
}

#[test]
fn the_provider_s_search_stands_last_among_the_tools() {
    let mut request = request(vec![said("one")]);
    request.web_search = true;
    let body = parsed(&request);
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "cache_control": {"type": "ephemeral"}});
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(3));
    assert_eq!(body["tools"][2], search);
    request.tools.clear();
    assert_eq!(parsed(&request)["tools"], json!([search]));
}

#[test]
fn blocks_of_a_search_go_back_as_they_came() {
    let blocks = json!([
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://a.example/", "title": "T", "encrypted_content": "Ev==", "page_age": null}
        ]},
        {"type": "text", "text": "Tea.", "citations": [{"type": "web_search_result_location", "encrypted_index": "E=", "cited_text": "t"}]},
    ]);
    let content: Vec<Block> = serde_json::from_value(blocks.clone()).unwrap();
    let body = parsed(&request(vec![said("one"), Message::assistant(content), said("two")]));
    assert_eq!(body["messages"][1]["content"], blocks);
}
