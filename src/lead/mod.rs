//! L5: the session. Queue, routing and notifications are pure values; one loop turns everything
//! that happens into calls on them.

mod ask;
mod cost;
mod delegate;
mod desk;
mod error;
mod knowledge;
mod message;
mod notify;
mod options;
mod owed;
mod permit;
mod person;
mod queue;
mod quit;
mod reload;
mod report;
mod resume;
mod roles;
mod route;
mod session;
mod setup;
mod shells;
pub mod stand_in;
mod state;
mod stop;
mod structured;
mod task_output;
mod tasks;
mod team;
mod told;
mod turns;
mod verdict;
mod visit;

pub use cost::ModelUse;
pub use error::LeadError;
pub use options::{LiveLead, Questions, RunEnd, RunReport, SessionChoice, SessionOptions, Standing, TeammateMode};
pub use person::{Declined, SpawnInput, Started};
pub use queue::{Entry, Priority, Queue};
pub use session::{run, run_with};
pub use team::{AddInput, TeamRequest, close_panes};
pub use told::{InputKind, Inputs, Listener, SessionInput, Setting, Streams, Task, Told, Who};
