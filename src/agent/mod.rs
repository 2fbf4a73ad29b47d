//! L3: one conversation with a model: a pure step machine ([`Conversation`]) and the driver that
//! carries out its effects ([`Driver`]). A lead's main conversation and every worker use the same.

mod boundary;
mod calls;
mod compact;
mod driver;
mod prompts;
mod step;
#[cfg(test)]
mod step_tests;
mod witness;

pub use boundary::Carried;
pub use compact::{Attached, Compacted, Trigger};
pub use driver::{Driver, DriverError, Parts, Toolbox};
pub use prompts::{coordinator_prompt, main_prompt, workers_context};
pub use step::{Call, Class, Conversation, Effect, Event, Input, TurnEnd, UserLine};
pub use witness::{Nobody, Witness};
