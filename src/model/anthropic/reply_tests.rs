use serde_json::json;

use super::*;

fn feed(events: &[Value]) -> Result<Option<Reply>, StreamError> {
    let mut assembly = Assembly::default();
    for event in events {
        if let Taken::Done(reply) = assembly.take(event.to_string().as_bytes())? {
            return Ok(Some(reply));
        }
    }
    Ok(None)
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "usage": {"input_tokens": 25, "cache_read_input_tokens": 7, "output_tokens": 1}}})
}

fn open(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn close(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}), json!({"type": "message_stop"})]
}

fn call(index: usize, id: &str, parts: &[&str]) -> Vec<Value> {
    let mut events = vec![open(index, json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}}))];
    events.extend(parts.iter().map(|p| delta(index, json!({"type": "input_json_delta", "partial_json": p}))));
    events.push(close(index));
    events
}

fn malformed(events: &[Value]) -> String {
    match feed(events) {
        Err(StreamError::Malformed(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn thinking_text_and_calls_are_put_together_in_order() {
    let mut events = vec![
        start(),
        json!({"type": "ping"}),
        open(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "let me "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "see"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        close(0),
        open(1, json!({"type": "redacted_thinking", "data": "AAA="})),
        close(1),
        open(2, json!({"type": "text", "text": "", "citations": null})),
        delta(2, json!({"type": "text_delta", "text": "hé"})),
        delta(2, json!({"type": "news_delta", "news": 1})),
        delta(2, json!({"type": "text_delta", "text": "llo"})),
        close(2),
        json!({"type": "news", "index": 9}),
    ];
    events.extend(call(3, "t1", &["", "{\"comm", "and\": \"l", "s\", \"n\": 1.5}"]));
    events.extend(call(4, "t2", &[]));
    events.extend(end("tool_use"));
    let reply = feed(&events).unwrap().unwrap();
    assert_eq!((reply.id.as_str(), reply.model.as_str()), ("msg_1", "m"));
    assert_eq!(reply.stop_reason.as_deref(), Some("tool_use"));
    let usage = Usage { input_tokens: 25, output_tokens: 15, cache_read_input_tokens: 7, ..Usage::default() };
    assert_eq!(reply.usage, usage);
    assert_eq!(
        reply.content,
        [
            Block::Other(json!({"type": "thinking", "thinking": "let me see", "signature": "c2ln"})),
            Block::Other(json!({"type": "redacted_thinking", "data": "AAA="})),
            Block::text("héllo"),
            Block::tool_use("t1", "Bash", json!({"command": "ls", "n": 1.5})),
            Block::tool_use("t2", "Bash", json!({})),
        ]
    );
}

#[test]
fn pings_are_told_from_progress_and_the_id_is_known_early() {
    let mut assembly = Assembly::default();
    assert_eq!(assembly.take(br#"{"type":"ping"}"#), Ok(Taken::Ping));
    assert_eq!(assembly.message_id(), None);
    assert_eq!(assembly.take(start().to_string().as_bytes()), Ok(Taken::Progress));
    assert_eq!(assembly.message_id(), Some("msg_1"));
}

#[test]
fn a_reply_is_whole_only_with_its_end() {
    let mut events = vec![start()];
    events.extend(call(0, "t", &["{}"]));
    let [delta, stop] = end("tool_use");
    events.push(delta);
    assert_eq!(feed(&events), Ok(None));
    events.push(stop);
    assert!(feed(&events).unwrap().is_some());
}

#[test]
fn what_breaks_the_order_or_the_json_is_malformed() {
    let text = || json!({"type": "text", "text": ""});
    let said = |index| delta(index, json!({"type": "text_delta", "text": "x"}));
    let [_, stop] = end("end_turn");
    let cases = [
        (vec![json!({"type": "content_block_delta", "index": 0})], "not readable"),
        (vec![json!({"no": "type"})], "not readable"),
        (vec![json!([1])], "not readable"),
        (vec![start(), start()], "begins twice"),
        (vec![open(0, text())], "out of order"),
        (vec![start(), open(1, text())], "out of order"),
        (vec![start(), said(0)], "not open"),
        (vec![start(), open(0, text()), close(0), said(0)], "not open"),
        (vec![start(), open(0, text()), close(0), close(0)], "not open"),
        (vec![start(), open(0, text()), stop.clone()], "not closed"),
        (vec![stop], "before it begins"),
        (end("x").to_vec(), "before it begins"),
    ];
    for (events, part) in cases {
        let what = malformed(&events);
        assert!(what.contains(part), "{what} / {part}");
    }
    let mut assembly = Assembly::default();
    assert!(matches!(assembly.take(b"{\"type\":\"ping\""), Err(StreamError::Malformed(_))));
    assert!(matches!(assembly.take(b""), Err(StreamError::Malformed(_))));
    assert!(matches!(assembly.take(b"\xff\xfe"), Err(StreamError::Malformed(_))));
}

#[test]
fn half_a_call_never_becomes_a_call() {
    let with = |parts: &[&str], reason: &str| {
        let mut events = vec![start(), open(0, json!({"type": "text", "text": "hm"})), close(0)];
        events.extend(call(1, "t", parts));
        events.extend(end(reason));
        events
    };
    for parts in [&["{\"command\": \"rm -rf /tm"][..], &["[1]"], &["{} {}"], &["\"ls\""]] {
        let what = malformed(&with(parts, "tool_use"));
        assert!(what.contains("a tool's input"), "{what}");
        // Out of tokens: what was said before is the reply.
        let reply = feed(&with(parts, "max_tokens")).unwrap().unwrap();
        assert_eq!(reply.content, [Block::text("hm")]);
    }
    for block in [json!({"type": "tool_use", "id": "", "name": "Bash", "input": {}}), json!({"type": "tool_use"})] {
        let mut events = vec![start(), open(0, block), close(0)];
        events.extend(end("tool_use"));
        assert!(malformed(&events).contains("without id or name"));
    }
}

#[test]
fn an_error_event_has_the_status_of_its_type() {
    for (kind, status) in [("overloaded_error", 529), ("rate_limit_error", 429), ("api_error", 500), ("news", 500)] {
        let event = json!({"type": "error", "error": {"type": kind, "message": "said"}});
        assert_eq!(feed(&[start(), event]), Err(StreamError::Api { status, message: "said".into() }));
    }
}

#[test]
fn a_search_of_the_provider_is_kept_whole() {
    let result =
        json!({"type": "web_search_result", "url": "https://a.example/", "title": "T", "encrypted_content": "Ev=="});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [result]});
    let citation =
        |n: u32| json!({"type": "web_search_result_location", "encrypted_index": n.to_string(), "cited_text": "t"});
    let mut events = vec![start()];
    events.push(open(0, json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})));
    events.push(delta(0, json!({"type": "input_json_delta", "partial_json": "{\"query\": "})));
    events.push(delta(0, json!({"type": "input_json_delta", "partial_json": "\"tea\"}"})));
    events.push(close(0));
    events.extend([open(1, found.clone()), close(1)]);
    events.push(open(2, json!({"type": "text", "text": "", "citations": []})));
    for n in 0..2 {
        events.push(delta(2, json!({"type": "citations_delta", "citation": citation(n)})));
    }
    events.extend([delta(2, json!({"type": "text_delta", "text": "Tea."})), close(2)]);
    events.extend([open(3, json!({"type": "text", "text": "Enough.", "citations": []})), close(3)]);
    let [mut last, stop] = end("pause_turn");
    last["usage"]["server_tool_use"] = json!({"web_search_requests": 1});
    events.extend([last, stop]);
    let reply = feed(&events).unwrap().unwrap();
    assert_eq!(reply.stop_reason.as_deref(), Some("pause_turn"));
    assert_eq!(reply.usage.server_tool_use.web_search_requests, 1);
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}});
    let text = json!({"type": "text", "text": "Tea.", "citations": [citation(0), citation(1)]});
    assert_eq!(reply.content, [Block::Other(search), Block::Other(found), Block::Other(text), Block::text("Enough.")]);
}
