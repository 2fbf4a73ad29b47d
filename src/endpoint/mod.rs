//! L4: whatever can be talked to: the boot of an agent's process by handshake with its parent, its
//! own socket, and the loop of a worker (one answer, then exit). A lead uses the socket part.

mod arrivals;
mod boot;
mod ending;
mod error;
mod identity;
mod lines;
mod permissions;
mod program;
mod questions;
mod requests;
mod shells;
mod toolbox;
mod visitors;
mod worker;

pub use arrivals::Arrivals;
pub use boot::{Booted, boot};
pub use error::EndpointError;
pub use identity::{Identity, agent_has, identify, may_send};
pub use program::worker_main;
pub use questions::{Asked, QueueDesk, nobody_to_ask, unanswered};
pub use shells::{joined, stop_shell};
pub use toolbox::{Equipment, PortCall, QueuePort, hidden, tool_environment, toolbox};
pub use visitors::{Visit, receive_visitors};
