//! Agents that are killed, frozen or stuck, and what becomes of their tools.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{
    World, bash, book, children_of, eventually, exists, lead_rule, signal, spawn, tell, turn, worker_rule,
};

/// A command with background children of several kinds that say their pids, and that never ends.
const FAMILY: &str = "sleep 1001 & echo $! > child; \
nohup sh -c 'echo $$ > grandchild; exec sleep 1002' > /dev/null 2>&1 & \
(sh -c 'sleep 1003 & echo $! > orphan') ; \
env -i /bin/sh -c 'echo $$ > bare; exec sleep 1004' & \
until [ -s grandchild ] && [ -s orphan ] && [ -s bare ]; do sleep 0.02; done; \
echo $$ > here.new; mv here.new here; sleep 1005";

#[test]
fn sigkill_of_a_worker_is_one_failure_and_sweeps_its_tools() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("doomed job", "Do the doomed job.")]),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "Go on, please.")]}),
        json!({"when": {"notifications": "==2"}, "text": "{{notification.2.result}}"}),
    ]);
    let worker = worker_rule(
        "doomed",
        &[
            turn("Half of it is done.", &[bash(FAMILY)]),
            json!({"when": {"latest": "Go on"}, "tools": [bash(&gate.arrive("again"))]}),
            json!({"when": {"latest": "^$|no output|\\s*"}, "text": "all of it is done"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    let tool: i32 = world.wait_file("here").parse().unwrap();
    let family: Vec<i32> =
        ["child", "grandchild", "orphan", "bare"].iter().map(|f| world.wait_file(f).parse().unwrap()).collect();
    let row = world.wait_workers(1).remove(0);
    let pid = i32::try_from(row["pid"].as_i64().unwrap()).unwrap();
    signal(pid, Signal::SIGKILL);

    world.wait_file("again");
    for pid in family.iter().chain([&tool]) {
        assert!(!exists(*pid), "pid {pid} of {family:?} outlived the worker");
    }
    let children = children_of(run.pid());
    assert!(children.iter().all(|c| c.state != 'Z'), "{children:#?}");
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "all of it is done");

    let notes = book.last().notes();
    assert_eq!(notes.len(), 2, "{notes:#?}");
    assert_eq!(notes[0].status(), "failed");
    assert!(notes[0].get("summary").contains("SIGKILL"), "{notes:#?}");
    assert_eq!(notes[0].get("result"), "Half of it is done.");
    assert_eq!(notes[1].status(), "completed");
    let session = world.session(&done.session());
    session.check();
    let outcomes = session.agent("doomed job").outcomes();
    assert_eq!((&outcomes[0]["status"], &outcomes[0]["signal"]), (&json!("failed"), &json!("SIGKILL")));
    assert!(outcomes[0]["leftovers"].as_array().is_some_and(|l| l.len() >= 4), "{:#}", outcomes[0]);
    world.assert_nothing_left();
}

#[test]
fn sigstop_of_a_worker_leaves_ps_and_stop_working() {
    let world = World::heavy().with_limits("stop_ask=300ms,stop_term=300ms,reply=500ms,status=300ms");
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("frozen job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let row = world.wait_workers(1).remove(0);
    let pid = i32::try_from(row["pid"].as_i64().unwrap()).unwrap();
    signal(pid, Signal::SIGSTOP);

    let rows = world.workers();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["id"], row["id"]);
    let stopped = world.lead(&["stop", row["id"].as_str().unwrap()]).run();
    stopped.expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    let notes = book.last().notes();
    assert_eq!(notes.len(), 1, "{notes:#?}");
    assert_eq!((notes[0].status(), notes[0].get("result")), ("killed".to_owned(), "Begun.".to_owned()));
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn a_worker_ended_by_sigterm_from_outside_has_failed_and_says_so() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))])])]);
    let run = world.headless(&book.model(), "go").start();
    let tool: i32 = world.wait_file("here").parse().unwrap();
    let pid = i32::try_from(world.wait_workers(1)[0]["pid"].as_i64().unwrap()).unwrap();
    signal(pid, Signal::SIGTERM);
    let done = run.wait();
    done.expect(0);
    let outcome = world.session(&done.session()).agent("job").outcome();
    assert_eq!((&outcome["status"], &outcome["signal"]), (&json!("failed"), &json!("SIGTERM")));
    assert!(!exists(tool));
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r056_a_worker_stuck_in_a_tool_that_ignores_signals_can_be_stopped() {
    let world = World::heavy().with_limits("stop_ask=300ms,stop_term=300ms");
    let lead = lead_rule(&[
        turn("", &[spawn("stuck job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [crate::support::stop("{{agent.1}}")]}),
        json!({"when": {"notifications": ">=1"}, "text": "over"}),
    ]);
    let stubborn = "trap '' TERM INT HUP; echo $$ > here.new; mv here.new here; while :; do sleep 1006; done";
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &[bash(stubborn)])])]);
    let run = world.headless(&book.model(), "go").start();
    let tool: i32 = world.wait_file("here").parse().unwrap();
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    assert_eq!(book.last().notes()[0].status(), "killed");
    assert!(!exists(tool), "the tool outlived its worker");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r060_a_tool_ends_with_its_command_although_a_grandchild_holds_the_pipe() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("pipe job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    // The second command is the proof: it runs while the first one's child still holds the pipe.
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[bash("sleep 1007 & echo $! > child; echo said")]),
            turn("", &[bash(&format!("kill -0 $(cat child) && {}", gate.arrive("here")))]),
            turn("done", &[]),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let worker = i32::try_from(world.wait_workers(1)[0]["pid"].as_i64().unwrap()).unwrap();
    for parent in [run.pid(), worker] {
        eventually("no defunct child", || {
            let defunct: Vec<_> = children_of(parent).into_iter().filter(|c| c.state == 'Z').collect();
            if defunct.is_empty() { Ok(()) } else { Err(defunct) }
        });
    }
    let child: i32 = world.wait_file("child").parse().unwrap();
    assert!(exists(child));
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    assert!(!exists(child), "the grandchild outlived the agent");
    let asked = book.asked("Do the job");
    assert!(asked[1].results()[0].0.contains("said"), "{:?}", asked[1].results());
    let outcome = world.session(&done.session()).agent("pipe job").outcome();
    assert_eq!(outcome["status"], "completed");
    assert_eq!(outcome["leftovers"].as_array().map(Vec::len), Some(1), "{outcome:#}");
    world.assert_nothing_left();
}
