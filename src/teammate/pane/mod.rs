//! What a person sees of a team member in its tmux pane: its transcript in the terminal's ordinary
//! scrollback, and below it a few rows with a status line and an input line.
//!
//! The member's loop opens a [`Pane`] to show things and reads what the person does from its
//! [`PaneInput`]. Everything between is pure: `keys` reads bytes as keys, `update` says what a key
//! does, `feed` and `view` say what is seen, `display` turns that into bytes.
//!
//! The other screen of the terminal is never used, and the terminal is never asked for anything: all
//! movements are relative to the rows drawn last. So what was shown stays readable after a crash, a
//! terminal that answers late or not at all stops nothing, and no row is ever drawn over the text of
//! somebody else.

mod display;
mod edit;
mod feed;
mod input;
mod keys;
mod screen;
mod surface;
mod tty;
mod update;
mod view;
mod wrap;

pub use input::{PaneEvent, PaneInput};
pub use surface::Pane;
pub use tty::PaneError;
pub use update::PaneIdentity;

#[cfg(test)]
mod tests;
