//! The verbs for shells and scripts, each with its exit codes and its JSON.

use serde_json::{Value, json};

use crate::support::{Book, Done, Gate, Running, World, bash, book, eventually, lead_rule, spawn, turn, worker_rule};

const ID: &str = "44444444-2222-4333-8444-555555555555";
const UNKNOWN: &str = "a-0123456789abcdef";

/// A session with one agent that completed, one that failed and one that waits at a gate.
struct Scene {
    world: World,
    gate: Gate,
    book: Book,
    run: Running,
    good: String,
    bad: String,
    busy: String,
}

fn scene() -> Scene {
    let world = World::new();
    let gate = world.gate("gate");
    let jobs = [spawn("good", "Do the good job."), spawn("bad", "Do the bad job."), spawn("busy", "Do the busy job.")];
    let lead = lead_rule(&[
        turn("", &jobs),
        json!({"when": {"notifications": "==2"}, "tools": [bash("echo > two-ended")]}),
        json!({"when": {"notifications": "==3"}, "text": "over"}),
    ]);
    let good = [turn("Reading.", &[bash("echo from the tool; echo to stderr >&2")]), turn("the good answer", &[])];
    let bad = [
        turn("half an answer", &[bash("false")]),
        json!({"error": {"status": 400, "message": "bad luck", "times": 9}}),
    ];
    let busy = [turn("Begun.", &[bash(&gate.arrive("here"))]), turn("late answer", &[])];
    let book = book(
        &world,
        &[lead, worker_rule("good job", &good), worker_rule("bad job", &bad), worker_rule("busy job", &busy)],
    );
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("two-ended");
    world.wait_file("here");
    let id = |name: &str| world.session(ID).agent(name).id;
    let (good, bad, busy) = (id("good"), id("bad"), id("busy"));
    Scene { world, gate, book, run, good, bad, busy }
}

impl Scene {
    fn lead(&self, args: &[&str]) -> Done {
        self.world.lead(args).run()
    }

    fn end(self) -> World {
        self.gate.open(1);
        assert_eq!(self.run.wait().expect(0).result(), "over");
        assert_eq!(self.book.last().notes().len(), 3);
        self.world.assert_nothing_left();
        self.world
    }
}

/// The error object of a verb that was run with `--json`.
fn error_of(done: &Done) -> Value {
    let text = if done.stdout.trim().is_empty() { &done.stderr } else { &done.stdout };
    let json: Value = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("no JSON ({e}): {done:#?}"));
    let error = json["error"].clone();
    assert!(error["code"].is_string() && error["message"].is_string(), "{done:#?}");
    error
}

#[test]
fn ps_lists_the_living_and_with_all_the_ended_too() {
    let scene = scene();
    let rows = eventually("the tool that runs is counted", || {
        let rows = scene.world.ps(&[]);
        if rows.iter().any(|r| r["id"] == scene.busy.as_str() && r["tool_uses"] == 1) { Ok(rows) } else { Err(rows) }
    });
    let ids: Vec<&str> = rows.iter().filter_map(|r| r["id"].as_str()).collect();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert!(ids.contains(&ID) && ids.contains(&scene.busy.as_str()), "{ids:?}");
    let row = rows.iter().find(|r| r["id"] == scene.busy.as_str()).unwrap();
    assert_eq!((&row["role"], &row["state"], &row["run"]), (&json!("worker"), &json!("running"), &json!(1)));
    assert_eq!((&row["session"], &row["type"]), (&json!(ID), &json!("general-purpose")));
    assert_eq!(row["transcript"], scene.world.session(ID).agent("busy").path.to_str().unwrap());
    assert_eq!(row["cwd"], scene.world.cwd().to_str().unwrap());
    assert!(row["address"].as_str().is_some_and(|a| a.starts_with("uds:/")), "{row:#}");
    assert!(crate::support::exists(i32::try_from(row["pid"].as_i64().unwrap()).unwrap()));
    assert!(row.as_object().unwrap().keys().all(|k| k.chars().all(|c| c.is_ascii_lowercase() || c == '_')), "{row:#}");

    let all = scene.world.ps(&["--all"]);
    let state = |id: &str| all.iter().find(|r| r["id"] == id).map(|r| r["state"].clone());
    assert_eq!(state(&scene.good), Some(json!("completed")), "{all:#?}");
    assert_eq!(state(&scene.bad), Some(json!("failed")), "{all:#?}");
    assert_eq!(state(&scene.busy), Some(json!("running")), "{all:#?}");

    let of_session = scene.world.ps(&["--all", "--session", ID]);
    assert_eq!(of_session.len(), 4, "{of_session:#?}");
    let table = scene.lead(&["ps"]);
    table.expect(0);
    assert!(table.stdout.contains(&scene.busy[..8]) && table.stdout.contains("running"), "{table:#?}");
    let world = scene.end();
    assert_eq!(world.ps(&[]), Vec::<Value>::new());
}

#[test]
fn wait_tells_by_its_exit_code_how_it_went() {
    let scene = scene();
    scene.lead(&["wait", &scene.good]).expect(0);
    scene.lead(&["wait", &scene.good, &scene.bad]).expect(1);
    scene.lead(&["wait", &scene.good, UNKNOWN]).expect(4).says(&[UNKNOWN]);
    scene.lead(&["wait", &scene.busy, "--timeout", "200ms"]).expect(5);
    scene.lead(&["wait", "--any", &scene.busy, &scene.good]).expect(0);
    let rows = scene.lead(&["wait", "--json", &scene.good, &scene.bad]).expect(1).json();
    let rows = rows.as_array().unwrap_or_else(|| panic!("{rows:#}"));
    assert_eq!((&rows[0]["id"], &rows[0]["status"]), (&json!(scene.good), &json!("completed")));
    assert_eq!((&rows[0]["result"], &rows[0]["run"]), (&json!("the good answer"), &json!(1)));
    assert_eq!((&rows[1]["id"], &rows[1]["status"]), (&json!(scene.bad), &json!("failed")));
    assert!(rows[1]["error"].as_str().is_some_and(|e| e.contains("bad luck")), "{rows:#?}");
    assert_eq!(rows[1]["result"], "half an answer");
    assert!(rows[0]["usage"]["total_tokens"].is_u64() && rows[0]["usage"]["tool_uses"] == 1, "{rows:#?}");

    // One that is waited for while it runs: the verb ends with it.
    let waiting = scene.world.lead(&["wait", &scene.busy]).start();
    scene.gate.open(1);
    waiting.wait().expect(0);
    let world = scene.end();
    world.lead(&["wait", "not-an-id"]).run().expect(4);
}

#[test]
fn result_is_the_answer_and_3_while_there_is_none() {
    let scene = scene();
    let good = scene.lead(&["result", &scene.good]);
    assert_eq!(good.expect(0).stdout.trim_end(), "the good answer");
    scene.lead(&["result", &scene.busy]).expect(3);
    scene.lead(&["result", UNKNOWN]).expect(4).says(&[UNKNOWN]);
    let bad = scene.lead(&["result", "--json", &scene.bad]);
    let row = bad.expect(1).json();
    assert_eq!((&row["status"], &row["result"]), (&json!("failed"), &json!("half an answer")));
    let error = error_of(&scene.lead(&["result", "--json", &scene.busy]));
    assert!(error["message"].as_str().is_some_and(|m| m.contains(&scene.busy)), "{error:#}");
    error_of(&scene.lead(&["result", "--json", UNKNOWN]));
    // A unique prefix is enough, an ambiguous one is an error that lists the ids.
    let prefix = shortest_prefix(&scene.good, &[&scene.bad, &scene.busy]);
    assert_eq!(scene.lead(&["result", &prefix]).expect(0).stdout.trim_end(), "the good answer");
    let ambiguous = scene.lead(&["result", "a-"]);
    ambiguous.expect(2);
    for id in [&scene.good, &scene.bad, &scene.busy] {
        assert!(ambiguous.stderr.contains(id.as_str()), "{ambiguous:#?}");
    }
    scene.lead(&["result", "--run", "1", &scene.good]).expect(0);
    scene.lead(&["result", "--run", "2", &scene.good]).expect(4);
    scene.end();
}

fn shortest_prefix(id: &str, others: &[&String]) -> String {
    let unique = |n: &usize| others.iter().all(|o| !o.starts_with(&id[..*n]));
    id[..(3..id.len()).find(unique).unwrap()].to_owned()
}

#[test]
fn stop_ends_an_agent_and_says_what_it_found() {
    let scene = scene();
    let ended = scene.lead(&["stop", &scene.good]);
    assert!(ended.code.is_some_and(|c| c == 3 || c == 4) && ended.stderr.contains(&scene.good), "{ended:#?}");
    scene.lead(&["stop", UNKNOWN]).expect(4).says(&[UNKNOWN]);
    error_of(&scene.lead(&["stop", "--json", UNKNOWN]));
    scene.lead(&["stop", &scene.busy]).expect(0);
    let done = scene.run.wait();
    assert_eq!(done.expect(0).result(), "over");
    let outcome = scene.world.session(ID).agent("busy").outcome();
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("killed"), &json!("Begun.")));
    scene.world.session(ID).check();
    scene.world.lead(&["wait", &scene.busy]).run().expect(1);
    scene.world.assert_nothing_left();
}

#[test]
fn logs_and_transcript_show_what_an_agent_did() {
    let scene = scene();
    let logs = scene.lead(&["logs", &scene.good]);
    logs.expect(0);
    assert!(logs.stdout.contains("Bash") && logs.stdout.contains("the good answer"), "{logs:#?}");
    assert!(logs.stdout.contains("completed"), "{logs:#?}");
    assert!(logs.stdout.lines().all(|l| l.len() < 1000), "one line per event: {logs:#?}");
    scene.lead(&["logs", "--stderr", &scene.good]).expect(0);
    scene.lead(&["logs", UNKNOWN]).expect(4).says(&[UNKNOWN]);
    let following = scene.world.lead(&["logs", "-f", &scene.busy]).start();

    let raw = scene.lead(&["transcript", "--format", "jsonl", &scene.good]);
    let lines: Vec<Value> = raw.expect(0).stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines, scene.world.session(ID).agent("good").lines());
    let shown = scene.lead(&["transcript", "--format", "md", &scene.good]);
    shown.expect(0);
    for part in ["Do the good job.", "Reading.", "from the tool", "the good answer"] {
        assert!(shown.stdout.contains(part), "{part}: {shown:#?}");
    }
    scene.lead(&["transcript", UNKNOWN]).expect(4);
    let of_session = scene.lead(&["transcript", "--format", "jsonl", ID]);
    assert!(of_session.expect(0).stdout.contains("\"go\""), "{of_session:#?}");
    scene.gate.open(1);
    let followed = following.wait();
    assert!(followed.expect(0).stdout.contains("late answer"), "{followed:#?}");
    scene.end();
}

#[test]
fn doctor_finds_nothing_in_order_and_names_what_the_dead_left() {
    let world = World::new();
    let well = world.lead(&["doctor"]).run();
    well.expect(0);
    let gate = world.gate("gate");
    let wait = json!({"when": {"latest": "^go$"}, "tools": [bash(&gate.arrive("here"))]});
    let book = book(&world, &[lead_rule(&[wait, turn("over", &[])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("here");
    world.lead(&["doctor"]).run().expect(0);
    run.kill().expect_killed();
    let ill = world.lead(&["doctor", "--check"]).run();
    assert!(ill.expect(1).stdout.contains(ID), "{ill:#?}");
    let json = world.lead(&["doctor", "--check", "--json"]).run().expect(1).json();
    let finding = &json["findings"][0];
    assert!(finding["what"].as_str().is_some_and(|w| w.contains(ID)) && finding["mend"].is_string(), "{json:#}");
    world.headless(&book.model(), "sweep").run().expect(0);
    world.lead(&["doctor"]).run().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_session_dead_without_an_outcome_of_its_agents_is_settled_by_wait() {
    let scene = scene();
    let pid = scene.world.workers()[0]["pid"].as_i64().unwrap();
    scene.run.kill().expect_killed();
    crate::support::signal(i32::try_from(pid).unwrap(), nix::sys::signal::Signal::SIGKILL);
    scene.world.lead(&["wait", &scene.busy]).run().expect(1);
    let outcome = scene.world.session(ID).agent("busy").outcome();
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("failed"), &json!("Begun.")));
    let args = ["-p", "--resume", ID, "--model", &scene.book.model(), "--output-format", "json"];
    let done = scene.world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).run();
    done.expect(0);
    scene.world.session(ID).check();
    scene.world.assert_nothing_left();
}
