//! `Read`, `Glob` and `Grep` on real files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::glob::Glob;
use super::grep::Grep;
use super::read::Read;
use super::testing::context;
use super::{Tool, ToolContext, ToolOutput};
use crate::core::limits::TOOL_OUTPUT_CHARS;

const NASTY: [&str; 5] = ["a b.txt", "$(x) `y`.txt", "研究 é.txt", "line\nbreak.txt", "-rf; 'q' \"r\".txt"];

/// A folder to work in, and an agent that does.
pub(super) struct Place {
    _dir: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) context: ToolContext,
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("w")).unwrap();
        let context = context(&root.join("w"), &root.join("session/tool-results"));
        Self { root: root.join("w"), _dir: dir, context }
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Makes `name` that many seconds older than a fixed time.
    fn age(&self, name: &str, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 - seconds);
        File::options().append(true).open(self.root.join(name)).unwrap().set_modified(time).unwrap();
    }

    pub(super) fn run(&self, tool: &dyn Tool, input: Value) -> ToolOutput {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = runtime.block_on(async {
            let call = tool.run(&input, &self.context);
            tokio::time::timeout(Duration::from_secs(30), call).await.expect("the tool hangs")
        });
        assert!(output.text.chars().count() <= TOOL_OUTPUT_CHARS, "{}", output.text.len());
        output
    }

    pub(super) fn ok(&self, tool: &dyn Tool, input: Value) -> String {
        let output = self.run(tool, input);
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    pub(super) fn error(&self, tool: &dyn Tool, input: Value) -> String {
        let output = self.run(tool, input);
        assert!(output.is_error, "{}", output.text);
        output.text
    }

    fn abs(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|n| self.root.join(n).display().to_string()).collect()
    }
}

#[test]
fn schemas_have_the_known_parameters_and_tools_say_what_they_do() {
    let tools: [(&dyn Tool, &str, &[&str]); 3] = [
        (&Read, "Read", &["file_path", "offset", "limit"]),
        (&Glob::default(), "Glob", &["pattern", "path"]),
        (
            &Grep::default(),
            "Grep",
            &[
                "pattern",
                "path",
                "glob",
                "output_mode",
                "-A",
                "-B",
                "-C",
                "context",
                "-n",
                "-i",
                "type",
                "head_limit",
                "offset",
                "multiline",
            ],
        ),
    ];
    for (tool, name, parameters) in tools {
        let spec = tool.spec();
        let properties = spec.input_schema["properties"].as_object().unwrap();
        assert_eq!(
            (spec.name.as_str(), properties.keys().map(String::as_str).collect::<Vec<_>>()),
            (name, parameters.to_vec())
        );
        assert_eq!(spec.input_schema["additionalProperties"], json!(false));
        assert!(tool.is_read_only());
        let activity = tool.describe(&json!({"file_path": "a\nb", "pattern": "a\nb"}));
        assert!(activity.description.ends_with("a b") && activity.tool == name);
        assert_ne!(activity.is_read, activity.is_search);
    }
}

#[test]
fn bad_input_is_explained() {
    let place = Place::new();
    let rows: [(&dyn Tool, Value, &str); 12] = [
        (&Read, json!({}), "`file_path` is missing"),
        (&Read, json!([]), "must be an object"),
        (&Read, json!({"file_path": 3}), "`file_path` is 3, expected a string"),
        (&Read, json!({"path": "x"}), "parameters are: file_path, offset, limit"),
        (&Read, json!({"file_path": "x", "limit": 0}), "`limit` is 0"),
        (&Read, json!({"file_path": "x", "offset": -1}), "`offset` is -1"),
        (&Read, json!({"file_path": "x", "pages": "1-2"}), "PDF"),
        (&Read, json!({"file_path": "a\u{0}b"}), "can't be read"),
        (&Glob::default(), json!({"pattern": ""}), "`pattern` is missing"),
        (&Glob::default(), json!({"pattern": "{a"}), "can't be used"),
        (&Grep::default(), json!({"pattern": "x", "-i": 1}), "`-i` is 1, expected true or false"),
        (&Grep::default(), json!({"pattern": "x", "output_mode": "lines"}), "files_with_matches"),
    ];
    for (tool, input, expected) in rows {
        let error = place.error(tool, input.clone());
        assert!(error.contains(expected), "{input}: {error}");
    }
}

#[test]
fn read_numbers_lines_and_pages_through_them() {
    let place = Place::new();
    let text: String = (1..=2500).map(|n| format!("l {n}\n")).collect();
    place.write("f", &text).write("short", "a\nb").write("empty", "").write("blank", "\n\n");
    assert_eq!(place.ok(&Read, json!({"file_path": "short"})), "     1\ta\n     2\tb");
    assert_eq!(place.ok(&Read, json!({"file_path": "blank"})), "     1\t\n     2\t");
    assert_eq!(place.ok(&Read, json!({"file_path": "empty"})), "[the file is empty]");
    let absolute = place.root.join("f");
    let all = place.ok(&Read, json!({"file_path": absolute}));
    assert!(all.contains("  2000\tl 2000\n[lines 1 to 2000;") && all.ends_with("continue with offset 2001]"));
    let rest = place.ok(&Read, json!({"file_path": "f", "offset": "2001"}));
    assert!(rest.starts_with("  2001\tl 2001\n") && rest.ends_with("  2500\tl 2500"));
    let two = place.run(&Read, json!({"file_path": "f", "offset": 3, "limit": 2}));
    assert_eq!(two.text, "     3\tl 3\n     4\tl 4\n[lines 3 to 4; more follow: continue with offset 5]");
    assert_eq!(two.structured.unwrap()["file"]["numLines"], 2);
    assert_eq!(place.ok(&Read, json!({"file_path": "f", "offset": 2500, "limit": 1})), "  2500\tl 2500");
    let beyond = place.error(&Read, json!({"file_path": "f", "offset": 2501}));
    assert!(beyond.contains("has 2500 lines"), "{beyond}");
}

#[test]
fn r098_read_cuts_long_lines_and_long_outputs() {
    let place = Place::new();
    place.write("exact", "é".repeat(2000)).write("over", "é".repeat(2001)).write("huge", "x".repeat(3_000_000));
    assert!(!place.ok(&Read, json!({"file_path": "exact"})).contains("cut"));
    assert!(place.ok(&Read, json!({"file_path": "over"})).ends_with("[line cut: 4002 bytes in all]"));
    assert!(place.ok(&Read, json!({"file_path": "huge"})).contains("3000000 bytes"));
    place.write("wide", format!("{}\n", "y".repeat(999)).repeat(100));
    let text = place.ok(&Read, json!({"file_path": "wide"}));
    let shown = text.lines().count() - 1;
    assert!((28..30).contains(&shown) && text.ends_with(&format!("offset {}]", shown + 1)), "{shown}");
}

#[test]
fn read_never_waits_and_explains_what_is_no_text() {
    let place = Place::new();
    place.write("bin", [1u8, 2, 0, 3]).write("latin", [b'a', 0xff, b'b']).write("dir/x", "");
    nix::unistd::mkfifo(&place.root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.root.join("sock")).unwrap();
    for (name, expected) in [
        ("fifo", "named pipe"),
        ("sock", "socket"),
        ("/dev/zero", "device"),
        ("bin", "binary file (4 bytes)"),
        ("dir", "is a folder; use Glob"),
        ("dir/x/y", "can't be read"),
    ] {
        let error = place.error(&Read, json!({"file_path": name}));
        assert!(error.contains(expected), "{name}: {error}");
    }
    let latin = place.ok(&Read, json!({"file_path": "latin"}));
    assert_eq!(latin, "     1\ta\u{fffd}b\n[not all of it is valid UTF-8: what is not is shown as \u{fffd}]");
}

#[test]
fn read_suggests_names_for_a_missing_file() {
    let place = Place::new();
    place.write("Settings.rs", "").write("main.rs", "");
    let error = place.error(&Read, json!({"file_path": "setting.rs"}));
    assert!(error.ends_with("similar names there: Settings.rs"), "{error}");
    let error = place.error(&Read, json!({"file_path": "no/such/place.rs"}));
    assert!(error.contains(&format!("exists up to {}", place.root.display())), "{error}");
    assert!(!place.error(&Read, json!({"file_path": "unrelated"})).contains("similar"));
}

#[test]
fn read_streams_files_larger_than_memory_should_hold() {
    let place = Place::new();
    place.write("big", "first\n");
    File::options().append(true).open(place.root.join("big")).unwrap().set_len(2 << 30).unwrap();
    // Sparse: null bytes follow, beyond what is probed only if the beginning is longer.
    assert!(place.error(&Read, json!({"file_path": "big"})).contains("binary file (2147483648 bytes)"));
    place.write("big", "x\n".repeat(5000));
    File::options().append(true).open(place.root.join("big")).unwrap().set_len(2 << 30).unwrap();
    let text = place.ok(&Read, json!({"file_path": "big", "offset": 4999, "limit": 2}));
    assert!(text.starts_with("  4999\tx\n  5000\tx\n[lines 4999 to 5000;"), "{text}");
    File::options().write(true).open(place.root.join("big")).unwrap().set_len(200 << 20).unwrap();
    let text = place.ok(&Read, json!({"file_path": "big", "offset": 5001}));
    assert!(text.ends_with("[line cut: 209705200 bytes in all]"), "{}", text.len());
}

#[test]
fn r006_nasty_names_are_plain_names() {
    let place = Place::new();
    for name in NASTY {
        place.write(name, "needle\n");
        assert_eq!(place.ok(&Read, json!({"file_path": name})), "     1\tneedle");
        let found = place.ok(&Grep::default(), json!({"pattern": "needle", "path": name, "output_mode": "content"}));
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    let found = place.ok(&Glob::default(), json!({"pattern": "*.txt"}));
    assert_eq!(found.lines().count(), NASTY.len(), "{found}");
    assert!(found.contains("line\\nbreak.txt\"") && found.contains("/$(x) `y`.txt"));
    let found = place.ok(&Grep::default(), json!({"pattern": "needle"}));
    assert_eq!(found.lines().count(), NASTY.len(), "{found}");
}

#[test]
fn glob_finds_by_ripgreps_rules_newest_first() {
    let place = Place::new();
    for name in ["b.rs", "src/a.rs", "src/deep/c.rs", ".hidden/d.rs", "target/e.rs", "x.txt", ".git/f.rs"] {
        place.write(name, "");
    }
    for (i, name) in ["src/deep/c.rs", "b.rs", ".hidden/d.rs", "src/a.rs"].iter().enumerate() {
        place.age(name, i as u64);
    }
    place.write(".gitignore", "target/\n");
    let find = |input: Value| place.ok(&Glob::default(), input).lines().map(str::to_owned).collect::<Vec<_>>();
    let every = place.abs(&["src/deep/c.rs", "b.rs", ".hidden/d.rs", "src/a.rs"]);
    assert_eq!(find(json!({"pattern": "*.rs"})), every);
    assert_eq!(find(json!({"pattern": "**/*.rs"})), every);
    assert_eq!(find(json!({"pattern": "src/*.rs"})), place.abs(&["src/a.rs"]));
    assert_eq!(find(json!({"pattern": "./{src,nope}/**"})), place.abs(&["src/deep/c.rs", "src/a.rs"]));
    assert_eq!(find(json!({"pattern": "*.rs", "path": "src/./deep"})), place.abs(&["src/deep/c.rs"]));
    assert_eq!(find(json!({"pattern": place.root.join("src/*.rs")})), place.abs(&["src/a.rs"]));
    assert!(find(json!({"pattern": "*.zig"}))[0].starts_with("No files match *.zig"));
    for bad in ["/etc/*", "../*", "src/../../*"] {
        assert!(place.error(&Glob::default(), json!({"pattern": bad})).contains("leads out of the folder"), "{bad}");
    }
    assert!(place.error(&Glob::default(), json!({"pattern": "*", "path": "b.rs"})).contains("is a file"));
    assert!(place.error(&Glob::default(), json!({"pattern": "*", "path": "nope"})).contains("can't be searched"));
}

#[test]
fn glob_shows_at_most_a_hundred() {
    let place = Place::new();
    for i in 0..100 {
        place.write(&format!("{i}.t"), "");
    }
    assert_eq!(place.ok(&Glob::default(), json!({"pattern": "*.t"})).lines().count(), 100);
    place.write("100.t", "");
    let output = place.run(&Glob::default(), json!({"pattern": "*.t"}));
    assert!(output.text.ends_with("[1 more files match; narrow the pattern or the path]"), "{}", output.text);
    assert_eq!(output.structured.unwrap()["truncated"], true);
}

#[test]
fn links_are_not_followed_by_searches() {
    let place = Place::new();
    fs::create_dir(place.root.parent().unwrap().join("other")).unwrap();
    fs::write(place.root.parent().unwrap().join("other/secret.txt"), "needle").unwrap();
    std::os::unix::fs::symlink("../other", place.root.join("way")).unwrap();
    std::os::unix::fs::symlink(".", place.root.join("loop")).unwrap();
    assert!(place.ok(&Glob::default(), json!({"pattern": "*.txt"})).starts_with("No files"));
    assert!(place.ok(&Grep::default(), json!({"pattern": "needle"})).starts_with("No matches"));
    assert!(place.ok(&Grep::default(), json!({"pattern": "needle", "path": "way"})).contains("secret.txt"));
}

#[test]
fn grep_modes_and_options() {
    let place = Place::new();
    place
        .write("a.rs", "one\nTwo\nthree two\nfour\nfive\nsix\ntwo\n")
        .write("b.py", "two {\nx\n}\n")
        .write("c.rs", "none\n");
    place.age("a.rs", 10);
    place.age("b.py", 20);
    let grep = |input: Value| place.ok(&Grep::default(), input).replace(&format!("{}/", place.root.display()), "");
    assert_eq!(grep(json!({"pattern": "two"})), "a.rs\nb.py");
    assert_eq!(grep(json!({"pattern": "two", "output_mode": "count", "-i": true})), "a.rs:3\nb.py:1");
    assert_eq!(
        grep(json!({"pattern": "^two", "output_mode": "content", "-i": true})),
        "a.rs:2:Two\na.rs:7:two\nb.py:1:two {"
    );
    assert_eq!(
        grep(json!({"pattern": "^t.*$", "output_mode": "content", "-n": false, "type": "rust"})),
        "a.rs:three two\na.rs:two"
    );
    assert_eq!(
        grep(json!({"pattern": "one|six", "output_mode": "content", "context": 1})),
        "a.rs:1:one\na.rs-2-Two\n--\na.rs-5-five\na.rs:6:six\na.rs-7-two\n--\nc.rs:1:none"
    );
    assert_eq!(
        grep(json!({"pattern": "four", "output_mode": "content", "-A": 1, "-B": 0, "-C": 3})),
        "a.rs:4:four\na.rs-5-five"
    );
    assert_eq!(
        grep(json!({"pattern": "\\{.*\\}", "output_mode": "content", "multiline": true})),
        "b.py:1:two {\nb.py:2:x\nb.py:3:}"
    );
    assert_eq!(grep(json!({"pattern": "two", "glob": "*.py"})), "b.py");
    assert_eq!(grep(json!({"pattern": "two", "glob": "!*.py"})), "a.rs");
    assert_eq!(grep(json!({"pattern": "two", "glob": "*.{py,js} *.go"})), "b.py");
    assert_eq!(grep(json!({"pattern": "two", "path": "b.py"})), "b.py");
    assert!(grep(json!({"pattern": "absent"})).starts_with("No matches in "));
}

#[test]
fn grep_pages() {
    let place = Place::new();
    place.write("f", "m\n".repeat(5));
    let lines = |offset: Option<u32>, limit: Option<u32>| {
        place.ok(
            &Grep::default(),
            json!({"pattern": "m", "output_mode": "content", "offset": offset, "head_limit": limit}),
        )
    };
    assert_eq!(lines(None, Some(0)).lines().count(), 5);
    assert_eq!(lines(None, Some(5)).lines().count(), 5);
    let first = lines(None, Some(2));
    assert!(first.ends_with("f:2:m\n[more follow: continue with offset 2]"), "{first}");
    let last = lines(Some(3), Some(2));
    assert!(last.ends_with("f:5:m") && last.lines().count() == 2, "{last}");
    assert!(lines(Some(9), None).contains("beyond the end: there are 5"));
}

#[test]
fn grep_explains_broken_patterns_types_and_places() {
    let place = Place::new();
    let error = |input: Value| place.error(&Grep::default(), input);
    assert!(error(json!({"pattern": "a("})).contains("no regular expression"));
    assert!(error(json!({"pattern": "a\nb"})).contains("multiline: true"));
    assert!(error(json!({"pattern": "a", "type": "rusty"})).contains("rust"));
    assert!(error(json!({"pattern": "a", "glob": "{a"})).contains("glob can't be used"));
    assert!(error(json!({"pattern": "a", "path": "nope"})).contains("can't be searched"));
    nix::unistd::mkfifo(&place.root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(error(json!({"pattern": "a", "path": "fifo"})).contains("named pipe"));
    place.write("f", "a");
    assert!(place.ok(&Grep::default(), json!({"pattern": "a"})).ends_with("/f"));
}

#[test]
fn grep_leaves_out_binary_hidden_from_view_and_ignored_files() {
    let place = Place::new();
    place.write("bin", b"\0needle\n").write(".env", "needle\n").write("sub/key", "needle\n").write("out/x", "needle\n");
    place.write(".git/x", "needle\n").write(".gitignore", "out\n");
    let hides = |denied: PathBuf| -> super::HidePath { Arc::new(move |p: &Path| p == denied) };
    let denied = place.root.join("sub/key");
    let grep = Grep::hiding(hides(denied.clone()));
    assert_eq!(place.ok(&grep, json!({"pattern": "needle"})), place.abs(&[".env"])[0]);
    assert!(place.error(&grep, json!({"pattern": "needle", "path": "sub/key"})).contains("denies"));
    assert!(place.ok(&Glob::hiding(hides(denied)), json!({"pattern": "key"})).starts_with("No files"));
}

#[test]
fn r100_a_long_result_is_cut_and_the_whole_is_in_a_named_file() {
    let place = Place::new();
    let whole: String = (0..3000).map(|i| format!("needle number {i}\n")).collect();
    place.write("f", &whole).write("minified", format!("needle{}\n", "x".repeat(50_000)));
    let text = place.ok(&Grep::default(), json!({"pattern": "needle", "output_mode": "content"}));
    let file = place.context.results.join("toolu_1.txt");
    assert!(text.contains(&format!("the whole is in {}", file.display())), "{text}");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept.lines().count(), 3001);
    let shown = text.lines().count() - 1;
    assert!(kept.starts_with(&text.lines().take(shown).collect::<Vec<_>>().join("\n")));
    assert!(kept.lines().last().unwrap().ends_with("[line cut: 50007 bytes in all]"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn r098_a_hundred_thousand_matches_are_shown_in_part_with_a_notice() {
    let place = Place::new();
    place.write("many", "a needle in line\n".repeat(100_000));
    for i in 0..1000 {
        place.write(&format!("files/with/a/rather/long/name/so/that/they/do/not/fit/{i}.txt"), "needle\n");
    }
    let lines = place.ok(&Grep::default(), json!({"pattern": "needle", "output_mode": "content", "path": "many"}));
    assert!(lines.contains("[cut: ") && lines.contains("the whole is in "), "{}", &lines[lines.len() - 300..]);
    let kept = fs::read_to_string(place.context.results.join("toolu_1.txt")).unwrap();
    assert_eq!(kept.lines().count(), 100_000);
    let count = place.ok(&Grep::default(), json!({"pattern": "needle", "output_mode": "count", "path": "many"}));
    assert!(count.ends_with("many:100000"), "{count}");
    let files = place.run(&Grep::default(), json!({"pattern": "needle"}));
    assert!(files.text.contains("[cut: "), "{}", files.text);
    assert_eq!(files.structured.unwrap()["numFiles"], 1001);
    let found = place.ok(&Glob::default(), json!({"pattern": "*.txt"}));
    assert!(found.ends_with("[900 more files match; narrow the pattern or the path]"), "{found}");
}

#[test]
fn files_of_the_kernel_are_read_though_they_have_no_size() {
    let place = Place::new();
    assert_eq!(fs::metadata("/proc/self/status").unwrap().len(), 0);
    assert!(place.ok(&Read, json!({"file_path": "/proc/self/status"})).contains("State:"));
    for name in ["/proc/self/mem", "/proc/self/environ", "/proc/kcore"] {
        assert!(place.run(&Read, json!({"file_path": name})).is_error, "{name}");
    }
}

#[test]
fn a_cancelled_search_ends_with_what_it_has() {
    let place = Place::new();
    place.write("f", "needle\n");
    place.context.cancel.cancel();
    for (tool, input) in [
        (&Glob::default() as &dyn Tool, json!({"pattern": "*"})),
        (&Grep::default(), json!({"pattern": "needle"})),
        (&Read, json!({"file_path": "f"})),
    ] {
        let output = place.run(tool, input);
        assert!(output.text.contains("[cancelled"), "{}", output.text);
    }
}
