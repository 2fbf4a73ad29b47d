//! Sessions that change their lead while agents are at work: by hand-over, by a kill at any moment,
//! as a copy. No event is lost, no outcome is told twice, no request to the model is repeated.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Running, World, bash, book, each_told_once, eventually, exists, lead_rule, paired, spawn,
    start as start_shell, started, stop, tell, times, told, turn, wait_shells, worker_rule,
};

const ID: &str = "44444444-2222-4333-8444-555555555555";
/// Waits for the file `go`.
const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done; echo passed";
/// The same, and does not end when it is asked to.
const STUBBORN: &str = "trap '' TERM; until [ -e go ]; do sleep 0.02; done; echo passed";

#[test]
fn a_hand_over_between_two_builds_loses_no_event_and_repeats_no_request() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let names = ["one", "two", "three", "four", "five", "six"];
    let calls: Vec<Value> = names.iter().map(|n| spawn(n, &format!("Do job {n}."))).collect();
    let lead = lead_rule(&[turn("", &calls), turn("handed on", &[]), json!({"repeat": true, "text": "over"})]);
    let jobs = names.map(|n| {
        let turns =
            [turn("", &[bash(&gate.arrive(n))]), turn("", &[bash("echo step")]), turn(&format!("{n} done"), &[])];
        worker_rule(&format!("job {n}"), &turns)
    });
    let book = book(&world, &[vec![lead], jobs.to_vec()].concat());
    let first = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    names.iter().for_each(|n| drop(world.wait_file(n)));

    let handed = world.lead(&["hand-over", &ID[..8], "--json"]).run();
    let handed = handed.expect(0).json();
    assert_eq!((&handed["session"], handed["agents"].as_array().map(Vec::len)), (&json!(ID), Some(6)), "{handed}");
    let done = first.wait();
    let result = done.expect(0).json();
    assert_eq!((&result["result"], &result["terminal_reason"]), (&json!("handed on"), &json!("handed_over")));
    let orphans = eventually("six orphans", || {
        let rows = world.workers();
        if rows.len() == 6 && rows.iter().all(|row| row["orphaned"] == true) { Ok(rows) } else { Err(rows) }
    });
    let pids: Vec<&Value> = orphans.iter().map(|row| &row["pid"]).collect();

    let newer = world.headless(&book.model(), "and now?").args(&["--resume", ID]).env("LEAD_BUILD", "9.9.9");
    let second = newer.start();
    let adopted = eventually("six adopted workers", || {
        let rows = world.workers();
        if rows.len() == 6 && rows.iter().all(|row| row["orphaned"] == false) { Ok(rows) } else { Err(rows) }
    });
    assert_eq!(adopted.iter().map(|row| &row["pid"]).collect::<Vec<_>>(), pids, "the same processes");
    gate.open(6);
    second.wait().expect(0);
    world.session(ID).check();
    for name in names {
        let asked = book.asked(&format!("job {name}"));
        assert_eq!(asked.len(), 3, "{name} asked the model {} times", asked.len());
        assert_eq!(world.session(ID).agent(name).outcome()["result"], format!("{name} done"));
    }
    world.assert_nothing_left();
}

#[test]
fn a_hand_over_waits_for_the_turn_and_names_what_can_not_be_handed_over() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = book(&world, &[lead_rule(&[turn("", &[bash(&gate.arrive("here"))]), turn("over", &[])])]);
    let unknown = world.lead(&["hand-over", ID]).run();
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    let early = world.lead(&["hand-over", ID, "--timeout", "300ms"]).run();
    assert_eq!(early.code, Some(5), "{early:?}");
    gate.open(1);
    assert_eq!(run.wait().expect(0).json()["terminal_reason"], "handed_over");
    world.assert_nothing_left();
}

#[test]
fn a_model_can_not_hand_its_session_over() {
    let world = World::new();
    let command = format!("'{}' hand-over {ID}; echo code $?", env!("CARGO_BIN_EXE_lead"));
    let rules = [
        lead_rule(&[turn("", &[spawn("job", "Do it."), bash(&command)]), turn("{{result.1}}", &[]), turn("over", &[])]),
        worker_rule("Do it", &[turn("", &[bash(&command)]), turn("{{result.1}}", &[])]),
    ];
    let book = book(&world, &rules);
    let done = world.headless(&book.model(), "go").args(&["--session-id", ID]).run();
    done.expect(0);
    let told = [book.of("lead")[1].latest(), book.asked("Do it").pop().unwrap().latest()];
    assert!(told.iter().all(|t| t.contains("code 3")), "{told:#?}");
    world.assert_nothing_left();
}

#[test]
fn r087_a_copy_gets_a_new_id_and_leaves_session_and_agents_alone() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        turn("waiting", &[]),
        json!({"when": {"latest": "copy"}, "text": "I am the copy"}),
        json!({"repeat": true, "text": "over"}),
    ]);
    let job = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, job]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    let second = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(second.code, Some(3), "{second:?}");
    assert!(second.stdout.contains(&run.pid().to_string()), "{second:?}");
    let copied = world.headless(&book.model(), "you are the copy").args(&["--resume", ID, "--fork-session"]).run();
    assert_eq!(copied.expect(0).result(), "I am the copy");
    assert_ne!(copied.session(), ID);
    assert!(book.last().all().contains("waiting"), "the copy has the conversation");
    assert!(world.session(&copied.session()).agents().is_empty());
    assert!(world.session(&copied.session()).lines().iter().all(|l| l["sessionId"] == copied.session().as_str()));
    let refused = world.headless(&book.model(), "x").args(&["--resume", ID, "--session-id", &copied.session()]).run();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let taken =
        world.headless(&book.model(), "x").args(&["-r", ID, "--fork-session", "--session-id", &copied.session()]).run();
    assert_ne!(taken.code, Some(0), "{taken:?}");
    assert_eq!(world.workers().len(), 1, "the agent belongs to the session still");
    gate.open(1);
    run.wait().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn a_copy_of_a_session_reports_none_of_its_background_commands_and_stops_none() {
    let world = World::heavy();
    let full = json!({"when": {"results": "==1"}, "tools": [bash("echo more")], "usage": {"input_tokens": 180_000}});
    for compacted in [false, true] {
        let begin = json!({"tools": [start_shell("until [ -e go ]; do sleep 0.02; done", "a build")]});
        let lead = lead_rule(&[
            json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
            json!({"when": {"latest": "copy"}, "text": "I am the copy", "repeat": true}),
            json!({"when": {"latest": "<status>"}, "text": "told: {{notification.1.status}}"}),
            json!({"when": {"results": "==0", "any": "^go"}, "tools": begin["tools"]}),
            if compacted { full.clone() } else { json!({"text": "waiting"}) },
            json!({"text": "waiting"}),
        ]);
        let book = book(&world, &[lead]);
        let run = world.headless(&book.model(), "go").start();
        let row = wait_shells(&world, 1).remove(0);
        let session = row["session"].as_str().unwrap().to_owned();
        eventually("the session waits", || {
            let lines = world.session(&session).lines();
            if lines.iter().any(|l| l["message"]["content"][0]["text"] == "waiting") { Ok(()) } else { Err(lines) }
        });
        let copy = |from: &str, more: &[&str]| {
            let copied = world.headless(&book.model(), "you are the copy").args(&["--resume", from]).args(more).run();
            assert_eq!(copied.expect(0).result(), "I am the copy");
            let lines = world.session(&copied.session()).lines();
            assert_eq!(told(&lines).len(), 0, "{lines:#?}");
            copied.session()
        };
        let boundaries = world.session(&session).lines().iter().filter(|l| l["subtype"] == "compact_boundary").count();
        assert_eq!(boundaries, usize::from(compacted));
        let copied = copy(&session, &["--fork-session"]);
        copy(&copied, &[]);
        assert_eq!(wait_shells(&world, 1).remove(0)["pid"], row["pid"], "it runs on");
        world.file("go", "");
        assert_eq!(run.wait().expect(0).result(), "told: completed");
        each_told_once(&world.session(&session).lines());
        std::fs::remove_file(world.cwd().join("go")).unwrap();
        world.assert_nothing_left();
    }
}

#[test]
fn a_hand_over_tells_of_background_commands_and_puts_questions_to_the_next_lead() {
    let world = World::heavy();
    let lead = lead_rule(&[
        turn("", &[spawn("asks", "Ask first."), start_shell("sleep 1111", "a build")]),
        json!({"when": {"latest": "<status>killed"}, "text": "told of it"}),
        json!({"repeat": true, "text": "handed on"}),
    ]);
    let job = worker_rule("Ask first", &[turn("", &[bash("touch asked")]), turn("done", &[])]);
    let book = book(&world, &[lead, job]);
    let begin = |session: &str, prompt: &str| {
        let lead = world.lead(&["-p", prompt, "--model", &book.model(), "--output-format", "json", session, ID]);
        lead.args(&["--permission-prompt-tool", "desk", "--allowed-tools", "Bash(sleep 1111)"]).start()
    };
    let asked = || {
        eventually("one question", || {
            let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
            rows.as_array().filter(|rows| rows.len() == 1).map(|rows| rows[0].clone()).ok_or(rows.clone())
        })
    };
    let first = begin("--session-id", "go");
    let (build, before) = (wait_shells(&world, 1).remove(0), asked());
    world.lead(&["hand-over", ID]).run().expect(0);
    first.wait().expect(0);
    assert!(!exists(i32::try_from(build["pid"].as_i64().unwrap()).unwrap()), "{build}");
    let second = begin("--resume", "carry on");
    let after = asked();
    assert_eq!((&after["agent"], &after["input"]), (&before["agent"], &before["input"]));
    world.lead(&["permissions", "allow", after["id"].as_str().unwrap()]).run().expect(0);
    second.wait().expect(0);
    assert!(world.cwd().join("asked").exists());
    let session = world.session(ID);
    session.check();
    each_told_once(&session.lines());
    world.assert_nothing_left();
}

#[test]
fn a_closed_terminal_leaves_nothing_or_with_detach_everything_running() {
    for detach in [false, true] {
        let world = World::heavy();
        let gate = world.gate("gate");
        let lead = lead_rule(&[
            turn("", &[spawn("job", "Do the job.")]),
            turn("", &[bash(&gate.arrive("lead-here"))]),
            json!({"repeat": true, "text": "over"}),
        ]);
        let job = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
        let book = book(&world, &[lead, job]);
        let run = world.headless(&book.model(), "go").args(&["--session-id", ID]);
        let run = if detach { run.args(&["--detach"]) } else { run }.start();
        world.wait_file("here");
        world.wait_file("lead-here");
        run.signal(Signal::SIGHUP);
        let done = run.wait();
        done.expect(129);
        if !detach {
            world.assert_nothing_left();
            assert_eq!(world.session(ID).agent("job").outcome()["status"], "killed");
            continue;
        }
        let row = world.wait_workers(1).remove(0);
        assert_eq!((&row["detached"], &row["orphaned"]), (&json!(true), &json!(false)), "{row}");
        assert_eq!(done.json()["detached"], json!([row["id"]]));
        gate.open(1);
        let id = row["id"].as_str().unwrap();
        assert!(world.lead(&["wait", id]).run().expect(0).stdout.contains("done"));
        world.headless(&book.model(), "and?").args(&["--resume", ID]).run().expect(0);
        world.session(ID).check();
        world.assert_nothing_left();
    }
}

#[test]
fn an_adopted_agent_that_is_let_go_keeps_all_that_it_has() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[turn("", &[spawn("job", "Do the job.")]), json!({"repeat": true, "text": "over"})]);
    let job = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, job]);
    let first = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    first.kill();
    let second = world.headless(&book.model(), "carry on").args(&["--resume", ID, "--detach"]).run();
    second.expect(0);
    let id = second.json()["detached"][0].as_str().unwrap().to_owned();
    gate.open(1);
    assert!(world.lead(&["wait", &id]).run().expect(0).stdout.contains("done"));
    assert_eq!(world.session(ID).agent("job").outcome()["result"], "done");
    world.headless(&book.model(), "and?").args(&["--resume", ID]).run().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}

/// A lead with a background command and six workers: in a model call, in Bash, waiting for permission, ended and not
/// reported, being stopped, and one that starts late.
fn six_states(world: &World) -> Book {
    let lead = lead_rule(&[
        turn(
            "",
            &[
                spawn("thinks", "Think long."),
                spawn("works", "Work long."),
                spawn("asks", "Ask first."),
                spawn("ends", "End at once."),
                spawn("stops", "Stop late."),
                start_shell(UNTIL_GO, "a watch"),
            ],
        ),
        json!({"when": {"latest": "agentId"}, "tools": [stop("{{agent.5}}"), spawn("late", "Come late."), bash(UNTIL_GO)]}),
        json!({"repeat": true, "text": "over"}),
    ]);
    let job = |prompt: &str, turns: &[Value]| {
        worker_rule(prompt, &[turns, &[json!({"repeat": true, "text": "done"})]].concat())
    };
    let jobs = [
        job("Think long", &[json!({"delay_ms": 900, "tools": [bash("echo thought")]})]),
        job("Work long", &[turn("", &[bash(UNTIL_GO)])]),
        job("Ask first", &[turn("", &[bash("touch asked")])]),
        job("End at once", &[]),
        job("Stop late", &[turn("", &[bash(STUBBORN)])]),
        job("Come late", &[turn("", &[bash("echo came")])]),
    ];
    book(world, &[vec![lead], jobs.to_vec()].concat())
}

fn start(world: &World, book: &Book, session: &str, prompt: &str) -> Running {
    let lead = world.lead(&["-p", prompt, "--model", &book.model(), "--output-format", "json", session, ID]);
    let lead = lead.args(&["--permission-prompt-tool", "desk"]);
    let rules = [UNTIL_GO, STUBBORN, "echo thought", "echo came"];
    rules.iter().fold(lead, |lead, rule| lead.args(&["--allowed-tools", &format!("Bash({rule})")])).start()
}

/// Answers every question until the run has ended.
fn answer_all(world: &World, run: Running) {
    let mut run = run;
    for _ in 0..600 {
        run = match run.wait_for(Duration::from_millis(50)) {
            Ok(done) => {
                done.expect(0);
                return;
            }
            Err(run) => run,
        };
        let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
        for question in rows.as_array().into_iter().flatten() {
            // Its agent may be stopped meanwhile.
            world.lead(&["permissions", "allow", question["id"].as_str().unwrap()]).run();
        }
    }
    panic!("the run does not end: {}", world.describe());
}

#[test]
fn a_lead_killed_at_any_moment_loses_none_of_six_agents() {
    let rounds = times(20, 200);
    for round in 0..rounds {
        let world = World::heavy().killed_anywhere().with_limits("stop_ask=200ms,stop_term=200ms");
        let book = six_states(&world);
        let first = start(&world, &book, "--session-id", "go");
        // Spread over the whole of the run, from before the first agent to the stop's end.
        let moment = Duration::from_micros((round as u64 * 7919 * 131) % 1_400_000);
        let Err(first) = first.wait_for(moment) else { panic!("it ended before the file `go` was there") };
        let before: Vec<Value> = world.workers();
        first.kill();
        if world.find_session(ID).is_none_or(|s| s.lines().is_empty()) {
            eprintln!("round {round}: killed after {moment:?}, before it was a session");
            world.file("go", "");
            world.wait_quiet();
            world.headless(&book.model(), "sweep").run();
            continue;
        }
        eprintln!("round {round}: killed after {moment:?} with {} workers", before.len());
        let second = start(&world, &book, "--resume", "carry on");
        eventually("the resumed lead", || {
            let rows = world.ps(&[]);
            let up = rows.iter().any(|row| row["role"] == "lead" && row["pid"] == second.pid());
            let orphans = rows.iter().filter(|row| row["orphaned"] == true).count();
            if up && orphans == 0 { Ok(()) } else { Err(rows) }
        });
        world.file("go", "");
        answer_all(&world, second);
        let session = world.session(ID);
        session.check();
        if !started(&session.lines()).is_empty() {
            each_told_once(&session.lines());
        }
        for request in book.of("lead") {
            paired(request.messages());
        }
        world.assert_nothing_left();
    }
}

#[test]
fn a_message_to_a_dead_lead_is_an_error_and_one_to_its_successor_arrives() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[turn("", &[bash(&gate.arrive("here"))]), json!({"repeat": true, "text": "over"})]);
    let receiver = book(&world, &[lead]);
    let first = world.headless(&receiver.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    let address = |world: &World| {
        world.ps(&[]).iter().find(|r| r["role"] == "lead").unwrap()["address"].as_str().unwrap().to_owned()
    };
    let dead = address(&world);
    first.kill();
    let send = |to: &str| {
        let sender = book(&world, &[lead_rule(&[turn("", &[tell(to, "hello there")]), turn("sent", &[])])]);
        world.headless(&sender.model(), "go").run().expect(0);
        sender.last().results().remove(0)
    };
    let (text, is_error) = send(&dead);
    assert!(is_error && text.contains("can't be reached"), "{text}");
    std::fs::remove_file(world.cwd().join("here")).unwrap();
    let second = world.headless(&receiver.model(), "carry on").args(&["--resume", ID]).start();
    world.wait_file("here");
    let (text, is_error) = send(&address(&world));
    assert!(!is_error, "{text}");
    gate.open(1);
    second.wait().expect(0);
    assert_eq!(receiver.last().all().matches("hello there").count(), 1);
    world.assert_nothing_left();
}
