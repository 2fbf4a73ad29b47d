//! Why there is no pane, or none that may be used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::proc::ProcError;

/// A failure of panes, one line each. It can be cloned: of panes that are opened together all may fail
/// for one reason.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PaneError {
    /// The lead does not run in a pane. No failure where panes are not asked for.
    #[error("this is not inside tmux; start lead in tmux, or use lead --tmux")]
    NotInside,
    /// There is no tmux.
    #[error("the program tmux is not on PATH; install tmux 3.2 or later")]
    NoProgram,
    /// It lacks what is needed.
    #[error("{found} is too old; install tmux 3.2 or later")]
    TooOld {
        /// What it calls itself.
        found: String,
    },
    /// The server does not run (any more), or is not ours to use.
    #[error("there is no tmux server at {socket}: {said}")]
    ServerGone {
        /// Its socket.
        socket: PathBuf,
        /// What tmux said.
        said: String,
    },
    /// It runs and does not answer.
    #[error("the tmux server at {socket} did not answer within {waited:?} (stopped?)")]
    NoAnswer {
        /// Its socket.
        socket: PathBuf,
        /// How long it had.
        waited: Duration,
    },
    /// The lead's own pane, beside which others open, does not exist (any more).
    #[error("the tmux server at {socket} has no pane {pane}, which is to be this lead's")]
    SeatGone {
        /// The server's socket.
        socket: PathBuf,
        /// The pane's id.
        pane: String,
    },
    /// The folder that the program is to start in.
    #[error("the working folder {path:?} does not exist (any more)")]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// What no command line can hold.
    #[error("{what}")]
    Unfit {
        /// What, and why not.
        what: String,
    },
    /// The pane of this id is gone, or somebody else's.
    #[error("pane {pane} is not (any more) that of {agent}")]
    NotTheirs {
        /// The pane's id.
        pane: String,
        /// Whose it was to be.
        agent: String,
    },
    /// tmux could not do it.
    #[error("tmux refused: {said}")]
    Refused {
        /// What it said.
        said: String,
    },
    /// The system did not start tmux.
    #[error("can't run tmux")]
    Start(#[source] Arc<ProcError>),
}

impl From<ProcError> for PaneError {
    fn from(error: ProcError) -> Self {
        Self::Start(Arc::new(error))
    }
}
