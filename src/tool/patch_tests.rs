use super::super::splice::{Which, splice};
use super::*;

/// Applies a patch, as another program would.
fn applied(before: &str, patch: &Value) -> Vec<String> {
    let old: Vec<&str> = before.lines().collect();
    let mut out = Vec::new();
    let mut at = 0;
    for hunk in patch.as_array().unwrap() {
        let number = |key: &str| usize::try_from(hunk[key].as_u64().unwrap()).unwrap();
        let start = number("oldStart") - 1;
        out.extend(old[at..start].iter().map(|l| (*l).to_owned()));
        at = start;
        assert_eq!(out.len() + 1, number("newStart"), "{hunk}");
        let begin = out.len();
        for line in hunk["lines"].as_array().unwrap() {
            let line = line.as_str().unwrap();
            let (mark, words) = line.split_at(1);
            if mark != "+" {
                assert_eq!(old[at], words, "{hunk}");
                at += 1;
            }
            if mark != "-" {
                out.push(words.to_owned());
            }
        }
        assert_eq!((at - start, out.len() - begin), (number("oldLines"), number("newLines")), "{hunk}");
    }
    out.extend(old[at..].iter().map(|l| (*l).to_owned()));
    out
}

fn numbers(last: usize) -> String {
    (1..=last).map(|n| format!("line {n}\n")).collect()
}

fn edit(before: &str, old: &str, new: &str) -> (String, Value, String) {
    let spliced = splice(before, old, new, Which::All).unwrap();
    let patch = structured(before, &spliced.text, &spliced.changes);
    assert_eq!(applied(before, &patch), spliced.text.lines().collect::<Vec<_>>(), "{patch}");
    let shown = excerpt(before, &spliced.text, &spliced.changes);
    (spliced.text, patch, shown)
}

#[test]
fn one_change_is_one_hunk_with_the_lines_around_it() {
    let (_, patch, shown) = edit(&numbers(20), "line 9\n", "LINE nine\nand more\n");
    assert_eq!(
        patch[0]["lines"],
        json!([
            " line 6",
            " line 7",
            " line 8",
            "-line 9",
            "+LINE nine",
            "+and more",
            " line 10",
            " line 11",
            " line 12"
        ])
    );
    assert_eq!(patch.as_array().unwrap().len(), 1);
    assert_eq!(
        shown,
        "     6\tline 6\n     7\tline 7\n     8\tline 8\n     9\tLINE nine\n    10\tand more\n    11\tline 10\n    \
         12\tline 11\n    13\tline 12"
    );
}

#[test]
fn every_kind_of_change_is_a_patch_that_applies() {
    for (before, old, new) in [
        ("a\nb\nc\n", "b\n", ""),
        ("a\nb\nc\n", "b", "x\ny"),
        ("a\nb\nc\n", "\nb", ""),
        ("a\nb\nc\n", "a\nb\nc\n", ""),
        ("a\nb\nc\n", "a", "new\na"),
        ("a\nb\nc", "c", "c\nd"),
        ("a\nb\nc", "c", ""),
        ("a\nb\nc", "b\n", "b "),
        ("a b a b\nc a\nd\n", "a", "x\ny"),
        ("a b a b\nc a\nd\n", "a ", ""),
        ("x\r\ny\r\nz\r\n", "y", "w\nv"),
        ("x\nx\nx\n", "x\n", ""),
        ("x\nx\nx\n", "x", "xx"),
    ] {
        edit(before, old, new);
    }
    // Near changes share a hunk, far ones do not.
    let before = numbers(100);
    let (_, patch, shown) = edit(&before, "0\n", "0!\n");
    assert_eq!(patch.as_array().unwrap().len(), 10);
    assert!(shown.ends_with("and 7 places more") && shown.matches("0!").count() == 3, "{shown}");
    let (_, patch, _) = edit(&before, "5\n", "5!\n6?\n");
    assert_eq!(patch.as_array().unwrap().len(), 10);
    let (_, patch, _) = edit(&numbers(9), "line", "LINE");
    assert_eq!(patch.as_array().unwrap().len(), 1);
}

#[test]
fn the_difference_of_two_texts_is_a_patch_that_applies() {
    for (before, after) in
        [("a\nb\nc\n", "a\nx\nc\n"), ("a\n", "b\n"), ("a\n", "a\nb\n"), ("a\nb\n", "a\n"), ("aé\n", "aè\n"), ("a", "")]
    {
        let patch = structured(before, after, &difference(before, after));
        assert_eq!(applied(before, &patch), after.lines().collect::<Vec<_>>(), "{before:?} {after:?} {patch}");
    }
    assert_eq!(structured("same", "same", &difference("same", "same")), json!([]));
}

#[test]
fn large_changes_are_shown_in_part_and_have_no_patch() {
    let before = "x\n".to_owned();
    let after = numbers(10_000);
    let changes = difference(&before, &after);
    assert_eq!(structured(&before, &after, &changes), json!([]));
    let shown = excerpt(&before, &after, &changes);
    assert_eq!(shown.lines().count(), LINES + 1);
    assert!(shown.ends_with("... up to line 10000"), "{shown}");
}
