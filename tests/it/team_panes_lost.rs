//! Members in panes whose tmux goes away, with their lead or without it; a tmux of the lead's own; and
//! a lead that is in no tmux at all.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Done, Tmux, World, add, agent, bash, book, call, create_team, eventually, exists, lead_rule, long,
    member_rule, no_team_left, optional, path_of, recorded, signal, wait_member,
};
use crate::team_members::{Led, entry, lead_with, maker, members, transcript, wait};

/// A lead that makes team `t` of these members and waits for them; each end of one is a turn.
fn team_of(world: &World, names: &[&str], member: &[Value]) -> Book {
    let adds: Vec<Value> = names.iter().map(|name| add(name, &format!("You are {name}; work"))).collect();
    let mut lead =
        lead_rule(&[json!({"tools": [create_team("t")]}), json!({"tools": adds}), json!({"text": "they work"})]);
    lead["otherwise"] = json!({"text": "heard"});
    let rules = std::iter::once(lead).chain(names.iter().map(|name| member_rule(name, member)));
    book(world, &rules.collect::<Vec<_>>())
}

/// A member's turn that waits at a gate as long as nobody opens it.
fn at_the_gate(world: &World) -> Value {
    let gate = world.gate("gate");
    let turn = json!({"when": {"latest": "You are"}, "tools": [bash(&gate.wait())]});
    // Nobody passes: the pipe need not be held open, and lives with the world.
    drop(gate);
    turn
}

#[test]
fn members_whose_tmux_server_is_killed_are_gone_and_the_run_ends_in_order() {
    for how in ["kill-server", "SIGKILL"] {
        let world = World::new();
        let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
        let names = ["ann", "bob", "cat"];
        let book = team_of(&world, &names, &[at_the_gate(&world)]);
        let lead = world.headless(&book.model(), "go");
        let run = tmux.vars().iter().fold(lead, |lead, (name, value)| lead.env(name, value)).start();
        let rows = names.map(|name| wait_member(&world, name, "running"));
        eventually("they are at work", || {
            let at_gate = world.processes().iter().filter(|p| p.command.contains("read _")).count();
            if at_gate >= names.len() { Ok(()) } else { Err(world.processes()) }
        });
        match how {
            "SIGKILL" => signal(tmux.pid(), Signal::SIGKILL),
            command => drop(tmux.call(&[command])),
        }
        let done = run.wait();
        assert_eq!(done.expect(0).result(), "heard", "{how}");
        let told = book.last().all();
        for name in names {
            let end =
                format!("<teammate-terminated teammate_id=\"{name}\">\nIt ended without being asked: ended by SIGHUP");
            assert_eq!(told.matches(&end).count(), 1, "{how}: {told}");
        }
        assert!(rows.iter().all(|row| !exists(i32::try_from(row["pid"].as_i64().unwrap()).unwrap())));
        no_team_left(&world);
        drop(tmux);
    }
}

/// A lead in the pane of a tmux server, with this command line behind `lead`; its output is in `out`.
fn lead_inside<'w>(world: &'w World, arguments: &str) -> (Tmux<'w>, i32) {
    let root = world.root().display();
    let script = format!(
        "echo $$ > '{root}/pid.new'; mv '{root}/pid.new' '{root}/pid'; cd '{}' && PATH='{}' exec '{}' {arguments} \
         > '{root}/out/lead' 2> '{root}/out/lead.err'",
        world.cwd().display(),
        path_of(world),
        env!("CARGO_BIN_EXE_lead"),
    );
    let tmux = Tmux::at(world, "s", "", 200, 50, &["sh", "-c", &script]);
    let pid = eventually("the lead begins", || fs::read_to_string(world.root().join("pid")).map_err(|e| e.to_string()));
    (tmux, pid.trim().parse().unwrap())
}

/// Kills a lead, and the tmux that it and its members were in.
fn kill_both(world: &World, tmux: &Tmux<'_>, lead: i32) {
    let server = tmux.pid();
    signal(lead, Signal::SIGKILL);
    signal(server, Signal::SIGKILL);
    eventually("lead, tmux and members are gone", || {
        let left = world.processes();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    // A thread may outlive what is defunct already, and holds its locks so long.
    eventually("no thread of the lead is left", || {
        let threads = fs::read_dir(format!("/proc/{lead}/task")).into_iter().flatten().flatten();
        let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        let left: Vec<i32> = threads.filter(|thread| exists(*thread)).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn r050_a_team_whose_lead_and_tmux_were_killed_is_taken_up_by_the_resumed_lead() {
    let world = World::new().killed_anywhere();
    if recorded(&world).is_none() {
        return;
    }
    let works = json!({"when": {"latest": "You are bob"}, "tools": [bash(&world.gate("gate").wait())]});
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[works], true)]);
    let session = "6d2ab5ce-2f1c-4b7e-9b7f-0c2f6f7f1a11";
    let arguments =
        format!("-p go --model '{}' --permission-mode bypassPermissions --session-id {session}", book.model());
    let (tmux, lead) = lead_inside(&world, &arguments);
    let ann = wait(&world, "ann", "idle");
    wait(&world, "bob", "running");
    assert_eq!(entry(&world, "ann")["backendType"], "tmux");
    kill_both(&world, &tmux, lead);
    let team = world.lead(&["team", "show", "demo", "--json"]).run().expect(0).json();
    assert!(team["members"].as_array().unwrap().iter().all(|member| member["state"] == "gone"), "{team}");
    world.lead(&["team", "send", "ann", "while all was dark", "--team", "demo"]).run().expect(0);

    let led: Led<'_> = lead_with(&world, &book, &["--resume", session], "go on");
    eventually("it leads the team and knows who is gone", || {
        let told = book.last().all();
        let is_told = |name: &&str| told.matches(&format!("<teammate-terminated teammate_id=\"{name}\"")).count() == 1;
        let has_both =
            ["ann", "bob"].iter().all(is_told) && ["ann", "bob"].iter().all(|n| entry(&world, n)["isActive"] == false);
        if has_both && told.contains("go on") { Ok(()) } else { Err(told) }
    });
    // It is in no tmux: what comes back does so without a pane, and the pane of before is no matter.
    let again = world.lead(&["team", "add", "demo", "ann", "--resume", "--json"]).run().expect(0).json();
    assert_eq!(again["backend"], "in-process", "{again}");
    led.wait("ann", "idle");
    let heard =
        |part: &str| transcript(&ann).iter().filter(|l| l["type"] == "user" && l.to_string().contains(part)).count();
    eventually("its mail is read", || match heard("while all was dark") {
        1 => Ok(()),
        other => Err(other),
    });
    assert_eq!((heard("You are ann; work"), heard("Your process had ended")), (1, 1));
    led.wait("ann", "idle");
    led.end().expect(0);
    drop(tmux);
    no_team_left(&world);
}

#[test]
fn a_lead_that_hangs_up_with_its_tmux_ends_its_team_in_order() {
    let world = World::new();
    if recorded(&world).is_none() {
        return;
    }
    let book = team_of(&world, &["ann", "bob"], &[at_the_gate(&world)]);
    let arguments =
        format!("-p go --model '{}' --permission-mode bypassPermissions --output-format json", book.model());
    let (tmux, _lead) = lead_inside(&world, &arguments);
    ["ann", "bob"].iter().for_each(|name| drop(wait_member(&world, name, "running")));
    tmux.call(&["kill-server"]);
    world.wait_quiet();
    let said = fs::read_to_string(world.root().join("out/lead")).unwrap();
    assert!(said.contains("error_during_execution") && said.contains("SIGHUP"), "{said}");
    drop(tmux);
    no_team_left(&world);
}

/// What of the survey is done when lead and tmux are killed.
fn moment(world: &World, session: &str, moment: usize) {
    let board = |status: &str| {
        let cards = world.lead(&["task", "list", "--team", "survey", "--json"]).run();
        let cards = if cards.code == Some(0) { cards.json() } else { json!([]) };
        cards.as_array().into_iter().flatten().filter(|card| card["status"] == status).count()
    };
    eventually(&format!("moment {moment}"), || {
        let is_there = match moment {
            0 => board("in_progress") >= 2,
            1 => board("completed") >= 3,
            2 => board("completed") >= 5,
            3 => world.config().join("teams/survey/config.json").exists(),
            4 => board("pending") >= 5,
            5 => board("completed") >= 1,
            6 => board("completed") >= 4,
            _ => world
                .find_session(session)
                .is_some_and(|s| s.lines().iter().any(|l| l.to_string().contains("TeamDelete"))),
        };
        if is_there { Ok(()) } else { Err(()) }
    });
}

#[test]
fn a_survey_whose_lead_and_tmux_were_killed_is_whole_when_it_was_resumed() {
    let moments: Vec<usize> = if long() { (0..8).cycle().take(24).collect() } else { vec![0] };
    for at in moments {
        let world = World::heavy().killed_anywhere();
        if recorded(&world).is_none() {
            return;
        }
        world.file("README.md", "# All about plums\n");
        let session = "6d2ab5ce-2f1c-4b7e-9b7f-0c2f6f7f1a12";
        let arguments = format!("-p 'survey this' --model playbook:survey-team --session-id {session}");
        let (tmux, lead) = lead_inside(&world, &arguments);
        moment(&world, session, at);
        kill_both(&world, &tmux, lead);
        let done = world.lead(&["-p", "--model", "playbook:survey-team", "--resume", session]).run();
        done.expect(0);
        for part in ["## Languages and sizes", "## Entry points", "## Tests", "## Open ends", "## Summary"] {
            assert!(done.stdout.contains(part), "moment {at}, {part}: {done:#?}");
        }
        drop(tmux);
        no_team_left(&world);
    }
}

/// A socket of a tmux server by its name.
fn socket_of(name: &str) -> PathBuf {
    Path::new(&format!("/tmp/tmux-{}", nix::unistd::getuid())).join(name)
}

#[test]
fn r020_how_to_see_a_tmux_of_the_leads_own_is_printed_once_and_it_goes_with_the_team() {
    let world = World::new();
    if recorded(&world).is_none() {
        return;
    }
    let Some(real) = optional("tmux") else { return };
    let gate = world.gate("gate");
    let works = json!({"when": {"latest": "You are"}, "tools": [bash(&gate.wait())]});
    let book = team_of(&world, &["ann", "bob"], &[works]);
    let run = world.headless(&book.model(), "go").args(&["--tmux"]).env("PATH", path_of(&world)).start();
    let names = ["ann", "bob"];
    names.iter().for_each(|name| drop(wait_member(&world, name, "running")));
    let name = format!("lead-{}", run.pid());
    let attach = format!("tmux -L {name} attach");
    let said = run.stderr();
    assert_eq!(said.matches(&format!("members open in tmux; see them with: {attach}\n")).count(), 1, "{said}");
    let roster = fs::read_to_string(world.config().join("teams/t/config.json")).unwrap();
    assert!(roster.contains(socket_of(&name).to_str().unwrap()), "{roster}");

    // What was printed is what a person types, who then sees them.
    let typed = attach.replacen("tmux", real.to_str().unwrap(), 1);
    let person = Tmux::at(&world, "person", "", 180, 40, &["sh", "-c", &format!("TMUX= exec {typed}")]);
    eventually("the person sees both at work", || {
        let seen = person.call(&["capture-pane", "-p", "-t", &person.seat]);
        let is_seen = |name: &&str| seen.contains(&format!("{name}  running"));
        if names.iter().all(is_seen) { Ok(()) } else { Err(seen) }
    });
    gate.open(names.len());
    let done: Done = run.wait();
    done.expect(0);
    assert!(!socket_of(&name).exists(), "its server is gone when the lead is");
    assert!(world.processes().iter().all(|p| !p.command.contains(&name)), "{:#?}", world.processes());
    drop(person);
    world.wait_quiet();
    no_team_left(&world);
}

#[test]
fn r019_over_ssh_without_a_tmux_members_run_headless_with_one_line_why_or_not_at_all() {
    let remote = [("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22"), ("SSH_TTY", "/dev/pts/9"), ("TERM", "xterm")];
    let look = || bash("cp \"$CLAUDE_CONFIG_DIR\"/teams/t/config.json .");
    let book_of = |world: &World| {
        let works = json!({"when": {"latest": "You are"}, "tools": [call("SendMessage", json!({
            "to": "team-lead", "summary": "It works as it should", "message": "at work"}))]});
        let adds = ["ann", "bob"].map(|name| add(name, &format!("You are {name}; work")));
        let mut lead =
            lead_rule(&[json!({"tools": [create_team("t")]}), json!({"tools": adds}), json!({"tools": [look()]})]);
        lead["otherwise"] = json!({"text": "heard"});
        book(world, &[lead, agent(json!({"role": "^teammate$"}), &[works]), member_rule("x", &[])])
    };
    let stale = "/tmp/no-such-tmux-socket,1,0";
    // (mode, what TMUX says, what is to be said)
    let cases = [
        ("auto", None, "this is not inside tmux"),
        ("auto", Some(stale), "there is no tmux server at /tmp/no-such-tmux-socket"),
        ("tmux", None, "this is not inside tmux"),
        ("tmux", Some(stale), "there is no tmux server at /tmp/no-such-tmux-socket"),
    ];
    for (mode, tmux, why) in cases {
        let world = World::new();
        let book = book_of(&world);
        let grace = json!({"lead": {"shutdownGrace": "300ms"}}).to_string();
        let lead = world.headless(&book.model(), "go").args(&["--teammate-mode", mode, "--settings", &grace]);
        let lead = remote.iter().fold(lead, |lead, (name, value)| lead.env(name, value));
        let lead = match tmux {
            Some(value) => lead.env("TMUX", value).env("TMUX_PANE", "%0"),
            None => lead,
        };
        let done = lead.run();
        done.expect(0);
        let roster: Value = serde_json::from_slice(&fs::read(world.cwd().join("config.json")).unwrap()).unwrap();
        let kinds: Vec<&Value> = roster["members"].as_array().unwrap()[1..].iter().map(|m| &m["backendType"]).collect();
        let said = done.stderr.lines().filter(|line| line.contains("members run without panes")).collect::<Vec<_>>();
        if mode == "auto" {
            assert_eq!(kinds, ["in-process", "in-process"], "{done:#?}");
            assert!(said.len() == 1 && said[0].contains(why), "{done:#?}");
            assert_eq!(book.last().all().matches("at work").count(), 2);
        } else {
            let refused = book.last().results().into_iter().filter(|(text, is_error)| *is_error && text.contains(why));
            assert_eq!((refused.count(), kinds.len(), said.len()), (2, 0, 0), "{done:#?}");
        }
        no_team_left(&world);
    }
}
