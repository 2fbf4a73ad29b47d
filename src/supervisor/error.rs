//! Why an agent could not be started or taken over.

use std::path::PathBuf;
use std::time::Duration;

use crate::store::StoreError;

/// A spawn that did not happen. Whatever was made for it has been undone.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program is not where it should be.
    #[error(
        "the program {name} was not found next to {beside} nor on PATH; build all programs with `cargo build --release`"
    )]
    ProgramMissing {
        /// The program.
        name: &'static str,
        /// The folder of the running program.
        beside: PathBuf,
    },
    /// The operating system did not start it.
    #[error("can't start {program}: {reason}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It ended before it was ready.
    #[error("the agent's process (pid {pid}) ended before it was ready: {exit}{log}")]
    Died {
        /// The process.
        pid: i32,
        /// Exit code or signal.
        exit: String,
        /// End of its log, on a line of its own, or empty.
        log: String,
    },
    /// It did not become ready in time and was killed.
    #[error("the agent's process (pid {pid}) was not ready after {waited:?} and was killed{log}")]
    NotReady {
        /// The process.
        pid: i32,
        /// How long it had.
        waited: Duration,
        /// End of its log, on a line of its own, or empty.
        log: String,
    },
    /// It is of another build.
    #[error(
        "{program} is build {theirs} (protocol {their_protocol}), this is build {ours} (protocol {our_protocol}): build all programs together"
    )]
    OtherBuild {
        /// The program.
        program: PathBuf,
        /// Its build.
        theirs: String,
        /// Its protocol.
        their_protocol: u32,
        /// Our build.
        ours: &'static str,
        /// Our protocol.
        our_protocol: u32,
    },
    /// It said that it can't work.
    #[error("the agent's process (pid {pid}) can't start: {reason}")]
    Refused {
        /// The process.
        pid: i32,
        /// What it said.
        reason: String,
    },
    /// The agent was stopped while it started.
    #[error("stopped while it started")]
    Stopped,
    /// There is no pane for it.
    #[error("no pane was opened: {0}")]
    Pane(#[from] super::panes::PaneError),
    /// Its files can't be made or read.
    #[error("can't use the agent's files: {0}")]
    Store(#[from] StoreError),
}
