//! The folder that shell commands run in: kept from call to call, each agent's own, and left when it is
//! gone (R081). And what is run there without anybody in front of it.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Request, World, ask, bash, book, call, eventually, lead_rule, signal, spawn, tell, turn, worker_rule,
};

/// The results of a request's calls of `Bash`, each without what is said of folders.
fn outputs(request: &Request) -> Vec<String> {
    let plain = |(text, _): (String, bool)| text.lines().filter(|l| !l.starts_with('[')).collect::<Vec<_>>().join("\n");
    request.results().into_iter().map(plain).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn r081_a_folder_is_kept_by_the_agent_that_changed_it_and_changes_nobody_else_s() {
    let world = World::new();
    for folder in ["one", "two", "three"] {
        world.file(&format!("{folder}/name"), folder);
    }
    let look = || bash("pwd; cat name 2>/dev/null; true");
    let lead = lead_rule(&[
        turn("", &[bash("cd three"), ask("job one", "Do job one."), ask("job two", "Do job two.")]),
        turn("", &[look(), call("Read", json!({"file_path": "one/name"}))]),
        turn("over", &[]),
    ]);
    // Both change at the same time, and look when both have changed.
    let job = |mine: &str, other: &str| {
        let meet = format!("cd {mine}; touch ../{mine}-in; until [ -e ../{other}-in ]; do sleep 0.02; done");
        worker_rule(&format!("Do job {mine}"), &[turn("", &[bash("pwd"), bash(&meet), look()]), turn("done", &[])])
    };
    let book = book(&world, &[lead, job("one", "two"), job("two", "one")]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let cwd = shown(world.cwd());
    for name in ["one", "two"] {
        let seen = outputs(&book.asked(&format!("Do job {name}")).pop().unwrap());
        assert_eq!(seen[0], cwd, "an agent begins in its own working folder, not where its lead's shell is");
        assert_eq!(seen[2], format!("{cwd}/{name}\n{name}"), "{seen:?}");
    }
    let last = book.last();
    assert_eq!(outputs(&last)[3], format!("{cwd}/three\nthree"));
    assert!(last.results()[4].0.contains("one"), "other tools stay in the working folder: {:?}", last.results()[4]);
    let (said, _) = &last.results()[0];
    assert_eq!(*said, format!("(no output)\n[working folder of your next command: {cwd}/three]"));
    world.assert_nothing_left();
}

#[test]
fn r081_an_agent_whose_folder_disappears_goes_on_in_the_project_s_and_says_so() {
    let world = World::new();
    world.file("sub/deep/file", "x");
    let mut in_sub = ask("job", "Do the job.");
    in_sub["input"]["cwd"] = json!(world.cwd().join("sub"));
    let lead = lead_rule(&[turn("", &[in_sub]), turn("", &[bash("pwd")]), turn("over", &[])]);
    let worker = worker_rule(
        "Do the job",
        &[turn("", &[bash("cd deep; pwd"), bash("rm -rf ../../sub"), bash("pwd"), bash("pwd")]), turn("done", &[])],
    );
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    let cwd = shown(world.cwd());
    let results: Vec<String> =
        book.asked("Do the job").pop().unwrap().results().into_iter().map(|(text, _)| text).collect();
    assert!(results[0].starts_with(&format!("{cwd}/sub/deep\n")), "{results:?}");
    let note = format!("{cwd}\n[the working folder {cwd}/sub/deep is gone; this ran in {cwd}]");
    assert_eq!((&results[2], &results[3]), (&note, &cwd), "it is said once");
    assert_eq!(outputs(&book.last())[1], cwd, "its lead stays where it was");
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn a_resume_goes_on_in_the_folder_where_the_shell_was() {
    let world = World::heavy();
    world.file("sub/deep/file", "x");
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[bash("cd sub"), spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "Go on, please.")]}),
        json!({"when": {"notifications": "==2"}, "text": "first"}),
        json!({"when": {"latest": "and now"}, "tools": [bash("pwd")]}),
        json!({"when": {"latest": "gone"}, "tools": [bash("pwd"), bash("cd sub/deep")]}),
        json!({"repeat": true, "text": "fine"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            json!({"when": {"latest": "^Do the job.$"}, "tools": [bash("cd sub/deep"), bash(&gate.arrive("../../here"))]}),
            json!({"when": {"latest": "Go on"}, "tools": [bash("pwd")]}),
            json!({"repeat": true, "text": "fine"}),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let pid = i32::try_from(world.wait_workers(1)[0]["pid"].as_i64().unwrap()).unwrap();
    signal(pid, Signal::SIGKILL);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "first");
    let cwd = shown(world.cwd());
    // The first round's results died with the agent, and so did the move: nobody was told of it.
    assert_eq!(outputs(&book.asked("Do the job").pop().unwrap()).pop(), Some(cwd.clone()));

    let resumed = |prompt: &str| world.headless(&book.model(), prompt).args(&["--resume", &done.session()]).run();
    resumed("and now").expect(0);
    assert_eq!(outputs(&book.last()).pop(), Some(format!("{cwd}/sub")));
    fs::rename(world.cwd().join("sub"), world.cwd().join("moved")).unwrap();
    resumed("gone").expect(0);
    let texts: Vec<String> = book.last().results().into_iter().map(|(text, _)| text).collect();
    let at = texts.len() - 2;
    assert_eq!(texts[at], format!("{cwd}\n[the working folder {cwd}/sub is gone; this ran in {cwd}]"));
    assert!(texts[at + 1].starts_with("exit code 1"), "{texts:?}");
    world.assert_nothing_left();
}

#[test]
fn an_agent_that_is_continued_is_in_the_folder_it_left() {
    let world = World::new();
    world.file("sub/file", "x");
    let lead = lead_rule(&[
        turn("", &[ask("job", "Do the job.")]),
        turn("", &[tell("{{agent.1}}", "Where are you?")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let worker = worker_rule(
        "Do the job",
        &[
            turn("", &[bash("cd sub")]),
            turn("moved", &[]),
            json!({"when": {"latest": "Where"}, "tools": [bash("pwd")]}),
            turn("{{result.1}}", &[]),
        ],
    );
    let book = book(&world, &[lead, worker]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), shown(&world.cwd().join("sub")));
    world.assert_nothing_left();
}

#[test]
fn permission_is_asked_for_where_a_command_really_runs() {
    let world = World::new();
    fs::create_dir_all(world.root().join("beside")).unwrap();
    world.file("sub/secret", "hidden");
    let rules = json!({"permissions": {"deny": ["Read(./sub/secret)"]}}).to_string();
    let lead = lead_rule(&[
        turn("", &[bash("echo x > here"), bash("cd sub"), bash("cat secret"), bash("cat ../sub/secret")]),
        turn("", &[bash(&format!("cd {}", shown(&world.root().join("beside")))), bash("echo x > there")]),
        turn("over", &[]),
    ]);
    let book = book(&world, &[lead]);
    let args = ["-p", "go", "--model", &book.model(), "--permission-mode", "acceptEdits", "--settings", &rules];
    world.lead(&args).run().expect(0);
    let results = book.last().results();
    let denied: Vec<bool> =
        results.iter().map(|(text, is_error)| *is_error && text.contains("Permission denied")).collect();
    assert_eq!(denied, [false, false, true, true, false, true], "{results:#?}");
    assert!(world.cwd().join("here").exists());
    assert!(!world.root().join("beside/there").exists() && !world.cwd().join("there").exists());
    world.assert_nothing_left();
}

/// Programs that want a person fail, print or end; none waits.
#[test]
fn what_wants_a_person_ends_by_itself() {
    let world = World::new();
    world.file("text", "some text\n");
    let git = "git -c user.name=n -c user.email=e@x";
    let script = format!("git init -q . && git add text && {git}");
    let commands = [
        format!("{script} commit"),
        format!("{git} commit -q -m first && echo made"),
        format!("{git} commit -q --amend && git log --format=%s"),
        "git log -p | head -n 1 | cut -c1-6".to_owned(),
        "less text 2>/dev/null || cat text".to_owned(),
        "cat; read -r answer; echo \"answer: $answer\"".to_owned(),
        "python3 -i -c 'print(1)' 2>/dev/null".to_owned(),
        "(exec 3< /dev/tty) 2>/dev/null || echo no terminal".to_owned(),
        "vi text < /dev/null > /dev/null 2>&1; echo vi: ended".to_owned(),
        "$EDITOR text; echo $?; echo $VISUAL $PAGER $GIT_PAGER".to_owned(),
    ];
    let calls: Vec<Value> = commands.iter().map(|c| call("Bash", json!({"command": c, "timeout": 60_000}))).collect();
    let book = book(&world, &[lead_rule(&[turn("", &calls), turn("over", &[])])]);
    let run = world.headless(&book.model(), "go").env("EDITOR", "vi").env("PAGER", "less").env("TERM", "xterm");
    run.run().expect(0);
    let results = book.last().results();
    assert!(results.iter().all(|(text, _)| !text.contains("timed out")), "{results:#?}");
    assert!(results[0].1 && results[0].0.contains("empty commit message"), "a clear failure: {:?}", results[0]);
    let texts: Vec<&str> = results[1..].iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(
        texts,
        ["made", "first", "commit", "some text", "answer:", "1", "no terminal", "vi: ended", "1\nfalse cat cat"]
    );
    world.assert_nothing_left();
}

#[test]
fn a_session_s_folder_is_known_although_its_conversation_was_summarised() {
    let world = World::heavy();
    world.file("sub/file", "x");
    let gate = world.gate("gate");
    let background = json!({"command": gate.wait(), "description": "Wait", "run_in_background": true});
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go$"}, "tools": [bash("cd sub"), call("Bash", background)]}),
        json!({"when": {"summary": true}, "text": "In short.", "repeat": true}),
        json!({"when": {"latest": "In short"}, "tools": [bash("pwd; touch ../summarised")]}),
        json!({"when": {"latest": "Running in"}, "tools": [bash("pwd")], "usage": {"input_tokens": 180_000}}),
        json!({"when": {"latest": "and now"}, "tools": [bash("pwd")]}),
        json!({"repeat": true, "text": "fine"}),
    ]);
    let book = book(&world, &[lead]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    eventually("it went on after the summary", || {
        let lines = world.find_session(ID).map(|s| s.lines()).unwrap_or_default();
        let is_there = lines.iter().any(|l| l["subtype"] == "compact_boundary");
        if is_there && world.cwd().join("summarised").exists() { Ok(()) } else { Err(lines) }
    });
    run.kill().expect_killed();
    let done = world.headless(&book.model(), "and now").args(&["--resume", ID]).run();
    done.expect(0);
    assert_eq!(outputs(&book.last()).pop(), Some(shown(&world.cwd().join("sub"))));
    let lines = world.session(ID).lines();
    let boundary = lines.iter().find(|l| l["subtype"] == "compact_boundary").unwrap();
    assert_eq!(boundary["shells"].as_array().map(Vec::len), Some(1), "{boundary:#}");
    assert_eq!(boundary["shellCwd"], shown(&world.cwd().join("sub")));
    let told: Vec<&Value> = lines.iter().filter(|l| l["origin"]["kind"] == "task-notification").collect();
    assert_eq!(told.len(), 1, "the shell that began before the summary is told of once: {told:#?}");
    assert_eq!(told[0]["origin"]["taskId"], boundary["shells"][0]["id"]);
    world.assert_nothing_left();
}

const ID: &str = "33333333-2222-4333-8444-555555555555";
