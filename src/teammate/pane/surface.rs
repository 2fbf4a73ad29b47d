//! The pane, as the member's loop uses it: things to show go in, bytes go to the terminal as fast as
//! it takes them.
//!
//! Showing never waits. What the terminal does not take at once is kept up to a bound and written by
//! [`PaneInput`](super::PaneInput); what is shown meanwhile joins into one drawing. Nothing here
//! fails: a terminal that is gone is an event of the input.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::display::Display;
use super::feed::{Item, items_of};
use super::input::PaneInput;
use super::screen::Palette;
use super::tty::{PaneError, Tty};
use super::update::{Doing, PaneIdentity, State};
use crate::core::agent::LiveState;
use crate::core::entry::Line;
use crate::core::env;
use crate::core::message::Role;

/// Bytes that may wait for the terminal; more are dropped and counted.
const WAITING_BYTES: usize = 4 << 20;

/// Shows a member to the person in front of its pane. Clones show on the same one. The terminal is
/// given back when all of them and the [`PaneInput`] are gone, at [`Pane::close`], and before a panic
/// is reported.
///
/// While it is open, nothing else may write to the terminal: standard error must go elsewhere.
#[derive(Clone)]
pub struct Pane {
    shared: Arc<Shared>,
}

/// What the pane and its input share.
pub(super) struct Shared {
    pub(super) tty: Arc<Tty>,
    inner: Mutex<Inner>,
    /// The terminal did not take all, or is gone.
    pub(super) stuck: Notify,
}

pub(super) struct Inner {
    pub(super) state: State,
    display: Display,
    /// What is to be shown above with the next drawing, its bytes, and what had no room.
    waiting: VecDeque<Item>,
    waiting_bytes: usize,
    dropped: usize,
    /// Whether what is drawn is no longer what is so.
    is_stale: bool,
    /// A drawing, and how much of it is written.
    drawing: Vec<u8>,
    written: usize,
    pub(super) terminal: Terminal,
}

/// What the terminal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    /// It took all.
    Ready,
    /// It takes no more for now.
    Full,
    /// It is not ours until the process goes on.
    Left,
    /// It is gone, or was given back.
    Gone,
}

impl Pane {
    /// Opens the terminal that standard input is. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// If standard input is no terminal, or nothing can be drawn on it. Then nothing is changed.
    pub fn open(identity: PaneIdentity) -> Result<(Self, PaneInput), PaneError> {
        let kind = std::env::var(env::TERM).unwrap_or_default();
        let stdin = io::stdin();
        let stdin = std::os::fd::AsFd::as_fd(&stdin);
        // What matters more is said first.
        rustix::termios::tcgetattr(stdin).map_err(|source| PaneError::NoTerminal(source.into()))?;
        if kind.is_empty() || kind == "dumb" {
            return Err(PaneError::Dumb(kind));
        }
        let is_plain = std::env::var_os(env::NO_COLOR).is_some_and(|value| !value.is_empty());
        Self::open_on(stdin, identity, if is_plain { Palette::Plain } else { Palette::Colours })
    }

    /// Opens the terminal behind `fd`.
    pub(super) fn open_on(
        fd: BorrowedFd<'_>,
        identity: PaneIdentity,
        palette: Palette,
    ) -> Result<(Self, PaneInput), PaneError> {
        let tty = Tty::open(fd)?;
        let inner = Inner {
            state: State::new(identity, tty.size()),
            display: Display::new(palette),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            is_stale: true,
            drawing: Vec::new(),
            written: 0,
            terminal: Terminal::Ready,
        };
        let shared = Arc::new(Shared { tty, inner: Mutex::new(inner), stuck: Notify::new() });
        let input = PaneInput::new(shared.clone())
            .map_err(|source| PaneError::System { action: "read from the terminal", source })?;
        shared.change(|_| {});
        Ok((Self { shared }, input))
    }

    /// Shows a line of the transcript. What was shown of a reply by [`Self::part`] makes way for it.
    pub fn show(&self, line: &Line) {
        let items = items_of(line);
        self.shared.change(|inner| {
            if matches!(line, Line::Talk(talk) if talk.kind == Role::Assistant) {
                inner.state.part.clear();
            }
            items.into_iter().for_each(|item| inner.wait(item));
        });
    }

    /// Shows a note in the words of the program, on one row. It is in no transcript.
    pub fn note(&self, text: &str) {
        self.shared.change(|inner| inner.wait(Item::note(text)));
    }

    /// Shows more of the reply that is being written.
    pub fn part(&self, text: &str) {
        self.shared.change(|inner| inner.state.add_part(text));
    }

    /// Forgets what was shown of a reply: it will not come to its end.
    pub fn no_part(&self) {
        self.shared.change(|inner| inner.state.part.clear());
    }

    /// Shows what the member does.
    pub fn status(&self, live: &LiveState) {
        let waiting_for = live.waiting_for.clone();
        let doing = Doing { state: live.state, waiting_for, tokens: live.progress.total_tokens() };
        self.shared.change(|inner| inner.state.doing = doing);
    }

    /// Gives the terminal back: the transcript stays, the rows below it go. Nothing is shown from here
    /// on; for the input the terminal is gone.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is shown may be wrong after a panic, but not more.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the terminal does.
    pub(super) fn terminal(&self) -> Terminal {
        self.lock().terminal
    }

    /// Changes something and draws it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let changed = change(&mut inner);
        inner.is_stale = true;
        self.write(&mut inner);
        changed
    }

    /// Goes on writing what the terminal did not take.
    pub(super) fn go_on(&self) -> Terminal {
        let mut inner = self.lock();
        self.write(&mut inner);
        inner.terminal
    }

    /// Leaves the terminal to others; what is drawn goes, so that they write below the transcript.
    pub(super) fn suspend(&self) {
        let mut inner = self.lock();
        if matches!(inner.terminal, Terminal::Ready | Terminal::Full) {
            inner.end_drawing(&self.tty);
            inner.terminal = Terminal::Left;
        }
        self.tty.leave();
    }

    /// Takes the terminal back.
    pub(super) fn resume(&self) {
        self.change(|inner| {
            if inner.terminal == Terminal::Left {
                inner.terminal = Terminal::Ready;
            }
            inner.redraw();
            // Others may have left it in any mode.
            if inner.terminal != Terminal::Gone && self.tty.enter().is_err() {
                inner.terminal = Terminal::Gone;
            }
        });
    }

    /// The terminal is gone.
    pub(super) fn lose(&self) {
        self.lock().terminal = Terminal::Gone;
    }

    fn close(&self) {
        let mut inner = self.lock();
        // After a panic its report stands there.
        if self.tty.is_raw() && matches!(inner.terminal, Terminal::Ready | Terminal::Full) {
            self.write(&mut inner);
            inner.end_drawing(&self.tty);
        }
        inner.terminal = Terminal::Gone;
        self.tty.leave();
    }

    /// Writes until all is drawn or the terminal takes no more.
    fn write(&self, inner: &mut Inner) {
        if matches!(inner.terminal, Terminal::Left | Terminal::Gone) {
            // Kept for later, or for nobody.
            return;
        }
        if !self.tty.is_raw() {
            // A panic was survived. Its report is above, and we are below.
            inner.display.forget();
            if self.tty.enter().is_err() {
                inner.terminal = Terminal::Gone;
            }
        }
        inner.state.size = self.tty.size();
        inner.terminal = loop {
            if inner.written == inner.drawing.len() {
                if !inner.is_stale {
                    break Terminal::Ready;
                }
                inner.draw();
                self.tty.set_rows_below(inner.display.rows_below());
            }
            match self.tty.write(&inner.drawing[inner.written..]) {
                Ok(bytes) => inner.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Terminal::Full,
                Err(_) => break Terminal::Gone,
            }
        };
        if inner.terminal != Terminal::Ready {
            self.stuck.notify_one();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn wait(&mut self, item: Item) {
        if self.terminal == Terminal::Gone {
            return;
        }
        let size = item.size();
        if self.dropped > 0 || (self.waiting_bytes > 0 && self.waiting_bytes + size > WAITING_BYTES) {
            self.dropped += 1;
        } else {
            self.waiting_bytes += size;
            self.waiting.push_back(item);
        }
    }

    fn draw(&mut self) {
        let columns = self.state.size.0;
        let mut items = std::mem::take(&mut self.waiting);
        if self.dropped > 0 {
            let text = format!("({} lines were not shown: the terminal did not take them)", self.dropped);
            items.push_back(Item::note(&text));
        }
        (self.waiting_bytes, self.dropped, self.is_stale) = (0, 0, false);
        let above: Vec<_> = items.iter().flat_map(|item| item.rows(columns)).collect();
        self.drawing = self.display.frame(&above, &self.state);
        self.written = 0;
    }

    /// Takes away what is drawn, as far as the terminal takes that.
    fn end_drawing(&mut self, tty: &Tty) {
        let mut bytes = self.drawing.split_off(self.written);
        bytes.extend(self.display.close());
        self.drawing.clear();
        self.written = 0;
        let _ = tty.write(&bytes);
    }

    /// All is drawn again with the next change.
    pub(super) fn redraw(&mut self) {
        self.display.redraw();
    }
}
