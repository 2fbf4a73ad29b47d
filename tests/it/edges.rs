//! Damaged files, missing files, failing starts, and who may do what.

use std::io::Write as _;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Fake, World, ask, bash, book, eventually, lead_rule, spawn, tell, turn, worker_rule};

const ID: &str = "77777777-2222-4333-8444-555555555555";

fn append(path: &std::path::Path, bytes: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn torn_lines_are_cut_off_and_the_rest_goes_on() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[ask("job", "Remember the word plum.")]),
        json!({"when": {"latest": "plum"}, "text": "asked"}),
        json!({"when": {"latest": "again"}, "tools": [tell("{{agent.1}}", "The word?")]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let worker = worker_rule("plum", &[turn("plum it is", &[]), turn("plum still", &[])]);
    let book = book(&world, &[lead, worker]);
    world.headless(&book.model(), "go").args(&["--session-id", ID]).run().expect(0);
    let session = world.session(ID);
    append(&session.path, b"{\"type\":\"user\",\"message\":{\"role\":\"us");
    append(&session.agents()[0].path, b"{\"type\":\"assist");
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(done.expect(0).result(), "plum still");
    assert!(done.stderr.contains("torn"), "it is reported: {done:#?}");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn foreign_and_broken_lines_are_ignored() {
    let world = World::new();
    let lead = lead_rule(&[json!({"when": {"latest": "again"}, "text": "{{prompt}}"}), turn("first", &[])]);
    let book = book(&world, &[lead]);
    world.headless(&book.model(), "go").args(&["--session-id", ID]).run().expect(0);
    let path = world.session(ID).path;
    append(&path, b"{\"type\":\"from-the-future\",\"x\":1}\nnot json at all\n{\"type\":\"user\"}\n[]\n\n");
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(done.expect(0).result(), "go");
    assert!(std::fs::read_to_string(&path).unwrap().contains("from-the-future"), "and kept");
}

#[test]
fn a_missing_transcript_is_named_and_breaks_nothing_else() {
    let world = World::new();
    let lead = lead_rule(&[
        turn("", &[ask("one", "Do job one."), ask("two", "Do job two.")]),
        json!({"when": {"latest": "again"}, "tools": [tell("{{agent.1}}", "Hello?"), tell("{{agent.2}}", "Hello?")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do job", &[json!({"repeat": true, "text": "done"})])]);
    world.headless(&book.model(), "go").args(&["--session-id", ID]).run().expect(0);
    let one = world.session(ID).agent("one");
    std::fs::remove_file(&one.path).unwrap();
    // One that was made this moment could still be starting.
    let mut meta = one.meta.clone();
    meta["createdAt"] = json!(1);
    std::fs::write(one.path.with_extension("meta.json"), meta.to_string()).unwrap();
    let done = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    assert_eq!(done.expect(0).result(), "over");
    let results = book.last().results();
    let (text, is_error) = &results[2];
    assert!(*is_error && text.contains(&one.id), "{results:?}");
    assert!(!results[3].1, "{results:?}");
    world.lead(&["result", &one.id]).run().expect(4);
    world.assert_nothing_left();
}

#[test]
fn a_start_that_fails_gives_its_slot_back_and_a_failed_resume_loses_nothing() {
    let world = World::new();
    let real = env!("CARGO_BIN_EXE_lead-worker");
    let fake =
        Fake::new(&world, &format!("[ -e broken ] && {{ echo 'out of order' >&2; exit 9; }}\nexec '{real}' \"$@\""));
    let lead = lead_rule(&[
        turn("", &[bash("touch broken")]),
        turn("", &[ask("never", "Do the job.")]),
        turn("", &[bash("rm broken")]),
        turn("", &[ask("job", "Do the job.")]),
        turn("", &[bash("touch broken"), tell("{{agent.1}}", "Once more."), bash("rm broken")]),
        turn("", &[tell("{{agent.1}}", "And again.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("done", &[]), turn("done again", &[])]);
    let book = book(&world, &[lead, worker]);
    let settings = json!({"lead": {"maxAgents": 1}}).to_string();
    let done = fake.headless(&world, &book.model(), "go").args(&["--settings", &settings]).run();
    assert_eq!(done.expect(0).result(), "done again");
    let results = book.last().results();
    assert!(results[1].1 && results[1].0.contains("out of order"), "{results:?}");
    assert!(!results[3].1, "the slot is free: {results:?}");
    assert!(results[5].1 && results[5].0.contains("out of order"), "{results:?}");
    assert!(!results[7].1 && results[7].0.contains("resumed"), "{results:?}");
    let session = world.session(&done.session());
    let agent = session.agent("job");
    assert_eq!(session.agents().len(), 1);
    assert_eq!(agent.outcomes().len(), 2);
    assert!(!book.asked("the job").last().unwrap().all().contains("Once more."), "a refused message is not seen");
    world.assert_nothing_left();
}

#[test]
fn a_session_ended_while_an_agent_starts_leaves_nothing() {
    for which in [Signal::SIGINT, Signal::SIGTERM] {
        let world = World::heavy();
        let script = "echo $$ > starting.new; mv starting.new starting; exec sleep 1080";
        let fake = Fake::new(&world, script);
        let book = book(&world, &[lead_rule(&[turn("", &[ask("job", "Do the job."), spawn("other", "Do the job.")])])]);
        let run = fake.headless(&world, &book.model(), "go").args(&["--session-id", ID]).start();
        world.wait_file("starting");
        run.signal(which);
        let done = run.wait();
        assert!(matches!(done.code, Some(130 | 143)), "{done:#?}");
        assert!(world.session(ID).agents().is_empty(), "{:#?}", world.session(ID).agents());
        world.assert_nothing_left();
    }
}

#[test]
fn an_orphan_is_stopped_by_the_verb_and_told_of_once() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    let tool: i32 = world.wait_file("here").parse().unwrap();
    eventually("the launch is recorded", || {
        let lines = world.session(ID).lines();
        let launched = lines.iter().any(|l| l["toolUseResult"]["status"] == "async_launched");
        if launched { Ok(()) } else { Err(lines) }
    });
    run.kill().expect_killed();
    let id = world.session(ID).agent("job").id;
    let stopped = world.lead(&["stop", "--json", &id]).run().expect(0).json();
    assert_eq!((&stopped[0]["status"], &stopped[0]["result"]), (&json!("killed"), &json!("Begun.")), "{stopped:#}");
    assert!(!crate::support::exists(tool));
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    assert_eq!(world.lead(&args).run().expect(0).result(), "killed");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn the_tools_of_a_dead_worker_are_swept_by_whoever_settles_it() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": ">=1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("Begun.", &[bash(&gate.arrive("here"))])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    let tool: i32 = world.wait_file("here").parse().unwrap();
    let row = world.wait_workers(1).remove(0);
    run.kill().expect_killed();
    crate::support::signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::SIGKILL);
    world.lead(&["wait", row["id"].as_str().unwrap()]).run().expect(1);
    assert!(!crate::support::exists(tool), "the tool outlived the settling of its agent");
    let outcome = world.session(ID).agent("job").outcome();
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("failed"), &json!("Begun.")));
    world.headless(&book.model(), "again").args(&["--resume", ID]).run().expect(0);
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn an_agent_can_not_climb_out_of_its_role_through_the_shell() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead_program = env!("CARGO_BIN_EXE_lead");
    let lead = lead_rule(&[
        turn("", &[spawn("victim", "Do the quiet job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e quiet ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [ask("climber", "Do the other job.")]}),
        json!({"when": {"results": "==3"}, "tools": [bash("echo > climbed")]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.status}}"}),
    ]);
    let victim = worker_rule("quiet job", &[turn("", &[bash(&gate.arrive("quiet"))]), turn("done", &[])]);
    let stop =
        format!("'{lead_program}' stop $('{lead_program}' ps --json | grep -o 'a-[0-9a-f]*' | sort -u); echo code=$?");
    let detached = format!("env -u LEAD_AGENT_ID -u LEAD_RUN setsid {stop}");
    let nested = format!("'{lead_program}' -p hello --model playbook:survey; echo code=$?");
    let climber =
        worker_rule("other job", &[turn("", &[bash(&stop), bash(&detached), bash(&nested)]), turn("tried", &[])]);
    let book = book(&world, &[lead, victim, climber]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("climbed");
    assert_eq!(world.workers().len(), 1, "the victim lives");
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "completed");
    let results = book.asked("other job").pop().unwrap().results();
    for (text, _) in &results {
        assert!(text.contains("code=3") && text.contains("agent"), "{results:#?}");
    }
}

#[test]
fn coordinator_mode_is_remembered_by_the_session() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[json!({"repeat": true, "text": "over"})])]);
    let kind = || book.last().0["caller"]["type"].clone();
    world.headless(&book.model(), "go").args(&["--coordinator", "--session-id", ID]).run().expect(0);
    assert_eq!(kind(), "coordinator");
    let resumed = world.headless(&book.model(), "again").args(&["--resume", ID]).run();
    resumed.expect(0).says(&["coordinator"]);
    assert_eq!(kind(), "coordinator");
    let other = "88888888-2222-4333-8444-555555555555";
    world.headless(&book.model(), "go").args(&["--session-id", other]).run().expect(0);
    let resumed = world.headless(&book.model(), "again").args(&["--coordinator", "--resume", other]).run();
    resumed.expect(0).says(&["normal"]);
    assert_eq!(kind(), "main");

    let off = json!({"lead": {"coordinatorMode": false}}).to_string();
    let refused = world.headless(&book.model(), "go").args(&["--coordinator", "--settings", &off]).run();
    assert!(refused.expect(2).stdout.contains("lead.coordinatorMode"), "{refused:#?}");
    let refused = world.headless(&book.model(), "go").args(&["--coordinator"]);
    let refused = refused.env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1").run();
    assert!(refused.expect(2).stdout.contains("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"), "{refused:#?}");
    world.assert_nothing_left();
}

#[test]
fn without_background_tasks_nothing_goes_to_the_background() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[spawn("later", "Do the job."), ask("now", "Do the job.")]), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1").run();
    assert_eq!(run.expect(0).result(), "over");
    let results = book.last().results();
    assert!(results[0].1 && results[0].0.contains("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"), "{results:?}");
    assert!(!results[1].1, "{results:?}");
}

#[test]
fn a_closed_stdout_ends_the_run_quietly() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("over", &[])])]);
    let script =
        format!("('{}' -p go --model '{}'; echo $? > code) | true; cat code", env!("CARGO_BIN_EXE_lead"), book.model());
    let done = crate::support::Lead::program(&world, std::path::Path::new("/bin/sh")).args(&["-c", &script]).run();
    let code = done.expect(0).stdout.trim().to_owned();
    assert!(code == "141" || code == "0", "{done:#?}");
    assert!(!done.stderr.contains("panic"), "{done:#?}");
    world.assert_nothing_left();
}

#[test]
fn a_session_is_resumed_from_any_folder() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[json!({"repeat": true, "text": "{{prompt}}"})])]);
    world.headless(&book.model(), "remember me").args(&["--session-id", ID]).run().expect(0);
    let elsewhere = world.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let args = ["--resume", ID, "--cwd", elsewhere.to_str().unwrap()];
    let done = world.headless(&book.model(), "again").args(&args).run();
    assert_eq!(done.expect(0).result(), "remember me");
    assert_eq!(done.session(), ID);
}

#[test]
fn without_a_model_the_ways_to_name_one_are_told() {
    let world = World::new();
    let done = world.lead(&["-p", "hello"]).run();
    done.expect(2).says(&["--model", "lead demo"]);
    let named = book(&world, &[lead_rule(&[turn("over", &[])])]);
    world.lead(&["-p", "hello"]).env("ANTHROPIC_MODEL", named.model()).run().expect(0);
    world.file(".claude/settings.json", json!({"model": named.model()}).to_string());
    assert_eq!(world.lead(&["-p", "hello"]).run().expect(0).stdout, "over\n");
    world.file(".claude/settings.json", "{\n  \"model\": oops\n}");
    let broken = world.lead(&["-p", "hello"]).run();
    broken.expect(2).says(&["settings.json", "2"]);
    world.assert_nothing_left();
}

#[test]
fn an_explorer_changes_nothing_whatever_the_mode() {
    let world = World::new();
    let mut explore = ask("look", "Do the looking.");
    explore["input"]["subagent_type"] = json!("Explore");
    let lead = lead_rule(&[turn("", &[explore]), turn("over", &[])]);
    let calls = [bash("ls"), bash("touch forbidden"), bash("ls > forbidden")];
    let book = book(&world, &[lead, worker_rule("the looking", &[turn("", &calls), turn("looked", &[])])]);
    world.headless(&book.model(), "go").run().expect(0);
    let results = book.asked("the looking").pop().unwrap().results();
    assert_eq!(results.iter().map(|(_, e)| *e).collect::<Vec<_>>(), [false, true, true], "{results:?}");
    assert!(!world.cwd().join("forbidden").exists());
    assert!(!book.of("worker")[0].tools().contains(&"Write"));
}

#[test]
fn a_name_belongs_to_one_living_agent() {
    let world = World::new();
    let gate = world.gate("gate");
    let named = |description: &str, prompt: &str| {
        let mut call = spawn(description, prompt);
        call["input"]["name"] = json!("scout");
        call
    };
    let lead = lead_rule(&[
        turn("", &[named("first", "Do the slow job.")]),
        json!({"when": {"results": "==1"}, "tools": [named("second", "Do the slow job."), bash("echo > refused")]}),
        json!({"when": {"notifications": "==1"}, "tools": [named("third", "Do the quick job.")]}),
        json!({"when": {"notifications": "==2"}, "text": "over"}),
    ]);
    let slow = worker_rule("slow job", &[turn("", &[bash(&gate.wait())]), turn("done", &[])]);
    let book = book(&world, &[lead, slow, worker_rule("quick job", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("refused");
    assert_eq!(world.lead(&["result", "scout"]).run().code, Some(3), "a living agent is found by its name");
    gate.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    let results = book.last().results();
    assert!(results[1].1 && results[1].0.contains("scout"), "{results:?}");
    assert!(!results[3].1, "a name is free again when its owner has ended: {results:?}");
    world.assert_nothing_left();
}

#[test]
fn an_agent_whose_folder_is_gone_is_not_continued_elsewhere() {
    let world = World::new();
    let folder = world.cwd().join("away");
    std::fs::create_dir(&folder).unwrap();
    let mut job = ask("job", "Do the job.");
    job["input"]["cwd"] = json!(folder);
    let lead = lead_rule(&[
        turn("", &[job]),
        turn("", &[bash("rmdir away"), tell("{{agent.1}}", "Once more.")]),
        turn("over", &[]),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[json!({"repeat": true, "text": "done"})])]);
    world.headless(&book.model(), "go").run().expect(0);
    let results = book.last().results();
    assert!(results[2].1 && results[2].0.contains(folder.to_str().unwrap()), "{results:?}");
    world.assert_nothing_left();
}
