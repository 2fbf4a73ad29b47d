//! Members that rest: hooks that object, and a session that is resumed with nothing to say.

use std::fs;

use serde_json::json;

use super::team_members::{lead_with, maker, members, wait};
use crate::support::{World, bash, book, eventually, exists};

#[test]
fn a_hook_that_always_objects_keeps_a_member_from_resting_for_a_while_and_its_lead_is_told() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let command = "echo asked >> hook; echo 'look once more' >&2; exit 2";
    let settings = json!({"hooks": {"TeammateIdle": [{"hooks": [{"type": "command", "command": command}]}]}});
    let led = lead_with(&world, &book, &["--settings", &settings.to_string()], "go");
    let rests = |times: usize| {
        eventually("ann rests after the last objection", || {
            let asked = fs::read_to_string(world.cwd().join("hook")).unwrap_or_default().lines().count();
            let rows = world.ps(&[]);
            let is_idle = rows.iter().any(|row| row["id"] == "ann@demo" && row["state"] == "idle");
            if asked == times && is_idle { Ok(()) } else { Err((asked, rows)) }
        });
    };
    rests(6);
    assert_eq!(book.of("teammate").len(), 6, "a turn for its prompt, and one for each objection that counted");
    eventually("the lead is told", || {
        let told = fs::read_to_string(world.session(&led.session).path).unwrap();
        if told.contains("a TeammateIdle hook objects, 6 times in a row: look once more") { Ok(()) } else { Err(told) }
    });
    // Whatever is said to it begins anew.
    world.lead(&["team", "send", "ann", "hello", "--team", "demo"]).run().expect(0);
    rests(12);
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_session_that_is_resumed_without_a_prompt_while_its_team_rests_leaves_the_team_alone() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    led.wait_made();
    let (session, pid) = (led.session.clone(), i32::try_from(row["pid"].as_i64().unwrap()).unwrap());
    led.kill();
    let resume = |more: &[&str]| {
        let args = ["-p", "--resume", &session, "--model", &book.model(), "--output-format", "json"];
        world.lead(&args).args(more).run()
    };
    for _ in 0..2 {
        resume(&[]).expect(2);
        assert!(exists(pid) && world.config().join("teams/demo").exists());
    }
    world
        .lead(&["-p", "--resume", &session, "--model", &book.model()])
        .run()
        .expect(2)
        .says(&["no prompt", "team \"demo\" rests"]);
    assert_eq!(book.of("lead").len(), 3, "it was asked nothing more");
    // The same with input that ends before anything is said.
    let stream = ["-p", "--resume", &session, "--input-format", "stream-json", "--output-format", "stream-json"];
    world.lead(&stream).args(&["--model", &book.model()]).stdin("").run().expect(0);
    assert!(exists(pid) && world.config().join("teams/demo").exists());
    resume(&["end it"]).expect(0);
    assert!(!exists(pid) && !world.config().join("teams/demo").exists());
    world.assert_nothing_left();
}

#[test]
fn a_session_that_is_resumed_without_a_prompt_begins_when_a_member_has_come_to_rest() {
    // While nobody led it, and while somebody did again.
    for is_late in [false, true] {
        let world = World::new();
        let gate = world.gate("gate");
        let at_gate = json!({"tools": [bash(&gate.arrive("here"))]});
        let book = book(&world, &[maker(&["ann"]), members(&[at_gate], true)]);
        let led = lead_with(&world, &book, &[], "go");
        world.wait_file("here");
        led.wait_made();
        let session = led.session.clone();
        led.kill();
        if !is_late {
            gate.open(1);
            wait(&world, "ann", "idle");
            eventually("its rest waits for the next lead", || {
                let mail = fs::read_to_string(world.config().join("teams/demo/inboxes/team-lead.json"));
                mail.map_err(|e| e.to_string())
                    .and_then(|m| if m.contains("idle_notification") { Ok(()) } else { Err(m) })
            });
        }
        let args = ["-p", "--resume", &session, "--model", &book.model(), "--output-format", "json"];
        let run = world.lead(&args).start();
        if is_late {
            eventually("ann has a lead again", || {
                let rows = world.ps(&["--team", "demo"]);
                if rows.iter().any(|r| r["id"] == "ann@demo" && r["orphaned"] == false) { Ok(()) } else { Err(rows) }
            });
            gate.open(1);
        }
        assert_eq!(run.wait().expect(0).result(), "ok");
        assert_eq!(book.of("lead").len(), 4, "one turn more");
        assert!(book.last().all().contains("<teammate-idle teammate_id=\"ann\""));
        assert!(!world.config().join("teams/demo").exists());
        world.assert_nothing_left();
    }
}
