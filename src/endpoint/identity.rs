//! Who is behind a connection (spec 5.6). It is computed from the peer's process, never believed:
//! a process that descends from an agent, or carries its `LEAD_AGENT_ID`, is that agent.

use crate::core::ids::{AgentId, SessionId};
use crate::store::runtime::{RuntimeDir, list};
use crate::wire::{Peer, agent_of_environ, descends_from};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The person, or a program that no agent started.
    Person,
    /// A lead, or a tool of its main conversation.
    Lead(SessionId),
    /// An agent, or one of its tools.
    Agent(AgentId),
}

impl Identity {
    /// As written into `from`.
    pub fn label(&self) -> String {
        match self {
            Self::Person => "user".to_owned(),
            Self::Lead(session) => session.as_str().to_owned(),
            Self::Agent(id) => id.as_str().to_owned(),
        }
    }
}

/// Finds out who a peer is: the first of its ancestors that is in the registry, else the agent its
/// environment names, else the person.
pub fn identify(runtime: &RuntimeDir, peer: &Peer) -> Identity {
    let registered = list(runtime).unwrap_or_default();
    let known = |pid: i32| {
        let entry = registered.iter().find(|r| r.alive && r.entry.pid == pid)?;
        match AgentId::parse(&entry.entry.agent_id) {
            Some(id) => Some(Identity::Agent(id)),
            None => SessionId::parse(&entry.entry.agent_id).map(Identity::Lead),
        }
    };
    descends_from(peer.pid, &known)
        .or_else(|| agent_of_environ(peer.pid).map(Identity::Agent))
        .unwrap_or(Identity::Person)
}
