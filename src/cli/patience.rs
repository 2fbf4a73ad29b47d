//! The line on a terminal that says what a long wait still waits for. Nothing is said when nobody
//! watches standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::table::short_duration;

/// From here on a wait is long.
const LONG: Duration = Duration::from_secs(2);
/// How often the line is renewed.
const TICK: Duration = Duration::from_secs(1);

/// The line, if somebody watches.
pub(super) struct WaitLine {
    begun: Instant,
    is_watched: bool,
    is_shown: bool,
}

impl WaitLine {
    /// Of a wait that begins now.
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), is_watched: std::io::stderr().is_terminal(), is_shown: false }
    }

    /// When it is to be renewed next; none = never.
    pub(super) fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        self.is_watched.then(|| (self.begun + LONG).max(now + TICK))
    }

    /// Says what is waited for, in place of what it said before.
    pub(super) fn show(&mut self, what: &str) {
        if self.is_watched && self.begun.elapsed() >= LONG {
            let waited = short_duration(self.begun.elapsed());
            let _ = write!(std::io::stderr(), "\r\x1b[Kwaiting for {what}, {waited}");
            self.is_shown = true;
        }
    }

    /// Takes it away, for something else to be said.
    pub(super) fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.is_shown = false;
        }
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        self.clear();
    }
}
