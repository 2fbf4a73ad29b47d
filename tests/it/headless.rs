//! One headless run without agents: output, tools, errors, exit codes.

use serde_json::json;

use crate::support::{Book, World, bash, book, call, lead_rule, paired, turn};

const READ_GREP: &str = include_str!("../support/read_grep.yaml");

fn look_around(world: &World) -> Book {
    world.file("notes.txt", "the first line\n");
    world.file("deep/hay.txt", "hay\na needle here\n");
    Book::yaml(world, READ_GREP, &[("@TREE@", world.cwd().to_str().unwrap())])
}

#[test]
fn text_output_is_the_answer_and_nothing_else() {
    let world = World::new();
    let book = look_around(&world);
    let done = world.lead(&["-p", "look around", "--model", &book.model()]).run();
    done.expect(0);
    assert!(done.stdout.contains("the first line") && done.stdout.contains("a needle here"), "{done:#?}");
    assert!(done.stdout.starts_with("Read: ") && done.stdout.ends_with('\n'), "{done:#?}");
    assert!(!done.stdout.contains("Looking."), "only the last turn's text is the answer: {done:#?}");
    world.assert_nothing_left();
    assert_eq!(std::fs::read_dir(world.runtime()).unwrap().count(), 0, "no temporary file either");
}

#[test]
fn read_and_grep_run_in_one_round_and_json_tells_of_the_run() {
    let world = World::new();
    let book = look_around(&world);
    let id = "11111111-2222-4333-8444-555555555555";
    let done = world
        .lead(&["-p", "look around", "--model", &book.model(), "--output-format", "json", "--session-id", id])
        .run();
    let json = done.expect(0).json();
    assert_eq!(
        (&json["type"], &json["subtype"], &json["is_error"]),
        (&json!("result"), &json!("success"), &json!(false))
    );
    assert_eq!((&json["session_id"], &json["num_turns"]), (&json!(id), &json!(2)));
    assert_eq!(json["permission_denials"], json!([]));
    assert_eq!(json["terminal_reason"], "completed");
    assert!(done.result().contains("a needle here"), "{done:#?}");

    let requests = book.of("lead");
    assert_eq!(requests.len(), 2, "one request per round");
    let last = book.last();
    paired(last.messages());
    assert_eq!(last.results().len(), 2);
    assert!(last.results().iter().all(|(_, is_error)| !is_error), "{last:#?}");
    let lines = world.session(id).lines();
    assert_eq!(lines.iter().filter(|l| l["type"] == "assistant").count(), 4, "one line per block: {lines:#?}");
    world.assert_nothing_left();
}

#[test]
fn stdin_is_joined_to_the_prompt() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("[{{prompt}}]", &[])])]);
    let done = world.headless(&book.model(), "before").stdin("after\n").run();
    assert!(done.expect(0).result().starts_with("[before\nafter"), "{done:#?}");
}

#[test]
fn an_unknown_tool_is_told_to_the_model_and_the_run_goes_on() {
    let world = World::new();
    let turns = [turn("", &[call("Teleport", json!({"to": "mars"}))]), turn("I stay: {{result.1}}", &[])];
    let book = book(&world, &[lead_rule(&turns)]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let (text, is_error) = &book.last().results()[0];
    assert!(*is_error && text.contains("Teleport"), "{text}");
    assert!(text.contains("Read") && text.contains("Bash"), "it names the tools there are: {text}");
}

#[test]
fn broken_input_of_a_tool_is_told_to_the_model() {
    let world = World::new();
    let turns = [turn("", &[call("Read", json!({"fill_path": "x"}))]), turn("ok", &[])];
    let book = book(&world, &[lead_rule(&turns)]);
    world.headless(&book.model(), "go").run().expect(0);
    let (text, is_error) = &book.last().results()[0];
    assert!(*is_error && text.contains("file_path"), "{text}");
}

/// `otherwise` can't repeat a tool call for ever in a test, so the turn repeats without end.
fn endless(world: &World) -> Book {
    book(world, &[lead_rule(&[json!({"repeat": true, "text": "still at it", "tools": [bash("echo again")]})])])
}

#[test]
fn the_turn_limit_ends_the_run_with_an_error() {
    let world = World::new();
    let book = endless(&world);
    let done = world.headless(&book.model(), "go").args(&["--max-turns", "3"]).run();
    let json = done.expect(1).json();
    assert_eq!((&json["subtype"], &json["is_error"]), (&json!("error_max_turns"), &json!(true)));
    assert_eq!((&json["num_turns"], &json["terminal_reason"]), (&json!(3), &json!("max_turns")));
    assert_eq!(book.requests().len(), 3);
    let text = world.lead(&["-p", "go", "--model", &book.model(), "--max-turns", "1"]).run();
    text.expect(1).says(&["--max-turns"]);
}

#[test]
fn an_api_error_ends_the_run_with_its_status() {
    let world = World::new();
    let turns = [json!({"error": {"status": 400, "message": "no such luck", "times": 100}})];
    let book = book(&world, &[lead_rule(&turns)]);
    let done = world.headless(&book.model(), "go").run();
    let json = done.expect(1).json();
    assert_eq!((&json["subtype"], &json["is_error"]), (&json!("success"), &json!(true)));
    assert_eq!((&json["api_error_status"], &json["terminal_reason"]), (&json!(400), &json!("api_error")));
    assert!(done.stdout.contains("no such luck"), "{done:#?}");
    let text = world.lead(&["-p", "go", "--model", &book.model()]).run();
    text.expect(1);
    assert!(format!("{}{}", text.stdout, text.stderr).contains("no such luck"), "{text:#?}");
}

#[test]
fn a_broken_or_missing_playbook_is_named_before_anything_starts() {
    let world = World::new();
    let missing = world.root().join("none.yaml");
    let done = world.headless(&format!("playbook:{}", missing.display()), "go").run();
    assert!(done.code.is_some_and(|c| c == 1 || c == 2), "{done:#?}");
    assert!(format!("{}{}", done.stdout, done.stderr).contains("none.yaml"), "{done:#?}");
    world.assert_nothing_left();
}

#[test]
fn usage_errors_exit_with_2_and_say_what_is_wrong() {
    let world = World::new();
    for (args, part) in [
        (&["-p", "x", "--no-such-flag"][..], "--no-such-flag"),
        (&["-p", "x", "--output-format", "yaml"], "yaml"),
        (&["-p", "x", "--permission-mode", "sometimes"], "sometimes"),
        (&["-p", "x", "--session-id", "not-a-uuid"], "not-a-uuid"),
        (&["ps", "--no-such-flag"], "--no-such-flag"),
        (&["no-such-verb"], "lead --help"),
    ] {
        let done = world.lead(args).run();
        done.expect(2).says(&[part]);
        assert!(done.stdout.is_empty(), "{done:#?}");
    }
    let unknown = "99999999-2222-4333-8444-555555555555";
    world.lead(&["-p", "x", "--resume", unknown, "--model", "playbook:survey"]).run().expect(4).says(&[unknown]);
    world.assert_nothing_left();
}

#[test]
fn version_names_the_program() {
    let world = World::new();
    for flag in ["-v", "--version"] {
        let done = world.lead(&[flag]).run();
        assert_eq!(done.expect(0).stdout, format!("{} (lead)\n", lead::core::frame::BUILD));
    }
}
