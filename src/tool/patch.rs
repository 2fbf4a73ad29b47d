//! What a change did, for the model (a numbered excerpt) and for programs (`structuredPatch`). Pure.

use std::ops::Range;

use serde_json::{Value, json};

use super::lines::numbered;
use super::splice::common;

/// Lines shown around a change.
const AROUND: usize = 3;
/// Hunks and lines of an excerpt.
const HUNKS: usize = 3;
const LINES: usize = 40;
/// Bytes of a patch; of a larger change there is none, since both texts are known anyway.
const PATCH_BYTES: usize = 64 << 10;

/// A piece of one text that became a piece of another, in bytes. What stands between pieces is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub old: Range<usize>,
    pub new: Range<usize>,
}

/// The one change between two texts: from the first to the last difference.
pub(super) fn difference(before: &str, after: &str) -> Vec<Change> {
    let (head, tail) = common(before, after);
    let change = Change { old: head..before.len() - tail, new: head..after.len() - tail };
    if change.old.is_empty() && change.new.is_empty() { Vec::new() } else { vec![change] }
}

/// Whole lines that belong together: some changes and what is around them.
struct Hunk {
    /// Whole lines that changed, in order.
    changes: Vec<Change>,
    /// With the lines around them.
    old: Range<usize>,
    new: Range<usize>,
    /// Numbers of the first lines.
    old_line: usize,
    new_line: usize,
}

/// The changes with whole lines; those that touch the same line are one.
fn whole_lines(before: &str, after: &str, changes: &[Change]) -> Vec<Change> {
    let mut out: Vec<Change> = Vec::new();
    for change in changes {
        let begin = line_start(before, change.old.start);
        let old = begin..change.old.end;
        // What stands before it on its line is the same in both, unless an earlier change is there.
        let new = line_start(after, change.new.start)..change.new.end;
        match out.last_mut() {
            Some(last) if begin < last.old.end => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => out.push(Change { old, new }),
        }
        if let Some(last) = out.last_mut() {
            let at_line = |text: &str, at: usize| at == 0 || text.as_bytes()[at - 1] == b'\n';
            if !(at_line(before, last.old.end) && at_line(after, last.new.end)) {
                last.old.end = line_end(before, last.old.end);
                last.new.end = line_end(after, last.new.end);
            }
        }
    }
    out
}

fn hunks(before: &str, after: &str, changes: &[Change]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let (mut old_at, mut new_at) = (Counter::default(), Counter::default());
    for change in whole_lines(before, after, changes) {
        let old = lines_before(before, change.old.start)..lines_after(before, change.old.end);
        let new = lines_before(after, change.new.start)..lines_after(after, change.new.end);
        match hunks.last_mut() {
            Some(last) if old.start <= last.old.end => {
                (last.old.end, last.new.end) = (old.end, new.end);
                last.changes.push(change);
            }
            _ => {
                let (old_line, new_line) = (old_at.line(before, old.start), new_at.line(after, new.start));
                hunks.push(Hunk { changes: vec![change], old, new, old_line, new_line });
            }
        }
    }
    hunks
}

/// The changes as hunks of a unified diff; none if they are too large.
pub(super) fn structured(before: &str, after: &str, changes: &[Change]) -> Value {
    let mut out = Vec::new();
    let mut bytes = 0;
    for hunk in hunks(before, after, changes) {
        let mut lines = Vec::new();
        let mut put = |mark: char, text: &str| {
            bytes += text.len();
            if bytes <= PATCH_BYTES {
                lines.extend(text.lines().map(|line| format!("{mark}{line}")));
            }
        };
        let mut at = hunk.old.start;
        for change in &hunk.changes {
            put(' ', &before[at..change.old.start]);
            put('-', &before[change.old.clone()]);
            put('+', &after[change.new.clone()]);
            at = change.old.end;
        }
        put(' ', &before[at..hunk.old.end]);
        if bytes > PATCH_BYTES {
            return json!([]);
        }
        out.push(json!({
            "oldStart": hunk.old_line,
            "oldLines": before[hunk.old.clone()].lines().count(),
            "newStart": hunk.new_line,
            "newLines": after[hunk.new.clone()].lines().count(),
            "lines": lines,
        }));
    }
    Value::Array(out)
}

/// The lines around the changes as they are now, with their numbers.
pub(super) fn excerpt(before: &str, after: &str, changes: &[Change]) -> String {
    let hunks = hunks(before, after, changes);
    let mut out = String::new();
    for (n, hunk) in hunks.iter().take(HUNKS).enumerate() {
        if n > 0 {
            out.push_str("   ...\n");
        }
        let lines: Vec<&str> = after[hunk.new.clone()].lines().collect();
        for (number, line) in (hunk.new_line..).zip(&lines).take(LINES / hunks.len().min(HUNKS)) {
            out.push_str(&numbered(number, line, line.len()));
        }
        if lines.len() > LINES / hunks.len().min(HUNKS) {
            out.push_str(&format!("   ... up to line {}\n", hunk.new_line + lines.len() - 1));
        }
    }
    if hunks.len() > HUNKS {
        out.push_str(&format!("   ... and {} places more\n", hunks.len() - HUNKS));
    }
    out.truncate(out.trim_end().len());
    out
}

/// Counts lines up to places that only go forward.
#[derive(Default)]
struct Counter {
    at: usize,
    newlines: usize,
}

impl Counter {
    fn line(&mut self, text: &str, place: usize) -> usize {
        self.newlines += memchr::memchr_iter(b'\n', &text.as_bytes()[self.at..place]).count();
        self.at = place;
        self.newlines + 1
    }
}

fn line_start(text: &str, at: usize) -> usize {
    memchr::memrchr(b'\n', &text.as_bytes()[..at]).map_or(0, |newline| newline + 1)
}

/// Behind the end of the line that `at` is in.
fn line_end(text: &str, at: usize) -> usize {
    memchr::memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |newline| at + newline + 1)
}

fn lines_before(text: &str, line: usize) -> usize {
    (0..AROUND).fold(line, |at, _| if at == 0 { 0 } else { line_start(text, at - 1) })
}

fn lines_after(text: &str, line: usize) -> usize {
    (0..AROUND).fold(line, |at, _| line_end(text, at))
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
