//! L3: one conversation with a model: a pure step machine ([`Conversation`]) and the driver that
//! carries out its effects ([`Driver`]). A lead's main conversation and every worker use the same.

mod boundary;
mod calls;
mod compact;
mod driver;
mod input;
mod pause;
mod permit;
mod prompts;
mod shell_notice;
mod step;
#[cfg(test)]
mod step_tests;
mod still_running;
mod teammate_prompt;
mod witness;

pub use boundary::Carried;
pub use compact::{Attached, Compacted, Trigger};
pub use driver::{Driver, DriverError, Parts, Toolbox};
pub use input::{Input, UserLine};
pub use permit::Desk;
pub use prompts::{
    coordinator_prompt, instructions_context, main_prompt, skills_context, team_context, workers_context,
};
pub use shell_notice::{lost_end, lost_shell_notification, shell_notification, shell_summary};
pub use step::{Call, Class, Conversation, Effect, Event, TurnEnd};
pub use still_running::still_running;
pub use teammate_prompt::{Identity, teammate_prompt};
pub use witness::{Nobody, Witness};
