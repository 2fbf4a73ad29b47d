//! L1: processes. Starting agents and tools, waiting for them, stopping them, and sweeping up
//! what they leave behind. A process is always held by a pidfd, so that a reused pid is never
//! signalled.

mod agent;
mod deadline;
mod environ;
mod error;
mod kill;
mod ladder;
mod log;
mod output;
mod pidfd;
mod process;
mod procfs;
mod signals;
mod sweep;
mod tool;

pub use agent::{SpawnedAgent, spawn_agent};
pub use deadline::deadline;
pub use environ::hide_values;
pub use error::ProcError;
pub use ladder::{Ladder, LadderAction, LadderEvent, Rung};
pub use log::log_to_stderr;
pub use nix::sys::signal::Signal;
pub use output::{Spill, Spilled, claim_output};
pub use pidfd::PidFd;
pub use process::{Exit, Process};
pub use procfs::{Environ, ProcessStat, Snapshot, environ_value, pid_with_argument};
pub use signals::{Signals, StopSignal, signal_name};
pub use sweep::sweep;
pub use tool::{Answered, Captured, StartedTool, ToolCommand, run_captured, run_with_input, start_tool};
