//! The signals that ask a process to end, as events for its main loop.

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT: cancels the turn of an interactive session, else ends.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    Hangup,
}

impl StopSignal {
    /// `SIGINT`, `SIGTERM` or `SIGHUP`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// The exit code of a process that ends because of it.
    pub fn exit_code(self) -> u8 {
        128 + match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
            Self::Hangup => 1,
        }
    }
}

/// SIGINT, SIGTERM and SIGHUP as a stream. From [`Signals::listen`] on, none of them ends the
/// process by itself, even after this is dropped.
#[derive(Debug)]
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
}

impl Signals {
    /// Starts listening.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Several of a kind that come at once may count as one. Can be dropped at any
    /// time without losing one.
    pub async fn recv(&mut self) -> StopSignal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => StopSignal::Interrupt,
            Some(()) = self.terminate.recv() => StopSignal::Terminate,
            Some(()) = self.hangup.recv() => StopSignal::Hangup,
            else => std::future::pending().await,
        }
    }
}

/// `SIGKILL` and so on; `signal 42` for one without a name.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_and_codes() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(42), "signal 42");
        let codes = [StopSignal::Interrupt, StopSignal::Terminate, StopSignal::Hangup].map(StopSignal::exit_code);
        assert_eq!(codes, [130, 143, 129]);
    }

    const CHILD: &str = "LEAD_TEST_SIGNALS_CHILD";

    /// The child's side of the test below; does nothing in an ordinary run.
    #[tokio::test]
    async fn child_side() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let mut signals = Signals::listen().unwrap();
        for (sent, expected) in [
            (Signal::SIGINT, StopSignal::Interrupt),
            (Signal::SIGTERM, StopSignal::Terminate),
            (Signal::SIGHUP, StopSignal::Hangup),
        ] {
            nix::sys::signal::kill(nix::unistd::Pid::this(), sent).unwrap();
            assert_eq!(signals.recv().await, expected);
        }
    }

    #[test]
    fn signals_become_events_instead_of_ends() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "proc::signals::tests::child_side", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
    }
}
