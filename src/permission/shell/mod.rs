//! A shell command seen as the simple commands it would run.
//!
//! Called by the permission decision only. The splitter is conservative: what it does not
//! understand for certain is [`Unparsed`], and the caller asks. It follows POSIX sh and bash as
//! far as the two agree; it never runs or expands anything.
//!
//! Why it is our own: a library would give a tree, and every node of it that nobody thought of would
//! be a command that nobody sees; here what nobody thought of is refused. Looked at were
//! brush-parser 0.4 (maintained, fast, no panic found; 84 packages of which one compiles C, words
//! come unexpanded and need its second parser, and bash scripts are known that it reads otherwise),
//! tree-sitter-bash 0.25 (C tables, and it guesses its way through what it can't parse),
//! yash-syntax (GPL, POSIX only) and conch-parser (no release since 2019). What bash really runs is
//! compared with what is found here, in `tests/`.

mod dirs;
mod heredoc;
mod part;
mod redirect;
mod runs;
mod split;
mod word;

pub use part::{Assignment, Expansion, Part, Redirect, Unparsed, Word};
pub(super) use runs::{HARMLESS_VARIABLES, is_wrapper};
pub use split::split;

#[cfg(test)]
mod tests;
