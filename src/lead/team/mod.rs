//! The lead's side of a team (spec 3.2): making it, its members' processes, what their runtimes and
//! their mail say, and its end. At most one team per session; roster, mail and cards are files, so that
//! all of it survives this process. Files are read and written in tasks that report back as [`News`].

mod delete;
mod led;
mod mail;
mod member;
mod others;
mod person;
mod protocol;
mod rest;
mod resume;
mod seat;
mod send;
mod writes;

pub(super) use led::{Led, News};
pub(super) use member::ended_notice as member_ended;
pub use person::{AddInput, TeamRequest};
pub(super) use seat::Seat;
pub use seat::close_panes;
