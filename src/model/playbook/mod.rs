//! The playbook: a model whose answers are written down in a YAML file, played by a pure function
//! of the request. Tests and `lead demo` run on it; behind a server it plays a strict provider.
//!
//! - [`Playbook`] is the file's shape, read with line numbers in its errors.
//! - [`play`] picks the turn by replaying the history and fills in its variables.
//! - [`check_request`] refuses what a strict provider would refuse.
//! - [`PlaybookModel`] adds what is not pure: delays, repeated errors, the record file.
//!
//! Limits: at most one turn is chosen per reply, and what was used is known from the history alone,
//! so a history that was cut (a compaction) begins a new count.

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
mod testing;
