use std::fs::OpenOptions;
use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

const LONG: Duration = Duration::from_secs(30);

fn lines_of(content: &[u8]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, content).unwrap();
    lines_from_end(&path).unwrap().map(|l| String::from_utf8(l.unwrap()).unwrap()).collect()
}

fn talk(uuid: &str, run: Option<u32>) -> String {
    let run = run.map_or(String::new(), |r| format!(r#","run":{r}"#));
    let side = !run.is_empty();
    format!(
        r#"{{"parentUuid":null,"isSidechain":{side},"type":"user","message":{{"role":"user","content":"hi"}},"uuid":"{uuid}"{run}}}"#
    )
}

fn outcome(run: u32) -> String {
    format!(
        r#"{{"type":"system","subtype":"agent_outcome","agentId":"a-1a2b3c4d5e6f7890","run":{run},"status":"completed"}}"#
    )
}

const BOUNDARY: &str = r#"{"type":"system","subtype":"compact_boundary","uuid":"b","consumed":{}}"#;

fn tail_of(lines: &[String]) -> Tail {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
    tail(&path).unwrap()
}

#[test]
fn lines_come_last_first_and_an_unfinished_one_not_at_all() {
    assert!(lines_of(b"").is_empty());
    assert!(lines_of(b"\n\n").is_empty());
    assert_eq!(lines_of(b"a\nb\n\nc\n"), ["c", "b", "a"]);
    assert_eq!(lines_of(b"a\nb\n{\"x\":"), ["b", "a"]);
    assert_eq!(lines_of(b"{\"x\":"), Vec::<String>::new());
    assert_eq!(lines_of(b"a\n{\"x\":1}"), ["{\"x\":1}", "a"], "only the newline is missing");
    assert_eq!(lines_of(b"a\n17"), ["a"], "the beginning of a longer number");
}

#[test]
fn lines_longer_than_a_chunk_and_at_its_edges_are_whole() {
    for len in [FIRST_CHUNK - 2, FIRST_CHUNK - 1, FIRST_CHUNK, FIRST_CHUNK + 1, CHUNK, 3 * CHUNK + 5] {
        let long = "x".repeat(len);
        let content = format!("first\n{long}\nmiddle\n{long}\n");
        assert_eq!(lines_of(content.as_bytes()), [long.as_str(), "middle", &long, "first"], "{len}");
    }
}

#[test]
fn a_line_too_long_to_keep_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let short = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let mut lines = lines_from_end(&path).unwrap();
        lines.longest = 1000;
        lines.map(|l| l.unwrap().len()).collect::<Vec<_>>()
    };
    for len in [1000, 1001, 2000, FIRST_CHUNK, 3 * CHUNK] {
        let long = vec![b'x'; len];
        let kept: &[usize] = if len == 1000 { &[1000] } else { &[] };
        assert_eq!(short(&[b"aa\n", long.as_slice(), b"\nb\n"].concat()), [&[1], kept, &[2]].concat(), "{len}");
        assert_eq!(short(&[long.as_slice(), b"\nb\n"].concat()), [&[1], kept].concat(), "{len}");
        assert_eq!(short(&[b"aa\n", long.as_slice()].concat()), [2], "{len}");
    }
}

#[test]
fn a_tail_ends_at_the_last_boundary_and_skips_what_it_cannot_read() {
    let tail = tail_of(&[
        talk("old", None),
        BOUNDARY.into(),
        talk("older", None),
        BOUNDARY.into(),
        "{broken".into(),
        talk("1", None),
        r#"{"type":"attachment"}"#.into(),
        talk("2", None),
    ]);
    let kinds: Vec<&str> = tail
        .lines
        .iter()
        .map(|l| match l {
            Line::Talk(t) => t.uuid.as_str(),
            Line::Boundary(_) => "boundary",
            _ => "?",
        })
        .collect();
    assert_eq!(kinds, ["boundary", "1", "2"]);
    assert_eq!((tail.last_run, tail.open_run), (0, None));
}

#[test]
fn a_boundary_without_its_summary_replaces_nothing() {
    let tail = tail_of(&[talk("1", Some(1)), BOUNDARY.into()]);
    assert_eq!(tail.lines.len(), 2);
    assert_eq!((tail.last_run, tail.open_run), (1, Some(1)));
}

#[test]
fn a_boundary_that_was_gone_on_without_its_summary_replaces_nothing() {
    let boundary = BOUNDARY.replacen('{', r#"{"logicalParentUuid":"1","#, 1);
    let next =
        |parent: &str| talk("2", Some(1)).replace(r#""parentUuid":null"#, &format!(r#""parentUuid":"{parent}""#));
    assert!(next("1").contains(r#""parentUuid":"1""#), "{}", next("1"));
    assert_eq!(tail_of(&[talk("1", Some(1)), boundary.clone(), next("1")]).lines.len(), 3);
    assert_eq!(tail_of(&[talk("1", Some(1)), boundary, next("b")]).lines.len(), 2);
}

#[test]
fn runs_are_open_until_their_outcome() {
    let empty = tail_of(&[]);
    assert_eq!((empty.last_run, empty.open_run, empty.last_outcome), (0, None, None));
    let open = tail_of(&[talk("1", Some(1)), outcome(1), talk("2", Some(2))]);
    assert_eq!((open.last_run, open.open_run), (2, Some(2)));
    assert_eq!(open.last_outcome.map(|o| o.run), Some(1));
    let closed = tail_of(&[talk("1", Some(1)), outcome(1), talk("2", Some(2)), outcome(2)]);
    assert_eq!((closed.last_run, closed.open_run), (2, None));
    assert_eq!(closed.last_outcome.map(|o| o.run), Some(2));
    let foreign = talk("1", None).replace(r#""isSidechain":false"#, r#""isSidechain":true"#);
    assert_eq!(tail_of(&[foreign]).open_run, Some(1));
}

#[test]
fn outcomes_since_a_run_are_all_of_the_later_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut content = String::new();
    for run in 1..=4 {
        content += &format!("{}\n{}\n", talk("t", Some(run)), outcome(run));
    }
    content += &format!("{}\n", talk("t", Some(5)));
    std::fs::write(&path, content).unwrap();
    let since = |run| outcomes_since(&path, run).unwrap().iter().map(|o| o.run).collect::<Vec<_>>();
    assert_eq!(since(0), [1, 2, 3, 4]);
    assert_eq!(since(2), [3, 4]);
    assert_eq!(since(4), Vec::<u32>::new());
}

#[test]
fn r099_the_end_of_a_large_file_is_read_without_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    // A hole of 1 TiB: reading it would take for ever.
    file.set_len(1 << 40).unwrap();
    file = OpenOptions::new().append(true).open(&path).unwrap();
    writeln!(file, "\n{BOUNDARY}\n{}", talk("1", Some(7))).unwrap();
    let tail = tail(&path).unwrap();
    assert_eq!((tail.lines.len(), tail.open_run), (2, Some(7)));
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(10))
}

fn next(follow: &mut Follow) -> String {
    String::from_utf8(follow.next_line(Some(Instant::now() + LONG)).unwrap().unwrap()).unwrap()
}

#[test]
fn following_hands_out_lines_once_they_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    append(&path, "a\nb\nc");
    let mut all = Follow::open(&path, StartAt::Start).unwrap();
    let mut new = Follow::open(&path, StartAt::End).unwrap();
    assert_eq!(next(&mut all), "a");
    assert_eq!(all.offset(), 2);
    assert_eq!(next(&mut all), "b");
    assert_eq!(all.next_line(soon()).unwrap(), None);
    append(&path, "d\n");
    assert_eq!(next(&mut all), "cd");
    assert_eq!(next(&mut new), "cd");
    assert_eq!(Follow::open(&path, StartAt::Offset(2)).unwrap().try_next().unwrap(), Some(b"b".to_vec()));
}

#[test]
fn following_wakes_for_a_file_that_appears_and_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut follow = Follow::open(&path, StartAt::End).unwrap();
    assert_eq!(follow.try_next().unwrap(), None);
    let (got, when_got) = mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(move || {
            for _ in 0..2 {
                got.send(next(&mut follow)).unwrap();
            }
        });
        append(&path, "one\n");
        assert_eq!(when_got.recv_timeout(LONG).unwrap(), "one");
        append(&path, "two\n");
        assert_eq!(when_got.recv_timeout(LONG).unwrap(), "two");
    });
}

#[test]
fn following_survives_a_torn_line_that_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    append(&path, "a\ntorn");
    let mut follow = Follow::open(&path, StartAt::Start).unwrap();
    assert_eq!(next(&mut follow), "a");
    assert_eq!(follow.try_next().unwrap(), None);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(2).unwrap();
    append(&path, "whole line\n");
    assert_eq!(next(&mut follow), "whole line");
}

#[test]
fn following_goes_on_behind_a_line_that_was_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    append(&path, "a\nbb\n");
    let mut follow = Follow::open(&path, StartAt::Start).unwrap();
    assert_eq!((next(&mut follow).as_str(), next(&mut follow).as_str()), ("a", "bb"));
    OpenOptions::new().write(true).open(&path).unwrap().set_len(2).unwrap();
    assert_eq!(follow.next_line(soon()).unwrap(), None);
    append(&path, "c\n");
    assert_eq!(next(&mut follow), "c");
}

#[test]
fn following_reads_lines_longer_than_its_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let long = "y".repeat(2 * CHUNK + 3);
    append(&path, &format!("{long}\nz\n"));
    let mut follow = Follow::open(&path, StartAt::Start).unwrap();
    assert_eq!(next(&mut follow), long);
    assert_eq!(next(&mut follow), "z");
}
