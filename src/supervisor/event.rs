//! What an owner and the tasks of its agents tell each other.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::core::agent::{LiveState, Outcome};
use crate::core::entry::Talk;
use crate::core::frame::{Delivered, Delivery};
use crate::core::ids::AgentId;
use crate::tool::ToolOutput;

/// What the owner asks of an agent's task.
pub enum Command {
    /// Hand over a message.
    Deliver(Deliver),
    /// Stop it.
    Stop {
        /// Who asks, in words.
        reason: String,
        /// Enter the ladder at SIGKILL.
        kill: bool,
    },
    /// Let it go on without an owner.
    Release,
}

/// A message for an agent, and who waits for the answer.
pub struct Deliver {
    /// The message.
    pub delivery: Delivery,
    /// Takes what became of it; `ended` = the run was over before.
    pub reply: oneshot::Sender<Delivered>,
}

/// An agent that is ready.
#[derive(Clone, Debug)]
pub struct Launched {
    /// Its process.
    pub pid: i32,
    /// Its address.
    pub address: String,
}

/// What the owner's loop is told.
pub enum SupervisorEvent {
    /// The agent is ready (or adopted).
    Ready {
        /// The agent.
        id: AgentId,
        /// Its process.
        launched: Launched,
    },
    /// Its state or counters changed.
    State {
        /// The agent.
        id: AgentId,
        /// The state.
        state: Box<LiveState>,
    },
    /// It wrote a line of its conversation. Each line of a run comes once, all of them before the
    /// run's [`Self::Ended`]; only if [`super::Given::tell_lines`] asks for them.
    Line {
        /// The agent.
        id: AgentId,
        /// The line.
        line: Box<Talk>,
    },
    /// It asks for a tool that the lead carries out.
    Call {
        /// The agent.
        id: AgentId,
        /// The tool.
        tool: String,
        /// The call's id.
        tool_use_id: String,
        /// Its input.
        input: Value,
        /// Takes the answer.
        reply: oneshot::Sender<ToolOutput>,
    },
    /// It said nothing for a long time.
    Stalled {
        /// The agent.
        id: AgentId,
        /// How long.
        silent: Duration,
    },
    /// Its run is over and its outcome is on disk.
    Ended {
        /// The agent.
        id: AgentId,
        /// The outcome.
        outcome: Box<Outcome>,
    },
    /// A run did not start; there is no outcome of it.
    NotStarted {
        /// The agent.
        id: AgentId,
        /// Whether it has no earlier run, so that nothing of it remains.
        fresh: bool,
    },
}

/// The words for a process that does not answer.
pub(super) fn not_answering(pid: i32) -> String {
    format!("the agent does not answer (stopped? pid {pid})")
}
