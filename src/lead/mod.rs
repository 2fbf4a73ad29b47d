//! L5: the session. Queue, routing and notifications are pure values; one loop turns everything
//! that happens into calls on them.

mod ask;
mod cost;
mod delegate;
mod error;
mod message;
mod notify;
mod options;
mod owed;
mod queue;
mod report;
mod resume;
mod roles;
mod route;
mod session;
mod setup;
mod stop;
mod structured;
mod told;
mod turns;
mod verdict;
mod visit;

pub use cost::ModelUse;
pub use error::LeadError;
pub use options::{LiveLead, RunEnd, RunReport, SessionChoice, SessionOptions};
pub use queue::{Entry, Priority, Queue};
pub use session::{run, run_with};
pub use told::{InputKind, Inputs, Listener, SessionInput, Setting, Streams, Task, Told};
