//! Who is behind a connection (spec 5.6). It is computed from the peer's process, never believed:
//! a process that descends from an agent, or carries its `LEAD_AGENT_ID`, is that agent.

use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::AgentFiles;
use crate::core::text;
use crate::store::runtime::{RuntimeDir, find_alive, list};
use crate::store::session::read_meta;
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

    /// What somebody said, as the model is told: the person's words as they are, anybody else's marked
    /// as coming from outside and unable to forge a tag.
    pub fn heard(&self, said: &str) -> String {
        if *self == Self::Person {
            return said.to_owned();
        }
        format!(
            "<cross-session-message from=\"{}\">\n{}\n</cross-session-message>",
            text::escape_attribute(&self.label()),
            text::escape(said)
        )
    }
}

/// Whether a living agent's pool has a tool, so that it may have the same done through its shell
/// (spec 1.5). The tools of one that is gone have none.
pub fn agent_has(runtime: &RuntimeDir, id: &AgentId, tool: &str) -> bool {
    let found = find_alive(runtime, |e| e.agent_id == id.as_str()).ok().flatten();
    let meta = found.and_then(|r| r.state).and_then(|s| read_meta(&AgentFiles::of(s.transcript)).ok());
    meta.and_then(|m| m.pool).is_some_and(|pool| pool.iter().any(|t| t == tool))
}

/// Refuses the messages of an agent that has no `SendMessage`; the error is for it.
pub fn may_send(runtime: &RuntimeDir, identity: &Identity) -> Result<(), String> {
    match identity {
        Identity::Agent(id) if !agent_has(runtime, id, "SendMessage") => Err(format!(
            "{id} is an agent without SendMessage, so it can't send messages; put what you have to say into your answer"
        )),
        _ => Ok(()),
    }
}

/// Finds out who a peer is: the first of its ancestors that is in the registry, else the agent its
/// environment names, else the person.
pub fn identify(runtime: &RuntimeDir, peer: &Peer) -> Identity {
    let mut registered = list(runtime).unwrap_or_default();
    registered.retain(|r| r.alive);
    let known = |pid: i32| {
        let entry = registered.iter().find(|r| r.entry.pid == pid)?;
        match AgentId::parse(&entry.entry.agent_id) {
            Some(id) => Some(Identity::Agent(id)),
            None => SessionId::parse(&entry.entry.agent_id).map(Identity::Lead),
        }
    };
    // Where nobody lives nobody can be an ancestor, whose chain is long to follow.
    let ancestor = if registered.is_empty() { None } else { descends_from(peer.pid, &known) };
    ancestor.or_else(|| agent_of_environ(peer.pid).map(Identity::Agent)).unwrap_or(Identity::Person)
}
