//! Reading transcripts from their end, without a lock and without loading them: what is needed to
//! go on lies behind the last compaction, however old and large the file is.
//!
//! Called by whoever resumes, lists or settles. A line that can't be read never hides another; an
//! unfinished last line is what a writer left that died in the middle, or is just being written,
//! and is skipped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::StoreError;
pub use super::follow::{Follow, StartAt};
use crate::core::agent::Outcome;
use crate::core::entry::{Line, Talk, parse_line};
use crate::core::limits;

/// First read; enough for most tails.
const FIRST_CHUNK: usize = 64 << 10;
/// Later reads.
const CHUNK: usize = 256 << 10;
/// Lines of more bytes are skipped. We write shorter ones only (`limits::ENTRY_BYTES`); a file of
/// another kind must not fill the memory.
const LONGEST_LINE: usize = 4 * limits::ENTRY_BYTES;

/// Lines of a file, last first. Empty ones and an unfinished last one are left out.
#[derive(Debug)]
pub struct LinesFromEnd {
    file: File,
    path: PathBuf,
    /// What was read and not handed out yet; ends where the line before the last one handed out
    /// ends.
    buffer: Vec<u8>,
    /// Where `buffer` begins in the file.
    start: u64,
    chunk: usize,
    longest: usize,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing was handed out: what comes next has no newline behind it.
    AtEnd,
    Within,
    /// Inside a line that is too long to keep.
    Skipping,
    Done,
}

/// Opens `path` for reading from its end.
pub fn lines_from_end(path: &Path) -> Result<LinesFromEnd, StoreError> {
    let file = File::open(path).map_err(StoreError::at(path, "open"))?;
    let start = file.metadata().map_err(StoreError::at(path, "examine"))?.len();
    Ok(LinesFromEnd {
        file,
        path: path.to_owned(),
        buffer: Vec::new(),
        start,
        chunk: FIRST_CHUNK,
        longest: LONGEST_LINE,
        progress: Progress::AtEnd,
    })
}

impl LinesFromEnd {
    /// The next line and how its end was found; `None` at the beginning of the file.
    fn step(&mut self) -> Result<Option<(Vec<u8>, Progress)>, StoreError> {
        while self.progress != Progress::Done {
            if let Some(newline) = memchr::memrchr(b'\n', &self.buffer) {
                let line = self.buffer.split_off(newline + 1);
                self.buffer.pop();
                return Ok(Some(self.found(line, Progress::Within)));
            }
            if self.start == 0 {
                let line = std::mem::take(&mut self.buffer);
                return Ok(Some(self.found(line, Progress::Done)));
            }
            if self.buffer.len() > self.longest {
                self.buffer = Vec::new();
                self.progress = Progress::Skipping;
            }
            self.fill()?;
        }
        Ok(None)
    }

    fn found(&mut self, line: Vec<u8>, next: Progress) -> (Vec<u8>, Progress) {
        let progress = std::mem::replace(&mut self.progress, next);
        if line.len() > self.longest { (Vec::new(), Progress::Skipping) } else { (line, progress) }
    }

    /// Reads what lies before `buffer`: at least as much as there is already, so that a long line
    /// is not copied over and over.
    fn fill(&mut self) -> Result<(), StoreError> {
        let want = self.chunk.max(self.buffer.len()).min(usize::try_from(self.start).unwrap_or(usize::MAX));
        self.chunk = CHUNK;
        let from = self.start - want as u64;
        let mut bytes = vec![0; want];
        let got = read_fully_at(&self.file, &mut bytes, from).map_err(StoreError::at(&self.path, "read"))?;
        if got < want {
            // Only the end can go away, and only by its writer's cutting a torn line off.
            if !self.buffer.is_empty() {
                return Err(StoreError::damaged(&self.path, "it became shorter while it was read"));
            }
            bytes.truncate(got);
        }
        bytes.append(&mut self.buffer);
        self.buffer = bytes;
        self.start = from;
        Ok(())
    }
}

impl Iterator for LinesFromEnd {
    type Item = Result<Vec<u8>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Some((line, Progress::AtEnd))) if !is_object(&line) => {}
                Ok(Some((line, Progress::Within | Progress::AtEnd))) if !line.is_empty() => return Some(Ok(line)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(e) => {
                    self.progress = Progress::Done;
                    return Some(Err(e));
                }
            }
        }
    }
}

/// Reads into `bytes` from `offset` until it is full or the file ends; how much it was.
pub(super) fn read_fully_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// Whether a line without newline is whole: some programs write their last line without one.
pub(super) fn is_object(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// The end of a transcript, as far as it is needed to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tail {
    /// Back to and including the last compaction, or all; oldest first; without lines of kinds
    /// that nobody here uses.
    pub lines: Vec<Line>,
    /// The latest run; 0 in a session's transcript and where nothing was recorded.
    pub last_run: u32,
    /// The latest outcome in `lines`: of `last_run`, or of the one before if that is open.
    pub last_outcome: Option<Outcome>,
    /// `last_run`, if it has no outcome.
    pub open_run: Option<u32>,
}

/// Reads the end of a transcript. Needs memory for what it returns.
pub fn tail(path: &Path) -> Result<Tail, StoreError> {
    let mut tail = Tail::default();
    // The parent of the earliest line of the conversation so far.
    let mut first_parent: Option<Option<String>> = None;
    let mut last_is_closed = false;
    for bytes in lines_from_end(path)? {
        let Ok(line) = parse_line(&bytes?) else { continue };
        match &line {
            Line::Talk(talk) => {
                first_parent = Some(talk.parent_uuid.clone());
                see_run(&mut tail.last_run, &mut last_is_closed, run_of(talk), false);
            }
            Line::Outcome(outcome) => {
                see_run(&mut tail.last_run, &mut last_is_closed, outcome.run, true);
                tail.last_outcome.get_or_insert_with(|| (**outcome).clone());
            }
            Line::Enqueued(_) | Line::Mode(_) | Line::Boundary(_) => {}
            Line::Switched(_) | Line::Other => continue,
        }
        let enough = match (&line, &first_parent) {
            // A boundary whose writer died before the summary replaces nothing: what follows it, if
            // anything, goes on from the line before it.
            (Line::Boundary(boundary), Some(parent)) => {
                boundary.logical_parent_uuid.is_none() || *parent != boundary.logical_parent_uuid
            }
            _ => false,
        };
        tail.lines.push(line);
        if enough {
            break;
        }
    }
    tail.lines.reverse();
    tail.open_run = (tail.last_run > 0 && !last_is_closed).then_some(tail.last_run);
    Ok(tail)
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
