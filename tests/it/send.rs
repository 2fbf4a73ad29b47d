//! `lead send` and `lead attach`: words for agents, sessions and addresses, and what becomes of them.

use std::io::Write as _;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Done, Gate, World, bash, book, error_of, eventually, lead_rule, pid_of, resuming, signal, spawned, spawning,
    text, times, turn, worker_rule,
};

const ID: &str = "99999999-2222-4333-8444-555555555555";
const UNKNOWN: &str = "a-0123456789abcdef";

/// Agents that wait at a gate in their first run and go on when they are told something, and a lead
/// that waits at one too.
fn a_book(world: &World, gate: &Gate) -> Book {
    let lead = lead_rule(&[
        json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"repeat": true, "text": "over"}),
    ]);
    let slow = [turn("Begun.", &[bash(&gate.arrive("here"))]), json!({"repeat": true, "text": "heard you"})];
    book(world, &[lead, worker_rule("slow", &slow), worker_rule("", &[json!({"repeat": true, "text": "done"})])])
}

fn send(world: &World, args: &[&str]) -> Done {
    world.lead(&["send", "--json"]).args(args).run()
}

/// What the agent of a row was told, the first prompt included.
fn told(world: &World, row: &Value) -> Vec<String> {
    let agents = world.session(&text(row, "session")).agents();
    let agent = agents.into_iter().find(|a| a.id == row["id"]).unwrap();
    let of = |l: &Value| crate::support::text_of(&l["message"]["content"]);
    agent.said().iter().map(of).collect()
}

#[test]
fn a_detached_agent_is_reached_by_id_prefix_name_and_address() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &["--name", "bob"]);
    world.wait_file("here");
    let (id, address) = (text(&row, "id"), text(&row, "address"));
    for (n, to) in [id.as_str(), &id[..9], "bob", &address].into_iter().enumerate() {
        let sent = send(&world, &[to, &format!("message {n}")]).expect(0).json();
        let fields: Vec<&str> = sent.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["outcome", "to", "id", "message"]);
        assert_eq!((&sent["outcome"], &sent["to"], &sent["id"]), (&json!("queued"), &json!(to), &json!(id)));
    }
    let piped = world.lead(&["send", "bob", "-"]).stdin("message 4").run();
    assert!(piped.expect(0).stdout.starts_with(&format!("{id}  queued")), "{piped:#?}");
    gate.open(1);
    // By its id: one that has ended has no name.
    world.lead(&["wait", &id]).run().expect(0);
    let told = told(&world, &row);
    assert_eq!(told, ["slow job", "message 0", "message 1", "message 2", "message 3", "message 4"]);
    let lines = world.session(&text(&row, "session")).agents()[0].lines();
    assert!(lines.iter().filter(|l| l["operation"] == "enqueue").all(|l| l["from"] == "user"), "{lines:#?}");
    world.assert_nothing_left();
}

#[test]
fn an_agent_that_has_ended_is_continued_without_a_lead() {
    let world = World::new();
    let book = a_book(&world, &world.gate("gate"));
    let row = spawned(&world, &book, "quick job", &[]);
    let id = text(&row, "id");
    world.lead(&["wait", &id]).run().expect(0);
    let sent = send(&world, &[&id, "one more thing"]).expect(0).json();
    assert_eq!(sent["outcome"], "resumed");
    world.lead(&["wait", &id]).run().expect(0);
    assert_eq!(told(&world, &row), ["quick job", "one more thing"]);
    let session = text(&row, "session");
    let files = &world.session(&session).agents()[0];
    let runs: Vec<_> = files.outcomes().iter().map(|o| (o["run"].clone(), o["status"].clone())).collect();
    assert_eq!(runs, [(json!(1), json!("completed")), (json!(2), json!("completed"))]);
    assert!(book.requests().iter().all(|r| r.0["caller"]["role"] == "worker"), "no lead was asked");
    resuming(&world, &book, &session, None).run().expect(0);
    assert_eq!(book.last().notes().len(), 2, "both ends are told");
    world.session(&session).check();
    world.assert_nothing_left();
}

#[test]
fn messages_that_race_an_agent_s_end_arrive_once_whatever_becomes_of_them() {
    for _ in 0..times(2, 20) {
        let world = World::heavy();
        let gate = world.gate("gate");
        let book = a_book(&world, &gate);
        let row = spawned(&world, &book, "slow job", &[]);
        let id = text(&row, "id");
        world.wait_file("here");
        gate.open(1);
        let count = 6;
        let sends: Vec<_> =
            (0..count).map(|n| world.lead(&["send", "--json", &id, &format!("message {n}")]).start()).collect();
        for sent in sends {
            let row = sent.wait().expect(0).json();
            assert!(matches!(row["outcome"].as_str(), Some("queued" | "resumed")), "{row:#}");
        }
        world.wait_quiet();
        let mut told = told(&world, &row);
        told.sort();
        let expected: Vec<String> = (0..count).map(|n| format!("message {n}")).chain(["slow job".to_owned()]).collect();
        assert_eq!(told, expected);
        resuming(&world, &book, &text(&row, "session"), None).run().expect(0);
        world.session(&text(&row, "session")).check();
        world.assert_nothing_left();
    }
}

#[test]
fn a_lead_that_runs_routes_to_its_agents_and_continues_them() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    let into = |prompt: &str, name: &str| {
        let done = world.lead(&["spawn", "--json", "--session", ID, "--name", name, prompt]).run();
        done.expect(0).json()
    };
    let (slow, quick) = (into("slow job", "slow"), into("quick job", "quick"));
    world.wait_file("here");
    world.lead(&["wait", &text(&quick, "id")]).run().expect(0);
    assert_eq!(send(&world, &["slow", "hello"]).expect(0).json()["outcome"], "queued");
    assert_eq!(send(&world, &[&text(&quick, "id"), "again"]).expect(0).json()["outcome"], "resumed");
    world.lead(&["wait", &text(&quick, "id")]).run().expect(0);
    gate.open(2);
    lead.wait().expect(0);
    assert_eq!(told(&world, &slow), ["slow job", "hello"]);
    assert_eq!(told(&world, &quick), ["quick job", "again"]);
    let files = world.session(ID).agents();
    let from = |id: &Value| files.iter().find(|a| a.id == *id).unwrap().said()[1]["from"].clone();
    assert_eq!((from(&slow["id"]), from(&quick["id"])), (json!("user"), json!("user")));
    world.session(ID).check();
    world.session(ID).paired();
    world.assert_nothing_left();
}

#[test]
fn a_session_hears_the_person_after_its_turn_or_at_its_next_step() {
    for (flags, heard_in_turn) in [(&[][..], false), (&["--now"][..], true)] {
        let world = World::heavy();
        let gate = world.gate("gate");
        let lead = lead_rule(&[
            json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("lead-here"))]}),
            json!({"repeat": true, "text": "step {{result.1}}"}),
        ]);
        let book = book(&world, &[lead]);
        let run = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
        world.wait_file("lead-here");
        let sent = send(&world, &[&ID[..4], "listen"]).expect(0).json();
        assert_eq!((&sent["outcome"], &sent["id"]), (&json!("queued"), &json!(ID)));
        world.lead(&["send", ID, "and this"]).args(flags).run().expect(0);
        gate.open(1);
        run.wait().expect(0);
        let asked = book.of("lead");
        assert_eq!(asked.len(), 3, "{asked:#?}");
        assert_eq!(asked[1].latest().contains("and this"), heard_in_turn, "{asked:#?}");
        assert!(!asked[1].latest().contains("listen"), "{asked:#?}");
        assert!(asked[2].latest().contains("listen"), "{asked:#?}");
        assert_eq!(asked[2].all().matches("and this").count(), 1);
        assert!(!asked[2].all().contains("cross-session"), "it is the person's own word: {asked:#?}");
        assert_eq!(error_of(send(&world, &[ID, "too late"]).expect(3))["code"], "not_running");
        world.assert_nothing_left();
    }
}

#[test]
fn what_can_not_be_sent_is_told_with_its_exit_code() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "quick job", &["--session-id", ID]);
    world.wait_quiet();
    assert_eq!(error_of(send(&world, &[UNKNOWN, "x"]).expect(4))["code"], "not_found");
    assert_eq!(error_of(send(&world, &["nobody", "x"]).expect(4))["code"], "not_found");
    let dead = send(&world, &[&text(&row, "address"), "x"]);
    assert_eq!(error_of(dead.expect(4))["code"], "unreachable");
    send(&world, &["tcp:10.0.0.1:80", "x"]).expect(2).json();
    assert!(error_of(send(&world, &["bridge:x", "x"]).expect(2))["message"].as_str().unwrap().contains("bridge:"));
    send(&world, &[&text(&row, "id"), " "]).expect(2);
    let limit = lead::core::limits::MESSAGE_BYTES;
    let long = world.lead(&["send", &text(&row, "id"), "-"]).stdin(vec![b'x'; limit + 1]).run();
    long.expect(2).says(&[&limit.to_string()]);
    world.lead(&["send", &text(&row, "id"), "-"]).stdin(vec![b'x'; limit]).run().expect(0);
    world.wait_quiet();
    assert_eq!(told(&world, &row)[1].len(), limit);
    // A beginning that fits agents and sessions is nobody's.
    let hex = "a0000000-2222-4333-8444-555555555555";
    spawned(&world, &book, "quick job", &["--session-id", hex]);
    world.wait_quiet();
    let both = send(&world, &["a", "x"]);
    let error = error_of(both.expect(2));
    assert_eq!(error["code"], "ambiguous");
    assert!(error["message"].as_str().is_some_and(|m| m.contains(hex) && m.contains(&text(&row, "id"))), "{error:#}");
    // A file of the agent's that is gone is named.
    let file = text(&row, "transcript");
    std::fs::remove_file(&file).unwrap();
    let mut meta = world.session(ID).agents()[0].meta.clone();
    meta["createdAt"] = json!(1);
    std::fs::write(file.replace(".jsonl", ".meta.json"), meta.to_string()).unwrap();
    send(&world, &[&text(&row, "id"), "x"]).expect(4);
    world.assert_nothing_left();
}

#[test]
fn r031_every_address_that_ps_prints_takes_messages_and_says_what_became_of_them() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    world.lead(&["spawn", "--session", ID, "slow job"]).run().expect(0);
    world.wait_file("here");
    spawned(&world, &book, "slow job", &[]);
    let rows = eventually("a lead and two agents at work", || {
        let rows = world.ps(&[]);
        if rows.iter().filter(|r| r["tool_uses"] == 1).count() == 3 { Ok(rows) } else { Err(rows) }
    });
    for row in &rows {
        for to in [text(row, "address"), text(row, "id")] {
            let sent = send(&world, &[&to, "hello"]).expect(0).json();
            assert_eq!((&sent["outcome"], &sent["id"]), (&json!("queued"), &row["id"]), "{to}");
        }
    }
    gate.open(3);
    lead.wait().expect(0);
    world.wait_quiet();
    for row in rows.iter().filter(|r| r["role"] == "worker") {
        assert_eq!(send(&world, &[&text(row, "id"), "again"]).expect(0).json()["outcome"], "resumed");
    }
    world.wait_quiet();
    // A refusal is told as one.
    let refused = send(&world, &[ID, "hello"]);
    assert!(matches!(refused.code, Some(3)), "{refused:#?}");
    world.assert_nothing_left();
}

#[test]
fn r064_a_send_to_a_frozen_agent_or_lead_ends_in_time_and_names_it() {
    let world = World::heavy().with_limits("reply=300ms,status=300ms,resume=600ms,handshake=300ms");
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &[]);
    world.wait_file("here");
    signal(pid_of(&row), Signal::SIGSTOP);
    for to in [text(&row, "id"), text(&row, "address")] {
        let error = error_of(send(&world, &[&to, "hello"]).expect(5));
        assert!(error["message"].as_str().unwrap().contains(&pid_of(&row).to_string()), "{error:#}");
    }
    assert_eq!(world.ps(&[]).len(), 1);
    world.lead(&["sessions"]).run().expect(0);
    world.lead(&["wait", "--idle", "--timeout", "200ms", &text(&row, "id")]).run().expect(5);
    signal(pid_of(&row), Signal::SIGCONT);
    gate.open(1);
    world.lead(&["wait", &text(&row, "id")]).run().expect(0);

    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    std::fs::remove_file(world.cwd().join("here")).unwrap();
    let agent = world.lead(&["spawn", "--json", "--session", ID, "slow job"]).run().expect(0).json();
    world.wait_file("here");
    lead.signal(Signal::SIGSTOP);
    for to in [ID.to_owned(), text(&agent, "id")] {
        let error = error_of(send(&world, &[&to, "hello"]).expect(5));
        assert!(error["message"].as_str().unwrap().contains(&lead.pid().to_string()), "{error:#}");
    }
    let spawn = world.lead(&["spawn", "--json", "--session", ID, "slow job"]).run();
    assert!(error_of(spawn.expect(5))["message"].as_str().unwrap().contains(&lead.pid().to_string()));
    let background = world.lead(&["background", "--json", &text(&agent, "id")]).run();
    assert!(error_of(background.expect(5))["message"].as_str().unwrap().contains(&lead.pid().to_string()));
    world.lead(&["sessions", "rm", ID]).run().expect(3);
    lead.signal(Signal::SIGCONT);
    gate.open(2);
    lead.wait().expect(0);
    world.wait_quiet();
    world.session(ID).check();
}

#[test]
fn r064_a_message_through_a_lead_to_its_frozen_agent_is_refused_in_time() {
    let world = World::heavy().with_limits("reply=300ms");
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    let agent = world.lead(&["spawn", "--json", "--session", ID, "slow job"]).run().expect(0).json();
    world.wait_file("here");
    signal(pid_of(&agent), Signal::SIGSTOP);
    let row = send(&world, &[&text(&agent, "id"), "hello"]).expect(3).json();
    assert_eq!(row["outcome"], "refused");
    assert!(text(&row, "message").contains(&pid_of(&agent).to_string()), "{row:#}");
    signal(pid_of(&agent), Signal::SIGCONT);
    gate.open(2);
    lead.wait().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn attach_shows_what_is_said_sends_what_is_typed_and_ends_with_the_agent() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &["--name", "bob"]);
    world.wait_file("here");
    let mut attached = world.lead(&["attach", "bob"]).piped();
    let mut typing = attached.stdin.take().unwrap();
    typing.write_all(b"first line\n\nsecond line\n").unwrap();
    eventually("both lines are taken", || {
        let said = attached.running.stderr();
        if said.matches("queued").count() == 2 { Ok(()) } else { Err(said) }
    });
    gate.open(1);
    let shown = std::io::read_to_string(&mut attached.stdout).unwrap();
    attached.running.wait().expect(0);
    drop(typing);
    for part in ["Begun.\n", "call  Bash", "first line", "second line", "heard you\n", "completed"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(told(&world, &row), ["slow job", "first line", "second line"]);
    // One that has ended: what it said last, and how it ended.
    let late = world.lead(&["attach", &text(&row, "id")]).piped();
    let late_shown = std::io::read_to_string(late.stdout).unwrap();
    late.running.wait().expect(0);
    assert!(late_shown.contains("heard you"), "{late_shown}");
    world.lead(&["attach", UNKNOWN]).run().expect(4);
    world.assert_nothing_left();
}

#[test]
fn attach_lets_go_at_the_end_of_the_input_and_by_a_signal() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &[]);
    let id = text(&row, "id");
    world.wait_file("here");
    // What was piped in is sent before it lets go.
    let piped = world.lead(&["attach", &id]).stdin("only line\n").run();
    piped.expect(0).says(&["queued"]);
    let by_signal = world.lead(&["attach", "--json", &id]).piped();
    eventually("it shows the run", || {
        let seen = world.processes().iter().filter(|p| p.command.contains("attach")).count();
        if seen == 1 { Ok(()) } else { Err(seen) }
    });
    let mut first = std::io::BufReader::new(by_signal.stdout);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut first, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["what"], "prompt");
    by_signal.running.signal(Signal::SIGINT);
    by_signal.running.wait().expect(0);
    world.lead(&["kill", &id]).run().expect(0);
    world.lead(&["attach", &id]).piped().running.wait().expect(1);
    assert_eq!(told(&world, &row)[0], "slow job");
    world.assert_nothing_left();
}

#[test]
fn a_message_that_the_agent_took_in_before_it_was_killed_comes_first_when_it_goes_on() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawning(&world, &book, "slow job").run().expect(0).json();
    world.wait_file("here");
    send(&world, &[&text(&row, "id"), "before"]).expect(0);
    signal(pid_of(&row), Signal::SIGKILL);
    // Nobody has recorded its end yet: whoever continues it does.
    assert_eq!(send(&world, &[&text(&row, "id"), "after"]).expect(0).json()["outcome"], "resumed");
    world.wait_quiet();
    assert_eq!(told(&world, &row), ["slow job", "before", "after"]);
    resuming(&world, &book, &text(&row, "session"), None).run().expect(0);
    world.session(&text(&row, "session")).check();
    world.assert_nothing_left();
}
