//! `lead sessions` and `lead reap`: what is there, what was left behind, and how it goes.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Gate, World, bash, book, error_of, eventually, exists, lead_rule, pid_of, resuming, signal, spawn, spawned,
    text, turn, worker_rule,
};

const ID: &str = "bbbbbbbb-2222-4333-8444-555555555555";
const OTHER: &str = "cccccccc-2222-4333-8444-555555555555";

fn a_book(world: &World, gate: &Gate) -> Book {
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [spawn("job", "slow job of the lead")]}),
        json!({"when": {"notifications": ">=1"}, "text": "told"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let arrive = format!("sleep 1090 & touch here-$LEAD_AGENT_ID; {}", gate.wait());
    let slow = [turn("Begun.", &[bash(&arrive)]), turn("slow answer", &[])];
    book(world, &[lead, worker_rule("slow", &slow), worker_rule("quick", &[turn("done", &[])])])
}

fn list(world: &World) -> Vec<Value> {
    let rows = world.lead(&["sessions", "list", "--json"]).run().expect(0).json();
    rows.as_array().unwrap().clone()
}

fn row_of(world: &World, id: &str) -> Value {
    list(world).into_iter().find(|r| r["id"] == id).unwrap_or_else(|| panic!("{id} is not listed"))
}

/// Waits until so many agents work at the gate.
fn wait_here(world: &World, count: usize) {
    eventually("agents at the gate", || {
        let names = std::fs::read_dir(world.cwd()).unwrap().flatten().map(|e| e.file_name());
        let here = names.filter(|n| n.to_string_lossy().starts_with("here-")).count();
        if here == count { Ok(()) } else { Err(here) }
    });
}

#[test]
fn sessions_are_listed_by_what_becomes_of_them_and_removed_when_nothing_lives() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    assert!(list(&world).is_empty());
    let run = world.headless(&book.model(), "go and do").args(&["--session-id", ID]).start();
    wait_here(&world, 1);
    let row = row_of(&world, ID);
    let fields: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "id state cwd prompt member last_activity_ms agents alive undelivered pid address transcript";
    assert_eq!(fields, expected.split(' ').collect::<Vec<_>>());
    assert_eq!((&row["state"], &row["alive"], &row["prompt"]), (&json!("owned"), &json!(1), &json!("go and do")));
    assert_eq!((row["pid"].as_i64(), &row["cwd"]), (Some(i64::from(run.pid())), &json!(world.cwd())));
    let refused = world.lead(&["sessions", "rm", "--json", ID]).run();
    assert_eq!(error_of(refused.expect(3))["code"], "running");

    run.kill().expect_killed();
    eventually("its agent is an orphan", || {
        let row = row_of(&world, ID);
        if row["state"] == "orphaned" { Ok(()) } else { Err(row) }
    });
    let refused = error_of(world.lead(&["sessions", "rm", "--json", &ID[..4]]).run().expect(3));
    assert!(text(&refused, "message").contains("a-"), "it names the agent: {refused:#}");
    let shown = world.lead(&["sessions", "show", "--json", &ID[..5]]).run().expect(0).json();
    assert_eq!((&shown["id"], &shown["agent_rows"][0]["orphaned"]), (&json!(ID), &json!(true)));

    let row = spawned(&world, &book, "slow job", &["--session-id", OTHER]);
    wait_here(&world, 2);
    assert_eq!(row_of(&world, OTHER)["state"], "detached");
    let table = world.lead(&["sessions"]).run();
    assert!(table.expect(0).stdout.contains("detached") && table.stdout.contains("orphaned"), "{table:#?}");
    gate.open(2);
    world.wait_quiet();
    for id in [ID, OTHER] {
        let row = row_of(&world, id);
        assert_eq!((&row["state"], &row["undelivered"]), (&json!("ended"), &json!(1)), "{row:#}");
    }
    assert_eq!(
        list(&world).first().map(|r| r["id"].clone()),
        Some(row_of(&world, OTHER)["id"].clone()),
        "latest first"
    );
    resuming(&world, &book, ID, Some("and?")).run().expect(0);
    assert_eq!(row_of(&world, ID)["undelivered"], 0);
    let shown = world.lead(&["sessions", "show", ID]).run();
    assert!(shown.expect(0).stdout.contains("ended") && shown.stdout.contains("completed"), "{shown:#?}");

    let scratch = format!("/tmp/claude-{}", nix::unistd::getuid());
    let folder = std::path::Path::new(&scratch).join(lead::core::paths::sanitise_cwd(world.cwd())).join(OTHER);
    assert!(folder.exists());
    let removed = world.lead(&["sessions", "rm", "--json", &OTHER[..4], "nosuch"]).run();
    let rows = removed.expect(4).json();
    assert_eq!((&rows[0]["id"], &rows[0]["removed"]), (&json!(OTHER), &json!(true)));
    assert_eq!((&rows[1]["id"], &rows[1]["removed"]), (&json!("nosuch"), &json!(false)));
    assert!(world.find_session(OTHER).is_none() && !folder.exists());
    world.lead(&["result", &text(&row, "id")]).run().expect(4);
    assert!(!std::path::Path::new(&text(&row, "transcript")).exists());
    assert_eq!(list(&world).len(), 1, "the other one is untouched");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn r057_reap_ends_orphans_now_and_their_session_is_told_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    wait_here(&world, 1);
    let free = spawned(&world, &book, "slow job", &["--session-id", OTHER]);
    wait_here(&world, 2);
    run.kill().expect_killed();
    let orphan = eventually("an orphan", || {
        let rows = world.workers();
        rows.iter().find(|r| r["orphaned"] == true).cloned().ok_or(rows)
    });
    let plan = world.lead(&["reap", "--dry-run", "--json"]).run().expect(0).json();
    let whats = |rows: &Value| -> Vec<(String, String)> {
        rows.as_array().unwrap().iter().map(|r| (text(r, "what"), text(r, "id"))).collect()
    };
    let expected = [("orphan".to_owned(), text(&orphan, "id")), ("registry".to_owned(), ID.to_owned())];
    assert_eq!(whats(&plan), expected);
    assert!(exists(pid_of(&orphan)), "nothing was done");
    let done = world.lead(&["reap", "--json"]).run().expect(0).json();
    assert_eq!(whats(&done), expected);
    assert_eq!(done[0]["status"], "killed");
    assert!(!exists(pid_of(&orphan)) && exists(pid_of(&free)), "the person's own agent goes on");
    let outcome = world.session(ID).agents()[0].outcome();
    assert!(text(&outcome, "error").contains("lead reap"), "{outcome:#}");
    gate.open(1);
    world.lead(&["wait", &text(&free, "id")]).run().expect(0);
    resuming(&world, &book, ID, None).run().expect(0);
    world.session(ID).check();
    let nothing = world.lead(&["reap"]).run();
    assert!(nothing.expect(0).stdout.contains("nothing is left"), "{nothing:#?}");
    world.assert_nothing_left();
}

#[test]
fn reap_records_the_dead_ends_their_tools_and_forgets_who_never_was() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &["--session-id", ID]);
    wait_here(&world, 1);
    let tools: Vec<i32> =
        world.processes().iter().filter(|p| p.command.contains("sleep 1090")).map(|p| p.pid).collect();
    assert!(!tools.is_empty());
    signal(pid_of(&row), Signal::SIGKILL);
    eventually("it is gone", || if exists(pid_of(&row)) { Err(()) } else { Ok(()) });
    // One that never came to life.
    let never = "a-00112233445566aa";
    let folder = world.session(ID).path.with_extension("").join("subagents");
    let transcript = folder.join("agent-a00112233445566aa.jsonl");
    std::fs::write(transcript.with_extension("meta.json"), r#"{"agentType":"x","createdAt":1}"#).unwrap();
    let link = world.config().join("lead/agents").join(never);
    std::os::unix::fs::symlink(&transcript, &link).unwrap();

    let before = world.session(ID).agents().len();
    let plan = world.lead(&["reap", "--dry-run", "--json"]).run().expect(0).json();
    let plan: Vec<String> = plan.as_array().unwrap().iter().map(|r| text(r, "what")).collect();
    assert_eq!(plan.len(), 3, "{plan:?}");
    assert_eq!((before, world.session(ID).agents().len()), (2, 2));
    let rows = world.lead(&["reap", "--json"]).run().expect(0).json();
    let find = |what: &str| rows.as_array().unwrap().iter().find(|r| r["what"] == what).unwrap_or(&Value::Null);
    assert_eq!((&find("outcome")["id"], &find("outcome")["status"]), (&row["id"], &json!("failed")));
    assert!(!find("outcome")["leftovers"].as_array().unwrap().is_empty(), "{rows:#}");
    assert_eq!((&find("never_started")["id"], &find("never_started")["status"]), (&json!(never), &json!("removed")));
    assert!(tools.iter().all(|pid| !exists(*pid)), "{tools:?}");
    assert!(link.symlink_metadata().is_err() && !transcript.with_extension("meta.json").exists());
    world.assert_nothing_left();
    resuming(&world, &book, ID, None).run().expect(0);
    world.session(ID).check();
}

#[test]
fn r061_reap_kill_and_sessions_signal_nobody_because_of_a_pid_in_a_file() {
    let world = World::new();
    let mut bystander =
        Command::new("sleep").arg("1091").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(bystander.id()).unwrap();
    world.lead(&["ps"]).run().expect(0);
    let transcript = world.config().join("projects/p").join(ID).join("subagents/agent-a00112233445566aa.jsonl");
    let entry = json!({
        "address": format!("uds:{}/aaaaaaaaaaaa.sock", world.runtime().display()), "pid": pid, "role": "worker",
        "agentId": "a-00112233445566aa", "session": ID, "cwd": world.cwd(), "configDir": world.config(), "started": 1,
        "version": lead::core::frame::BUILD,
    });
    let state = json!({
        "state": "running", "owner": "lost", "run": 1, "type": "x", "description": "", "transcript": transcript,
        "since_ms": 1, "last_event_ms": 1,
    });
    std::fs::write(world.runtime().join("aaaaaaaaaaaa.json"), entry.to_string()).unwrap();
    std::fs::write(world.runtime().join("aaaaaaaaaaaa.state"), state.to_string()).unwrap();
    let killed = world.lead(&["kill", "a-00112233445566aa"]).run();
    assert!(killed.code.is_some_and(|c| c != 0), "{killed:#?}");
    world.lead(&["send", "a-00112233445566aa", "hello"]).run().expect(4);
    let rows = world.lead(&["reap", "--json"]).run().expect(0).json();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["what"]), (1, &json!("registry")));
    assert!(exists(pid), "a process that was never ours was killed");
    world.assert_nothing_left();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn r064_reap_ends_a_frozen_orphan_in_time() {
    let world = World::heavy().with_limits("stop_ask=300ms,stop_term=300ms");
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    wait_here(&world, 1);
    run.kill().expect_killed();
    let orphan = eventually("an orphan", || {
        let rows = world.workers();
        rows.iter().find(|r| r["orphaned"] == true).cloned().ok_or(rows)
    });
    signal(pid_of(&orphan), Signal::SIGSTOP);
    let rows = world.lead(&["reap", "--json"]).run().expect(0).json();
    assert_eq!((&rows[0]["what"], &rows[0]["status"]), (&json!("orphan"), &json!("killed")));
    resuming(&world, &book, ID, None).run().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn an_orphan_that_a_lead_has_taken_over_is_not_reaped() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    wait_here(&world, 1);
    run.kill().expect_killed();
    let lead = resuming(&world, &book, ID, None).start();
    eventually("it has an owner again", || {
        let rows = world.workers();
        let owned = world.ps(&[]).iter().any(|r| r["role"] == "lead");
        if owned && rows.len() == 1 && rows[0]["orphaned"] == false { Ok(()) } else { Err(rows) }
    });
    let rows = world.lead(&["reap", "--json"]).run().expect(0).json();
    assert!(rows.as_array().unwrap().iter().all(|r| r["what"] == "registry"), "{rows:#}");
    gate.open(1);
    lead.wait().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}
