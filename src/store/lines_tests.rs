use super::*;

fn lines_of(content: &[u8]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, content).unwrap();
    lines_from_end(&path).unwrap().map(|l| String::from_utf8(l.unwrap()).unwrap()).collect()
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
fn lines_too_long_to_keep_hide_no_other_on_the_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    for len in [1000, 1001, CHUNK - 2, CHUNK, 3 * CHUNK] {
        let long = "x".repeat(len);
        std::fs::write(&path, format!("aa\n\n{long}\nb\n{long}\n")).unwrap();
        let mut lines = LinesOn::open(&path, 0).unwrap();
        lines.longest = 1000;
        let mut read = Vec::new();
        while let Some((at, line)) = lines.next_line().unwrap() {
            read.push((at, line.len()));
        }
        let (second, third) = (4, 4 + len as u64 + 1);
        let expected = [(0, 2), (3, 0), (second, len), (third, 1), (third + 2, len)];
        let kept: Vec<_> = expected.into_iter().filter(|(_, len)| *len <= 1000).collect();
        assert_eq!(read, kept, "{len}");
    }
}
