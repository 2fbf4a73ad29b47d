//! A large team in panes of a real tmux, all at once.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Book, Tmux, World, book, calls, eventually, exists, times};
use crate::team_members::{entry, lead_in, maker, members, transcript, wait};

/// A lead that starts all of them in one turn.
fn all(world: &World, names: &[String]) -> Book {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    book(world, &[maker(&names), members(&[], true)])
}

#[test]
fn r002_r018_forty_members_in_panes_are_ready_hear_what_is_said_to_all_and_end() {
    let world = World::heavy();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    let looks = || tmux.panes("#{session_name} #{window_id} #{pane_id} #{pane_width}x#{pane_height}");
    let before = looks();
    let names: Vec<String> = (1..=times(12, 40)).map(|n| format!("w{n}")).collect();
    let book = all(&world, &names);
    let led = lead_in(&world, &book, &tmux.vars(), &["--permission-mode", "bypassPermissions"], "go");
    led.wait_made();
    eventually("all are ready", || {
        let rows = world.ps(&["--team", "demo"]);
        let ready = rows.iter().filter(|row| row["role"] == "teammate" && row["state"] == "idle").count();
        if ready == names.len() { Ok(()) } else { Err((ready, rows)) }
    });
    let rows: Vec<Value> = names.iter().map(|name| wait(&world, name, "idle")).collect();
    // Each in a pane of its own, all in the lead's session.
    let panes: BTreeSet<String> =
        names.iter().map(|name| entry(&world, name)["tmuxPaneId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(panes.len(), names.len());
    let marks: BTreeSet<String> = tmux.panes("#{session_name} #{@lead_agent}").into_iter().collect();
    assert!(names.iter().all(|name| marks.contains(&format!("user {name}@demo"))), "{marks:?}");

    let sent = world.lead(&["team", "send", "*", "hello all of you", "--team", "demo", "--json"]).run();
    let delivered = sent.expect(0).json();
    assert!(
        names.iter().all(|name| delivered["delivered"].to_string().contains(&format!("\"{name}\""))),
        "{delivered}"
    );
    for row in &rows {
        eventually("it is heard, once", || {
            let lines = transcript(row);
            match lines.iter().filter(|l| l["type"] == "user" && l.to_string().contains("hello all of you")).count() {
                1 => Ok(()),
                other => Err((row["name"].clone(), other)),
            }
        });
    }
    names.iter().for_each(|name| drop(wait(&world, name, "idle")));
    led.end().expect(0);
    assert!(rows.iter().all(|row| !exists(i32::try_from(row["pid"].as_i64().unwrap()).unwrap())));
    assert_eq!(looks(), before);
    assert!(!world.config().join("teams/demo").exists());
    let (calls, scripts) = calls(&world);
    assert!(calls.iter().all(|call| !call.contains("send-keys")) && !scripts.contains("send-keys"));
}
