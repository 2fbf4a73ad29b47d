//! What must hold when an agent is started: R003, R012-R016, R030, R089, R096, R104.

use serde_json::{Value, json};

use crate::support::{
    Fake, World, ask, bash, book, call, framed_hello, lead_rule, processes_with, spawn, tell, turn, worker_rule,
};

/// A lead that asks one agent and says what came of it.
fn asking() -> Value {
    lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("over", &[])])
}

/// Runs a lead whose `lead-worker` is this script; what the model was told of the spawn.
fn refusal(world: &World, script: &str) -> String {
    let book = book(world, &[asking()]);
    let fake = Fake::new(world, script);
    let done = fake.headless(world, &book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    let (text, is_error) = book.last().results().remove(0);
    assert!(is_error, "a spawn that failed is an error: {text}");
    let session = world.session(&done.session());
    assert!(session.agents().is_empty(), "what was made for it is undone: {:#?}", session.agents());
    let links = std::fs::read_dir(world.config().join("lead/agents")).into_iter().flatten().count();
    assert_eq!(links, 0, "links are left");
    world.assert_nothing_left();
    text
}

#[test]
fn r003_a_spawn_that_fails_tells_exit_status_and_last_output() {
    let world = World::new();
    let text = refusal(&world, "echo 'the disk is on fire' >&2; exit 7");
    assert!(text.contains('7') && text.contains("the disk is on fire"), "{text}");
    let world = World::new();
    let text = refusal(&world, "echo 'last words' >&2; kill -9 $$");
    assert!(text.contains("SIGKILL") && text.contains("last words"), "{text}");
}

#[test]
fn r003_a_child_that_says_nothing_is_killed_and_its_output_told() {
    let world = World::new().with_limits("ready=500ms");
    let text = refusal(&world, "echo 'hanging around' >&2; exec sleep 1010");
    assert!(text.contains("not ready") && text.contains("hanging around"), "{text}");
}

#[test]
fn r030_a_child_that_greets_and_then_dies_is_no_success() {
    let world = World::new();
    let hello = world.file("hello.bin", framed_hello(lead::core::frame::BUILD, lead::core::frame::PROTOCOL));
    let text = refusal(&world, &format!("cat '{}' >&0; head -c 4 <&0 >/dev/null; exit 3", hello.display()));
    assert!(text.contains('3'), "{text}");
    // Alive and greeting is not enough either: it never says that it is ready.
    let world = World::new().with_limits("ready=500ms");
    let hello = world.file("hello.bin", framed_hello(lead::core::frame::BUILD, lead::core::frame::PROTOCOL));
    let text = refusal(&world, &format!("cat '{}' >&0; exec sleep 1011", hello.display()));
    assert!(text.contains("not ready"), "{text}");
}

#[test]
fn r015_a_child_of_another_build_is_refused_by_name() {
    let world = World::new();
    let hello = world.file("hello.bin", framed_hello("0.0.1-older", lead::core::frame::PROTOCOL));
    let text = refusal(&world, &format!("cat '{}' >&0; exec sleep 1012", hello.display()));
    assert!(text.contains("0.0.1-older") && text.contains(lead::core::frame::BUILD), "{text}");
    let world = World::new();
    let hello = world.file("hello.bin", framed_hello(lead::core::frame::BUILD, 999));
    let text = refusal(&world, &format!("cat '{}' >&0; exec sleep 1013", hello.display()));
    assert!(text.contains("999"), "{text}");
}

#[test]
fn r015_the_program_beside_the_lead_comes_before_path() {
    let world = World::new();
    let beside = Fake::new(&world, "echo 'I am beside it' >&2; exit 1");
    let elsewhere = world.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let script = "#!/bin/sh\necho 'I am on PATH' >&2; exit 1\n";
    let path_worker = elsewhere.join("lead-worker");
    std::fs::write(&path_worker, script).unwrap();
    std::fs::set_permissions(&path_worker, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", elsewhere.display(), std::env::var("PATH").unwrap());
    let book = book(&world, &[asking()]);
    beside.headless(&world, &book.model(), "go").env("PATH", &path).run().expect(0);
    let told = book.last().results().remove(0).0;
    assert!(told.contains("I am beside it") && !told.contains("I am on PATH"), "{told}");

    std::fs::remove_file(beside.folder().join("lead-worker")).unwrap();
    beside.headless(&world, &book.model(), "go").env("PATH", &path).run().expect(0);
    let told = book.last().results().remove(0).0;
    assert!(told.contains("I am on PATH"), "{told}");
}

#[test]
fn r015_a_missing_program_is_named() {
    let world = World::new();
    let book = book(&world, &[asking()]);
    let done = Fake::alone(&world).headless(&world, &book.model(), "go").env("PATH", "/nowhere").run();
    let told = format!("{}{}{:?}", done.stdout, done.stderr, book.requests().last());
    assert!(told.contains("lead-worker"), "{told}");
    world.assert_nothing_left();
}

#[test]
fn r012_the_login_shell_plays_no_part() {
    for shell in ["/bin/false", "/no/such/fish", ""] {
        let world = World::new();
        let worker = worker_rule("Do the job", &[turn("", &[bash("echo $((40 + 2))")]), turn("{{result.1}}", &[])]);
        let book = book(&world, &[asking(), worker]);
        // Start-up files that would break any shell that reads them.
        for file in [".bashrc", ".profile", ".bash_profile", ".zshrc", ".zshenv"] {
            std::fs::write(world.root().join("home").join(file), "echo noise; exit 9\n").unwrap();
        }
        world.headless(&book.model(), "go").env("SHELL", shell).run().expect(0);
        let (text, is_error) = book.last().results().remove(0);
        assert!(!is_error && text.starts_with("42") && !text.contains("noise"), "SHELL={shell}: {text}");
        world.assert_nothing_left();
    }
}

#[test]
fn r013_environment_config_path_and_language_reach_the_tools_of_a_child() {
    let world = World::new();
    let gate = world.gate("gate");
    let names = "PATH LANG LC_ALL HOME CLAUDE_CONFIG_DIR LEAD_RUNTIME_DIR MY_VARIABLE DEPLOY_TOKEN \
                 ANTHROPIC_API_KEY CLAUDE_CODE_COORDINATOR_MODE CLAUDECODE CLAUDE_CODE_SESSION_ID LEAD_AGENT_ID";
    let print =
        format!("for n in {names}; do eval \"v=\\${{$n-unset}}\"; echo \"$n=$v\"; done; {}", gate.arrive("here"));
    let worker = worker_rule("Do the job", &[turn("", &[bash(&print)]), turn("{{result.1}}", &[])]);
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let book = book(&world, &[lead, worker]);
    let path = format!("{}:/my/own/bin", std::env::var("PATH").unwrap());
    let run = world
        .headless(&book.model(), "go")
        .env("PATH", &path)
        .env("LC_ALL", "de_DE.UTF-8")
        .env("MY_VARIABLE", "a b'c\"d$e\nf")
        .env("DEPLOY_TOKEN", "tok-123")
        .env("ANTHROPIC_API_KEY", "key-456")
        .args(&["--settings", r#"{"lead":{}}"#])
        .start();
    world.wait_file("here");
    let row = world.wait_workers(1).remove(0);
    let environ = std::fs::read(format!("/proc/{}/environ", row["pid"])).unwrap();
    let environ = String::from_utf8_lossy(&environ).into_owned();
    gate.open(1);
    let done = run.wait();
    let shown = done.expect(0).result();
    let text = |p: std::path::PathBuf| p.display().to_string();
    for (name, value) in [
        ("PATH", path.as_str()),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("HOME", &text(world.root().join("home"))),
        ("CLAUDE_CONFIG_DIR", &text(world.config())),
        ("LEAD_RUNTIME_DIR", &text(world.runtime())),
        ("MY_VARIABLE", "a b'c\"d$e\nf"),
        ("DEPLOY_TOKEN", "tok-123"),
        ("ANTHROPIC_API_KEY", "unset"),
        ("CLAUDE_CODE_COORDINATOR_MODE", "unset"),
        ("CLAUDECODE", "1"),
        ("CLAUDE_CODE_SESSION_ID", &done.session()),
        ("LEAD_AGENT_ID", row["id"].as_str().unwrap()),
    ] {
        assert!(format!("\n{shown}\n").contains(&format!("\n{name}={value}\n")), "{name}={value} in {shown}");
    }
    for secret in ["tok-123", "key-456"] {
        assert!(!environ.contains(secret), "the worker's own environment shows {secret}");
        assert!(!row.to_string().contains(secret));
    }
}

#[test]
fn r013_coordinator_mode_is_for_the_lead_alone() {
    let world = World::new();
    let lead = crate::support::agent(
        json!({"type": "^coordinator$"}),
        &[
            turn("", &[spawn("job", "Do the job.")]),
            json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
        ],
    );
    let print = bash("echo mode=${CLAUDE_CODE_COORDINATOR_MODE-unset}");
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &[print]), turn("{{result.1}}", &[])])]);
    let done = world.headless(&book.model(), "go").env("CLAUDE_CODE_COORDINATOR_MODE", "1").run();
    assert!(done.expect(0).result().contains("mode=unset"), "{done:#?}");
    assert!(book.of("worker").iter().all(|r| r.0["caller"]["type"] == "worker"));
}

#[test]
fn r014_a_child_works_in_the_leads_folder_also_with_spaces_in_its_path() {
    let world = World::with_tree("my  work 'tree' $x");
    let other = world.root().join("an other place");
    std::fs::create_dir(&other).unwrap();
    let here = ask("here", "Do the job here.");
    let mut there = ask("there", "Do the job there.");
    there["input"]["cwd"] = json!(other);
    let mut nowhere = ask("nowhere", "Do the job nowhere.");
    nowhere["input"]["cwd"] = json!("no such folder");
    let lead = lead_rule(&[turn("", &[here, there, nowhere]), turn("over", &[])]);
    let worker = worker_rule("Do the job", &[turn("", &[bash("pwd")]), turn("{{result.1}}", &[])]);
    let book = book(&world, &[lead, worker]);
    world.headless(&book.model(), "go").run().expect(0);
    let results = book.last().results();
    assert!(results[0].0.starts_with(world.cwd().to_str().unwrap()), "{results:?}");
    assert!(results[1].0.starts_with(other.to_str().unwrap()), "{results:?}");
    assert!(results[2].1 && results[2].0.contains("no such folder"), "{results:?}");
    world.assert_nothing_left();
}

#[test]
fn r016_a_child_needs_no_terminal_no_home_and_shows_no_dialog() {
    let world = World::new();
    let tty = "(exec 3</dev/tty) 2>/dev/null && echo terminal || echo none; echo stdin=$(cat | wc -c)";
    let worker = worker_rule("Do the job", &[turn("", &[bash(tty)]), turn("{{result.1}}", &[])]);
    let book = book(&world, &[asking(), worker]);
    let done = world.headless(&book.model(), "go").env("HOME", "/nonexistent").env("TERM", "dumb").run();
    done.expect(0);
    let text = &book.last().results()[0].0;
    assert!(text.contains("none") && text.contains("stdin=0"), "{text}");
    world.headless(&book.model(), "go").without("HOME").without("LANG").run().expect(0);
    world.assert_nothing_left();
}

#[test]
fn r089_the_id_is_told_at_the_spawn_and_an_interrupted_child_is_continued_by_it() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Remember the word plum.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "And the word?")]}),
        json!({"when": {"notifications": "==2"}, "text": "{{notification.2.result}}"}),
    ]);
    let worker = worker_rule("plum", &[turn("", &[bash(&gate.arrive("here"))]), turn("plum", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let row = world.wait_workers(1).remove(0);
    crate::support::signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), nix::sys::signal::Signal::SIGKILL);
    // The call that was interrupted is gone from the history, so the book waits at the gate again;
    // the first one may have passed before it was swept.
    gate.open(2);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "plum");
    let id = row["id"].as_str().unwrap();
    let launched = &book.of("lead")[1].results()[0];
    assert!(launched.0.contains(id), "{launched:?}");
    assert!(book.asked("plum").last().unwrap().all().contains("And the word?"));
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r096_a_prompt_of_a_mebibyte_arrives_whole_and_not_by_the_command_line() {
    let world = World::new();
    let gate = world.gate("gate");
    let long = format!("Do the long job. {}END", "x".repeat(1 << 20));
    let lead =
        lead_rule(&[turn("", &[spawn("job", &long)]), json!({"when": {"notifications": "==1"}, "text": "over"})]);
    let book =
        book(&world, &[lead, worker_rule("long job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    for process in world.processes() {
        let environ = std::fs::metadata(format!("/proc/{}/environ", process.pid));
        assert!(process.command.len() < 5000 && environ.is_ok(), "{process:?}");
    }
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    assert_eq!(book.asked("long job")[0].prompt(), long);
    let said = world.session(&done.session()).agent("job").said();
    assert_eq!(crate::support::text_of(&said[0]["message"]["content"]), long);
    // And the lead's own, over stdin.
    let own = "y".repeat(300_000);
    let echo = crate::support::book(&world, &[lead_rule(&[turn("over", &[])])]);
    world.headless(&echo.model(), "go").stdin(own.clone()).run().expect(0);
    assert!(echo.last().prompt().contains(&own));
}

#[test]
fn r104_the_model_of_a_child_is_resolved_at_the_spawn_and_recorded() {
    let world = World::new();
    let mut odd = ask("odd", "Do the odd job.");
    odd["input"]["model"] = json!("no-such-model");
    let lead = lead_rule(&[turn("", &[odd, ask("plain", "Do the plain job.")]), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("job", &[turn("done", &[])])]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let results = book.last().results();
    assert!(results[0].1 && results[0].0.contains("no-such-model"), "{results:?}");
    assert!(!results[1].1, "{results:?}");
    let agents = world.session(&done.session()).agents();
    assert_eq!(agents.len(), 1, "the one with the unknown model was not started");
    assert_eq!(agents[0].meta["model"], book.model());

    // The environment comes before the call.
    let other = crate::support::book(&world, &[worker_rule("job", &[turn("from the other book", &[])])]);
    world.headless(&book.model(), "go").env("CLAUDE_CODE_SUBAGENT_MODEL", other.model()).run().expect(0);
    assert_eq!(other.requests().len(), 2, "both jobs run with the variable's model");
    let refused = world.headless(&book.model(), "go").env("CLAUDE_CODE_SUBAGENT_MODEL", "no-such-model").run();
    refused.expect(0);
    assert!(book.last().results().iter().all(|(text, is_error)| *is_error && text.contains("no-such-model")));
}

#[test]
fn unknown_types_and_impossible_wishes_are_refused_in_words() {
    let world = World::new();
    let with = |extra: &[(&str, Value)]| {
        let mut input = json!({"description": "job", "prompt": "Do the job."});
        for (key, value) in extra {
            input[*key] = value.clone();
        }
        call("Agent", input)
    };
    let calls = [
        with(&[("subagent_type", json!("wizard"))]),
        with(&[("subagent_type", json!("fork"))]),
        with(&[("team_name", json!("no-team"))]),
        with(&[("isolation", json!("remote"))]),
        with(&[("name", json!("../evil"))]),
        with(&[("prompt", json!("  "))]),
        with(&[("subagent_type", json!("Explore"))]),
    ];
    let lead = lead_rule(&[turn("", &calls), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("job", &[turn("done", &[])])]);
    let settings = json!({"permissions": {"deny": ["Agent(Explore)"]}}).to_string();
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    done.expect(0);
    let results = book.last().results();
    assert!(results.iter().all(|(_, is_error)| *is_error), "{results:#?}");
    for (at, part) in
        ["general-purpose", "fork", "no-team", "remote", "evil", "prompt", "denied by rule"].iter().enumerate()
    {
        assert!(results[at].0.contains(part), "{part}: {:?}", results[at]);
    }
    assert!(world.session(&done.session()).agents().is_empty());
    assert!(processes_with(&format!("LEAD_RUNTIME_DIR={}", world.runtime().display())).is_empty());
}
