//! L5: the session. Queue, routing and notifications are pure values; one loop turns everything
//! that happens into calls on them.

mod ask;
mod delegate;
mod error;
mod message;
mod notify;
mod options;
mod queue;
mod resume;
mod roles;
mod route;
mod session;
mod setup;
mod stop;
mod visit;

pub use error::LeadError;
pub use options::{LiveLead, RunEnd, RunReport, SessionChoice, SessionOptions};
pub use queue::{Entry, Priority, Queue};
pub use session::run;
