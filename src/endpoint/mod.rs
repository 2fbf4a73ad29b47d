//! L4: whatever can be talked to: the boot of an agent's process by handshake with its parent, its
//! own socket, what it hears there, and the loop of a worker (one answer, then exit). A teammate puts a
//! loop of its own around the same; a lead uses the socket part.

mod agent;
mod arrivals;
mod boot;
mod ending;
mod error;
mod identity;
mod lines;
mod members;
mod permissions;
mod program;
mod questions;
mod requests;
mod shells;
mod team_watch;
mod toolbox;
mod visitors;
mod worker;

pub use agent::{Agent, Given, Heard, OwnerLink};
pub use arrivals::Arrivals;
pub use boot::{Booted, boot};
pub use ending::RunEnding;
pub use error::EndpointError;
pub use identity::{Identity, agent_has, identify, may_send};
pub use members::{MemberState, alive_test, member_state};
pub use program::{AgentLife, PARENT, agent_main};
pub use questions::{Asked, QuestionEvent, QueueDesk, nobody_to_ask, unanswered};
pub use shells::{joined, stop_shell};
pub use team_watch::{Changes, TeamWatch, changes_of};
pub use toolbox::{Equipment, PortCall, QueuePort, agent_types, hidden, tool_environment, toolbox};
pub use visitors::{Visit, receive_visitors};
pub use worker::worker_main;
