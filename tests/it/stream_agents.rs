//! `--output-format stream-json`, beside the messages: parts of agents' replies, repetitions,
//! compactions, agents that move to the background.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    KEY, Server, World, ask, bash, book, check_ends, check_whole, is, lead_rule, lines, spawn, streaming, tell, turn,
    worker_rule,
};

const ID: &str = "33333333-2222-4333-8444-555555555555";
/// 90 % of the window that playbooks have without a setting.
const FULL: u64 = 180_000;

/// The texts that the parts in a stream come to, by agent (null for the main conversation) and reply.
fn put_together(stream: &[Value]) -> BTreeMap<(String, String), String> {
    let mut replies = BTreeMap::new();
    let mut current = BTreeMap::new();
    for line in stream.iter().filter(|l| l["type"] == "stream_event") {
        let (whose, event) = (line["agent_id"].to_string(), &line["event"]);
        if event["type"] == "message_start" {
            current.insert(whose, event["message"]["id"].to_string());
        } else if let Some(text) = event["delta"]["text"].as_str() {
            let reply = current.get(&whose).unwrap_or_else(|| panic!("a part before its reply: {line:#}")).clone();
            replies.entry((whose, reply)).or_insert_with(String::new).push_str(text);
        }
    }
    replies
}

/// The texts of the replies in a stream, the same way.
fn said(stream: &[Value]) -> BTreeMap<(String, String), String> {
    let texts = stream.iter().filter(|l| l["type"] == "assistant" && l["message"]["content"][0]["type"] == "text");
    texts
        .map(|l| {
            let text = l["message"]["content"][0]["text"].as_str().unwrap().to_owned();
            ((l["agent_id"].to_string(), l["message"]["id"].to_string()), text)
        })
        .collect()
}

#[test]
fn parts_of_every_agent_s_replies_are_told_where_they_are_asked_for() {
    let world = World::heavy();
    let calls =
        [spawn("async 1", "Do it."), spawn("async 2", "Do it."), ask("sync 1", "Do it."), ask("sync 2", "Do it.")];
    let lead = lead_rule(&[
        turn("I send four of them.", &calls),
        json!({"when": {"notifications": ">=2"}, "text": "all four are back"}),
        json!({"repeat": true, "text": "not yet all of them"}),
    ]);
    let worker = worker_rule(
        "Do it",
        &[turn("Here I begin, says the agent.", &[bash("echo here")]), turn("it is done now", &[])],
    );
    let book = book(&world, &[lead, worker]);
    let run = |args: &[&str]| {
        let done = streaming(&world, &book, "go").args(args).run();
        let stream = lines(&done.expect(0).stdout);
        let session = check_ends(&stream)["session_id"].as_str().unwrap().to_owned();
        check_whole(&stream, &world.session(&session), 0);
        (stream, world.session(&session))
    };
    let (stream, session) = run(&["--include-partial-messages"]);
    let said = said(&stream);
    assert_eq!(put_together(&stream), said);
    let agents = session.agents();
    assert_eq!(agents.len(), 4);
    for agent in &agents {
        let of_agent = |l: &&Value| l["type"] == "stream_event" && l["agent_id"] == agent.id.as_str();
        let parts: Vec<&Value> = stream.iter().filter(of_agent).collect();
        assert!(parts.len() > 8, "{parts:#?}");
        assert!(parts.iter().all(|l| l["parent_tool_use_id"] == agent.meta["toolUseId"]), "{parts:#?}");
        let whose = json!(agent.id).to_string();
        assert_eq!(said.keys().filter(|(of, _)| *of == whose).count(), 2);
    }
    session.paired();
    session.check();
    let (stream, _) = run(&[]);
    assert!(stream.iter().all(|l| l["type"] != "stream_event"));
    world.assert_nothing_left();
}

#[test]
fn a_cut_reply_of_an_agent_is_withdrawn_and_only_the_whole_one_counts() {
    let world = World::new();
    let cut = json!({"text": "Looking.", "tools": [bash("echo one")], "fault": {"kind": "cut_in_tool", "times": 2}});
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("seen", &[])]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[cut, turn("done", &[])])]);
    let server = Server::start(&world, &book);
    let done = server.streaming(&world, "go").args(&["--include-partial-messages", "--session-id", ID]).run();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "seen");
    let session = world.session(ID);
    check_whole(&stream, &session, 0);
    session.paired();
    assert_eq!((book.of("lead").len(), book.of("worker").len()), (2, 4));
    let id = session.agent("job").id;
    let retries: Vec<usize> = (0..stream.len()).filter(|at| is(&stream[*at], "lead_retry")).collect();
    assert_eq!(retries.len(), 2, "{stream:#?}");
    for at in retries {
        let begun = stream[..at].iter().rev().find(|l| l["event"]["type"] == "message_start").unwrap();
        assert_eq!((&begun["agent_id"], &stream[at]["agent_id"]), (&json!(id), &json!(id)));
        assert_eq!(stream[at]["discarded_message_id"], begun["event"]["message"]["id"]);
        assert_eq!(stream[at]["parent_tool_use_id"], session.agent("job").meta["toolUseId"]);
    }
    assert!(!format!("{done:?}").contains(KEY));
}

/// The places of the compactions of one agent (null for the main conversation): where each begins, and
/// where its boundary stands.
fn compactions(stream: &[Value], whose: &Value) -> Vec<(usize, usize)> {
    let at = |what: &dyn Fn(&Value) -> bool| -> Vec<usize> {
        (0..stream.len()).filter(|at| stream[*at]["agent_id"] == *whose && what(&stream[*at])).collect()
    };
    let begun = at(&|l| is(l, "status") && l["status"] == "compacting");
    let ended = at(&|l| is(l, "compact_boundary"));
    assert_eq!(begun.len(), ended.len(), "{stream:#?}");
    begun.into_iter().zip(ended).collect()
}

#[test]
fn a_compaction_is_told_when_it_begins_and_when_it_is_done() {
    let world = World::new();
    let summary = json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true});
    let lead = lead_rule(&[
        summary.clone(),
        json!({"when": {"any": "SUMMARY"}, "text": "over"}),
        json!({"tools": [bash("echo one")], "usage": {"input_tokens": FULL}}),
    ]);
    let book = book(&world, &[lead]);
    let done = streaming(&world, &book, "go").args(&["--session-id", ID]).run();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "over");
    let session = world.session(ID);
    check_whole(&stream, &session, 0);
    session.paired();
    let found = compactions(&stream, &Value::Null);
    let [(begun, ended)] = found[..] else { panic!("{found:?}") };
    assert!(begun < ended, "{found:?}");
    let metadata = &stream[ended]["compact_metadata"];
    let on_disk = session.lines().into_iter().find(|l| l["subtype"] == "compact_boundary").unwrap();
    assert_eq!((&metadata["trigger"], &metadata["lead_trigger"]), (&json!("auto"), &json!("auto")));
    assert_eq!(metadata["pre_tokens"], on_disk["compactMetadata"]["preTokens"]);
    assert!(metadata["pre_tokens"].as_u64() >= Some(FULL) && metadata["summary_tokens"].is_u64(), "{metadata:#}");
    assert_eq!(stream[ended]["uuid"], on_disk["uuid"]);
    assert_eq!(stream[ended + 1]["isCompactSummary"], true, "the summary is the next line: {:#}", stream[ended + 1]);
    assert_eq!(book.requests().len(), 3);
}

#[test]
fn compactions_of_agents_are_told_with_the_agent_also_one_that_it_begins_with() {
    let world = World::heavy();
    let lead = lead_rule(&[
        json!({"when": {"latest": "<result>again"}, "text": "twice"}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "Once more, please.")]}),
        turn("", &[spawn("a job", "Fill the window.")]),
        turn("waiting", &[]),
    ]);
    // The window is full in the first run, and again with the last reply of that run.
    let worker = worker_rule(
        "Fill the window|SUMMARY",
        &[
            json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
            json!({"when": {"latest": "Once more"}, "text": "again"}),
            json!({"when": {"any": "SUMMARY"}, "text": "done", "usage": {"input_tokens": FULL}}),
            json!({"tools": [bash("echo one")], "usage": {"input_tokens": FULL}}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let done = streaming(&world, &book, "go").args(&["--session-id", ID]).run();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "twice");
    let session = world.session(ID);
    check_whole(&stream, &session, 0);
    session.paired();
    session.check();
    let agent = session.agent("a job");
    let found = compactions(&stream, &json!(agent.id));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(begun, ended)| begun < ended), "{found:?}");
    let boundaries: Vec<Value> = agent.lines().into_iter().filter(|l| l["subtype"] == "compact_boundary").collect();
    for ((_, ended), boundary) in found.iter().zip(&boundaries) {
        assert_eq!(stream[*ended]["uuid"], boundary["uuid"], "each once, in order");
        assert_eq!(stream[*ended]["parent_tool_use_id"], agent.meta["toolUseId"]);
    }
    assert!(compactions(&stream, &Value::Null).is_empty());
}

#[test]
fn a_foreground_agent_that_moves_to_the_background_is_told_of() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[ask("slow", "Do it slowly.")]),
        json!({"when": {"notifications": "==1"}, "text": "now it is"}),
        turn("it goes on", &[]),
    ]);
    let slow = worker_rule("slowly", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, slow]);
    let settings = r#"{"lead":{"autoBackgroundMs":1}}"#;
    let run = streaming(&world, &book, "go").args(&["--settings", settings, "--session-id", ID]).start();
    world.wait_file("here");
    crate::support::eventually("the lead goes on without it", || {
        let last = world.session(ID).lines().pop().unwrap();
        if last["message"]["content"][0]["text"] == "it goes on" { Ok(()) } else { Err(last) }
    });
    gate.open(1);
    let stream = lines(&run.wait().expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "now it is");
    let session = world.session(ID);
    check_whole(&stream, &session, 0);
    session.paired();
    session.check();
    let slow = session.agent("slow").id;
    let moved: Vec<usize> = (0..stream.len())
        .filter(|at| is(&stream[*at], "task_updated") && stream[*at]["patch"]["is_backgrounded"] == true)
        .collect();
    let [moved] = moved[..] else { panic!("{stream:#?}") };
    assert_eq!((&stream[moved]["task_id"], &stream[moved]["patch"]), (&json!(slow), &json!({"is_backgrounded": true})));
    let place = |subtype: &str| stream.iter().position(|l| is(l, subtype) && l["task_id"] == slow.as_str()).unwrap();
    assert!(place("task_started") < moved && moved < place("task_notification"));
    assert_eq!(stream[place("task_started")]["is_backgrounded"], false);
}
