//! Teams on disk: roster, mailboxes and task board (spec 3.1-3.3, 3.7), files that other programs
//! read and write at the same time.
//!
//! [`Team`] finds a team and holds nothing; every operation takes the locks it needs for as long as
//! it needs them, and either happened when it returns or did not. Reading takes no lock: files are
//! replaced, and what another program rewrites in place is read again until it is whole. Called by
//! leads, teammates, tools and verbs. What changes what is decided in `core::team`.

pub mod board;
mod compact;
mod entries;
pub mod error;
mod files;
mod folder;
mod hold;
mod lead_lock;
pub mod lifecycle;
mod locks;
#[cfg(test)]
mod mail_fuzz_tests;
pub mod mailbox;
mod salvage;
mod splice;
#[cfg(test)]
pub(crate) mod testing;
pub mod watch;

pub use board::Board;
pub use error::TeamError;
pub use folder::{Team, all};
pub use hold::{Hold, Holder};
pub use lead_lock::{LeadLock, Leader};
pub use lifecycle::{Created, NewTeam, create, delete};
pub use mailbox::Mailbox;
pub use watch::{Changed, Watch};
