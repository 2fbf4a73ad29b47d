//! Many agents started from a shell, and verbs under the conditions of cron.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    World, bash, book, error_of, eventually, exists, lead_rule, long, resuming, signal, spawned, text, turn,
    worker_rule,
};

const ID: &str = "aaaaaaaa-2222-4333-8444-555555555555";

/// How many of a hundred, where it is not the long run.
fn part(of_hundred: usize) -> usize {
    if long() { of_hundred } else { of_hundred.div_ceil(5) }
}

#[test]
fn a_shell_loop_starts_many_waits_once_and_every_row_is_right() {
    let world = World::heavy().with_limits("ready=60s,handshake=60s,reply=30s");
    let gate = world.gate("gate");
    let job = [turn("Begun.", &[bash(&gate.wait())]), turn("did: {{prompt}}", &[])];
    let lead = lead_rule(&[json!({"repeat": true, "text": "told"})]);
    let book = book(&world, &[lead, worker_rule("job", &job)]);
    let (count, messaged, stopped, killed) = (part(100), part(30), part(10), part(5));
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do \"$LEAD\" spawn --model {} --permission-mode bypassPermissions \
         --name n$i \"job $i\" 2>>spawn.err || echo \"failed $?\"; i=$((i+1)); done",
        book.model()
    );
    let loop_run = crate::support::Lead::program(&world, Path::new("/bin/sh"))
        .args(&["-c", &script])
        .env("LEAD", env!("CARGO_BIN_EXE_lead"))
        .run();
    let ids: Vec<String> = loop_run.expect(0).stdout.lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), count, "{loop_run:#?}");
    let rows = world.wait_workers(count);
    let pids: BTreeMap<String, i64> = rows.iter().map(|r| (text(r, "id"), r["pid"].as_i64().unwrap())).collect();
    assert!(ids.iter().all(|id| pids.contains_key(id)), "{rows:#?}");
    assert!(rows.iter().all(|r| r["detached"] == true), "{rows:#?}");
    let waiting = world.lead(&["wait", "--json"]).args(&ids).start();

    for (n, id) in ids.iter().enumerate().take(messaged) {
        let to = if n % 2 == 0 { format!("n{n}") } else { id.clone() };
        let sent = world.lead(&["send", "--json", &to, &format!("message {n}")]).run();
        let row = sent.expect(0).json();
        assert_eq!((&row["outcome"], &row["id"]), (&json!("queued"), &json!(id)));
    }
    let to_stop = &ids[messaged..messaged + stopped];
    let rows = world.lead(&["stop", "--json"]).args(to_stop).run().expect(0).json();
    assert!(rows.as_array().unwrap().iter().all(|r| r["status"] == "killed"), "{rows:#}");
    let to_kill = &ids[messaged + stopped..messaged + stopped + killed];
    for id in to_kill {
        signal(i32::try_from(pids[id]).unwrap(), Signal::SIGKILL);
    }
    gate.open(count);
    let done = waiting.wait();
    let rows = done.expect(1).json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), count);
    for (n, (row, id)) in rows.iter().zip(&ids).enumerate() {
        assert_eq!((&row["id"], &row["run"]), (&json!(id), &json!(1)), "in the order in which they were named");
        let (status, code) = if to_stop.contains(id) {
            ("killed", 1)
        } else if to_kill.contains(id) {
            ("failed", 1)
        } else {
            assert_eq!(row["result"], format!("did: job {n}"));
            assert_eq!(row["error"], Value::Null);
            ("completed", 0)
        };
        assert_eq!(row["status"], status, "{row:#}");
        world.lead(&["wait", id]).run().expect(code);
        world.lead(&["result", id]).run().expect(code);
    }
    world.wait_quiet();
    let all = world.ps(&["--all"]);
    for id in &ids {
        assert_eq!(all.iter().filter(|r| r["id"] == id.as_str()).count(), 1, "{id}");
    }
    let sessions = world.lead(&["sessions", "--json"]).run().expect(0).json();
    let sessions = sessions.as_array().unwrap();
    assert_eq!(sessions.len(), count);
    for session in sessions {
        assert_eq!((&session["state"], &session["undelivered"]), (&json!("ended"), &json!(1)), "{session:#}");
        let session = world.session(&text(session, "id"));
        let agent = session.agents().remove(0);
        let n: usize = text(&agent.meta, "name")[1..].parse().unwrap();
        let heard = agent.said().iter().filter(|l| l.to_string().contains(&format!("\"message {n}\""))).count();
        assert_eq!(heard, usize::from(n < messaged), "{agent:#?}");
    }
    world.lead(&["reap"]).run().expect(0);
    world.assert_nothing_left();
}

/// Verbs as cron starts them: in another folder, with a home and a path and nothing else.
struct Cron {
    home: tempfile::TempDir,
}

impl Cron {
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lead"));
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        command.args(args).env_clear().env("HOME", self.home.path()).env("PATH", path);
        command.current_dir("/").stdin(std::process::Stdio::null()).output().unwrap()
    }

    fn out(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn verbs_that_cron_starts_reach_agents() {
    let world = World::new();
    let cron = Cron { home: tempfile::Builder::new().prefix("lt-home-").tempdir_in("/tmp").unwrap() };
    let gate = world.gate("gate");
    let job = [turn("Begun.", &[bash(&gate.arrive("here"))]), json!({"repeat": true, "text": "heard you"})];
    let book = book(&world, &[worker_rule("job", &job)]);
    let cwd = world.cwd().display().to_string();
    let spawn = |prompt: &str| {
        let args = ["spawn", "--model", &book.model(), "--permission-mode", "bypassPermissions", "--cwd", &cwd, prompt];
        cron.out(&args).trim().to_owned()
    };
    let id = spawn("job one");
    world.wait_file("here");
    let listed: Value = serde_json::from_str(&cron.out(&["ps", "--json"])).unwrap();
    let row = listed.as_array().unwrap().iter().find(|r| r["id"] == id.as_str()).unwrap().clone();
    assert_eq!((&row["cwd"], &row["detached"]), (&json!(cwd), &json!(true)));
    assert!(cron.out(&["send", &id, "hello"]).contains("queued"));
    gate.open(1);
    assert!(cron.out(&["wait", &id, "--timeout", "30s"]).contains("heard you"));
    assert!(cron.out(&["send", &id, "and again"]).contains("resumed"));
    cron.out(&["wait", &id, "--timeout", "30s"]);
    std::fs::remove_file(world.cwd().join("here")).unwrap();
    let other = spawn("job two");
    world.wait_file("here");
    cron.out(&["stop", &other]);
    let sessions: Value = serde_json::from_str(&cron.out(&["sessions", "--json"])).unwrap();
    assert_eq!(sessions.as_array().unwrap().len(), 2);
    for session in sessions.as_array().unwrap() {
        cron.out(&["sessions", "rm", &text(session, "id")]);
    }
    cron.out(&["reap"]);
    assert_eq!(cron.out(&["ps", "--all", "--json"]).trim(), "[]");
    assert!(!exists(i32::try_from(row["pid"].as_i64().unwrap()).unwrap()));
}

#[test]
fn wait_any_returns_at_the_first_and_idle_when_a_session_has_nothing_to_do() {
    let world = World::heavy();
    let (gate, held) = (world.gate("gate"), world.gate("held"));
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [bash(&held.arrive("lead-here"))]}),
        json!({"when": {"results": "==1"}, "tools": [crate::support::spawn("job", "slow job")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let slow = [turn("Begun.", &[bash(&gate.wait())]), turn("slow answer", &[])];
    let book = book(&world, &[lead, worker_rule("slow", &slow), worker_rule("quick", &[turn("quick answer", &[])])]);
    let first = spawned(&world, &book, "slow job", &[]);
    let second = spawned(&world, &book, "quick job", &[]);
    let (slow, quick) = (text(&first, "id"), text(&second, "id"));
    let any = world.lead(&["wait", "--any", "--json", &slow, &quick]).run().expect(0).json();
    assert_eq!((&any[0]["status"], &any[1]["status"]), (&json!("running"), &json!("completed")));
    // A worker has nothing to do only when it has ended.
    world.lead(&["wait", "--idle", &quick]).run().expect(0);
    world.lead(&["wait", "--idle", "--timeout", "200ms", &slow]).run().expect(5);

    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    world.lead(&["wait", "--idle", "--timeout", "200ms", ID]).run().expect(5);
    let waiting = world.lead(&["wait", "--idle", "--json", &ID[..6]]).start();
    held.open(1);
    let rows = waiting.wait().expect(0).json();
    assert_eq!((&rows[0]["id"], &rows[0]["status"]), (&json!(ID), &json!("idle")));
    gate.open(2);
    run.wait().expect(0);
    let rows = world.lead(&["wait", "--idle", "--json", ID]).run().expect(0).json();
    assert_eq!(rows[0]["status"], "ended");
    world.lead(&["wait", ID]).run().expect(4);
    world.lead(&["wait", "--idle", "bbbbbbbb-2222-4333-8444-555555555555"]).run().expect(4);
    let piped = world.lead(&["wait", &slow]).run();
    assert!(piped.expect(0).stderr.is_empty(), "nothing is told of waiting: {piped:#?}");
    world.assert_nothing_left();
}

#[test]
fn kill_ends_at_once_what_does_not_listen_and_is_told_as_a_kill() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let job = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("answer", &[])];
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [crate::support::spawn("job", "job of the lead")]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}"}),
    ]);
    let book = book(&world, &[lead, worker_rule("job", &job)]);
    let row = spawned(&world, &book, "job", &[]);
    let tool: i32 = world.wait_file("here").parse().unwrap();
    signal(crate::support::pid_of(&row), Signal::SIGSTOP);
    let killed = world.lead(&["kill", "--json", &text(&row, "id")]).run().expect(0).json();
    assert_eq!((&killed[0]["status"], &killed[0]["error"]), (&json!("killed"), &json!("killed by lead kill")));
    assert!(!exists(tool), "its tools are gone, too");
    world.lead(&["kill", &text(&row, "id")]).run().expect(3);
    assert_eq!(error_of(&world.lead(&["kill", "--json", "a-0123456789abcdef"]).run())["code"], "not_found");
    world.assert_nothing_left();

    std::fs::remove_file(world.cwd().join("here")).unwrap();
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let id = text(&world.wait_workers(1)[0], "id");
    signal(crate::support::pid_of(&world.workers()[0]), Signal::SIGSTOP);
    world.lead(&["kill", &id]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "killed");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn background_lets_a_call_return_while_its_agent_goes_on() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let job = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("late answer", &[])];
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [crate::support::ask("job", "slow job")]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
        json!({"repeat": true, "text": "meanwhile"}),
    ]);
    let book = book(&world, &[lead, worker_rule("slow", &job), worker_rule("quick", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    let id = text(&world.wait_workers(1)[0], "id");
    let moved = world.lead(&["background", "--json", &id[..8]]).run().expect(0).json();
    assert_eq!((&moved["id"], &moved["background"]), (&json!(id), &json!(true)));
    eventually("the call has returned", || {
        let asked = book.of("lead").len();
        if asked == 2 { Ok(()) } else { Err(asked) }
    });
    let again = error_of(&world.lead(&["background", "--json", &id]).run());
    assert!(text(&again, "message").contains("in the background already"), "{again:#}");
    gate.open(1);
    assert_eq!(run.wait().expect(0).result(), "late answer");
    world.session(ID).check();
    let ended = world.lead(&["background", "--json", &id]).run();
    assert_eq!(error_of(ended.expect(3))["code"], "not_running");
    world.lead(&["background", "a-0123456789abcdef"]).run().expect(4);

    std::fs::remove_file(world.cwd().join("here")).unwrap();
    let row = spawned(&world, &book, "slow job", &[]);
    world.wait_file("here");
    let detached = error_of(&world.lead(&["background", "--json", &text(&row, "id")]).run());
    assert!(text(&detached, "message").contains("detached"), "{detached:#}");
    gate.open(1);
    world.wait_quiet();
    resuming(&world, &book, &text(&row, "session"), None).run().expect(0);
    world.assert_nothing_left();
}

#[test]
fn completions_and_pages_are_printed_for_every_shell_and_verb() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.lead(&["completions", shell]).run();
        assert!(script.expect(0).stdout.contains("spawn"), "{shell}");
    }
    world.lead(&["completions", "cmd.exe"]).run().expect(2);
    assert!(world.lead(&["man"]).run().expect(0).stdout.starts_with(".ie"), "it is a page");
    assert!(world.lead(&["man", "spawn"]).run().expect(0).stdout.contains("isolation"));
    world.lead(&["man", "nosuch"]).run().expect(2).says(&["nosuch"]);
    // What belongs to the command line is not in the workers' program.
    let worker = PathBuf::from(env!("CARGO_BIN_EXE_lead-worker"));
    let bytes = std::fs::read(worker).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(!holds("bash-completion"));
}
