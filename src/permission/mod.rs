//! L2: may this call run? Rules, modes and a careful look at shell commands (spec 8.2).
//!
//! A [`Policy`] is made for a conversation and asked before each tool call; where rules change while it
//! runs, another one takes its place in a [`SharedPolicy`]. It decides and
//! does nothing else: who answers a question is up to the caller. Limits: it looks at the disk
//! only to resolve symlinks, so what changes between decision and call is not seen; and `Bash`
//! commands are judged by what is written, not confined — that is a sandbox's work.

mod bash;
mod command;
mod files;
mod grant;
mod mode;
mod path;
mod policy;
mod read_only;
mod rule;
mod shared;
pub mod shell;

pub use grant::rule_for;
pub use mode::{Mode, UnknownMode, child_mode};
pub use policy::{Decision, Policy};
pub use shared::SharedPolicy;

#[cfg(test)]
mod tests;
