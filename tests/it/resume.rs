//! The lead dies, its workers go on, a later lead takes up what there is: nothing is lost, nothing
//! is told twice.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Done, Gate, Running, World, bash, book, eventually, lead_rule, paired, signal, spawn, stop, tell, times,
    turn, worker_rule,
};

const ID: &str = "22222222-2222-4333-8444-555555555555";

fn waiting_turns(gate: &Gate) -> Vec<Value> {
    // Each worker says that it is there by a file of its own.
    let arrive = format!("touch here-$LEAD_AGENT_ID; {}", gate.wait());
    vec![turn("Begun.", &[bash(&arrive)]), turn("done", &[])]
}

/// A lead with three workers that wait at a gate.
fn three_at(world: &World, gate: &Gate) -> Book {
    let jobs = [spawn("job 1", "Do the job."), spawn("job 2", "Do the job."), spawn("job 3", "Do the job.")];
    let lead = lead_rule(&[turn("", &jobs), json!({"when": {"notifications": ">=3"}, "text": "all three"})]);
    book(world, &[lead, worker_rule("Do the job", &waiting_turns(gate))])
}

fn start(world: &World, book: &Book) -> Running {
    world.headless(&book.model(), "go").args(&["--session-id", ID]).start()
}

fn resume(world: &World, book: &Book) -> Running {
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).start()
}

/// Waits until all three are at the gate and recorded as launched.
fn wait_launched(world: &World) {
    eventually("three workers at the gate", || {
        let names = std::fs::read_dir(world.cwd()).unwrap().flatten().map(|e| e.file_name());
        let here = names.filter(|n| n.to_string_lossy().starts_with("here-")).count();
        if here == 3 { Ok(()) } else { Err(here) }
    });
    eventually("the launches in the transcript", || {
        let lines = world.session(ID).lines();
        let launched = lines.iter().filter(|l| l["toolUseResult"]["status"] == "async_launched").count();
        if launched == 3 { Ok(()) } else { Err(launched) }
    });
}

fn check_three(world: &World, book: &Book, done: &Done) {
    assert_eq!(done.expect(0).result(), "all three");
    let last = book.last();
    paired(last.messages());
    let notes = last.notes();
    assert_eq!(notes.len(), 3, "{notes:#?}");
    assert!(notes.iter().all(|n| n.status() == "completed" && n.get("result") == "done"), "{notes:#?}");
    let session = world.session(ID);
    assert_eq!(session.agents().len(), 3);
    session.check();
    world.assert_nothing_left();
}

#[test]
fn workers_of_a_killed_lead_finish_and_a_resume_tells_of_each_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = three_at(&world, &gate);
    let run = start(&world, &book);
    wait_launched(&world);
    run.kill().expect_killed();
    gate.open(3);
    world.wait_quiet();
    for agent in world.session(ID).agents() {
        assert_eq!(agent.outcome()["status"], "completed", "{agent:?}");
    }
    check_three(&world, &book, &resume(&world, &book).wait());
}

#[test]
fn workers_that_still_run_are_taken_over() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = three_at(&world, &gate);
    let run = start(&world, &book);
    wait_launched(&world);
    let before = world.wait_workers(3);
    run.kill().expect_killed();
    eventually("the workers are shown as orphaned", || {
        let rows = world.workers();
        if rows.len() == 3 && rows.iter().all(|r| r["orphaned"] == true) { Ok(()) } else { Err(rows) }
    });
    let second = resume(&world, &book);
    eventually("the workers have an owner again", || {
        let rows = world.workers();
        if rows.len() == 3 && rows.iter().all(|r| r["orphaned"] != true) { Ok(()) } else { Err(rows) }
    });
    let pids = |rows: &[Value]| {
        let mut pids: Vec<i64> = rows.iter().filter_map(|r| r["pid"].as_i64()).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(pids(&before), pids(&world.workers()), "the same processes go on");
    gate.open(3);
    check_three(&world, &book, &second.wait());
    let runs: Vec<Value> = world.session(ID).agents().iter().map(|a| a.outcome()["run"].clone()).collect();
    assert_eq!(runs, [1, 1, 1]);
}

#[test]
fn a_worker_taken_over_can_be_sent_to_and_stopped() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job 1", "Do job one."), spawn("job 2", "Do job two."), spawn("job 3", "Do job three.")]),
        json!({"when": {"latest": "take care"}, "tools": [tell("{{agent.1}}", "hello again"), stop("{{agent.2}}")]}),
        json!({"when": {"results": "==5"}, "tools": [bash("echo > told")]}),
        json!({"when": {"notifications": ">=3"}, "text": "all three"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do job", &waiting_turns(&gate))]);
    let run = start(&world, &book);
    wait_launched(&world);
    // The third one dies together with the lead: nobody is there to see it.
    let third = world.session(ID).agent("job 3").id;
    let row = world.workers().into_iter().find(|r| r["id"] == third.as_str()).unwrap();
    run.kill().expect_killed();
    signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);

    let second = world.headless(&book.model(), "take care").args(&["--resume", ID]).start();
    world.wait_file("told");
    gate.open(3);
    assert_eq!(second.wait().expect(0).result(), "all three");
    let notes = book.last().notes();
    let status = |name: &str| {
        let id = world.session(ID).agent(name).id;
        let notes: Vec<_> = notes.iter().filter(|n| n.get("task-id") == id).collect();
        assert_eq!(notes.len(), 1, "{name}: {notes:#?}");
        notes[0].status()
    };
    assert_eq!([status("job 1"), status("job 2"), status("job 3")], ["completed", "killed", "failed"]);
    assert!(book.asked("job one").last().unwrap().all().contains("hello again"));
    world.session(ID).check();
    world.assert_nothing_left();
}

fn end_or_kill(run: Running, moment: Duration) -> Done {
    run.wait_for(moment).unwrap_or_else(Running::kill)
}

#[test]
fn a_lead_killed_at_any_moment_loses_nothing_and_tells_nothing_twice() {
    for round in 0..times(3, 20) {
        let world = World::heavy().killed_anywhere();
        let jobs = ["job 1", "job 2", "job 3"].map(|name| spawn(name, "Do the job."));
        let lead = lead_rule(&[turn("", &jobs), json!({"when": {"notifications": ">=3"}, "text": "all three"})]);
        let steps = [
            json!({"delay_ms": 30, "tools": [bash("echo one")]}),
            json!({"delay_ms": 30, "text": "half", "tools": [bash("echo two")]}),
            json!({"delay_ms": 30, "text": "done"}),
        ];
        let book = book(&world, &[lead, worker_rule("Do the job", &steps)]);
        // Spread over the whole run, from before the first reply to after the last. The second life
        // is killed too every other time.
        let moment = || Duration::from_millis(u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * 3);
        let again = || world.headless(&book.model(), "carry on").args(&["--resume", ID]);
        let mut lives = vec![moment()];
        let mut killed = end_or_kill(start(&world, &book), lives[0]);
        if round % 2 == 0 && killed.signal.is_some() {
            world.wait_quiet();
        } else {
            lives.push(moment() / 2);
            killed = end_or_kill(again().start(), lives[1]);
        }
        let done = again().run();
        if done.code == Some(4) {
            // Killed before there was a session.
            assert!(world.processes().is_empty(), "{killed:#?}");
            continue;
        }
        done.expect(0);
        let session = world.session(ID);
        session.check();
        for request in book.of("lead") {
            paired(request.messages());
        }
        let counts: Vec<usize> = session.consumed().into_values().collect();
        assert!(counts.len() >= 3 && counts.iter().all(|c| *c == 1), "killed after {lives:?}: {counts:?}");
        world.assert_nothing_left();
    }
}

#[test]
fn a_second_resume_has_nothing_to_tell_and_says_so() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": ">=1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    start(&world, &book).wait().expect(0);
    let again = resume(&world, &book).wait();
    again.expect(2);
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn r063_a_second_resume_is_refused_with_the_pid_and_address_of_the_first() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[turn("", &[bash(&gate.arrive("here"))]), turn("over", &[])]);
    let book = book(&world, &[lead]);
    let run = start(&world, &book);
    world.wait_file("here");
    let second = world.headless(&book.model(), "me too").args(&["--resume", ID]).run();
    let address = world.ps(&[])[0]["address"].as_str().unwrap().to_owned();
    second.expect(3);
    let said = format!("{}{}", second.stdout, second.stderr);
    assert!(said.contains(&run.pid().to_string()) && said.contains(&address), "{second:#?}");
    // The same id for a new session is refused as well.
    let third = world.headless(&book.model(), "me too").args(&["--session-id", ID]).run();
    assert!(third.code.is_some_and(|c| c != 0) && third.stdout.contains(ID), "{third:#?}");
    gate.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    assert_eq!(book.of("lead").len(), 2, "nobody else talked to the model");
    world.assert_nothing_left();
}

#[test]
fn r046_the_lock_of_a_dead_lead_is_taken_over() {
    let world = World::new();
    let gate = world.gate("gate");
    // The call that was never answered is dropped, so the second life begins with both prompts.
    let first = json!({"when": {"latest": "^go$"}, "tools": [bash(&gate.arrive("here"))]});
    let book = book(&world, &[lead_rule(&[first, turn("over", &[])])]);
    let run = start(&world, &book);
    let tool: i32 = world.wait_file("here").parse().unwrap();
    run.kill().expect_killed();
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!((done.expect(0).result(), done.session()), ("over".to_owned(), ID.to_owned()));
    assert!(!crate::support::exists(tool), "the dead lead's tool is swept");
}

#[test]
fn r057_workers_of_a_dead_lead_are_shown_as_orphaned_and_end_by_themselves() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = three_at(&world, &gate);
    let run = start(&world, &book);
    wait_launched(&world);
    run.kill().expect_killed();
    eventually("three orphans", || {
        let rows = world.workers();
        if rows.len() == 3 && rows.iter().all(|r| r["orphaned"] == true) { Ok(()) } else { Err(rows) }
    });
    gate.open(3);
    world.wait_quiet();
    let session = world.session(ID);
    for agent in session.agents() {
        assert_eq!(agent.outcome()["result"], "done");
    }
    assert!(session.consumed().is_empty(), "nobody was there to be told");
    let ids: Vec<String> = session.agents().into_iter().map(|a| a.id).collect();
    let args: Vec<&str> = ["wait"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    world.lead(&args).run().expect(0);
    resume(&world, &book).wait().expect(0);
    session.check();
}

#[test]
fn an_agent_that_lingers_after_its_outcome_is_told_of_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = three_at(&world, &gate);
    let run = start(&world, &book);
    wait_launched(&world);
    run.kill().expect_killed();
    gate.open(3);
    world.wait_quiet();
    // The process is gone but its lock is held, as it is between the outcome and the exit.
    let agent = world.session(ID).agent("job 1");
    let held = std::fs::File::open(&agent.path).unwrap();
    fs2::FileExt::try_lock_exclusive(&held).unwrap();
    let second = resume(&world, &book);
    eventually("all three are told of", || {
        let told = book.last().notes().len();
        if told == 3 { Ok(()) } else { Err(told) }
    });
    drop(held);
    check_three(&world, &book, &second.wait());
}

#[test]
fn a_message_taken_in_before_a_crash_comes_first_in_the_next_run() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", "message one"), bash("echo > sent")]}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "message two")]}),
        json!({"when": {"notifications": "==2"}, "text": "over"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[json!({"when": {"latest": "^Do the job.$"}, "tools": [bash(&gate.arrive("here"))]}), turn("done", &[])],
    );
    let book = book(&world, &[lead, worker]);
    let run = start(&world, &book);
    world.wait_file("sent");
    let row = world.wait_workers(1).remove(0);
    signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);
    assert_eq!(run.wait().expect(0).result(), "over");
    let seen = book.asked("Do the job").pop().unwrap().all();
    let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("{text:?} is lost: {seen}"));
    assert!(at("message one") < at("message two"), "{seen}");
    assert_eq!((seen.matches("message one").count(), seen.matches("message two").count()), (1, 1));
    let said = world.session(ID).agent("job").said();
    assert_eq!(said.iter().filter(|l| l["msgId"].is_string()).count(), 2, "{said:#?}");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn a_message_to_a_session_that_dies_before_its_turn_is_shown_by_the_next_life() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = book(
        &world,
        &[lead_rule(&[
            json!({"when": {"latest": "^go$"}, "tools": [bash(&gate.arrive("here"))]}),
            json!({"when": {"latest": "^send to (?P<address>uds:\\S+)"}, "tools": [tell("{{capture.address}}", "hello")]}),
            turn("over", &[]),
        ])],
    );
    let run = start(&world, &book);
    world.wait_file("here");
    let address = world.ps(&[])[0]["address"].as_str().unwrap().to_owned();
    world.headless(&book.model(), &format!("send to {address}")).run().expect(0);
    run.kill().expect_killed();
    resume(&world, &book).wait().expect(0);
    let last = book.requests().into_iter().rfind(|r| r.prompt().starts_with("go")).unwrap();
    assert_eq!(last.all().matches("hello\n</cross-session-message>").count(), 1, "{last:#?}");
    // A third life has nothing left to show.
    resume(&world, &book).wait().expect(2);
}
