use super::*;

fn only(text: &str, old: &str, new: &str) -> String {
    done(text, splice(text, old, new, Which::Only).unwrap())
}

fn all(text: &str, old: &str, new: &str) -> String {
    done(text, splice(text, old, new, Which::All).unwrap())
}

/// The text, after a check that the changes tell how it came about.
fn done(before: &str, spliced: Spliced) -> String {
    let mut rebuilt = String::new();
    let mut at = 0;
    for Change { old, new } in &spliced.changes {
        rebuilt.push_str(&before[at..old.start]);
        assert_eq!(rebuilt.len(), new.start);
        rebuilt.push_str(&spliced.text[new.clone()]);
        at = old.end;
    }
    rebuilt.push_str(&before[at..]);
    assert_eq!(rebuilt, spliced.text);
    spliced.text
}

#[test]
fn one_place_or_all_of_them() {
    assert_eq!(only("a b c", "b", "x"), "a x c");
    assert_eq!(only("a b c", "b ", ""), "a c");
    assert_eq!(only("a b c", "a b c", "d"), "d");
    assert_eq!(only("é à", "à", "è"), "é è");
    assert_eq!(all("a b a", "a", "aa"), "aa b aa");
    assert_eq!(all("aaa", "aa", "b"), "ba");
    let spliced = splice("x\nfn a() {}\ny", "fn a() {}", "fn b() {}", Which::Only).unwrap();
    assert_eq!(spliced.changes, [Change { old: 5..6, new: 5..6 }], "only what differs");
}

#[test]
fn what_is_not_clear_is_refused() {
    let refused = |text: &str, old: &str, new: &str, which| splice(text, old, new, which).unwrap_err();
    assert_eq!(refused("a", "b", "c", Which::Only), NoSplice::Absent);
    assert_eq!(refused("a", "b", "c", Which::All), NoSplice::Absent);
    assert_eq!(refused("a", "a", "a", Which::Only), NoSplice::Same { but_line_ends: false });
    assert_eq!(refused("a\r\n", "a\r\n", "a\n", Which::Only), NoSplice::Same { but_line_ends: true });
    assert_eq!(refused("a\na\nb\na a\n", "a", "c", Which::Only), NoSplice::Several { count: 4, lines: vec![1, 2, 4] });
    assert_eq!(refused("ééé", "éé", "c", Which::Only), NoSplice::Several { count: 2, lines: vec![1] }, "they overlap");
}

#[test]
fn lines_keep_their_ends() {
    // All CRLF: what is put in gets them too, whether or not it replaces whole lines.
    assert_eq!(only("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n"), "x\r\ny\r\nz\r\nc\r\n");
    assert_eq!(only("a\r\nb\r\nc\r\n", "b", "b\nb2"), "a\r\nb\r\nb2\r\nc\r\n");
    assert_eq!(only("a\r\nb", "b", "b\nc"), "a\r\nb\r\nc", "the last line has no end of its own");
    assert_eq!(only("a\r\nb\r\n", "b\r\n", "x\r\ny\r\n"), "a\r\nx\r\ny\r\n");
    assert_eq!(only("a\r\nb\r\nc", "\nb", ""), "a\r\nc");
    assert_eq!(only("a\r\nb\r\nc", "b\n", ""), "a\r\nc");
    // All LF stays so, also where CRLF is given.
    assert_eq!(only("a\nb\n", "b\n", "x\r\ny\r\n"), "a\nx\ny\n");
    // A carriage return alone is a character like others.
    assert_eq!(only("a\rb\n", "b", "c"), "a\rc\n");
}

#[test]
fn in_a_mixed_file_untouched_lines_keep_theirs() {
    let text = "one\r\ntwo\nthree\r\nfour\nfive\r\n";
    assert_eq!(
        only(text, "one\ntwo\nthree\nfour\nfive", "one\nTWO\nthree\nFOUR\nfive"),
        "one\r\nTWO\nthree\r\nFOUR\nfive\r\n"
    );
    assert_eq!(only(text, "one\ntwo\nthree", "one\nTWO\nthree"), "one\r\nTWO\nthree\r\nfour\nfive\r\n");
    assert_eq!(only(text, "two\nthree", "two\nnew\nthree"), "one\r\ntwo\nnew\r\nthree\r\nfour\nfive\r\n");
    assert_eq!(only(text, "four", "4"), "one\r\ntwo\nthree\r\n4\nfive\r\n");
}

#[test]
fn a_text_does_not_grow_without_end() {
    let text = "a".repeat(EDIT_BYTES - 2);
    assert_eq!(only(&format!("{text}b"), "b", "cd").len(), EDIT_BYTES);
    let grown = splice(&format!("{text}b"), "b", "cde", Which::Only);
    assert_eq!(grown, Err(NoSplice::TooLarge { bytes: EDIT_BYTES + 1 }));
    let hundred = "a".repeat(100);
    assert!(matches!(splice(&hundred, "a", &"b".repeat(1 << 20), Which::All), Err(NoSplice::TooLarge { .. })));
    let places = "a".repeat(PLACES);
    assert_eq!(splice(&places, "a", "b", Which::All).unwrap().changes.len(), PLACES);
    let more = format!("{places}a");
    for which in [Which::All, Which::Only] {
        assert_eq!(splice(&more, "a", "b", which), Err(NoSplice::TooMany));
    }
}
