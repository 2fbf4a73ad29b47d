//! What comes in on stdin: messages as a stream, and a pipe beside a prompt (R094).

use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Book, KEY, Lead, MODEL, Piped, Server, World, bash, book, eventually, lead_rule, spawn, turn, worker_rule,
};

fn conversing<'w>(world: &'w World, book: &Book) -> Lead<'w> {
    let args = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--model", &book.model()];
    world.lead(&args).args(&["--permission-mode", "bypassPermissions"])
}

fn message(text: &str) -> String {
    let message = json!({"role": "user", "content": text});
    json!({"type": "user", "message": message, "parent_tool_use_id": null, "session_id": "default"}).to_string() + "\n"
}

/// The lines as they come.
fn listen(stdout: std::process::ChildStdout) -> Receiver<Value> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            if sender.send(serde_json::from_str(&line.unwrap()).unwrap()).is_err() {
                return;
            }
        }
    });
    lines
}

/// Takes lines up to the first that `wanted` holds for, which is the last of them.
fn until(lines: &Receiver<Value>, what: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => {
                let found = wanted(&line);
                seen.push(line);
                if found {
                    return seen;
                }
            }
            Err(error) => panic!("{what}: {error}: {seen:#?}"),
        }
    }
}

fn is_progress(line: &Value) -> bool {
    line["subtype"] == "task_progress" && line["last_tool_name"] == "Bash" && line["usage"]["tool_uses"] == 1
}

fn is_result(line: &Value) -> bool {
    line["type"] == "result"
}

fn results(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).filter(is_result).collect()
}

/// Answers what it is asked.
fn echo(world: &World) -> Book {
    book(
        world,
        &[lead_rule(&[
            json!({"repeat": true, "when": {"latest": "(?P<word>\\w+)"}, "text": "heard {{capture.word}}"}),
        ])],
    )
}

#[test]
fn each_message_is_a_turn_with_a_result_and_the_end_of_input_is_the_end() {
    let world = World::new();
    let book = echo(&world);
    let Piped { running, mut stdin, stdout } = conversing(&world, &book).piped();
    let lines = listen(stdout);
    let mut say = |text: &str| stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    say(&message("one"));
    let first = until(&lines, "the first result", is_result);
    assert_eq!((&first[0]["subtype"], &first.last().unwrap()["result"]), (&json!("init"), &json!("heard one")));
    say(&message("two"));
    say(&message("three"));
    let second = until(&lines, "the second result", is_result);
    assert_eq!((&second[0]["subtype"], &second.last().unwrap()["result"]), (&json!("init"), &json!("heard two")));
    let usage = &second.last().unwrap()["num_turns"];
    assert_eq!(usage, 1, "a result is of its message alone");
    stdin = None;
    let third = until(&lines, "the third result", is_result);
    assert_eq!(third.last().unwrap()["result"], "heard three");
    drop(stdin);
    running.wait().expect(0);
    assert!(lines.recv().is_err(), "nothing comes after the last result");
    world.assert_nothing_left();
}

#[test]
fn a_result_waits_for_the_background_agents_of_its_message_but_the_next_turn_does_not() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        json!({"when": {"latest": "send one"}, "tools": [spawn("job", "Do the job.")]}),
        json!({"when": {"notifications": "1"}, "text": "it is done"}),
        json!({"when": {"latest": "meanwhile"}, "text": "yes?"}),
        json!({"text": "sent"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let Piped { running, mut stdin, stdout } = conversing(&world, &book).piped();
    let lines = listen(stdout);
    stdin.as_mut().unwrap().write_all(message("send one").as_bytes()).unwrap();
    world.wait_file("here");
    let said =
        |text: &'static str| move |l: &Value| l["message"]["content"][0]["text"] == text && l["type"] == "assistant";
    let before = until(&lines, "the first turn's end", said("sent"));
    assert!(!before.iter().any(is_result), "its agent still works");
    if !before.iter().any(is_progress) {
        until(&lines, "its agent's progress", is_progress);
    }
    stdin.as_mut().unwrap().write_all(message("meanwhile").as_bytes()).unwrap();
    let meanwhile = until(&lines, "the second turn", said("yes?"));
    assert!(!meanwhile.iter().any(is_result), "results come in the order of the messages");
    drop(stdin);
    gate.open(1);
    let first = until(&lines, "the first result", is_result);
    assert_eq!(first.last().unwrap()["result"], "it is done");
    let second = until(&lines, "the second result", is_result);
    assert_eq!(second.last().unwrap()["result"], "yes?");
    running.wait().expect(0);
    assert!(lines.recv().is_err());
    world.assert_nothing_left();
}

#[test]
fn a_failed_message_has_its_result_and_the_next_one_goes_on() {
    let world = World::new();
    let lead = lead_rule(&[
        json!({"when": {"latest": "bad"}, "error": {"status": 400, "message": "no such luck"}}),
        json!({"repeat": true, "text": "fine"}),
    ]);
    let book = book(&world, &[lead]);
    let done = conversing(&world, &book).stdin(message("bad") + &message("good")).run();
    let results = results(&done.expect(0).stdout);
    assert_eq!(results.len(), 2, "{done:#?}");
    assert_eq!((&results[0]["is_error"], &results[0]["api_error_status"]), (&json!(true), &json!(400)));
    assert_eq!((&results[1]["is_error"], &results[1]["result"]), (&json!(false), &json!("fine")));
}

#[test]
fn other_lines_are_left_out_and_a_broken_one_is_named() {
    let world = World::new();
    let book = echo(&world);
    let done = conversing(&world, &book).stdin(format!("{{\"type\":\"keep_alive\"}}\n{}", message("one"))).run();
    done.expect(0).says(&["line 1", "keep_alive"]);
    assert_eq!(results(&done.stdout).len(), 1);

    let done = conversing(&world, &book).stdin(message("one") + "{\"type\": oops\n" + &message("never")).run();
    let results = results(&done.expect(1).stdout);
    assert_eq!(results.len(), 2, "{done:#?}");
    assert_eq!(results[0]["result"], "heard one");
    let why = results[1]["errors"][0].as_str().unwrap();
    assert!(results[1]["is_error"] == true && why.contains("line 2"), "{why}");

    let done = conversing(&world, &book).stdin("").run();
    assert_eq!(done.expect(0).stdout, "", "nobody said anything");
    world.assert_nothing_left();
}

#[test]
fn control_requests_are_answered_at_once_that_they_are_not_supported() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead]);
    let Piped { running, mut stdin, stdout } = conversing(&world, &book).piped();
    let lines = listen(stdout);
    let mut say = |line: Value| stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    let control =
        |id: &str, subtype: &str| json!({"type": "control_request", "request_id": id, "request": {"subtype": subtype}});
    let answer_to =
        |id: &'static str| move |l: &Value| l["type"] == "control_response" && l["response"]["request_id"] == id;
    // Before anything was said, as clients begin.
    say(control("first", "initialize"));
    let before = until(&lines, "the first answer", answer_to("first"));
    assert_eq!(before.len(), 1, "{before:#?}");
    say(serde_json::from_str(&message("go")).unwrap());
    world.wait_file("here");
    say(control("second", "interrupt"));
    let during = until(&lines, "the answer while the turn runs", answer_to("second"));
    assert!(!during.iter().any(is_result));
    let response = &during.last().unwrap()["response"];
    assert_eq!(response["subtype"], "error", "{response:#}");
    assert!(response["error"].as_str().unwrap().contains("not supported"), "{response:#}");
    gate.open(1);
    let rest = until(&lines, "the result", is_result);
    assert_eq!((&rest.last().unwrap()["result"], book.requests().len()), (&json!("done"), 2));
    drop(stdin);
    running.wait().expect(0);
    assert!(lines.recv().is_err());
    world.assert_nothing_left();
}

/// A picture of one point.
fn picture() -> Value {
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
}

fn message_of(blocks: &[Value]) -> String {
    json!({"type": "user", "message": {"role": "user", "content": blocks}, "session_id": "default"}).to_string() + "\n"
}

#[test]
fn images_go_to_the_model_as_they_are_and_again_after_a_resume() {
    let world = World::new();
    let lead = lead_rule(&[
        json!({"when": {"latest": "what is it"}, "tools": [bash("echo looking")]}),
        json!({"when": {"results": "==1", "latest": "looking"}, "text": "a point"}),
        json!({"when": {"latest": "and now"}, "text": "still a point"}),
    ]);
    let book = book(&world, &[lead]);
    let server = Server::start(&world, &book);
    let text = json!({"type": "text", "text": "what is it?"});
    let id = "44444444-2222-4333-8444-666666666666";
    let said = message_of(&[picture(), text.clone()]);
    let converse = |args: &[&str], said: String| {
        let args = [&["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--model", MODEL], args]
            .concat();
        let lead = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).stdin(said);
        lead.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY).run()
    };
    let done = converse(&["--session-id", id], said);
    assert_eq!(results(&done.expect(0).stdout)[0]["result"], "a point");
    let resumed = converse(&["--resume", id], message("and now?"));
    assert_eq!(results(&resumed.expect(0).stdout)[0]["result"], "still a point");

    let requests = book.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        let content = request.messages()[0]["content"].as_array().unwrap();
        assert_eq!(content[..], [picture(), text.clone()], "in order, and nothing added");
        // Not a byte of what is sent differs, but for the mark that is set behind the last block.
        assert!(request.0["body"].as_str().unwrap().contains(&picture().to_string()));
    }
    let session = world.session(id);
    assert_eq!(session.lines()[0]["message"]["content"], json!([picture(), text]));
    session.paired();
    let shown = lines_of(&done.stdout).into_iter().find(|l| l["type"] == "user").unwrap();
    assert_eq!(shown["message"]["content"][0], picture());
}

fn lines_of(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn a_message_that_can_t_be_taken_has_a_result_and_the_next_one_goes_on() {
    let world = World::new();
    let book = echo(&world);
    let video = json!({"type": "video", "source": {"type": "base64", "data": "x"}});
    let done = conversing(&world, &book).stdin(message_of(&[video]) + &message(" ") + &message("three")).run();
    let results = results(&done.expect(0).stdout);
    assert_eq!(results.len(), 3, "{done:#?}");
    for (result, part) in results.iter().zip(["video", "empty"]) {
        assert!(result["is_error"] == true && result["errors"][0].as_str().unwrap().contains(part), "{result:#}");
    }
    assert_eq!((&results[2]["result"], book.requests().len()), (&json!("heard three"), 1));
    // The last one decides about the exit code.
    let done = conversing(&world, &book).stdin(message("one") + &message("")).run();
    assert_eq!(done.expect(1).stdout.matches("\"type\":\"result\"").count(), 2);
    world.assert_nothing_left();
}

#[test]
fn forms_that_do_not_go_together_are_usage_errors() {
    let world = World::new();
    let book = echo(&world);
    for (args, part) in [
        (&["-p", "--input-format", "stream-json"][..], "--output-format stream-json"),
        (&["-p", "x", "--include-partial-messages"], "--output-format stream-json"),
        (&["-p", "x", "--input-format", "stream-json", "--output-format", "stream-json"], "standard input"),
    ] {
        world.lead(args).args(&["--model", &book.model()]).run().expect(2).says(&[part]);
    }
}

fn with_prompt<'w>(world: &'w World, book: &Book) -> Lead<'w> {
    world.lead(&["-p", "before", "--model", &book.model(), "--output-format", "stream-json"])
}

fn prompt_echo(world: &World) -> Book {
    book(world, &[lead_rule(&[turn("[{{prompt}}]", &[])])])
}

#[test]
fn r094_an_open_silent_pipe_is_given_up_with_one_line() {
    let world = World::new().with_limits("stdin_silence=300ms");
    let book = prompt_echo(&world);
    let Piped { running, stdin, stdout } = with_prompt(&world, &book).piped();
    let lines = listen(stdout);
    let seen = until(&lines, "the result", is_result);
    assert_eq!(seen.last().unwrap()["result"], "[before]");
    let done = running.wait();
    done.expect(0).says(&["standard input"]);
    assert_eq!(done.stderr.lines().count(), 1, "{done:#?}");
    assert_eq!(book.requests().len(), 1);
    world.session(seen[0]["session_id"].as_str().unwrap()).paired();
    drop(stdin);
}

#[test]
fn r094_the_session_starts_while_stdin_is_silent_and_what_comes_in_time_joins_the_prompt() {
    let world = World::new().with_limits("stdin_silence=10m");
    let book = prompt_echo(&world);
    let Piped { running, mut stdin, stdout } = with_prompt(&world, &book).piped();
    let lines = listen(stdout);
    eventually("the session runs", || {
        let rows = world.ps(&[]);
        if rows.iter().any(|r| r["role"] == "lead") { Ok(()) } else { Err(rows) }
    });
    assert!(book.requests().is_empty(), "the model is not asked before the prompt is known");
    stdin.as_mut().unwrap().write_all(b"aft").unwrap();
    stdin.as_mut().unwrap().write_all(b"er").unwrap();
    stdin = None;
    let seen = until(&lines, "the result", is_result);
    assert_eq!(seen.last().unwrap()["result"], "[before\nafter]");
    assert_eq!(running.wait().expect(0).stderr, "");
    drop(stdin);
}

#[test]
fn r094_a_prompt_that_grows_too_long_by_a_pipe_is_refused_and_leaves_no_session() {
    let world = World::new();
    let book = prompt_echo(&world);
    let id = "44444444-2222-4333-8444-555555555555";
    let Piped { running, stdin, stdout } = with_prompt(&world, &book).args(&["--session-id", id]).piped();
    let lines = listen(stdout);
    let mut stdin = stdin.unwrap();
    // It stops reading when it has enough.
    let _ = stdin.write_all(&vec![b'x'; (10 << 20) + 1]);
    drop(stdin);
    let seen = until(&lines, "the result", is_result);
    assert_eq!((seen.len(), &seen[0]["is_error"]), (1, &json!(true)));
    running.wait().expect(2);
    assert!(book.requests().is_empty());
    world.lead(&["-p", "x", "--resume", id, "--model", &book.model()]).run().expect(4);
    world.assert_nothing_left();
}
