//! The client against the strict server, over real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

use super::*;
use crate::core::message::{Block, Known, Message, ToolSpec, text_of};
use crate::core::provider::Proxy;
use crate::model::call::Retrying;
use crate::model::playbook::{Playbook, PlaybookModel};
use crate::model::serve::{Check, Server};

const SOON: Duration = Duration::from_secs(30);
pub(super) const QUICK: Retry = Retry { attempts: 3, base: Duration::from_millis(2), cap: Duration::from_millis(5) };

/// A strict server and what it saw.
struct Rig {
    url: String,
    folder: tempfile::TempDir,
    _stop: DropGuard,
}

impl Rig {
    async fn start(agents: &str) -> Self {
        Self::start_on(agents, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn start_on(agents: &str, listener: TcpListener) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book.yaml");
        std::fs::write(&path, format!("record: seen.jsonl\nagents: {agents}\n")).unwrap();
        let model = PlaybookModel::from(Playbook::read(&path).unwrap_or_else(|e| panic!("{e}")));
        let server = Server::new(listener, model, Check::Strict).unwrap();
        let (url, stop) = (server.base_url(), CancellationToken::new());
        let cancel = stop.clone();
        tokio::spawn(async move { server.run(&cancel).await });
        Self { url, folder, _stop: stop.drop_guard() }
    }

    fn model(&self) -> AnthropicModel {
        self.model_with(QUICK, SOON)
    }

    fn model_with(&self, retry: Retry, stall: Duration) -> AnthropicModel {
        model(&self.url, retry, stall)
    }

    /// The bodies that came, in order.
    fn seen(&self) -> Vec<String> {
        let path: PathBuf = self.folder.path().join("seen.jsonl");
        let lines = std::fs::read_to_string(path).unwrap_or_default();
        let body = |line: &str| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().unwrap().to_owned();
        lines.lines().map(body).collect()
    }
}

pub(super) fn model(url: &str, retry: Retry, stall: Duration) -> AnthropicModel {
    let access = ProviderAccess {
        credentials: Credentials { api_key: Some("any".into()), auth_token: None },
        base_url: Some(url.to_owned()),
        proxy: Proxy::default(),
        retry,
    };
    AnthropicModel::with_patience(&access, Patience { connect: SOON, stall, reply: SOON }).unwrap()
}

pub(super) fn request(prompt: &str) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "runs".into(),
        input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
    };
    Request {
        model: "claude-test".into(),
        system: "be good".into(),
        messages: vec![Message::user(vec![Block::text(prompt)])],
        tools: vec![tool("Bash"), tool("Read")],
        web_search: false,
        max_tokens: 1000,
        caller: Caller { role: "worker".into(), agent_type: "explorer".into(), name: "größe".into() },
    }
}

/// Remembers what happened. Waits of the client pass at once, whatever their length.
#[derive(Default)]
pub(super) struct Log {
    lines: Mutex<Vec<String>>,
    parts: Mutex<Vec<(String, Value)>>,
    waits: Mutex<Vec<(Duration, String)>>,
}

impl Observer for Log {
    fn observe(&self, event: CallEvent<'_>) {
        match event {
            CallEvent::Sent { attempt } => {
                if attempt > 1 {
                    tokio::time::resume();
                }
                self.lines.lock().unwrap().push(format!("sent {attempt}"));
            }
            CallEvent::Part { message_id, event } => {
                self.parts.lock().unwrap().push((message_id.to_owned(), serde_json::from_str(event).unwrap()));
            }
            CallEvent::Waiting(Retrying { attempt, delay, reason, discarded_message_id, .. }) => {
                tokio::time::pause();
                let discarded = if discarded_message_id.is_some() { " discarded" } else { "" };
                self.lines.lock().unwrap().push(format!("wait {attempt}{discarded}"));
                self.waits.lock().unwrap().push((delay, reason.to_owned()));
            }
        }
    }
}

impl Log {
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(super) fn reason(&self, wait: usize) -> String {
        self.waits.lock().unwrap()[wait].1.clone()
    }
}

pub(super) async fn call(model: &AnthropicModel, request: &Request, log: &Log) -> Result<Reply, ModelError> {
    let cancel = CancellationToken::new();
    // A token instead of a timeout, since the clock may stand still.
    model.call_observed(request, &cancel, log).await
}

async fn reply(model: &AnthropicModel, request: &Request, log: &Log) -> Reply {
    call(model, request, log).await.unwrap_or_else(|e| panic!("{e}: {:?}", log.lines()))
}

/// Takes a reply into the conversation and answers its calls.
fn go_on(request: &mut Request, reply: &Reply) -> Vec<Value> {
    let calls: Vec<(String, Value)> = reply
        .content
        .iter()
        .filter_map(|b| match b {
            Block::Known(Known::ToolUse { id, input, .. }) => Some((id.clone(), input.clone())),
            _ => None,
        })
        .collect();
    request.messages.push(Message::assistant(reply.content.clone()));
    let results = calls.iter().map(|(id, _)| Block::tool_result(id, "out", false)).collect();
    request.messages.push(Message::user(results));
    calls.into_iter().map(|(_, input)| input).collect()
}

#[tokio::test]
async fn a_plain_reply_is_what_the_playbook_says_and_is_told_part_by_part() {
    let text = "a text long enough for several deltas, größer als ein Byte je Zeichen";
    let agents = format!(
        "[{{match: {{role: ^worker$, type: ^explorer$, name: ^größe$, system: good}}, \
          turns: [{{text: '{text}', usage: {{input_tokens: 7, output_tokens: 9, cache_read_input_tokens: 3}}}}]}}]"
    );
    let rig = Rig::start(&agents).await;
    let log = Log::default();
    let reply = reply(&rig.model(), &request("go"), &log).await;
    assert_eq!(reply.content, [Block::text(text)]);
    assert_eq!((reply.model.as_str(), reply.stop_reason.as_deref()), ("claude-test", Some("end_turn")));
    let usage = reply.usage;
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens), (7, 9, 3));
    assert_eq!(rig.seen().len(), 1);
    assert_eq!(log.lines(), ["sent 1"]);
    let parts = log.parts.lock().unwrap();
    assert!(parts.iter().all(|(id, _)| *id == reply.id));
    let kinds: Vec<&str> = parts.iter().map(|(_, e)| e["type"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"message_start"), Some(&"message_stop")));
    assert!(!kinds.contains(&"ping"));
    let told: String = parts.iter().filter_map(|(_, e)| e["delta"]["text"].as_str()).collect();
    assert_eq!(told, text);
}

#[tokio::test]
async fn five_tools_in_one_reply_are_answered_and_accepted() {
    let tools: Vec<String> = (0..5).map(|n| format!("{{name: Bash, input: {{command: 'echo {n}'}}}}")).collect();
    let rig =
        Rig::start(&format!("[{{turns: [{{tools: [{}]}}, {{text: '{{{{result.5}}}}'}}]}}]", tools.join(","))).await;
    let (model, mut request, log) = (rig.model(), request("go"), Log::default());
    let first = reply(&model, &request, &log).await;
    assert_eq!(first.stop_reason.as_deref(), Some("tool_use"));
    let inputs = go_on(&mut request, &first);
    assert_eq!(inputs, (0..5).map(|n| json!({"command": format!("echo {n}")})).collect::<Vec<_>>());
    assert_eq!(text_of(&reply(&model, &request, &log).await.content), "out");
    assert_eq!(rig.seen().len(), 2);
}

#[tokio::test]
async fn thinking_goes_back_unmodified() {
    let rig = Rig::start(
        "[{turns: [{thinking: 'größe \" \\ </x> \u{2028}', tools: [{name: Bash}]}, {thinking: more, text: done}]}]",
    )
    .await;
    let (model, mut request, log) = (rig.model(), request("go"), Log::default());
    let first = reply(&model, &request, &log).await;
    assert!(first.content[0].is_thinking() && first.content.len() == 2);
    go_on(&mut request, &first);
    // The strict server has checked the signature under the thought.
    let second = reply(&model, &request, &log).await;
    assert_eq!(text_of(&second.content), "done");
    let Block::Other(thought) = &mut request.messages[1].content[0] else { panic!("a thought") };
    thought["thinking"] = json!("changed");
    let error = call(&model, &request, &log).await;
    assert!(matches!(&error, Err(ModelError::Thoughts { message }) if message.contains("signature")), "{error:?}");
}

#[tokio::test]
async fn overload_twice_is_waited_for() {
    let rig = Rig::start("[{turns: [{error: {status: 529, message: busy, times: 2}, text: there}]}]").await;
    let log = Log::default();
    assert_eq!(text_of(&reply(&rig.model(), &request("go"), &log).await.content), "there");
    assert_eq!(log.lines(), ["sent 1", "wait 1", "sent 2", "wait 2", "sent 3"]);
    assert_eq!(log.reason(0), "API error 529: busy");
    let seen = rig.seen();
    assert!(seen.len() == 3 && seen.iter().all(|body| *body == seen[0]));
}

#[tokio::test]
async fn r102_a_rate_limit_is_waited_for_as_long_as_the_server_asks() {
    let rig = Rig::start("[{turns: [{error: {status: 429, retry_after: 7}, text: there}]}]").await;
    let log = Log::default();
    reply(&rig.model(), &request("go"), &log).await;
    let waits = log.waits.lock().unwrap();
    let (delay, reason) = &waits[0];
    assert!((Duration::from_secs(7)..=Duration::from_secs(7) + QUICK.cap).contains(delay), "{delay:?}");
    assert!(reason.starts_with("API error 429"), "{reason}");
    assert_eq!(rig.seen().len(), 2);
}

#[tokio::test]
async fn repetitions_end_with_the_last_error() {
    let rig = Rig::start("[{turns: [{error: {status: 503, message: down, times: 99}}]}]").await;
    let error = call(&rig.model(), &request("go"), &Log::default()).await;
    assert!(
        matches!(&error, Err(ModelError::Api { status: 503, message }) if message == "down (tried 4 times)"),
        "{error:?}"
    );
    assert_eq!(rig.seen().len(), 4);
}

/// Starts a server at an address when the client waits for the first time.
struct StartWhenWaiting {
    log: Log,
    address: SocketAddr,
    rig: Mutex<Option<Rig>>,
}

impl Observer for StartWhenWaiting {
    fn observe(&self, event: CallEvent<'_>) {
        if matches!(event, CallEvent::Waiting(Retrying { attempt: 2, .. })) {
            let listener = std::net::TcpListener::bind(self.address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let rig = Rig::start_on("[{turns: [{text: up}]}]", TcpListener::from_std(listener).unwrap());
            *self.rig.lock().unwrap() = Some(rig);
        }
        self.log.observe(event);
    }
}

#[tokio::test]
async fn a_refused_connection_is_tried_until_the_server_is_up() {
    // An address of its own, so that no other test's socket takes the port meanwhile.
    let address = {
        let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
        std::net::TcpListener::bind((std::net::Ipv4Addr::new(127, 1, a, b), 0)).unwrap().local_addr().unwrap()
    };
    let observer = StartWhenWaiting { log: Log::default(), address, rig: Mutex::default() };
    let model = model(&format!("http://{address}"), QUICK, SOON);
    let cancel = CancellationToken::new();
    let request = request("go");
    let reply = model.call_observed(&request, &cancel, &observer).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(text_of(&reply.content), "up");
    assert_eq!(observer.log.lines(), ["sent 1", "wait 1", "sent 2", "wait 2", "sent 3"]);
    let reason = observer.log.reason(0);
    assert!(reason.contains(&address.to_string()) && reason.contains("Connection refused"), "{reason}");
}

#[tokio::test]
async fn a_broken_stream_is_withdrawn_and_asked_for_again() {
    for (fault, withdrawn, part) in [
        ("cut_before", true, "cut before its end"),
        ("cut_in_tool", true, "cut before its end"),
        ("cut_after", true, "cut before its end"),
        ("no_end", true, "cut before its end"),
        ("malformed", true, "malformed"),
        ("overloaded", true, "API error 529: overloaded within the stream"),
    ] {
        let agents = format!(
            "[{{turns: [{{fault: {{kind: {fault}, times: 2}}, text: calling, \
              tools: [{{name: Bash, input: {{command: 'a command of some length'}}}}]}}, {{text: done}}]}}]"
        );
        let rig = Rig::start(&agents).await;
        let (model, mut request, log) = (rig.model(), request("go"), Log::default());
        let first = reply(&model, &request, &log).await;
        let discarded = if withdrawn { " discarded" } else { "" };
        let wanted = ["sent 1", &format!("wait 1{discarded}"), "sent 2", &format!("wait 2{discarded}"), "sent 3"];
        assert_eq!(log.lines(), wanted, "{fault}");
        assert!(log.reason(0).contains(part), "{fault}: {}", log.reason(0));
        assert_eq!(go_on(&mut request, &first), [json!({"command": "a command of some length"})], "{fault}");
        assert_eq!(text_of(&reply(&model, &request, &log).await.content), "done", "{fault}");
        let seen = rig.seen();
        assert!(seen.len() == 4 && seen[0] == seen[1] && seen[1] == seen[2], "{fault}: {}", seen.len());
    }
}

#[tokio::test]
async fn a_stream_of_nothing_but_pings_ends_by_the_deadline() {
    let rig = Rig::start("[{turns: [{fault: stall, text: there}]}]").await;
    let log = Log::default();
    let model = rig.model_with(QUICK, Duration::from_secs(1));
    assert_eq!(text_of(&reply(&model, &request("go"), &log).await.content), "there");
    assert_eq!(log.lines(), ["sent 1", "wait 1 discarded", "sent 2"]);
    assert!(log.reason(0).contains("nothing but pings for 1s"), "{}", log.reason(0));
}

#[tokio::test]
async fn a_slow_stream_that_goes_on_is_not_given_up() {
    let text = "word ".repeat(20);
    let rig = Rig::start(&format!("[{{turns: [{{event_delay_ms: 100, text: '{text}'}}]}}]")).await;
    let log = Log::default();
    // Thirteen events of 100 ms: longer than the deadline in all, but never between two of them.
    reply(&rig.model_with(QUICK, Duration::from_secs(1)), &request("go"), &log).await;
    assert_eq!(log.lines(), ["sent 1"]);
}

#[tokio::test]
async fn what_can_not_pass_is_given_back_at_once() {
    let too_long = "{status: 400, message: 'prompt is too long: 9 tokens > 8 maximum', times: 99}";
    for (error, overflow, status) in [
        ("{status: 400, message: no, times: 99}", false, 400),
        ("{status: 401, message: no, times: 99}", false, 401),
        ("{status: 403, message: no, times: 99}", false, 403),
        ("{status: 404, message: no, times: 99}", false, 404),
        ("{status: 413, message: no, times: 99}", true, 413),
        (too_long, true, 400),
    ] {
        let rig = Rig::start(&format!("[{{turns: [{{error: {error}}}]}}]")).await;
        let log = Log::default();
        let error = call(&rig.model(), &request("go"), &log).await.err().unwrap_or_else(|| panic!("{error}"));
        assert_eq!((matches!(error, ModelError::Overflow { .. }), error.status()), (overflow, Some(status)), "{error}");
        assert_eq!((log.lines(), rig.seen().len()), (vec!["sent 1".to_owned()], 1), "{error}");
    }
}

#[tokio::test]
async fn a_missing_key_and_a_broken_history_are_refused_by_the_strict_server() {
    let rig = Rig::start("[{}]").await;
    let access = ProviderAccess { base_url: Some(rig.url.clone()), ..ProviderAccess::default() };
    let without = AnthropicModel::new(&access).unwrap_or_else(|e| panic!("{e}"));
    let error = call(&without, &request("go"), &Log::default()).await;
    assert!(matches!(error, Err(ModelError::Api { status: 401, .. })), "{error:?}");
    let mut request = request("go");
    request.messages.push(Message::assistant(vec![Block::tool_use("t", "Bash", json!({}))]));
    request.messages.push(Message::user(vec![Block::text("no result")]));
    let error = call(&rig.model(), &request, &Log::default()).await;
    assert!(
        matches!(&error, Err(ModelError::Api { status: 400, message }) if message.contains("tool_result")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_even_sent() {
    let rig = Rig::start("[{}]").await;
    let request = request(&"x".repeat(MODEL_REQUEST_BYTES));
    let error = call(&rig.model(), &request, &Log::default()).await;
    assert!(matches!(error, Err(ModelError::Overflow { status: 413, .. })), "{error:?}");
    assert_eq!(rig.seen().len(), 0);
}

#[tokio::test]
async fn a_cancel_ends_a_stream_and_a_wait() {
    for agents in ["[{turns: [{fault: stall}]}]", "[{turns: [{error: {status: 429, retry_after: 60}}]}]"] {
        struct CancelWhenBegun(CancellationToken);
        impl Observer for CancelWhenBegun {
            fn observe(&self, event: CallEvent<'_>) {
                if matches!(event, CallEvent::Part { .. } | CallEvent::Waiting(_)) {
                    self.0.cancel();
                }
            }
        }
        let rig = Rig::start(agents).await;
        let cancel = CancellationToken::new();
        let observer = CancelWhenBegun(cancel.clone());
        let (model, request) = (rig.model(), request("go"));
        let done = timeout(SOON, model.call_observed(&request, &cancel, &observer)).await;
        assert!(matches!(done, Ok(Err(ModelError::Cancelled))), "{done:?}");
    }
}

#[tokio::test]
async fn over_thirty_turns_every_body_that_arrives_begins_with_the_one_before() {
    let mark = super::super::request::CACHE_MARK;
    let rig = Rig::start(
        "[{turns: [{repeat: 29, thinking: hm, text: on, tools: [{name: Bash, input: {n: 0.1, u: 'é\"'}}, {name: Read}]}, {text: end}]}]",
    )
    .await;
    let (model, mut request, log) = (rig.model(), request("go"), Log::default());
    for _ in 0..29 {
        let reply = reply(&model, &request, &log).await;
        go_on(&mut request, &reply);
    }
    assert_eq!(text_of(&reply(&model, &request, &log).await.content), "end");
    let seen = rig.seen();
    assert_eq!(seen.len(), 30);
    for (before, after) in seen.iter().zip(&seen[1..]) {
        assert!((3..=4).contains(&before.matches(mark).count()));
        let upto = before[..before.rfind(mark).unwrap()].replace(mark, "");
        assert!(after.replace(mark, "").starts_with(&upto));
    }
}

#[tokio::test]
async fn a_probe_needs_no_prompt() {
    let rig = Rig::start("[{}]").await;
    assert!(rig.model().probe().await.is_ok());
    assert_eq!(rig.seen().len(), 0);
    let nobody = model("http://127.0.0.1:1", QUICK, SOON).probe().await;
    assert!(matches!(nobody, Err(ModelError::NoReply(_))), "{nobody:?}");
}

#[test]
fn who_asks_is_told_to_this_machine_only() {
    let told = |url: &str| {
        let headers = model(url, QUICK, SOON).headers_for(&request("go").caller);
        headers.keys().filter(|k| k.as_str().starts_with("x-lead-")).count()
    };
    assert_eq!(told("http://127.0.0.1:1"), 3);
    assert_eq!(told("https://api.example.com"), 0);
}

#[tokio::test]
async fn a_search_that_the_provider_refuses_is_offered_once() {
    let refused = "{status: 400, message: 'tools.2: web_search is not enabled for this organization'}";
    let rig = Rig::start(&format!("[{{turns: [{{error: {refused}}}, {{text: a}}, {{text: b}}]}}]")).await;
    let (model, mut request, log) = (rig.model(), request("go"), Log::default());
    request.web_search = true;
    let first = reply(&model, &request, &log).await;
    assert_eq!(text_of(&first.content), "a");
    request.messages.extend([Message::assistant(first.content), Message::user(vec![Block::text("more")])]);
    assert_eq!(text_of(&reply(&model, &request, &log).await.content), "b");
    let offered: Vec<bool> = rig.seen().iter().map(|body| body.contains("web_search_20250305")).collect();
    assert_eq!(offered, [true, false, false]);
}

#[tokio::test]
async fn a_search_of_the_provider_goes_through_the_wire_and_back() {
    let blocks = "[{type: server_tool_use, id: s, name: web_search, input: {query: tea}}]";
    let found = "[{type: web_search_tool_result, tool_use_id: s, content: [{type: web_search_result, url: u}]}, \
                 {type: text, text: 'It is 3 EUR.', citations: [{type: web_search_result_location, url: u}]}]";
    let rig = Rig::start(&format!(
        "[{{turns: [{{blocks: {blocks}, stop_reason: pause_turn, usage: {{server_tool_use: {{web_search_requests: 2}}}}}}, \
         {{blocks: {found}}}, {{text: done}}]}}]"
    ))
    .await;
    let (model, mut request, log) = (rig.model(), request("go"), Log::default());
    request.web_search = true;
    let paused = reply(&model, &request, &log).await;
    assert_eq!(
        (paused.stop_reason.as_deref(), paused.usage.server_tool_use.web_search_requests),
        (Some("pause_turn"), 2)
    );
    request.messages.push(Message::assistant(paused.content));
    let rest = reply(&model, &request, &log).await;
    assert_eq!(text_of(&rest.content), "It is 3 EUR.");
    request.messages[1].content.extend(rest.content);
    request.messages.push(Message::user(vec![Block::text("more")]));
    assert_eq!(text_of(&reply(&model, &request, &log).await.content), "done");
    let sent: Value = serde_json::from_str(&rig.seen()[2]).unwrap();
    let content = &sent["messages"][1]["content"];
    assert_eq!((&content[0]["input"], &content[1]["content"][0]["url"]), (&json!({"query": "tea"}), &json!("u")));
    assert_eq!(content[2]["citations"], json!([{"type": "web_search_result_location", "url": "u"}]));
}
