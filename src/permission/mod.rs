//! L2: may this call run? Rules, modes and a careful look at shell commands (spec 8.2).
//!
//! A [`Policy`] is made once for a conversation and asked before each tool call. It decides and
//! does nothing else: who answers a question is up to the caller. Limits: it looks at the disk
//! only to resolve symlinks, so what changes between decision and call is not seen; and `Bash`
//! commands are judged by what is written, not confined — that is a sandbox's work.

mod bash;
mod mode;
mod path;
mod policy;
mod read_only;
mod rule;
pub mod shell;

pub use mode::{Mode, UnknownMode, child_mode};
pub use policy::{Decision, Policy};

#[cfg(test)]
mod tests;
