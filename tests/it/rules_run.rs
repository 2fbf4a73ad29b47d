//! What must hold for a run as a whole: R058, R067, R072, R073, R088, R090, R092, R106.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{World, ask, bash, book, call, eventually, exists, lead_rule, spawn, tell, turn, worker_rule};

#[test]
fn r058_signals_end_the_run_its_agents_and_their_tools_and_are_recorded() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let world = World::heavy();
        let gate = world.gate("gate");
        let job = |n: usize| turn(&format!("Begun {n}."), &[bash(&gate.arrive(&format!("here-{n}")))]);
        let lead = lead_rule(&[
            turn("", &[spawn("job 1", "Do job 1."), spawn("job 2", "Do job 2.")]),
            json!({"when": {"results": "==2"}, "tools": [bash(&gate.arrive("lead-here"))]}),
            json!({"when": {"notifications": ">=2"}, "text": "over"}),
        ]);
        let book = book(&world, &[lead, worker_rule("Do job 1", &[job(1)]), worker_rule("Do job 2", &[job(2)])]);
        let run = world.headless(&book.model(), "go").start();
        let tools = ["here-1", "here-2", "lead-here"].map(|f| world.wait_file(f).parse::<i32>().unwrap());
        run.signal(signal);
        let done = run.wait();
        done.expect(code);
        world.assert_nothing_left();
        assert!(tools.iter().all(|pid| !exists(*pid)), "{signal}: {tools:?}");
        let json = done.json();
        assert_eq!((&json["subtype"], &json["is_error"]), (&json!("error_during_execution"), &json!(true)));
        let session = world.session(&done.session());
        for agent in session.agents() {
            let outcome = agent.outcome();
            assert_eq!(outcome["status"], "killed", "{signal}: {outcome:#}");
            assert!(outcome["result"].as_str().is_some_and(|r| r.starts_with("Begun")), "{outcome:#}");
        }
        // The records are what a later run needs.
        let next = world.headless(&book.model(), "and now?").args(&["--resume", &done.session()]).run();
        assert_eq!(next.expect(0).result(), "over");
        session.check();
        world.assert_nothing_left();
    }
}

#[test]
fn r058_a_second_signal_kills_at_once() {
    let world = World::heavy();
    let lead = lead_rule(&[turn("", &[spawn("job", "Do the job.")])]);
    let stubborn = "trap '' TERM INT HUP; echo $$ > here.new; mv here.new here; while :; do sleep 1050; done";
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(stubborn)])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let worker = world.wait_workers(1).remove(0);
    // A frozen worker can't end politely.
    crate::support::signal(i32::try_from(worker["pid"].as_i64().unwrap()).unwrap(), Signal::SIGSTOP);
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGINT);
    let done = run.wait();
    done.expect(130);
    world.assert_nothing_left();
    assert_eq!(world.session(&done.session()).agent("job").outcome()["status"], "killed");
}

#[test]
fn r067_a_silent_child_is_reported_as_stalled_with_its_last_activity() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let settings = json!({"lead": {"stallAfter": "300ms"}}).to_string();
    let run = world.headless(&book.model(), "go").args(&["--settings", &settings]).env("LEAD_LOG", "info").start();
    world.wait_file("here");
    let id = world.wait_workers(1)[0]["id"].as_str().unwrap().to_owned();
    let told = eventually("the lead says that it is stalled", || {
        let text = run.stderr();
        text.lines().find(|l| l.contains("stalled")).map(str::to_owned).ok_or(text.clone())
    });
    assert!(told.contains(&id) && told.contains("Bash") && told.contains("lead.stallAfter"), "{told}");
    gate.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    world.assert_nothing_left();
}

/// Calls that the default mode asks about, and that nobody is there to permit.
fn asking(world: &World) -> [Value; 2] {
    [bash("touch forbidden"), call("Read", json!({"file_path": world.root().join("home/secret")}))]
}

#[test]
fn r072_headless_questions_are_answered_at_once_and_r073_listed_in_the_result() {
    let world = World::new();
    std::fs::write(world.root().join("home/secret"), "secret\n").unwrap();
    let lead = lead_rule(&[
        turn("", &asking(&world)),
        turn("", &[spawn("job", "Do the job."), ask("other", "Do the other job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let job = [turn("", &[asking(&world)[0].clone(), bash("ls")]), turn("could not", &[])];
    let book = book(&world, &[lead, worker_rule("the job", &job), worker_rule("other job", &job)]);
    let run = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]).run();
    let json = run.expect(0).json();
    assert_eq!(json["result"], "over");
    let denied: Vec<&str> =
        json["permission_denials"].as_array().unwrap().iter().filter_map(|d| d["tool_name"].as_str()).collect();
    assert_eq!(denied, ["Bash", "Read", "Bash", "Bash"], "the main conversation's, then the agents'");
    assert_eq!(json["permission_denials"][0]["tool_input"]["command"], "touch forbidden");
    assert!(!world.cwd().join("forbidden").exists());
    let results = book.last().results();
    assert!(results[0].1 && results[1].1 && !results[1].0.contains("secret\n"), "{results:#?}");
    let of_worker = book.asked("the job").pop().unwrap().results();
    assert!(of_worker[0].1 && !of_worker[1].1, "reading is allowed, writing is not: {of_worker:?}");
}

#[test]
fn r073_what_a_child_was_denied_is_in_its_outcome_its_notice_and_its_row() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job."), ask("other", "Do the other job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let job = [turn("", &[bash("touch forbidden")]), turn("could not", &[])];
    let book = book(&world, &[lead, worker_rule("the job", &job), worker_rule("other job", &job)]);
    let done = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]).run();
    done.expect(0);
    let session = world.session(&done.session());
    for agent in session.agents() {
        let denials = agent.outcome()["permissionDenials"].clone();
        assert_eq!(
            (denials.as_array().map(Vec::len), &denials[0]["tool_name"]),
            (Some(1), &json!("Bash")),
            "{denials:#}"
        );
        let row = world.lead(&["result", "--json", &agent.id]).run().expect(0).json();
        assert_eq!(row["permission_denials"][0]["tool_name"], "Bash", "{row:#}");
    }
    let last = book.last();
    assert!(last.notes()[0].text.contains("Bash"), "{:?}", last.notes());
    assert!(last.results()[1].0.contains("Not permitted: Bash"), "{:?}", last.results());
    session.check();
}

#[test]
fn r072_rules_of_the_lead_hold_for_its_children() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("over", &[])]);
    let job = [turn("", &[bash("touch permitted"), bash("touch forbidden")]), turn("done", &[])];
    let book = book(&world, &[lead, worker_rule("the job", &job)]);
    let args = ["-p", "go", "--model", &book.model(), "--allowed-tools", "Bash(touch permitted)"];
    world.lead(&args).run().expect(0);
    let results = book.asked("the job").pop().unwrap().results();
    assert_eq!((results[0].1, results[1].1), (false, true), "{results:?}");
    assert!(world.cwd().join("permitted").exists() && !world.cwd().join("forbidden").exists());
}

#[test]
fn r088_the_session_printed_can_always_be_resumed() {
    let world = World::new();
    let broken = lead_rule(&[
        json!({"when": {"latest": "^fail$"}, "error": {"status": 400, "message": "no", "times": 1}}),
        json!({"when": {"latest": "^loop$"}, "tools": [bash("true")]}),
        json!({"repeat": true, "text": "fine"}),
    ]);
    let book = book(&world, &[broken]);
    for (prompt, code) in [("be fine", 0), ("fail", 1), ("loop", 1)] {
        let done = world.headless(&book.model(), prompt).args(&["--max-turns", "1"]).run();
        done.expect(code);
        let again = world.headless(&book.model(), "again").args(&["--resume", &done.session()]).run();
        assert_eq!(again.expect(0).result(), "fine", "after {prompt}");
        assert_eq!(again.session(), done.session());
        assert!(book.last().all().contains(prompt), "it has its history");
    }
    let continued = world.headless(&book.model(), "the latest").args(&["--continue"]).run();
    assert!(continued.expect(0).code == Some(0) && book.last().all().contains("loop"));
}

#[test]
fn r090_headless_runs_end_after_their_result_whatever_is_still_open() {
    let world = World::heavy();
    let leave = bash("nohup sleep 1060 & sleep 1061 & echo left");
    let lead = lead_rule(&[
        turn("", &[leave.clone(), spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &[leave]), turn("done", &[])])]);
    let runs: Vec<_> = (0..20).map(|_| world.headless(&book.model(), "go").start()).collect();
    for run in runs {
        let done = run.wait();
        let json = done.expect(0).json();
        assert_eq!((&json["type"], &json["result"]), (&json!("result"), &json!("over")));
    }
    world.assert_nothing_left();
}

#[test]
fn r092_the_lead_waits_for_its_background_workers_and_answers_with_what_they_found() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("Started, see you.", &[spawn("slow", "Do the slow job.")]),
        json!({"when": {"notifications": "==0", "results": "==1"}, "text": "I am done here."}),
        json!({"when": {"notifications": "==1"}, "text": "It found {{notification.1.result}}."}),
    ]);
    let worker = worker_rule("slow job", &[turn("", &[bash(&gate.arrive("here"))]), turn("gold", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    eventually("the lead is idle", || {
        let rows = world.ps(&[]);
        let idle = rows.iter().any(|r| r["role"] == "lead" && r["state"] == "idle");
        if idle { Ok(()) } else { Err(rows) }
    });
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "It found gold.");
    assert_eq!(done.json()["num_turns"], 3);
    world.assert_nothing_left();
}

#[test]
fn r092_waiting_has_a_limit_after_which_the_silent_are_stopped_and_named() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("silent", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let settings = json!({"lead": {"backgroundWait": "1s"}}).to_string();
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    assert_eq!(done.expect(0).result(), "over");
    let note = book.last().notes().remove(0);
    assert_eq!((note.status(), note.get("result")), ("killed".to_owned(), "Begun.".to_owned()));
    assert!(note.get("summary").contains("lead.backgroundWait"), "{note:?}");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r106_finished_children_never_block_the_end() {
    let world = World::heavy();
    let count = 15;
    let jobs: Vec<_> = (0..count).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
    let lead = lead_rule(&[
        turn("", &jobs),
        json!({"when": {"notifications": format!("=={count}")}, "tools": [tell("{{agent.1}}", "once more")]}),
        json!({"when": {"notifications": format!("=={}", count + 1)}, "text": "over"}),
    ]);
    // Children that hold everything a child could hold: its output, its folder, its log.
    let hold = bash("(trap '' TERM; sleep 1070) & nohup sleep 1071 >&2 & echo held");
    let worker = worker_rule("Do the job", &[turn("", &[hold]), json!({"repeat": true, "text": "done"})]);
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn a_failed_run_takes_its_workers_along() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"error": {"status": 400, "message": "out of luck", "times": 9}}),
    ]);
    let worker = worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(1).json()["api_error_status"], 400);
    assert_eq!(world.session(&done.session()).agent("job").outcome()["status"], "killed");
    world.assert_nothing_left();
}
