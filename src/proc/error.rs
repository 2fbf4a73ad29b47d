//! Why a process could not be started or watched.

use std::io;
use std::path::PathBuf;

/// What went wrong with a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The program can't be started: not there, not executable, arguments too long.
    #[error("can't start {program:?}")]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The working folder is gone or not a folder.
    #[error("the working folder {path:?} does not exist (any more)")]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Anything else of the system.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ProcError {
    pub(super) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    /// A failed start. The system says "no such file" for a missing folder as well, so the folder
    /// is looked at.
    pub(super) fn start(program: &std::path::Path, cwd: &std::path::Path, source: io::Error) -> Self {
        if cwd.is_dir() {
            Self::Start { program: program.to_owned(), source }
        } else {
            Self::NoFolder { path: cwd.to_owned() }
        }
    }
}
