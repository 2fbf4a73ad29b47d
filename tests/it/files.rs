//! Agents that change files: two at one file, after a resume, after a compaction, and a whole task
//! from the failing test to the one that passes.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Book, World, bash, book, call, eventually, lead_rule, spawn, tell, turn, worker_rule};

const ID: &str = "44444444-2222-4333-8444-555555555555";

fn read(path: &str) -> Value {
    call("Read", json!({"file_path": path}))
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    call("Edit", json!({"file_path": path, "old_string": old, "new_string": new}))
}

fn text(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.cwd().join(name)).unwrap()
}

/// A later run of the session.
fn resumed(world: &World, book: &Book, prompt: &str) -> String {
    world.headless(&book.model(), prompt).args(&["--resume", ID]).run().expect(0).result()
}

#[test]
fn of_two_workers_at_one_file_the_second_is_told_and_reads_again() {
    let world = World::new();
    world.file("shared.txt", "one\ntwo\nthree\n");
    let (first, second) = (world.gate("first"), world.gate("second"));
    let job = |arrive: String, old: &str, new: &str, done: &str| {
        vec![turn("", &[read("shared.txt"), bash(&arrive)]), turn("", &[edit("shared.txt", old, new), bash(done)])]
    };
    let mut job_1 = job(first.arrive("here-1"), "one", "ONE", "echo > edited");
    job_1.push(turn("changed", &[]));
    let mut job_2 = job(second.arrive("here-2"), "three", "THREE", "true");
    job_2.push(turn("", &[read("shared.txt")]));
    job_2.push(turn("", &[edit("shared.txt", "three", "THREE")]));
    job_2.push(turn("changed too", &[]));
    let lead = lead_rule(&[
        turn("", &[spawn("job 1", "Do job one."), spawn("job 2", "Do job two.")]),
        json!({"when": {"notifications": ">=2"}, "text": "both"}),
    ]);
    let book = book(&world, &[lead, worker_rule("job one", &job_1), worker_rule("job two", &job_2)]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here-1");
    world.wait_file("here-2");
    first.open(1);
    eventually("the first edit", || if world.cwd().join("edited").exists() { Ok(()) } else { Err("none") });
    assert_eq!(text(&world, "shared.txt"), "ONE\ntwo\nthree\n");
    second.open(1);
    assert_eq!(run.wait().expect(0).result(), "both");
    assert_eq!(text(&world, "shared.txt"), "ONE\ntwo\nTHREE\n");
    let results = book.asked("job two").pop().unwrap().results();
    let errors: Vec<&(String, bool)> = results.iter().filter(|(_, is_error)| *is_error).collect();
    assert_eq!(errors.len(), 1, "{results:#?}");
    assert!(errors[0].0.contains("shared.txt changed since you read it: read it again"), "{errors:?}");
    let pids = [book.asked("job one")[0].pid(), book.asked("job two")[0].pid()];
    assert_ne!(pids[0], pids[1], "they are two processes");
    world.assert_nothing_left();
}

#[test]
fn a_resumed_session_edits_what_it_knew_and_not_what_changed_meanwhile() {
    let world = World::new();
    world.file("a.txt", "one\n");
    world.file("b.txt", "one\n");
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [read("a.txt"), read("b.txt"), edit("a.txt", "one", "two")]}),
        turn("known", &[]),
        json!({"when": {"latest": "^again"}, "tools": [edit("a.txt", "two", "three"), edit("b.txt", "one", "two")]}),
        turn("{{result.1}}", &[]),
        json!({"when": {"latest": "^after"}, "tools": [edit("a.txt", "three", "four")]}),
        turn("{{result.1}}", &[]),
    ]);
    let book = book(&world, &[lead]);
    world.headless(&book.model(), "go").args(&["--session-id", ID]).run().expect(0);
    resumed(&world, &book, "again");
    assert_eq!((text(&world, "a.txt"), text(&world, "b.txt")), ("three\n".to_owned(), "two\n".to_owned()));
    world.file("a.txt", "three!\n");
    let refused = resumed(&world, &book, "after");
    assert!(refused.contains("a.txt changed since you read it: read it again"), "{refused}");
    assert_eq!(text(&world, "a.txt"), "three!\n");
}

#[test]
fn a_continued_worker_edits_without_reading_again() {
    let world = World::new();
    world.file("a.txt", "one\n");
    world.file("b.txt", "one\n");
    let gate = world.gate("gate");
    let worker = worker_rule(
        "Know the files",
        &[
            turn("", &[read("a.txt"), read("b.txt")]),
            turn("known", &[]),
            json!({"when": {"latest": "now change them"}, "tools": [edit("a.txt", "one", "two"), edit("b.txt", "one", "two")]}),
            turn("changed", &[]),
        ],
    );
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Know the files.")]),
        json!({"when": {"notifications": "==1"}, "tools": [bash(&gate.arrive("here"))]}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "now change them")]}),
        json!({"when": {"notifications": "==2"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    world.file("b.txt", "ONE\n");
    gate.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    let request = book.asked("Know the files").pop().unwrap();
    let results = request.results();
    assert_eq!(results.iter().map(|(_, e)| *e).collect::<Vec<_>>(), [false, false, false, true], "{results:#?}");
    assert!(results[3].0.contains("b.txt changed since you read it"), "{results:#?}");
    assert_eq!((text(&world, "a.txt"), text(&world, "b.txt")), ("two\n".to_owned(), "ONE\n".to_owned()));
    assert_ne!(book.asked("Know the files")[0].pid(), request.pid(), "the second run is another process");
}

#[test]
fn a_compaction_forgets_neither_files_nor_todos() {
    let world = World::new();
    for n in 0..8 {
        world.file(&format!("{n}.txt"), "one\n");
    }
    let reads: Vec<Value> = (0..8).map(|n| read(&format!("{n}.txt"))).collect();
    let todo = |status: &str| {
        let todos = json!([{"content": "the thing", "status": status, "activeForm": "Doing the thing"}]);
        call("TodoWrite", json!({"todos": todos}))
    };
    let calls = [&reads[..], &[todo("pending")]].concat();
    let full = json!({"tools": calls, "usage": {"input_tokens": 180_000}});
    let lead = lead_rule(&[
        json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
        json!({"when": {"any": "SUMMARY", "latest": "^again"}, "tools": [edit("1.txt", "one", "two"), todo("completed")]}),
        json!({"when": {"any": "SUMMARY", "results": ">=3"}, "text": "{{result.1}}"}),
        json!({"when": {"any": "SUMMARY", "results": "==0"}, "tools": [edit("0.txt", "one", "two")]}),
        json!({"when": {"any": "SUMMARY"}, "text": "once"}),
        full,
    ]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").args(&["--session-id", ID]).run();
    done.expect(0);
    // The first of eight is not among the five that are shown again.
    assert_eq!(text(&world, "0.txt"), "two\n");
    let lines = world.session(ID).lines();
    let boundary = lines.iter().find(|l| l["subtype"] == "compact_boundary").unwrap();
    assert_eq!(boundary["fileStates"].as_array().unwrap().len(), 8, "{boundary:#}");
    assert_eq!(boundary["todos"][0]["activeForm"], "Doing the thing");
    resumed(&world, &book, "again");
    assert_eq!(text(&world, "1.txt"), "two\n");
    let told = book.last().results();
    assert!(told.last().unwrap().0.contains("pending -> completed: the thing"), "{told:#?}");
}

#[test]
fn what_did_not_fit_behind_a_compaction_does_not_count_as_read_again() {
    let world = World::new();
    world.file("first.txt", "one\n");
    for name in ["big-1.txt", "big-2.txt", "big-3.txt"] {
        world.file(name, format!("{}\n", "x".repeat(99)).repeat(400));
    }
    let reads = ["first.txt", "big-1.txt", "big-2.txt", "big-3.txt"].map(read);
    let calls = [&reads[..], &[bash("echo one and more > first.txt; echo changed > big-3.txt")]].concat();
    let lead = lead_rule(&[
        json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
        json!({
            "when": {"any": "SUMMARY", "results": "==0"},
            "tools": [edit("first.txt", "one", "two"), edit("big-3.txt", "changed", "again")]
        }),
        json!({"when": {"any": "SUMMARY"}, "text": "over"}),
        json!({"tools": calls, "usage": {"input_tokens": 180_000}}),
    ]);
    let book = book(&world, &[lead]);
    world.headless(&book.model(), "go").run().expect(0);
    let results = book.last().results();
    assert!(results[0].1 && results[0].0.contains("first.txt changed since you read it"), "{results:#?}");
    assert_eq!((text(&world, "first.txt"), text(&world, "big-3.txt")), ("one and more\n".into(), "again\n".into()));
}

#[test]
fn ps_shows_what_an_agent_has_in_progress_and_explorers_change_nothing() {
    let world = World::new();
    let gate = world.gate("gate");
    let todos = json!([{"content": "Run the tests", "status": "in_progress", "activeForm": "Running the tests"}]);
    let mut explore = spawn("look", "Do the looking.");
    explore["input"]["subagent_type"] = json!("Explore");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job."), explore]),
        json!({"when": {"notifications": ">=2"}, "text": "over"}),
    ]);
    let job = [turn("", &[call("TodoWrite", json!({"todos": todos})), bash(&gate.arrive("here"))]), turn("done", &[])];
    let look = worker_rule(
        "the looking",
        &[turn("", &[call("Write", json!({"file_path": "x", "content": "x"}))]), turn("", &[])],
    );
    let book = book(&world, &[lead, worker_rule("the job", &job), look]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    eventually("the todo in ps", || {
        let rows = world.workers();
        let shown = json!({"tool": "TodoWrite", "description": "Running the tests"});
        if rows.iter().any(|r| r["activity"].as_array().is_some_and(|a| a.contains(&shown))) {
            Ok(())
        } else {
            Err(rows)
        }
    });
    gate.open(1);
    run.wait().expect(0);
    // There is no skill here, no provider that searches, and no plan to be approved.
    let missing = ["ExitPlanMode", "Skill", "WebSearch"];
    let offered: Vec<&str> = lead::tool::TOOLS.into_iter().filter(|t| !missing.contains(t)).collect();
    assert_eq!(book.last().tools(), offered, "the order in which tools are offered");
    let explorer = book.asked("the looking").pop().unwrap();
    assert!(explorer.tools().contains(&"TodoWrite"));
    assert!(["Write", "Edit", "NotebookEdit"].iter().all(|tool| !explorer.tools().contains(tool)));
    assert!(explorer.results()[0].0.contains("there is no tool named \"Write\""), "{explorer:#?}");
    assert!(!world.cwd().join("x").exists());
}

#[test]
fn r064_a_change_waits_for_others_in_the_folder_but_not_for_ever() {
    let world = World::new().with_limits("lock=200ms");
    world.file("a.txt", "one\n");
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[read("a.txt")]),
        turn("", &[edit("a.txt", "one", "two")]),
        turn("", &[bash(&gate.arrive("here"))]),
        turn("", &[edit("a.txt", "one", "three")]),
        turn("over", &[]),
    ]);
    let book = book(&world, &[lead]);
    let held = lead::store::lock::folder_within(world.cwd(), std::time::Duration::ZERO).unwrap();
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    assert_eq!(text(&world, "a.txt"), "one\n");
    drop(held);
    gate.open(1);
    run.wait().expect(0);
    assert_eq!(text(&world, "a.txt"), "three\n");
    let refused = &book.last().results()[1];
    assert!(
        refused.1 && refused.0.contains("stayed locked for 200ms") && refused.0.contains("try again"),
        "{refused:?}"
    );
}

/// The folder of a real `cargo`, not of one that looks for its tool chain in the home folder.
fn cargo_folder() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").map(PathBuf::from);
    let folder = cargo.and_then(|path| Some(path.parent()?.to_path_buf())).filter(|f| f.join("rustc").exists());
    if folder.is_none() {
        assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "CARGO names no cargo with a rustc beside it");
        println!("SKIPPED (no cargo)");
    }
    folder
}

#[test]
fn an_agent_mends_a_failing_test_under_one_rule() {
    let Some(folder) = cargo_folder() else { return };
    let world = World::new();
    world.file("Cargo.toml", "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    let library = world.file(
        "src/lib.rs",
        "//! Sums.\n\n/// The sum of all.\npub fn sum(numbers: &[u32]) -> u32 {\n    numbers.iter().skip(1).sum()\n}\n\n\
         #[test]\nfn the_first_counts_too() {\n    assert_eq!(sum(&[1, 2, 3]), 6);\n}\n",
    );
    let outside = world.root().join("home/outside.txt");
    let forbidden = [
        bash("rm -rf src"),
        bash("cargo build --offline"),
        bash("cargo test --offline; touch evil"),
        bash("cargo test --offline > ../home/outside.txt"),
        call("Write", json!({"file_path": outside, "content": "x"})),
        call("Write", json!({"file_path": ".git/hooks/pre-commit", "content": "x"})),
    ];
    let test = bash("cargo test --offline");
    let worker = worker_rule(
        "Mend the test",
        &[
            turn("", &[call("Grep", json!({"pattern": "fn sum", "output_mode": "content"}))]),
            turn("", &[test.clone(), edit("src/lib.rs", ".skip(1)", "")]),
            turn("", &[read("src/lib.rs")]),
            turn("", &[edit("src/lib.rs", "    numbers.iter().skip(1).sum()\n", "    numbers.iter().sum()\n")]),
            turn("", &forbidden),
            turn("", &[test]),
            turn("mended: {{result.1}}", &[]),
        ],
    );
    let lead = lead_rule(&[turn("", &[crate::support::ask("mend", "Mend the test.")]), turn("{{result.1}}", &[])]);
    let book = book(&world, &[lead, worker]);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let args = ["--permission-mode", "acceptEdits", "--allowed-tools", "Bash(cargo test:*)", "--output-format", "json"];
    let run = world.lead(&["-p", "go", "--model", &book.model()]).args(&args).env("PATH", path).run();
    let result = run.expect(0).result();
    assert!(result.contains("mended: ") && result.contains("test result: ok. 1 passed"), "{result}");

    assert!(std::fs::read_to_string(&library).unwrap().contains("    numbers.iter().sum()\n"));
    let results = book.asked("Mend the test").pop().unwrap().results();
    let errors: Vec<bool> = results.iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(errors, [&[false, true, true, false, false][..], &[true; 6], &[false]].concat(), "{results:#?}");
    assert!(results[0].0.contains("src/lib.rs:4:"), "{}", results[0].0);
    assert!(results[1].0.contains("test result: FAILED"), "{}", results[1].0);
    assert!(results[2].0.contains("have not read it: Read it first"), "{}", results[2].0);
    assert!(results[5..11].iter().all(|(text, _)| text.starts_with("Permission denied")), "{results:#?}");

    let outcome = world.session(&run.session()).agent("mend").outcome();
    let denied: Vec<&Value> =
        outcome["permissionDenials"].as_array().unwrap().iter().map(|d| &d["tool_input"]).collect();
    assert_eq!(denied, forbidden.iter().map(|call| &call["input"]).collect::<Vec<_>>(), "{outcome:#}");
    assert!(!world.cwd().join("evil").exists() && !world.cwd().join(".git").exists() && !outside.exists());
    assert!(world.cwd().join("src").is_dir());
    world.assert_nothing_left();
}
