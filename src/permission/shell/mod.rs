//! A shell command seen as the simple commands it would run.
//!
//! Called by the permission decision only. The splitter is conservative: what it does not
//! understand for certain is [`Unparsed`], and the caller asks. It follows POSIX sh and bash as
//! far as the two agree; it never runs or expands anything.

mod dirs;
mod part;
mod split;
mod word;

pub use part::{Assignment, Expansion, Part, Redirect, Unparsed, Word};
pub use split::split;

#[cfg(test)]
mod tests;
