//! The permission desk: a question of an agent or of the main conversation waits at the lead, is
//! answered from any terminal, and reaches the model and the result, whatever the answer.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Running, World, bash, book, call, eventually, lead_rule, output_of, signal, spawn, stop, tell, times, turn,
    worker_rule,
};

const LEAD: &str = env!("CARGO_BIN_EXE_lead");

/// A run whose questions wait at the desk; no tool is permitted but what `allowed` says.
fn run(world: &World, book: &Book, allowed: &[&str]) -> Running {
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]);
    let lead = lead.args(&["--permission-prompt-tool", "desk"]);
    let lead = allowed.iter().fold(lead, |lead, rule| lead.args(&["--allowed-tools", rule]));
    lead.start()
}

/// Waits until so many questions are listed.
fn questions(world: &World, count: usize) -> Vec<Value> {
    eventually(&format!("{count} questions"), || {
        let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
        let rows = rows.as_array().cloned().unwrap_or_default();
        if rows.len() == count { Ok(rows) } else { Err(rows) }
    })
}

fn id(question: &Value) -> &str {
    question["id"].as_str().unwrap()
}

/// One worker that runs `command` and answers with what it was told.
fn one_worker(world: &World, command: &str) -> Book {
    book(
        world,
        &[
            lead_rule(&[turn("", &[spawn("job", "Do the job.")]), turn("waiting", &[]), turn("over", &[])]),
            worker_rule("Do the job", &[turn("", &[bash(command)]), turn("told: {{result.1}}", &[])]),
        ],
    )
}

#[test]
fn a_worker_s_question_answered_yes_runs_the_call() {
    let world = World::new();
    let book = one_worker(&world, "touch made; echo made");
    let run = run(&world, &book, &[]);
    let open = questions(&world, 1).remove(0);
    assert_eq!(
        (open["tool"].as_str(), open["input"]["command"].as_str()),
        (Some("Bash"), Some("touch made; echo made"))
    );
    let worker = world.wait_workers(1).remove(0);
    assert_eq!((worker["id"].clone(), worker["state"].as_str()), (open["agent"].clone(), Some("waiting")), "{worker}");
    assert!(worker["waiting_for"].as_str().is_some_and(|w| w.contains("permission")), "{worker}");
    assert!(!world.cwd().join("made").exists(), "nothing ran before the answer");
    let listed = world.lead(&["permissions", "list"]).run().expect(0).stdout.clone();
    assert!(listed.contains(id(&open)) && listed.contains("Bash"), "{listed}");
    world.lead(&["permissions", "allow", &id(&open)[..6]]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).json()["permission_denials"], json!([]));
    assert!(done.stderr.contains(id(&open)), "the question is told where the session runs: {}", done.stderr);
    let session = world.session(&done.session());
    assert_eq!(session.agent("job").outcome()["result"], "told: made");
    session.check();
    let again = world.lead(&["permissions", "allow", id(&open)]).run();
    assert_eq!(again.code, Some(4), "{again:?}");
    world.assert_nothing_left();
}

#[test]
fn r073_a_question_answered_no_or_not_at_all_is_told_and_listed() {
    for timeout in [false, true] {
        let world = World::new();
        let book = one_worker(&world, "touch made");
        let settings = json!({"lead": {"permissionTimeout": if timeout { "700ms" } else { "10m" }}}).to_string();
        let lead = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]);
        let run = lead.args(&["--permission-prompt-tool", "desk", "--settings", &settings]).start();
        if !timeout {
            let open = questions(&world, 1).remove(0);
            world.lead(&["permissions", "deny", id(&open), "--reason", "not on a Monday"]).run().expect(0);
        }
        let done = run.wait();
        let denials = done.expect(0).json()["permission_denials"].clone();
        assert_eq!(denials.as_array().map(Vec::len), Some(1), "{denials}");
        assert_eq!(denials[0]["tool_input"]["command"], "touch made");
        let outcome = world.session(&done.session()).agent("job").outcome();
        let told = outcome["result"].as_str().unwrap();
        let why = if timeout { "nobody answered within 700ms" } else { "not on a Monday" };
        assert!(told.contains("Permission denied") && told.contains(why), "{told}");
        assert_eq!(outcome["permissionDenials"].as_array().map(Vec::len), Some(1), "{outcome}");
        assert!(!world.cwd().join("made").exists());
        world.assert_nothing_left();
    }
}

#[test]
fn the_main_conversation_s_own_question_waits_at_the_same_desk() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("", &[bash("echo hello > f; cat f")]), turn("got {{result.1}}", &[])])]);
    let run = run(&world, &book, &[]);
    let open = questions(&world, 1).remove(0);
    assert_eq!(open["agent"], open["session"]);
    let row = world.ps(&[]).into_iter().find(|row| row["role"] == "lead").unwrap();
    assert_eq!(row["state"], "waiting", "{row}");
    world.lead(&["permissions", "allow", id(&open)]).run().expect(0);
    assert_eq!(run.wait().expect(0).result(), "got hello");
    world.assert_nothing_left();
}

#[test]
fn an_answer_for_always_is_a_rule_of_the_project_that_holds_at_once() {
    let world = World::new();
    std::fs::create_dir(world.cwd().join(".git")).unwrap();
    let twice = [bash("touch made"), bash("rm made; true"), bash("touch made")];
    let turns: Vec<Value> = twice.iter().map(|call| turn("", std::slice::from_ref(call))).collect();
    let turns = [turns, vec![turn("done", &[])]].concat();
    let book = book(
        &world,
        &[
            lead_rule(&[turn("", &[spawn("job", "Do the job.")]), turn("waiting", &[]), turn("over", &[])]),
            worker_rule("Do the job", &turns),
        ],
    );
    let run = run(&world, &book, &[]);
    let first = questions(&world, 1).remove(0);
    world.lead(&["permissions", "allow", id(&first), "--always"]).run().expect(0);
    let settings = world.cwd().join(".claude/settings.local.json");
    let text = std::fs::read_to_string(&settings).unwrap();
    assert!(text.contains("Bash(touch made)"), "{text}");
    let second = questions(&world, 1).remove(0);
    assert_eq!(second["input"]["command"], "rm made; true");
    world.lead(&["permissions", "allow", id(&second)]).run().expect(0);
    // The third call is the first one again, and asks nobody.
    let done = run.wait();
    assert_eq!(done.expect(0).json()["permission_denials"], json!([]));
    assert!(world.cwd().join("made").exists());
    world.assert_nothing_left();
}

#[test]
fn without_a_desk_questions_are_denied_at_once() {
    let world = World::new();
    let book = one_worker(&world, "touch made");
    let done = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]).run();
    assert_eq!(done.expect(0).json()["permission_denials"].as_array().map(Vec::len), Some(1));
    let told = world.session(&done.session()).agent("job").outcome()["result"].clone();
    assert!(told.as_str().is_some_and(|t| t.contains("nobody can be asked in this run")), "{told}");
    world.assert_nothing_left();
}

#[test]
fn a_question_outlives_its_lead_and_is_put_to_the_next() {
    for _ in 0..times(2, 20) {
        let world = World::new();
        let book = one_worker(&world, "touch made; echo made");
        let first = run(&world, &book, &[]);
        let session = world.wait_workers(1).remove(0)["session"].as_str().unwrap().to_owned();
        let before = questions(&world, 1).remove(0);
        first.kill();
        let worker = world.wait_workers(1).remove(0);
        assert_eq!(worker["state"], "waiting", "{worker}");
        assert!(questions(&world, 0).is_empty());
        let lead = world.lead(&["-p", "--resume", &session, "--model", &book.model(), "--output-format", "json"]);
        let second = lead.args(&["--permission-prompt-tool", "desk"]).start();
        let after = questions(&world, 1).remove(0);
        assert_eq!((&after["agent"], &after["input"]), (&before["agent"], &before["input"]));
        let old = world.lead(&["permissions", "allow", id(&before)]).run();
        assert_eq!(old.code, Some(4), "the dead lead's question is nobody's: {old:?}");
        world.lead(&["permissions", "allow", id(&after)]).run().expect(0);
        second.wait().expect(0);
        let session = world.session(&session);
        assert_eq!(session.agent("job").outcome()["result"], "told: made");
        session.check();
        world.assert_nothing_left();
    }
}

#[test]
fn an_orphan_s_question_is_denied_when_no_lead_comes() {
    let world = World::new().with_limits("reply=500ms");
    let book = one_worker(&world, "touch made");
    let settings = json!({"lead": {"permissionTimeout": "1s"}}).to_string();
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]);
    let first = lead.args(&["--permission-prompt-tool", "desk", "--settings", &settings]).start();
    questions(&world, 1);
    let session = world.wait_workers(1).remove(0)["session"].as_str().unwrap().to_owned();
    first.kill();
    world.wait_quiet();
    let outcome = world.session(&session).agent("job").outcome();
    let told = outcome["result"].as_str().unwrap();
    assert!(told.contains("nobody answered within 1s"), "{told}");
    assert_eq!(outcome["permissionDenials"].as_array().map(Vec::len), Some(1));
    // What the dead lead left in the registry is swept by whoever starts next.
    world.headless(&book_of_one_word(&world).model(), "go").run().expect(0);
    world.assert_nothing_left();
}

fn book_of_one_word(world: &World) -> Book {
    book(world, &[lead_rule(&[turn("over", &[])])])
}

#[test]
fn a_question_of_an_agent_that_is_let_go_is_denied_at_once() {
    let world = World::new();
    let book = one_worker(&world, "touch made");
    let lead = world.lead(&["-p", "go", "--detach", "--model", &book.model(), "--output-format", "json"]);
    let done = lead.args(&["--permission-prompt-tool", "desk"]).run();
    let id = done.expect(0).json()["detached"][0].as_str().unwrap().to_owned();
    world.lead(&["wait", &id]).run().expect(0);
    let told = world.lead(&["result", &id]).run().expect(0).stdout.clone();
    assert!(told.contains("nobody can be asked: this agent runs detached"), "{told}");
    assert!(!world.cwd().join("made").exists());
    world.assert_nothing_left();
}

#[test]
fn an_agent_can_answer_neither_its_own_question_nor_another_s() {
    let world = World::new();
    let permit = format!("'{LEAD}' permissions allow \"$(cat question)\"; echo code $?");
    let own = format!("until [ -s question ]; do read -t 0.1 < /dev/zero; done; {permit}");
    let rules = [
        lead_rule(&[
            turn("", &[spawn("asks", "Ask for it."), spawn("answers", "Answer it.")]),
            turn("waiting", &[]),
            turn("{{agent.1.result}} / {{agent.2.result}}", &[]),
            turn("over", &[]),
        ]),
        worker_rule("Ask for it", &[turn("", &[bash("touch made")]), turn("told: {{result.1}}", &[])]),
        worker_rule("Answer it", &[turn("", &[bash(&own)]), turn("told: {{result.1}}", &[])]),
    ];
    let book = book(&world, &rules);
    let rule = format!("Bash({own})");
    let run = run(&world, &book, &[&rule]);
    let open = questions(&world, 1).remove(0);
    std::fs::write(world.cwd().join("question"), id(&open)).unwrap();
    let session = open["session"].as_str().unwrap().to_owned();
    let told = eventually("the sibling's answer", || {
        let outcomes = world.session(&session).agent("answers").outcomes();
        outcomes.into_iter().next().map(|o| o["result"].clone()).ok_or("none yet")
    });
    let told = told.as_str().unwrap();
    assert!(told.contains("code 3") && told.contains("agents can't answer questions"), "{told}");
    assert_eq!(questions(&world, 1).len(), 1, "the question still waits");
    world.lead(&["permissions", "deny", id(&open)]).run().expect(0);
    run.wait().expect(0);
    assert!(!world.cwd().join("made").exists());
    world.assert_nothing_left();
}

#[test]
fn an_agent_that_waits_for_permission_is_looked_at_messaged_stopped_and_killed_like_any_other() {
    let world = World::new();
    let names = ["told", "stopped", "killed"];
    let jobs: Vec<Value> = names.iter().map(|n| spawn(n, &format!("Do job {n}."))).collect();
    let lead = lead_rule(&[
        turn("", &jobs),
        json!({"when": {"results": "==3"}, "tools": [bash("until [ -e all-ask ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==4"}, "tools": [
            output_of("{{agent.1}}", json!({"block": false})),
            tell("{{agent.1}}", "a word before you go on"),
            stop("{{agent.2}}"),
        ]}),
        json!({"when": {"notifications": "==3"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let workers = names.map(|n| {
        worker_rule(&format!("job {n}"), &[turn("", &[bash(&format!("touch {n}"))]), turn("told: {{result.1}}", &[])])
    });
    let book = book(&world, &[vec![lead], workers.to_vec()].concat());
    let run = run(&world, &book, &["Bash(until [ -e all-ask ]; do sleep 0.02; done)"]);
    let session = questions(&world, 3)[0]["session"].as_str().unwrap().to_owned();
    world.file("all-ask", "");
    let left = questions(&world, 2);
    let killed = world.session(&session).agent("killed").id;
    assert!(left.iter().any(|q| q["agent"] == killed.as_str()), "{left:#?}");
    let row = world.workers().into_iter().find(|row| row["id"] == killed.as_str()).unwrap();
    signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);
    let last = questions(&world, 1).remove(0);
    assert_eq!(last["input"]["command"], "touch told");
    world.lead(&["permissions", "allow", id(&last)]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    let session = world.session(&session);
    let ends = names.map(|n| session.agent(n).outcome()["status"].clone());
    assert_eq!(ends, [json!("completed"), json!("killed"), json!("failed")]);
    assert!(world.cwd().join("told").exists());
    assert!(names[1..].iter().all(|n| !world.cwd().join(n).exists()), "nothing ran without an answer");
    let worker = book.asked("job told").pop().unwrap();
    assert!(worker.all().contains("a word before you go on"), "{worker:#?}");
    let seen = book.last().results().remove(4);
    assert!(!seen.1 && seen.0.contains("waits for permission for Bash"), "{seen:?}");
    session.check();
    world.assert_nothing_left();
}

#[test]
fn an_answer_for_always_answers_all_who_ask_the_same() {
    let world = World::new();
    std::fs::create_dir(world.cwd().join(".git")).unwrap();
    let names = ["one", "two", "three"];
    let jobs: Vec<Value> = names.iter().map(|n| spawn(n, &format!("Do job {n}."))).collect();
    let lead = lead_rule(&[turn("", &jobs), json!({"repeat": true, "text": "over"})]);
    let workers = names.map(|n| {
        let command = if n == "three" { "touch other" } else { "touch made" };
        worker_rule(&format!("job {n}"), &[turn("", &[bash(command)]), turn("told: {{result.1}}", &[])])
    });
    let book = book(&world, &[vec![lead], workers.to_vec()].concat());
    let run = run(&world, &book, &[]);
    let open = questions(&world, 3);
    let made = open.iter().find(|q| q["input"]["command"] == "touch made").unwrap();
    world.lead(&["permissions", "allow", id(made), "--always"]).run().expect(0);
    let left = questions(&world, 1).remove(0);
    assert_eq!(left["input"]["command"], "touch other", "{left}");
    world.lead(&["permissions", "deny", id(&left)]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).json()["permission_denials"].as_array().map(Vec::len), Some(1));
    assert!(world.cwd().join("made").exists() && !world.cwd().join("other").exists());
    world.assert_nothing_left();
}

#[test]
fn r075_a_rule_that_forbids_what_is_asked_outweighs_the_answer_yes() {
    let world = World::new();
    std::fs::create_dir(world.cwd().join(".git")).unwrap();
    let book = one_worker(&world, "touch made");
    let settings = world.file(".claude/settings.json", "{}");
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--verbose"]);
    let run = lead.args(&["--permission-prompt-tool", "desk"]).start();
    let open = questions(&world, 1).remove(0);
    std::fs::write(&settings, json!({"permissions": {"deny": ["Bash(touch:*)"]}}).to_string()).unwrap();
    eventually("the new rules are said", || {
        let said = run.stderr();
        if said.contains("settings were changed") { Ok(()) } else { Err(said) }
    });
    world.lead(&["permissions", "allow", id(&open)]).run().expect(0);
    run.wait().expect(0);
    assert!(!world.cwd().join("made").exists());
    let outcome = world.session(open["session"].as_str().unwrap()).agent("job").outcome();
    assert_eq!(outcome["permissionDenials"].as_array().map(Vec::len), Some(1));
    let told = &outcome["result"];
    assert!(told.as_str().is_some_and(|t| t.contains("Permission denied") && t.contains("touch")), "{told}");
    world.assert_nothing_left();
}

#[test]
fn always_for_a_page_is_a_rule_for_its_host() {
    let world = World::new();
    std::fs::create_dir(world.cwd().join(".git")).unwrap();
    // Nothing listens there: the rule is what counts here.
    let fetch =
        |path: &str| call("WebFetch", json!({"url": format!("http://127.0.0.1:1/{path}"), "prompt": "what is there"}));
    let lead = lead_rule(&[turn("", &[fetch("a")]), turn("", &[fetch("b")]), turn("over", &[])]);
    let book = book(&world, &[lead]);
    let run = run(&world, &book, &[]);
    let open = questions(&world, 1).remove(0);
    assert_eq!(open["tool"], "WebFetch");
    world.lead(&["permissions", "allow", id(&open), "--always"]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).json()["permission_denials"], json!([]));
    let text = std::fs::read_to_string(world.cwd().join(".claude/settings.local.json")).unwrap();
    assert!(text.contains("WebFetch(domain:127.0.0.1)"), "{text}");
    world.assert_nothing_left();
}
