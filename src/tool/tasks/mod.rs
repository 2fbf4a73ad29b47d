//! The task board as tools: `TaskCreate`, `TaskGet`, `TaskList`, `TaskUpdate` (spec 3.7).
//!
//! [`TaskTool`] is what a model is offered; its calls go to the main loop of a lead or a teammate, which has
//! a [`TaskDesk`] and lets [`carry_out`] work on it. `lead task` uses the desk as well, so that whoever
//! changes a card, hooks are asked and a new owner is told in the same way.

mod answers;
mod carry_out;
mod desk;
mod input;
mod specs;
#[cfg(test)]
pub(super) mod testing;

pub use carry_out::carry_out;
pub use desk::{AliveTest, Changed, TaskDesk, TaskError};
pub use specs::TaskTool;
