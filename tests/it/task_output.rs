//! `TaskOutput`, `TaskStop` and `lead stop` of background shells, in each state (spec 2.5).

use serde_json::{Value, json};

use crate::support::{
    SHELL, World, ask, bash, book, call, each_told_once, ends, eventually, exists, lead_rule, output_of, pid_of, spawn,
    start, started, stop, turn, wait_shells, wait_taskoutput, worker_rule,
};

#[test]
fn taskstop_and_taskoutput_tell_every_state_of_a_shell() {
    let world = World::new();
    let gate = world.gate("gate");
    let shell = "{{capture.shell}}";
    let step =
        |n: usize, tools: Vec<Value>| json!({"when": {"results": format!("=={n}"), "any": SHELL}, "tools": tools});
    let lead = lead_rule(&[
        turn("", &[start(&format!("seq 1 20000; {}", gate.arrive("here")), "Count")]),
        step(1, vec![bash("until [ -e here ]; do sleep 0.02; done")]),
        step(2, vec![output_of(shell, json!({"block": false})), output_of(shell, json!({"timeout": 50}))]),
        step(4, vec![call("TaskStop", json!({"shell_id": shell}))]),
        json!({"when": {"results": "==5", "notifications": "==1", "any": SHELL}, "tools": [
            stop(shell), output_of(shell, json!({})), stop("b-00000000"), output_of("b-00000000", json!({})),
            output_of("nobody", json!({})), output_of(shell, json!({"timeout": 600_001}))]}),
        json!({"when": {"results": "==11"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    let lines = world.session(&done.session()).lines();
    each_told_once(&lines);
    let id = started(&lines).remove(0);
    let results = book.last().results();
    let structured: Vec<&Value> = lines.iter().map(|l| &l["toolUseResult"]).filter(|r| !r.is_null()).collect();

    for at in [2, 3] {
        let (text, is_error) = &results[at];
        assert!(!is_error && text.starts_with(&format!("{id}: running")), "{text}");
        assert!(text.contains("[cut: the last 30000 characters") && text.ends_with("\n20000"), "the end is shown");
        assert!(text.contains(structured[at]["outputFile"].as_str().unwrap()), "the file is named");
        assert_eq!((&structured[at]["status"], &structured[at]["retrieved"]), (&json!("running"), &json!(false)));
        assert_eq!((&structured[at]["task_id"], &structured[at]["task_type"]), (&json!(id), &json!("local_bash")));
    }
    assert!(!results[4].1 && results[4].0.contains("killed: stopped by TaskStop"), "{:?}", results[4]);
    let answer = structured[4].as_object().unwrap();
    assert_eq!(answer.keys().collect::<Vec<_>>(), ["message", "task_id", "task_type", "command"]);
    assert_eq!((&answer["task_type"], &answer["task_id"]), (&json!("local_bash"), &json!(id)));
    assert!(results[5].1 && results[5].0.contains("ended already (killed)"), "{:?}", results[5]);
    assert!(
        !results[6].1 && results[6].0.starts_with(&format!("{id}: killed: stopped by TaskStop")),
        "{:?}",
        results[6].0
    );
    assert_eq!((&structured[6]["status"], &structured[6]["retrieved"]), (&json!("killed"), &json!(true)));
    for at in [7, 8] {
        assert!(results[at].1 && results[at].0.contains("no background command b-00000000"), "{:?}", results[at]);
    }
    assert!(results[9].1 && results[9].0.contains("\"nobody\"") && results[9].0.contains("none"), "{:?}", results[9]);
    assert!(results[10].1 && results[10].0.contains("600000"), "{:?}", results[10]);
    assert_eq!(
        ends(&book.last().notes()),
        [("killed".to_owned(), "Background command \"Count\" killed: stopped by TaskStop".to_owned())]
    );
    world.assert_nothing_left();
}

#[test]
fn taskoutput_waits_for_an_end_and_the_notification_still_comes() {
    let world = World::new();
    let gate = world.gate("gate");
    let shell = "{{capture.shell}}";
    let lead = lead_rule(&[
        turn("", &[start(&format!("{}; echo made; exit 7", gate.wait()), "Make"), spawn("job", "Do the job.")]),
        // One turn waits for both; what lets them go runs beside it.
        json!({"when": {"results": "==2", "any": SHELL}, "tools": [
            output_of(shell, json!({"timeout": 600_000})), output_of("{{agent.1}}", json!({})), bash("touch asked")]}),
        json!({"when": {"results": "==5", "any": SHELL}, "tools": [
            output_of("{{agent.1}}", json!({"block": false})), output_of(shell, json!({"block": false}))]}),
        json!({"when": {"notifications": "==2"}, "text": "both were told"}),
        json!({"repeat": true, "text": "one is missing"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("agent-here"))]), turn("gold", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("agent-here");
    // The session answers others while it waits.
    wait_taskoutput(&world);
    gate.open(2);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "both were told");
    let results = book.last().results();
    let shell_texts = [&results[2].0, &results[6].0];
    assert!(
        shell_texts.iter().all(|t| t.contains("failed with exit code 7") && t.ends_with("\nmade")),
        "{shell_texts:?}"
    );
    let agent_texts = [&results[3].0, &results[5].0];
    assert!(agent_texts.iter().all(|t| t.contains("\"job\" completed") && t.ends_with("\ngold")), "{agent_texts:?}");
    let session = world.session(&done.session());
    session.check();
    each_told_once(&session.lines());
    world.assert_nothing_left();
}

#[test]
fn taskoutput_of_a_running_agent_tells_what_it_does() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done; sleep 0.5")]}),
        json!({"when": {"results": "==2"}, "tools": [output_of("{{agent.1}}", json!({"timeout": 10}))]}),
        json!({"when": {"results": "==3"}, "tools": [bash("touch asked")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    eventually("it was asked", || if world.cwd().join("asked").exists() { Ok(()) } else { Err(()) });
    gate.open(1);
    run.wait().expect(0);
    let (text, is_error) = book.last().results().remove(2);
    assert!(
        !is_error && text.contains("\"job\": running") && text.contains("last activity: Bash Run a step"),
        "{text}"
    );
    world.assert_nothing_left();
}

#[test]
fn agents_have_neither_taskoutput_nor_taskstop() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[ask("job", "Do the job."), spawn("other", "Do the job.")]),
        json!({"repeat": true, "text": "over"}),
    ]);
    let book = book(
        &world,
        &[lead, worker_rule("Do the job", &[turn("", &[output_of("b-00000000", json!({}))]), turn("done", &[])])],
    );
    world.headless(&book.model(), "go").run().expect(0);
    assert!(book.last().tools().contains(&"TaskOutput"));
    for request in book.of("worker") {
        assert!(!request.tools().iter().any(|t| ["TaskOutput", "TaskStop"].contains(t)), "{:?}", request.tools());
        assert!(request.results().iter().all(|(text, is_error)| *is_error && text.contains("no tool named")));
    }
    world.assert_nothing_left();
}

#[test]
fn lead_stop_ends_a_shell_by_the_one_that_runs_it() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[start("sleep 1150", "mine"), ask("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.summary}} {{result.1}}"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[start("sleep 1151", "its own")]),
            json!({"when": {"notifications": "==1"}, "text": "{{notification.1.summary}}"}),
            json!({"repeat": true, "text": "waiting"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    let rows = wait_shells(&world, 2);
    assert_eq!(rows[0]["agent"], rows[0]["session"], "the session's own comes first");
    let of_agent = rows[1]["id"].as_str().unwrap();
    let stopped = world.lead(&["stop", &of_agent[..6], "--json"]).run();
    assert_eq!(stopped.expect(0).json()[0]["status"], "killed");
    assert!(!exists(pid_of(&rows[1])));
    let mine = rows[0]["id"].as_str().unwrap();
    let stopped = world.lead(&["stop", mine]).run();
    assert_eq!(stopped.expect(0).stdout, format!("{mine}  killed\n"));
    let done = run.wait();
    let result = done.expect(0).result();
    assert_eq!(result.matches("killed: stopped by lead stop").count(), 2, "{result}");
    world.lead(&["stop", mine]).run().expect(4).says(&[mine]);
    world.assert_nothing_left();
}
