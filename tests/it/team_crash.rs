//! Members and leads that are killed at any point of their lives: what the files say then, and that all
//! of it goes on where it was.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{World, bash, book, call, eventually, exists, signal, turn};
use crate::team_members::{Led, entry, freeze, lead_as, lead_with, maker, members, staying, transcript, wait};

fn pid(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap()).unwrap()
}

/// What it says when it was brought back, before what it did first comes again.
fn back() -> Value {
    json!({"when": {"latest": "Your process had ended"}, "text": "back"})
}

/// Gives ann a card and a letter.
fn give_work(world: &World) {
    world.lead(&["task", "create", "--team", "demo", "--subject", "a card"]).run().expect(0);
    let mine = ["--owner", "ann", "--status", "in_progress"];
    world.lead(&["task", "update", "1", "--team", "demo"]).args(&mine).run().expect(0);
    world.lead(&["team", "send", "ann", "a letter for later", "--team", "demo"]).run().expect(0);
}

/// Checks that the lead has noticed ann's end: its card is free and says why, its mail is kept, and all
/// who ask are told that it is gone.
fn check_gone(world: &World) {
    let card = eventually("roster and board say so", || {
        let card = world.lead(&["task", "get", "1", "--team", "demo", "--json"]).run().expect(0).json();
        if entry(world, "ann")["isActive"] == false && card["status"] == "pending" { Ok(card) } else { Err(card) }
    });
    assert!(card.get("owner").is_none_or(Value::is_null) && card.to_string().contains("ann ended: "), "{card}");
    world.lead(&["team", "send", "ann", "a letter for the dead", "--team", "demo"]).run().expect(0);
    let unread = world.lead(&["inbox", "read", "ann", "--team", "demo", "--unread", "--json"]).run().expect(0).json();
    assert!(unread.to_string().contains("a letter for the dead"), "{unread}");
    let shown = world.lead(&["team", "show", "demo", "--json"]).run().expect(0).json();
    let ann = shown["members"].as_array().unwrap().iter().find(|member| member["name"] == "ann").unwrap();
    assert_eq!((&ann["state"], &ann["pid"]), (&json!("gone"), &Value::Null), "{shown}");
    assert!(ann["unread"].as_u64() >= Some(1), "{shown}");
    assert_eq!(shown["tasks"], json!({"pending": 1, "in_progress": 0, "completed": 0, "other": 0}));
}

/// Brings ann back, and checks that it knows what it knew and got, once.
fn bring_back(world: &World, led: &Led<'_>, row: &Value) {
    world.lead(&["team", "add", "demo", "ann", "--resume"]).run().expect(0);
    let lines = eventually("its mail is read and its card is taken", || {
        let lines = transcript(row);
        let shows = |part| lines.iter().any(|l| l["type"] == "user" && l.to_string().contains(part));
        let is_there = ["a letter for later", "a letter for the dead", "task-card id="];
        if is_there.into_iter().all(shows) { Ok(lines) } else { Err(lines) }
    });
    let once = ["You are ann; work", "a letter for later", "a letter for the dead", "Your process had ended"];
    for part in once {
        let count = lines.iter().filter(|l| l["type"] == "user" && l.to_string().contains(part)).count();
        assert_eq!(count, 1, "{part}: {lines:#?}");
    }
    led.wait("ann", "idle");
}

/// Kills ann, and checks that it is noticed and that it comes back with what it knew and got, once.
fn kill_and_bring_back(world: &World, led: &Led<'_>, row: &Value) {
    give_work(world);
    signal(pid(row), Signal::SIGKILL);
    led.wait("ann", "failed");
    check_gone(world);
    bring_back(world, led, row);
}

#[test]
fn a_member_killed_in_a_model_call_comes_back() {
    let world = World::new();
    let slow = json!({"when": {"latest": "You are ann"}, "text": "slow", "delay_ms": 600_000});
    let book = book(&world, &[maker(&["ann"]), members(&[back(), slow], true)]);
    let led = lead_with(&world, &book, &[], "go");
    eventually("it asks its model", || if book.of("teammate").is_empty() { Err(()) } else { Ok(()) });
    let row = eventually("it is registered", || {
        let rows = world.ps(&[]);
        rows.iter().find(|r| r["id"] == "ann@demo" && r["transcript"].is_string()).cloned().ok_or(rows)
    });
    kill_and_bring_back(&world, &led, &row);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_in_a_tool_comes_back_and_its_tool_is_gone() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut first = turn("", &[bash(&gate.arrive("here"))]);
    first["when"] = json!({"latest": "You are ann"});
    let book = book(&world, &[maker(&["ann"]), members(&[back(), first], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let shell: i32 = world.wait_file("here").parse().unwrap();
    let row = eventually("it is registered", || {
        let rows = world.ps(&[]);
        rows.iter().find(|r| r["id"] == "ann@demo" && r["transcript"].is_string()).cloned().ok_or(rows)
    });
    kill_and_bring_back(&world, &led, &row);
    assert!(!exists(shell), "what it ran is swept");
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_while_it_waits_for_permission_comes_back_and_its_question_is_gone() {
    let world = World::new();
    let mut first = turn("", &[bash("touch made")]);
    first["when"] = json!({"latest": "You are ann"});
    let book = book(&world, &[maker(&["ann"]), members(&[back(), first], true)]);
    let led = lead_as(&world, &book, &["--permission-prompt-tool", "desk"], "go");
    let row = led.wait("ann", "waiting");
    assert!(row["waiting_for"].as_str().is_some_and(|what| what.contains("permission")), "{row}");
    let questions = || world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
    assert_eq!(questions()[0]["agent"], "ann@demo");
    kill_and_bring_back(&world, &led, &row);
    assert_eq!(questions(), json!([]));
    assert!(!world.cwd().join("made").exists());
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_while_it_stops_was_stopped_and_comes_back() {
    let world = World::new().with_limits("stop_ask=60s,stop_term=60s");
    let gate = world.gate("gate");
    let mut first = turn("", &[bash(&format!("trap '' TERM INT HUP; {}", gate.arrive("here")))]);
    first["when"] = json!({"latest": "You are ann"});
    let book = book(&world, &[maker(&["ann"]), members(&[back(), first], true)]);
    let led = lead_with(&world, &book, &[], "go");
    world.wait_file("here");
    give_work(&world);
    let stop = world.lead(&["stop", "ann", "--timeout", "60s", "--json"]).start();
    let row = eventually("it stops", || {
        let rows = world.ps(&["--all"]);
        let is_it = |r: &&Value| r["id"] == "ann@demo" && (r["state"] == "stopping" || r["state"] == "killed");
        rows.iter().find(is_it).cloned().ok_or(rows)
    });
    if let Some(pid) = row["pid"].as_i64() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
    }
    let stopped = stop.wait();
    assert_eq!(stopped.expect(0).json()[0]["status"], "killed", "a stop, not a crash");
    check_gone(&world);
    bring_back(&world, &led, &row);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_while_it_rests_comes_back() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    freeze(&world, &row);
    kill_and_bring_back(&world, &led, &row);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_while_it_waits_for_its_plan_to_be_approved_comes_back_and_may_still_only_read() {
    let world = World::new();
    let planner = call(
        "Agent",
        json!({"description": "a member works", "prompt": "You are ann; work", "name": "ann",
        "mode": "plan"}),
    );
    let mut lead = maker(&[]);
    lead["turns"][1]["tools"] = json!([planner]);
    let plan = json!({"when": {"latest": "You are ann"}, "tools": [call("ExitPlanMode", json!({"plan": "write it"}))]});
    let write = call("Write", json!({"file_path": world.cwd().join("made"), "content": "x"}));
    let writes = json!({"when": {"latest": "Your process had ended"}, "tools": [write]});
    let book = book(&world, &[lead, members(&[writes, plan], true)]);
    let led = lead_as(&world, &book, &["--permission-prompt-tool", "desk"], "go");
    let row = led.wait("ann", "waiting");
    kill_and_bring_back(&world, &led, &row);
    let lines = transcript(&row);
    let refused = lines
        .iter()
        .map(Value::to_string)
        .find(|line| line.contains("tool_result") && line.contains("mode plan: nothing may be changed"));
    assert!(refused.is_some(), "{lines:#?}");
    assert!(!world.cwd().join("made").exists());
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_killed_before_its_hello_was_not_added_and_one_that_was_there_can_come_back_later() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[back()], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    let session = led.session.clone();
    freeze(&world, &row);
    give_work(&world);
    led.kill();
    signal(pid(&row), Signal::SIGKILL);
    // From here on each member is killed as soon as it is started.
    let args = ["--resume", &session, "--permission-mode", "bypassPermissions"];
    let armed = staying(&world, &book, &args).env("LEAD_FAULT", "teammate/start_before_hello");
    let mut led = Led::start(&world, armed, &session);
    led.say("go on");
    led.wait_made();
    check_gone(&world);
    let added = world.lead(&["team", "add", "demo", "bob", "You are bob; work"]).run();
    added.expect(1).says(&["the member was not started"]);
    assert_eq!(entry(&world, "bob"), Value::Null);
    let resumed = world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
    resumed.expect(1).says(&["the member was not started"]);
    led.kill();
    let led = lead_with(&world, &book, &["--resume", &session], "go on");
    led.wait_made();
    bring_back(&world, &led, &row);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r057_members_of_a_killed_lead_wait_take_nothing_and_go_on_with_the_resumed_one() {
    let world = World::new();
    let claims = json!({"when": {"latest": "task-card id="}, "tools": [call("SendMessage", json!({
        "to": "team-lead", "summary": "Words for the lead of it", "message": "got a card"}))]});
    let book = book(&world, &[maker(&["ann"]), members(&[claims], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    let session = led.session.clone();
    led.kill();
    eventually("an orphan", || {
        let rows = world.ps(&[]);
        if rows.iter().any(|r| r["id"] == "ann@demo" && r["orphaned"] == true) { Ok(()) } else { Err(rows) }
    });
    let before = transcript(&row).len();
    world.lead(&["task", "create", "--team", "demo", "--subject", "a card"]).run().expect(0);
    world.lead(&["team", "send", "ann", "a letter for later", "--team", "demo"]).run().expect(0);
    let shown = world.lead(&["task", "list", "--team", "demo", "--json"]).run().json();
    assert!(shown.to_string().contains("pending"), "{shown}");
    assert_eq!(transcript(&row).len(), before, "it takes neither mail nor cards");
    let again = lead_with(&world, &book, &["--resume", &session], "go on");
    eventually("mail and card are taken", || {
        let cards = world.lead(&["task", "list", "--team", "demo", "--json"]).run().json();
        let has_mail = transcript(&row).iter().any(|l| l.to_string().contains("a letter for later"));
        if has_mail && cards.to_string().contains("in_progress") { Ok(()) } else { Err(cards) }
    });
    assert_eq!(again.wait("ann", "idle")["pid"], row["pid"], "the same process");
    again.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r057_orphans_that_nobody_takes_over_end_by_themselves_and_come_back_with_a_lead() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let settings = json!({"lead": {"orphanTtl": "200ms"}}).to_string();
    let led = lead_with(&world, &book, &["--settings", &settings], "go");
    let row = led.wait("ann", "idle");
    let session = led.session.clone();
    led.kill();
    wait(&world, "ann", "completed");
    eventually("its process is gone", || if exists(pid(&row)) { Err(row.clone()) } else { Ok(()) });
    assert_eq!(entry(&world, "ann")["isActive"], false);
    let again = lead_with(&world, &book, &["--resume", &session], "go on");
    eventually("the team is led again", || {
        let run = world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
        if run.code == Some(0) { Ok(()) } else { Err(run) }
    });
    again.wait("ann", "idle");
    again.end().expect(0);
    world.assert_nothing_left();
}
