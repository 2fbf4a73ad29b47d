//! Who calls this program: a person, or an agent through its tools. Agents may look, but what their
//! role keeps from them they don't get through the shell either (spec 1.5).

use super::error::CliError;
use crate::core::ids::AgentId;
use crate::endpoint::{Identity, agent_has, identify};
use crate::store::runtime::RuntimeDir;
use crate::wire::Peer;

/// Whom this process works for.
pub(super) fn caller(runtime: &RuntimeDir) -> Identity {
    let pid = nix::unistd::getpid().as_raw();
    identify(runtime, &Peer { pid, uid: nix::unistd::geteuid().as_raw(), pidfd: None })
}

/// The agent this process works for.
pub(super) fn acting_agent(runtime: &RuntimeDir) -> Option<AgentId> {
    match caller(runtime) {
        Identity::Agent(id) => Some(id),
        Identity::Person | Identity::Lead(_) => None,
    }
}

/// Refuses what only a lead and the person may do; `what` completes "agents can't …".
pub(super) fn refuse_agents(runtime: &RuntimeDir, what: &'static str) -> Result<(), CliError> {
    match acting_agent(runtime) {
        Some(agent) => Err(CliError::NotForAgents { agent, what }),
        None => Ok(()),
    }
}

/// Refuses agents that may not send messages; those that may send as themselves.
pub(super) fn refuse_silent_agents(runtime: &RuntimeDir) -> Result<(), CliError> {
    refuse_agents_without(runtime, "SendMessage", "send messages without SendMessage")
}

/// Refuses agents whose pool lacks `tool`; `what` completes "agents can't …".
pub(super) fn refuse_agents_without(runtime: &RuntimeDir, tool: &str, what: &'static str) -> Result<(), CliError> {
    match acting_agent(runtime) {
        Some(agent) if !agent_has(runtime, &agent, tool) => Err(CliError::NotForAgents { agent, what }),
        _ => Ok(()),
    }
}
