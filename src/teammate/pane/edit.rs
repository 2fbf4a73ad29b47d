//! The text of the input line and its cursor. Pure. Positions are between graphemes, so that what
//! looks like one character is one.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::wrap::{Break, rows_of};
use crate::core::text::for_terminal;

/// A text that is being written; it may have several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Editor {
    text: String,
    /// The byte before which the cursor stands.
    at: usize,
}

/// The text in rows of some width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Bytes of the text; each line has a row at least.
    pub(super) rows: Vec<Range<usize>>,
    /// The cursor's row.
    pub(super) row: usize,
    /// Its column.
    pub(super) column: usize,
}

impl Editor {
    /// With the cursor at its end.
    pub(super) fn of(text: String) -> Self {
        Self { at: text.len(), text }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Without what a terminal could obey; every kind of line end becomes a newline.
    pub(super) fn insert(&mut self, text: &str) {
        let text = for_terminal(&text.replace("\r\n", "\n").replace('\r', "\n"));
        self.text.insert_str(self.at, &text);
        self.at += text.len();
        // It may have joined what stood there to one character.
        self.at = self.boundary_from(self.at);
    }

    pub(super) fn backspace(&mut self) {
        self.delete(self.before()..self.at);
    }

    pub(super) fn delete_next(&mut self) {
        self.delete(self.at..self.after());
    }

    pub(super) fn kill_to_start(&mut self) {
        self.delete(self.line().start..self.at);
    }

    pub(super) fn kill_to_end(&mut self) {
        self.delete(self.at..self.line().end);
    }

    pub(super) fn kill_word(&mut self) {
        self.delete(self.word_before()..self.at);
    }

    pub(super) fn left(&mut self) {
        self.at = self.before();
    }

    pub(super) fn right(&mut self) {
        self.at = self.after();
    }

    pub(super) fn word_left(&mut self) {
        self.at = self.word_before();
    }

    pub(super) fn word_right(&mut self) {
        let left = &self.text[self.at..];
        let word = left.trim_start();
        let end = word.find(char::is_whitespace).unwrap_or(word.len());
        self.at += left.len() - word.len() + end;
    }

    pub(super) fn line_start(&mut self) {
        self.at = self.line().start;
    }

    pub(super) fn line_end(&mut self) {
        self.at = self.line().end;
    }

    /// To the row above in rows of `columns`; false in the first.
    pub(super) fn up(&mut self, columns: usize) -> bool {
        let rows = self.rows(columns);
        rows.row.checked_sub(1).is_some_and(|row| self.go_to(&rows, row))
    }

    /// To the row below in rows of `columns`; false in the last.
    pub(super) fn down(&mut self, columns: usize) -> bool {
        let rows = self.rows(columns);
        self.go_to(&rows, rows.row + 1)
    }

    /// In rows of at most `columns`.
    pub(super) fn rows(&self, columns: usize) -> Rows {
        let mut rows = Vec::new();
        let mut start = 0;
        for line in self.text.split('\n') {
            let of_line = rows_of(line, columns, columns, Break::Anywhere);
            rows.extend(of_line.into_iter().map(|row| row.start + start..row.end + start));
            start += line.len() + 1;
        }
        // The cursor behind a row's end is at the start of the next, if that goes on with the line.
        let row = rows.iter().rposition(|row| row.start <= self.at).unwrap_or(0);
        let column = self.text[rows[row].start..self.at].width();
        Rows { rows, row, column }
    }

    fn go_to(&mut self, rows: &Rows, row: usize) -> bool {
        let Some(range) = rows.rows.get(row) else { return false };
        let mut columns = rows.column;
        let mut at = range.start;
        for grapheme in self.text[range.clone()].graphemes(true) {
            let Some(left) = columns.checked_sub(grapheme.width()) else { break };
            columns = left;
            at += grapheme.len();
        }
        // Behind the last character of a row would be the next row.
        let goes_on = rows.rows.get(row + 1).is_some_and(|next| next.start == range.end);
        self.at = at;
        if goes_on && at == range.end {
            self.at = self.before().max(range.start);
        }
        true
    }

    fn delete(&mut self, range: Range<usize>) {
        self.at = range.start;
        self.text.drain(range);
        self.at = self.boundary_from(self.at);
    }

    /// The first boundary at or after a byte.
    fn boundary_from(&self, at: usize) -> usize {
        let line = self.line_at(at);
        let boundaries = self.text[line.clone()].grapheme_indices(true).map(|(byte, _)| line.start + byte);
        boundaries.chain([line.end]).find(|byte| *byte >= at).unwrap_or(line.end)
    }

    fn before(&self) -> usize {
        self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        self.text[self.at..].graphemes(true).next().map_or(self.at, |grapheme| self.at + grapheme.len())
    }

    fn word_before(&self) -> usize {
        let before = self.text[..self.at].trim_end();
        before.rfind(char::is_whitespace).map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8))
    }

    fn line(&self) -> Range<usize> {
        self.line_at(self.at)
    }

    fn line_at(&self, at: usize) -> Range<usize> {
        let start = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text with `|` where the cursor is.
    fn shown(editor: &Editor) -> String {
        format!("{}|{}", &editor.text[..editor.at], &editor.text[editor.at..])
    }

    fn editor(shown: &str) -> Editor {
        let (before, after) = shown.split_once('|').unwrap();
        Editor { text: format!("{before}{after}"), at: before.len() }
    }

    type Change = fn(&mut Editor);

    #[test]
    fn changes() {
        let table: [(&str, Change, &str); 22] = [
            ("a研|b", Editor::backspace, "a|b"),
            ("|ab", Editor::backspace, "|ab"),
            ("a|e\u{301}b", Editor::delete_next, "a|b"),
            ("ab|", Editor::delete_next, "ab|"),
            ("ae\u{301}|", Editor::left, "a|e\u{301}"),
            ("|👩‍👩‍👧b", Editor::right, "👩‍👩‍👧|b"),
            ("|", Editor::left, "|"),
            ("|", Editor::right, "|"),
            ("one two  |", Editor::word_left, "one |two  "),
            ("|one", Editor::word_left, "|one"),
            ("one|  two x", Editor::word_right, "one  two| x"),
            ("one|", Editor::word_right, "one|"),
            ("one two|x", Editor::kill_word, "one |x"),
            ("one  |", Editor::kill_word, "|"),
            ("a\nbc|d", Editor::kill_to_start, "a\n|d"),
            ("a\nb|cd\ne", Editor::kill_to_end, "a\nb|\ne"),
            ("a\nb|c", Editor::line_start, "a\n|bc"),
            ("a|b\nc", Editor::line_end, "ab|\nc"),
            ("a\n|", Editor::backspace, "a|"),
            ("a|b", |e| e.insert("x\r\ny\rz\u{1b}[2J"), "ax\ny\nz[2J|b"),
            ("e|x", |e| e.insert("\u{301}"), "e\u{301}|x"),
            ("e\n|\u{301}", Editor::backspace, "e\u{301}|"),
        ];
        for (before, change, after) in table {
            let mut editor = editor(before);
            change(&mut editor);
            assert_eq!(shown(&editor), after, "of {before:?}");
        }
    }

    #[test]
    fn rows_end_with_the_line_or_their_width_and_the_cursor_is_in_one() {
        let rows = |shown: &str, columns| {
            let editor = editor(shown);
            let Rows { rows, row, column } = editor.rows(columns);
            (rows.into_iter().map(|row| editor.text[row].to_owned()).collect::<Vec<_>>(), row, column)
        };
        assert_eq!(rows("|", 4), (vec!["".into()], 0, 0));
        assert_eq!(rows("abcd|", 4), (vec!["abcd".into()], 0, 4));
        assert_eq!(rows("abcd|e", 4), (vec!["abcd".into(), "e".into()], 1, 0));
        assert_eq!(rows("ab\n|", 4), (vec!["ab".into(), "".into()], 1, 0));
        assert_eq!(rows("ab|\n", 4), (vec!["ab".into(), "".into()], 0, 2));
        assert_eq!(rows("研究|員", 5), (vec!["研究".into(), "員".into()], 1, 0));
        assert_eq!(rows("研究員|", 5), (vec!["研究".into(), "員".into()], 1, 2));
    }

    #[test]
    fn up_and_down_keep_the_column_where_they_can() {
        let mut it = editor("abcdef\nx\n研究|");
        assert!(it.up(4) && shown(&it) == "abcdef\nx|\n研究");
        assert!(it.up(4) && shown(&it) == "abcde|f\nx\n研究");
        assert!(it.up(4) && shown(&it) == "a|bcdef\nx\n研究");
        assert!(!it.up(4));
        let mut it = editor("abc|d\nabcdef");
        assert!(it.down(4) && shown(&it) == "abcd\nabc|def");
        assert!(it.down(4) && shown(&it) == "abcd\nabcdef|");
        assert!(!it.down(4));
        let mut it = editor("abcdxyz\nabcd|");
        assert!(it.up(4) && it.up(4), "not stuck at the end of a row that goes on");
        assert_eq!(shown(&it), "abc|dxyz\nabcd");
    }

    proptest! {
        #[test]
        fn nothing_leaves_the_cursor_within_a_character(
            text in "[a研é\u{301}\u{200d}👩 \n]{0,30}", steps in proptest::collection::vec(0_usize..14, 0..40), columns in 1_usize..9,
        ) {
            let mut it = Editor::of(text);
            for step in steps {
                match step {
                    0 => it.backspace(),
                    1 => it.delete_next(),
                    2 => it.left(),
                    3 => it.right(),
                    4 => it.word_left(),
                    5 => it.word_right(),
                    6 => it.kill_word(),
                    7 => it.line_start(),
                    8 => it.line_end(),
                    9 => it.kill_to_start(),
                    10 => { it.up(columns); }
                    11 => { it.down(columns); }
                    12 => it.insert("\u{301}\u{200d}"),
                    _ => it.insert("研a\n"),
                }
                prop_assert!(it.text.is_char_boundary(it.at));
                let rows = it.rows(columns);
                // A cluster that is wider than a row stands alone in it.
                let of_row = it.text[rows.rows[rows.row].clone()].graphemes(true).count();
                prop_assert!(rows.column <= columns || of_row == 1, "{:?}", rows);
            }
        }
    }
}
