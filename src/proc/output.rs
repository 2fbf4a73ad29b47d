//! Output of a tool: its beginning in memory, the whole in a file once it is long, and never more
//! of either than its limit. A file that stops at the limit ends with a line that says so.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::core::limits::TOOL_OUTPUT_BYTES;

/// Where long output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The file; its folder is made when needed. An existing one is overwritten.
    pub path: PathBuf,
    /// Output of more bytes than this is written there, from its beginning.
    pub over: usize,
}

/// The file with long output.
#[derive(Debug)]
pub struct Spilled {
    /// The file.
    pub path: PathBuf,
    /// Bytes of output in it: all, or the first [`TOOL_OUTPUT_BYTES`].
    pub bytes: u64,
    /// Why it is shorter than that, such as a full disk.
    pub error: Option<io::Error>,
}

/// Takes output in.
pub(super) struct Capture {
    /// The beginning, at most `kept` bytes.
    pub head: Vec<u8>,
    /// Bytes that came.
    pub total: u64,
    /// The file, once there is one.
    pub spilled: Option<Spilled>,
    kept: usize,
    spill: Option<Spill>,
    file: Option<File>,
}

impl Capture {
    pub(super) fn new(kept: usize, spill: Option<Spill>) -> Self {
        // What comes before the file is opened must still be in memory then.
        let kept = kept.max(spill.as_ref().map_or(0, |s| s.over)).min(TOOL_OUTPUT_BYTES);
        Self { head: Vec::new(), total: 0, spilled: None, kept, spill, file: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if let Some(spill) = self.spill.take_if(|s| self.total > s.over as u64) {
            self.open(spill);
        }
        self.append(bytes);
        let room = self.kept - self.head.len();
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    fn open(&mut self, spill: Spill) {
        let (file, error) = match create(&spill.path) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        self.file = file;
        self.spilled = Some(Spilled { path: spill.path, bytes: 0, error });
        let head = std::mem::take(&mut self.head);
        self.append(&head);
        self.head = head;
    }

    fn append(&mut self, bytes: &[u8]) {
        let (Some(file), Some(spilled)) = (&mut self.file, &mut self.spilled) else { return };
        let room = (TOOL_OUTPUT_BYTES as u64).saturating_sub(spilled.bytes);
        let fits = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let is_over = fits.len() < bytes.len();
        let notice = if is_over { over_limit() } else { String::new() };
        let written = file.write_all(fits).and_then(|()| {
            spilled.bytes += fits.len() as u64;
            file.write_all(notice.as_bytes())
        });
        if let Err(error) = written {
            spilled.error = Some(error);
            self.file = None;
        } else if is_over {
            self.file = None;
        }
    }
}

/// The last line of a file that holds no more.
fn over_limit() -> String {
    format!("\n[cut: the output is longer than {} MiB; what came after this was dropped]\n", TOOL_OUTPUT_BYTES >> 20)
}

fn create(path: &Path) -> io::Result<File> {
    make_folder_of(path)?;
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
}

/// Makes an empty file for output, before there is any, and its folder; a [`Spill`] to it fills it.
/// False if there is one: the name is somebody else's.
///
/// # Errors
/// If the folder or the file can't be made.
pub fn claim_output(path: &Path) -> io::Result<bool> {
    make_folder_of(path)?;
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn make_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn capture(kept: usize, path: &Path, over: usize) -> Capture {
        Capture::new(kept, Some(Spill { path: path.to_owned(), over }))
    }

    #[test]
    fn short_output_makes_no_file_and_one_more_byte_holds_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results/t.txt");
        let mut capture = capture(6, &path, 4);
        capture.push(b"ab");
        capture.push(b"cd");
        assert!(capture.spilled.is_none() && !path.exists());
        capture.push(b"e");
        capture.push(b"fgh");
        assert_eq!(fs::read(&path).unwrap(), b"abcdefgh");
        assert_eq!((capture.head.as_slice(), capture.total), (&b"abcdef"[..], 8));
        assert!(capture.spilled.is_some_and(|s| s.bytes == 8 && s.error.is_none()));
    }

    #[test]
    fn r098_the_file_stops_at_the_limit_with_a_notice_and_the_count_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.txt");
        let mut capture = capture(0, &path, 4);
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..(TOOL_OUTPUT_BYTES >> 20) {
            capture.push(&chunk);
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), TOOL_OUTPUT_BYTES as u64, "what just fits needs no notice");
        capture.push(b"y");
        capture.push(b"zz");
        let written = fs::read(&path).unwrap();
        let notice = over_limit();
        assert_eq!(written.len(), TOOL_OUTPUT_BYTES + notice.len());
        assert!(written.ends_with(notice.as_bytes()) && notice.contains("64 MiB"));
        assert_eq!(capture.spilled.map(|s| s.bytes), Some(TOOL_OUTPUT_BYTES as u64));
        assert_eq!(capture.total, TOOL_OUTPUT_BYTES as u64 + 3);
        assert_eq!(capture.head.len(), 4);
    }

    #[test]
    fn a_file_that_can_not_be_written_is_told_and_the_beginning_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let mut capture = capture(4, &dir.path().join("file/t.txt"), 2);
        capture.push(b"abcdef");
        capture.push(b"gh");
        assert_eq!((capture.head.as_slice(), capture.total), (&b"abcd"[..], 8));
        assert!(capture.spilled.is_some_and(|s| s.bytes == 0 && s.error.is_some()));
    }
}
