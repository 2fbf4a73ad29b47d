//! Reading transcripts from their end, without a lock and without loading them: what is needed to
//! go on lies behind the last compaction, however old and large the file is.
//!
//! Called by whoever resumes, lists or settles. A line that can't be read never hides another.

use std::path::Path;

use super::StoreError;
pub use super::follow::{Follow, StartAt};
use super::lines::LinesOn;
pub use super::lines::lines_from_end;
use crate::core::agent::Outcome;
use crate::core::entry::{Boundary, Line, Talk, parse_line, parse_without_words};
use crate::core::message::Role;

/// What the end of a transcript says of its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tail {
    /// The latest run; 0 in a session's transcript and where nothing was recorded.
    pub last_run: u32,
    /// The latest outcome: of `last_run`, or of the one before if that is open.
    pub last_outcome: Option<Outcome>,
    /// `last_run`, if it has no outcome.
    pub open_run: Option<u32>,
    /// Whether lines before a compaction were left unread.
    pub is_compacted: bool,
}

/// Reads the end of a transcript, back to the last compaction.
pub fn tail(path: &Path) -> Result<Tail, StoreError> {
    read_back(path, |_| {})
}

/// Reads the end of a transcript, back to and including the last compaction, or all of it, and
/// shows `take` each line, the last one first, but for kinds that nobody here uses; of talk all but
/// the words. Nothing is kept, however large the file is.
pub fn read_back(path: &Path, mut take: impl FnMut(Line)) -> Result<Tail, StoreError> {
    let mut tail = Tail::default();
    // The parent of the earliest line of the conversation so far.
    let mut first_parent: Option<Option<String>> = None;
    let mut last_is_closed = false;
    let mut lines = lines_from_end(path)?;
    while let Some((_, bytes)) = lines.next_line()? {
        let Ok(line) = parse_without_words(bytes) else { continue };
        match &line {
            Line::Talk(talk) => {
                first_parent = Some(talk.parent_uuid.clone());
                see_run(&mut tail.last_run, &mut last_is_closed, run_of(talk), false);
            }
            Line::Outcome(outcome) => {
                see_run(&mut tail.last_run, &mut last_is_closed, outcome.run, true);
                tail.last_outcome.get_or_insert_with(|| (**outcome).clone());
            }
            Line::Boundary(boundary) => tail.is_compacted = replaces(boundary, first_parent.as_ref()),
            Line::Enqueued(_) | Line::Mode(_) => {}
            Line::Switched(_) | Line::Other => continue,
        }
        take(line);
        if tail.is_compacted {
            break;
        }
    }
    tail.open_run = (tail.last_run > 0 && !last_is_closed).then_some(tail.last_run);
    Ok(tail)
}

/// Whether a boundary stands for what was said before it. One whose writer died before the summary
/// replaces nothing: what follows it, if anything, goes on from the line before it. `next` is the
/// parent of the first line of the conversation behind it.
fn replaces(boundary: &Boundary, next: Option<&Option<String>>) -> bool {
    let before = &boundary.logical_parent_uuid;
    next.is_some_and(|parent| before.is_none() || parent != before)
}

/// Whether the words of a line were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// All of them.
    Kept,
    /// Its message has no content: together with what was said later it is too much to go on with.
    PassedOver,
}

/// Reads what is needed to go on and shows `take` each line, the first one first, but for kinds that
/// nobody here uses: from the last compaction on, or all. Lines that are `most` bytes or more from
/// the end are shown without their words, but for the first that a user said.
pub fn read_tail(path: &Path, most: u64, mut take: impl FnMut(Line, Words)) -> Result<(), StoreError> {
    let (start, words_from) = find_tail(path, most)?;
    let mut lines = LinesOn::open(path, start)?;
    let mut is_first = true;
    while let Some((at, bytes)) = lines.next_line()? {
        let mut words = if at < words_from { Words::PassedOver } else { Words::Kept };
        let read = if words == Words::Kept { parse_line(bytes) } else { parse_without_words(bytes) };
        let Ok(mut line) = read else { continue };
        if let Line::Talk(talk) = &line
            && talk.kind == Role::User
            && std::mem::take(&mut is_first)
            && words == Words::PassedOver
            && let Ok(whole) = parse_line(bytes)
        {
            (line, words) = (whole, Words::Kept);
        }
        if !matches!(line, Line::Switched(_) | Line::Other) {
            take(line, words);
        }
    }
    Ok(())
}

/// Where the tail of a transcript begins, and where the lines that are less than `most` bytes from
/// its end do. Looks at nothing but whether a line may be a boundary.
fn find_tail(path: &Path, most: u64) -> Result<(u64, u64), StoreError> {
    let boundary = memchr::memmem::Finder::new("compact_boundary");
    let mut lines = lines_from_end(path)?;
    let end = lines.start();
    let mut words_from = end;
    while let Some((at, bytes)) = lines.next_line()? {
        if end - at < most {
            words_from = at;
        }
        if boundary.find(bytes).is_some()
            && let Ok(Line::Boundary(boundary)) = parse_line(bytes)
            && replaces(&boundary, first_parent(path, at)?.as_ref())
        {
            return Ok((at, words_from));
        }
    }
    Ok((0, words_from))
}

/// The parent of the first line of the conversation that stands at `from` or behind.
fn first_parent(path: &Path, from: u64) -> Result<Option<Option<String>>, StoreError> {
    let mut lines = LinesOn::open(path, from)?;
    while let Some((_, bytes)) = lines.next_line()? {
        if let Ok(Line::Talk(talk)) = parse_without_words(bytes) {
            return Ok(Some(talk.parent_uuid));
        }
    }
    Ok(None)
}

fn see_run(last: &mut u32, closed: &mut bool, run: u32, ended: bool) {
    if run > *last {
        (*last, *closed) = (run, ended);
    } else if run == *last {
        *closed |= ended;
    }
}

/// The run a line belongs to. Agents of other programs know no runs: theirs is the first. A
/// session's lines belong to none: 0.
pub(super) fn run_of(talk: &Talk) -> u32 {
    talk.run.unwrap_or(u32::from(talk.is_sidechain))
}

/// Outcomes of the runs after `run`, oldest first: what may not have been told yet when an agent
/// was resumed before its owner heard of the run before. Reads back to run `run` only.
pub fn outcomes_since(path: &Path, run: u32) -> Result<Vec<Outcome>, StoreError> {
    let mut found = Vec::new();
    for bytes in lines_from_end(path)? {
        let seen = match parse_line(&bytes?) {
            Ok(Line::Outcome(outcome)) => {
                let seen = outcome.run;
                if seen > run {
                    found.push(*outcome);
                }
                seen
            }
            Ok(Line::Talk(talk)) => run_of(&talk),
            _ => continue,
        };
        if seen <= run {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
