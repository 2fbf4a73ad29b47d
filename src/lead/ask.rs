//! What a model asks of its lead: calls of `Agent`, `SendMessage`, `TaskStop` and `TaskOutput`, whoever
//! made them.

use std::time::Instant;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::core::ids::{self, AgentId, SessionId};
use crate::endpoint::{Identity, PortCall};
use crate::tool::ToolOutput;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The main conversation.
    Main,
    /// An agent, over its owner link or by a shell of its own.
    Agent(AgentId),
    /// The person, by a verb of the command line.
    Person,
    /// Another session.
    Session(SessionId),
}

impl Asker {
    /// As written into `from`; `own` is the session that is asked.
    pub(super) fn label(&self, own: &SessionId) -> String {
        match self {
            Self::Main => own.as_str().to_owned(),
            Self::Agent(id) => id.as_str().to_owned(),
            Self::Person => Identity::Person.label(),
            Self::Session(id) => id.as_str().to_owned(),
        }
    }
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

    /// What came over the session's own socket; the receiver takes the answer.
    pub(super) fn of_visitor(asker: Asker, tool: &str, input: Value) -> (Self, oneshot::Receiver<ToolOutput>) {
        let (reply, answer) = oneshot::channel();
        let ask = Self {
            tool: tool.to_owned(),
            tool_use_id: String::new(),
            input,
            cancel: CancellationToken::new(),
            reply,
            asker,
            msg_id: ids::random_uuid(),
            rounds: 0,
            since: Instant::now(),
        };
        (ask, answer)
    }

    pub(super) fn answer(self, output: ToolOutput) {
        let _ = self.reply.send(output);
    }
}
