//! `lead spawn`: agents that are the person's own, in sessions with and without a lead.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Done, Fake, Lead, World, bash, book, children_of, error_of, eventually, exists, lead_rule, pid_of, resuming,
    spawned, spawning, text, times, turn, worker_rule,
};

const ID: &str = "88888888-2222-4333-8444-555555555555";

/// Workers that wait at a gate, workers that don't, and a lead that says what it is told.
fn a_book(world: &World, gate: &crate::support::Gate) -> Book {
    let lead = lead_rule(&[
        json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"repeat": true, "when": {"notifications": ">=1"}, "text": "told: {{notification.1.result}}"}),
        json!({"repeat": true, "text": "nothing new"}),
    ]);
    let slow = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("slow answer", &[])];
    let quick = [turn("did: {{prompt}}", &[]), turn("did more", &[])];
    book(world, &[lead, worker_rule("slow", &slow), worker_rule("", &quick)])
}

fn note_lines(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|l| l["origin"]["kind"] == "agent-spawn").collect()
}

#[test]
fn an_agent_lives_on_by_itself_and_a_later_conversation_is_told_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &["--name", "bob"]);
    let fields: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "address", "pid", "session", "transcript"]);
    let (id, session) = (text(&row, "id"), text(&row, "session"));
    world.wait_file("here");
    let rows = world.ps(&[]);
    assert_eq!(rows.len(), 1, "nobody but the agent: {rows:#?}");
    let seen = &rows[0];
    assert_eq!((&seen["id"], &seen["name"], &seen["session"]), (&row["id"], &json!("bob"), &row["session"]));
    assert_eq!((&seen["pid"], &seen["address"]), (&row["pid"], &row["address"]));
    assert_eq!((&seen["detached"], &seen["orphaned"]), (&json!(true), &json!(false)));
    assert_eq!(seen["transcript"], row["transcript"]);
    // By its name as long as it lives, by its id whenever.
    world.lead(&["wait", "bob", "--timeout", "1ms"]).run().expect(5);
    let waiting = world.lead(&["wait", &id]).start();
    gate.open(1);
    assert!(waiting.wait().expect(0).stdout.contains("slow answer"));
    assert_eq!(world.lead(&["result", &id]).run().expect(0).stdout.trim(), "slow answer");
    world.assert_nothing_left();

    let files = world.session(&session).agents();
    assert_eq!((files.len(), &files[0].meta["detached"]), (1, &json!(true)));
    assert_eq!(files[0].said()[0]["from"], "user");
    let lines = world.session(&session).lines();
    let notes = note_lines(&lines);
    let note = notes[0]["message"]["content"][0]["text"].as_str().unwrap();
    assert!(notes.len() == 1 && note.contains(&id) && note.contains("slow job"), "{notes:#?}");
    // Without a prompt: what is undelivered begins the turn.
    let done = resuming(&world, &book, &session, None).run();
    assert_eq!(done.expect(0).result(), "told: slow answer");
    let asked = book.last().all();
    assert!(asked.contains("lead spawn") && asked.matches("<task-notification>").count() == 1, "{asked}");
    world.session(&session).check();
    resuming(&world, &book, &session, None).run().expect(2);
    assert_eq!(resuming(&world, &book, &session, Some("and?")).run().expect(0).result(), "told: slow answer");
    world.session(&session).check();
}

#[test]
fn stdout_is_the_id_alone_and_the_prompt_may_come_from_stdin() {
    let world = World::new();
    let book = a_book(&world, &world.gate("gate"));
    let args = ["spawn", "--model", &book.model()];
    for (done, prompt) in [
        (world.lead(&args).args(&["quick job"]).run(), "quick job"),
        (world.lead(&args).stdin("from a file\n").run(), "from a file"),
        (world.lead(&args).args(&["-"]).stdin("promised\n").run(), "promised"),
    ] {
        let id = done.expect(0).stdout.trim_end_matches('\n').to_owned();
        assert!(id.len() == 18 && id.starts_with("a-"), "{done:#?}");
        assert!(done.stderr.is_empty(), "{done:#?}");
        let row = world.lead(&["wait", "--json", &id]).run().expect(0).json();
        assert_eq!(text(&row[0], "result").trim_end(), format!("did: {prompt}"));
    }
    let limit = lead::core::limits::PROMPT_BYTES;
    world.lead(&args).stdin(vec![b'x'; limit + 1]).run().expect(2).says(&[&limit.to_string()]);
    world.lead(&args).args(&["-"]).stdin(vec![b'x'; limit + 1]).run().expect(2).says(&[&limit.to_string()]);
    world.lead(&args).stdin(" \n").run().expect(2);
    world.lead(&args).run().expect(2).says(&["no prompt"]);
    world.assert_nothing_left();
}

#[test]
fn r088_the_session_of_a_spawn_can_be_resumed_while_its_agent_runs() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let row = spawned(&world, &book, "slow job", &["--session-id", ID]);
    assert_eq!(text(&row, "session"), ID);
    world.wait_file("here");
    let lead = resuming(&world, &book, ID, None).start();
    eventually("the agent has an owner", || {
        let rows = world.workers();
        if rows.len() == 1 && rows[0]["detached"] == false { Ok(()) } else { Err(rows) }
    });
    gate.open(1);
    assert_eq!(lead.wait().expect(0).result(), "told: slow answer");
    world.session(ID).check();
    // The same id can't be taken twice.
    let again = spawning(&world, &book, "job").args(&["--session-id", ID]).run();
    assert_eq!(error_of(again.expect(3))["code"], "session_exists");
    world.assert_nothing_left();
}

#[test]
fn refusals_say_what_is_wrong_and_leave_nothing() {
    let world = World::new();
    let book = a_book(&world, &world.gate("gate"));
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let done = spawning(&world, &book, "job").args(args).run();
        let error = error_of(done.expect(code));
        for part in parts {
            assert!(error.to_string().contains(part), "{part}: {error:#}");
        }
    };
    refused(&["--type", "nosuch"], 2, &["nosuch", "general-purpose", "Explore"]);
    refused(&["--name", "no/path"], 2, &["no/path", "try"]);
    refused(&["--isolation", "worktree"], 2, &["worktree"]);
    refused(&["--resume", ID], 2, &["--resume", "--session"]);
    refused(&["--json-schema", "{}"], 2, &["--json-schema"]);
    refused(&["--session", ID], 4, &[ID]);
    refused(&["--settings", r#"{"lead": {"maxAgents": 0}}"#], 3, &["lead.maxAgents"]);
    refused(
        &["--settings", r#"{"permissions": {"deny": ["Agent(Explore)"]}}"#, "--type", "Explore"],
        3,
        &["denied by rule"],
    );
    refused(&["--cwd", "/no/such/folder"], 2, &["/no/such/folder"]);
    let unknown = world.lead(&["spawn", "--json", "--model", "nosuch", "job"]).run();
    assert_eq!(error_of(unknown.expect(2))["code"], "unknown_model");
    let none = world.lead(&["spawn", "--json", "job"]).run();
    assert_eq!(error_of(none.expect(2))["code"], "no_model");
    let off = spawning(&world, &book, "job").env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1").run();
    assert!(error_of(off.expect(3))["message"].as_str().unwrap().contains("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"));
    let sessions = world.lead(&["sessions", "--json"]).run().expect(0).json();
    assert_eq!((sessions, world.ps(&["--all"]).len()), (json!([]), 0));
    assert!(book.requests().is_empty());
    world.assert_nothing_left();
}

#[test]
fn r101_the_caps_hold_for_a_session_without_a_lead() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    spawned(&world, &book, "slow job", &["--session-id", ID, "--name", "bob"]);
    world.wait_file("here");
    let into = |args: &[&str]| spawning(&world, &book, "job").args(&["--session", &ID[..8]]).args(args).run();
    let taken = into(&["--name", "Bob"]);
    assert!(error_of(taken.expect(3))["message"].as_str().unwrap().contains("belongs to a-"), "{taken:#?}");
    let alive = into(&["--settings", r#"{"lead": {"maxAgents": 1}}"#]);
    assert!(error_of(alive.expect(3))["message"].as_str().unwrap().contains("lead.maxAgents"), "{alive:#?}");
    into(&["--settings", r#"{"lead": {"maxAgents": 2, "maxAgentsTotal": 2}}"#]).expect(0);
    world.wait_workers(1);
    let total = into(&["--settings", r#"{"lead": {"maxAgentsTotal": 2}}"#]);
    assert!(error_of(total.expect(3))["message"].as_str().unwrap().contains("lead.maxAgentsTotal"), "{total:#?}");
    gate.open(1);
    world.wait_quiet();
    assert_eq!(world.session(ID).agents().len(), 2);
    resuming(&world, &book, ID, None).run().expect(0);
    world.session(ID).check();
}

#[test]
fn tools_and_turns_that_the_person_names_bound_the_agent_for_good() {
    let world = World::new();
    let worker = worker_rule("job", &[turn("", &[bash("true")]), turn("", &[bash("true")]), turn("done", &[])]);
    let book = book(&world, &[worker]);
    let row = spawned(&world, &book, "job", &["--tools", "Bash,Read", "--max-turns", "1", "--session-id", ID]);
    let id = text(&row, "id");
    let ended = world.lead(&["wait", "--json", &id]).run().expect(1).json();
    assert!(text(&ended[0], "error").contains("limit of 1 turns"), "{ended:#}");
    world.lead(&["send", &id, "go on"]).run().expect(0);
    world.lead(&["wait", &id]).run().expect(1);
    for request in book.requests() {
        let mut tools = request.tools();
        tools.sort_unstable();
        assert_eq!(tools, ["Bash", "Read"]);
    }
    assert_eq!(book.requests().len(), 2, "one reply a run");
    assert_eq!(world.session(ID).agents()[0].meta["pool"].as_array().unwrap().len(), 2);
}

fn with<'w>(fake: &Fake, world: &'w World, book: &Book) -> Lead<'w> {
    Lead::program(world, &fake.folder().join("lead")).args(&["spawn", "--json", "--model", &book.model()])
}

#[test]
fn a_worker_that_dies_before_it_is_ready_is_told_with_its_last_words_and_undone() {
    let world = World::new();
    let fake = Fake::new(&world, "echo 'out of order' >&2; exit 9");
    let book = a_book(&world, &world.gate("gate"));
    let done = with(&fake, &world, &book).args(&["job"]).run();
    let error = error_of(done.expect(1));
    assert_eq!(error["code"], "launch");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("exit code 9") && said.contains("out of order"), "{said}");
    assert_eq!(world.lead(&["sessions", "--json"]).run().expect(0).json(), json!([]));
    assert_eq!(world.ps(&["--all"]).len(), 0);
    let left: Vec<_> = files_in(&world.config());
    assert!(left.is_empty(), "{left:?}");

    // In a session that is there, the session stays as it was, and its conversation is told.
    spawned(&world, &book, "quick job", &["--session-id", ID]);
    world.wait_quiet();
    with(&fake, &world, &book).args(&["--session", ID, "job"]).run().expect(1);
    assert_eq!(world.session(ID).agents().len(), 1);
    assert!(resuming(&world, &book, ID, None).run().expect(0).result().starts_with("told: did"));
    assert!(book.last().all().contains("could not be started"));
    world.session(ID).check();
    world.assert_nothing_left();
}

/// All files below a folder.
fn files_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_in(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn r064_a_worker_that_never_gets_ready_is_killed_in_time() {
    for script in ["exec sleep 1081", "kill -STOP $$"] {
        let world = World::new().with_limits("ready=500ms");
        let fake = Fake::new(&world, script);
        let book = a_book(&world, &world.gate("gate"));
        let done = with(&fake, &world, &book).args(&["job"]).run();
        assert!(error_of(done.expect(1))["message"].as_str().unwrap().contains("not ready"), "{done:#?}");
        assert_eq!(world.ps(&["--all"]).len(), 0);
        world.assert_nothing_left();
    }
}

#[test]
fn a_signal_ends_a_start_and_leaves_nothing() {
    let world = World::heavy();
    let fake = Fake::new(&world, "echo $$ > starting.new; mv starting.new starting; exec sleep 1082");
    let book = a_book(&world, &world.gate("gate"));
    let run = with(&fake, &world, &book).args(&["job"]).start();
    world.wait_file("starting");
    run.signal(Signal::SIGINT);
    run.wait().expect(130);
    assert_eq!(world.ps(&["--all"]).len(), 0);
    assert!(files_in(&world.config()).is_empty());
    world.assert_nothing_left();
}

#[test]
fn a_lead_that_runs_starts_it_and_lets_it_go_when_it_quits() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    let into = |args: &[&str]| world.lead(&["spawn", "--json", "--session", &ID[..6], "slow job"]).args(args).run();
    let done = into(&["--name", "bob"]);
    let row = done.expect(0).json();
    world.wait_file("here");
    assert_eq!(text(&row, "session"), ID);
    assert!(children_of(lead.pid()).iter().any(|p| p.pid == pid_of(&row)), "its lead started it");
    let seen = world.workers();
    assert_eq!((&seen[0]["id"], &seen[0]["address"]), (&row["id"], &row["address"]));
    assert_eq!(world.session(ID).agents()[0].meta["detached"], true);
    // Its rules are the lead's, and its refusals those of a model's call.
    let rules = into(&["--permission-mode", "plan"]);
    assert!(error_of(rules.expect(2))["message"].as_str().unwrap().contains("--permission-mode"));
    assert!(error_of(into(&["--name", "bob"]).expect(3))["message"].as_str().unwrap().contains("SendMessage"));
    assert!(error_of(into(&["--type", "nosuch"]).expect(2))["message"].as_str().unwrap().contains("Explore"));
    lead.signal(Signal::SIGTERM);
    lead.wait().expect(143);
    eventually("the agent goes on without an owner", || {
        let rows = world.workers();
        if rows.len() == 1 && rows[0]["detached"] == true { Ok(()) } else { Err(rows) }
    });
    gate.open(2);
    world.lead(&["wait", &text(&row, "id")]).run().expect(0);
    let done = resuming(&world, &book, ID, None).run();
    assert_eq!(done.expect(0).result(), "told: slow answer");
    assert!(book.last().all().contains("lead spawn"), "the conversation knows who started it");
    world.session(ID).check();
    world.session(ID).paired();
    world.assert_nothing_left();
}

#[test]
fn a_lead_that_stays_is_told_of_its_end_once_and_not_woken_before() {
    let world = World::heavy();
    let (gate, held) = (world.gate("gate"), world.gate("held"));
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [crate::support::spawn("other", "held job")]}),
        json!({"when": {"results": "==1"}, "text": "waiting"}),
        json!({"repeat": true, "text": "told {{notification.1.result}}"}),
    ]);
    let slow = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("slow answer", &[])];
    let other = [turn("", &[bash(&held.wait())]), turn("held answer", &[])];
    let book = book(&world, &[lead, worker_rule("slow", &slow), worker_rule("held", &other)]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    eventually("the lead waits for its agent", || {
        let asked = book.of("lead").len();
        if asked == 2 && world.ps(&[]).iter().any(|r| r["state"] == "idle") { Ok(()) } else { Err(asked) }
    });
    let row = world.lead(&["spawn", "--json", "--session", ID, "slow job"]).run().expect(0).json();
    world.wait_file("here");
    assert_eq!(book.of("lead").len(), 2, "a start is no turn");
    gate.open(1);
    world.lead(&["wait", &text(&row, "id")]).run().expect(0);
    eventually("the lead is told", || {
        let asked = book.of("lead").len();
        if asked == 3 { Ok(()) } else { Err(asked) }
    });
    let request = book.last();
    assert!(request.all().contains("lead spawn") && request.notes().len() == 1, "{request:#?}");
    held.open(1);
    run.wait().expect(0);
    world.session(ID).check();
    world.session(ID).paired();
    world.assert_nothing_left();
}

#[test]
fn an_agent_of_the_person_s_is_no_orphan_when_its_lead_is_killed() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let book = a_book(&world, &gate);
    let lead = world.headless(&book.model(), "wait").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    let row = world.lead(&["spawn", "--json", "--session", ID, "slow job"]).run().expect(0).json();
    world.wait_file("here");
    lead.kill().expect_killed();
    eventually("it is detached", || {
        let rows = world.workers();
        let seen = rows.first().map(|r| (r["detached"] == true, r["orphaned"] == true));
        if seen == Some((true, false)) { Ok(()) } else { Err(rows) }
    });
    let reaped = world.lead(&["reap", "--json"]).run().expect(0).json();
    assert!(reaped.as_array().unwrap().iter().all(|r| r["what"] == "registry"), "{reaped:#}");
    assert!(exists(pid_of(&row)));
    gate.open(2);
    world.lead(&["wait", &text(&row, "id")]).run().expect(0);
    assert_eq!(resuming(&world, &book, ID, None).run().expect(0).result(), "told: slow answer");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn spawns_into_one_session_at_once_each_start_one_agent() {
    for _ in 0..times(1, 5) {
        let world = World::heavy();
        let book = a_book(&world, &world.gate("gate"));
        spawned(&world, &book, "quick job", &["--session-id", ID]);
        let count = 6;
        let runs: Vec<_> = (0..count)
            .map(|n| spawning(&world, &book, &format!("quick job {n}")).args(&["--session", ID]).start())
            .collect();
        let mut ids: Vec<String> = runs.into_iter().map(|run| text(&run.wait().expect(0).json(), "id")).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
        world.lead(&["wait"]).args(&ids).run().expect(0);
        assert_eq!(world.session(ID).agents().len(), count + 1);
        assert_eq!(book.of("worker").len(), count + 1, "one process each");
        resuming(&world, &book, ID, None).run().expect(0);
        world.session(ID).check();
        world.assert_nothing_left();
    }
}

#[test]
fn a_spawn_and_a_resume_at_once_both_succeed_and_lose_nothing() {
    for round in 0..times(3, 20) {
        let world = World::heavy();
        let book = a_book(&world, &world.gate("gate"));
        spawned(&world, &book, "quick job", &["--session-id", ID]);
        world.wait_quiet();
        // Who comes first differs from round to round.
        let start_lead = || resuming(&world, &book, ID, Some("and?")).start();
        let start_agent = || world.lead(&["spawn", "--json", "--session", ID, "quick other job"]).start();
        let (lead, agent) = if round % 2 == 0 {
            let lead = start_lead();
            (lead, start_agent())
        } else {
            let agent = start_agent();
            (start_lead(), agent)
        };
        let (lead, agent): (Done, Done) = (lead.wait(), agent.wait());
        lead.expect(0);
        let id = text(&agent.expect(0).json(), "id");
        world.lead(&["wait", &id]).run().expect(0);
        assert_eq!(world.session(ID).agents().len(), 2);
        resuming(&world, &book, ID, Some("and now?")).run().expect(0);
        world.session(ID).check();
        world.session(ID).paired();
        world.assert_nothing_left();
    }
}

#[test]
fn a_spawn_that_is_killed_half_way_leaves_nothing_that_reap_or_a_resume_does_not_mend() {
    for (fault, agents) in [("meta_before_process", 0), ("process_before_ready", 0), ("ready_before_launched", 1)] {
        let world = World::heavy().killed_anywhere().with_limits("ready=500ms");
        let book = a_book(&world, &world.gate("gate"));
        let spawn = spawning(&world, &book, "quick job").args(&["--session-id", ID]);
        spawn.env("LEAD_FAULT", format!("lead/{fault}")).run().expect_killed();
        world.wait_quiet();
        if agents == 0 {
            // Longer than a start may take.
            eventually("what never started is removed", || {
                let rows = world.lead(&["reap", "--json"]).run().expect(0).json();
                if world.session(ID).agents().is_empty() { Ok(()) } else { Err(rows) }
            });
        }
        let done = resuming(&world, &book, ID, Some("and?")).run();
        done.expect(0);
        assert_eq!(world.session(ID).agents().len(), agents, "{fault}");
        world.session(ID).check();
        world.assert_nothing_left();
    }
}

#[test]
fn an_agent_that_was_let_go_once_is_let_go_by_every_later_lead() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [crate::support::spawn("job", "slow job")]}),
        json!({"when": {"latest": "^wait"}, "tools": [bash("echo > lead-here; sleep 1083")]}),
        json!({"repeat": true, "when": {"notifications": ">=1"}, "text": "told: {{notification.1.result}}"}),
        json!({"repeat": true, "text": "nothing new"}),
    ]);
    let slow = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("slow answer", &[])];
    let book = book(&world, &[lead, worker_rule("slow", &slow)]);
    world.headless(&book.model(), "go").args(&["--session-id", ID, "--detach"]).run().expect(0);
    world.wait_file("here");
    let second = resuming(&world, &book, ID, Some("wait")).start();
    world.wait_file("lead-here");
    let wait_detached = |detached: bool| {
        eventually(&format!("a worker with detached {detached}"), || {
            let rows = world.wait_workers(1);
            if rows[0]["detached"] == detached { Ok(()) } else { Err(rows) }
        });
    };
    // It has an owner again.
    wait_detached(false);
    second.signal(Signal::SIGTERM);
    second.wait().expect(143);
    wait_detached(true);
    gate.open(1);
    world.wait_quiet();
    assert_eq!(resuming(&world, &book, ID, None).run().expect(0).result(), "told: slow answer");
    world.session(ID).check();
    world.assert_nothing_left();
}
