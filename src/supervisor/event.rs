//! What an owner and the tasks of its agents tell each other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::backend::PanePlace;
use crate::core::agent::{LiveState, Outcome};
use crate::core::entry::Line;
use crate::core::frame::{Delivered, Delivery, ModelWait, SetPermissions};
use crate::core::ids::AgentId;
use crate::core::question::{Question, Verdict};
use crate::core::team::Protocol;
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
    /// Obey these rules and this mode from now on.
    SetPermissions(Arc<SetPermissions>),
    /// Tell a member something as its lead (spec 3.4).
    Protocol(Box<Protocol>),
    /// Ask what it does, behind all that was said to it before.
    Status(oneshot::Sender<Box<LiveState>>),
    /// End its turn, not the member.
    Interrupt,
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
    /// Its pane.
    pub pane: Option<PanePlace>,
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
    /// It wrote a line of its conversation, or the boundary of a compaction. Each line of a run comes
    /// once, all of them before the run's [`Self::Ended`]; only if [`super::Given::telling`] asks for
    /// them.
    Line {
        /// The agent.
        id: AgentId,
        /// The line.
        line: Box<Line>,
        /// Given back when this is dropped.
        room: Option<OwnedSemaphorePermit>,
    },
    /// Something happened in its conversation that is no line; only if [`super::Given::telling`] asks
    /// for it.
    Doing {
        /// The agent.
        id: AgentId,
        /// What.
        what: Doing,
        /// Given back when this is dropped.
        room: Option<OwnedSemaphorePermit>,
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
    /// It asks whether a call may run.
    Permission {
        /// The agent.
        id: AgentId,
        /// The call.
        question: Question,
        /// Takes the answer.
        reply: oneshot::Sender<Verdict>,
    },
    /// A member's runtime says something to its lead's (spec 3.4).
    Protocol {
        /// The member.
        id: AgentId,
        /// What it says.
        message: Box<Protocol>,
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
    /// It goes on without this owner.
    LetGo {
        /// The agent.
        id: AgentId,
    },
    /// A run did not start; there is no outcome of it.
    NotStarted {
        /// The agent.
        id: AgentId,
        /// Whether it has no earlier run, so that nothing of it remains.
        fresh: bool,
    },
}

/// What happens in an agent's conversation and leaves no line.
pub enum Doing {
    /// It begins to summarise.
    Compacting,
    /// A part of a reply arrived.
    Part {
        /// The reply.
        message_id: String,
        /// The API's event, as JSON on one line.
        event: String,
    },
    /// A model call failed and is repeated.
    Waiting(ModelWait),
}

/// The words for a process that does not answer.
pub(super) fn not_answering(pid: i32) -> String {
    format!("the agent does not answer (stopped? pid {pid})")
}
