//! Who leads an agent now: the lead of its session; of a member, whoever leads its team, which may be
//! another session than the one that started it.

use super::ended::session_of;
use super::error::CliError;
use crate::core::ids::AgentId;
use crate::core::limits::Durability;
use crate::core::paths::{AgentFiles, ConfigDir};
use crate::core::text::with_causes;
use crate::store::runtime::{Registered, RuntimeDir, find_alive};
use crate::store::team::Team;

/// The team that an agent is a member of, if it still is there.
pub(super) fn team_of(id: &AgentId, files: &AgentFiles) -> Option<Team> {
    let (_, folder) = id.as_member()?;
    // A transcript is `projects/<folder>/<session>.jsonl` of a config folder.
    let config = files.transcript().ancestors().nth(3)?;
    Team::open(&ConfigDir::new(config), folder, Durability::Process).ok()
}

/// The living lead of an agent.
pub(super) fn lead_of(id: &AgentId, files: &AgentFiles, dir: &RuntimeDir) -> Result<Option<Registered>, CliError> {
    if id.as_member().is_some() {
        let Some(leader) = team_of(id, files).map(|team| team.leader()).transpose()?.flatten().flatten() else {
            return Ok(None);
        };
        return Ok(find_alive(dir, |e| e.role == "lead" && e.pid == leader.pid && e.session == leader.session)?);
    }
    let Some(session) = session_of(files) else { return Ok(None) };
    Ok(find_alive(dir, |e| e.role == "lead" && e.session == session.as_str())?)
}

/// Puts roster and board right for a member that is gone and could not do so itself.
pub(super) fn tidy_team(id: &AgentId, files: &AgentFiles, note: &str) {
    let (Some((name, _)), Some(team)) = (id.as_member(), team_of(id, files)) else { return };
    if let Err(error) = team.mark_gone(name, &format!("{name} ended: {note}")) {
        let why = with_causes(&error);
        super::output::tell(&format!("lead: roster or board do not say that {name} is gone: {why}"));
    }
}
