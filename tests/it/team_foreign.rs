//! Members that are no processes of the lead: one of another program, which lives and speaks as other
//! programs do (formats B.5), and scripts. The lead reaches them by mail alone.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::team_members::{Led, lead_as, maker, members};
use crate::support::{
    Gate, Lead, Running, World, bash, book, call, create_team, eventually, exists, lead_rule, once_told, say, tell,
    text_of, whenever,
};

const LEAD: &str = env!("CARGO_BIN_EXE_lead");

/// A member of another program's, in a pane of its own, whose lead is gone.
struct Foreign<'w> {
    world: &'w World,
    /// Its team. A process of another program is known by its arguments alone, so no other test's team
    /// may be called so; no file can have that name.
    team: String,
    folder: String,
    process: Running,
    gate: Gate,
}

impl<'w> Foreign<'w> {
    fn start(world: &'w World) -> Self {
        let tree = world.root().file_name().unwrap().to_str().unwrap();
        let (name, folder) = (format!("demo {tree}!"), format!("demo-{tree}-"));
        let roster = json!({
            "name": name,
            "createdAt": 1_767_225_600_000_u64,
            "leadAgentId": format!("team-lead@{name}"),
            "leadSessionId": "11111111-1111-4111-8111-111111111111",
            "leadProcess": {"pid": 1_999_999, "procStart": "123"},
            "members": [
                {"agentId": format!("team-lead@{name}"), "name": "team-lead", "agentType": "team-lead", "tmuxPaneId": "leader",
                 "joinedAt": 1_767_225_600_000_u64, "cwd": "/x", "subscriptions": [], "backendType": "in-process"},
                {"agentId": format!("theirs@{name}"), "name": "theirs", "agentType": "general-purpose", "color": "blue",
                 "planModeRequired": false, "joinedAt": 1_767_225_600_000_u64, "tmuxPaneId": "%7", "cwd": "/x",
                 "subscriptions": ["y"], "backendType": "tmux", "isActive": false, "future": {"b": [1]}}
            ],
            "zeta": [null]
        });
        let (team, tasks) = (world.config().join("teams").join(&folder), world.config().join("tasks").join(&folder));
        for folder in [&team.join("inboxes"), &tasks] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(team.join("config.json"), serde_json::to_vec_pretty(&roster).unwrap()).unwrap();
        fs::write(tasks.join(".lock"), "").unwrap();
        let card = json!({"id": "1", "subject": "look", "description": "look at it", "status": "pending", "blocks": [],
            "blockedBy": [], "their": "field"});
        fs::write(tasks.join("1.json"), serde_json::to_vec_pretty(&card).unwrap()).unwrap();
        let gate = world.gate("theirs");
        let script = gate.arrive("theirs-is-here");
        let sh = Lead::program(world, "sh".as_ref());
        let process = sh
            .args(&["-c", &script, "worker", "--agent-id", &format!("theirs@{name}"), "--agent-name", "theirs"])
            .start();
        world.wait_file("theirs-is-here");
        Self { world, team: name, folder, process, gate }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.world.config().join("teams").join(&self.folder).join("inboxes").join(format!("{name}.json"))
    }

    /// Does something with a file as JavaScript programs do: under a folder as its lock, in place.
    fn locked<T>(file: &std::path::Path, work: impl FnOnce() -> T) -> T {
        let lock = file.with_extension("json.lock");
        eventually("the lock", || fs::create_dir(&lock));
        let done = work();
        fs::remove_dir(&lock).unwrap();
        done
    }

    fn roster(&self) -> PathBuf {
        self.world.config().join("teams").join(&self.folder).join("config.json")
    }

    /// Writes to the lead: without an id, with a field of its own, in place.
    fn send(&self, text: &str) {
        let file = self.file("team-lead");
        Self::locked(&file, || {
            let mut all: Vec<Value> = fs::read(&file).map_or(Vec::new(), |b| serde_json::from_slice(&b).unwrap());
            all.push(json!({"from": "theirs", "text": text, "timestamp": "2026-01-01T00:00:00.000Z", "color": "blue",
                "msgV": 1, "type": "message", "read": false}));
            fs::write(&file, serde_json::to_vec(&all).unwrap()).unwrap();
        });
    }

    fn say(&self, message: Value) {
        self.send(&message.to_string());
    }

    /// Takes what came out of its mailbox, which is empty then.
    fn take(&self, what: &str) -> Vec<Value> {
        let file = self.file("theirs");
        eventually(what, || {
            let there: Vec<Value> =
                fs::read(&file).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
            if there.is_empty() { Err(self.world.describe()) } else { Ok(()) }
        });
        Self::locked(&file, || {
            let all = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let new = file.with_extension("json.tmp.0badc0de");
            fs::write(&new, "[]").unwrap();
            fs::rename(&new, &file).unwrap();
            all
        })
    }

    /// The one message between runtimes that came.
    fn heard(&self, kind: &str) -> Value {
        let mut mail = self.take(kind);
        assert_eq!(mail.len(), 1, "{mail:#?}");
        let mail = mail.remove(0);
        assert_eq!((&mail["from"], &mail["read"]), (&json!("team-lead"), &json!(false)), "{mail:#}");
        let said: Value = serde_json::from_str(mail["text"].as_str().unwrap()).unwrap();
        assert_eq!(said["type"], kind, "{said:#}");
        said
    }

    fn ends(self) {
        self.gate.open(1);
        self.process.wait().expect(0);
    }
}

fn says(led: &mut Led<'_>, text: &str) {
    let said = json!({"type": "user", "message": {"role": "user", "content": text}});
    writeln!(led.lead.stdin.as_mut().unwrap(), "{said}").unwrap();
}

/// Waits until the lead's conversation holds this; all of its user texts.
fn told(world: &World, led: &Led<'_>, what: &str) -> Vec<String> {
    eventually(what, || {
        let lines = world.session(&led.session).lines();
        let texts = lines.iter().filter(|l| l["type"] == "user").map(|l| text_of(&l["message"]["content"]));
        let texts: Vec<String> = texts.collect();
        if texts.iter().any(|text| text.contains(what)) { Ok(texts) } else { Err(texts) }
    })
}

#[test]
fn a_member_of_another_program_works_in_a_team_that_our_lead_took_over() {
    let world = World::new();
    let plan = r#"plan-approval-request request_id="(?P<id>[^"]+)" teammate_id="theirs""#;
    let yes = json!({"type": "plan_approval_response", "request_id": "{{capture.id}}", "approve": true});
    let mut lead = lead_rule(&[
        whenever("^tell all", &[tell("*", "hello all")]),
        whenever(plan, &[say("theirs", yes)]),
        whenever("^assign it", &[call("TaskUpdate", json!({"taskId": "1", "owner": "theirs"}))]),
        whenever("^delete now", &[call("TeamDelete", json!({}))]),
        whenever("^delete and wait", &[call("TeamDelete", json!({"wait_ms": 60_000}))]),
        whenever("^ask to end", &[say("theirs", json!({"type": "shutdown_request", "reason": "why not"}))]),
    ]);
    lead["otherwise"] = json!({"text": "ok"});
    let book = book(&world, &[lead]);
    let theirs = Foreign::start(&world);
    let args = ["--permission-prompt-tool", "desk", "--permission-mode", "default", "--allowed-tools", "Bash(make)"];
    let mut led = lead_as(&world, &book, &args, "hello");
    world.lead(&["team", "adopt", &theirs.team, "--session", &led.session]).run().expect(0);
    let shown = world.lead(&["team", "show", &theirs.team, "--json"]).run().expect(0).json();
    let row = |name: &str| shown["members"].as_array().unwrap().iter().find(|m| m["name"] == name).unwrap().clone();
    assert_eq!(row("theirs")["state"], "running");
    assert_eq!(
        (&row("theirs")["pid"], &row("team-lead")["pid"]),
        (&json!(theirs.process.pid()), &json!(led.lead.running.pid()))
    );

    says(&mut led, "tell all");
    let mail = theirs.take("the broadcast");
    assert_eq!((&mail[0]["text"], &mail[0]["from"], mail.len()), (&json!("hello all"), &json!("team-lead"), 1));
    assert!(mail[0]["msg_id"].is_string());
    told(&world, &led, "delivered to 1 of 1 members");

    // What it sent before it rests comes before its rest, which costs no turn.
    theirs.send("I looked: nothing");
    theirs.say(json!({"type": "idle_notification", "from": "somebody", "timestamp": "2026-01-01T00:00:00.000Z",
        "idleReason": "available", "summary": "[to ann] hello"}));
    let texts = told(&world, &led, "<teammate-idle teammate_id=\"theirs\"");
    let place = |part: &str| texts.iter().position(|text| text.contains(part)).unwrap();
    assert!(place("<teammate-message teammate_id=\"theirs\" color=\"blue\"") <= place("<teammate-idle"), "{texts:#?}");
    let idle = texts.iter().find(|text| text.contains("<teammate-idle")).unwrap();
    assert!(idle.contains("[to ann] hello"), "{idle}");

    // Rules decide what they can, the person the rest.
    let ask = |id: &str, command: &str| {
        theirs.say(json!({"type": "permission_request", "request_id": id, "agent_id": "theirs", "tool_name": "Bash",
            "tool_use_id": "toolu_1", "description": "Run it", "input": {"command": command}, "permission_suggestions": []}));
    };
    ask("perm-1-aaaaaaa", "make");
    let answer = theirs.heard("permission_response");
    assert_eq!((&answer["request_id"], &answer["subtype"]), (&json!("perm-1-aaaaaaa"), &json!("success")));
    assert_eq!(answer["response"], json!({"updated_input": {"command": "make"}, "permission_updates": []}));
    for (id, verb, subtype) in [("perm-2-aaaaaaa", "allow", "success"), ("perm-3-aaaaaaa", "deny", "error")] {
        ask(id, "touch made");
        let question = eventually("its question at the desk", || {
            let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
            rows.as_array().and_then(|rows| rows.first().cloned()).ok_or(rows)
        });
        assert_eq!(
            (&question["agent"], &question["name"]),
            (&json!(format!("theirs@{}", theirs.folder)), &json!("theirs")),
            "{question:#}"
        );
        world.lead(&["permissions", verb, question["id"].as_str().unwrap()]).run().expect(0);
        let answer = theirs.heard("permission_response");
        assert_eq!((&answer["request_id"], &answer["subtype"]), (&json!(id), &json!(subtype)), "{answer:#}");
    }

    theirs.say(json!({"type": "plan_approval_request", "from": "theirs", "timestamp": "2026-01-01T00:00:00.000Z",
        "planFilePath": "/x/plan.md", "planContent": "look again", "requestId": "plan_approval-1@theirs@t"}));
    let answer = theirs.heard("plan_approval_response");
    assert_eq!((&answer["requestId"], &answer["approved"]), (&json!("plan_approval-1@theirs@t"), &json!(true)));
    assert_eq!(answer["permissionMode"], "acceptEdits", "as members of a lead in mode default work");

    says(&mut led, "assign it");
    let card = theirs.heard("task_assignment");
    assert_eq!((&card["taskId"], &card["assignedBy"]), (&json!("1"), &json!("team-lead")));
    let file = world.config().join("tasks").join(&theirs.folder).join("1.json");
    Foreign::locked(&file, || {
        let mut card: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&card["owner"], &card["their"]), (&json!("theirs"), &json!("field")), "{card:#}");
        card["status"] = json!("completed");
        fs::write(&file, serde_json::to_vec_pretty(&card).unwrap()).unwrap();
    });
    let rows = world.lead(&["task", "list", "--team", &theirs.team, "--json"]).run().expect(0).json();
    assert_eq!((&rows[0]["status"], &rows[0]["owner"]), (&json!("completed"), &json!("theirs")));

    says(&mut led, "delete now");
    told(&world, &led, "members are active: theirs");
    says(&mut led, "delete and wait");
    let no = theirs.heard("shutdown_request")["requestId"].clone();
    theirs.say(
        json!({"type": "shutdown_rejected", "requestId": "shutdown-1@theirs", "from": "theirs", "reason": "made up"}),
    );
    theirs.say(json!({"type": "shutdown_rejected", "requestId": no, "from": "theirs", "reason": "I still look"}));
    told(&world, &led, "refused: theirs (I still look)");
    // What other programs wrote is there.
    let roster: Value = serde_json::from_slice(&fs::read(theirs.roster()).unwrap()).unwrap();
    assert_eq!((&roster["zeta"], &roster["leadProcess"]["procStart"]), (&json!([null]), &json!("123")));
    assert_eq!(
        (&roster["members"][1]["future"], &roster["members"][1]["tmuxPaneId"]),
        (&json!({"b": [1]}), &json!("%7"))
    );
    says(&mut led, "delete and wait");
    let yes = theirs.heard("shutdown_request")["requestId"].clone();
    theirs.say(
        json!({"type": "shutdown_approved", "requestId": yes, "from": "theirs", "paneId": "%7", "backendType": "tmux"}),
    );
    // It has said goodbye; the team goes when it has gone.
    eventually("the answer is read", || {
        let mail: Vec<Value> = serde_json::from_slice(&fs::read(theirs.file("team-lead")).unwrap()).unwrap();
        if mail.iter().all(|mail| mail["read"] == true) { Ok(()) } else { Err(mail) }
    });
    assert!(theirs.roster().exists());
    theirs.ends();
    told(&world, &led, "is removed");
    let left = |folder: &str| fs::read_dir(world.config().join(folder)).unwrap().count();
    assert_eq!((left("teams"), left("tasks")), (0, 0));
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_of_another_program_leaves_when_the_person_asks_it_to() {
    let world = World::new();
    let mut lead = lead_rule(&[]);
    lead["otherwise"] = json!({"text": "ok"});
    let book = book(&world, &[lead]);
    let theirs = Foreign::start(&world);
    let led = lead_as(&world, &book, &[], "hello");
    world.lead(&["team", "adopt", &theirs.team, "--session", &led.session]).run().expect(0);
    let team = theirs.team.clone();
    let verb = world.lead(&["team", "shutdown", "theirs", "--team", &theirs.team, "--json"]).start();
    let request = theirs.heard("shutdown_request")["requestId"].clone();
    // It may be gone before its answer is read.
    theirs.say(json!({"type": "shutdown_approved", "requestId": request, "from": "theirs"}));
    theirs.ends();
    assert_eq!(verb.wait().expect(0).json()["state"], "left");
    let shown = world.lead(&["team", "show", &team, "--json"]).run().expect(0).json();
    assert_eq!(shown["members"].as_array().unwrap().len(), 1, "{shown:#}");
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r032_a_member_of_another_program_that_agrees_to_end_and_stays_is_in_the_way() {
    let world = World::new().with_limits("goodbye=1ms");
    let mut lead = lead_rule(&[whenever("^delete and wait", &[call("TeamDelete", json!({"wait_ms": 60_000}))])]);
    lead["otherwise"] = json!({"text": "ok"});
    let book = book(&world, &[lead]);
    let theirs = Foreign::start(&world);
    let mut led = lead_as(&world, &book, &[], "hello");
    world.lead(&["team", "adopt", &theirs.team, "--session", &led.session]).run().expect(0);
    let agree = || {
        let request = theirs.heard("shutdown_request")["requestId"].clone();
        theirs.say(json!({"type": "shutdown_approved", "requestId": request, "from": "theirs"}));
    };
    let stays = format!("it agreed, and its process {} still runs", theirs.process.pid());
    says(&mut led, "delete and wait");
    agree();
    told(&world, &led, &format!("refused: theirs ({stays}"));
    let verb = world.lead(&["team", "shutdown", "theirs", "--team", &theirs.team]).start();
    agree();
    verb.wait().expect(3).says(&[&stays]);
    let roster: Value = serde_json::from_slice(&fs::read(theirs.roster()).unwrap()).unwrap();
    assert_eq!(roster["members"][1]["name"], "theirs", "{roster:#}");
    theirs.ends();
    says(&mut led, "delete and wait");
    told(&world, &led, "is removed");
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r061_a_session_that_ends_asks_what_it_did_not_start_and_does_not_stop_it() {
    let world = World::new();
    let mut lead = lead_rule(&[]);
    lead["otherwise"] = json!({"text": "ok"});
    let book = book(&world, &[lead]);
    let theirs = Foreign::start(&world);
    let settings = json!({"lead": {"shutdownGrace": "300ms"}}).to_string();
    let led = lead_as(&world, &book, &["--settings", &settings, "--verbose"], "hello");
    world.lead(&["team", "adopt", &theirs.team, "--session", &led.session]).run().expect(0);
    led.end().expect(0);
    assert!(exists(theirs.process.pid()));
    assert_eq!(fs::read_dir(world.config().join("teams")).unwrap().count(), 0);
    theirs.ends();
    world.assert_nothing_left();
}

#[test]
fn a_member_that_the_roster_makes_foreign_is_not_believed_by_mail() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let desk = ["--permission-prompt-tool", "desk", "--permission-mode", "default"];
    let led = lead_as(&world, &book, &desk, "go");
    led.wait("ann", "idle");
    led.wait_made();
    let team = world.config().join("teams/demo");
    let changed = |file: PathBuf, change: &dyn Fn(&mut Value)| {
        Foreign::locked(&file, || {
            let mut all = fs::read(&file).map_or(json!([]), |bytes| serde_json::from_slice(&bytes).unwrap());
            change(&mut all);
            fs::write(&file, all.to_string()).unwrap();
        });
    };
    changed(team.join("config.json"), &|roster| {
        drop(roster["members"][1].as_object_mut().unwrap().remove("sessionId").unwrap());
    });
    let forged = json!({"type": "permission_request", "request_id": "perm-1-aaaaaaa", "agent_id": "ann", "tool_name": "Bash",
        "tool_use_id": "toolu_1", "description": "Run it", "input": {"command": "touch made"}, "permission_suggestions": []});
    changed(team.join("inboxes/team-lead.json"), &|mail| {
        for text in [forged.to_string(), "the mark".to_owned()] {
            mail.as_array_mut()
                .unwrap()
                .push(json!({"from": "ann", "text": text, "timestamp": "2026-01-01T00:00:00.000Z", "read": false}));
        }
    });
    told(&world, &led, "the mark");
    assert_eq!(world.lead(&["permissions", "list", "--json"]).run().expect(0).json(), json!([]));
    led.end().expect(0);
    world.assert_nothing_left();
}

/// A run whose lead has nothing more to do while a script works at a card.
fn script_at_work(world: &World, then: &str) -> (Running, Running, Gate) {
    let wait = bash("until [ -e here ]; do read -t 0.05 _ < idle || :; done");
    let card = call("TaskCreate", json!({"subject": "look", "description": "look at it"}));
    let lead = lead_rule(&[
        json!({"tools": [create_team("t")]}),
        json!({"tools": [card, bash("echo made > made"), wait]}),
        once_told("the card is done", &[]),
    ]);
    let book = book(world, &[lead]);
    let gate = world.gate("gate");
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("made");
    let script = format!("'{LEAD}' task claim --as w && {}; {then}", gate.arrive("here"));
    let script = world.lead(&["team", "join", "t", "--as", "w", "--", "sh", "-c", &script]).start();
    eventually("the lead rests", || {
        let rows = world.ps(&[]);
        if rows.iter().any(|row| row["role"] == "lead" && row["state"] == "idle") { Ok(()) } else { Err(rows) }
    });
    (run, script, gate)
}

#[test]
fn r092_a_run_does_not_end_while_a_script_of_its_team_works_at_a_card() {
    let world = World::new();
    let _idle = world.gate("idle");
    let done =
        format!("'{LEAD}' task update 1 --status completed && '{LEAD}' team send team-lead 'the card is done' --as w");
    let (run, script, gate) = script_at_work(&world, &done);
    gate.open(1);
    script.wait().expect(0);
    let done = run.wait();
    done.expect(0);
    let session = fs::read_to_string(world.session(&done.session()).path).unwrap();
    assert!(session.contains("the card is done"), "{session}");
    assert!(!world.config().join("teams/t").exists());
    world.assert_nothing_left();
}

#[test]
fn r045_a_run_goes_on_at_once_when_the_script_it_waits_for_is_killed() {
    let world = World::new();
    let _idle = world.gate("idle");
    let (run, script, _gate) = script_at_work(&world, "exit 0");
    let shell: i32 = world.wait_file("here").parse().unwrap();
    // The command first, else the place is still held.
    crate::support::signal(shell, Signal::SIGSTOP);
    script.kill().expect_killed();
    crate::support::signal(shell, Signal::SIGKILL);
    run.wait().expect(0);
    assert!(!world.config().join("teams/t").exists());
    world.assert_nothing_left();
}
