//! The scripts of the README, run as they stand there: by `sh`, with `lead` found by PATH and a served
//! playbook as the model.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{AgentFiles, Book, KEY, Lead, Server, World, book, call, eventually, text, turn, worker_rule};

/// The block that follows the comment `<!-- script: NAME -->`.
fn script(name: &str) -> &'static str {
    let readme = include_str!("../../README.md");
    let mark = format!("<!-- script: {name} -->\n```sh\n");
    let mut found = readme.split(&mark).skip(1);
    let block = found.next().and_then(|rest| rest.split_once("\n```")).map(|(block, _)| block);
    assert!(found.next().is_none(), "{name} stands in the README twice");
    block.unwrap_or_else(|| panic!("{name} is not in the README"))
}

/// The script with these arguments, in a shell such as its reader has.
fn shell<'w>(world: &'w World, server: &Server, name: &str, args: &[&str]) -> Lead<'w> {
    let file = world.root().join(name);
    std::fs::write(&file, format!("{}\n", script(name))).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_lead")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    let shell = Lead::program(world, Path::new("/bin/sh")).args(&[file]).args(args);
    let shell = shell.env("PATH", format!("{}:{path}", programs.display()));
    shell.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY)
}

fn broken(times: u32) -> Value {
    json!({"error": {"status": 400, "message": "no luck", "times": times}})
}

/// What the agents of a world left, by the order of their start.
fn agents(world: &World) -> Vec<AgentFiles> {
    let sessions = world.lead(&["sessions", "--json"]).run().expect(0).json();
    let ids = sessions.as_array().unwrap().iter().map(|row| text(row, "id"));
    let mut agents: Vec<_> = ids.flat_map(|id| world.session(&id).agents()).collect();
    agents.sort_by_key(|a| a.meta["createdAt"].as_u64());
    agents
}

/// Waits until the script waits for its agent; the agent's row.
fn awaited(world: &World) -> Value {
    eventually("the script waits", || {
        let seen = world.processes();
        if seen.iter().any(|p| p.command.starts_with("lead wait ")) { Ok(()) } else { Err(seen) }
    });
    world.wait_workers(1).remove(0)
}

#[test]
fn the_readme_s_fan_out_collects_every_answer_in_order_and_tells_of_a_failure() {
    let world = World::heavy();
    let names = ["a.rs", "b.rs", "c.rs", "d.rs"];
    for name in names {
        world.file(name, format!("// TODO: {name}\n"));
    }
    let read = |name: &str| call("Grep", json!({"pattern": "TODO.*", "path": name, "output_mode": "content"}));
    let rules = names
        .map(|name| worker_rule(&format!("Review {name}:"), &[turn("", &[read(name)]), turn("see {{result.1}}", &[])]));
    let book = book(&world, &rules);
    let server = Server::start(&world, &book);
    let done = shell(&world, &server, "fan-out.sh", &names).run();
    let lines: Vec<&str> = done.expect(0).stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{done:#?}");
    for (line, name) in lines.iter().zip(names) {
        assert!(line.starts_with("see ") && line.ends_with(&format!("TODO: {name}")), "{done:#?}");
    }
    assert_eq!(done.stderr.matches("  completed  ").count(), 4, "{done:#?}");
    drop(server);

    let failing = failing_for(&world, "b.rs");
    let server = Server::start(&world, &failing);
    let done = shell(&world, &server, "fan-out.sh", &names[..3]).run();
    let lines: Vec<&str> = done.expect(1).stdout.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "fine", "fine"), "{done:#?}");
    assert!(lines[1].starts_with("a-") && lines[1].ends_with(": no answer"), "{done:#?}");
    // A name with a blank is one file.
    let done = shell(&world, &server, "fan-out.sh", &["an other.rs"]).run();
    assert_eq!(done.expect(0).stdout, "fine\n");
    let mut prompts: Vec<String> = agents(&world).iter().map(|a| a.said()[0].to_string()).collect();
    assert!(prompts.pop().unwrap().contains("Review an other.rs: what"));
    assert_eq!(prompts.len(), 7);
    drop(server);
    world.assert_nothing_left();
}

fn failing_for(world: &World, name: &str) -> Book {
    book(world, &[worker_rule(&format!("Review {name}:"), &[broken(9)]), worker_rule("", &[turn("fine", &[])])])
}

#[test]
fn the_readme_s_watchdog_goes_on_after_a_kill_and_an_error_of_the_provider() {
    let world = World::heavy();
    let write = call("Write", json!({"file_path": "notes.md", "content": "one\n"}));
    let again = json!({"any": "You were interrupted"});
    let turns = [
        json!({"when": again, "tools": [write]}),
        json!({"when": {"results": "==1"}, "text": "Written.", "error": {"status": 400, "message": "no luck", "times": 1}}),
        json!({"delay_ms": 300_000, "text": "never said"}),
    ];
    let book = book(&world, &[worker_rule("Write the notes", &turns)]);
    let server = Server::start(&world, &book);
    let running = shell(&world, &server, "watchdog.sh", &["Write the notes."]).start();
    crate::support::signal(crate::support::pid_of(&awaited(&world)), nix::sys::signal::Signal::SIGKILL);
    let done = running.wait();
    assert_eq!(done.expect(0).stdout, "Written.\n");
    assert_eq!(done.stderr.matches("  resumed  ").count(), 2, "{done:#?}");
    assert_eq!(std::fs::read_to_string(world.cwd().join("notes.md")).unwrap(), "one\n");
    let agents = agents(&world);
    let ends: Vec<Value> = agents[0].outcomes().iter().map(|o| o["status"].clone()).collect();
    assert_eq!((agents.len(), ends), (1, vec![json!("failed"), json!("failed"), json!("completed")]));
    drop(server);
    world.assert_nothing_left();
}

#[test]
fn the_readme_s_watchdog_gives_up_after_five_times_and_lets_a_stopped_agent_be() {
    let world = World::heavy();
    let slow = json!({"delay_ms": 300_000, "text": "never said"});
    let book = book(&world, &[worker_rule("Fail", &[broken(99)]), worker_rule("Be slow", &[slow])]);
    let server = Server::start(&world, &book);
    let done = shell(&world, &server, "watchdog.sh", &["Fail."]).run();
    done.expect(1).says(&["no luck"]);
    assert_eq!((done.stdout.as_str(), done.stderr.matches("  resumed  ").count()), ("", 5), "{done:#?}");
    assert_eq!(agents(&world)[0].outcomes().len(), 6);

    let running = shell(&world, &server, "watchdog.sh", &["Be slow."]).start();
    let id = text(&awaited(&world), "id");
    world.lead(&["stop", &id]).run().expect(0);
    let done = running.wait();
    assert_eq!(done.expect(1).stderr.matches("  resumed  ").count(), 0, "{done:#?}");
    assert_eq!(agents(&world)[1].outcome()["status"], "killed");
    drop(server);
    world.assert_nothing_left();
}

#[test]
fn the_readme_s_pipeline_hands_the_first_answer_to_the_second_agent_or_ends_with_the_failure() {
    let world = World::heavy();
    let write = call("Write", json!({"file_path": "greeting", "content": "hello\n"}));
    let book = book(
        &world,
        &[
            worker_rule("^Plan this, step by step: greet", &[turn("1. Write `greeting`.\n2. Say \"$HOME\".", &[])]),
            worker_rule("^Plan this, step by step: fail", &[broken(9)]),
            worker_rule("^Carry out this plan:", &[turn("", &[write]), turn("It is written.", &[])]),
        ],
    );
    let server = Server::start(&world, &book);
    let done = shell(&world, &server, "pipeline.sh", &["greet"]).run();
    assert_eq!(done.expect(0).stdout, "It is written.\n");
    assert_eq!(std::fs::read_to_string(world.cwd().join("greeting")).unwrap(), "hello\n");
    let started = agents(&world);
    assert_eq!(started.len(), 2);
    let said = crate::support::text_of(&started[1].said()[0]["message"]["content"]);
    assert_eq!(said.trim(), "Carry out this plan:\n1. Write `greeting`.\n2. Say \"$HOME\".", "word for word");
    let failed = shell(&world, &server, "pipeline.sh", &["fail"]).run();
    assert_eq!(failed.expect(1).stdout, "");
    assert_eq!(agents(&world).len(), 3, "the second is not started");
    drop(server);
    world.assert_nothing_left();
}
