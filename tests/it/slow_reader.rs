//! Output of hundreds of megabytes to a reader that takes it in small pieces, or late (R095): nothing is
//! lost, and the process does not grow with what waits. 300 MB where it is only copied; what a run
//! prints is made by agents, which takes its time, so there it is 30 MB, and 300 with `LEAD_LONG`.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::ChildStdout;

use serde_json::{Value, json};

use crate::support::{
    Piped, World, book, call, check_ends, check_whole, eventually, lead_rule, long, spawn, streaming, turn, worker_rule,
};

const ID: &str = "33333333-2222-4333-8444-888888888888";
const MEGABYTE: usize = 1 << 20;

/// The most memory that a process had so far, in megabytes.
fn peak(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() / 1024
}

/// The time a process has worked so far.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat[stat.rfind(')').unwrap()..].split_whitespace();
    fields.skip(12).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
}

/// Reads in small pieces.
struct Small(ChildStdout);

impl Read for Small {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(4096);
        self.0.read(&mut into[..most])
    }
}

#[test]
fn r095_a_transcript_of_three_hundred_megabytes_is_printed_to_a_slow_reader() {
    let world = World::heavy();
    let done = world.headless(&book(&world, &[lead_rule(&[turn("hi", &[])])]).model(), "go").run();
    done.expect(0);
    let session = world.session(&done.session());
    // More of the same: lines of 60 kB, each of them different.
    let mut file = std::fs::OpenOptions::new().append(true).open(&session.path).unwrap();
    let text = "x".repeat(60_000);
    for n in 0..5300 {
        let message = json!({"role": "user", "content": format!("{n} {text}")});
        let line = json!({"parentUuid": null, "type": "user", "uuid": n.to_string(), "message": message});
        writeln!(file, "{line}").unwrap();
    }
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    assert!(length > 300 * MEGABYTE);
    let Piped { running, stdin, stdout } = world.lead(&["transcript", &done.session(), "--format", "jsonl"]).piped();
    drop(stdin);
    let mut expected = BufReader::with_capacity(1 << 16, std::fs::File::open(&session.path).unwrap());
    let (mut stdout, mut seen, mut buffer) = (Small(stdout), 0, vec![0; 4096]);
    loop {
        let count = stdout.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        let mut same = vec![0; count];
        expected.read_exact(&mut same).unwrap();
        assert!(same == buffer[..count], "the bytes from {seen} on differ");
        if seen < length / 2 && seen + count >= length / 2 {
            let peak = peak(running.pid());
            assert!(peak < 40, "{peak} MB for a file that is copied");
        }
        seen += count;
    }
    assert_eq!(seen, length);
    running.wait().expect(0);
}

#[test]
fn r095_a_run_s_output_waits_for_a_late_reader_outside_of_memory() {
    let world = World::heavy();
    let (agents, rounds) = if long() { (16, 20) } else { (8, 4) };
    let text = "a line of the large output\n".repeat(MEGABYTE / 27);
    let large = json!({"repeat": rounds, "text": text, "tools": [call("Glob", json!({"pattern": "nothing"}))]});
    let turns = [large, turn("that is all", &[])];
    let calls: Vec<Value> = (0..agents).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
    let all = json!({"notifications": format!(">={agents}")});
    let lead = lead_rule(&[
        turn("", &calls),
        json!({"when": all, "text": "all of it"}),
        json!({"repeat": true, "text": "more"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &turns)]);
    let Piped { running, stdin, stdout } = streaming(&world, &book, "go").args(&["--session-id", ID]).piped();
    drop(stdin);
    // Nothing is read until the run is over and only its output is left.
    let answered = || {
        let lines = world.find_session(ID).map(|s| s.lines()).unwrap_or_default();
        lines.iter().any(|l| l["message"]["content"][0]["text"] == "all of it")
    };
    let (mut written, mut over) = (0, false);
    while !over {
        (written, over) = eventually("somebody works, or the run is over", || {
            let agents = world.find_session(ID).map(|s| s.agents()).unwrap_or_default();
            let now: u64 = agents.iter().filter_map(|a| Some(a.path.metadata().ok()?.len())).sum();
            let now = now + ticks(running.pid());
            let over = world.runtime_files().is_empty() && answered();
            if now > written || over { Ok((now, over)) } else { Err(now) }
        });
    }
    let peak = peak(running.pid());
    let (mut stream, mut bytes) = (Vec::new(), 0);
    for line in BufReader::with_capacity(4096, Small(stdout)).lines() {
        let line = line.unwrap();
        bytes += line.len();
        stream.push(serde_json::from_str::<Value>(&line).unwrap());
    }
    running.wait().expect(0);
    assert!(bytes > if long() { 300 } else { 30 } * 1_000_000, "{bytes}");
    let most = if long() { 200 } else { 60 };
    assert!(peak < most, "{peak} MB while {bytes} bytes were waiting");
    assert_eq!(check_ends(&stream)["result"], "all of it");
    let session = world.session(ID);
    check_whole(&stream, &session, 0);
    session.paired();
    world.assert_nothing_left();
}
