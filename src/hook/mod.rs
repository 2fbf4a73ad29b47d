//! L2: hooks (spec 8.3), commands of the user's that are told what happens and may refuse it. A lead, a
//! teammate and `lead task` make a [`Hooks`] and ask it.
//!
//! A hook that can't be run, takes too long or fails in another way than by saying no stops nothing: it is
//! told as a warning, and the matter goes on.

mod ruling;
mod run;

pub use ruling::Ruling;
pub use run::{HookPlace, Hooks};
