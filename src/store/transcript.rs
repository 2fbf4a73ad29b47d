//! Writing transcripts. Whoever has a [`TranscriptWriter`] holds the file's lock, and so is the
//! only one who writes it: an agent or session for as long as it lives, or whoever records the
//! end of one that died.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::StoreError;
use super::atomic::{self, Durability};
use super::follow::last_line_start;
use super::lines::is_object;
use super::lock::{self, FileLock, Patience};
use crate::core::entry::Line;
use crate::core::{limits, text};

/// How long a holder is waited for: one that has recorded its end exits within moments, one
/// that works is there to be talked to instead.
pub(super) const EXIT_GRACE: Duration = Duration::from_millis(300);

/// The right to write one transcript.
#[derive(Debug)]
#[must_use = "the transcript is unlocked when this is dropped"]
pub struct TranscriptWriter {
    lock: FileLock,
    path: PathBuf,
    durability: Durability,
    tail: Appender,
    torn: Option<String>,
}

impl TranscriptWriter {
    /// Makes a new transcript (0600) and what is missing of its folder (0700). Nobody ever sees it
    /// unlocked. [`StoreError::Exists`] if there is one.
    pub fn create(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            atomic::create_private_dir(folder)?;
        }
        let temp = atomic::new_file_beside(path)?;
        let file = temp.as_file().try_clone().map_err(StoreError::at(path, "create"))?;
        let lock = FileLock::of_new(file, path)?;
        temp.persist_noclobber(path).map_err(|e| StoreError::at(path, "create")(e.error))?;
        atomic::sync_folder_of(path, durability)?;
        Ok(Self { lock, path: path.to_owned(), durability, tail: Appender::default(), torn: None })
    }

    /// Opens an existing transcript to write on. [`StoreError::Locked`] soon if its agent lives;
    /// passing probes are waited out (deadline `probe`). What a writer that died in the middle of
    /// a line left of it is cut off. Blocks.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        Self::open_within(path, durability, EXIT_GRACE)
    }

    /// Like [`Self::open`], with `grace` for a holder.
    pub(crate) fn open_within(path: &Path, durability: Durability, grace: Duration) -> Result<Self, StoreError> {
        let lock = lock::exclusive_unless_held(path, Patience::with_holder(grace))?;
        let (len, torn) = mend_end(lock.file()).map_err(StoreError::at(path, "mend"))?;
        let tail = Appender { len, broken: false };
        Ok(Self { lock, path: path.to_owned(), durability, tail, torn })
    }

    /// What was cut off when this was opened, shortened; for a report.
    pub fn torn(&self) -> Option<&str> {
        self.torn.as_deref()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not of a collection")]
    pub fn len(&self) -> u64 {
        self.tail.len
    }

    /// Appends one line. On any error nothing of it is in the file.
    pub fn append(&mut self, line: &Line) -> Result<(), StoreError> {
        self.append_all(std::slice::from_ref(line))
    }

    /// Appends several lines in one write: all of them, or on any error none.
    pub fn append_all(&mut self, lines: &[Line]) -> Result<(), StoreError> {
        let rendered: Result<Vec<_>, _> = lines.iter().map(Line::to_bytes).collect();
        let rendered = rendered.map_err(|e| StoreError::damaged(&self.path, e))?;
        self.append_raw(&rendered)
    }

    /// Appends lines that are JSON text already, such as copies of another transcript's, in one
    /// write: all of them, or on any error none. They must have no newline in them.
    pub fn append_raw(&mut self, lines: &[impl AsRef<[u8]>]) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(lines.iter().map(|l| l.as_ref().len() + 1).sum());
        for line in lines.iter().map(AsRef::as_ref) {
            if line.len() > limits::ENTRY_BYTES {
                let what = "a transcript line".to_owned();
                return Err(StoreError::TooLong { what, bytes: line.len(), limit: limits::ENTRY_BYTES });
            }
            if line.is_empty() || line.contains(&b'\n') {
                return Err(StoreError::damaged(&self.path, "a line to append is empty or is several"));
            }
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.tail.append(&mut self.lock.file(), &bytes, self.durability).map_err(StoreError::at(&self.path, "write"))
    }
}

/// What appending needs of a file; tests put a full disk behind it.
trait Target {
    fn len(&self) -> io::Result<u64>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

impl Target for &File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Appends whole or not at all.
#[derive(Debug, Default)]
struct Appender {
    /// Length of the file up to the last whole line.
    len: u64,
    /// There may be bytes behind `len` that could not be cut off.
    broken: bool,
}

impl Appender {
    fn append(&mut self, target: &mut impl Target, bytes: &[u8], durability: Durability) -> io::Result<()> {
        if self.broken {
            self.take_back(target)?;
        }
        // Asked anew each time: a program that knows no locks may have written, and its lines
        // must not be taken back with ours.
        self.len = target.len()?;
        self.broken = true;
        match write_whole(target, bytes, durability) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                self.broken = false;
                Ok(())
            }
            Err(e) => {
                // If this fails too, the next append begins with it, and until then readers skip
                // the unfinished line.
                let _ = self.take_back(target);
                Err(e)
            }
        }
    }

    fn take_back(&mut self, target: &mut impl Target) -> io::Result<()> {
        target.truncate(self.len)?;
        self.broken = false;
        Ok(())
    }
}

fn write_whole(target: &mut impl Target, mut bytes: &[u8], durability: Durability) -> io::Result<()> {
    while !bytes.is_empty() {
        match target.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // After a short write (the disk is nearly full) the rest tells why it was short.
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    match durability {
        Durability::Process => Ok(()),
        Durability::Disk => target.sync(),
    }
}

/// Makes `file` end with a newline: completes a last line that lacks only that, and cuts off one
/// that is torn. The new length, and what was cut off.
fn mend_end(mut file: &File) -> io::Result<(u64, Option<String>)> {
    let len = file.metadata()?.len();
    let start = last_line_start(file)?;
    if start == len {
        return Ok((len, None));
    }
    let mut rest = vec![0; usize::try_from(len - start).unwrap_or(usize::MAX).min(limits::ENTRY_BYTES)];
    file.read_exact_at(&mut rest, start)?;
    if is_object(&rest) && rest.len() as u64 == len - start {
        file.write_all(b"\n")?;
        return Ok((len + 1, None));
    }
    file.set_len(start)?;
    Ok((start, Some(text::one_line(&String::from_utf8_lossy(&rest), 200))))
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
