//! Conversations that are too long for the provider, over HTTP and with real processes: a strict server
//! refuses them with 400 or 413, and they are summarised once; and those that no summary makes short.

use serde_json::{Value, json};

use crate::support::{Book, MODEL, Request, Server, World, ask, bash, book, lead_rule, paired, turn, worker_rule};

/// The two ways in which providers say so.
const REFUSALS: [(u16, &str); 2] =
    [(400, "prompt is too long: 213462 tokens > 200000 maximum"), (413, "request_too_large")];

/// The turns of a conversation whose second request is refused `times` times as too long, the one behind
/// the summary `again` times.
fn refused((status, message): (u16, &str), again: u32) -> Vec<Value> {
    let error = |times: u32| json!({"status": status, "message": message, "times": times});
    let mut after = json!({"when": {"any": "SUMMARY"}, "text": "done"});
    if again > 0 {
        after["error"] = error(again);
    }
    vec![
        json!({"when": {"summary": true}, "text": "SUMMARY of the work", "repeat": true}),
        after,
        json!({"when": {"results": "==0"}, "tools": [bash("seq 1 5000"), bash("echo two")]}),
        json!({"when": {"results": "==2"}, "error": error(1)}),
    ]
}

/// Whether a request asks for a summary.
fn asks(request: &Request) -> bool {
    request.latest().contains("<summary-request>")
}

/// Exactly one summary was asked for, behind the refused request, and what came next was shorter.
fn compacted_once(requests: &[Request], lines: &[Value]) {
    let shape: Vec<bool> = requests.iter().map(asks).collect();
    assert_eq!(shape, [false, false, true, false]);
    let bytes = |at: usize| requests[at].0["body"].as_str().unwrap().len();
    assert!(bytes(3) < bytes(1) - 10_000, "{} {}", bytes(3), bytes(1));
    assert!(requests[3].all().contains("SUMMARY of the work"));
    requests.iter().for_each(|request| paired(request.messages()));
    assert_eq!(boundaries(lines), 1);
}

fn boundaries(lines: &[Value]) -> usize {
    lines.iter().filter(|l| l["subtype"] == "compact_boundary").count()
}

#[test]
fn an_overflow_of_the_lead_compacts_once() {
    for refusal in REFUSALS {
        let world = World::new();
        let book = book(&world, &[lead_rule(&refused(refusal, 0))]);
        let done = Server::start(&world, &book).headless(&world, "go").run();
        assert_eq!(done.expect(0).result(), "done");
        let session = world.session(&done.session());
        compacted_once(&book.requests(), &session.lines());
        session.paired();
        world.assert_nothing_left();
    }
}

/// A lead that waits for one worker, which is played by these turns.
fn with_worker(world: &World, turns: &[Value]) -> Book {
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("{{result.1}}", &[])]);
    book(world, &[lead, worker_rule("Do the job|SUMMARY", turns)])
}

#[test]
fn an_overflow_of_a_worker_compacts_once() {
    for refusal in REFUSALS {
        let world = World::new();
        let book = with_worker(&world, &refused(refusal, 0));
        let done = Server::start(&world, &book).headless(&world, "go").run();
        assert!(done.expect(0).result().starts_with("done"), "{done:#?}");
        let session = world.session(&done.session());
        let agent = session.agent("job");
        compacted_once(&book.of("worker"), &agent.lines());
        assert_eq!((book.of("lead").len(), &agent.outcome()["status"]), (2, &json!("completed")));
        assert_eq!(boundaries(&session.lines()), 0);
        session.paired();
        session.check();
        world.assert_nothing_left();
    }
}

#[test]
fn a_second_overflow_of_the_lead_ends_the_run() {
    for refusal in REFUSALS {
        let world = World::new();
        let book = book(&world, &[lead_rule(&refused(refusal, 9))]);
        let done = Server::start(&world, &book).headless(&world, "go").run();
        let json = done.expect(1).json();
        assert_eq!((&json["is_error"], &json["api_error_status"]), (&json!(true), &json!(refusal.0)), "{json:#}");
        assert!(done.result().contains(refusal.1), "{json:#}");
        let session = world.session(&done.session());
        compacted_once(&book.requests(), &session.lines());
        session.paired();
        world.assert_nothing_left();
    }
}

#[test]
fn a_second_overflow_of_a_worker_ends_its_run_and_its_owner_is_told() {
    for refusal in REFUSALS {
        let world = World::new();
        let book = with_worker(&world, &refused(refusal, 9));
        let done = Server::start(&world, &book).headless(&world, "go").run();
        assert!(done.expect(0).result().contains("too long"), "{done:#?}");
        let session = world.session(&done.session());
        let agent = session.agent("job");
        compacted_once(&book.of("worker"), &agent.lines());
        let outcome = agent.outcome();
        assert_eq!(outcome["status"], "failed", "{outcome:#}");
        assert!(outcome["error"].as_str().unwrap().contains(refusal.1), "{outcome:#}");
        assert_eq!(book.of("lead").len(), 2);
        session.paired();
        session.check();
        world.assert_nothing_left();
    }
}

/// A model whose window is full after each of its replies, and which calls tools without end.
fn insatiable() -> Vec<Value> {
    let full = json!({"input_tokens": 180_000});
    vec![
        json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
        json!({"repeat": true, "tools": [bash("echo more")], "usage": full}),
    ]
}

/// It was summarised three times, and the fourth time it was full was the end.
fn gave_up(requests: &[Request], lines: &[Value]) {
    let shape: Vec<bool> = requests.iter().map(asks).collect();
    assert_eq!(shape, [false, true, false, true, false, true, false]);
    requests.iter().for_each(|request| paired(request.messages()));
    assert_eq!(boundaries(lines), 3);
}

#[test]
fn a_lead_that_fills_its_window_after_each_summary_ends_with_an_error() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&insatiable())]);
    let done = Server::start(&world, &book).headless(&world, "go").run();
    let json = done.expect(1).json();
    let why = json["errors"][0].as_str().unwrap();
    assert!(why.contains("summarised 3 times") && why.contains("lead.contextWindow"), "{why}");
    assert_eq!((&json["is_error"], &json["subtype"]), (&json!(true), &json!("error_during_execution")));
    let session = world.session(&done.session());
    gave_up(&book.requests(), &session.lines());
    session.paired();
    // It can be gone on with, where there is more room.
    let wide = format!(r#"{{"lead":{{"models":{{"{MODEL}":{{"window":1000000}}}}}}}}"#);
    let more = crate::support::book(&world, &[lead_rule(&[json!({"repeat": true, "text": "back again"})])]);
    let args = ["--resume", &done.session(), "--settings", &wide];
    let resumed = Server::start(&world, &more).headless(&world, "go on").args(&args).run();
    assert_eq!((resumed.expect(0).result().as_str(), more.requests().len()), ("back again", 1));
    session.paired();
}

#[test]
fn a_worker_that_fills_its_window_after_each_summary_fails_and_its_owner_is_told() {
    let world = World::new();
    let book = with_worker(&world, &insatiable());
    let done = Server::start(&world, &book).headless(&world, "go").run();
    assert!(done.expect(0).result().contains("summarised 3 times"), "{done:#?}");
    let session = world.session(&done.session());
    let agent = session.agent("job");
    gave_up(&book.of("worker"), &agent.lines());
    assert_eq!((book.of("lead").len(), &agent.outcome()["status"]), (2, &json!("failed")));
    session.paired();
    session.check();
    world.assert_nothing_left();
}
