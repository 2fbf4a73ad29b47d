//! What a model asks of its lead: calls of `Agent`, `SendMessage` and `TaskStop`, whoever made them.

use std::time::Instant;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::core::ids::{self, AgentId};
use crate::endpoint::PortCall;
use crate::tool::ToolOutput;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The main conversation.
    Main,
    /// An agent, over its owner link.
    Agent(AgentId),
}

/// A call to carry out.
pub(super) struct Ask {
    pub tool: String,
    pub tool_use_id: String,
    pub input: Value,
    pub cancel: CancellationToken,
    pub reply: oneshot::Sender<ToolOutput>,
    pub asker: Asker,
    /// Duplicate guard of a message: the same in every round.
    pub msg_id: String,
    /// Rounds between delivering and resuming so far.
    pub rounds: u32,
    pub since: Instant,
}

impl Ask {
    pub(super) fn of_main(call: PortCall) -> Self {
        Self {
            tool: call.tool,
            tool_use_id: call.tool_use_id,
            input: call.input,
            cancel: call.cancel,
            reply: call.reply,
            asker: Asker::Main,
            msg_id: ids::random_uuid(),
            rounds: 0,
            since: Instant::now(),
        }
    }

    pub(super) fn of_agent(
        id: AgentId,
        tool: String,
        tool_use_id: String,
        input: Value,
        reply: oneshot::Sender<ToolOutput>,
    ) -> Self {
        Self {
            tool,
            tool_use_id,
            input,
            cancel: CancellationToken::new(),
            reply,
            asker: Asker::Agent(id),
            msg_id: ids::random_uuid(),
            rounds: 0,
            since: Instant::now(),
        }
    }

    pub(super) fn answer(self, output: ToolOutput) {
        let _ = self.reply.send(output);
    }
}
