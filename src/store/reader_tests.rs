use std::fs::OpenOptions;
use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

const LONG: Duration = Duration::from_secs(30);

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

/// What the end of a transcript says, and what is read of it: uuids of talk, `boundary`.
fn read_back_of(lines: &[String]) -> (Tail, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
    let mut read = Vec::new();
    let tail = read_back(&path, |line| {
        read.push(match line {
            Line::Talk(talk) => talk.uuid,
            Line::Boundary(_) => "boundary".to_owned(),
            other => format!("{other:?}"),
        });
    });
    (tail.unwrap(), read)
}

fn tail_of(lines: &[String]) -> Tail {
    read_back_of(lines).0
}

#[test]
fn a_tail_ends_at_the_last_boundary_and_skips_what_it_cannot_read() {
    let (tail, read) = read_back_of(&[
        talk("old", None),
        BOUNDARY.into(),
        talk("older", None),
        BOUNDARY.into(),
        "{broken".into(),
        talk("1", None),
        r#"{"type":"attachment"}"#.into(),
        talk("2", None),
    ]);
    assert_eq!(read, ["2", "1", "boundary"]);
    assert_eq!((tail.last_run, tail.open_run, tail.is_compacted), (0, None, true));
}

#[test]
fn a_boundary_without_its_summary_replaces_nothing() {
    let (tail, read) = read_back_of(&[talk("1", Some(1)), BOUNDARY.into()]);
    assert_eq!(read, ["boundary", "1"]);
    assert_eq!((tail.last_run, tail.open_run, tail.is_compacted), (1, Some(1), false));
}

#[test]
fn a_boundary_that_was_gone_on_without_its_summary_replaces_nothing() {
    let boundary = BOUNDARY.replacen('{', r#"{"logicalParentUuid":"1","#, 1);
    let next =
        |parent: &str| talk("2", Some(1)).replace(r#""parentUuid":null"#, &format!(r#""parentUuid":"{parent}""#));
    assert!(next("1").contains(r#""parentUuid":"1""#), "{}", next("1"));
    let read = |parent: &str| read_back_of(&[talk("1", Some(1)), boundary.clone(), next(parent)]).1;
    assert_eq!(read("1"), ["2", "boundary", "1"]);
    assert_eq!(read("b"), ["2", "boundary"]);
}

/// What is read to go on, with `words` or without.
fn read_tail_of(content: &str, most: u64) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, content).unwrap();
    let mut read = Vec::new();
    read_tail(&path, most, |line, words| {
        read.push(match line {
            Line::Talk(talk) => {
                assert_eq!(talk.message.message.content.is_empty(), words == Words::PassedOver);
                format!("{}{}", talk.uuid, if words == Words::Kept { "" } else { "-" })
            }
            Line::Boundary(_) => "boundary".to_owned(),
            other => format!("{other:?}"),
        });
    })
    .unwrap();
    read
}

fn lines(all: &[&str]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_tail_is_read_from_its_beginning_on() {
    let old = talk("old", None);
    let all =
        [&old, BOUNDARY, &old, BOUNDARY, "{broken", &talk("1", None), r#"{"type":"attachment"}"#, &talk("2", None)];
    assert_eq!(read_tail_of(&lines(&all), u64::MAX), ["boundary", "1", "2"]);
    assert_eq!(read_tail_of(&lines(&[&old, BOUNDARY]), u64::MAX), ["old", "boundary"], "without a summary");
    let unfinished = format!("{}{}", lines(&[&talk("1", None)]), &talk("2", None)[..20]);
    assert_eq!(read_tail_of(&unfinished, u64::MAX), ["1"]);
    let unended = format!("{}{}", lines(&[&talk("1", None)]), talk("2", None));
    assert_eq!(read_tail_of(&unended, u64::MAX), ["1", "2"], "only the newline is missing");
    assert_eq!(read_tail_of("", u64::MAX), Vec::<String>::new());
    let named = r#"{"type":"user","uuid":"compact_boundary","message":{"role":"user","content":"x"}}"#;
    assert_eq!(read_tail_of(&lines(&[&old, named, &old]), u64::MAX), ["old", "compact_boundary", "old"]);
}

#[test]
fn words_too_far_from_the_end_are_passed_over_but_the_first() {
    let all: Vec<String> = (0..5).map(|n| talk(&n.to_string(), None)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let each = all[0].len() as u64 + 1;
    let content = lines(&all);
    assert_eq!(read_tail_of(&content, 5 * each + 1), ["0", "1", "2", "3", "4"]);
    assert_eq!(read_tail_of(&content, 5 * each), ["0", "1", "2", "3", "4"], "the first one anyway");
    assert_eq!(read_tail_of(&content, 4 * each + 1), ["0", "1", "2", "3", "4"]);
    assert_eq!(read_tail_of(&content, 4 * each), ["0", "1-", "2", "3", "4"]);
    assert_eq!(read_tail_of(&content, each), ["0", "1-", "2-", "3-", "4-"]);
    let compacted = lines(&[&[all[4], BOUNDARY], &all[..3]].concat());
    assert_eq!(read_tail_of(&compacted, 2 * each), ["boundary", "0", "1-", "2"]);
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
    assert_eq!((tail.is_compacted, tail.open_run), (true, Some(7)));
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
    let long = "y".repeat((512 << 10) + 3);
    append(&path, &format!("{long}\nz\n"));
    let mut follow = Follow::open(&path, StartAt::Start).unwrap();
    assert_eq!(next(&mut follow), long);
    assert_eq!(next(&mut follow), "z");
}
