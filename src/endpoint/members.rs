//! Whether the members of a team live: by the registry for those of ours, by their place for scripts,
//! by pane or pid for those of other programs. Asked by the verbs, the lead and teammates, whose claims
//! are leases of living processes (spec 3.7).

use std::sync::Arc;

use crate::core::team::roster::Backend;
use crate::core::team::{Member, Roster};
use crate::proc::pid_with_argument;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::store::team::{Holder, Team, TeamError};
use crate::tool::tasks::AliveTest;

/// Whether a member works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Its process lives, as far as is known which.
    Running(Option<i32>),
    /// It is a script, of a living command or of none.
    External(Option<i32>),
    /// Its process is gone.
    Gone,
    /// Another program runs it, and nobody can say from outside.
    Unknown,
}

impl MemberState {
    /// A word for lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running(_) => "running",
            Self::External(_) => "external",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }

    /// Its process.
    pub fn pid(self) -> Option<i32> {
        match self {
            Self::Running(pid) | Self::External(pid) => pid,
            Self::Gone | Self::Unknown => None,
        }
    }
}

/// Whether a member of `team` works. Blocks.
///
/// # Errors
/// If locks or the registry can't be read.
pub fn member_state(
    runtime: &RuntimeDir,
    team: &Team,
    roster: &Roster,
    member: &Member,
) -> Result<MemberState, TeamError> {
    let found = |pid: Option<i32>| pid.map_or(MemberState::Gone, |pid| MemberState::Running(Some(pid)));
    if member.backend() == Backend::External {
        return Ok(match team.holder(&member.name)? {
            Holder::Alive(pid) => MemberState::External(pid),
            Holder::Nobody => MemberState::External(None),
            Holder::Dead => MemberState::Gone,
        });
    }
    if member.is_lead() && roster.head().lead.is_some() {
        return Ok(match team.leader()? {
            Some(leader) => MemberState::Running(leader.map(|l| l.pid)),
            None => MemberState::Gone,
        });
    }
    // One of ours. Its address is entered when it is ready; until then its id tells.
    if member.session_id.is_some() || member.socket.is_some() {
        let id = member.agent_id.as_deref();
        let alive = find_alive(runtime, |e| member.socket.as_ref() == Some(&e.address) || Some(&*e.agent_id) == id)?;
        return Ok(match alive {
            // Its lead is starting it, or died while it did: nobody can tell.
            None if member.socket.is_none() && member.is_active == Some(true) => MemberState::Unknown,
            alive => found(alive.map(|r| r.entry.pid)),
        });
    }
    // Of another program. One in a pane says who it is in its arguments, others are in a process
    // that does not.
    let in_pane =
        member.backend() == Backend::Tmux || member.tmux_pane_id.as_deref().is_some_and(|pane| pane.starts_with('%'));
    Ok(match (in_pane, &member.agent_id) {
        (true, Some(id)) => found(pid_with_argument("--agent-id", id)),
        _ => MemberState::Unknown,
    })
}

/// For [`Team::life`]: only those are dead of whom that is known.
pub fn alive_test(runtime: &RuntimeDir, team: &Team) -> AliveTest {
    let (runtime, team) = (runtime.clone(), team.clone());
    Arc::new(move |member| {
        let state = team.roster().and_then(|roster| member_state(&runtime, &team, &roster, member));
        !matches!(state, Ok(MemberState::Gone))
    })
}
