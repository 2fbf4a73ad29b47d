//! Many workers at once, and the limits on them.

use serde_json::json;

use crate::support::{World, ask, bash, book, eventually, lead_rule, spawn, times, turn, worker_rule};

#[test]
fn two_hundred_workers_live_at_once_and_all_report() {
    // On a busy machine the last of 200 that start together may take longer than one alone may.
    let world = World::heavy().with_limits("ready=60s,handshake=60s");
    let gate = world.gate("gate");
    let count = 200;
    let jobs: Vec<_> = (0..count).map(|n| spawn(&format!("job {n}"), &format!("Do job {n}."))).collect();
    let lead =
        lead_rule(&[turn("", &jobs), json!({"when": {"notifications": format!(">={count}")}, "text": "all of them"})]);
    let worker = worker_rule("Do job", &[turn("", &[bash(&gate.wait())]), turn("did: {{prompt}}", &[])]);
    let book = book(&world, &[lead, worker]);
    let settings = json!({"lead": {"maxAgents": count}}).to_string();
    let run = world.headless(&book.model(), "go").args(&["--settings", &settings]).start();
    let rows = eventually("200 workers alive at once", || {
        let rows = world.workers();
        if rows.len() == count { Ok(rows) } else { Err(rows.len()) }
    });
    let mut pids: Vec<i64> = rows.iter().filter_map(|r| r["pid"].as_i64()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), count, "each is a process of its own");
    gate.open(count);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "all of them");
    let notes = book.last().notes();
    assert_eq!(notes.len(), count);
    for n in 0..count {
        let result = format!("did: Do job {n}.");
        assert_eq!(notes.iter().filter(|note| note.get("result") == result).count(), 1, "{result}");
    }
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r101_the_sixty_fifth_worker_is_refused_by_default() {
    let world = World::heavy().with_limits("ready=60s,handshake=60s");
    let gate = world.gate("gate");
    let jobs: Vec<_> = (0..65).map(|n| spawn(&format!("job {n}"), &format!("Do job {n}."))).collect();
    let lead = lead_rule(&[turn("", &jobs), json!({"when": {"notifications": ">=64"}, "text": "64 of them"})]);
    let worker = worker_rule("Do job", &[turn("", &[bash(&gate.wait())]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    eventually("64 workers alive at once", || {
        let count = world.workers().len();
        if count == 64 { Ok(()) } else { Err(count) }
    });
    gate.open(64);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "64 of them");
    let results = book.last().results();
    let refused: Vec<_> = results.iter().filter(|(_, is_error)| *is_error).collect();
    assert_eq!((results.len(), refused.len()), (65, 1));
    assert!(refused[0].0.contains("lead.maxAgents") && refused[0].0.contains("64"), "{refused:?}");
    assert_eq!(world.session(&done.session()).agents().len(), 64, "nothing of the refused one is left");
    world.assert_nothing_left();
}

#[test]
fn r101_the_total_is_limited_too_and_agents_can_still_be_continued() {
    let world = World::new();
    let jobs: Vec<_> = (0..3).map(|n| ask(&format!("job {n}"), "Do the job.")).collect();
    let lead = lead_rule(&[turn("", &jobs), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    let settings = json!({"lead": {"maxAgentsTotal": 2}}).to_string();
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    done.expect(0);
    let refused: Vec<_> = book.last().results().into_iter().filter(|(_, is_error)| *is_error).collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0.contains("lead.maxAgentsTotal"), "{refused:?}");
    world.assert_nothing_left();
}

#[test]
fn r101_an_agent_can_not_start_agents() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("over", &[])]);
    let worker = worker_rule("Do the job", &[turn("", &[ask("deeper", "Go deeper.")]), turn("tried", &[])]);
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let results = book.asked("Do the job").pop().unwrap().results();
    assert!(results[0].1, "{results:?}");
    assert_eq!(world.session(&done.session()).agents().len(), 1);
}

#[test]
fn r065_an_ended_child_frees_its_slot_at_the_cap() {
    let world = World::new();
    let rounds = 5;
    let mut turns: Vec<_> = (0..rounds).map(|n| turn("", &[ask(&format!("job {n}"), "Do the job.")])).collect();
    turns.push(turn("over", &[]));
    let book = book(&world, &[lead_rule(&turns), worker_rule("Do the job", &[turn("done", &[])])]);
    let settings = json!({"lead": {"maxAgents": 1}}).to_string();
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    assert_eq!(done.expect(0).result(), "over");
    let results = book.last().results();
    assert_eq!(results.len(), rounds);
    assert!(results.iter().all(|(_, is_error)| !is_error), "{results:?}");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r065_a_frozen_child_holds_no_other_up() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("frozen", "Do the slow job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"when": {"results": "==2"}, "tools": [ask("other", "Do the quick job.")]}),
        json!({"when": {"results": "==3"}, "tools": [bash("echo > quick-done")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let slow = worker_rule("slow job", &[turn("", &[bash(&gate.arrive("slow-here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, slow, worker_rule("quick job", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("slow-here");
    world.wait_file("lead-here");
    let pid = i32::try_from(world.wait_workers(1)[0]["pid"].as_i64().unwrap()).unwrap();
    crate::support::signal(pid, nix::sys::signal::Signal::SIGSTOP);
    gate.open(2);
    world.wait_file("quick-done");
    crate::support::signal(pid, nix::sys::signal::Signal::SIGCONT);
    assert_eq!(run.wait().expect(0).result(), "over");
    world.assert_nothing_left();
}

#[test]
fn r054_one_request_makes_one_process_and_one_transcript() {
    for _ in 0..times(1, 5) {
        let world = World::heavy();
        let jobs: Vec<_> = (0..20).map(|n| spawn(&format!("job {n}"), &format!("Do job {n}."))).collect();
        let lead = lead_rule(&[turn("", &jobs), json!({"when": {"notifications": ">=20"}, "text": "over"})]);
        let book = book(&world, &[lead, worker_rule("Do job", &[turn("done", &[])])]);
        let done = world.headless(&book.model(), "go").run();
        assert_eq!(done.expect(0).result(), "over");
        let agents = world.session(&done.session()).agents();
        let mut calls: Vec<_> = agents.iter().map(|a| a.meta["toolUseId"].as_str().unwrap().to_owned()).collect();
        calls.sort();
        calls.dedup();
        let mut pids: Vec<_> = book.of("worker").iter().map(|r| r.pid()).collect();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!((agents.len(), calls.len(), pids.len(), book.of("worker").len()), (20, 20, 20, 20));
        world.session(&done.session()).check();
        world.assert_nothing_left();
    }
}
