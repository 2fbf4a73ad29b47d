//! What the person in front of a pane does, as events for the member's loop. Nothing wakes up while
//! nothing is typed.
//!
//! The terminal is read here and not by crossterm: that reads from whatever terminal the process has,
//! on a thread of its own, and when the terminal is gone it neither says so nor stops trying.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use nix::sys::signal::{Signal, raise};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{self, SignalKind, signal};

use super::keys::{Keys, Rest};
use super::surface::{Shared, Terminal};
use super::tty::Tty;
use super::update::{Action, update};
use crate::core::limits;

/// Bytes of one read.
const READ: usize = 4 << 10;

/// What the person did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneEvent {
    /// They said this; it may have several lines, and is at most
    /// [`MESSAGE_BYTES`](crate::core::limits::MESSAGE_BYTES) long.
    Said(String),
    /// They want the turn interrupted.
    Interrupt,
    /// The terminal is gone. Nothing comes after this.
    Closed,
}

/// The other half of a [`Pane`](super::Pane). It also keeps what is drawn as the terminal wants it:
/// after a change of its size, when it takes more again, and around SIGTSTP and SIGCONT. So it must be
/// waited for all the time.
pub struct PaneInput {
    shared: Arc<Shared>,
    tty: AsyncFd<Arc<Tty>>,
    keys: Keys,
    events: VecDeque<PaneEvent>,
    resized: unix::Signal,
    stop: unix::Signal,
    go_on: unix::Signal,
    is_closed: bool,
}

impl PaneInput {
    #[expect(deprecated, reason = "its successor is unsafe for types that may not own the descriptor; a Tty does")]
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        Ok(Self {
            tty: AsyncFd::with_interest(shared.tty.clone(), Interest::READABLE | Interest::WRITABLE)?,
            shared,
            keys: Keys::new(limits::MESSAGE_BYTES),
            events: VecDeque::new(),
            resized: signal(SignalKind::window_change())?,
            stop: signal(SignalKind::from_raw(Signal::SIGTSTP as i32))?,
            go_on: signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
            is_closed: false,
        })
    }

    /// The next event. Can be dropped at any time without losing one.
    pub async fn next(&mut self) -> PaneEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let terminal = self.shared.terminal();
            if terminal == Terminal::Gone {
                if std::mem::replace(&mut self.is_closed, true) {
                    std::future::pending::<()>().await;
                }
                return PaneEvent::Closed;
            }
            tokio::select! {
                // Typed text is not read while others have the terminal.
                ready = self.tty.readable(), if terminal != Terminal::Left => {
                    let mut buffer = [0; READ];
                    let read = match ready {
                        Ok(mut ready) => ready.try_io(|tty| tty.get_ref().read(&mut buffer)),
                        Err(error) => Ok(Err(error)),
                    };
                    match read {
                        // Somebody else was told as well, or there was nothing after all.
                        Err(_) => {}
                        Ok(Ok(0) | Err(_)) => self.shared.lose(),
                        Ok(Ok(bytes)) => {
                            let rest = if bytes == READ { Rest::More } else { Rest::None };
                            self.read(&buffer[..bytes], rest);
                        }
                    }
                }
                ready = self.tty.writable(), if terminal == Terminal::Full => match ready {
                    Ok(mut ready) => {
                        let _ = ready.try_io(|_| match self.shared.go_on() {
                            Terminal::Full => Err(io::ErrorKind::WouldBlock.into()),
                            _ => Ok(()),
                        });
                    }
                    Err(_) => self.shared.lose(),
                },
                () = self.shared.stuck.notified() => {}
                Some(()) = self.resized.recv() => self.shared.change(|_| {}),
                Some(()) = self.stop.recv() => {
                    self.shared.suspend();
                    // Going on is an event of its own, which this cannot miss.
                    let _ = raise(Signal::SIGSTOP);
                }
                Some(()) = self.go_on.recv() => self.shared.resume(),
            }
        }
    }

    fn read(&mut self, bytes: &[u8], rest: Rest) {
        let keys = self.keys.feed(bytes, rest);
        let events = self.shared.change(|inner| {
            let mut events = Vec::new();
            for key in keys {
                match update(&mut inner.state, key) {
                    Some(Action::Said(text)) => events.push(PaneEvent::Said(text)),
                    Some(Action::Interrupt) => events.push(PaneEvent::Interrupt),
                    Some(Action::Redraw) => inner.redraw(),
                    None => {}
                }
            }
            events
        });
        self.events.extend(events);
    }
}
