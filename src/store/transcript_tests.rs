use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::core::entry::{Mode, parse_line};

fn line(mode: &str) -> Line {
    Line::Mode(Mode { session_id: "s".into(), mode: mode.into() })
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// A real file on a disk that has room for `room` more bytes.
struct Full {
    file: File,
    room: usize,
    truncate_fails: bool,
}

impl Target for Full {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room);
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= n;
        Write::write(&mut self.file, &bytes[..n])
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if self.truncate_fails { Err(io::ErrorKind::Other.into()) } else { self.file.set_len(len) }
    }
    fn sync(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Other.into())
    }
}

fn full(path: &Path, room: usize) -> Full {
    Full { file: OpenOptions::new().create(true).append(true).open(path).unwrap(), room, truncate_fails: false }
}

#[test]
fn a_new_transcript_is_private_locked_and_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s/subagents/agent-a1.jsonl");
    let mut writer = TranscriptWriter::create(&path, Durability::Disk).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(lock::is_held(&path).unwrap());
    assert!(matches!(TranscriptWriter::create(&path, Durability::Process), Err(StoreError::Exists { .. })));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temp file stays");
    writer.append(&line("a")).unwrap();
    writer.append_all(&[line("b"), line("c")]).unwrap();
    assert_eq!(writer.len(), fs::metadata(&path).unwrap().len());
    drop(writer);
    let mut again = TranscriptWriter::open(&path, Durability::Process).unwrap();
    assert_eq!(again.torn(), None);
    again.append(&line("d")).unwrap();
    let modes: Vec<String> = content(&path)
        .lines()
        .map(|l| match parse_line(l.as_bytes()).unwrap() {
            Line::Mode(m) => m.mode,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(modes, ["a", "b", "c", "d"]);
}

#[test]
fn r087_a_second_writer_is_refused_and_of_many_creators_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let won: Vec<_> = std::thread::scope(|s| {
        let all: Vec<_> =
            (0..16).map(|_| s.spawn(|| TranscriptWriter::create(&path, Durability::Process).ok())).collect();
        all.into_iter().filter_map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(won.len(), 1);
    assert!(matches!(TranscriptWriter::open(&path, Durability::Process), Err(StoreError::Locked { .. })));
    drop(won);
    assert!(TranscriptWriter::open(&path, Durability::Process).is_ok());
}

#[test]
fn opening_a_missing_transcript_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let error = TranscriptWriter::open(&path, Durability::Process).unwrap_err();
    assert!(matches!(error, StoreError::Missing { path: named } if named == path));
    assert!(!path.exists());
}

#[test]
fn a_torn_line_is_cut_off_and_a_whole_one_completed() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("", "", None),
        ("{}\n", "{}\n", None),
        ("{}\n{\"type\":\"us", "{}\n", Some("{\"type\":\"us")),
        ("{\"a\"", "", Some("{\"a\"")),
        ("{}\n{\"a\":1}", "{}\n{\"a\":1}\n", None),
        ("{}\n\0\0\0", "{}\n", Some("")),
    ];
    for (i, (before, after, torn)) in cases.into_iter().enumerate() {
        let path = dir.path().join(format!("{i}.jsonl"));
        fs::write(&path, before).unwrap();
        let mut writer = TranscriptWriter::open(&path, Durability::Process).unwrap();
        assert_eq!((content(&path).as_str(), writer.torn()), (after, torn), "{before:?}");
        assert_eq!(writer.len(), after.len() as u64);
        writer.append(&line("x")).unwrap();
        assert_eq!(content(&path).lines().count(), after.lines().count() + 1);
    }
}

#[test]
fn a_full_disk_leaves_no_part_of_a_line_and_later_lines_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut target = full(&path, 15);
    let mut tail = Appender::default();
    tail.append(&mut target, b"0123456789\n", Durability::Process).unwrap();
    let error = tail.append(&mut target, b"abcdefghij\n", Durability::Process).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!((content(&path).as_str(), tail.len), ("0123456789\n", 11));
    target.room = 100;
    tail.append(&mut target, b"x\n", Durability::Process).unwrap();
    assert_eq!((content(&path).as_str(), tail.len), ("0123456789\nx\n", 13));
}

#[test]
fn what_could_not_be_taken_back_is_taken_back_before_the_next_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut target = full(&path, 3);
    target.truncate_fails = true;
    let mut tail = Appender::default();
    assert!(tail.append(&mut target, b"abcdef\n", Durability::Process).is_err());
    assert_eq!(content(&path), "abc");
    target.room = 100;
    assert!(tail.append(&mut target, b"x\n", Durability::Process).is_err(), "not behind a torn line");
    target.truncate_fails = false;
    tail.append(&mut target, b"x\n", Durability::Process).unwrap();
    assert_eq!(content(&path), "x\n");
}

#[test]
fn a_line_that_cannot_be_made_to_last_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut tail = Appender::default();
    assert!(tail.append(&mut full(&path, 100), b"x\n", Durability::Disk).is_err());
    assert_eq!(content(&path), "");
}

#[test]
fn lines_of_programs_that_know_no_locks_are_not_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut target = full(&path, 5);
    let mut tail = Appender::default();
    tail.append(&mut target, b"a\n", Durability::Process).unwrap();
    full(&path, 100).file.write_all(b"foreign\n").unwrap();
    assert!(tail.append(&mut target, b"bcdefg\n", Durability::Process).is_err());
    assert_eq!(content(&path), "a\nforeign\n");
}

#[test]
fn entries_are_capped_at_n_and_refused_at_n_plus_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut writer = TranscriptWriter::create(&path, Durability::Process).unwrap();
    let largest = vec![b'x'; limits::ENTRY_BYTES];
    writer.append_raw(&[&largest]).unwrap();
    let before = writer.len();
    let over = [largest.as_slice(), b"x"].concat();
    let error = writer.append_raw(&[b"fine".as_slice(), &over]).unwrap_err();
    assert!(matches!(error, StoreError::TooLong { bytes, limit, .. } if bytes == limit + 1));
    assert_eq!(fs::metadata(&path).unwrap().len(), before, "nothing was written");
}

#[test]
fn what_is_no_line_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let mut writer = TranscriptWriter::create(&path, Durability::Process).unwrap();
    assert!(writer.append(&Line::Other).is_err());
    assert!(writer.append_raw(&[b"{}\n{}"]).is_err());
    writer.append_all(&[]).unwrap();
    assert_eq!(writer.len(), 0);
}
