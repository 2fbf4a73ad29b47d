//! Text in rows of a width, measured as terminals measure it. Pure.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Where a row may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// Between words; within one that is longer than a row.
    Words,
    /// Anywhere between two characters.
    Anywhere,
}

/// The rows of `text`, which has no newline, as ranges of its bytes: the first of at most `first`
/// columns, the others of `rest`. There is always one. Each takes one character at least, even where
/// that is wider than the row. Between words, the spaces at a row's end are in none.
pub(super) fn rows_of(text: &str, first: usize, rest: usize, breaks: Break) -> Vec<Range<usize>> {
    let mut rows: Vec<Range<usize>> = Vec::new();
    let (mut start, mut at, mut columns) = (0, 0, 0);
    // Where the next row would begin if a word has to move to it.
    let mut word = 0;
    while let Some(grapheme) = text[at..].graphemes(true).next() {
        let limit = if rows.is_empty() { first } else { rest };
        let end = at + grapheme.len();
        columns += grapheme.width();
        let is_space = breaks == Break::Words && grapheme == " ";
        if columns <= limit || at == start {
            at = end;
            word = if is_space { end } else { word };
            continue;
        }
        rows.push(start..at);
        start = match breaks {
            Break::Words if is_space => end,
            Break::Words if word > start => word,
            Break::Words | Break::Anywhere => at,
        };
        if let Some(row) = rows.last_mut() {
            row.end = start.min(at);
        }
        (at, columns) = (start, 0);
    }
    rows.push(start..text.len());
    if breaks == Break::Words {
        rows.iter_mut().for_each(|row| row.end = row.start + text[row.clone()].trim_end_matches(' ').len());
    }
    rows
}

/// As much of `text` as has room in `columns`; an ellipsis marks a cut.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |grapheme: &&str| left.checked_sub(grapheme.width()).map(|rest| left = rest).is_some();
    let mut out: String = text.graphemes(true).take_while(fits).collect();
    if columns > 0 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, first: usize, rest: usize, breaks: Break) -> Vec<&str> {
        rows_of(text, first, rest, breaks).into_iter().map(|row| &text[row]).collect()
    }

    #[test]
    fn words_stay_whole_where_they_fit_in_a_row() {
        assert_eq!(rows("", 5, 5, Break::Words), [""]);
        assert_eq!(rows("abcde", 5, 5, Break::Words), ["abcde"]);
        assert_eq!(rows("abcde f", 5, 5, Break::Words), ["abcde", "f"]);
        assert_eq!(rows("one two three", 8, 5, Break::Words), ["one two", "three"]);
        assert_eq!(rows("a bcdefghij", 4, 4, Break::Words), ["a", "bcde", "fghi", "j"]);
        assert_eq!(rows("   a   b   ", 5, 5, Break::Words), ["   a", " b"]);
        assert_eq!(rows("one two", 5, 5, Break::Anywhere), ["one t", "wo"]);
    }

    #[test]
    fn wide_characters_and_clusters_are_never_split() {
        assert_eq!(rows("研究員", 5, 5, Break::Words), ["研究", "員"]);
        assert_eq!(rows("a研究", 2, 2, Break::Anywhere), ["a", "研", "究"]);
        assert_eq!(rows("研究", 1, 1, Break::Anywhere), ["研", "究"], "wider than the row, but not lost");
        assert_eq!(rows("e\u{301}e\u{301}", 1, 1, Break::Anywhere), ["e\u{301}", "e\u{301}"]);
        assert_eq!(rows("ab", 0, 0, Break::Anywhere), ["a", "b"]);
    }

    #[test]
    fn a_cut_is_marked_and_fits() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("研究員", 4), "研…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }

    proptest! {
        #[test]
        fn rows_fit_and_together_are_the_text(text in "[a研é🙂 \u{301}]{0,60}", first in 2_usize..20, rest in 2_usize..20) {
            for breaks in [Break::Words, Break::Anywhere] {
                let all = rows(&text, first, rest, breaks);
                if breaks == Break::Anywhere {
                    prop_assert_eq!(all.concat(), text.clone());
                }
                prop_assert_eq!(all.concat().replace(' ', ""), text.replace(' ', ""));
                for (n, row) in all.iter().enumerate() {
                    prop_assert!(row.width() <= if n == 0 { first } else { rest }, "{:?} of {:?}", row, text);
                }
            }
        }
    }
}
