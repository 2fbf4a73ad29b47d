//! Background shells that end at the same moment as something else. Each is repeated; whatever order
//! things fall into, each end is told once.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    World, book, call, each_told_once, eventually, lead_rule, pid_of, signal, spawn, start, started, tell, times, turn,
    worker_rule,
};

/// Shells that end one after the other, some before the turn that started them is over, some after.
fn staggered(count: usize) -> Vec<Value> {
    (0..count).map(|n| start(&format!("sleep 0.0{n}"), &format!("job {n}"))).collect()
}

#[test]
fn shells_that_end_about_when_their_turn_does_are_each_told_once() {
    for _ in 0..times(3, 20) {
        let world = World::heavy();
        let count = 8;
        let rest = json!({"repeat": true, "delay_ms": 5, "text": "going on"});
        let lead = lead_rule(&[
            turn("", &staggered(count)),
            turn("", &[spawn("job", "Do the job.")]),
            json!({"when": {"notifications": format!("=={}", count + 1)}, "text": "all"}),
            rest.clone(),
        ]);
        let worker = worker_rule(
            "Do the job",
            &[
                turn("", &staggered(count)),
                json!({"when": {"notifications": format!("=={count}")}, "text": "all of mine"}),
                rest,
            ],
        );
        let book = book(&world, &[lead, worker]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "all");
        let session = world.session(&done.session());
        session.check();
        each_told_once(&session.lines());
        let agent = session.agent("job");
        each_told_once(&agent.lines());
        assert_eq!(agent.outcome()["result"], "all of mine");
        assert_eq!(agent.outcome()["leftovers"], json!([]));
        world.assert_nothing_left();
    }
}

#[test]
fn shells_that_are_stopped_about_when_they_end_are_each_told_once() {
    for _ in 0..times(3, 20) {
        let world = World::heavy();
        let count = 6;
        // One turn starts them, the next stops them by their ids, which stand in its results.
        let find = (0..count).map(|n| format!("id: (?<s{n}>b-[0-9a-f]{{8}})")).collect::<Vec<_>>().join("[\\s\\S]*?");
        let stops: Vec<Value> =
            (0..count).map(|n| call("TaskStop", json!({"task_id": format!("{{{{capture.s{n}}}}}")}))).collect();
        let lead = lead_rule(&[
            turn("", &staggered(count)),
            json!({"when": {"results": format!("=={count}"), "any": find}, "delay_ms": 15, "tools": stops}),
            json!({"when": {"notifications": format!("=={count}")}, "text": "all"}),
            json!({"repeat": true, "text": "going on"}),
        ]);
        let book = book(&world, &[lead]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "all");
        each_told_once(&world.session(&done.session()).lines());
        for (text, is_error) in book.last().results().split_off(count) {
            let told = if is_error { "has ended already" } else { " ended: " };
            assert!(text.contains(told), "{text}");
        }
        let notes = book.last().notes();
        assert!(notes.iter().all(|n| ["completed", "killed"].contains(&n.status().as_str())), "{notes:#?}");
        world.assert_nothing_left();
    }
}

#[test]
fn a_session_and_an_agent_killed_at_any_moment_are_told_of_each_shell_once() {
    for round in 0..times(4, 30) {
        let world = World::heavy().killed_anywhere();
        let count = 6;
        let mut named = spawn("job", "Do the job.");
        named["input"]["name"] = json!("job");
        let lead = lead_rule(&[
            json!({"when": {"latest": "^go$"}, "tools": [named]}),
            json!({"when": {"results": "==1"}, "tools": staggered(count)}),
            json!({"when": {"latest": "a last word"}, "tools": [tell("job", "Are you there?")]}),
            json!({"repeat": true, "delay_ms": 5, "text": "going on"}),
        ]);
        let worker = worker_rule(
            "Do the job",
            &[
                json!({"when": {"latest": "^Do the job.$"}, "tools": staggered(count)}),
                json!({"repeat": true, "delay_ms": 5, "text": "going on"}),
            ],
        );
        let book = book(&world, &[lead, worker]);
        let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
        let agent = eventually("the agent's first shells", || {
            let agents = world.find_session(ID).map(|s| s.agents()).unwrap_or_default();
            let agent = agents.into_iter().next().filter(|a| a.path.exists());
            agent.filter(|a| std::fs::read_to_string(&a.path).is_ok_and(|t| t.contains("backgroundTaskId"))).ok_or(())
        });
        let moment = u64::from(uuid::Uuid::new_v4().as_bytes()[round % 16]) / 3;
        let run = run.wait_for(std::time::Duration::from_millis(moment));
        if let Some(row) = world.workers().first().filter(|_| round % 2 == 0) {
            let pid = pid_of(row);
            if nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok() {
                signal(pid, Signal::SIGKILL);
            }
        }
        // It may have ended by itself before.
        run.map_or_else(|run| drop(run.kill()), drop);
        let resumed = |prompt: &str| world.headless(&book.model(), prompt).args(&["--resume", ID]).run();
        resumed("and now?").expect(0);
        resumed("a last word").expect(0);
        resumed("the end").expect(0);
        let session = world.session(ID);
        let lines = session.lines();
        if !started(&lines).is_empty() {
            each_told_once(&lines);
        }
        let of_agent = session.agents().into_iter().find(|a| a.id == agent.id).unwrap();
        each_told_once(&of_agent.lines());
        session.check();
        world.assert_nothing_left();
    }
}

const ID: &str = "33333333-2222-4333-8444-555555555555";
