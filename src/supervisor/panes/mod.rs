//! Agents in tmux panes (spec 3.6). An agent's program is the pane's own command; nothing is ever
//! typed into a pane. [`Panes`] opens panes beside the lead's own, or on a server of its own;
//! [`TmuxServer`] looks after those that are there, by the socket and the ids that a roster keeps.
//!
//! Everything goes to tmux as a script on the stdin of `tmux -S <socket> source-file -`: it has no
//! limit of length (one of 16 KiB holds for arguments), keeps environments out of `ps`, and a command
//! that fails takes only its own line with it. tmux 3.2 is the oldest that has what is used here.

mod error;
mod open;
mod place;
mod program;
mod quote;
mod script;
mod seat;
mod server;
mod window;

pub use error::PaneError;
pub use open::{OpenPane, PaneRequest};
pub use seat::Panes;
pub use server::{PaneState, TmuxServer};
