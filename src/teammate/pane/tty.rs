//! The terminal itself: opened, made raw, and given back as it was.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread::{self, ThreadId};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios};

/// Why there is no pane.
#[derive(Debug, thiserror::Error)]
pub enum PaneError {
    /// Standard input is no terminal, so that nothing can be shown or typed: the member works without
    /// a pane, or not at all.
    #[error("standard input is no terminal that a pane could be shown on")]
    NoTerminal(#[source] io::Error),
    /// Nothing can be drawn on a terminal of this kind.
    #[error("nothing can be drawn on this terminal (TERM is {0:?}): set tmux's default-terminal, say to tmux-256color")]
    Dumb(String),
    /// The system refused something.
    #[error("can't {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// A terminal in raw mode: Ctrl-C and others come as keys and raise no signal. Reads and writes never
/// wait. It is given back when this goes, and when the thread that opened it panics.
#[derive(Debug)]
pub(super) struct Tty {
    fd: OwnedFd,
    before: Termios,
    is_raw: AtomicBool,
    /// Rows that are drawn below the cursor's.
    rows_below: AtomicU16,
    thread: ThreadId,
}

/// What is told a terminal at the beginning: mark what is pasted.
const ENTER: &[u8] = b"\x1b[?2004h";
/// What is told it at the end: everything as usual.
const LEAVE: &[u8] = b"\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m";

/// Those that a panic gives back.
static OPEN: Mutex<Vec<Weak<Tty>>> = Mutex::new(Vec::new());

impl Tty {
    /// Opens the terminal behind `of` and makes it raw.
    ///
    /// It is opened anew, since a terminal that does not make anybody wait may only be so for us: other
    /// programs share what they inherited.
    pub(super) fn open(of: BorrowedFd<'_>) -> Result<Arc<Self>, PaneError> {
        let system = |action| move |source: Errno| PaneError::System { action, source: source.into() };
        let before = rustix::termios::tcgetattr(of).map_err(|source| PaneError::NoTerminal(source.into()))?;
        let name = rustix::termios::ttyname(of, Vec::new()).map_err(system("find the terminal's name"))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(name, flags, Mode::empty()).map_err(system("open the terminal"))?;
        let thread = thread::current().id();
        let tty = Arc::new(Self { fd, before, is_raw: AtomicBool::new(false), rows_below: AtomicU16::new(0), thread });
        give_back_in_panic();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|tty| tty.strong_count() > 0);
        open.push(Arc::downgrade(&tty));
        drop(open);
        tty.enter().map_err(|source| PaneError::System { action: "make the terminal raw", source })?;
        Ok(tty)
    }

    /// Makes it raw, if it is not.
    pub(super) fn enter(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&self.fd, OptionalActions::Now, &raw)?;
        self.is_raw.store(true, Ordering::SeqCst);
        // Without it pastes come as if they were typed, which is no reason to fail.
        let _ = self.write(ENTER);
        Ok(())
    }

    /// Makes it as it was, if it is raw.
    pub(super) fn leave(&self) {
        self.leave_with(LEAVE);
    }

    /// Remembers how many rows are drawn below the cursor's.
    pub(super) fn set_rows_below(&self, rows: u16) {
        self.rows_below.store(rows, Ordering::SeqCst);
    }

    /// Like [`LEAVE`], with the cursor where a new line begins below all that is drawn.
    fn to_new_line(&self) -> Vec<u8> {
        let mut bytes = LEAVE.to_vec();
        match self.rows_below.load(Ordering::SeqCst) {
            0 => {}
            rows => bytes.extend(format!("\x1b[{rows}B").into_bytes()),
        }
        bytes.extend(b"\r\n");
        bytes
    }

    fn leave_with(&self, bytes: &[u8]) {
        if self.is_raw.swap(false, Ordering::SeqCst) {
            // A terminal that is gone needs neither.
            let _ = self.write(bytes);
            let _ = rustix::termios::tcsetattr(&self.fd, OptionalActions::Now, &self.before);
        }
    }

    /// Whether it is raw; it is not after a panic that was survived.
    pub(super) fn is_raw(&self) -> bool {
        self.is_raw.load(Ordering::SeqCst)
    }

    /// Columns and rows; of a terminal that does not know them, the usual ones.
    pub(super) fn size(&self) -> (u16, u16) {
        match rustix::termios::tcgetwinsize(&self.fd) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }

    /// Writes as much as the terminal takes.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.fd, bytes) {
                Err(Errno::INTR) => {}
                written => return written.map_err(io::Error::from),
            }
        }
    }

    /// Reads what there is; nothing at all if the terminal is gone.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Err(Errno::INTR) => {}
                read => return read.map_err(io::Error::from),
            }
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.leave();
    }
}

impl AsRawFd for Tty {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Tty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Before a panic is reported, the terminal must be one on which that can be read. Of other threads
/// the panic is not the end.
fn give_back_in_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Whoever panics may hold the list: then the terminal is given back when it is dropped.
            if let Ok(open) = OPEN.try_lock() {
                let mine = open.iter().filter_map(Weak::upgrade).filter(|tty| tty.thread == thread::current().id());
                mine.for_each(|tty| tty.leave_with(&tty.to_new_line()));
            }
            report(info);
        }));
    });
}
