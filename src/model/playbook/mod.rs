//! The playbook: a model whose answers are written down in a YAML file, played by a pure function
//! of the request. Tests and `lead demo` run on it; behind a server it plays a strict provider.
//!
//! - [`Playbook`] is the file's shape, read with line numbers in its errors.
//! - [`play`] picks the turn by replaying the history and fills in its variables.
//! - [`check_request`] refuses what a strict provider would refuse.
//! - [`PlaybookModel`] adds what is not pure: delays, repeated errors, the record file.
//!
//! Limits: what was used is known from the history alone. A history that was cut (a compaction)
//! begins a new count, and its first user message, on which `prompt` is matched, is another one;
//! errors are counted in memory, so a process that was started anew gives them again.

mod book;
mod fill;
mod history;
mod play;
mod player;
mod strict;

pub use book::{
    AgentRule, Compare, Count, ErrorRule, Match, Pattern, Playbook, PlaybookError, Repeat, ToolRule, TurnRule, When,
};
pub use play::{ErrorsGiven, Place, PlayedError, Turn, play, play_after};
pub use player::PlaybookModel;
pub use strict::check_request;

#[cfg(test)]
mod survey_tests;
#[cfg(test)]
mod testing;
