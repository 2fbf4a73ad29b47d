//! L1: everything on disk. Locks, atomic files, the runtime folder with its registry, transcripts
//! (written under their lock, read from the end), and what is derived from them: the history to
//! resume from, and the outcome of a run.
//!
//! The layers above decide *what* is written; this layer sees to it that it is written whole or
//! not at all, by one writer, and found again. Everything here is synchronous; what may wait for
//! another process says "Blocks" and belongs into `spawn_blocking`.

pub mod atomic;
mod conversation;
pub mod error;
pub mod file_watch;
pub mod follow;
pub mod fork;
pub mod history;
mod lines;
pub mod lock;
pub mod reader;
pub mod runtime;
pub mod session;
pub mod sessions;
pub mod settle;
pub mod team;
pub mod transcript;
pub mod watch;

pub use error::StoreError;
