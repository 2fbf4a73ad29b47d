//! The verbs by which scripts work in a team without a model: `lead team`, `lead task`, `lead inbox`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Done, Running, World, bash, book, children_of, eventually, exists, lead_rule, signal, spawn, turn, worker_rule,
};

const LEAD: &str = env!("CARGO_BIN_EXE_lead");

fn team(world: &World, members: &[&str]) {
    world.lead(&["team", "create", "t"]).run().expect(0);
    for name in members {
        world.lead(&["team", "join", "t", "--as", name]).run().expect(0);
    }
}

fn lead(world: &World, args: &[&str]) -> Done {
    world.lead(args).env("LEAD_TEAM", "t").run()
}

fn task(world: &World, subject: &str, more: &[&str]) -> String {
    let done = world.lead(&["task", "create", "--team", "t", "--subject", subject]).args(more).run();
    done.expect(0).stdout.trim().to_owned()
}

fn tasks(world: &World) -> Vec<Value> {
    let done = lead(world, &["task", "list", "--json"]);
    done.expect(0).json().as_array().unwrap().clone()
}

fn member(world: &World, name: &str) -> Option<Value> {
    let done = lead(world, &["team", "show", "t", "--json"]);
    done.expect(0).json()["members"].as_array().unwrap().iter().find(|m| m["name"] == name).cloned()
}

fn wait_stdout(run: &Running, text: &str) -> String {
    eventually(&format!("{text:?}"), || {
        let said = run.stdout();
        if said.contains(text) { Ok(said) } else { Err((said, run.stderr())) }
    })
}

/// All paths below a folder.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            found.push(entry.path().display().to_string());
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn code_of_json(done: &Done) -> String {
    done.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("{done:?}")).to_owned()
}

#[test]
fn scripts_work_as_a_team_from_its_making_to_its_end() {
    let world = World::new();
    let made = world.lead(&["team", "create", "t", "--description", "ship it", "--json"]).run().expect(0).json();
    assert_eq!(made["name"], "t");
    let second = world.lead(&["team", "create", "T"]).run();
    assert_eq!(second.expect(0).stdout, "T-2\n");
    second.says(&["already"]);
    for name in ["api", "web"] {
        world.lead(&["team", "join", "t", "--as", name]).run().expect(0);
    }
    assert_eq!(lead(&world, &["team", "join", "t", "--as", "api"]).expect(0).stdout, "api  is a member already\n");
    let first = task(&world, "the server", &["--description", "listens on 80"]);
    let second = task(&world, "the page", &["--blocked-by", &first, "--metadata", r#"{"size": 3}"#]);
    assert_eq!((first.as_str(), second.as_str()), ("1", "2"));

    let claimed = lead(&world, &["task", "claim", "--as", "api", "--json"]).expect(0).json();
    assert_eq!(
        (&claimed["id"], &claimed["owner"], &claimed["status"]),
        (&json!("1"), &json!("api"), &json!("in_progress"))
    );
    let taken = lead(&world, &["task", "claim", "1", "--as", "web"]);
    taken.expect(3).says(&["belongs to \"api\""]);
    let blocked = lead(&world, &["task", "claim", "2", "--as", "web", "--json"]);
    assert_eq!(code_of_json(blocked.expect(3)), "blocked");
    let none = lead(&world, &["task", "claim", "--as", "web"]);
    none.expect(3).says(&["1 blocked, 1 in progress, 0 completed", "--wait"]);
    // One that waits gets it as soon as it can be begun.
    let waits = world.lead(&["task", "claim", "--team", "t", "--as", "web", "--wait"]).start();
    let done = lead(&world, &["task", "update", "1", "--status", "completed", "--json"]).expect(0).json();
    assert_eq!(done["changed"], json!(["status"]));
    assert_eq!(waits.wait().expect(0).stdout, "2  the page\n");

    let sent = lead(&world, &["team", "send", "web", "the server\nis up", "--as", "api", "--json"]).expect(0).json();
    assert_eq!((&sent["outcome"], &sent["from"], &sent["id"]), (&json!("delivered"), &json!("api"), &json!("web@t")));
    assert_eq!(sent["message"], "delivered to web's inbox");
    assert_eq!(lead(&world, &["team", "send", "*", "well done"]).expect(0).stdout, "delivered to 2 of 2 inboxes\n");
    assert_eq!(
        lead(&world, &["team", "send", "*", "bye", "--as", "web"]).expect(0).stdout,
        "delivered to 1 of 1 inboxes\n"
    );
    let mail = lead(&world, &["inbox", "read", "web", "--unread", "--mark", "--json"]).expect(0).json();
    let froms: Vec<&str> = mail.as_array().unwrap().iter().map(|m| m["from"].as_str().unwrap()).collect();
    assert_eq!(froms, ["api", "user"]);
    assert_eq!(mail[0]["text"], "the server\nis up");
    assert_eq!((&mail[0]["read"], &mail[0]["protocol"]), (&json!(false), &Value::Null));
    assert!(mail[0]["sent_ms"].as_u64().unwrap() > 0 && mail[0]["msg_id"].is_string());
    assert_eq!(lead(&world, &["inbox", "read", "web", "--unread"]).expect(0).stdout, "");
    assert_eq!(lead(&world, &["inbox", "read", "web", "--json"]).expect(0).json().as_array().unwrap().len(), 2);
    let compacted = lead(&world, &["inbox", "compact", "web", "--json"]).expect(0).json();
    assert_eq!(compacted, json!({"name": "web", "dropped": 0, "kept": 2}));

    // Mail for a lead waits for one.
    lead(&world, &["team", "send", "team-lead", "hello"]).expect(0);
    assert_eq!(lead(&world, &["inbox", "read", "team-lead", "--json"]).expect(0).json()[0]["text"], "hello");
    lead(&world, &["inbox", "read", "team-lead", "--mark"]).expect(4);

    let shown = lead(&world, &["team", "show", "t", "--json"]).expect(0).json();
    assert_eq!(
        (&shown["description"], &shown["led"], &shown["lead_pid"]),
        (&json!("ship it"), &json!(false), &Value::Null)
    );
    assert_eq!(shown["tasks"], json!({"pending": 0, "in_progress": 1, "completed": 1, "other": 0}));
    let web = &shown["members"][1];
    assert_eq!(
        (&web["state"], &web["role"], &web["backend"]),
        (&json!("external"), &json!("external"), &json!("external"))
    );
    let rows = lead(&world, &["team", "list", "--json"]).expect(0).json();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["T-2", "t"]);
    assert_eq!((&rows[1]["members"], &rows[1]["alive"]), (&json!(2), &json!(2)));
    assert!(lead(&world, &["team", "list"]).expect(0).stdout.contains("ship it"));

    assert_eq!(lead(&world, &["team", "delete", "t", "--json"]).expect(0).json()["deleted"], true);
    for folder in ["teams/t", "tasks/t"] {
        assert!(!world.config().join(folder).exists(), "{folder}");
    }
    lead(&world, &["team", "show", "t"]).expect(4).says(&["there is T-2"]);
    lead(&world, &["task", "list"]).expect(4);
}

#[test]
fn r107_bad_names_are_refused_with_a_suggestion_and_nothing_is_made() {
    let world = World::new();
    team(&world, &["api"]);
    let before = tree(world.root());
    let outside = |path: &String| !path.contains("/out/") && !path.contains("/r/") && !path.ends_with("/r");
    for bad in ["../../x", "a/b", "..", ".", "team-lead", "user", "a b", "", "研究員", "/etc/x"] {
        let done = world.lead(&["team", "create", "--json", "--", bad]).run();
        assert_eq!(code_of_json(done.expect(2)), "bad_name", "{bad:?}");
        assert!(done.stdout.contains("try"), "{done:?}");
        lead(&world, &["team", "join", "t", "--as", bad]).expect(2).says(&["try"]);
        if bad != "team-lead" {
            let done = lead(&world, &["team", "send", "--json", "--", bad, "hello"]);
            assert_eq!(code_of_json(done.expect(4)), "not_found", "{bad:?}");
            lead(&world, &["inbox", "read", "--", bad]).expect(4).says(&["the members are team-lead, api"]);
        }
        for args in [["team", "show", "--", bad], ["team", "delete", "--", bad], ["task", "list", "--team", bad]] {
            world.lead(&args).run().expect(4).says(&["there is t"]);
        }
    }
    lead(&world, &["team", "send", "nobody", "x"]).expect(4).says(&["the members are team-lead, api"]);
    lead(&world, &["team", "send", "api", "x", "--as", "ghost"]).expect(4).says(&["ghost", "api"]);
    lead(&world, &["task", "claim", "--as", "ghost"]).expect(4).says(&["ghost", "api"]);
    task(&world, "x", &[]);
    lead(&world, &["task", "update", "1", "--owner", "ghost"]).expect(4).says(&["ghost", "api"]);
    lead(&world, &["task", "update", "1", "--add-blocked-by", "7"]).expect(4).says(&["no task #7"]);
    lead(&world, &["task", "update", "1", "--add-blocked-by", "1"]).expect(3).says(&["can't block itself"]);
    lead(&world, &["task", "update", "1"]).expect(2).says(&["--status"]);
    lead(&world, &["task", "get", "9"]).expect(4).says(&["#1"]);
    lead(&world, &["task", "update", "1", "--status", "deleted"]).expect(0);
    assert!(tasks(&world).is_empty());
    assert_eq!(task(&world, "y", &[]), "2", "a number is not given again");
    lead(&world, &["task", "update", "2", "--status", "deleted"]).expect(0);
    let grown: Vec<String> = tree(world.root()).into_iter().filter(|p| outside(p) && !before.contains(p)).collect();
    assert!(grown.iter().all(|p| p.ends_with("/tasks/t/.highwatermark")), "{grown:#?}");
}

#[test]
fn r024_a_team_must_be_named() {
    let world = World::new();
    team(&world, &["api"]);
    for args in [&["task", "list"][..], &["team", "send", "api", "x"], &["inbox", "read", "api"], &["task", "watch"]] {
        world.lead(args).run().expect(2).says(&["no team was named", "--team"]);
    }
    world.lead(&["task", "list"]).env("LEAD_TEAM", "other").run().expect(4).says(&["there is t"]);
}

#[test]
fn teams_that_are_turned_off_say_so() {
    let world = World::new();
    let verbs = [
        &["team", "list"][..],
        &["team", "adopt", "t"],
        &["team", "kill", "x", "--team", "t"],
        &["task", "list", "--team", "t"],
        &["inbox", "read", "x", "--team", "t"],
    ];
    for args in verbs {
        let variable = "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS_DISABLED";
        let done = world.lead(args).args(&["--json"]).env(variable, "1").run();
        assert_eq!(code_of_json(done.expect(3)), "teams_off");
        assert!(done.stdout.contains(variable));
        assert_ne!(world.lead(args).env(variable, "0").run().code, Some(3));
    }
}

#[test]
fn ten_workers_claim_forty_cards_each_once_and_in_order() {
    let world = World::heavy();
    team(&world, &[]);
    // Eight chains of five.
    for number in 1..=40 {
        let before = (number - 8).to_string();
        let link = ["--blocked-by", &before];
        task(&world, &format!("card {number}"), if number > 8 { &link } else { &[] });
    }
    let script = format!(
        "while card=$('{LEAD}' task claim --as $0 --wait); do
           n=${{card%% *}}
           echo \"$n $0 begin\" >> log
           echo \"$n $0 end\" >> log
           '{LEAD}' task update $n --status completed > /dev/null || exit 9
         done"
    );
    let workers: Vec<Running> = (0..10)
        .map(|i| {
            let name = format!("w{i}");
            world.lead(&["team", "join", "t", "--as", &name, "--", "sh", "-c", &script, &name]).start()
        })
        .collect();
    for worker in workers {
        let done = worker.wait();
        assert!(done.stderr.contains("0 blocked, 0 in progress, 40 completed"), "{done:?}");
        done.expect(0);
    }
    let log = fs::read_to_string(world.cwd().join("log")).unwrap();
    let mut steps: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, line) in log.lines().enumerate() {
        steps.entry(line.split(' ').next().unwrap().parse().unwrap()).or_default().push(at);
    }
    assert_eq!(steps.keys().copied().collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    for (number, at) in &steps {
        assert_eq!(at.len(), 2, "card {number} was worked on once:\n{log}");
        if *number > 8 {
            assert!(steps[&(number - 8)][1] < at[0], "card {number} began before its blocker was done:\n{log}");
        }
    }
    assert!(tasks(&world).iter().all(|row| row["status"] == "completed"));
    assert_eq!(lead(&world, &["team", "show", "t", "--json"]).expect(0).json()["members"], json!([]));
}

/// A member whose command claims a card and waits at a gate.
fn busy(world: &World, gate: &str) -> Running {
    let script = format!("'{LEAD}' task claim --as busy > /dev/null && {gate}");
    world.lead(&["team", "join", "t", "--as", "busy", "--", "sh", "-c", &script]).start()
}

#[test]
fn a_command_that_ends_frees_its_cards_and_hands_its_exit_code_on() {
    let world = World::new();
    team(&world, &["other"]);
    task(&world, "x", &[]);
    let gate = world.gate("gate");
    let run = busy(&world, &format!("{}; exit 7", gate.arrive("here")));
    world.wait_file("here");
    let row = member(&world, "busy").unwrap();
    assert_eq!((&row["state"], &row["pid"]), (&json!("external"), &json!(run.pid())));
    assert_eq!(tasks(&world)[0]["owner"], "busy");
    let again = lead(&world, &["team", "join", "t", "--as", "busy", "--", "true"]);
    again.expect(3).says(&["in use", &run.pid().to_string()]);
    lead(&world, &["team", "delete", "t"]).expect(3).says(&[&format!("busy (pid {})", run.pid()), "--force"]);
    lead(&world, &["team", "send", "busy", "unheard"]).expect(0);
    gate.open(1);
    run.wait().expect(7).says(&["1 unread"]);
    let row = &tasks(&world)[0];
    assert_eq!((&row["owner"], &row["status"]), (&Value::Null, &json!("pending")));
    assert_eq!(row["note"], "busy ended with exit code 7");
    assert_eq!(member(&world, "busy"), None);
    lead(&world, &["team", "join", "t", "--as", "busy", "--", "no-such-program-here"]).expect(4);
    lead(&world, &["team", "join", "t", "--as", "busy", "--", "sh", "-c", "kill -9 $$"]).expect(137);
    assert_eq!(lead(&world, &["team", "join", "t", "--as", "busy", "--", "sh", "-c", "echo $LEAD_TEAM"]).stdout, "t\n");
    assert_eq!(member(&world, "busy"), None);
    let locks = tree(&world.config().join("lead/locks"));
    assert!(!locks.iter().any(|p| p.ends_with(".member")), "{locks:?}");
}

#[test]
fn a_signal_reaches_the_command_and_its_cards_come_free() {
    let world = World::new();
    team(&world, &[]);
    task(&world, "x", &[]);
    let gate = world.gate("gate");
    let run = busy(&world, &format!("trap 'echo caught > caught; exit 5' TERM; {}", gate.arrive("here")));
    world.wait_file("here");
    run.signal(Signal::SIGTERM);
    run.wait().expect(5);
    assert_eq!(world.wait_file("caught"), "caught");
    assert_eq!(tasks(&world)[0]["note"], "busy ended with exit code 5");
}

#[test]
fn a_killed_member_s_cards_come_free_when_its_command_is_gone_too() {
    let world = World::new();
    team(&world, &["other"]);
    task(&world, "x", &[]);
    let gate = world.gate("gate");
    let run = busy(&world, &gate.arrive("here"));
    let shell: i32 = world.wait_file("here").parse().unwrap();
    assert_eq!(children_of(run.pid()).iter().map(|p| p.pid).collect::<Vec<_>>(), [shell]);
    let waits = world.lead(&["task", "claim", "--team", "t", "--as", "other", "--wait"]).start();
    let watch = world.lead(&["task", "watch", "--team", "t", "--all"]).start();
    wait_stdout(&watch, "busy  x  [present]");
    run.kill();
    // What it was started for still works on its card.
    assert!(exists(shell));
    assert_eq!(tasks(&world)[0]["owner"], "busy");
    lead(&world, &["team", "delete", "t"]).expect(3).says(&["busy"]);
    signal(shell, Signal::SIGKILL);
    // Nobody is told but by the end of the lock.
    assert_eq!(waits.wait().expect(0).stdout, "1  x\n");
    wait_stdout(&watch, "other  x  [changed");
    assert_eq!(member(&world, "busy").unwrap()["state"], "gone");
    // The next of its name takes its place.
    lead(&world, &["team", "join", "t", "--as", "busy", "--", "true"]).expect(0);
    assert_eq!(member(&world, "busy"), None);
    lead(&world, &["team", "delete", "t"]).expect(0);
    watch.wait().expect(0).says(&["deleted"]);
}

#[test]
fn a_command_that_is_killed_with_its_group_leaves_its_cards_to_the_next() {
    let world = World::new();
    team(&world, &["other"]);
    task(&world, "x", &[]);
    let gate = world.gate("gate");
    let run = busy(&world, &gate.arrive("here"));
    world.wait_file("here");
    nix::sys::signal::killpg(nix::unistd::Pid::from_raw(run.pid()), Signal::SIGKILL).unwrap();
    run.wait().expect_killed();
    world.wait_quiet();
    let claimed = lead(&world, &["task", "claim", "--as", "other", "--json"]).expect(0).json();
    assert_eq!((&claimed["owner"], &claimed["note"]), (&json!("other"), &json!("busy is gone")));
}

#[test]
fn watching_wakes_at_every_change() {
    let world = World::new();
    team(&world, &["api"]);
    task(&world, "old", &[]);
    let cards = world.lead(&["task", "watch", "--team", "t", "--json", "--all"]).start();
    let mail = world.lead(&["inbox", "watch", "api", "--team", "t", "--mark"]).start();
    wait_stdout(&cards, "present");
    let second = task(&world, "new", &["--blocked-by", "1"]);
    wait_stdout(&cards, "\"created\"");
    lead(&world, &["task", "claim", "--as", "api"]).expect(0);
    wait_stdout(&cards, "in_progress");
    lead(&world, &["task", "update", "1", "--status", "completed"]).expect(0);
    wait_stdout(&cards, "completed");
    lead(&world, &["task", "update", &second, "--owner", "api"]).expect(0);
    wait_stdout(&mail, "user  [task_assignment]\n");
    lead(&world, &["team", "send", "api", "words"]).expect(0);
    let said = wait_stdout(&mail, "user  words\n");
    assert_eq!(said.lines().count(), 2, "{said}");
    eventually("all is marked", || {
        let left = lead(&world, &["inbox", "read", "api", "--unread"]).stdout;
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    lead(&world, &["task", "update", &second, "--status", "deleted"]).expect(0);
    let said = wait_stdout(&cards, "removed");
    lead(&world, &["team", "delete", "t"]).expect(0);
    cards.wait().expect(0);
    mail.wait().expect(0);
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str| -> Vec<(String, Value)> {
        let rows = rows.iter().filter(|r| r["id"] == id);
        rows.map(|r| (r["change"].as_str().unwrap().to_owned(), r["changed"].clone())).collect()
    };
    let changed = |fields: Value| ("changed".to_owned(), fields);
    // The links of the first change with the second card's coming and going.
    let first = of("1");
    assert_eq!(first[0], ("present".to_owned(), json!([])));
    assert!(first.contains(&changed(json!(["status"]))), "{first:?}");
    assert_eq!(
        of("2"),
        [
            ("created".to_owned(), json!([])),
            changed(json!(["blocked_by"])),
            changed(json!(["owner"])),
            ("removed".to_owned(), json!([]))
        ]
    );
    team(&world, &["api"]);
    lead(&world, &["inbox", "watch", "api", "--timeout", "1ms"]).expect(5);
    lead(&world, &["task", "watch", "--timeout", "1ms"]).expect(5);
    task(&world, "x", &[]);
    lead(&world, &["task", "claim", "--as", "api"]).expect(0);
    lead(&world, &["task", "claim", "1", "--as", "api", "--wait", "--timeout", "1ms", "--json"]).expect(5);
}

#[test]
fn a_watcher_whose_reader_is_gone_ends_without_a_change() {
    let world = World::new();
    team(&world, &["api"]);
    for args in [&["task", "watch", "--team", "t"][..], &["inbox", "watch", "api", "--team", "t"]] {
        let piped = world.lead(args).piped();
        drop(piped.stdout);
        piped.running.wait().expect(141);
    }
}

#[test]
fn only_scripts_are_acted_for_and_messages_between_runtimes_are_kept_from_chat() {
    let world = World::new();
    team(&world, &["api", "web"]);
    // A member of another program, in its own process.
    let path = world.config().join("teams/t/config.json");
    let mut roster: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let theirs =
        json!({"agentId": "theirs@t", "name": "theirs", "backendType": "in-process", "tmuxPaneId": "in-process"});
    let paned = json!({"agentId": "paned@t", "name": "paned", "backendType": "tmux", "tmuxPaneId": "%7"});
    roster["members"].as_array_mut().unwrap().extend([theirs, paned]);
    fs::write(&path, serde_json::to_vec_pretty(&roster).unwrap()).unwrap();
    assert_eq!(member(&world, "theirs").unwrap()["state"], "unknown");
    assert_eq!(member(&world, "paned").unwrap()["state"], "gone");
    let shown = lead(&world, &["team", "show", "t"]).stdout;
    assert!(shown.contains("in-process") && shown.contains("tmux %7") && shown.contains("script"), "{shown}");
    for args in [
        &["team", "send", "api", "x", "--as", "theirs"][..],
        &["task", "claim", "--as", "theirs"],
        &["inbox", "read", "theirs", "--mark"],
        &["inbox", "watch", "theirs", "--mark"],
        &["team", "join", "t", "--as", "theirs"],
        &["team", "join", "t", "--as", "API"],
        &["team", "delete", "t"],
    ] {
        lead(&world, args).expect(3);
    }
    let request = r#"{"type":"shutdown_request","requestId":"r"}"#;
    lead(&world, &["team", "send", "theirs", request]).expect(3).says(&["between runtimes"]);
    lead(&world, &["team", "send", "theirs", request, "--as", "api"]).expect(3).says(&["from the lead"]);
    lead(&world, &["team", "send", "*", request, "--as", "api"]).expect(3);
    lead(&world, &["team", "send", "theirs", r#"{"type":"shutdown_request"}"#]).expect(2);
    let idle = r#"{"type":"idle_notification","from":"api","timestamp":""}"#;
    lead(&world, &["team", "send", "team-lead", idle, "--as", "api"]).expect(0);
    let read = lead(&world, &["inbox", "read", "team-lead"]).expect(0).stdout.clone();
    assert!(read.ends_with("  api  [idle_notification]\n") && read.lines().count() == 1, "{read}");
    assert_eq!(lead(&world, &["inbox", "read", "team-lead", "--json"]).json()[0]["text"], idle);
    let long = "x".repeat((64 << 10) + 1);
    let piped = world.lead(&["team", "send", "api", "-", "--team", "t"]).stdin(long.as_str()).run();
    piped.expect(2).says(&["65536"]);
    world.lead(&["team", "send", "api", "-", "--team", "t"]).stdin(&long[1..]).run().expect(0);
    assert_eq!(
        lead(&world, &["team", "delete", "t", "--force", "--json"]).expect(0).json()["working"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn an_agent_s_shell_may_look_at_a_team_and_not_touch_it() {
    let world = World::heavy();
    team(&world, &["api"]);
    task(&world, "x", &[]);
    lead(&world, &["team", "send", "api", "for api"]).expect(0);
    let refused = [
        "team create u",
        "team delete t --force",
        "team add t spy work",
        "team adopt t",
        "team shutdown api --team t",
        "team kill api --team t",
        "team hide api --team t",
        "team join t --as spy",
        "team join t --as spy -- true",
        "team send api hello --team t",
        "team send api hello --team t --as api",
        "task create --team t --subject mine",
        "task update 1 --team t --status completed",
        "task claim --team t --as api",
        "inbox read api --team t --mark",
        "inbox compact api --team t",
    ];
    let allowed = ["team list", "team show t", "task list --team t", "task get 1 --team t", "inbox read api --team t"];
    let lines: Vec<String> = refused
        .iter()
        .chain(&allowed)
        .map(|args| format!("'{LEAD}' {args} </dev/null >/dev/null 2>>err; echo $? >> codes.new"))
        .collect();
    let script = format!("{}; mv codes.new codes", lines.join("; "));
    let run = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [spawn("job", "Do the job.")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let book = book(&world, &[run, worker_rule("Do the job", &[turn("", &[bash(&script)]), turn("tried", &[])])]);
    world.headless(&book.model(), "go").run().expect(0);
    let codes = world.wait_file("codes");
    let expected: Vec<&str> = refused.iter().map(|_| "3").chain(allowed.iter().map(|_| "0")).collect();
    let said = fs::read_to_string(world.cwd().join("err")).unwrap();
    assert_eq!(codes.lines().collect::<Vec<_>>(), expected, "{said}");
    assert!(said.contains("TaskUpdate") && said.contains("TaskCreate") && said.contains("SendMessage"), "{said}");
    assert_eq!(lead(&world, &["inbox", "read", "api", "--unread", "--json"]).json().as_array().unwrap().len(), 1);
    assert_eq!(tasks(&world)[0]["status"], "pending");
}
