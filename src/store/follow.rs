//! Reading a transcript while it grows, for `logs -f` and for waiting on what an agent writes.
//! Woken by the kernel (inotify), never by a clock.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use super::StoreError;
use super::atomic::folder_of;
use super::lines::read_fully_at;

const CHUNK: usize = 256 << 10;

/// Where a [`Follow`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the first line.
    Start,
    /// With the first line that is written from now on.
    End,
    /// With the line that begins at this byte.
    Offset(u64),
}

/// Hands out lines as they are completed. The file need not exist yet, its folder must.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    inotify: Inotify,
    /// Tells of the file's creation; only until it is there.
    folder_watch: Option<WatchDescriptor>,
    file: Option<File>,
    /// Where the first line not handed out or in `ready` begins. Always the beginning of a line,
    /// so that a torn line which is cut off and overwritten is read afresh.
    offset: u64,
    ready: VecDeque<Vec<u8>>,
}

impl Follow {
    /// Begins to follow `path`.
    pub fn open(path: &Path, from: StartAt) -> Result<Self, StoreError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|e| StoreError::at(path, "watch")(e.into()))?;
        let folder = folder_of(path);
        let folder_watch = inotify
            .add_watch(folder, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)
            .map_err(|e| StoreError::at(folder, "watch")(e.into()))?;
        let mut follow = Self {
            path: path.to_owned(),
            inotify,
            folder_watch: Some(folder_watch),
            file: None,
            offset: 0,
            ready: VecDeque::new(),
        };
        follow.open_file()?;
        follow.offset = match (from, &follow.file) {
            (StartAt::Start, _) | (StartAt::End, None) => 0,
            (StartAt::Offset(offset), _) => offset,
            (StartAt::End, Some(file)) => last_line_start(file).map_err(StoreError::at(path, "read"))?,
        };
        Ok(follow)
    }

    /// The next complete line (without its newline) if there is one by now. Never waits; the
    /// descriptor of [`AsFd`] becomes readable when it is worth trying again.
    pub fn try_next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if self.ready.is_empty() {
            // Events first: what happens after this read makes a new one.
            self.drain_events()?;
            self.open_file()?;
            self.refill().map_err(StoreError::at(&self.path, "read"))?;
        }
        Ok(self.ready.pop_front())
    }

    /// Waits for the next complete line; `None` when `deadline` passes first. Blocks.
    pub fn next_line(&mut self, deadline: Option<Instant>) -> Result<Option<Vec<u8>>, StoreError> {
        loop {
            if let Some(line) = self.try_next()? {
                return Ok(Some(line));
            }
            let timeout = match deadline {
                None => PollTimeout::NONE,
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    // Rounded up, else the last millisecond would be spent turning.
                    PollTimeout::try_from(left + std::time::Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
                }
            };
            match poll(&mut [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(StoreError::at(&self.path, "wait for")(e.into())),
            }
        }
    }

    /// Where the line after the last one handed out begins: a later [`StartAt::Offset`].
    pub fn offset(&self) -> u64 {
        self.offset - self.ready.iter().map(|l| l.len() as u64 + 1).sum::<u64>()
    }

    fn drain_events(&self) -> Result<(), StoreError> {
        loop {
            match self.inotify.read_events() {
                // What they say does not matter, lost ones (overflow) included: all is read anyway.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => return Err(StoreError::at(&self.path, "watch")(e.into())),
            }
        }
    }

    fn open_file(&mut self) -> Result<(), StoreError> {
        if self.file.is_some() {
            return Ok(());
        }
        match self.inotify.add_watch(&self.path, AddWatchFlags::IN_MODIFY) {
            Ok(_) => {}
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(StoreError::at(&self.path, "watch")(e.into())),
        }
        match File::open(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                if let Some(watch) = self.folder_watch.take() {
                    // A watch that stays only wakes us for nothing.
                    let _ = self.inotify.rm_watch(watch);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(StoreError::at(&self.path, "open")(e)),
        }
        Ok(())
    }

    /// Reads on until there is a complete line or the file ends.
    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // Its writer took a line back that it could not make last.
        self.offset = self.offset.min(file.metadata()?.len());
        let mut want = CHUNK;
        loop {
            let mut bytes = vec![0; want];
            let got = read_fully_at(file, &mut bytes, self.offset)?;
            bytes.truncate(got);
            if let Some(last) = memchr::memrchr(b'\n', &bytes) {
                let lines = bytes[..last].split(|b| *b == b'\n');
                self.ready.extend(lines.map(<[u8]>::to_vec));
                self.offset += last as u64 + 1;
                return Ok(());
            }
            if got < want {
                return Ok(());
            }
            want *= 2;
        }
    }
}

/// Where the unfinished last line of `file` begins; its length if there is none.
pub(super) fn last_line_start(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut bytes = vec![0; 64 << 10];
    while end > 0 {
        let from = end.saturating_sub(bytes.len() as u64);
        let want = usize::try_from(end - from).unwrap_or(bytes.len());
        let got = read_fully_at(file, &mut bytes[..want], from)?;
        if let Some(newline) = memchr::memrchr(b'\n', &bytes[..got]) {
            return Ok(from + newline as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

impl AsFd for Follow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
