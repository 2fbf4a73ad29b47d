//! Teams come and go: whole, or not at all.
//!
//! A team is made beside its place and renamed into it; it goes by being renamed away, and then
//! removed. What a process leaves that is killed in between has a name that begins with a dot, and
//! is removed by the next that makes or deletes a team. All of that happens under one lock of all
//! teams (which comes before that of a team).

use std::fs;
use std::path::Path;

use super::TeamError;
use super::folder::{Team, enter_lead, file_names, roster_in};
use super::lead_lock::{self, LeadLock, Leader};
use super::locks::{Locks, Stop, is_unsupported};
use crate::core::clock::Millis;
use crate::core::ids::{AgentId, random_uuid};
use crate::core::limits::Durability;
use crate::core::paths::ConfigDir;
use crate::core::team::name::{self, LEAD, agent_id, same};
use crate::core::team::roster::Head;
use crate::core::team::{Member, Roster};
use crate::store::StoreError;
use crate::store::atomic::{self, create_private_dir};
use crate::store::session::{all_agents, unlink};

/// The lock of all teams, a name that no team's folder has.
const ALL: &str = ".teams";
/// Begins what is being made.
const COMING: &str = ".coming-";
/// Begins what is being removed.
const GOING: &str = ".going-";

/// A team to be made.
#[derive(Clone, Debug)]
pub struct NewTeam {
    /// The name it is to have; one of ours.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Who leads it, as a process and as a member; none for a team that waits for a lead.
    pub lead: Option<(Leader, Member)>,
    /// When.
    pub created_ms: Millis,
}

/// A team that was made.
#[derive(Debug)]
pub struct Created {
    /// It, with the name it got.
    pub team: Team,
    /// The right to lead it, if there is a lead.
    pub lead: Option<LeadLock>,
}

/// Makes a team with an empty task list. If there is one of that name, of a living lead or not, or
/// one whose folder is called so, it gets the next free number behind it; what is there is not
/// touched. A task list without a team is emptied. [`TeamError::BadName`] suggests another name.
/// Blocks.
pub fn create(config: &ConfigDir, new: &NewTeam, durability: Durability) -> Result<Created, TeamError> {
    name::check_team(&new.name).map_err(TeamError::BadName)?;
    Locks::new(config, ALL, durability).run(|_| {
        let teams = config.teams();
        create_private_dir(&teams)?;
        sweep(config);
        let mut taken = file_names(&teams)?;
        for folder in taken.clone() {
            taken.extend(Team::at(config, &folder, durability).roster().ok().map(|roster| roster.head().name.clone()));
        }
        // Led although it is gone: deleted by force, and its lead does not know yet.
        let is_led = |name: &str| lead_lock::holder(config, name).is_ok_and(|leader| leader.is_some());
        let name = name::unique(&new.name, |name| is_led(name) || taken.iter().any(|t| same(t, name)));
        let team = Team::at(config, &name, durability);
        let lead = match &new.lead {
            Some((leader, _)) => Some(lead_lock::take(config, &name, leader)?),
            None => None,
        };
        let coming = teams.join(format!("{COMING}{}", random_uuid()));
        let made = fill(&coming, &name, new, durability)
            .and_then(|()| team.locks().run(|_| Ok(discard(&config.tasks(), &name)?)))
            .and_then(|()| Ok(forget_members(config, &name)?))
            .and_then(|()| rename_new(&coming, &teams.join(&name)));
        if made.is_err() {
            let _ = fs::remove_dir_all(&coming);
        }
        made?;
        team.board().prepare()?;
        Ok(Created { team, lead })
    })
}

/// Writes what a team begins with.
fn fill(folder: &Path, name: &str, new: &NewTeam, durability: Durability) -> Result<(), TeamError> {
    create_private_dir(&folder.join("inboxes"))?;
    let mut roster = Roster::new(Head {
        name: name.to_owned(),
        description: new.description.clone(),
        created_at: Some(new.created_ms),
        lead_agent_id: Some(agent_id(LEAD, name)),
        ..Head::default()
    });
    if let Some((leader, lead)) = &new.lead {
        enter_lead(&mut roster, leader, lead, new.created_ms);
    }
    Ok(atomic::write(&roster_in(folder), &roster.to_bytes(), durability)?)
}

/// Removes a team: roster, mailboxes, cards, its members' links. Whether its members still run is for the caller to know
/// (spec 3.2), who leads it or knows that nobody does. A team that is gone is no error. Blocks.
pub fn delete(team: &Team) -> Result<(), TeamError> {
    let config = team.config();
    Locks::new(config, ALL, team.durability()).run(|_| {
        let gone = team.locks().run(|held| {
            match team.lock_roster(held) {
                // A roster that can't be read is deleted like any other.
                Ok(_) | Err(Stop::Failed(TeamError::Gone { .. } | TeamError::Store(StoreError::Damaged { .. }))) => {}
                Err(stop) => return Err(stop),
            }
            // The lock folder goes along.
            discard(&config.teams(), team.folder())?;
            discard(&config.tasks(), team.folder())?;
            Ok(())
        });
        sweep(config);
        gone?;
        Ok(forget_members(config, team.folder())?)
    })
}

/// Takes away the links of all that were members, those too that left before and whose lead died at
/// that: a link claims a name, which may be somebody else's in the next team of this name.
fn forget_members(config: &ConfigDir, folder: &str) -> Result<(), StoreError> {
    let is_member = |id: &AgentId| id.as_member().is_some_and(|(_, team)| team == folder);
    all_agents(config).iter().filter(|id| is_member(id)).try_for_each(|id| unlink(config, id))
}

/// Takes a folder out of sight at once; removing what is in it may take its time, and may be left to
/// the next.
fn discard(parent: &Path, name: &str) -> Result<(), StoreError> {
    let (folder, going) = (parent.join(name), parent.join(format!("{GOING}{}", random_uuid())));
    match fs::rename(&folder, &going) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        moved => moved.map_err(StoreError::at(&folder, "move"))?,
    }
    let _ = fs::remove_dir_all(&going);
    Ok(())
}

/// Removes what was being made or removed by processes that died. Under the lock of all teams, so
/// nobody is at it.
fn sweep(config: &ConfigDir) {
    for parent in [config.teams(), config.tasks()] {
        for name in file_names(&parent).unwrap_or_default() {
            if name.starts_with(COMING) || name.starts_with(GOING) {
                let _ = fs::remove_dir_all(parent.join(name));
            }
        }
    }
}

fn rename_new(from: &Path, to: &Path) -> Result<(), TeamError> {
    let renamed = match atomic::rename_new(from, to) {
        // It does not replace a folder that has something in it either.
        Err(e) if is_unsupported(&e) => fs::rename(from, to),
        renamed => renamed,
    };
    Ok(renamed.map_err(StoreError::at(to, "create"))?)
}
