//! Permissions that change while a session runs, and what of them is the main conversation's alone:
//! R072, R073, R075, R076.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Gate, Running, World, ask, bash, book, call, eventually, lead_rule, signal, spawn, turn, worker_rule,
};

const ID: &str = "33333333-2222-4333-8444-555555555555";

/// Writes the project's settings, replaced as a whole.
fn settings(world: &World, text: &str) {
    world.file(".claude/new.json", text);
    std::fs::rename(world.cwd().join(".claude/new.json"), world.cwd().join(".claude/settings.json")).unwrap();
}

/// Waits until the lead has said `text` so many times.
fn wait_said(run: &Running, text: &str, times: usize) {
    eventually(&format!("{times} times {text:?}"), || {
        let said = run.stderr();
        if said.matches(text).count() >= times { Ok(()) } else { Err(said) }
    });
}

const OBEYS: &str = "the agent obeys the new permission rules";

/// A lead and a worker; the worker waits at the gate before each of its `steps`.
fn at_gates(world: &World, gate: &Gate, steps: &[&[Value]]) -> Book {
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "tools": [bash("touch by-lead")]}),
        json!({"when": {"notifications": ">=1"}, "text": "over"}),
    ]);
    let turns: Vec<Value> = steps
        .iter()
        .enumerate()
        .flat_map(|(i, step)| [turn("", &[bash(&gate.arrive(&format!("here-{i}")))]), turn("", step)])
        .chain([turn("done", &[])])
        .collect();
    book(world, &[lead, worker_rule("Do the job", &turns)])
}

fn start(world: &World, book: &Book) -> Running {
    world.headless(&book.model(), "go").args(&["--session-id", ID]).env("LEAD_LOG", "info").start()
}

#[test]
fn r075_rules_that_are_added_while_it_runs_reach_the_lead_and_its_agents() {
    let world = World::new();
    let gate = world.gate("gate");
    world.file("secret.txt", "needle\n");
    world.file("plain.txt", "needle\n");
    let find = call("Glob", json!({"pattern": "*.txt"}));
    let grep = call("Grep", json!({"pattern": "needle"}));
    let step = [bash("touch by-worker"), find, grep];
    let book = at_gates(&world, &gate, &[&step, &step, &[bash("touch again")]]);
    let run = start(&world, &book);
    world.wait_file("here-0");
    gate.open(1);
    world.wait_file("here-1");
    settings(&world, r#"{"permissions": {"deny": ["Bash(touch:*)", "Read(secret.txt)"]}}"#);
    wait_said(&run, OBEYS, 1);
    gate.open(1);
    world.wait_file("here-2");
    // A file that can't be used changes nothing, and what is wrong is said.
    settings(&world, "{\n  \"permissions\": {\"deny\": []},\n}");
    wait_said(&run, "settings.json at line 3, column 1", 1);
    wait_said(&run, "the permission rules from before stay in force", 1);
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    let results = book.asked("the job").pop().unwrap().results();
    let [_, first @ .., _, _] = results.as_slice() else { panic!("{results:#?}") };
    let (before, after) = (&first[..3], &first[4..]);
    assert!(before.iter().all(|(_, is_error)| !is_error), "{before:#?}");
    assert!(before[1].0.contains("secret.txt") && before[2].0.contains("secret.txt"), "{before:#?}");
    assert!(after[0].1 && after[0].0.contains("denied by rule Bash(touch:*)"), "{after:#?}");
    assert!(after[1].0.contains("plain.txt") && !after[1].0.contains("secret.txt"), "{after:#?}");
    assert!(after[2].0.contains("plain.txt") && !after[2].0.contains("secret.txt"), "{after:#?}");
    let last = results.last().unwrap();
    assert!(last.1 && last.0.contains("denied by rule"), "{last:?}");
    assert!(world.cwd().join("by-worker").exists() && !world.cwd().join("again").exists());
    let of_lead = book.last().results();
    assert!(of_lead.last().unwrap().1 && !world.cwd().join("by-lead").exists(), "{of_lead:#?}");
    let denied = world.session(ID).agent("job").outcome()["permissionDenials"].as_array().unwrap().len();
    assert_eq!(denied, 2);
    assert_eq!(done.json()["permission_denials"].as_array().unwrap().len(), 3, "the lead's own, and its agent's");
}

#[test]
fn r075_a_narrower_mode_reaches_running_agents_and_rules_that_go_are_gone() {
    let world = World::new();
    let gate = world.gate("gate");
    let write = [bash("echo x > written")];
    let book = at_gates(&world, &gate, &[&write, &write, &write, &[bash("touch denied")]]);
    let arrive = json!(["Bash(read:*)", "Bash(mv:*)", "Edit(/here-*)", "Edit(/gate)"]);
    let with = |mode: &str, deny: Value| {
        json!({"permissions": {"defaultMode": mode, "allow": arrive, "deny": deny}}).to_string()
    };
    settings(&world, &with("acceptEdits", json!(["Bash(touch:*)"])));
    let run = world
        .lead(&["-p", "go", "--model", &book.model(), "--output-format", "json", "--session-id", ID])
        .env("LEAD_LOG", "info")
        .start();
    world.wait_file("here-0");
    gate.open(1);
    world.wait_file("here-1");
    settings(&world, &with("plan", json!(["Bash(touch:*)"])));
    wait_said(&run, OBEYS, 1);
    gate.open(1);
    world.wait_file("here-2");
    settings(&world, &with("default", json!(["Bash(touch:*)"])));
    wait_said(&run, OBEYS, 2);
    gate.open(1);
    world.wait_file("here-3");
    settings(&world, &with("bypassPermissions", json!([])));
    wait_said(&run, OBEYS, 3);
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    let results = book.asked("the job").pop().unwrap().results();
    let steps: Vec<&(String, bool)> = results.iter().skip(1).step_by(2).collect();
    let failed: Vec<bool> = steps.iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(failed, [false, true, false, false], "{steps:#?}");
    assert!(steps[1].0.contains("mode plan"), "{steps:#?}");
    assert!(world.cwd().join("denied").exists(), "the rule is gone, and the mode permits it");
}

#[test]
fn r075_an_agent_that_is_taken_over_obeys_the_rules_of_its_new_lead() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = at_gates(&world, &gate, &[&[bash("touch by-worker")]]);
    let run = start(&world, &book);
    world.wait_file("here-0");
    eventually("the launch in the transcript", || {
        let lines = world.session(ID).lines();
        if lines.iter().any(|l| l["toolUseResult"]["status"] == "async_launched") { Ok(()) } else { Err(lines) }
    });
    signal(run.pid(), Signal::SIGKILL);
    run.wait();
    settings(&world, r#"{"permissions": {"deny": ["Bash(touch:*)"]}}"#);
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    let again = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).env("LEAD_LOG", "info").start();
    wait_said(&again, OBEYS, 1);
    gate.open(1);
    assert_eq!(again.wait().expect(0).result(), "over");
    let results = book.asked("the job").pop().unwrap().results();
    assert!(results[1].1 && results[1].0.contains("denied by rule Bash(touch:*)"), "{results:#?}");
    assert!(!world.cwd().join("by-worker").exists() && !world.cwd().join("by-lead").exists());
}

#[test]
fn r072_an_agent_that_was_let_go_is_told_no_at_once_with_the_reason_and_r073_it_is_in_its_outcome() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[spawn("job", "Do the job.")]), turn("over", &[])]);
    let asking = [bash("touch x"), call("Read", json!({"file_path": "/etc/hostname"})), bash("ls")];
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &asking), turn("could not", &[])])]);
    world.lead(&["-p", "go", "--detach", "--model", &book.model(), "--session-id", ID]).run().expect(0);
    let id = world.session(ID).agent("job").id.clone();
    let waited = world.lead(&["wait", &id, "--json"]).run();
    waited.expect(0);
    let results = book.asked("the job").pop().unwrap().results();
    assert_eq!(results.iter().map(|(_, is_error)| *is_error).collect::<Vec<_>>(), [true, true, false], "{results:#?}");
    assert!(results[0].0.contains("`touch x`") && results[0].0.contains("nobody can be asked"), "{results:#?}");
    assert!(results[1].0.contains("outside the folders"), "{results:#?}");
    let denials = world.session(ID).agent("job").outcome()["permissionDenials"].clone();
    let tools: Vec<&str> = denials.as_array().unwrap().iter().filter_map(|d| d["tool_name"].as_str()).collect();
    assert_eq!(tools, ["Bash", "Read"]);
    world.wait_quiet();
}

#[test]
fn r076_what_limits_the_main_conversation_does_not_limit_its_agents() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("over", &[])]);
    let steps: Vec<Value> =
        (0..4).map(|i| turn("", &[bash(&format!("echo {i} > f{i}"))])).chain([turn("done", &[])]).collect();
    let book = book(&world, &[lead, worker_rule("Do the job", &steps)]);
    let args = [
        "-p",
        "go",
        "--model",
        &book.model(),
        "--tools",
        "Agent",
        "--max-turns",
        "2",
        "--system-prompt",
        "Only delegate.",
    ];
    // In mode default the main conversation asks before it edits; its agents edit in the working folder.
    let done = world.lead(&args).args(&["--permission-mode", "default"]).run();
    done.expect(0);
    assert_eq!(book.last().tools(), ["Agent"]);
    let worker = book.asked("the job").pop().unwrap();
    assert!(worker.tools().contains(&"Bash") && worker.tools().contains(&"Read"), "{:?}", worker.tools());
    assert!(worker.results().iter().all(|(_, is_error)| !is_error), "{:#?}", worker.results());
    assert_eq!(worker.results().len(), 4, "more turns than the lead may take");
    assert!((0..4).all(|i| world.cwd().join(format!("f{i}")).exists()));
}

#[test]
fn lead_agents_lists_the_types_with_tools_model_mode_and_origin() {
    let world = World::new();
    settings(&world, r#"{"permissions": {"deny": ["Agent(Plan)"]}}"#);
    let rows = |args: &[&str]| world.lead(&["agents", "--json"]).args(args).run().expect(0).json();
    let all = rows(&[]);
    let names: Vec<&str> = all.as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(names, ["general-purpose", "Explore", "Plan"]);
    assert_eq!(
        (&all[1]["source"], &all[1]["read_only_bash"], &all[1]["model"]),
        (&json!("built-in"), &json!(true), &json!(null))
    );
    assert_eq!(all[1]["tools"], json!(["Bash", "Glob", "Grep", "Read", "TodoWrite", "WebFetch"]));
    assert!(all[2]["denied_by"].as_str().unwrap().contains("Agent(Plan)") && all[1]["denied_by"].is_null());
    let workers = rows(&["--coordinator"]);
    assert_eq!((&workers[3]["name"], &workers[3]["background"]), (&json!("worker"), &json!(true)));
    let table = world.lead(&["agents"]).run();
    table.expect(0);
    for word in ["NAME", "Explore", "built-in", "inherited", "Bash only reads", "denied by Agent(Plan)"] {
        assert!(table.stdout.contains(word), "{word}: {}", table.stdout);
    }
    let none = world.lead(&["agents"]).env("CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "1").run();
    assert!(none.expect(0).stdout.contains("no types of agents"), "{none:?}");
}

#[test]
fn doctor_says_which_settings_file_counts() {
    let world = World::new();
    std::fs::write(world.config().join("settings.json"), r#"{"model": "a", "lead": {"sandbox": "off"}}"#).unwrap();
    settings(&world, r#"{"model": "b", "permissions": {"deny": ["Bash(rm"]}}"#);
    let done = world.lead(&["doctor", "--json"]).run();
    let report = done.expect(1).json();
    let files = report["settings"].as_array().unwrap();
    let layers: Vec<&str> = files.iter().filter_map(|f| f["layer"].as_str()).collect();
    assert_eq!(layers, ["user", "project"]);
    assert!(files[0]["overridden"]["model"].as_str().unwrap().ends_with(".claude/settings.json"), "{report:#}");
    assert_eq!(files[1]["keys"], json!(["model", "permissions.deny"]));
    let text = world.lead(&["doctor"]).run().stdout;
    for words in ["lead.sandbox of", "is not used by this build", "\"Bash(rm\"", "mend: correct the rule"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
