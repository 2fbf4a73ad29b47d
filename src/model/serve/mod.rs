//! `lead model serve`: a playbook as a Messages API on loopback, for tests without tokens, ours
//! and everybody's.
//!
//! - [`run`] is the server; `cli` prints the address it is told.
//! - `incoming` reads and checks requests, `script` turns a played turn into the pieces of a
//!   stream, broken ones included.
//!
//! Limits: HTTP/1.1, loopback only, any key is accepted, requests of 32 MiB at the most. Errors and
//! faults are counted over all conversations of one server.

mod incoming;
mod script;
mod server;

pub use incoming::Check;
#[cfg(test)]
pub(super) use server::Server;
pub use server::{ServeError, ServeOptions, run};
