//! L1: sockets between processes. Bytes become frames, frames travel on a
//! [`Connection`] with one reader and one writer task, and who is at the other end is known
//! before anything is read ([`Peer`]).
//!
//! Used by whatever owns agents and whatever is one, and by the verbs of the command line.

mod address;
mod codec;
mod connection;
mod dial;
mod error;
mod inherited;
mod listener;
mod origin;
mod peer;

pub use address::{AddressError, address, check_socket_path, parse_address};
pub use codec::MAX_DEPTH;
pub use connection::{Connection, Inbox, Incoming, Link};
pub use dial::{dial, dial_and_greet};
pub use error::WireError;
pub use inherited::take_parent_link;
pub use listener::Listener;
pub use origin::{agent_of_environ, descends_from};
pub use peer::{Peer, PeerStream};
