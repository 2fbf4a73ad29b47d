//! The built-in playbook `survey`, played in whole: the lead's side with made-up notifications, the
//! workers with their real commands, run as a `Bash` tool runs them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Playbook;
use super::testing::{Conversation, notification};
use crate::core::message::{Block, Known, Message};

const TOOLS: [&str; 4] = ["Read", "Grep", "Glob", "Bash"];

/// Programs that may run without a question (spec 8.2).
const READ_ONLY: [&str; 21] = [
    "ls", "cat", "head", "tail", "wc", "pwd", "echo", "printf", "grep", "sort", "uniq", "cut", "diff", "stat", "file",
    "du", "tree", "which", "true", "false", "find",
];

fn survey() -> Playbook {
    Playbook::parse(include_str!("survey.yaml"), "survey").unwrap_or_else(|e| panic!("{e}"))
}

fn coordinator() -> Conversation {
    Conversation::new("lead", "coordinator", &["Agent", "SendMessage", "TaskStop"], "Survey the folder /x/y")
}

/// The prompts the coordinator gives its workers.
fn prompts(book: &Playbook) -> Vec<String> {
    let mut lead = coordinator();
    lead.turn(book);
    let prompt = |(_, name, input): (String, String, Value)| {
        assert_eq!((name.as_str(), input["subagent_type"].as_str()), ("Agent", Some("worker")));
        let words = input["description"].as_str().unwrap_or_default().split(' ').count();
        assert!((2..=5).contains(&words), "{input}");
        input["prompt"].as_str().unwrap_or_default().to_owned()
    };
    lead.calls().into_iter().map(prompt).collect()
}

/// Runs one call; text, and whether it failed.
fn run(folder: &Path, name: &str, input: &Value) -> (String, bool) {
    let text = |key: &str| input[key].as_str().unwrap_or_else(|| panic!("{name} {input}"));
    match name {
        "Bash" => {
            assert_eq!(not_read_only(text("command")), None);
            let output = Command::new("bash").arg("-c").arg(text("command")).current_dir(folder).output();
            let output = output.unwrap_or_else(|e| panic!("{e}"));
            assert!(output.status.success() && output.stderr.is_empty(), "{input}: {output:?}");
            (String::from_utf8_lossy(&output.stdout).into_owned(), false)
        }
        "Read" => match fs::read_to_string(text("file_path")) {
            Ok(all) => (all.lines().take(12).collect::<Vec<_>>().join("\n"), false),
            Err(error) => panic!("{input}: {error}"),
        },
        "Glob" | "Grep" => (format!("No matches for {}", text("pattern")), false),
        other => panic!("{other}"),
    }
}

/// What in a command is not allowed without a question: a program, or a redirection.
fn not_read_only(command: &str) -> Option<String> {
    let mut plain = String::new();
    for (at, part) in command.split('\'').enumerate() {
        plain.push_str(if at % 2 == 0 { part } else { "quoted" });
    }
    let plain = plain.replace("2>/dev/null", "");
    let odd = plain.find(['>', '<', '$', '`', '&', '"', '\\', '(', '{', '*']);
    let denied = ["-exec", "-ok", "-delete", "-fprint", "-o "].into_iter().find(|flag| plain.contains(flag));
    let program = plain.split([';', '|']).map(|part| part.split_whitespace().next().unwrap_or_default());
    let unknown = program.filter(|p| !READ_ONLY.contains(p)).map(str::to_owned).next();
    unknown.or(denied.map(str::to_owned)).or(odd.map(|at| plain[at..].to_owned()))
}

/// Plays a worker on `folder` to its end: its answer, and the names of the tools it called.
fn work(book: &Playbook, prompt: &str, folder: &Path) -> (String, Vec<String>) {
    let mut worker = Conversation::new("worker", "worker", &TOOLS, prompt);
    let mut used = Vec::new();
    loop {
        let turn = worker.turn(book);
        assert_eq!(turn.warnings, Vec::<String>::new());
        assert!((150..=600).contains(&turn.delay.as_millis()), "{turn:?}");
        let calls = worker.calls();
        if calls.is_empty() {
            let content = turn.answer.map(|r| r.content).unwrap_or_default();
            return (crate::core::message::text_of(&content), used);
        }
        let mut results = Vec::new();
        for (id, name, input) in calls {
            let (text, is_error) = run(folder, &name, &input);
            results.push(Block::Known(Known::ToolResult {
                tool_use_id: id,
                content: vec![Block::text(text)],
                is_error,
            }));
            used.push(name);
        }
        worker.request.messages.push(Message::user(results));
        assert!(used.len() < 10, "{used:?}");
    }
}

/// All workers' answers on `folder`, and all tools called.
fn report(folder: &Path) -> (String, Vec<String>) {
    let book = survey();
    let answers = prompts(&book).into_iter().map(|prompt| {
        let (text, used) = work(&book, &prompt, folder);
        assert!(text.starts_with("## "), "{text}");
        assert!(used.len() >= 2, "{used:?}");
        (text, used)
    });
    let (texts, used): (Vec<_>, Vec<_>) = answers.unzip();
    (texts.join("\n"), used.concat())
}

fn write(folder: &Path, name: impl AsRef<OsStr>, content: &str) {
    let path = folder.join(Path::new(name.as_ref()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{e}"));
    }
    fs::write(&path, content).unwrap_or_else(|e| panic!("{path:?}: {e}"));
}

fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn the_coordinator_starts_five_workers_at_once_and_reports_in_order_whoever_comes_first() {
    let book = survey();
    let mut lead = coordinator();
    lead.turn(&book);
    let agents: Vec<String> = (1..=5).map(|n| format!("a-{n:016x}")).collect();
    let launched: Vec<String> = agents.iter().map(|id| format!("Launched in the background. agentId: {id}")).collect();
    lead.answer(&launched.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let mut early = vec![lead.turn(&book)];
    let note = |n: usize| notification(&agents[n], "completed", &format!("## Part {n}\n<{n} & more>"));
    lead.say(&[&note(3)]);
    early.push(lead.turn(&book));
    lead.say(&[&note(4), &note(0), &note(2)]);
    early.push(lead.turn(&book));
    for turn in early {
        let reply = turn.answer.unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(reply.stop_reason.as_deref(), Some("end_turn"));
        assert!(!crate::core::message::text_of(&reply.content).contains('#'), "{reply:?}");
    }
    lead.say(&[&note(1)]);
    let last = lead.turn(&book);
    assert_eq!(last.warnings, Vec::<String>::new());
    let text = crate::core::message::text_of(&last.answer.map(|r| r.content).unwrap_or_default());
    assert!(text.starts_with("# Survey\n"), "{text}");
    let places: Vec<Option<usize>> = (0..5).map(|n| text.find(&format!("## Part {n}\n<{n} & more>"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    assert!(text.contains(&format!("- Agent \"{}\" completed", agents[4])), "{text}");
    lead.say(&["thanks"]);
    assert!(lead.turn(&book).answer.is_ok_and(|r| r.stop_reason.as_deref() == Some("end_turn")));
}

#[test]
fn a_report_names_what_is_there_and_counts_as_find_does() {
    let tree = tempdir();
    for n in 0..12 {
        write(tree.path(), format!("src/part_{n}.rs"), &"// line\n".repeat(n));
    }
    write(tree.path(), "README.md", "# Apples\nabout apples\n");
    write(tree.path(), "src/main.rs", "fn main() {} // TODO: everything\n");
    write(tree.path(), "tests/smoke_test.rs", "// FIXME now\n");
    write(tree.path(), "my notes/größe 研究.txt", "XXX\n");
    for hidden in [".git/objects/aa", "target/debug/junk.o", "web/node_modules/x/index.js"] {
        write(tree.path(), hidden, &"TODO junk\n".repeat(1000));
    }
    let (text, used) = report(tree.path());
    for tool in TOOLS {
        assert!(used.iter().any(|u| u == tool), "{tool} was not used");
    }
    let wanted = [
        "files, all: 19\n",
        "files, without .git: 18\n",
        "files, without .git, target, node_modules: 16\n",
        "     14 rs\n",
        "src/part_11.rs",
        "src/main.rs:1:fn main() {} // TODO: everything",
        "tests/smoke_test.rs:1:// FIXME now",
        "lines marked TODO, FIXME, XXX or HACK: 3\n",
        "my notes/größe 研究.txt",
        "about apples",
        &tree.path().display().to_string(),
    ];
    for part in wanted {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let named = (0..12).filter(|n| text.contains(&format!("src/part_{n}.rs"))).count();
    assert!(named >= 10, "{named}: {text}");
    for part in [".git/objects", "junk", "node_modules/x", "{{"] {
        assert!(!text.contains(part), "{part:?} is in {text}");
    }

    let other = tempdir();
    write(other.path(), "only.py", "");
    write(tree.path(), "added later.rs", "");
    assert!(!report(other.path()).0.contains("part_"));
    let again = report(tree.path()).0;
    let changed = again.split("Changed last").nth(1).unwrap_or_default();
    assert!(changed.lines().nth(3).is_some_and(|l| l.ends_with("  added later.rs")), "{changed}");
    assert!(again.contains("files, all: 20\n"));
}

#[test]
fn an_empty_folder_and_odd_names_give_a_report_too() {
    let empty = tempdir();
    let (text, _) = report(empty.path());
    assert!(text.contains("files, all: 0\n") && !text.contains("{{"), "{text}");

    let odd = tempdir();
    let names: [&[u8]; 6] =
        [b"two\nlines.rs", b"$(touch hurt)", b"`touch hurt`.md", b"-n", b"caf\xe9.txt", b"a'b\"c;d|e.py"];
    for name in names {
        write(odd.path(), OsStr::from_bytes(name), "TODO\n");
    }
    let (text, _) = report(odd.path());
    assert!(text.contains("files, all: 6\n") && text.contains("$(touch hurt)"), "{text}");
    assert!(!odd.path().join("hurt").exists());
}

#[test]
fn a_readme_is_read_before_a_manifest_and_a_manifest_before_nothing() {
    let tree = tempdir();
    write(tree.path(), "Cargo.toml", "[package] # pears\n");
    assert!(report(tree.path()).0.contains("[package] # pears"));
    write(tree.path(), "docs/README.md", "all about plums\n");
    let text = report(tree.path()).0;
    assert!(text.contains("all about plums") && !text.contains("pears"), "{text}");
}

#[test]
fn a_huge_tree_gives_a_short_report() {
    let long = std::env::var_os("LEAD_LONG").is_some();
    let (folders, files) = if long { (100, 1000) } else { (10, 200) };
    let tree = tempdir();
    for folder in 0..folders {
        fs::create_dir(tree.path().join(format!("d{folder}"))).unwrap_or_else(|e| panic!("{e}"));
        for file in 0..files {
            let path = tree.path().join(format!("d{folder}/test_{file}.x{file}"));
            fs::write(path, "TODO\n").unwrap_or_else(|e| panic!("{e}"));
        }
    }
    let (text, _) = report(tree.path());
    assert!(text.contains(&format!("files, all: {}\n", folders * files)), "{text}");
    assert!(text.len() < 8000, "{}", text.len());
}
