//! `--output-format stream-json`, and what comes out at the end of every form: R090, R093, R095, R097.

use std::io::{BufRead as _, BufReader, Read as _};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Book, Done, Piped, World, ask, bash, book, check_ends, check_whole, eventually, is, lead_rule, lines, spawn,
    streaming, times, turn, worker_rule,
};

const ID: &str = "33333333-2222-4333-8444-555555555555";

fn two_and_two(world: &World) -> Book {
    let calls = [
        spawn("async 1", "Do the job."),
        spawn("async 2", "Do the job."),
        ask("sync 1", "Do the job."),
        ask("sync 2", "Do the job."),
    ];
    let lead = lead_rule(&[
        turn("I send four.", &calls),
        json!({"when": {"notifications": ">=2"}, "text": "all four"}),
        json!({"repeat": true, "text": "not yet"}),
    ]);
    book(world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash("echo here")]), turn("done", &[])])])
}

#[test]
fn r097_the_stream_has_every_message_of_the_lead_and_of_its_agents_once() {
    let world = World::heavy();
    let book = two_and_two(&world);
    let done = streaming(&world, &book, "go").args(&["--session-id", ID]).run();
    let stream = lines(&done.expect(0).stdout);
    let result = check_ends(&stream);
    assert_eq!((&result["result"], &result["session_id"]), (&json!("all four"), &json!(ID)));
    check_whole(&stream, &world.session(ID), 0);
    world.session(ID).paired();
    world.session(ID).check();
    let (lead, workers) = (book.of("lead").len(), book.of("worker").len());
    assert!((3..=4).contains(&lead) && workers == 8, "{lead} of the lead, {workers} of workers");

    let init = &stream[0];
    assert_eq!(init["claude_code_version"], lead::core::frame::BUILD);
    assert!(init["tools"].as_array().unwrap().contains(&json!("Agent")), "{init:#}");
    assert_eq!((&init["permissionMode"], &init["mcp_servers"]), (&json!("bypassPermissions"), &json!([])));
    let mut turns = 0;
    for agent in world.session(ID).agents() {
        let of_agent: Vec<&Value> = stream.iter().filter(|l| l["task_id"] == agent.id.as_str()).collect();
        let kinds: Vec<&str> = of_agent.iter().filter_map(|l| l["subtype"].as_str()).collect();
        assert_eq!(kinds.first(), Some(&"task_started"), "{kinds:?}");
        assert_eq!(kinds[kinds.len() - 2..], ["task_updated", "task_notification"], "{kinds:?}");
        assert!(of_agent.iter().all(|l| l["tool_use_id"].is_null() || l["tool_use_id"] == agent.meta["toolUseId"]));
        let at = |what: &dyn Fn(&Value) -> bool| stream.iter().position(what).unwrap();
        let started = at(&|l| is(l, "task_started") && l["task_id"] == agent.id.as_str());
        let ended = at(&|l| is(l, "task_notification") && l["task_id"] == agent.id.as_str());
        for (at, _) in stream.iter().enumerate().filter(|(_, l)| l["agent_id"] == agent.id.as_str()) {
            assert!(started < at && at < ended, "what an agent says comes between its start and its end");
        }
        turns += 1;
    }
    assert_eq!(turns, 4);
    let notified = stream.iter().filter(|l| l["origin"]["kind"] == "task-notification" && l["type"] == "user").count();
    assert_eq!(notified, 2);
    let inits = stream.iter().filter(|l| is(l, "init")).count();
    assert!((2..=3).contains(&inits), "one per turn: the prompt's, and one or two for two notifications: {inits}");
    world.assert_nothing_left();
}

#[test]
fn r097_what_a_crashed_agent_had_said_is_not_lost() {
    let world = World::heavy();
    let lead =
        lead_rule(&[turn("", &[spawn("job", "Do the job.")]), json!({"when": {"notifications": "1"}, "text": "over"})]);
    let worker =
        worker_rule("Do the job", &[turn("One.", &[bash("echo 1")]), turn("Two.", &[bash("kill -9 $PPID; cat")])]);
    let book = book(&world, &[lead, worker]);
    let done = streaming(&world, &book, "go").args(&["--session-id", ID]).run();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "over");
    check_whole(&stream, &world.session(ID), 0);
    let told = stream.iter().find(|l| is(l, "task_notification")).unwrap();
    assert_eq!(told["status"], "failed", "{told:#}");
    assert_eq!(world.session(ID).agent("job").lines().iter().filter(|l| l["type"] == "assistant").count(), 4);
}

#[test]
fn r097_an_agent_that_is_taken_over_is_told_of_from_its_beginning() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead =
        lead_rule(&[turn("", &[spawn("job", "Do the job.")]), json!({"when": {"notifications": "1"}, "text": "over"})]);
    let worker = worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let first = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    eventually("the launch is in the transcript", || {
        let lines = world.session(ID).lines();
        if lines.iter().any(|l| l["toolUseResult"]["status"] == "async_launched") { Ok(()) } else { Err(lines.len()) }
    });
    eventually("the lead is at rest", || {
        let rows = world.ps(&[]);
        if rows.iter().any(|r| r["role"] == "lead" && r["state"] == "idle") { Ok(()) } else { Err(rows) }
    });
    first.kill().expect_killed();
    let before = world.session(ID).lines().len();
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "stream-json"];
    let second = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).start();
    eventually("the worker has an owner again", || {
        let rows = world.workers();
        if rows.len() == 1 && rows[0]["orphaned"] != true { Ok(()) } else { Err(rows) }
    });
    gate.open(1);
    let done = second.wait();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "over");
    check_whole(&stream, &world.session(ID), before);
    world.assert_nothing_left();
}

#[test]
fn verbose_json_is_the_same_messages_as_an_array() {
    let world = World::heavy();
    let book = two_and_two(&world);
    let done = world.headless(&book.model(), "go").args(&["--verbose", "--session-id", ID]).run();
    let array = done.expect(0).json();
    let stream = array.as_array().unwrap_or_else(|| panic!("no array: {array:#}"));
    assert_eq!(check_ends(stream)["result"], "all four");
    check_whole(stream, &world.session(ID), 0);
}

/// Serves a playbook as an API while `act` runs.
fn serving<T>(book: &Book, act: impl FnOnce(&str) -> T) -> T {
    use lead::model::serve::{Check, ServeOptions, run};
    let playbook = book.model().split_once(':').unwrap().1.to_owned();
    let (cancel, (sender, url)) = (CancellationToken::new(), std::sync::mpsc::channel());
    std::thread::scope(|s| {
        let stop = cancel.clone();
        s.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let options = ServeOptions { playbook, port: 0, check: Check::Strict };
            runtime.block_on(run(options, &stop, |url| sender.send(url.to_owned()).unwrap())).unwrap();
        });
        let _stop = cancel.drop_guard();
        act(&url.recv_timeout(std::time::Duration::from_secs(30)).unwrap())
    })
}

#[test]
fn a_reply_that_was_cut_is_withdrawn_and_only_the_whole_one_counts() {
    let world = World::new();
    let cut = json!({"text": "Looking.", "tools": [bash("echo one")], "fault": {"kind": "cut_in_tool", "times": 2}});
    let book = book(&world, &[lead_rule(&[cut, turn("seen", &[])])]);
    let done = serving(&book, |url| {
        let settings = r#"{"lead": {"retry": {"base": "1ms"}}}"#;
        let args = ["-p", "go", "--model", "claude-test-1", "--output-format", "stream-json", "--settings", settings];
        let lead = world.lead(&args).args(&["--include-partial-messages", "--permission-mode", "bypassPermissions"]);
        lead.env("ANTHROPIC_API_KEY", "k").env("ANTHROPIC_BASE_URL", url).args(&["--session-id", ID]).run()
    });
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "seen");
    assert_eq!(stream[0]["apiKeySource"], "ANTHROPIC_API_KEY");
    check_whole(&stream, &world.session(ID), 0);
    let retries: Vec<usize> = (0..stream.len()).filter(|at| is(&stream[*at], "lead_retry")).collect();
    assert_eq!(retries.len(), 2, "{stream:#?}");
    for (number, at) in retries.iter().enumerate() {
        let (retry, before) = (&stream[*at], &stream[..*at]);
        let begun = before.iter().rev().find(|l| l["event"]["type"] == "message_start").unwrap();
        assert_eq!(retry["discarded_message_id"], begun["event"]["message"]["id"], "{retry:#}");
        assert_eq!(retry["attempt"], json!(number + 1));
        assert!(retry["delay_ms"].is_u64() && retry["reason"].is_string(), "{retry:#}");
        assert!(before.iter().all(|l| l["type"] != "assistant"), "nothing of a cut reply is a message");
    }
    let ends = stream.iter().filter(|l| l["event"]["type"] == "message_stop").count();
    assert_eq!(ends, 2, "one per whole reply");
}

#[test]
fn without_the_flag_there_are_no_parts() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("hello", &[])])]);
    let stream = lines(&streaming(&world, &book, "go").run().expect(0).stdout);
    assert!(stream.iter().all(|l| l["type"] != "stream_event"));
    let with = streaming(&world, &book, "go").args(&["--include-partial-messages"]).run();
    let text: String = lines(&with.expect(0).stdout)
        .iter()
        .filter(|l| l["type"] == "stream_event" && l["parent_tool_use_id"].is_null())
        .filter_map(|l| l["event"]["delta"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "hello");
}

#[test]
fn a_prompt_of_ten_mebibytes_comes_by_stdin() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("read", &[])])]);
    let limit = 10 << 20;
    let prompt = "x".repeat(limit - "go\n".len());
    let done = streaming(&world, &book, "go").stdin(prompt.clone()).run();
    let stream = lines(&done.expect(0).stdout);
    assert_eq!(check_ends(&stream)["result"], "read");
    let said = stream.iter().find(|l| l["type"] == "user").unwrap()["message"]["content"][0]["text"].as_str().unwrap();
    assert_eq!((said.len(), book.requests().len()), (limit, 1));
    world.session(check_ends(&stream)["session_id"].as_str().unwrap()).paired();
    let over = streaming(&world, &book, "go").stdin(prompt + "x").run();
    assert_eq!(check_refused(&over, 2)["is_error"], true);
}

/// A refused run prints its result alone.
fn check_refused(done: &Done, code: i32) -> Value {
    let mut stream = lines(&done.expect(code).stdout);
    assert_eq!(stream.len(), 1, "{stream:#?}");
    assert_eq!(stream[0]["type"], "result");
    stream.remove(0)
}

#[test]
fn r095_a_slow_reader_gets_everything() {
    let world = World::new();
    let (size, rounds) = (2 << 20, times(3, 8));
    let text = "a line of the large output\n".repeat(size / 27);
    let mut turns: Vec<Value> = (1..rounds).map(|_| turn(&text, &[bash("echo on")])).collect();
    turns.push(turn(&text, &[]));
    let book = book(&world, &[lead_rule(&turns)]);
    for form in ["stream-json", "json", "text"] {
        let args = ["-p", "go", "--model", &book.model(), "--output-format", form];
        let id = lead::core::ids::random_uuid();
        let lead = world.lead(&args).args(&["--permission-mode", "bypassPermissions", "--verbose"]);
        let Piped { running, stdin, mut stdout } = lead.args(&["--session-id", &id]).piped();
        drop(stdin);
        // Nothing is read until the run is over and only its output is left.
        eventually("the run is over", || {
            let size = world.find_session(&id).and_then(|s| std::fs::metadata(s.path).ok()).map_or(0, |m| m.len());
            let over = size > (rounds * text.len()) as u64 && world.runtime_files().is_empty();
            if over { Ok(()) } else { Err(size) }
        });
        let mut seen = String::new();
        stdout.read_to_string(&mut seen).unwrap();
        running.wait().expect(0);
        match form {
            "text" => assert_eq!(seen.trim_end(), text.trim_end()),
            "json" => assert_eq!(serde_json::from_str::<Vec<Value>>(&seen).unwrap().last().unwrap()["type"], "result"),
            _ => {
                let stream = lines(&seen);
                assert_eq!(check_ends(&stream)["result"].as_str().map(str::len), Some(text.len()));
                let said = stream.iter().filter(|l| l["message"]["content"][0]["text"] == text.as_str()).count();
                assert_eq!(said, rounds);
            }
        }
    }
}

#[test]
fn r095_a_reader_that_goes_away_ends_the_run_quietly() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "1"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"repeat": true, "text": "more"}),
    ]);
    // If it is the one that the gate lets pass, it comes to the next.
    let job = ["here", "there"].map(|n| turn("Begun.", &[bash(&gate.arrive(n))]));
    let book = book(&world, &[lead, worker_rule("Do the job", &job)]);
    let Piped { running, stdin, stdout } = streaming(&world, &book, "go").piped();
    drop(stdin);
    let mut stdout = BufReader::new(stdout);
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert!(is(&first, "init"));
    world.wait_file("here");
    world.wait_file("lead-here");
    // As `| head -1` does.
    drop(stdout);
    gate.open(1);
    let done = running.wait();
    done.expect(141);
    let said = done.stderr.lines().filter(|l| !l.contains("runs as root")).count();
    assert_eq!(said, 0, "{done:#?}");
    let session = world.session(first["session_id"].as_str().unwrap());
    session.paired();
    assert_eq!(session.agent("job").outcome()["status"], "killed");
    // The gate lets one of the two pass; the line that comes of it is the one that nobody reads.
    assert!((3..=4).contains(&book.requests().len()), "{:#?}", book.requests());
    world.assert_nothing_left();
}

#[test]
fn r090_twenty_streaming_runs_at_once_each_end_with_their_result() {
    let world = World::heavy();
    let lead = lead_rule(&[turn("", &[bash("echo one")]), turn("[{{prompt}}]", &[])]);
    let book = book(&world, &[lead]);
    let runs: Vec<_> = (0..20).map(|n| streaming(&world, &book, &format!("run {n}")).start()).collect();
    for (n, run) in runs.into_iter().enumerate() {
        let stream = lines(&run.wait().expect(0).stdout);
        let result = check_ends(&stream);
        assert_eq!(result["result"], format!("[run {n}]"));
        let session = world.session(result["session_id"].as_str().unwrap());
        check_whole(&stream, &session, 0);
        session.paired();
    }
    assert_eq!(book.requests().len(), 40);
    world.assert_nothing_left();
}

#[test]
fn r090_a_signal_ends_a_streaming_run_with_a_result() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let world = World::heavy();
        let gate = world.gate("gate");
        let lead = lead_rule(&[turn("", &[spawn("job", "Do the job.")]), turn("waiting", &[])]);
        let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))])])]);
        let run = streaming(&world, &book, "go").args(&["--session-id", ID]).start();
        world.wait_file("here");
        run.signal(signal);
        let stream = lines(&run.wait().expect(code).stdout);
        let result = check_ends(&stream);
        assert_eq!((&result["subtype"], &result["is_error"]), (&json!("error_during_execution"), &json!(true)));
        check_whole(&stream, &world.session(ID), 0);
        assert_eq!(stream.iter().find(|l| is(l, "task_notification")).unwrap()["status"], "stopped");
        world.assert_nothing_left();
    }
}

#[test]
fn r093_every_failure_is_an_error_in_every_form() {
    let world = World::new();
    let api = json!({"error": {"status": 400, "message": "no such luck", "times": 100}});
    let failing = book(&world, &[lead_rule(&[api])]);
    let endless = book(&world, &[lead_rule(&[json!({"repeat": true, "text": "on", "tools": [bash("echo")]})])]);
    let unknown = "99999999-2222-4333-8444-555555555555";
    let forms: [&[&str]; 4] = [
        &["--output-format", "text"],
        &["--output-format", "json"],
        &["--output-format", "json", "--verbose"],
        &["--output-format", "stream-json", "--verbose"],
    ];
    let cases: [(&Book, &[&str], i32); 3] =
        [(&failing, &[], 1), (&endless, &["--max-turns", "2"], 1), (&failing, &["--resume", unknown], 4)];
    for (book, args, code) in cases {
        for form in forms {
            let done = world.lead(&["-p", "go", "--model", &book.model()]).args(args).args(form).run();
            done.expect(code);
            match form {
                [_, "text"] => assert!(done.stdout.is_empty() && !done.stderr.is_empty(), "{done:#?}"),
                [_, "json"] => assert_eq!(done.json()["is_error"], true),
                [_, "json", _] => assert_eq!(done.json().as_array().unwrap().last().unwrap()["is_error"], true),
                _ => {
                    let stream = lines(&done.stdout);
                    let last = stream.last().unwrap();
                    assert_eq!((&last["type"], &last["is_error"]), (&json!("result"), &json!(true)), "{done:#?}");
                    assert_eq!(stream.iter().filter(|l| l["type"] == "result").count(), 1);
                }
            }
        }
    }
    world.assert_nothing_left();
}
