//! L4: whatever can be talked to: the boot of an agent's process by handshake with its parent, its
//! own socket, and the loop of a worker (one answer, then exit). A lead uses the socket part.

mod boot;
mod ending;
mod error;
mod identity;
mod lines;
mod toolbox;
mod visitors;
mod worker;

pub use boot::{Booted, boot};
pub use error::EndpointError;
pub use identity::{Identity, identify};
pub use toolbox::{PortCall, QueuePort, tool_environment, toolbox};
pub use visitors::{Visit, receive_visitors};
pub use worker::main as worker_main;
