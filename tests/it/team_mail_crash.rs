//! Members and leads that are killed between the steps of taking mail in: whoever reads on finds each
//! message once, whoever wrote it.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use lead::core::fault::Fault;
use lead::store::lock::{OpenMode, try_exclusive};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Book, Lead, World, bash, book, eventually, exists, lines_of, signal, text_of, times};
use crate::team_members::{Led, lead_with, maker, members, staying, transcript};

const SESSION: &str = "33333333-2222-4333-8444-777777777777";

/// Letters that are sent one after the other, each of its own.
const LETTERS: usize = 6;

fn letter(number: usize) -> String {
    format!("letter number {number};")
}

/// A message as another program would write it into a mailbox: without an id, and with a field that we
/// don't know. Its text is in square brackets.
fn foreign(world: &World, name: &str, number: usize) {
    let path = mailbox(world, name);
    let mut mails: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap_or_else(|_| b"[]".to_vec())).unwrap();
    mails.push(json!({"from": "script", "text": format!("[{number}]"), "timestamp": "2026-01-01T00:00:00.000Z",
        "read": false, "priority": number}));
    fs::write(&path, serde_json::to_vec_pretty(&mails).unwrap()).unwrap();
}

fn mailbox(world: &World, name: &str) -> PathBuf {
    world.config().join(format!("teams/demo/inboxes/{name}.json"))
}

/// Messages of a mailbox that are not read.
fn unread(world: &World, name: &str) -> usize {
    let mails: Vec<Value> =
        serde_json::from_slice(&fs::read(mailbox(world, name)).unwrap_or_default()).unwrap_or_default();
    mails.iter().filter(|mail| mail["read"] == false).count()
}

fn send(world: &World, to: &str, number: usize) {
    world.lead(&["team", "send", to, &letter(number), "--team", "demo"]).run().expect(0);
}

/// Fails unless these lines show each letter and each message of another program once.
fn assert_each_once(lines: &[Value], letters: usize, foreign: usize, what: &str) {
    // A summary repeats what was not answered yet.
    let shown = lines.iter().filter(|l| l["type"] == "user" && l["isCompactSummary"] != true);
    let said: Vec<String> = shown.map(|l| text_of(&l["message"]["content"])).collect();
    let texts = (0..letters).map(letter).chain((0..foreign).map(|number| format!("[{number}]")));
    for text in texts {
        let count: usize = said.iter().map(|said| said.matches(&format!(">\n{text}\n<")).count()).sum();
        assert_eq!(count, 1, "{what}: {text:?} in {said:#?}");
    }
}

/// Whether all that was taken in was shown.
fn is_all_shown(row: &Value) -> bool {
    let lines = transcript(row);
    let ids = |kind| lines.iter().filter(move |l| l["type"] == kind).filter_map(|l| l["msgId"].as_str());
    let shown: HashSet<&str> = ids("user").collect();
    ids("queue-operation").all(|id| shown.contains(id))
}

/// The member's row, when all of its mail is read or it was killed; whether it was killed.
fn settled(world: &World) -> (Value, bool) {
    eventually("ann has read its mail or is dead", || {
        let waits = unread(world, "ann");
        let rows = world.ps(&["--all"]);
        match rows.iter().find(|row| row["id"] == "ann@demo") {
            Some(row) if row["state"] == "failed" => Ok((row.clone(), true)),
            Some(row) if row["state"] == "idle" && waits == 0 && is_all_shown(row) => Ok((row.clone(), false)),
            _ => Err(rows),
        }
    })
}

/// A member that is killed at this point as often as it comes there, and each time brought back.
fn member_killed_at(point: &str) {
    eprintln!("killed at {point}");
    let world = World::heavy().killed_anywhere();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let mut led = Led::start(&world, armed(&world, &book, &[], point), SESSION);
    led.say("go");
    led.wait("ann", "idle");
    led.wait_made();
    let mut kills = 0;
    for number in 0..LETTERS {
        send(&world, "ann", number);
        if settled(&world).1 {
            foreign(&world, "ann", kills);
            kills += 1;
            // It may be killed again at once.
            world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
        }
    }
    let dead = settled(&world).1;
    assert!(kills > 0, "{point} was not reached");
    led.kill();
    let led = lead_with(&world, &book, &["--resume", SESSION], "go on");
    if dead {
        eventually("it is brought back", || {
            let run = world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
            if run.code == Some(0) { Ok(()) } else { Err(run) }
        });
    }
    let (row, is_dead) = settled(&world);
    assert!(!is_dead, "{point}: {row}");
    assert_each_once(&transcript(&row), LETTERS, kills, point);
    led.end().expect(0);
    world.assert_nothing_left();
}

/// A lead that is killed at this point as often as it comes there, and each time resumed.
fn lead_killed_at(point: &str) {
    eprintln!("killed at {point}");
    let world = World::heavy().killed_anywhere();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let mut led = lead_with(&world, &book, &["--session-id", SESSION], "go");
    led.wait("ann", "idle");
    led.wait_made();
    let mut kills = 0;
    for number in 0..LETTERS {
        send(&world, "team-lead", number);
        let pid = led.lead.running.pid();
        let is_dead = number == 0
            || eventually("the lead has read its mail or is dead", || {
                match (exists(pid), unread(&world, "team-lead")) {
                    (false, _) => Ok(true),
                    (true, 0) => Ok(false),
                    waits => Err(waits),
                }
            });
        if is_dead {
            led.kill();
            foreign(&world, "team-lead", kills);
            kills += 1;
            led = Led::start(&world, armed(&world, &book, &["--resume", SESSION], point), SESSION);
        }
    }
    assert!(kills > 1, "{point} was not reached");
    led.kill();
    let led = lead_with(&world, &book, &["--resume", SESSION], "go on");
    eventually("all is read", || match unread(&world, "team-lead") {
        0 => Ok(()),
        waits => Err(waits),
    });
    let path = world.session(SESSION).path;
    led.end().expect(0);
    assert_each_once(&lines_of(&path), LETTERS, kills, point);
    world.assert_nothing_left();
}

/// A session that stays, in which a program is killed at a point.
fn armed<'w>(world: &'w World, book: &Book, args: &[&str], point: &str) -> Lead<'w> {
    let named = if args.contains(&"--resume") { &[][..] } else { &["--session-id", SESSION] };
    staying(world, book, args).args(named).args(&["--permission-mode", "bypassPermissions"]).env("LEAD_FAULT", point)
}

#[test]
fn r025_r033_a_member_killed_between_the_steps_of_taking_mail_in_shows_each_message_once() {
    for fault in [Fault::MailBeforeEntry, Fault::EntryBeforeMark] {
        for time in 1..=times(2, 4) {
            member_killed_at(&format!("teammate/{}:{time}", fault.name()));
        }
    }
}

#[test]
fn r025_r033_a_lead_killed_between_the_steps_of_taking_mail_in_shows_each_message_once() {
    for fault in [Fault::MailBeforeEntry, Fault::EntryBeforeMark] {
        for time in 1..=times(2, 4) {
            lead_killed_at(&format!("lead/{}:{time}", fault.name()));
        }
    }
}

#[test]
fn r033_mail_that_is_not_marked_when_the_conversation_is_compacted_is_not_shown_again() {
    const MAILS: usize = 400;
    let world = World::new();
    let full =
        json!({"when": {"latest": "letter number"}, "tools": [bash("true")], "usage": {"input_tokens": 180_000}});
    let book = book(&world, &[maker(&["ann"]), members(&[full], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    led.wait_made();
    let flock = world.config().join("lead/locks/demo.flock");
    let lock = eventually("the team's lock", || try_exclusive(&flock, OpenMode::Existing));
    let mails: Vec<Value> = (0..MAILS)
        .map(|n| {
            json!({"from": "script", "text": letter(n), "timestamp": "2026-01-01T00:00:00.000Z", "read": false,
            "msg_id": format!("mail-{n}")})
        })
        .collect();
    let coming = mailbox(&world, "ann").with_extension("coming");
    fs::write(&coming, json!(mails).to_string()).unwrap();
    fs::rename(&coming, mailbox(&world, "ann")).unwrap();
    // It reads without the lock, and can't mark.
    eventually("it has compacted and gone on", || {
        let lines = transcript(&row);
        let boundary = lines.iter().rposition(|line| line["subtype"] == "compact_boundary");
        let went_on = boundary.is_some_and(|at| lines[at..].iter().any(|line| line["type"] == "assistant"));
        if went_on { Ok(()) } else { Err(lines.len()) }
    });
    assert_eq!(unread(&world, "ann"), MAILS);
    signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);
    drop(lock);
    led.wait("ann", "failed");
    world.lead(&["team", "add", "demo", "ann", "--resume"]).run().expect(0);
    assert!(!settled(&world).1);
    assert_each_once(&transcript(&row), MAILS, 0, "after a compaction");
    led.end().expect(0);
    world.assert_nothing_left();
}
