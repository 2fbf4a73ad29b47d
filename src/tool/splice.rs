//! Replaces a piece of text by another, once or everywhere. Pure.
//!
//! A model sees lines without their ends, so a newline it gives stands for whatever ends the line in
//! the file: texts are compared with CRLF taken as LF, and what is put in gets the ends of the lines
//! it replaces, or those around it. All other bytes stay as they are.

use std::borrow::Cow;
use std::ops::Range;

use super::patch::Change;
use crate::core::limits::EDIT_BYTES;

/// Most pieces that are replaced at once.
const PLACES: usize = 100_000;

/// A text that was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spliced {
    pub text: String,
    /// In order.
    pub changes: Vec<Change>,
}

/// Why nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoSplice {
    /// Old and new are the same; or they differ only in how lines end.
    Same { but_line_ends: bool },
    /// There is no such piece.
    Absent,
    /// There are several, which begin in these lines.
    Several { count: usize, lines: Vec<usize> },
    /// There are more than are replaced.
    TooMany,
    /// The result would be larger than can be edited.
    TooLarge { bytes: usize },
}

/// Which pieces are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The only one there is.
    Only,
    All,
}

/// Replaces `old`, which is not empty, in `text` by `new`.
pub(super) fn splice(text: &str, old: &str, new: &str, which: Which) -> Result<Spliced, NoSplice> {
    let (old_flat, new_flat) = (flat(old), flat(new));
    if old_flat == new_flat {
        return Err(NoSplice::Same { but_line_ends: old != new });
    }
    let file = Flat::of(text);
    let places = match which {
        Which::Only => overlapping(&file.text, &old_flat),
        Which::All => file.text.match_indices(&*old_flat).map(|(at, _)| at).take(PLACES + 1).collect(),
    };
    match (which, places.len()) {
        (_, 0) => return Err(NoSplice::Absent),
        (_, count) if count > PLACES => return Err(NoSplice::TooMany),
        (Which::All, _) | (_, 1) => {}
        (Which::Only, count) => return Err(NoSplice::Several { count, lines: lines_of(&file.text, &places) }),
    }
    // Only what differs is replaced, so that lines which stay keep their ends.
    let (head, tail) = common(&old_flat, &new_flat);
    let (old_core, new_core) = (&old_flat[head..old_flat.len() - tail], &new_flat[head..new_flat.len() - tail]);
    let bytes = text.len().saturating_add(new_core.len().saturating_mul(2 * places.len()));
    if bytes > 4 * EDIT_BYTES {
        return Err(NoSplice::TooLarge { bytes });
    }
    let mut out = String::with_capacity(text.len() + new_core.len());
    let mut changes = Vec::with_capacity(places.len());
    let mut done = 0;
    for place in places {
        let core = place + head..place + head + old_core.len();
        let span = file.original(core.start)..file.original(core.end);
        out.push_str(&text[done..span.start]);
        let begin = out.len();
        file.put_in(&core, new_core, &mut out);
        done = span.end;
        changes.push(Change { old: span, new: begin..out.len() });
    }
    out.push_str(&text[done..]);
    if out.len() > EDIT_BYTES {
        return Err(NoSplice::TooLarge { bytes: out.len() });
    }
    Ok(Spliced { text: out, changes })
}

/// A text with CRLF as LF.
fn flat(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

struct Flat<'a> {
    text: Cow<'a, str>,
    /// Where in it a newline stands for CRLF, in order.
    crlf: Vec<usize>,
}

impl<'a> Flat<'a> {
    fn of(text: &'a str) -> Self {
        let crlf = text.match_indices("\r\n").enumerate().map(|(before, (at, _))| at - before).collect();
        Self { text: flat(text), crlf }
    }

    /// The place in the original text. That of a newline is that of its carriage return.
    fn original(&self, at: usize) -> usize {
        at + self.crlf.partition_point(|crlf| *crlf < at)
    }

    fn end_at(&self, newline: usize) -> &'static str {
        if self.crlf.binary_search(&newline).is_ok() { "\r\n" } else { "\n" }
    }

    /// How lines end about here: the next end, else the one before.
    fn end_near(&self, at: usize) -> &'static str {
        let bytes = self.text.as_bytes();
        let next = memchr::memchr(b'\n', &bytes[at..]).map(|n| at + n);
        next.or_else(|| memchr::memrchr(b'\n', &bytes[..at])).map_or("\n", |newline| self.end_at(newline))
    }

    /// Appends `new`, which replaces what is at `old`. A line that was there before keeps its end.
    fn put_in(&self, old: &Range<usize>, new: &str, out: &mut String) {
        if self.crlf.is_empty() {
            return out.push_str(new);
        }
        let usual = self.end_near(old.start);
        let replaced = &self.text[old.clone()];
        let newlines = memchr::memchr_iter(b'\n', replaced.as_bytes()).map(|at| old.start + at);
        let known: Vec<(&str, usize)> = replaced.split('\n').zip(newlines).collect();
        let mut known = known.as_slice();
        for line in new.split_inclusive('\n') {
            let Some(words) = line.strip_suffix('\n') else {
                out.push_str(line);
                continue;
            };
            out.push_str(words);
            match known.iter().position(|(before, _)| *before == words) {
                Some(at) => {
                    out.push_str(self.end_at(known[at].1));
                    known = &known[at + 1..];
                }
                None => out.push_str(usual),
            }
        }
    }
}

/// All places, also those that overlap: none of them would be the only one.
fn overlapping(text: &str, piece: &str) -> Vec<usize> {
    let step = piece.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(found) = text[from..].find(piece)
        && places.len() <= PLACES
    {
        places.push(from + found);
        from += found + step;
    }
    places
}

/// The lines in which `places` (ascending) are, each once.
fn lines_of(text: &str, places: &[usize]) -> Vec<usize> {
    let (mut line, mut at) = (1, 0);
    let mut lines = Vec::new();
    for place in places {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[at..*place]).count();
        at = *place;
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Bytes that two texts have in common at the beginning, and of the rest at the end.
pub(super) fn common(a: &str, b: &str) -> (usize, usize) {
    let same = |(x, y): &(u8, u8)| x == y;
    let mut head = a.bytes().zip(b.bytes()).take_while(same).count();
    while !a.is_char_boundary(head) {
        head -= 1;
    }
    let (a, b) = (&a[head..], &b[head..]);
    let mut tail = a.bytes().rev().zip(b.bytes().rev()).take_while(same).count();
    while !a.is_char_boundary(a.len() - tail) {
        tail -= 1;
    }
    (head, tail)
}

#[cfg(test)]
#[path = "splice_tests.rs"]
mod tests;
