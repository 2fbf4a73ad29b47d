//! A conversation that fills its window is replaced by a summary, and everything else goes on as if
//! nothing had happened: the turn, notifications, waiting messages, a resume.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    Book, Session, World, bash, book, call, eventually, lead_rule, paired, shells, spawn, start, tell, turn,
    worker_rule,
};

const ID: &str = "33333333-2222-4333-8444-555555555555";
/// 90 % of the window that models have without a setting.
const FULL: u64 = 180_000;

/// The answer to every request for a summary.
fn summary(text: &str) -> Value {
    json!({"when": {"summary": true}, "text": text, "repeat": true})
}

fn read(path: &str) -> Value {
    call("Read", json!({"file_path": path}))
}

/// A turn after which the window is full.
fn full(tools: &[Value]) -> Value {
    json!({"tools": tools, "usage": {"input_tokens": FULL}})
}

fn when(condition: Value, mut turn: Value) -> Value {
    turn["when"] = condition;
    turn
}

fn boundaries(lines: &[Value]) -> Vec<Value> {
    lines.iter().filter(|l| l["subtype"] == "compact_boundary").cloned().collect()
}

/// Whether a request asks for a summary.
fn asks(request: &crate::support::Request) -> bool {
    request.latest().contains("<summary-request>")
}

/// Fails unless every request is paired, and in every transcript each tool use has one result after it.
fn all_paired(book: &Book, session: &Session) {
    book.requests().iter().for_each(|request| paired(request.messages()));
    let transcripts = session.agents().iter().map(|a| a.lines()).chain([session.lines()]).collect::<Vec<_>>();
    for lines in transcripts {
        let mut open = BTreeMap::new();
        for block in lines.iter().flat_map(|l| l["message"]["content"].as_array().into_iter().flatten()) {
            match block["type"].as_str() {
                Some("tool_use") => assert_eq!(open.insert(block["id"].to_string(), false), None, "{block}"),
                Some("tool_result") => {
                    assert_eq!(open.insert(block["tool_use_id"].to_string(), true), Some(false), "{block}");
                }
                _ => {}
            }
        }
        assert!(open.values().all(|answered| *answered), "{open:?}");
    }
}

#[test]
fn an_overflow_compacts_once_and_the_next_request_is_shorter() {
    let world = World::new();
    world.file("a.txt", "as it was\n");
    world.file("b.txt", "the same\n");
    let long = bash("seq 1 4000; echo as it is now > a.txt; rm -f b.txt");
    let lead = lead_rule(&[
        summary("SUMMARY: a.txt is to be looked at"),
        json!({"when": {"any": "SUMMARY"}, "text": "done"}),
        json!({"when": {"results": "==0"}, "tools": [read("a.txt"), read("b.txt"), long]}),
        json!({"when": {"results": "==3"}, "error": {"status": 400, "message": "prompt is too long: 7 tokens > 5 maximum"}}),
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "done");

    let requests = book.requests();
    let shape: Vec<bool> = requests.iter().map(asks).collect();
    assert_eq!(shape, [false, false, true, false], "{requests:#?}");
    let size = |at: usize| requests[at].0["messages"].to_string().len();
    assert!(size(3) < size(1) / 2, "{} {}", size(3), size(1));
    // The summary request begins with all that was sent before it.
    for part in ["model", "system", "tools"] {
        assert_eq!(requests[1].0[part], requests[2].0[part]);
    }
    let (before, asked) = (requests[1].messages(), requests[2].messages());
    assert_eq!(before[..2], asked[..2]);
    let blocks = |m: &Value| m["content"].as_array().unwrap().clone();
    assert_eq!(blocks(&before[2])[..], blocks(&asked[2])[..3]);
    let next = requests[3].all();
    assert!(next.contains("SUMMARY") && next.contains("a.txt") && next.contains("as it is now"), "{next}");
    assert!(!next.contains("as it was") && !next.contains("b.txt"), "{next}");

    let session = world.session(&done.session());
    let lines = session.lines();
    let boundary = boundaries(&lines);
    assert_eq!(boundary.len(), 1);
    assert_eq!(boundary[0]["parentUuid"], Value::Null);
    assert_eq!(boundary[0]["compactMetadata"]["trigger"], "overflow");
    assert!(lines.iter().any(|l| l["uuid"] == boundary[0]["logicalParentUuid"]));
    let summaries: Vec<_> = lines.iter().filter(|l| l["isCompactSummary"] == true).collect();
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries[0]["parentUuid"], boundary[0]["uuid"]);
    assert_eq!(summaries[0]["isVisibleInTranscriptOnly"], true);
    all_paired(&book, &session);
}

#[test]
fn a_second_overflow_ends_the_run() {
    let world = World::new();
    let too_long = |times: u32| json!({"status": 413, "message": "request_too_large", "times": times});
    let lead = lead_rule(&[
        summary("SUMMARY"),
        json!({"when": {"any": "SUMMARY"}, "error": too_long(9)}),
        json!({"when": {"results": "==0"}, "tools": [bash("echo one")]}),
        json!({"error": too_long(1)}),
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").run();
    let result = done.expect(1).json();
    assert_eq!((&result["is_error"], &result["api_error_status"]), (&json!(true), &json!(413)), "{result:#}");
    let shape: Vec<bool> = book.requests().iter().map(asks).collect();
    assert_eq!(shape, [false, false, true, false]);
    let session = world.session(&done.session());
    assert_eq!(boundaries(&session.lines()).len(), 1);
    all_paired(&book, &session);
}

#[test]
fn three_failed_summaries_end_the_run_and_leave_the_conversation() {
    let world = World::new();
    let lead = lead_rule(&[
        json!({"when": {"summary": true}, "error": {"status": 500, "message": "broken", "times": 9}}),
        full(&[bash("echo one")]),
        turn("never", &[]),
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").run();
    let result = done.expect(1).json().to_string();
    assert!(result.contains("could not be summarised") && result.contains("broken"), "{result}");
    assert_eq!(book.requests().iter().filter(|r| asks(r)).count(), 3);
    let session = world.session(&done.session());
    assert!(boundaries(&session.lines()).is_empty());
    all_paired(&book, &session);
}

#[test]
fn a_run_that_is_ended_while_it_compacts_says_so_and_keeps_its_conversation() {
    let world = World::new();
    let slow = json!({"when": {"summary": true}, "text": "SUMMARY", "delay_ms": 600_000});
    let again = json!({"when": {"latest": "again"}, "text": "all of it: {{result.1}}"});
    let book = book(&world, &[lead_rule(&[slow, again, full(&[bash("echo one")])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    eventually("it says what it waits for", || {
        let rows = world.ps(&[]);
        if rows.iter().any(|r| r["waiting_for"] == "compacting") { Ok(()) } else { Err(rows) }
    });
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.wait().expect(143);
    let session = world.session(ID);
    assert!(boundaries(&session.lines()).is_empty());
    all_paired(&book, &session);
    // Resumed it is as full as before, so a summary comes first: given up again.
    let run = world.headless(&book.model(), "again").args(&["--resume", ID]).start();
    eventually("the second request for a summary", || {
        let requests = book.requests();
        if requests.iter().filter(|r| asks(r)).count() == 2 { Ok(()) } else { Err(requests) }
    });
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.wait().expect(143);
    // With a larger window there is nothing to summarise.
    world.file(".claude/settings.json", r#"{"lead": {"contextWindow": 1000000}}"#);
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(done.expect(0).result(), "all of it: one");
    world.assert_nothing_left();
}

#[test]
fn ninety_percent_of_the_window_is_enough_and_a_token_less_is_not() {
    for (tokens, window, count) in
        [(FULL - 1, None, 0), (FULL, None, 1), (899, Some("1000"), 0), (900, Some("1000"), 1)]
    {
        let world = World::new();
        if let Some(window) = window {
            world.file(".claude/settings.json", format!("{{\"lead\": {{\"contextWindow\": {window}}}}}"));
        }
        let first = json!({"when": {"results": "==0"}, "tools": [bash("echo one")], "usage": {"input_tokens": tokens}});
        let after = json!({"when": {"any": "SUMMARY"}, "text": "over"});
        let lead = lead_rule(&[summary("SUMMARY"), after, first, turn("over", &[])]);
        let book = book(&world, &[lead]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "over");
        let session = world.session(&done.session());
        let found = boundaries(&session.lines());
        assert_eq!(found.len(), count, "{tokens} of {window:?}");
        assert!(found.iter().all(|b| b["compactMetadata"]["trigger"] == "auto"));
        all_paired(&book, &session);
    }
}

#[test]
fn a_lead_resumed_after_a_boundary_tells_nothing_twice_and_loses_nothing() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        summary("SUMMARY: two jobs, one is done"),
        json!({"when": {"any": "SUMMARY", "notifications": ">=1"}, "text": "both"}),
        json!({"when": {"any": "SUMMARY"}, "text": "waiting for the other"}),
        when(json!({"notifications": ">=1"}), full(&[bash("echo noted")])),
        turn("", &[spawn("job 1", "Do job one."), spawn("job 2", "Do job two.")]),
        turn("launched", &[]),
    ]);
    let workers = [
        worker_rule("job one", &[turn("one is done", &[])]),
        worker_rule("job two", &[turn("", &[bash(&gate.arrive("here"))]), turn("two is done", &[])]),
    ];
    let book = book(&world, &[&[lead], &workers[..]].concat());
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    eventually("the answer after the compaction", || {
        let lines = world.session(ID).lines();
        if lines.iter().any(|l| l["message"]["content"][0]["text"] == "waiting for the other") {
            Ok(())
        } else {
            Err(lines)
        }
    });
    run.kill().expect_killed();
    gate.open(1);
    world.wait_quiet();

    let session = world.session(ID);
    let boundary = boundaries(&session.lines()).remove(0);
    assert_eq!(boundary["consumed"], json!({session.agent("job 1").id: 1}));
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    let done = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).run();
    assert_eq!(done.expect(0).result(), "both");
    let last = book.last();
    assert!(last.prompt().contains("SUMMARY"), "{last:#?}");
    let notes = last.notes();
    assert_eq!(notes.iter().map(|n| n.get("result")).collect::<Vec<_>>(), ["two is done"]);
    session.check();
    all_paired(&book, &session);
    world.assert_nothing_left();
}

#[test]
fn a_message_that_waits_for_a_lead_outlives_a_compaction_and_a_crash() {
    let world = World::heavy();
    let (before, after) = (world.gate("before"), world.gate("after"));
    let lead = lead_rule(&[
        summary("SUMMARY"),
        json!({"when": {"latest": "hello there"}, "text": "heard"}),
        json!({"when": {"any": "SUMMARY"}, "tools": [bash(&after.arrive("there"))]}),
        when(json!({"latest": "^wait"}), full(&[bash(&before.arrive("here"))])),
        json!({"when": {"latest": "^send to (?P<address>uds:\\S+)"}, "tools": [tell("{{capture.address}}", "hello there")]}),
        turn("over", &[]),
    ]);
    let book = book(&world, &[lead]);
    let receiver = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("here");
    let address = world.ps(&[]).remove(0)["address"].as_str().unwrap().to_owned();
    world.headless(&book.model(), &format!("send to {address}")).run().expect(0);
    before.open(1);
    world.wait_file("there");
    receiver.kill().expect_killed();
    after.open(1);
    world.wait_quiet();
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    let done = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).run();
    assert_eq!(done.expect(0).result(), "heard");
    assert_eq!(book.last().all().matches("hello there").count(), 1);
}

#[test]
fn a_coordinator_is_one_after_a_compaction_and_a_resume() {
    let world = World::new();
    let lead = lead_rule(&[
        summary("SUMMARY"),
        json!({"when": {"latest": "again"}, "text": "still here"}),
        json!({"when": {"any": "SUMMARY"}, "text": "over"}),
        full(&[call("TaskStop", json!({"task_id": "a-0123456789abcdef"}))]),
    ]);
    let book = book(&world, &[lead]);
    let args = ["--session-id", ID];
    world.headless(&book.model(), "go").args(&args).env("CLAUDE_CODE_COORDINATOR_MODE", "1").run().expect(0);
    assert_eq!(boundaries(&world.session(ID).lines()).len(), 1);
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(done.expect(0).result(), "still here");
    assert_eq!(book.last().0["caller"]["type"], "coordinator");
}

/// A worker whose first run ends at once, and which is continued by a message and compacts then.
fn continued(world: &World) -> Book {
    let lead = lead_rule(&[
        json!({"when": {"latest": "<result>plum"}, "text": "it was plum"}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "What was the word?")]}),
        turn("", &[spawn("a job", "Remember the word.")]),
        turn("waiting", &[]),
    ]);
    let worker = worker_rule(
        "Remember the word",
        &[
            summary("SUMMARY: Remember the word plum"),
            json!({"when": {"any": "SUMMARY"}, "text": "plum"}),
            when(json!({"latest": "What was"}), full(&[bash("echo thinking"), read("notes")])),
            turn("I have it.", &[]),
        ],
    );
    world.file("notes", "notes of the worker\n");
    book(world, &[lead, worker])
}

#[test]
fn a_worker_compacts_and_its_owner_is_told_its_answer() {
    let world = World::new();
    let book = continued(&world);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "it was plum");
    let session = world.session(&done.session());
    let agent = session.agent("a job");
    let found = boundaries(&agent.lines());
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["isSidechain"], &found[0]["agentId"]), (&json!(true), &json!(agent.id)));
    let last = book.of("worker").pop().unwrap();
    assert!(last.all().contains("SUMMARY") && last.all().contains("notes of the worker"), "{last:#?}");
    assert_eq!(last.messages().len(), 1);
    let runs: Vec<_> = agent.outcomes().iter().map(|o| o["run"].clone()).collect();
    assert_eq!(runs, [json!(1), json!(2)]);
    session.check();
    all_paired(&book, &session);

    // A third run knows of the earlier ones by the summary alone.
    let id = agent.id.clone();
    let lead = lead_rule(&[
        json!({"when": {"latest": "<result>(?P<said>a third.*)</result>"}, "text": "{{capture.said}}"}),
        when(json!({"latest": "^go on"}), turn("", &[tell(&id, "And now?")])),
        when(json!({"latest": "^resumed"}), turn("waiting", &[])),
    ]);
    let third = worker_rule("SUMMARY", &[json!({"when": {"latest": "And now"}, "text": "a third answer"})]);
    let more = crate::support::book(&world, &[lead, third]);
    // The agent keeps the model it was started with: its book is the one that is replaced.
    let (from, to) = (more.model(), book.model());
    std::fs::copy(from.trim_start_matches("playbook:"), to.trim_start_matches("playbook:")).unwrap();
    let done = world.headless(&book.model(), "go on").args(&["--resume", &done.session()]).run();
    assert_eq!(done.expect(0).result(), "a third answer");
    let last = more.of("worker").pop().unwrap();
    assert!(last.prompt().contains("SUMMARY") && !last.all().contains("thinking"), "{last:#?}");
    session.check();
}

#[test]
fn a_run_that_ended_before_its_agent_compacted_is_still_told_of() {
    let world = World::new();
    let book = continued(&world);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    // As if the lead had died before it told its model of any end.
    let session = world.session(&done.session());
    let text = std::fs::read_to_string(&session.path).unwrap();
    let told = text.lines().position(|l| l.contains("\"task-notification\"")).unwrap();
    let kept: Vec<&str> = text.lines().take(told).collect();
    std::fs::write(&session.path, kept.join("\n") + "\n").unwrap();

    let done = world.headless(&book.model(), "go on").args(&["--resume", &done.session()]).run();
    assert_eq!(done.expect(0).result(), "it was plum");
    assert_eq!(book.last().notes().len(), 2, "{:#?}", book.last());
    session.check();
}

#[test]
fn r070_what_runs_in_the_background_outlives_a_compaction_a_crash_and_a_summary_that_forgot_it() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let mut job = spawn("look around", "Do job one.");
    job["input"]["name"] = json!("scout");
    let lead = lead_rule(&[
        summary("SUMMARY: nothing of note"),
        json!({"when": {"any": "SUMMARY", "latest": "and now"}, "tools": [tell("scout", "hurry up")]}),
        json!({"when": {"any": "SUMMARY", "latest": "<result>"}, "text": "over"}),
        json!({"when": {"any": "SUMMARY"}, "text": "waiting", "repeat": true}),
        when(json!({"results": "==2"}), full(&[bash("until [ -e here ]; do sleep 0.02; done")])),
        turn("", &[job, start("sleep 1111", "a long build")]),
    ]);
    let worker = worker_rule("job one", &[turn("", &[bash(&gate.arrive("here"))]), turn("found it", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    eventually("the answer after the compaction", || {
        let lines = world.find_session(ID).map(|s| s.lines()).unwrap_or_default();
        let waits = lines.iter().any(|l| l["message"]["content"][0]["text"] == "waiting");
        if waits { Ok(()) } else { Err(lines) }
    });
    let after = book.of("lead").pop().unwrap();
    let (agent, shell) = (world.session(ID).agent("look around").id, shells(&world)[0]["id"].clone());
    let named = [format!("- agent scout ({agent}): look around"), format!("{}: a long build", shell.as_str().unwrap())];
    assert!(after.all().contains("SUMMARY") && named.iter().all(|row| after.all().contains(row)), "{after:#?}");
    run.kill().expect_killed();
    eventually("an orphan", || {
        let rows = world.workers();
        if rows.len() == 1 && rows[0]["orphaned"] == true { Ok(()) } else { Err(rows) }
    });

    let resumed = world.headless(&book.model(), "and now?").args(&["--resume", ID]).start();
    eventually("the message is with the agent", || {
        let lines = world.session(ID).agent("look around").lines();
        if lines.iter().any(|l| l["type"] == "queue-operation") { Ok(()) } else { Err(lines) }
    });
    let rows = world.workers();
    assert_eq!((&rows[0]["id"], &rows[0]["orphaned"]), (&json!(agent), &json!(false)), "{rows:#?}");
    gate.open(1);
    let done = resumed.wait();
    assert_eq!(done.expect(0).result(), "over");
    assert!(book.of("worker").pop().unwrap().all().contains("hurry up"));
    let session = world.session(ID);
    session.check();
    all_paired(&book, &session);
    world.assert_nothing_left();
}
