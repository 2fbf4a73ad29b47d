//! Lines of a file, from its end back or from a place on, without loading it. Whoever knows what the
//! lines are reads them through this: `reader`, and all who look for the latest of something.
//!
//! An unfinished last line is what a writer left that died in the middle, or is just being written,
//! and is skipped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::StoreError;
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
    /// What was read of the file; the first `end` bytes were not handed out yet, and end where the
    /// line before the last one handed out ends.
    buffer: Vec<u8>,
    end: usize,
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
        end: 0,
        start,
        chunk: FIRST_CHUNK,
        longest: LONGEST_LINE,
        progress: Progress::AtEnd,
    })
}

impl LinesFromEnd {
    /// Where what was not read yet ends; before anything was read, the length of the file.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The next line, which lives until the one after it is asked for, and where it begins; `None` at
    /// the beginning of the file.
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, StoreError> {
        loop {
            match self.step()? {
                Some((line, Progress::AtEnd)) if !is_object(&self.buffer[line.clone()]) => {}
                Some((line, Progress::Within | Progress::AtEnd)) if !line.is_empty() => {
                    return Ok(Some((self.start + line.start as u64, &self.buffer[line])));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Where in the buffer the next line is, and how its end was found.
    fn step(&mut self) -> Result<Option<(Range<usize>, Progress)>, StoreError> {
        while self.progress != Progress::Done {
            if let Some(newline) = memchr::memrchr(b'\n', &self.buffer[..self.end]) {
                let line = newline + 1..std::mem::replace(&mut self.end, newline);
                return Ok(Some(self.found(line, Progress::Within)));
            }
            if self.start == 0 {
                let line = 0..std::mem::take(&mut self.end);
                return Ok(Some(self.found(line, Progress::Done)));
            }
            if self.end > self.longest {
                self.end = 0;
                self.progress = Progress::Skipping;
            }
            self.fill()?;
        }
        Ok(None)
    }

    fn found(&mut self, line: Range<usize>, next: Progress) -> (Range<usize>, Progress) {
        let progress = std::mem::replace(&mut self.progress, next);
        if line.len() > self.longest { (line, Progress::Skipping) } else { (line, progress) }
    }

    /// Reads what lies before the buffer: at least as much as waits in it already, so that a long
    /// line is not moved over and over.
    fn fill(&mut self) -> Result<(), StoreError> {
        let want = self.chunk.max(self.end).min(usize::try_from(self.start).unwrap_or(usize::MAX));
        self.chunk = CHUNK;
        let from = self.start - want as u64;
        let all = want + self.end;
        if self.buffer.len() < all || self.buffer.len() > all.max(2 * CHUNK) {
            let mut larger = vec![0; all];
            larger[want..].copy_from_slice(&self.buffer[..self.end]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(..self.end, want);
        }
        let got = read_fully_at(&self.file, &mut self.buffer[..want], from);
        let got = got.map_err(StoreError::at(&self.path, "read"))?;
        // Only the end can go away, and only by its writer's cutting a torn line off.
        if got < want && self.end > 0 {
            return Err(StoreError::damaged(&self.path, "it became shorter while it was read"));
        }
        self.end += got;
        self.start = from;
        Ok(())
    }
}

impl Iterator for LinesFromEnd {
    type Item = Result<Vec<u8>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.next_line().map(|line| line.map(|(_, bytes)| bytes.to_vec()));
        if line.is_err() {
            self.progress = Progress::Done;
        }
        line.transpose()
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

/// Lines of a file from a place on where one begins. An unfinished last one is left out, and so are
/// those that are too long to keep.
pub(super) struct LinesOn {
    file: BufReader<File>,
    path: PathBuf,
    line: Vec<u8>,
    /// Where the next line begins.
    at: u64,
    longest: usize,
}

impl LinesOn {
    /// Begins at the byte `from`.
    pub fn open(path: &Path, from: u64) -> Result<Self, StoreError> {
        let mut file = File::open(path).map_err(StoreError::at(path, "open"))?;
        file.seek(SeekFrom::Start(from)).map_err(StoreError::at(path, "read"))?;
        let file = BufReader::with_capacity(CHUNK, file);
        Ok(Self { file, path: path.to_owned(), line: Vec::new(), at: from, longest: LONGEST_LINE })
    }

    /// The next line and where it begins.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, StoreError> {
        loop {
            self.line.clear();
            let at = self.at;
            let is_whole = self.read_line().map_err(StoreError::at(&self.path, "read"))?;
            match is_whole {
                _ if self.at == at => return Ok(None),
                None => {}
                Some(false) if !is_object(&self.line) => return Ok(None),
                Some(_) => return Ok(Some((at, &self.line))),
            }
        }
    }

    /// Reads on behind the next newline. Whether there was one, if the line is short enough to keep.
    fn read_line(&mut self) -> std::io::Result<Option<bool>> {
        let mut is_short = true;
        loop {
            let ahead = match self.file.fill_buf() {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                ahead => ahead?,
            };
            let newline = memchr::memchr(b'\n', ahead);
            let part = &ahead[..newline.unwrap_or(ahead.len())];
            is_short &= self.line.len() + part.len() <= self.longest;
            if is_short {
                self.line.extend_from_slice(part);
            }
            let (used, is_end) = (part.len() + usize::from(newline.is_some()), ahead.is_empty());
            self.file.consume(used);
            self.at += used as u64;
            if newline.is_some() || is_end {
                return Ok(is_short.then_some(newline.is_some()));
            }
        }
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
