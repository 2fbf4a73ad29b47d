//! The verbs for members of teams, on real teams: a session that stays, members that rest, and what the
//! verbs do to them.

use lead::store::lock::{OpenMode, try_exclusive};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Book, Done, Lead, Piped, World, agent, book, call, eventually, exists, lines_of, signal, turn};

/// A session that leads, until its input ends.
pub struct Led<'w> {
    world: &'w World,
    /// The lead.
    pub lead: Piped,
    /// Its session.
    pub session: String,
}

const ENDS_WHEN_ASKED: &str = r#"shutdown-request request_id="(?P<id>[^"]+)""#;

/// What members do: they answer a request to end with `approve`, and rest otherwise. `turns` come first.
pub fn members(turns: &[Value], approve: bool) -> Value {
    let mut all = turns.to_vec();
    let answer = json!({"type": "shutdown_response", "request_id": "{{capture.id}}", "approve": approve,
        "reason": "there is work left"});
    let input = json!({"to": "team-lead", "message": answer});
    for _ in 0..4 {
        all.push(json!({"when": {"latest": ENDS_WHEN_ASKED}, "tools": [call("SendMessage", input.clone())]}));
    }
    let mut members = agent(json!({"role": "^teammate$"}), &all);
    members["otherwise"] = json!({"text": "resting"});
    members
}

/// A lead that makes the team `demo` with these members.
pub fn maker(names: &[&str]) -> Value {
    let add = |name: &&str| {
        call("Agent", json!({"description": "a member works", "prompt": format!("You are {name}; work"), "name": name}))
    };
    let adds: Vec<Value> = names.iter().map(add).collect();
    let mut lead = agent(
        json!({"role": "^lead$"}),
        &[turn("", &[call("TeamCreate", json!({"team_name": "demo"}))]), turn("", &adds), turn("made", &[])],
    );
    lead["otherwise"] = json!({"text": "ok"});
    lead
}

/// Lets a session say `text` to its model and stay; nothing asks for permission.
pub fn lead_with<'w>(world: &'w World, book: &Book, args: &[&str], text: &str) -> Led<'w> {
    let free = ["--permission-mode", "bypassPermissions"];
    lead_as(world, book, &[&free[..], args].concat(), text)
}

/// The same, as `args` say.
pub fn lead_as<'w>(world: &'w World, book: &Book, args: &[&str], text: &str) -> Led<'w> {
    lead_in(world, book, &[], args, text)
}

/// The same, with more variables, such as those of a pane.
pub fn lead_in<'w>(world: &'w World, book: &Book, vars: &[(String, String)], args: &[&str], text: &str) -> Led<'w> {
    let run = staying(world, book, args);
    let lead = vars.iter().fold(run, |run, (name, value)| run.env(name, value)).piped();
    let pid = lead.running.pid();
    let mut led = Led { world, lead, session: String::new() };
    led.say(text);
    led.session = eventually("the lead is registered", || {
        let rows = world.ps(&[]);
        let own = rows.iter().find(|row| row["pid"] == pid).and_then(|row| row["session"].as_str().map(str::to_owned));
        own.ok_or(rows)
    });
    led
}

/// A session that stays until its input ends, not started yet.
pub fn staying<'w>(world: &'w World, book: &Book, args: &[&str]) -> Lead<'w> {
    let fixed = ["-p", "--input-format", "stream-json", "--output-format", "stream-json"];
    world.lead(&fixed).args(&["--model", &book.model()]).args(args)
}

impl<'w> Led<'w> {
    /// Starts a session whose id is known, and that may die before it is registered.
    pub fn start(world: &'w World, lead: Lead<'w>, session: &str) -> Self {
        Self { world, lead: lead.piped(), session: session.to_owned() }
    }

    /// Says something to its model.
    pub fn say(&mut self, text: &str) {
        use std::io::Write as _;
        let said = json!({"type": "user", "message": {"role": "user", "content": text}});
        writeln!(self.lead.stdin.as_mut().unwrap(), "{said}").unwrap();
    }

    /// Ends its input and with it the session, which ends its team.
    pub fn end(mut self) -> Done {
        drop(self.lead.stdin.take());
        // Read to its end: a reader that goes away ends the session otherwise.
        let mut stdout = self.lead.stdout;
        let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let done = self.lead.running.wait();
        drop(reader.join());
        done
    }

    /// Kills the lead.
    pub fn kill(self) {
        self.lead.running.kill().expect_killed();
    }

    /// Waits until the team is there and the turn that made it is over.
    pub fn wait_made(&self) {
        eventually("the team was made", || {
            let rows = self.world.ps(&["--session", &self.session]);
            let is_there = self.world.config().join("teams/demo/config.json").exists();
            let rests = rows.iter().any(|row| row["role"] == "lead" && row["state"] == "idle");
            if is_there && rests { Ok(()) } else { Err(rows) }
        });
    }

    /// Waits for a member to be in `state`; its row.
    pub fn wait(&self, name: &str, state: &str) -> Value {
        wait(self.world, name, state)
    }
}

/// Waits for a member to be in `state`; its row.
pub fn wait(world: &World, name: &str, state: &str) -> Value {
    let id = format!("{name}@demo");
    eventually(&format!("{id} is {state}"), || {
        let rows = world.ps(&["--all"]);
        match rows.iter().find(|row| row["id"] == id.as_str()) {
            Some(row) if row["state"] == state => Ok(row.clone()),
            _ => Err(rows),
        }
    })
}

/// Freezes a member while it does not hold the team's lock, with which it would hold everybody up.
pub fn freeze(world: &World, row: &Value) {
    let (path, pid) = (world.config().join("lead/locks/demo.flock"), pid(row));
    let _lock = eventually("the team's lock is free", || try_exclusive(&path, OpenMode::Existing));
    signal(pid, Signal::SIGSTOP);
    eventually("it is frozen", || {
        let all = world.processes();
        if all.iter().any(|p| p.pid == pid && p.state == 'T') { Ok(()) } else { Err(all) }
    });
}

/// The member's entry in the roster.
pub fn entry(world: &World, name: &str) -> Value {
    let path = world.config().join("teams/demo/config.json");
    let roster: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    roster["members"].as_array().unwrap().iter().find(|m| m["name"] == name).cloned().unwrap_or_default()
}

/// Lines of a member's transcript, by its row.
pub fn transcript(row: &Value) -> Vec<Value> {
    lines_of(row["transcript"].as_str().unwrap().as_ref())
}

fn pid(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap()).unwrap()
}

/// What the lead's conversation was told, whatever it says.
fn told(world: &World, session: &str) -> String {
    world.session(session).lines().iter().map(|line| line["message"].to_string()).collect()
}

#[test]
fn a_person_adds_a_member_asks_it_to_end_and_the_model_takes_no_turn_for_it() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    led.wait("ann", "idle");
    led.wait_made();
    let turns = book.of("lead").len();
    let added = world.lead(&["team", "add", "demo", "cat", "You are cat; work", "--json"]).run();
    let row = added.expect(0).json();
    assert_eq!((&row["id"], &row["name"], &row["resumed"]), (&json!("cat@demo"), &json!("cat"), &json!(false)));
    led.wait("cat", "idle");
    let taken = world.lead(&["team", "add", "demo", "cat", "x"]).run();
    assert_eq!(taken.expect(0).says(&["\"cat-2\"", "--resume"]).stdout.trim(), "cat-2@demo");
    led.wait("cat-2", "idle");
    let ended = world.lead(&["team", "shutdown", "cat", "--team", "demo", "--reason", "all done", "--json"]).run();
    assert_eq!(ended.expect(0).json()["state"], "left");
    assert_eq!(entry(&world, "cat"), Value::Null);
    assert!(!exists(pid(&row)), "it is gone when the verb returns");
    eventually("the model is told", || {
        let told = told(&world, &led.session);
        let parts = ["The user added member cat of type", "The user ended this member"];
        if parts.iter().all(|part| told.contains(part)) { Ok(()) } else { Err(told) }
    });
    assert_eq!(book.of("lead").len(), turns, "notes cost no turn");
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_member_that_says_no_goes_on_and_the_person_is_told_why() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], false)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    world.lead(&["team", "shutdown", "ann", "--team", "demo"]).run().expect(3).says(&["ann", "there is work left"]);
    assert!(exists(pid(&row)));
    world.lead(&["team", "delete", "demo"]).run().expect(3).says(&["ann", "--wait"]);
    world.lead(&["team", "delete", "demo", "--wait", "20s"]).run().expect(3).says(&["ann", "there is work left"]);
    world.lead(&["team", "delete", "demo", "--force"]).run().expect(0);
    assert!(!exists(pid(&row)));
    assert!(!world.config().join("teams/demo").exists());
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r055_kill_and_the_end_of_the_session_end_members_that_answer_nothing() {
    // How long the lead waits to hear whether they rest.
    let world = World::new().with_limits("lock=3s");
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[], true)]);
    let settings = json!({"lead": {"shutdownGrace": "300ms"}}).to_string();
    let led = lead_with(&world, &book, &["--settings", &settings], "go");
    let rows = ["ann", "bob"].map(|name| led.wait(name, "idle"));
    rows.iter().for_each(|row| freeze(&world, row));
    let [ann, bob] = rows.map(|row| pid(&row));
    let killed = world.lead(&["team", "kill", "ann", "--team", "demo", "--json"]).run();
    assert_eq!(killed.expect(0).json()["status"], "killed");
    assert!(!exists(ann));
    assert_eq!(entry(&world, "ann")["isActive"], false);
    world.lead(&["team", "kill", "ann", "--team", "demo"]).run().expect(3).says(&["ann is not running"]);
    world.lead(&["team", "kill", "eve", "--team", "demo"]).run().expect(4).says(&["eve", "ann, bob"]);
    led.end().expect(0);
    assert!(!exists(bob) && !world.config().join("teams/demo").exists());
    world.assert_nothing_left();
}

#[test]
fn r059_a_member_that_is_killed_is_noticed_and_comes_back_with_conversation_and_mail() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    signal(pid(&row), Signal::SIGKILL);
    let dead = led.wait("ann", "failed");
    assert_eq!((&dead["role"], &dead["team"]), (&json!("teammate"), &json!("demo")));
    eventually("the roster says so", || match entry(&world, "ann") {
        ann if ann["isActive"] == false => Ok(()),
        ann => Err(ann),
    });
    world.lead(&["team", "send", "ann", "while you were away", "--team", "demo"]).run().expect(0);
    let again = world.lead(&["team", "add", "demo", "ann", "--resume", "--json"]).run();
    let again = again.expect(0).json();
    assert_eq!((&again["resumed"], &again["transcript"]), (&json!(true), &row["transcript"]));
    led.wait("ann", "idle");
    let lines = eventually("the mail is taken in", || {
        let lines = transcript(&row);
        let shown =
            lines.iter().filter(|l| l["type"] == "user" && l.to_string().contains("while you were away")).count();
        if shown > 0 { Ok(lines) } else { Err(shown) }
    });
    let count = |part: &str| lines.iter().filter(|l| l["type"] == "user" && l.to_string().contains(part)).count();
    assert_eq!(count("You are ann; work"), 1, "nothing is replayed");
    assert_eq!(count("while you were away"), 1);
    assert_eq!(count("Your process had ended"), 1);
    led.wait("ann", "idle");
    let running = world.lead(&["team", "add", "demo", "ann", "--resume"]).run();
    running.expect(3).says(&["still running (pid "]);
    world.lead(&["team", "add", "demo", "eve", "--resume"]).run().expect(4).says(&["eve", "ann"]);
    let last = book.of("teammate").pop().unwrap();
    assert!(last.all().contains("You are ann; work"), "the conversation came back");
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r062_two_that_bring_a_member_back_at_once_start_one_process() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let mut row = led.wait("ann", "idle");
    for _ in 0..crate::support::times(3, 20) {
        world.lead(&["team", "kill", "ann", "--team", "demo"]).run().expect(0);
        let add = || world.lead(&["team", "add", "demo", "ann", "--resume", "--json"]).start();
        let mut codes: Vec<Option<i32>> = [add(), add(), add()].map(|run| run.wait().code).into();
        codes.sort();
        assert_eq!(codes, [Some(0), Some(3), Some(3)]);
        row = led.wait("ann", "idle");
        let members = world.processes().into_iter().filter(|p| p.command.contains("ann@demo")).count();
        assert_eq!(members, 1);
    }
    let runs = transcript(&row).iter().filter(|l| l.to_string().contains("Your process had ended")).count();
    assert_eq!(runs, crate::support::times(3, 20));
    led.end().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r050_a_team_whose_lead_died_is_adopted_by_another_session_and_its_members_go_on() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let first = lead_with(&world, &book, &[], "go");
    let row = first.wait("ann", "idle");
    let first_session = first.session.clone();
    world.lead(&["team", "adopt", "demo"]).run().expect(3).says(&["led by process", "uds:"]);
    first.kill();
    let orphan = eventually("an orphan", || {
        let rows = world.ps(&["--team", "demo"]);
        rows.iter().find(|r| r["id"] == "ann@demo" && r["orphaned"] == true).cloned().ok_or(rows)
    });
    assert_eq!(orphan["pid"], row["pid"]);
    let nobody = world.lead(&["team", "adopt", "demo"]).run();
    nobody.expect(3).says(&["lead --resume", &first_session]);
    world.lead(&["team", "add", "demo", "cat", "x"]).run().expect(3).says(&["team adopt demo", &first_session]);
    world.lead(&["team", "shutdown", "ann", "--team", "demo"]).run().expect(0);
    assert!(exists(pid(&row)), "an orphan reads no mail");

    let idle = agent(json!({"role": "^lead$"}), &[turn("here", &[])]);
    let second = crate::support::book(&world, &[idle, members(&[], true)]);
    let second = lead_with(&world, &second, &[], "hello");
    let adopted = world.lead(&["team", "adopt", "demo", "--json"]).run();
    let adopted = adopted.expect(0).json();
    assert_eq!((&adopted["session"], &adopted["members"]), (&json!(second.session), &json!(["ann@demo"])));
    // The request that waited in its mailbox is its business again.
    eventually("ann leaves", || match entry(&world, "ann") {
        Value::Null => Ok(()),
        ann => Err(ann),
    });
    second.end().expect(0);
    assert!(!world.config().join("teams/demo").exists());
    world.assert_nothing_left();
}

#[test]
fn r050_a_team_whose_lead_died_is_deleted_by_name_with_its_members() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    let row = led.wait("ann", "idle");
    led.kill();
    world.lead(&["team", "delete", "demo"]).run().expect(3).says(&["ann (pid "]);
    world.lead(&["team", "delete", "demo", "--wait", "1s"]).run().expect(3).says(&["nobody leads", "--force"]);
    world.lead(&["team", "delete", "demo", "--force"]).run().expect(0);
    assert!(!exists(pid(&row)) && !world.config().join("teams/demo").exists());
    world.lead(&["reap"]).run().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r049_a_second_lead_is_refused_and_told_who_leads() {
    let world = World::new();
    let book = book(&world, &[maker(&["ann"]), members(&[], true)]);
    let led = lead_with(&world, &book, &[], "go");
    led.wait("ann", "idle");
    let idle = agent(json!({"role": "^lead$"}), &[turn("here", &[])]);
    let other = crate::support::book(&world, &[idle]);
    let other = lead_with(&world, &other, &[], "hello");
    let refused = world.lead(&["team", "adopt", "demo", "--session", &other.session]).run();
    refused.expect(3).says(&[&format!("process {}", led.lead.running.pid()), "uds:"]);
    other.end().expect(0);
    led.wait("ann", "idle");
    led.end().expect(0);
    world.assert_nothing_left();
}
