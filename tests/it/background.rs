//! Commands in the background: each end is told once, nothing is over before they are, and all of them
//! end with whoever started them. R071, R098.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    KEY, SHELL, Server, World, ask, bash, book, each_told_once, ends, eventually, exists, lead_rule, output_of, pid_of,
    shells, signal, spawn, start, started, tell, text_of, times, told, turn, wait_shells, wait_taskoutput,
    wait_waiting, worker_rule,
};

#[test]
fn a_command_in_the_background_is_named_at_once_and_told_of_once_when_it_ends() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[start(&format!("echo out; {}; echo err >&2; exit 3", gate.arrive("here")), "Build <it>")]),
        json!({"when": {"results": "==1", "notifications": "==0"}, "text": "I am done here."}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.summary}}"}),
    ]);
    let book = book(&world, &[lead]);
    let server = Server::start(&world, &book);
    let args = ["-p", "go", "--model", "sonnet", "--output-format", "stream-json"];
    let lead = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]);
    let run = lead.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY).start();
    world.wait_file("here");
    eventually("the lead waits", || {
        let rows = world.ps(&[]);
        let lead = rows.iter().find(|r| r["role"] == "lead").cloned().unwrap_or_default();
        if lead["waiting_for"] == "1 background commands" { Ok(()) } else { Err(rows) }
    });
    gate.open(1);
    let done = run.wait();
    let stream: Vec<Value> = done.expect(0).stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let result = stream.last().unwrap();
    assert_eq!(result["result"], "Background command \"Build <it>\" failed with exit code 3");
    assert!(result.get("leftovers").is_none(), "{result:#}");

    let id = result["session_id"].as_str().unwrap();
    let lines = world.session(id).lines();
    each_told_once(&lines);
    let shell = started(&lines).remove(0);
    let answer = lines.iter().find(|l| l["toolUseResult"]["backgroundTaskId"] == shell.as_str()).unwrap();
    let file = PathBuf::from(answer["toolUseResult"]["outputFile"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "out\nerr\n");
    assert!(file.starts_with(world.session(id).path.with_extension("").join("tool-results")), "{file:?}");
    let said = text_of(&answer["message"]["content"]);
    assert!(said.contains(&shell) && said.contains(file.to_str().unwrap()), "{said}");
    let note = book.last().notes().remove(0);
    assert_eq!((note.get("task-id"), note.get("output-file")), (shell.clone(), file.to_str().unwrap().to_owned()));
    assert_eq!(note.get("tool-use-id"), answer["message"]["content"][0]["tool_use_id"].as_str().unwrap());
    assert_eq!(note.status(), "failed");
    let notice = lines.iter().find(|l| l["origin"]["taskId"] == shell.as_str()).unwrap();
    assert_eq!(notice["origin"], json!({"kind": "task-notification", "taskId": shell}));

    let of_shell: Vec<&Value> = stream.iter().filter(|l| l["task_id"] == shell.as_str()).collect();
    let kinds: Vec<&str> = of_shell.iter().filter_map(|l| l["subtype"].as_str()).collect();
    assert_eq!(kinds, ["task_started", "task_updated", "task_notification"]);
    assert_eq!((&of_shell[0]["task_type"], &of_shell[0]["description"]), (&json!("local_bash"), &json!("Build <it>")));
    assert_eq!(of_shell[1]["patch"]["status"], "failed");
    assert_eq!(
        (&of_shell[2]["status"], &of_shell[2]["output_file"], &of_shell[2]["summary"]),
        (&json!("failed"), &json!(file), &result["result"])
    );
    drop(server);
    world.assert_nothing_left();
}

#[test]
fn fifty_at_once_make_one_notification_each() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let count = 50;
    let all: Vec<Value> =
        (0..count).map(|n| start(&format!("{}; exit {}", gate.wait(), n % 2), &format!("job {n}"))).collect();
    let lead = lead_rule(&[
        turn("", &all),
        json!({"when": {"notifications": format!("=={count}")}, "text": "all"}),
        json!({"repeat": true, "text": "not yet"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &all), json!({"repeat": true, "text": "done"})]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    let rows = wait_shells(&world, count);
    assert!(rows.iter().all(|r| r["state"] == "running" && r["transcript"].is_string()), "{rows:#?}");
    gate.open(count);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "all");
    let lines = world.session(&done.session()).lines();
    assert_eq!(told(&lines).len(), count);
    each_told_once(&lines);
    for n in 0..count {
        let how = if n % 2 == 0 { "completed (exit code 0)" } else { "failed with exit code 1" };
        let summary = format!("Background command \"job {n}\" {how}");
        let notes = book.last().notes();
        assert_eq!(notes.iter().filter(|note| note.get("summary") == summary).count(), 1, "{summary}");
    }
    world.assert_nothing_left();
}

#[test]
fn r071_an_agent_has_ended_only_when_its_shells_have() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start(&gate.arrive("here"), "Build it")]),
            json!({"when": {"notifications": "==0"}, "text": "the build runs"}),
            json!({"when": {"notifications": "==1"}, "text": "{{notification.1.summary}}"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let waiting = wait_waiting(&world);
    assert_eq!(waiting["waiting_for"], "1 background commands");
    let row = shells(&world).remove(0);
    assert_eq!((&row["agent"], &row["session"]), (&waiting["id"], &waiting["session"]));
    assert_eq!((&row["description"], &row["cwd"]), (&json!("Build it"), &json!(world.cwd())));
    assert!(exists(pid_of(&row)) && row["address"].is_null() && row["started_ms"].is_u64(), "{row:#}");
    let session = world.session(waiting["session"].as_str().unwrap());
    assert!(session.agent("job").outcomes().is_empty(), "its run is not over");
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "Background command \"Build it\" completed (exit code 0)");
    session.check();
    let agent = session.agent("job");
    each_told_once(&agent.lines());
    let outcome = agent.outcome();
    assert_eq!((&outcome["status"], &outcome["leftovers"]), (&json!("completed"), &json!([])));
    let lines = agent.lines();
    let at = |what: &dyn Fn(&Value) -> bool| lines.iter().position(what).unwrap();
    assert!(
        at(&|l| l["origin"]["kind"] == "task-notification") < at(&|l| l["subtype"] == "agent_outcome"),
        "told before the outcome"
    );
    let main = session.lines();
    assert!(told(&main).is_empty(), "an agent's shells are its own matter: {main:#?}");
    world.assert_nothing_left();
}

#[test]
fn an_answer_stands_if_there_is_nothing_to_add_when_a_shell_ends() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("{{result.1}}", &[])]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start(&gate.arrive("here"), "Build")]),
            turn("the answer", &[]),
            json!({"when": {"notifications": "==1"}, "text": " "}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    wait_waiting(&world);
    gate.open(1);
    let done = run.wait();
    assert!(done.expect(0).result().starts_with("the answer"), "{done:#?}");
    let session = world.session(&done.session());
    session.check();
    let outcome = session.agent("job").outcome();
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("completed"), &json!("the answer")));
    assert_eq!(book.asked("Do the job").len(), 3, "it was told all the same");
    world.assert_nothing_left();
}

#[test]
fn sigkill_of_an_agent_ends_its_shells_and_its_next_run_is_told_of_each_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "Go on, please.")]}),
        json!({"when": {"notifications": "==2"}, "tools": [tell("{{agent.1}}", "And again.")]}),
        json!({"when": {"notifications": "==3"}, "text": "{{notification.3.result}}"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start("sleep 1101", "one"), start("sleep 1102", "two"), start("true", "three")]),
            // The third has ended and was told of before the agent dies.
            json!({"when": {"notifications": "==1"}, "tools": [bash(&gate.arrive("here"))]}),
            json!({"when": {"latest": "And again"}, "text": "told of {{notification.3.task_id}}"}),
            json!({"repeat": true, "text": "fine"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let pids: Vec<i32> = wait_shells(&world, 2).iter().map(pid_of).collect();
    signal(pid_of(&world.wait_workers(1)[0]), Signal::SIGKILL);
    let done = run.wait();
    assert!(done.expect(0).result().starts_with("told of b-"), "{done:#?}");
    assert!(pids.iter().all(|pid| !exists(*pid)), "{pids:?}");
    let session = world.session(&done.session());
    session.check();
    let agent = session.agent("job");
    each_told_once(&agent.lines());
    let killed = agent.outcomes().remove(0);
    assert_eq!(killed["status"], "failed");
    assert_eq!(killed["leftovers"].as_array().map(Vec::len), Some(3), "two shells and the tool: {killed:#}");
    let last = book.asked("Do the job").pop().unwrap();
    let ends = ends(&last.notes());
    assert_eq!(ends.len(), 3, "{ends:?}");
    assert_eq!(ends[0], ("completed".to_owned(), "Background command \"three\" completed (exit code 0)".to_owned()));
    for (end, name) in ends[1..].iter().zip(["one", "two"]) {
        assert!(end.0 == "killed" && end.1.contains(&format!("\"{name}\" killed: it ended with")), "{end:?}");
    }
    world.assert_nothing_left();
}

#[test]
fn a_session_that_crashed_is_told_at_resume_of_each_shell_once() {
    for round in 0..times(2, 6) {
        let world = World::heavy();
        let lead = lead_rule(&[
            turn("", &[start("exit 5", "short"), start("sleep 1111", "long"), start("sleep 1112", "longer")]),
            json!({"when": {"notifications": "==1"}, "text": "one has ended"}),
            json!({"when": {"notifications": "==3"}, "text": "{{notification.3.summary}}"}),
            json!({"repeat": true, "text": "nothing new"}),
        ]);
        let book = book(&world, &[lead]);
        let run = world.headless(&book.model(), "go").start();
        let rows = wait_shells(&world, 2);
        let id = rows[0]["session"].as_str().unwrap().to_owned();
        eventually("the first is told of", || {
            let lines = world.session(&id).lines();
            if told(&lines).len() == 1 { Ok(()) } else { Err(lines) }
        });
        run.kill().expect_killed();
        let fault = if round % 2 == 0 { "" } else { "lead/notification_before_model" };
        let resumed = || world.lead(&["-p", "--resume", &id, "--model", &book.model(), "--output-format", "json"]);
        if !fault.is_empty() {
            // It dies once more, just when they are told.
            resumed().env("LEAD_FAULT", fault).run().expect_killed();
            let again = world.headless(&book.model(), "and now?").args(&["--resume", &id]).run();
            assert!(again.expect(0).result().contains("killed: it ended with"), "{again:#?}");
        } else {
            let done = resumed().run();
            assert!(done.expect(0).result().contains("killed: it ended with"), "{done:#?}");
        }
        assert!(rows.iter().all(|row| !exists(pid_of(row))), "{rows:#?}");
        let lines = world.session(&id).lines();
        each_told_once(&lines);
        let next = world.headless(&book.model(), "anything?").args(&["--resume", &id]).run();
        assert_eq!(next.expect(0).result(), "nothing new");
        each_told_once(&world.session(&id).lines());
        world.assert_nothing_left();
    }
}

#[test]
fn what_a_signal_ends_with_the_session_is_told_at_resume() {
    // Too long for the ladder: a second signal does not wait for it.
    let world = World::heavy().with_limits("stop_term=60s");
    let lead = lead_rule(&[
        turn("", &[start("trap '' TERM; echo > up; while :; do sleep 1120; done", "stubborn")]),
        json!({"when": {"results": "==1", "any": SHELL}, "tools": [output_of("{{capture.shell}}", json!({"timeout": 600_000}))]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let book = book(&world, &[lead]);
    let run = world.headless(&book.model(), "go").start();
    let row = wait_shells(&world, 1).remove(0);
    world.wait_file("up");
    wait_taskoutput(&world);
    run.signal(Signal::SIGTERM);
    run.signal(Signal::SIGTERM);
    let done = run.wait();
    done.expect(143);
    world.assert_nothing_left();
    assert!(!exists(pid_of(&row)));
    assert_eq!(done.json()["leftovers"][0]["pid"], row["pid"]);
    let next = world.headless(&book.model(), "and now?").args(&["--resume", &done.session()]).run();
    assert_eq!(next.expect(0).result(), "killed");
    let lines = world.session(&done.session()).lines();
    each_told_once(&lines);
    let waited = lines.iter().find(|l| l["toolUseResult"] == "Error: cancelled");
    assert!(waited.is_some(), "what waited ended with the turn: {lines:#?}");
}

#[test]
fn an_agent_that_waits_takes_messages() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e waits ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", "How far are you?")]}),
        json!({"when": {"results": "==3", "notifications": "==0"}, "text": "told"}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start(&gate.wait(), "Build")]),
            json!({"when": {"latest": "Running in"}, "text": "the build runs"}),
            json!({"when": {"latest": "How far"}, "text": "still building"}),
            json!({"when": {"notifications": "==1"}, "text": "built"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    wait_waiting(&world);
    world.file("waits", "");
    eventually("it has answered the message", || {
        let asked = book.asked("Do the job");
        if asked.len() == 3 { Ok(()) } else { Err(asked.len()) }
    });
    wait_waiting(&world);
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "built");
    assert!(book.last().results()[2].0.starts_with("queued"), "{:?}", book.last().results());
    let session = world.session(&done.session());
    session.check();
    each_told_once(&session.agent("job").lines());
    world.assert_nothing_left();
}

#[test]
fn an_orphan_waits_for_its_shells_and_is_told_of_at_resume() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job."), start("sleep 1160", "of the lead")]),
        json!({"when": {"notifications": "==2"}, "text": "{{agent.1.result}}"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start(&gate.wait(), "Build")]),
            json!({"when": {"notifications": "==0"}, "text": "the build runs"}),
            json!({"when": {"notifications": "==1"}, "text": "built"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    let row = wait_waiting(&world);
    wait_shells(&world, 2);
    run.kill().expect_killed();
    let session = world.session(row["session"].as_str().unwrap());
    gate.open(1);
    eventually("its outcome", || {
        let outcomes = session.agent("job").outcomes();
        if outcomes.len() == 1 { Ok(()) } else { Err(outcomes) }
    });
    let id = row["session"].as_str().unwrap();
    let done = world.lead(&["-p", "--resume", id, "--model", &book.model(), "--output-format", "json"]).run();
    assert_eq!(done.expect(0).result(), "built");
    session.check();
    each_told_once(&session.lines());
    each_told_once(&session.agent("job").lines());
    assert_eq!(session.agent("job").outcome()["status"], "completed");
    world.assert_nothing_left();
}

#[test]
fn a_detached_run_does_not_wait_for_its_shells() {
    let world = World::heavy();
    let lead = lead_rule(&[
        turn("", &[start("sleep 1170", "endless")]),
        json!({"when": {"notifications": "==0"}, "text": "over"}),
        json!({"repeat": true, "text": "{{notification.1.status}}"}),
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").args(&["--detach"]).run();
    assert_eq!(done.expect(0).result(), "over");
    assert_eq!(done.json()["leftovers"][0]["command"], "sleep 1170");
    world.assert_nothing_left();
    let next = world.headless(&book.model(), "and now?").args(&["--resume", &done.session()]).run();
    assert_eq!(next.expect(0).result(), "killed");
    each_told_once(&world.session(&done.session()).lines());
}

#[test]
fn r092_waiting_for_shells_has_a_limit_after_which_they_are_stopped_and_named() {
    let world = World::heavy();
    let settings = json!({"lead": {"backgroundWait": "1s"}}).to_string();
    let lead = lead_rule(&[
        turn("", &[ask("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [start("sleep 1130", "mine one"), start("sleep 1131", "mine two")]}),
        json!({"when": {"notifications": "==0"}, "text": "now I wait"}),
        json!({"when": {"notifications": "==2"}, "text": "{{result.3}} {{notification.2.summary}}"}),
        json!({"repeat": true, "text": "one more"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start("sleep 1132", "its own")]),
            json!({"when": {"notifications": "==0"}, "text": "it waits"}),
            json!({"when": {"notifications": "==1"}, "text": "{{notification.1.summary}}"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    let result = done.expect(0).result();
    for part in ["\"its own\" killed: ", "lead.backgroundWait"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    let mut ended: Vec<String> = book.last().notes().iter().map(|note| note.get("summary")).collect();
    ended.sort();
    assert_eq!(ended.len(), 2);
    for (summary, name) in ended.iter().zip(["mine one", "mine two"]) {
        let begin = format!("Background command \"{name}\" killed: ");
        assert!(
            summary.starts_with(&begin) && summary.contains("1s") && summary.contains("backgroundWait"),
            "{summary}"
        );
    }
    let session = world.session(&done.session());
    session.check();
    each_told_once(&session.lines());
    let agent = session.agent("job");
    each_told_once(&agent.lines());
    let outcome = agent.outcome();
    assert_eq!((&outcome["status"], &outcome["leftovers"][0]["command"]), (&json!("completed"), &json!("sleep 1132")));
    let json = done.json();
    let named = json["leftovers"].as_array().unwrap().iter().map(|l| l["command"].as_str().unwrap());
    assert_eq!(named.collect::<Vec<_>>(), ["sleep 1130", "sleep 1131"]);
    world.assert_nothing_left();
}

#[test]
fn r071_an_agent_that_is_stopped_while_it_waits_takes_its_shells_along() {
    let world = World::heavy();
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}: {{notification.1.result}}"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[turn("", &[start("trap '' TERM; while :; do sleep 1140; done", "stubborn")]), turn("half an answer", &[])],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    let waiting = wait_waiting(&world);
    let pid = pid_of(&shells(&world)[0]);
    world.lead(&["stop", waiting["id"].as_str().unwrap()]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "killed: half an answer");
    assert!(!exists(pid));
    let session = world.session(&done.session());
    session.check();
    let outcome = session.agent("job").outcome();
    assert_eq!(outcome["leftovers"][0]["pid"], pid, "{outcome:#}");
    assert!(outcome["signal"].is_null(), "it ended by itself when it was asked to: {outcome:#}");
    world.assert_nothing_left();
}

#[test]
fn nothing_goes_to_the_background_where_that_is_switched_off() {
    let world = World::new();
    let tools = [start("touch made", "Make"), bash("echo fine")];
    let lead = lead_rule(&[turn("", &tools), turn("", &[ask("job", "Do the job.")]), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &tools), turn("done", &[])])]);
    let variable = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS";
    world.headless(&book.model(), "go").env(variable, "1").run().expect(0);
    for results in [book.last().results(), book.asked("Do the job").pop().unwrap().results()] {
        assert!(results[0].1 && results[0].0.contains(variable), "{results:?}");
        assert_eq!(results[1], ("fine".to_owned(), false));
    }
    assert!(!world.cwd().join("made").exists());
    world.assert_nothing_left();
}

#[test]
fn r098_no_log_holds_what_another_has_written() {
    let world = World::new();
    let say = |word: &str| start(&format!("for i in $(seq 500); do echo {word}-$i; done"), word);
    let lead = lead_rule(&[
        turn("", &[say("main"), ask("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[say("agent")]), json!({"repeat": true, "text": "done"})]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").env("LEAD_LOG", "trace").run();
    let session = world.session(&run.expect(0).session());
    let folder = session.path.with_extension("").join("tool-results");
    let mut outputs: Vec<String> =
        std::fs::read_dir(&folder).unwrap().flatten().map(|e| std::fs::read_to_string(e.path()).unwrap()).collect();
    outputs.sort();
    let expected = ["agent", "main"].map(|w| (1..=500).map(|i| format!("{w}-{i}\n")).collect::<String>());
    assert_eq!(outputs, expected, "each file holds its own command's output, and all of it");
    let agent = session.agent("job");
    let log = std::fs::read_to_string(agent.path.with_extension("log")).unwrap();
    assert!(!log.contains("agent-500") && !log.contains("main-500"), "{log}");
    for lines in [session.lines(), agent.lines()] {
        let text = lines.iter().map(Value::to_string).collect::<String>();
        assert!(!text.contains("agent-499") && !text.contains("main-499"), "the model asked for no output");
    }
    world.assert_nothing_left();
}
