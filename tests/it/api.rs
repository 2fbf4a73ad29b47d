//! Runs against a Messages API: `lead model serve --strict`, a process of its own. Each test counts
//! the requests, and looks at the exit code and at the pairs of every transcript.

use serde_json::{Value, json};

use crate::support::{
    Book, Done, KEY, Server, World, against, ask, bash, book, eventually, free_port, lead_rule, pid_of, spawn, turn,
    worker_rule,
};

/// The turn with one more field.
fn with(mut turn: Value, field: &str, value: Value) -> Value {
    turn[field] = value;
    turn
}

/// Runs the prompt `go` against the served book.
fn go(world: &World, book: &Book) -> Done {
    Server::start(world, book).headless(world, "go").run()
}

/// It went well, after so many requests, and its transcripts are in order.
fn went_well(world: &World, book: &Book, done: &Done, answer: &str, requests: usize) {
    let json = done.expect(0).json();
    assert_eq!((&json["subtype"], &json["result"]), (&json!("success"), &json!(answer)), "{done:#?}");
    assert_eq!(book.requests().len(), requests, "{:#?}", book.requests());
    world.session(&done.session()).paired();
    assert!(!format!("{done:?}").contains(KEY), "the key was shown: {done:#?}");
    world.assert_nothing_left();
}

/// It failed by the API's fault, after so many requests.
fn failed(world: &World, book: &Book, done: &Done, status: &Value, requests: usize) {
    let json = done.expect(1).json();
    assert_eq!((&json["is_error"], &json["api_error_status"]), (&json!(true), status), "{done:#?}");
    assert_eq!(json["terminal_reason"], "api_error");
    assert_eq!(book.requests().len(), requests);
    world.session(&done.session()).paired();
}

#[test]
fn a_plain_answer_takes_one_request() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("hello", &[])])]);
    let server = Server::start(&world, &book);
    let done = against(&world, server.url(), "sonnet", "go").run();
    drop(server);
    went_well(&world, &book, &done, "hello", 1);
    let request = &book.requests()[0].0;
    assert_eq!(request["model"], "claude-sonnet-5-5");
    let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(true), &json!(32_000)));
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys.last().map(|k| k.as_str()), Some("messages"), "what grows comes last");
}

#[test]
fn five_tools_of_one_turn_are_answered_in_one_message() {
    let world = World::new();
    let tools: Vec<Value> = (0..5).map(|n| bash(&format!("echo out-{n}"))).collect();
    let book = book(&world, &[lead_rule(&[turn("working", &tools), turn("done", &[])])]);
    let done = go(&world, &book);
    went_well(&world, &book, &done, "done", 2);
    let outputs: Vec<String> = book.last().results().into_iter().map(|(text, _)| text.trim().to_owned()).collect();
    assert_eq!(outputs, ["out-0", "out-1", "out-2", "out-3", "out-4"]);
}

#[test]
fn thoughts_go_back_unchanged_beside_tools() {
    let world = World::new();
    let think = |text: &str, tools: &[Value]| with(turn(text, tools), "thinking", json!("hm, \u{1f914}\n\"so\""));
    let turns = [think("a", &[bash("echo 1")]), think("", &[bash("echo 2")]), think("done", &[])];
    let book = book(&world, &[lead_rule(&turns)]);
    let done = go(&world, &book);
    // A changed thought would be refused: its signature would not fit.
    went_well(&world, &book, &done, "done", 3);
    let last = book.last();
    let kinds: Vec<&Value> = last.messages()[1]["content"].as_array().unwrap().iter().map(|b| &b["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
}

#[test]
fn errors_that_pass_are_waited_out() {
    for error in [
        json!({"status": 529, "message": "full", "times": 2}),
        json!({"status": 500, "times": 2}),
        json!({"status": 408, "times": 2}),
        json!({"status": 429, "retry_after": 0, "times": 2}),
    ] {
        let world = World::new();
        let book = book(&world, &[lead_rule(&[with(turn("there", &[]), "error", error)])]);
        let done = go(&world, &book);
        went_well(&world, &book, &done, "there", 3);
    }
}

#[test]
fn the_server_s_wait_is_kept() {
    let world = World::new();
    let error = json!({"status": 429, "message": "slow down", "retry_after": 1});
    let book = book(&world, &[lead_rule(&[with(turn("there", &[]), "error", error)])]);
    let begun = std::time::Instant::now();
    let done = go(&world, &book);
    assert!(begun.elapsed().as_millis() >= 1000, "without it the repetition comes after 1 ms");
    went_well(&world, &book, &done, "there", 2);
}

#[test]
fn a_server_that_comes_up_late_is_found() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("there", &[])])]);
    let port = free_port();
    let slow = r#"{"lead":{"retry":{"attempts":1000,"base":"20ms","cap":"20ms"}}}"#;
    let running =
        against(&world, &format!("http://127.0.0.1:{port}"), "sonnet", "go").args(&["--settings", slow]).start();
    eventually("the lead says what it waits for", || {
        let rows = world.ps(&[]);
        let says = |row: &Value| row["waiting_for"].as_str().is_some_and(|w| w.contains("refused"));
        if rows.iter().any(says) { Ok(()) } else { Err(rows) }
    });
    let _server = Server::on_port(&world, &book, port);
    let done = running.wait();
    let json = done.expect(0).json();
    assert_eq!((&json["result"], book.requests().len()), (&json!("there"), 1));
    world.session(&done.session()).paired();
}

#[test]
fn a_broken_stream_is_asked_for_again_and_no_tool_runs_twice() {
    for fault in ["cut_before", "cut_in_tool", "cut_after", "no_end", "malformed", "overloaded"] {
        let world = World::new();
        let calls = [bash("echo ran >> ran.txt"), bash("echo ran >> ran.txt")];
        let turns = [with(turn("so", &calls), "fault", json!(fault)), turn("done", &[])];
        let book = book(&world, &[lead_rule(&turns)]);
        let done = go(&world, &book);
        went_well(&world, &book, &done, "done", 3);
        assert_eq!(world.wait_file("ran.txt").lines().count(), 2, "{fault}");
        let replies = world.session(&done.session()).lines().iter().filter(|l| l["type"] == "assistant").count();
        assert_eq!(replies, 4, "{fault}: text, two calls, the answer");
    }
}

#[test]
fn a_stream_of_nothing_but_pings_is_given_up() {
    let world = World::new().with_limits("model_stall=400ms");
    let turns = [with(turn("", &[bash("echo ran")]), "fault", json!("stall")), turn("done", &[])];
    let book = book(&world, &[lead_rule(&turns)]);
    let done = go(&world, &book);
    went_well(&world, &book, &done, "done", 3);
    done.says(&["nothing but pings"]);
}

#[test]
fn what_does_not_pass_fails_at_once_and_names_the_status() {
    for status in [400, 401, 403, 404] {
        let world = World::new();
        let error = json!({"status": status, "message": "no such luck", "times": 9});
        let book = book(&world, &[lead_rule(&[with(turn("never", &[]), "error", error)])]);
        let done = go(&world, &book);
        failed(&world, &book, &done, &json!(status), 1);
        assert!(done.result().contains("no such luck"), "{done:#?}");
    }
}

#[test]
fn repetitions_end_and_the_failure_tells_how_many_there_were() {
    let world = World::new();
    let error = json!({"status": 529, "message": "full", "times": 99});
    let turns = [turn("", &[bash("echo 1")]), with(turn("never", &[]), "error", error)];
    let book = book(&world, &[lead_rule(&turns)]);
    let server = Server::start(&world, &book);
    let few = r#"{"lead":{"retry":{"attempts":2,"base":"1ms","cap":"1ms"}}}"#;
    let done = server.headless(&world, "go").args(&["--settings", few]).run();
    failed(&world, &book, &done, &json!(529), 4);
    assert!(done.result().contains("tried 3 times"), "{done:#?}");
}

#[test]
fn workers_reach_the_server_with_credentials_that_no_environment_shows() {
    let world = World::new();
    let gate = world.gate("gate");
    let hold = |file: &str| bash(&format!("echo \"$GH_TOKEN\" > {file}.token; {}", gate.arrive(file)));
    let book = book(
        &world,
        &[
            lead_rule(&[
                turn("", &[spawn("In the background", "task one"), ask("In the foreground", "task two")]),
                json!({"when": {"notifications": ">=1"}, "text": "all in"}),
                turn("waiting", &[]),
            ]),
            worker_rule("task one", &[turn("", &[hold("one")]), turn("one done", &[])]),
            worker_rule("task two", &[turn("", &[hold("two")]), turn("two done", &[])]),
        ],
    );
    let server = Server::start(&world, &book);
    let running = server.headless(&world, "go").env("GH_TOKEN", "gh-4711-secret").start();
    world.wait_file("one");
    world.wait_file("two");
    let mut shown: Vec<i32> = world.workers().iter().map(pid_of).collect();
    assert_eq!(shown.len(), 2);
    shown.push(running.pid());
    for pid in shown {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("LEAD_RUNTIME_DIR="), "{pid}: {environment}");
        assert!(!environment.contains("4711-secret"), "{pid}: {environment}");
    }
    gate.open(2);
    let done = running.wait();
    assert_eq!(done.expect(0).result(), "all in");
    for file in ["one.token", "two.token"] {
        assert_eq!(world.wait_file(file), "gh-4711-secret", "tools have what the person's shell has");
    }
    let (lead, workers) = (book.of("lead").len(), book.of("worker").len());
    assert!(workers == 4 && (2..=3).contains(&lead), "{lead} of the lead, {workers} of workers");
    let session = world.session(&done.session());
    session.paired();
    session.check();
    let files = std::process::Command::new("grep").args(["-rlE", "4711-secret"]).arg(world.config()).output().unwrap();
    assert!(files.stdout.is_empty(), "a secret is on disk: {files:?}");
}

#[test]
fn r102_whoever_looks_sees_which_worker_waits_for_the_provider_and_why() {
    let world = World::new();
    let error = json!({"status": 429, "message": "too many requests", "retry_after": 50});
    let book = book(
        &world,
        &[
            lead_rule(&[
                turn("", &[spawn("Throttled", "task one")]),
                json!({"when": {"notifications": ">=1"}, "text": "over"}),
                turn("waiting", &[]),
            ]),
            worker_rule("task one", &[with(turn("never", &[]), "error", error)]),
        ],
    );
    let server = Server::start(&world, &book);
    let running = server.headless(&world, "go").start();
    let id = eventually("a worker that says why it waits", || {
        let rows = world.ps(&[]);
        let waits = |row: &&Value| {
            let why = row["waiting_for"].as_str().unwrap_or_default();
            row["role"] == "worker"
                && ["429", "too many requests", "repetition 1 of 10", "50s"].iter().all(|p| why.contains(p))
        };
        rows.iter().find(waits).map(|row| row["id"].as_str().unwrap().to_owned()).ok_or_else(|| rows.clone())
    });
    let lead = world.ps(&[]).into_iter().find(|row| row["role"] == "lead").unwrap();
    assert_eq!(lead["waiting_for"], "1 agents", "{lead:#}");
    world.lead(&["stop", &id]).run().expect(0);
    let done = running.wait();
    assert_eq!(done.expect(0).result(), "over");
    world.session(&done.session()).paired();
}
