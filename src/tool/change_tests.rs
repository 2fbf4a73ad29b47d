//! `Edit`, `Write` and `NotebookEdit` on real files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::file_tests::Place;
use super::{Edit, NotebookEdit, Read, Tool, Write};
use crate::core::limits::EDIT_BYTES;
use crate::core::tool_state::ToolState;

impl Place {
    fn see(&self, name: &str) {
        self.ok(&Read, json!({"file_path": name}));
    }

    fn edit(&self, name: &str, old: &str, new: &str) -> String {
        self.ok(&Edit, json!({"file_path": name, "old_string": old, "new_string": new}))
    }

    fn no_edit(&self, name: &str, old: &str, new: &str) -> String {
        let before = self.listing();
        let error = self.error(&Edit, json!({"file_path": name, "old_string": old, "new_string": new}));
        assert_eq!(self.listing(), before, "a refused edit changes nothing");
        error
    }

    fn put(&self, name: &str, content: &str) -> String {
        self.ok(&Write, json!({"file_path": name, "content": content}))
    }

    fn no_put(&self, name: &str, content: &str) -> String {
        let before = self.listing();
        let error = self.error(&Write, json!({"file_path": name, "content": content}));
        assert_eq!(self.listing(), before, "a refused write changes nothing");
        error
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.join(name)).unwrap()
    }

    /// Every name below the folder with the times of its last change.
    fn listing(&self) -> Vec<(String, i64, i64)> {
        let walk = ignore::WalkBuilder::new(&self.root).standard_filters(false).build().flatten();
        let mut all: Vec<_> = walk
            .filter(|e| e.depth() > 0)
            .map(|e| {
                let metadata = fs::symlink_metadata(e.path()).unwrap();
                (e.path().display().to_string(), metadata.mtime(), metadata.mtime_nsec())
            })
            .collect();
        all.sort();
        all
    }

    /// Another agent in the same folder.
    fn other(&self) -> Agent {
        let mut context = self.context.clone();
        context.tool_state = Arc::default();
        Agent(context)
    }
}

struct Agent(super::ToolContext);

impl Agent {
    fn run(&self, tool: &dyn Tool, input: Value) -> super::ToolOutput {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tool.run(&input, &self.0))
    }
}

#[test]
fn schemas_have_the_known_parameters_and_order() {
    let tools: [(&dyn Tool, &str, &[&str], usize); 3] = [
        (&Edit, "Edit", &["file_path", "old_string", "new_string", "replace_all"], 3),
        (&Write, "Write", &["file_path", "content"], 2),
        (&NotebookEdit, "NotebookEdit", &["notebook_path", "cell_id", "new_source", "cell_type", "edit_mode"], 0),
    ];
    for (tool, name, parameters, required) in tools {
        let spec = tool.spec();
        let properties = spec.input_schema["properties"].as_object().unwrap();
        assert_eq!(
            (spec.name.as_str(), properties.keys().map(String::as_str).collect::<Vec<_>>()),
            (name, parameters.to_vec())
        );
        let required = if required > 0 { parameters[..required].to_vec() } else { vec![parameters[0], parameters[2]] };
        assert_eq!(spec.input_schema["required"], json!(required));
        assert_eq!(spec.input_schema["additionalProperties"], json!(false));
        assert!(!tool.is_read_only());
        let activity = tool.describe(&json!({"file_path": "a\nb", "notebook_path": "a\nb"}));
        assert!(activity.description.ends_with(" a b") && activity.tool == name && !activity.is_read);
    }
    for (tool, input, expected) in [
        (&Edit as &dyn Tool, json!({"file_path": "x", "new_string": ""}), "`old_string` is missing"),
        (
            &Edit,
            json!({"file_path": "x", "old_string": "a", "new_string": "b", "replace_all": 3}),
            "expected true or false",
        ),
        (&Edit, json!({"file_path": "x", "old_string": "a", "new_string": "a"}), "are the same"),
        (&Edit, json!({"file_path": "", "old_string": "a", "new_string": "b"}), "`file_path` is missing"),
        (&Write, json!({"file_path": "x"}), "`content` is missing"),
        (&Write, json!({"file_path": "x", "content": "", "mode": 1}), "parameters are: file_path, content"),
        (&Write, json!({"file_path": "~/x", "content": ""}), "whole path"),
        (&Write, json!({"file_path": "x/", "content": ""}), "names a folder"),
        (&Write, json!({"file_path": "a\u{0}b", "content": ""}), "can't be a file"),
    ] {
        let error = Place::new().error(tool, input.clone());
        assert!(error.contains(expected), "{input}: {error}");
    }
}

#[test]
fn an_edit_says_what_it_did_for_the_model_and_for_programs() {
    let place = Place::new();
    place.write("a.rs", "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n");
    place.see("a.rs");
    let input = json!({"file_path": "a.rs", "old_string": "    one();\n", "new_string": "    uno();\n    due();\n"});
    let output = place.run(&Edit, input);
    let file = place.root.join("a.rs");
    assert_eq!(
        output.text,
        format!(
            "{} was changed.\nNow:\n     1\tfn a() {{\n     2\t    uno();\n     3\t    due();\n     4\t}}\n     5\t\n     \
             6\tfn b() {{",
            file.display()
        )
    );
    let structured = output.structured.unwrap();
    assert_eq!(structured["filePath"], json!(file));
    assert_eq!((&structured["oldString"], &structured["replaceAll"]), (&json!("    one();\n"), &json!(false)));
    assert_eq!(structured["structuredPatch"][0]["lines"][1], "-    one();");
    let all = json!({"file_path": "a.rs", "old_string": "fn ", "new_string": "pub fn ", "replace_all": "true"});
    assert!(place.ok(&Edit, all).contains("was changed in 2 places."));
    assert_eq!(place.text("a.rs"), "pub fn a() {\n    uno();\n    due();\n}\n\npub fn b() {\n    two();\n}\n");
}

#[test]
fn an_edit_that_is_not_clear_changes_nothing_and_says_what_to_do() {
    let place = Place::new();
    place.write("f", "a\nb\na\n").write("empty", "");
    place.see("f");
    place.see("empty");
    let several = place.no_edit("f", "a", "c");
    assert!(several.contains("occurs 2 times") && several.contains("in lines 1 and 3"), "{several}");
    assert!(several.contains("replace_all"), "{several}");
    assert!(place.no_edit("f", " b", "c").contains("differs only in white space from what begins in line 2"));
    assert!(place.no_edit("f", "a\r\n", "a\n").contains("only in how lines end"));
    assert!(place.no_edit("f", "", "x").contains("use Write"));
    assert!(place.no_edit("none", "a", "b").contains("there is no file"));
    // An empty text is found in an empty file only.
    place.edit("empty", "", "full\n");
    assert_eq!(place.text("empty"), "full\n");
    let made = place.edit("new/deep/file", "", "made\n");
    assert!(made.ends_with("was made."), "{made}");
    place.edit("new/deep/file", "made", "changed");
    assert_eq!(place.text("new/deep/file"), "changed\n");
}

#[test]
fn what_was_not_read_is_not_changed() {
    let place = Place::new();
    place.write("f", "one\n");
    assert!(place.no_edit("f", "one", "two").contains("have not read it: Read it first"));
    assert!(place.no_put("f", "two\n").contains("have not read it: Read it first"));
    place.see("f");
    place.edit("f", "one", "two");
    // What it wrote itself it knows.
    place.edit("f", "two", "three");
    place.put("f", "four\n");
    place.edit("f", "four", "five");
    place.put("g", "new\n");
    place.put("g", "newer\n");
    assert_eq!((place.text("f"), place.text("g")), ("five\n".to_owned(), "newer\n".to_owned()));
    // A part that was read is a file that was read; the whole of it is watched.
    place.write("long", "x\n".repeat(3000) + "end\n");
    place.ok(&Read, json!({"file_path": "long", "offset": 5, "limit": 1}));
    place.edit("long", "end", "END");
    assert!(place.text("long").ends_with("x\nEND\n"));
}

#[test]
fn a_file_that_changed_meanwhile_must_be_read_again() {
    let place = Place::new();
    place.write("f", "one\n");
    place.see("f");
    let time = fs::metadata(place.root.join("f")).unwrap().modified().unwrap();
    let set_time =
        |time| fs::File::options().append(true).open(place.root.join("f")).unwrap().set_modified(time).unwrap();
    // Same size, same time, other content.
    place.write("f", "two\n");
    set_time(time);
    assert!(place.no_edit("f", "two", "x").contains("changed since you read it: read it again"));
    assert!(place.no_put("f", "x").contains("changed since you read it: read it again"));
    place.see("f");
    // Touched only.
    set_time(SystemTime::now() + Duration::from_secs(9));
    place.edit("f", "two", "three");
    // Replaced by another file of the same content.
    fs::write(place.root.join("g"), "three\n").unwrap();
    fs::rename(place.root.join("g"), place.root.join("f")).unwrap();
    place.edit("f", "three", "four");
    fs::remove_file(place.root.join("f")).unwrap();
    assert!(place.no_edit("f", "four", "x").contains("there is no file"));
    place.put("f", "again\n");
}

#[test]
fn of_two_agents_the_second_is_told() {
    let place = Place::new();
    place.write("f", "one\n");
    let other = place.other();
    let read = json!({"file_path": "f"});
    place.see("f");
    assert!(!other.run(&Read, read.clone()).is_error);
    place.edit("f", "one", "two");
    let input = json!({"file_path": "f", "old_string": "o", "new_string": "x"});
    let late = other.run(&Edit, input.clone());
    assert!(late.is_error && late.text.contains("changed since you read it"), "{}", late.text);
    assert_eq!(place.text("f"), "two\n");
    other.run(&Read, read);
    assert!(!other.run(&Edit, input).is_error);
    assert_eq!(place.text("f"), "twx\n");
}

#[test]
fn of_many_agents_at_once_each_change_is_kept_or_refused() {
    let place = Place::new();
    place.write("f", "begin\n");
    let kept: usize = std::thread::scope(|s| {
        let agents: Vec<_> = (0..8)
            .map(|n| {
                let agent = place.other();
                s.spawn(move || {
                    let mut kept = 0;
                    for round in 0..20 {
                        agent.run(&Read, json!({"file_path": "f"}));
                        let line = format!("agent {n} round {round}\n");
                        let input =
                            json!({"file_path": "f", "old_string": "begin\n", "new_string": format!("begin\n{line}")});
                        let output = agent.run(&Edit, input);
                        assert!(!output.is_error || output.text.contains("changed since"), "{}", output.text);
                        kept += usize::from(!output.is_error);
                    }
                    kept
                })
            })
            .collect();
        agents.into_iter().map(|agent| agent.join().unwrap()).sum()
    });
    assert!(kept >= 8, "{kept}");
    assert_eq!(place.text("f").lines().count(), 1 + kept, "no change that was reported done is lost");
    assert_eq!(fs::read_dir(&place.root).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn what_earlier_runs_saw_counts_after_a_resume() {
    let place = Place::new();
    place.write("f", "one\n").write("g", "one\n").write("h", "one\n");
    let mut results = Vec::new();
    for name in ["f", "g"] {
        results.extend(place.run(&Read, json!({"file_path": name})).structured);
    }
    let edit = |old: &str, new: &str| json!({"file_path": "f", "old_string": old, "new_string": new});
    results.extend(place.run(&Edit, edit("one", "two")).structured);
    results.extend(place.run(&Write, json!({"file_path": "w", "content": "new\n"})).structured);
    let mut state = ToolState::default();
    // As they come back from a transcript.
    results.iter().for_each(|result| state.note(&serde_json::from_str(&result.to_string()).unwrap()));
    let mut resumed = place.other();
    resumed.0.tool_state = Arc::new(Mutex::new(state));
    place.write("g", "changed\n");
    assert!(!resumed.run(&Edit, edit("two", "three")).is_error);
    assert!(!resumed.run(&Write, json!({"file_path": "w", "content": "newer\n"})).is_error);
    let refused = resumed.run(&Write, json!({"file_path": "g", "content": "x"}));
    assert!(refused.text.contains("changed since you read it"), "{}", refused.text);
    let refused = resumed.run(&Write, json!({"file_path": "h", "content": "x"}));
    assert!(refused.text.contains("have not read it"), "{}", refused.text);
}

#[test]
fn the_form_of_a_file_stays() {
    let place = Place::new();
    let utf16: Vec<u8> = [vec![0xff, 0xfe], "ä\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect()].concat();
    place
        .write("crlf", "a\r\nb\r\n")
        .write("bom", "\u{feff}a\nb")
        .write("utf16", &utf16)
        .write("mixed", "a\r\nb\nc\r\n");
    assert_eq!(place.ok(&Read, json!({"file_path": "crlf"})), "     1\ta\n     2\tb\n[lines end with CRLF]");
    assert_eq!(place.ok(&Read, json!({"file_path": "bom"})), "     1\ta\n     2\tb");
    assert!(place.ok(&Read, json!({"file_path": "utf16"})).starts_with("     1\tä\n     2\tb\n[the file is UTF-16]"));
    assert!(place.ok(&Read, json!({"file_path": "mixed"})).ends_with("[2 of these lines end with CRLF]"));
    let told = place.edit("crlf", "a\nb\n", "a\nx\ny\n");
    assert!(told.contains("; its CRLF line ends were kept."), "{told}");
    assert_eq!(place.text("crlf"), "a\r\nx\r\ny\r\n");
    place.edit("bom", "b", "c");
    assert_eq!(place.text("bom"), "\u{feff}a\nc");
    place.edit("utf16", "ä\n", "ö\n");
    let text: Vec<u8> = "ö\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(place.bytes("utf16"), [vec![0xff, 0xfe], text].concat());
    place.edit("mixed", "b\nc", "B\nc");
    assert_eq!(place.text("mixed"), "a\r\nB\nc\r\n");
    // Write keeps it too, unless the content says otherwise.
    assert!(place.put("crlf", "1\n2\n").contains("CRLF line ends were kept"));
    assert_eq!(place.text("crlf"), "1\r\n2\r\n");
    place.put("bom", "1\n");
    assert_eq!(place.text("bom"), "\u{feff}1\n");
    place.put("bom", "\u{feff}2\n");
    assert_eq!(place.text("bom"), "\u{feff}2\n");
    place.put("crlf", "1\r\n2\n");
    assert_eq!(place.text("crlf"), "1\r\n2\n");
}

#[test]
fn permissions_and_links_stay() {
    let place = Place::new();
    place.write("dir/run.sh", "one\n");
    let file = place.root.join("dir/run.sh");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    let before = fs::metadata(&file).unwrap();
    symlink("dir/run.sh", place.root.join("link")).unwrap();
    symlink("link", place.root.join("link2")).unwrap();
    symlink("dir/none", place.root.join("dangling")).unwrap();
    place.see("link2");
    place.edit("link2", "one", "two");
    // The name does not matter, the file does.
    place.edit("dir/../dir/run.sh", "two", "three");
    place.put("link", "four\n");
    place.put("dangling", "made\n");
    assert_eq!((place.text("dir/run.sh"), place.text("dir/none")), ("four\n".to_owned(), "made\n".to_owned()));
    for link in ["link", "link2", "dangling"] {
        assert!(fs::symlink_metadata(place.root.join(link)).unwrap().is_symlink(), "{link}");
    }
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    // A new file is one like any other program makes.
    place.write("plain", "");
    let mode = |name: &str| fs::metadata(place.root.join(name)).unwrap().mode();
    assert_eq!(mode("dir/none"), mode("plain"));
    place.put("made/by/us", "");
    fs::create_dir_all(place.root.join("made2/by")).unwrap();
    assert_eq!(mode("made/by"), mode("made2/by"));
    // Of hard links only one name is changed, and that is said.
    fs::hard_link(&file, place.root.join("hard")).unwrap();
    place.see("hard");
    let told = place.edit("hard", "four", "five");
    assert!(told.contains("other hard links"), "{told}");
    assert_eq!((place.text("hard"), place.text("dir/run.sh")), ("five\n".to_owned(), "four\n".to_owned()));
}

#[test]
fn what_is_no_text_is_not_edited_and_nothing_hangs() {
    let place = Place::new();
    place.write("bin", [1u8, 0, 2]).write("latin", [b'a', 0xff, b'b']).write("file", "x").write("dir/x", "");
    nix::unistd::mkfifo(&place.root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.root.join("sock")).unwrap();
    symlink("loop", place.root.join("loop")).unwrap();
    let long = "n".repeat(256);
    for (name, expected) in [
        ("fifo", "named pipe"),
        ("sock", "socket"),
        ("/dev/null", "device"),
        ("dir", "is a folder"),
        ("file/x", "Not a directory"),
        ("loop", "symbolic links"),
        (long.as_str(), "name too long"),
        ("gone/../x", "folder that does not exist"),
    ] {
        for error in [place.no_edit(name, "a", "b"), place.no_put(name, "b")] {
            assert!(error.to_lowercase().contains(&expected.to_lowercase()), "{name}: {error}");
            assert!(error.contains(name.rsplit('/').next().unwrap()), "it names the file: {error}");
        }
    }
    assert!(place.no_edit("bin", "a", "b").contains("binary file"));
    assert!(place.no_put("bin", "b").contains("not read"));
    place.see("latin");
    assert!(place.no_edit("latin", "a", "b").contains("no valid UTF-8 (first in line 1)"));
    place.put("latin", "text now\n");
    // The system's own files can't be replaced; whatever it says about that is passed on.
    let error = place.error(&Write, json!({"file_path": "/proc/self/none", "content": "x"}));
    assert!(error.contains("/proc/self/none can't be written"), "{error}");
    place.see("/proc/self/status");
    let input = json!({"file_path": "/proc/self/comm", "old_string": "x", "new_string": "y"});
    assert!(place.run(&Edit, input).is_error);
}

#[test]
fn large_files_are_left_to_other_programs() {
    let place = Place::new();
    place.write("big", "x\n".repeat(5000));
    let file = fs::File::options().append(true).open(place.root.join("big")).unwrap();
    file.set_len(2 << 30).unwrap();
    place.ok(&Read, json!({"file_path": "big", "limit": 1}));
    let error = place.no_edit("big", "x", "y");
    assert!(error.contains("2147483648 bytes") && error.contains(&EDIT_BYTES.to_string()), "{error}");
    // It may be replaced, after a look and as long as time and size stay.
    file.set_len((2 << 30) + 1).unwrap();
    assert!(place.no_put("big", "small\n").contains("changed since"));
    place.ok(&Read, json!({"file_path": "big", "limit": 1}));
    place.put("big", "small\n");
    place.edit("big", "small", "smaller");
    place.write("edge", "x".repeat(EDIT_BYTES - 1));
    place.see("edge");
    place.put("edge", "y");
}

fn notebook() -> String {
    let cell = |id: &str, text: &str| {
        format!(
            "  {{\n   \"cell_type\": \"code\",\n   \"execution_count\": 3,\n   \"id\": \"{id}\",\n   \"metadata\": {{}},\n   \
             \"outputs\": [],\n   \"source\": [\n    \"{text}\"\n   ]\n  }}"
        )
    };
    format!(
        "{{\n \"cells\": [\n{},\n{}\n ],\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}}\n",
        cell("aa", "x = 1"),
        cell("bb", "y")
    )
}

#[test]
fn cells_of_a_notebook_are_read_and_changed() {
    let place = Place::new();
    place.write("n.ipynb", notebook()).write("broken.ipynb", "{\"cells\": oops}\n");
    let call = |mode: &str, cell: Option<&str>, source: &str| json!({"notebook_path": "n.ipynb", "cell_id": cell, "new_source": source, "edit_mode": mode, "cell_type": "code"});
    assert!(place.error(&NotebookEdit, call("replace", Some("aa"), "z")).contains("have not read it"));
    let seen = place.ok(&Read, json!({"file_path": "n.ipynb"}));
    assert!(seen.contains("\t<cell id=\"aa\" type=\"code\">\n     3\tx = 1\n     4\t</cell>"), "{seen}");
    let output = place.run(&NotebookEdit, call("replace", Some("aa"), "x = 2"));
    assert!(
        output.text.starts_with("cell aa (code) of ") && output.text.contains("was replaced.\nNow:\n"),
        "{}",
        output.text
    );
    assert!(output.text.contains("\n     3\tx = 2\n"), "with the numbers that Read shows: {}", output.text);
    assert_eq!(place.text("n.ipynb"), notebook().replace("x = 1", "x = 2").replacen("3", "null", 1));
    assert!(place.ok(&NotebookEdit, call("insert", Some("aa"), "new")).contains("was inserted.\n"));
    assert!(place.ok(&NotebookEdit, call("delete", Some("bb"), "")).contains("was deleted.\n"));
    let seen = place.ok(&Read, json!({"file_path": "n.ipynb"}));
    assert!(seen.contains("x = 2") && seen.contains("new") && !seen.contains("bb"), "{seen}");
    for (input, expected) in [
        (call("replace", Some("zz"), "x"), "the cells are aa (code), "),
        (call("replace", None, "x"), "`cell_id` is missing"),
        (call("change", Some("aa"), "x"), "modes: replace, insert, delete"),
        (json!({"notebook_path": "n.ipynb", "new_source": "x", "edit_mode": "insert"}), "`cell_type` is missing"),
        (json!({"notebook_path": "n.ipynb", "cell_id": "aa"}), "`new_source` is missing"),
        (json!({"notebook_path": "none.ipynb", "cell_id": "aa", "new_source": ""}), "there is no file"),
        (json!({"notebook_path": "broken.ipynb", "cell_id": "aa", "new_source": ""}), "is no notebook of format 4"),
    ] {
        let error = place.error(&NotebookEdit, input.clone());
        assert!(error.contains(expected), "{input}: {error}");
    }
    assert!(place.no_edit("n.ipynb", "x = 2", "x = 3").contains("use NotebookEdit"));
    // A broken one is text that can be mended.
    assert!(
        place
            .ok(&Read, json!({"file_path": "broken.ipynb"}))
            .ends_with("no valid notebook; it is shown as plain text]")
    );
    place.edit("broken.ipynb", "oops", "[]");
}

#[test]
fn images_are_shown_and_pdfs_are_not() {
    let place = Place::new();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x02\x08\x06\0\0\0\0\0\0\0\0\0\0\0IEND\0\0\0\0";
    // By what they are, not by what they are called.
    place.write("image.txt", png).write("half.png", &png[..30]).write("doc.pdf", "%PDF-1.7\n");
    let output = place.run(&Read, json!({"file_path": "image.txt"}));
    assert!(output.text.ends_with("image.txt: image/png, 1 x 2 pixels"), "{}", output.text);
    let sent = serde_json::to_value(output.block("t")).unwrap();
    assert_eq!(sent["content"][0]["source"]["media_type"], "image/png");
    assert!(place.error(&Read, json!({"file_path": "half.png"})).contains("damaged"));
    assert!(place.error(&Read, json!({"file_path": "doc.pdf"})).contains("pdftotext"));
    assert!(place.no_edit("image.txt", "a", "b").contains("binary"));
}
