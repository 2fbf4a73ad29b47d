//! The verbs for agents on members of teams, who are named by `name@team`: with a lead, without one, and
//! after their end. Their transcripts are sessions of their own.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{World, agent, bash, book, eventually, exists, signal, turn};
use crate::team_members::{entry, lead_with, maker, members, transcript, wait};

fn pid(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap()).unwrap()
}

/// The id of the member's own session.
fn session_of(row: &Value) -> String {
    let path = std::path::Path::new(row["transcript"].as_str().unwrap());
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// The row of a session in `lead sessions`; null if there is none.
fn listed(world: &World, session: &str) -> Value {
    let rows = world.lead(&["sessions", "--json"]).run().expect(0).json();
    rows.as_array().unwrap().iter().find(|row| row["id"] == session).cloned().unwrap_or_default()
}

fn has(row: &Value, part: &str) -> bool {
    transcript(row).iter().any(|line| line["type"] == "user" && line.to_string().contains(part))
}

#[test]
fn verbs_take_the_id_and_the_name_of_a_member_that_lives() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let [ann, _] = ["ann", "bob"].map(|name| led.wait(name, "idle"));
    for (to, text) in [("ann@demo", "by its id"), ("ann", "by its name")] {
        let sent = world.lead(&["send", to, text, "--json"]).run();
        let row = sent.expect(0).json();
        assert_eq!((&row["outcome"], &row["id"]), (&json!("queued"), &json!("ann@demo")), "{row}");
        eventually("it is read", || if has(&ann, text) { Ok(()) } else { Err(transcript(&ann)) });
    }
    let idle = world.lead(&["wait", "ann", "bob@demo", "--idle", "--json"]).run();
    assert_eq!(idle.expect(0).json().as_array().unwrap().len(), 2);
    world.lead(&["wait", "ann@demo", "--timeout", "50ms"]).run().expect(5);
    world.lead(&["result", "ann"]).run().expect(3);
    world.lead(&["background", "ann"]).run().expect(3).says(&["background already"]);
    for args in [&["logs", "ann"][..], &["transcript", "ann@demo"]] {
        let shown = world.lead(args).stdin("").run();
        assert!(shown.expect(0).stdout.contains("You are ann; work"), "{args:?}: {shown:?}");
    }
    let typed = world.lead(&["attach", "bob@demo"]).stdin("typed at its view\n").run();
    typed.expect(0);
    let bob = led.wait("bob", "idle");
    eventually("it is read", || if has(&bob, "typed at its view") { Ok(()) } else { Err(transcript(&bob)) });

    // Its own session is listed as one that works, and is in use.
    let session = session_of(&ann);
    let row = listed(&world, &session);
    assert_eq!((&row["state"], &row["member"], &row["pid"]), (&json!("owned"), &json!("ann@demo"), &ann["pid"]));
    let shown = world.lead(&["sessions", "show", &session]).run();
    assert!(shown.expect(0).stdout.contains("member      ann@demo"), "{shown:?}");
    world.lead(&["sessions", "rm", &session]).run().expect(3).says(&["ann@demo", "lead stop ann@demo"]);

    let stopped = world.lead(&["stop", "ann", "--json"]).run();
    assert_eq!(stopped.expect(0).json()[0]["status"], "killed");
    eventually("its process is gone", || if exists(pid(&ann)) { Err(()) } else { Ok(()) });
    let killed = world.lead(&["kill", "bob@demo", "--json"]).run();
    assert_eq!(killed.expect(0).json()[0]["status"], "killed");
    for name in ["ann", "bob"] {
        eventually("the roster says so", || match entry(&world, name) {
            entry if entry["isActive"] == false => Ok(()),
            entry => Err(entry),
        });
    }
    world.lead(&["result", "ann@demo"]).run().expect(1);
    world.lead(&["wait", "ann@demo"]).run().expect(1);
    world.lead(&["stop", "ann@demo"]).run().expect(3);
    // Its mailbox keeps what it is sent.
    let sent = world.lead(&["send", "ann@demo", "for later"]).run();
    assert!(sent.expect(0).stdout.contains("its process is gone"), "{sent:?}");
    world.lead(&["team", "add", "demo", "ann", "--resume"]).run().expect(0);
    eventually("it is read", || if has(&ann, "for later") { Ok(()) } else { Err(transcript(&ann)) });
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn orphaned_members_are_reached_stopped_killed_and_reaped_without_a_lead() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann", "bob", "cat"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let rows = ["ann", "bob", "cat"].map(|name| led.wait(name, "idle"));
    led.kill();
    eventually("orphans", || {
        let orphans = world.ps(&["--team", "demo"]);
        if orphans.iter().filter(|row| row["orphaned"] == true).count() == 3 { Ok(()) } else { Err(orphans) }
    });
    assert_eq!(listed(&world, &session_of(&rows[0]))["state"], "orphaned");
    world.lead(&["send", "ann@demo", "said to an orphan"]).run().expect(0);
    eventually("it is heard", || if has(&rows[0], "said to an orphan") { Ok(()) } else { Err(transcript(&rows[0])) });
    world.lead(&["wait", "ann", "--idle"]).run().expect(0);
    world.lead(&["stop", "ann"]).run().expect(0);
    let killed = world.lead(&["team", "kill", "bob", "--team", "demo", "--json"]).run();
    assert_eq!(killed.expect(0).json()["state"], "ended");
    let reaped = world.lead(&["reap", "--json"]).run();
    let reaped = reaped.expect(0).json();
    assert!(reaped.as_array().unwrap().iter().any(|r| r["what"] == "orphan" && r["id"] == "cat@demo"), "{reaped}");
    for (row, name) in rows.iter().zip(["ann", "bob", "cat"]) {
        assert!(!exists(pid(row)), "{name}");
        assert_eq!(entry(&world, name)["isActive"], false, "{name}");
        world.lead(&["send", &format!("{name}@demo"), "x"]).run().expect(3).says(&["--resume"]);
    }
    // What is removed is found by no name any more; what it left goes with its session.
    world.lead(&["team", "delete", "demo"]).run().expect(0);
    world.lead(&["result", "ann@demo"]).run().expect(4);
    let folder = world.config().join("projects");
    let beside = |session: &str| {
        let folders = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let names = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()));
        names.filter(|name| name.to_str().unwrap().starts_with(session)).count()
    };
    let session = session_of(&rows[0]);
    assert!(beside(&session) > 2);
    world.lead(&["sessions", "rm", &session]).run().expect(0);
    assert_eq!(beside(&session), 0);
    world.assert_nothing_left();
}

#[test]
fn r035_members_show_what_they_do_frozen_or_not() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut work = turn("", &[bash(&gate.arrive("here"))]);
    work["when"] = json!({"latest": "You are ann"});
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[work], true)]);
    let led = lead_with(&world, &book, &[], "go");
    world.wait_file("here");
    world.lead(&["team", "join", "demo", "--as", "script"]).run().expect(0);
    let bob = led.wait("bob", "idle");
    let ann = eventually("it says what it does", || match led.wait("ann", "running") {
        row if row["activity"][0].is_object() => Ok(row),
        row => Err(row),
    });
    [&ann, &bob].iter().for_each(|row| signal(pid(row), Signal::SIGSTOP));
    let rows = world.ps(&["--team", "demo"]);
    let of = |id: &str| rows.iter().find(|row| row["id"] == id).cloned().unwrap_or_default();
    let [ann, bob, script] = ["ann@demo", "bob@demo", "script@demo"].map(of);
    for (row, state) in [(&ann, "running"), (&bob, "idle")] {
        assert_eq!((&row["role"], &row["team"], &row["state"]), (&json!("teammate"), &json!("demo"), &json!(state)));
        assert_eq!(row["session"], json!(led.session));
        assert!(row["since_ms"].is_u64(), "{row}");
    }
    assert_eq!(ann["activity"][0]["tool"], "Bash");
    assert_eq!((&script["role"], &script["state"]), (&json!("external"), &json!("external")));
    assert_eq!(rows.len(), 3, "only the team's: {rows:#?}");
    // One that does not answer is told as that, and is not waited for.
    let asked = world.lead(&["team", "shutdown", "bob", "--team", "demo", "--timeout", "200ms"]).run();
    asked.expect(5).says(&["bob has not answered"]);
    for name in ["ann", "bob"] {
        world.lead(&["team", "kill", name, "--team", "demo"]).run().expect(0);
        wait(&world, name, "killed");
    }
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r062_a_member_that_is_starting_is_not_started_again() {
    let world = World::new();
    let book = book(&world, &[maker(&[]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    led.wait_made();
    let adding = world.lead(&["team", "add", "demo", "ann", "You are ann; work"]).start();
    let found = eventually("its process", || {
        let all = world.processes();
        all.iter().find(|p| p.command.contains("lead-teammate")).map(|p| p.pid).ok_or(all)
    });
    signal(found, Signal::SIGSTOP);
    let second = world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
    second.expect(3);
    assert!(["being started already", "still running"].iter().any(|said| second.stderr.contains(said)), "{second:?}");
    let state = world.ps(&["--all"]).into_iter().find(|row| row["id"] == "ann@demo").map(|row| row["state"].clone());
    assert!(state.as_ref().is_none_or(|s| ["starting", "running", "idle"].iter().any(|w| s == w)), "{state:?}");
    signal(found, Signal::SIGCONT);
    adding.wait().expect(0);
    led.wait("ann", "idle");
    assert_eq!(world.processes().iter().filter(|p| p.command.contains("lead-teammate")).count(), 1);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_team_is_given_to_the_session_that_is_meant() {
    let world = World::new();
    world.lead(&["team", "create", "demo"]).run().expect(0);
    world.lead(&["team", "adopt", "demo"]).run().expect(3).says(&["lead --resume"]);
    let unknown = "11111111-2222-4333-8444-555555555555";
    world.lead(&["team", "adopt", "demo", "--session", unknown]).run().expect(4);
    world.lead(&["team", "adopt", "nobody"]).run().expect(4).says(&["demo"]);
    let quiet = || book(&world, &[agent(json!({"role": "^lead$"}), &[turn("here", &[])]), members(&[], true)]);
    let [one, two] = [quiet(), quiet()].map(|book| lead_with(&world, &book, &[], "hello"));
    let several = world.lead(&["team", "adopt", "demo"]).run();
    several.expect(2).says(&[&one.session, &two.session, "--session"]);
    let adopted = world.lead(&["team", "adopt", "demo", "--session", &two.session, "--json"]).run();
    assert_eq!(adopted.expect(0).json()["session"], json!(two.session));
    let again = world.lead(&["team", "adopt", "demo", "--session", &one.session]).run();
    again.expect(3).says(&[&format!("process {}", two.lead.running.pid())]);
    world.lead(&["team", "add", "demo", "ann", "You are ann; work"]).run().expect(0);
    wait(&world, "ann", "idle");
    one.end().expect(0);
    two.end().expect(0);
    assert!(!world.config().join("teams/demo").exists());
    world.assert_nothing_left();
}
