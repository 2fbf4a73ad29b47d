//! The playbook: a model whose answers are written down in a YAML file, played by a pure function
//! of the request. Tests and `lead demo` run on it; behind a server it plays a strict provider.
//!
//! - [`Playbook`] is the file's shape, read with line numbers in its errors.
//! - [`play`] picks the turn by replaying the history and fills in its variables.
//! - [`check_request`] refuses what a strict provider would refuse.
//! - [`PlaybookModel`] adds what is not pure: delays, repeated errors, the record file.
//!
//! A request to summarise the conversation (its last block begins with `SUMMARY_REQUEST`) is answered
//! by turns with `when: {summary: true}` only; without one by the first message in short.
//!
//! Limits: what was used is known from the history alone. A history that was cut (a compaction)
//! begins a new count, and its first user message, on which `prompt` is matched, is the summary;
//! errors are counted in memory, so a process that was started anew gives them again.

mod book;
mod events;
mod fill;
mod history;
mod play;
mod player;
mod strict;

pub use book::{
    AgentRule, Compare, Count, ErrorRule, FaultKind, FaultRule, Match, Pattern, Playbook, PlaybookError, Repeat,
    ToolRule, TurnRule, When,
};
pub(super) use events::{events, message};
pub use play::{ErrorsGiven, Place, PlayedError, Turn, play, play_after};
pub(super) use play::{prompt_tokens, sign};
pub use player::PlaybookModel;
pub use strict::check_request;

#[cfg(test)]
mod survey_tests;
#[cfg(test)]
pub(in crate::model) mod testing;
