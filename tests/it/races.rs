//! Things that happen at the same moment. Each is repeated; whatever order they fall into, every
//! message is seen once, every run ends once and is told of once.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{World, ask, bash, book, lead_rule, signal, spawn, stop, tell, text_of, times, turn, worker_rule};

#[test]
fn a_message_to_an_agent_that_is_just_ending_is_never_lost() {
    for _ in 0..times(3, 20) {
        let world = World::heavy();
        let count = 8;
        let jobs: Vec<Value> = (0..count).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
        let tells: Vec<Value> =
            (1..=count).map(|n| tell(&format!("{{{{agent.{n}}}}}"), &format!("message number {n}."))).collect();
        let lead = lead_rule(&[
            turn("", &jobs),
            json!({"when": {"results": format!("=={count}")}, "tools": tells}),
            json!({"when": {"results": format!("=={}", 2 * count)}, "repeat": true, "text": "over"}),
        ]);
        // They end about when the messages come: one after another, some before and some after.
        let worker = worker_rule("Do the job", &[json!({"repeat": true, "delay_ms": 12, "text": "done: {{prompt}}"})]);
        let book = book(&world, &[lead, worker]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "over");
        let answers = book.last().results().split_off(count);
        let session = world.session(&done.session());
        session.check();
        for (n, agent) in (1..=count).zip((0..count).map(|n| session.agent(&format!("job {n}")))) {
            let (answer, is_error) = &answers[n - 1];
            assert!(!is_error && (answer.starts_with("queued") || answer.starts_with("resumed")), "{answer}");
            let text = format!("message number {n}.");
            let seen = agent.said().iter().filter(|l| text_of(&l["message"]["content"]).contains(&text)).count();
            assert_eq!(seen, 1, "{answer}: {:#?}", agent.lines());
        }
        world.assert_nothing_left();
    }
}

#[test]
fn two_messages_to_an_ended_agent_continue_it_once_and_are_both_seen() {
    for round in 0..times(4, 20) {
        let world = World::heavy();
        // An agent that ends at once takes one message per run, and a sender tries three times; one
        // that takes a moment sees the others while it runs.
        let (count, delay) = if round % 2 == 0 { (3, 0) } else { (6, 40) };
        let tells: Vec<Value> = (0..count).map(|n| tell("{{agent.1}}", &format!("message number {n}."))).collect();
        let lead = lead_rule(&[
            turn("", &[ask("job", "Do the job.")]),
            json!({"when": {"latest": "agentId"}, "tools": tells}),
            json!({"when": {"notifications": ">=1"}, "repeat": true, "text": "over"}),
        ]);
        let worker = worker_rule("Do the job", &[json!({"repeat": true, "delay_ms": delay, "text": "done"})]);
        let book = book(&world, &[lead, worker]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "over");
        let results = book.last().results();
        assert!(results.iter().all(|(_, is_error)| !is_error), "{results:?}");
        assert!(results.iter().any(|(text, _)| text.starts_with("resumed")), "{results:?}");
        let session = world.session(&done.session());
        session.check();
        let said: Vec<String> = session.agent("job").said().iter().map(|l| text_of(&l["message"]["content"])).collect();
        for n in 0..count {
            let text = format!("message number {n}.");
            assert_eq!(said.iter().filter(|s| s.contains(&text)).count(), 1, "{said:?}");
        }
        world.assert_nothing_left();
    }
}

#[test]
fn a_stop_that_meets_the_end_makes_one_outcome_and_one_notice() {
    for _ in 0..times(3, 20) {
        let world = World::heavy();
        let count = 8;
        let jobs: Vec<Value> = (0..count).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
        let stops: Vec<Value> = (1..=count).map(|n| stop(&format!("{{{{agent.{n}}}}}"))).collect();
        let lead = lead_rule(&[
            turn("", &jobs),
            json!({"when": {"results": format!("=={count}")}, "tools": stops}),
            json!({"when": {"notifications": format!("=={count}")}, "text": "over"}),
        ]);
        let worker =
            worker_rule("Do the job", &[json!({"delay_ms": 10, "tools": [bash("echo x")]}), turn("done", &[])]);
        let book = book(&world, &[lead, worker]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "over");
        let session = world.session(&done.session());
        session.check();
        for agent in session.agents() {
            let outcome = agent.outcome();
            let status = outcome["status"].as_str().unwrap();
            assert!(["completed", "killed"].contains(&status), "{outcome:#}");
        }
        world.assert_nothing_left();
    }
}

#[test]
fn workers_killed_at_any_moment_are_each_told_of_once_and_can_go_on() {
    for round in 0..times(3, 20) {
        let world = World::heavy().killed_anywhere();
        let jobs: Vec<Value> = (0..3).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
        let tells: Vec<Value> = (1..=3).map(|n| tell(&format!("{{{{agent.{n}}}}}"), "Once more.")).collect();
        let lead = lead_rule(&[
            turn("", &jobs),
            json!({"when": {"notifications": "==3"}, "tools": tells}),
            json!({"when": {"notifications": ">=6"}, "text": "over"}),
        ]);
        let step =
            |n: usize| json!({"delay_ms": 15, "text": format!("step {n}"), "tools": [bash("sleep 0.01; echo x")]});
        let worker = worker_rule("Do the job", &[step(1), step(2), step(3), json!({"repeat": true, "text": "done"})]);
        let book = book(&world, &[lead, worker]);
        let mut run = world.headless(&book.model(), "go").start();
        // One after another is killed, at moments of no plan, as long as there are any.
        let mut killed = 0;
        let done = loop {
            let moment = u64::from(uuid::Uuid::new_v4().as_bytes()[round % 16]) / 4;
            match run.wait_for(std::time::Duration::from_millis(moment)) {
                Ok(done) => break done,
                Err(running) => run = running,
            }
            let workers = world.processes().into_iter().filter(|p| p.command.contains("lead-worker --role"));
            if let Some(worker) = workers.min_by_key(|p| p.pid).filter(|_| killed < 4) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker.pid), Signal::SIGKILL);
                killed += 1;
            }
        };
        done.expect(0);
        world.session(&done.session()).check();
        world.assert_nothing_left();
    }
}

#[test]
fn two_sessions_side_by_side_do_not_touch_each_other() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job of {{prompt}}.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}"}),
    ]);
    let of = |name: &str| {
        let turns = [turn("", &[bash(&gate.arrive(name))]), turn("done", &[])];
        worker_rule(&format!("job of {name}"), &turns)
    };
    let book = book(&world, &[lead, of("one"), of("two")]);
    let one = world.headless(&book.model(), "one").start();
    let two = world.headless(&book.model(), "two").start();
    let tools = ["one", "two"].map(|f| world.wait_file(f).parse::<i32>().unwrap());
    let session = |pid: i32| {
        let rows = world.ps(&[]);
        rows.iter().find(|r| r["pid"] == pid).map(|r| r["session"].as_str().unwrap().to_owned()).unwrap()
    };
    let (of_one, of_two) = (session(one.pid()), session(two.pid()));
    let worker = world.workers().into_iter().find(|r| r["session"] == of_one.as_str()).unwrap();
    // The first session and its worker die; a third one starts and sweeps what they left.
    one.kill().expect_killed();
    signal(i32::try_from(worker["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);
    let third = world.headless(&book.model(), "three").args(&["--max-turns", "1"]).run();
    assert!(third.code.is_some(), "{third:#?}");
    assert!(!crate::support::exists(tools[0]), "the tool of the dead is swept");
    assert!(crate::support::exists(tools[1]), "the tool of the living is not");
    gate.open(4);
    assert_eq!(two.wait().expect(0).result(), "completed");
    let again = world.headless(&book.model(), "again").args(&["--resume", &of_one]).run();
    again.expect(0);
    for id in [of_one, of_two] {
        world.session(&id).check();
    }
    world.assert_nothing_left();
}
