//! What must hold for sockets, the registry and locks: R035-R039, R047, R061, R064.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    World, bash, book, eventually, exists, lead_rule, pid_of, signal, spawn, stop, tell, text, times, turn, worker_rule,
};

#[test]
fn r036_sessions_started_at_once_each_have_a_socket_that_answers() {
    for _ in 0..times(1, 5) {
        let world = World::heavy();
        let gate = world.gate("gate");
        let count = 20;
        let book = book(&world, &[lead_rule(&[turn("", &[bash(&gate.wait())]), turn("over", &[])])]);
        let runs: Vec<_> = (0..count).map(|_| world.headless(&book.model(), "go").start()).collect();
        let rows = eventually("20 sessions", || {
            let rows = world.ps(&[]);
            if rows.iter().filter(|r| r["tool_uses"] == 1).count() == count { Ok(rows) } else { Err(rows.len()) }
        });
        let addresses: BTreeSet<&str> = rows.iter().filter_map(|r| r["address"].as_str()).collect();
        assert_eq!(addresses.len(), count);
        for address in addresses {
            let path = address.strip_prefix("uds:").unwrap();
            assert!(path.len() <= lead::core::limits::SOCKET_PATH_BYTES);
            UnixStream::connect(path).unwrap_or_else(|e| panic!("{address}: {e}"));
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        gate.open(count);
        let sessions: BTreeSet<String> = runs
            .into_iter()
            .map(|run| {
                let done = run.wait();
                assert_eq!(done.expect(0).result(), "over");
                done.session()
            })
            .collect();
        assert_eq!(sessions.len(), count);
        world.assert_nothing_left();
    }
}

#[test]
fn r037_a_session_that_can_not_bind_says_so_and_advertises_nothing() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("over", &[])])]);
    let file = world.file("a-file", "");
    let link = world.cwd().join("a-link");
    symlink(world.root().join("home"), &link).unwrap();
    let open = world.cwd().join("open-to-all");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    for folder in [&file, &link, &open] {
        let done = world.headless(&book.model(), "go").env("LEAD_RUNTIME_DIR", folder).run();
        assert!(done.code.is_some_and(|c| c != 0), "{done:#?}");
        let told = format!("{}{}", done.stdout, done.stderr);
        assert!(told.contains(folder.to_str().unwrap()), "{done:#?}");
        assert_eq!(done.json()["is_error"], true);
        assert!(!told.contains("uds:"), "{done:#?}");
    }
    assert!(book.requests().is_empty(), "nothing was run");
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.root().join("home")).unwrap().count(), 0);
}

#[test]
fn r038_a_runtime_folder_too_deep_for_sockets_is_refused_with_the_limit() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("over", &[])])]);
    let deep = world.root().join("d".repeat(100));
    let done = world.headless(&book.model(), "go").env("LEAD_RUNTIME_DIR", &deep).run();
    assert!(done.code.is_some_and(|c| c != 0), "{done:#?}");
    assert!(format!("{}{}", done.stdout, done.stderr).contains("90"), "{done:#?}");
    assert!(!deep.exists() && book.requests().is_empty());
}

#[test]
fn r039_the_socket_of_a_dead_session_is_found_shown_and_removed() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = book(
        &world,
        &[lead_rule(&[
            json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("here"))]}),
            json!({"when": {"latest": "^send to (?P<address>uds:\\S+)"}, "tools": [tell("{{capture.address}}", "hello")]}),
            turn("over", &[]),
        ])],
    );
    let run = world.headless(&book.model(), "wait").start();
    world.wait_file("here");
    let row = world.ps(&[]).remove(0);
    let address = row["address"].as_str().unwrap().to_owned();
    let socket = address.strip_prefix("uds:").unwrap().to_owned();
    run.kill().expect_killed();
    assert!(std::path::Path::new(&socket).exists(), "it left its socket behind");
    let alive = |rows: &[Value]| {
        rows.iter().filter(|r| !["lost", "failed", "killed"].contains(&r["state"].as_str().unwrap())).count()
    };
    let shown = world.ps(&["--all"]);
    assert_eq!(alive(&shown), 0, "{shown:#?}");
    let done = world.headless(&book.model(), &format!("send to {address}")).run();
    assert_eq!(done.expect(0).result(), "over");
    let (text, is_error) = book.last().results().remove(0);
    assert!(is_error && text.contains(&socket), "{text}");
    assert!(!std::path::Path::new(&socket).exists(), "the next start sweeps");
    world.assert_nothing_left();
}

#[test]
fn a_message_to_another_session_arrives_marked_and_without_authority() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = book(
        &world,
        &[lead_rule(&[
            json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("here"))]}),
            json!({"when": {"latest": "^send to (?P<address>uds:\\S+)"}, "tools": [tell("{{capture.address}}", "hello <b>")]}),
            turn("over", &[]),
        ])],
    );
    let receiver = world.headless(&book.model(), "wait").start();
    world.wait_file("here");
    let address = world.ps(&[]).remove(0)["address"].as_str().unwrap().to_owned();
    let sender = world.headless(&book.model(), &format!("send to {address}")).run();
    assert_eq!(sender.expect(0).result(), "over");
    gate.open(1);
    let received = receiver.wait();
    received.expect(0);
    let seen = book.requests().into_iter().rfind(|r| r.prompt() == "wait").unwrap().all();
    let tag =
        format!("<cross-session-message from=\"{}\">\nhello &lt;b&gt;\n</cross-session-message>", sender.session());
    assert!(seen.contains(&tag), "{seen}");
}

#[test]
fn r047_files_that_vanish_under_their_owner_do_not_crash_it() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    for file in world.runtime_files() {
        std::fs::remove_file(world.runtime().join(file)).unwrap();
    }
    // Nobody is shown any more, and nobody is swept as dead either.
    world.ps(&["--all"]);
    let other = world.headless(&book.model(), "other").args(&["--max-turns", "1"]).start();
    gate.open(2);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    other.wait();
    let outcome = world.session(&done.session()).agent("job").outcome();
    assert_eq!(outcome["status"], "completed");
    world.session(&done.session()).check();
}

#[test]
fn r047_a_living_process_keeps_its_lock_file_whoever_sweeps() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead =
        lead_rule(&[json!({"when": {"latest": "^wait"}, "tools": [bash(&gate.arrive("here"))]}), turn("over", &[])]);
    let book = book(&world, &[lead]);
    let run = world.headless(&book.model(), "wait").start();
    world.wait_file("here");
    let mut before = world.runtime_files();
    for _ in 0..5 {
        world.headless(&book.model(), "go").run().expect(0);
    }
    let mut after = world.runtime_files();
    before.sort();
    after.sort();
    assert_eq!(before, after);
    gate.open(1);
    run.wait().expect(0);
}

#[test]
fn r061_nothing_is_signalled_because_of_a_pid_in_a_file() {
    let world = World::new();
    let mut bystander =
        Command::new("sleep").arg("1040").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(bystander.id()).unwrap();
    std::fs::create_dir(world.runtime()).unwrap();
    std::fs::set_permissions(world.runtime(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let agent = "a-00112233445566aa";
    for (name, role, id) in
        [("aaaaaaaaaaaa", "worker", agent), ("bbbbbbbbbbbb", "lead", "66666666-2222-4333-8444-555555555555")]
    {
        let entry = json!({
            "address": format!("uds:{}/{name}.sock", world.runtime().display()), "pid": pid, "role": role,
            "agentId": id, "session": "66666666-2222-4333-8444-555555555555", "cwd": world.cwd(),
            "configDir": world.config(), "started": 1, "version": lead::core::frame::BUILD,
        });
        std::fs::write(world.runtime().join(format!("{name}.json")), entry.to_string()).unwrap();
    }
    world.ps(&["--all"]);
    let stopped = world.lead(&["stop", agent]).run();
    assert!(stopped.code.is_some_and(|c| c != 0), "{stopped:#?}");
    let lead = lead_rule(&[turn("", &[stop(agent)]), turn("over", &[])]);
    let book = book(&world, &[lead]);
    world.headless(&book.model(), "go").run().expect(0);
    assert!(exists(pid), "a process that was never ours was killed");
    world.assert_nothing_left();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn r064_every_verb_keeps_its_time_limit_while_the_lead_is_frozen() {
    let world = World::heavy().with_limits("reply=300ms,status=300ms,resume=300ms,handshake=300ms,stop_ask=300ms");
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let id = world.wait_workers(1)[0]["id"].as_str().unwrap().to_owned();
    run.signal(Signal::SIGSTOP);
    assert_eq!(world.ps(&[]).len(), 2);
    world.lead(&["wait", "--timeout", "200ms", &id]).run().expect(5);
    world.lead(&["result", &id]).run().expect(3);
    world.lead(&["logs", &id]).run().expect(0);
    world.lead(&["transcript", &id]).run().expect(0);
    let doctor = world.lead(&["doctor"]).run();
    assert!(doctor.code.is_some_and(|c| c <= 1), "{doctor:#?}");
    let stopped = world.lead(&["stop", &id]).run();
    assert!(matches!(stopped.code, Some(0 | 3 | 5)), "{stopped:#?}");
    if stopped.code != Some(0) {
        assert!(stopped.stderr.contains(&run.pid().to_string()), "it names who does not answer: {stopped:#?}");
    }
    run.signal(Signal::SIGCONT);
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    world.session(&done.session()).check();
}

#[test]
fn r064_a_message_to_a_frozen_worker_is_answered_in_time() {
    let world = World::heavy().with_limits("reply=300ms");
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", "hello")]}),
        json!({"when": {"results": "==3"}, "tools": [bash("echo > told")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    world.wait_file("lead-here");
    let pid = pid_of(&world.wait_workers(1)[0]);
    signal(pid, Signal::SIGSTOP);
    gate.open(2);
    world.wait_file("told");
    signal(pid, Signal::SIGCONT);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    let (text, is_error) = book.last().results().remove(2);
    assert!(is_error && text.contains("does not answer") && text.contains(&pid.to_string()), "{text}");
    world.session(&done.session()).check();
}

#[test]
fn r035_ps_tells_what_frozen_agents_do_without_asking_them() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("busy", "Be busy."), spawn("asks", "Ask first."), spawn("dies", "Be busy.")]),
        json!({"when": {"notifications": "==3"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let busy = worker_rule("Be busy", &[turn("", &[bash(&gate.wait())]), turn("done", &[])]);
    let asks = worker_rule("Ask first", &[turn("", &[bash("touch made")]), turn("done", &[])]);
    let book = book(&world, &[lead, busy, asks]);
    let allowed = format!("Bash({})", gate.wait());
    let args = ["-p", "go", "--model", &book.model(), "--output-format", "json", "--permission-prompt-tool", "desk"];
    let run = world.lead(&args).args(&["--allowed-tools", &allowed]).start();
    let states = |rows: &[Value]| -> BTreeMap<String, String> {
        rows.iter().map(|r| (r["description"].as_str().unwrap_or("lead").to_owned(), text(r, "state"))).collect()
    };
    let row = |rows: &[Value], name: &str| rows.iter().find(|r| r["description"] == name).unwrap().clone();
    let before = eventually("all are at it", || {
        let rows = world.ps(&[]);
        let at_it = ["busy", "dies"].iter().all(|n| rows.iter().any(|r| r["description"] == *n && r["tool_uses"] == 1));
        let seen = states(&rows);
        let idle = seen.get("lead").is_some_and(|s| s == "idle") && seen.get("asks").is_some_and(|s| s == "waiting");
        if at_it && idle { Ok(rows) } else { Err(rows) }
    });
    let pids: Vec<i32> = before.iter().map(pid_of).collect();
    assert_eq!(pids.len(), 4);
    pids.iter().for_each(|pid| signal(*pid, Signal::SIGSTOP));
    let dead = pid_of(&row(&before, "dies"));
    signal(dead, Signal::SIGKILL);
    let rows = eventually("the dead one is seen", || {
        let rows = world.ps(&[]);
        if row(&rows, "dies")["state"] == "lost" { Ok(rows) } else { Err(rows) }
    });
    let wanted = [("asks", "waiting"), ("busy", "running"), ("dies", "lost"), ("lead", "idle")];
    assert_eq!(states(&rows), wanted.map(|(name, state)| (name.to_owned(), state.to_owned())).into());
    let busy = row(&rows, "busy");
    assert_eq!(
        (&busy["since_ms"], &busy["activity"]),
        (&row(&before, "busy")["since_ms"], &row(&before, "busy")["activity"])
    );
    assert!(
        busy["since_ms"].as_u64().is_some_and(|since| since > 0) && busy["activity"][0]["tool"] == "Bash",
        "{busy:#}"
    );
    assert!(text(&row(&rows, "asks"), "waiting_for").contains("permission"), "{rows:#?}");
    world.lead(&["ps"]).run().expect(0);
    pids.iter().filter(|pid| **pid != dead).for_each(|pid| signal(*pid, Signal::SIGCONT));
    let question = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
    world.lead(&["permissions", "deny", &text(&question[0], "id")]).run().expect(0);
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    world.session(&done.session()).check();
}
