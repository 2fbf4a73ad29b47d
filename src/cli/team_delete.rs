//! `lead team delete`: removes a team that nobody works in, or asks its lead to; by force it ends its
//! members first.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::caller::refuse_agents;
use super::error::{CliError, Exit, with_causes};
use super::output::{self, Output};
use super::stop::async_runtime;
use super::team_end::kill_here;
use super::team_lead::{ask_lead, lead_of_team};
use super::teams::Teams;
use crate::core::limits::deadlines;
use crate::core::team::Roster;
use crate::core::team::roster::Backend;
use crate::core::text;
use crate::endpoint::MemberState;
use crate::lead::{Declined, TeamRequest, close_panes};
use crate::store::runtime::Registered;
use crate::store::team::{Holder, Team, delete};

/// How long a member's end is waited for that is ended by force.
const PATIENCE: Duration = Duration::from_secs(15);

/// Arguments of `lead team delete`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 deleted, 3 somebody works in it or refused to end, 4 no such team, 5 no answer in time."
)]
pub(super) struct DeleteArgs {
    /// The team
    team: String,
    /// Let its lead ask the members to end and wait this long, such as 30s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// End its members, and delete it even if its lead or scripts still work
    #[arg(long, conflicts_with = "wait")]
    force: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &DeleteArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Removed {
        name: String,
        deleted: bool,
        /// Those that worked when it was deleted by force.
        working: Vec<String>,
    }
    refuse_agents(&teams.runtime, "delete teams")?;
    let team = teams.find(Some(&args.team))?;
    let name = team.name();
    let found = working(&team, teams)?;
    let lead = if args.wait.is_some() || args.force { lead_of_team(&team, teams) } else { Ok(None) };
    let mut is_gone = false;
    match (args.wait, args.force) {
        (_, true) => {
            end_members(&team, teams);
            // Its lead would go on with a team that is not there.
            is_gone = match lead {
                Ok(Some(lead)) => by_its_lead(&team, &lead, None).inspect_err(tell).is_ok(),
                Ok(None) => false,
                Err(error) => {
                    tell(&error);
                    false
                }
            };
        }
        (Some(wait), false) => match lead? {
            Some(lead) => {
                by_its_lead(&team, &lead, Some(wait))?;
                is_gone = true;
            }
            None if found.is_empty() => {}
            None => {
                return Err(CliError::Refused(format!(
                    "nobody leads team {name:?}, so nobody can ask its members to end: {}; --force ends them",
                    found.join(", ")
                )));
            }
        },
        (None, false) if found.is_empty() => {}
        (None, false) => {
            return Err(CliError::Refused(format!(
                "team {name:?} is in use: {}; --wait 30s lets its lead ask them to end, --force ends them",
                found.join(", ")
            )));
        }
    }
    let working = if args.wait.is_some() { Vec::new() } else { found };
    let left = if is_gone { Vec::new() } else { self::working(&team, teams).unwrap_or_default() };
    let scripts = scripts(&team);
    if !is_gone {
        let runtime = async_runtime()?;
        let closed = runtime.block_on(close_panes(&team, &std::env::vars().collect::<Vec<_>>()));
        runtime.shutdown_background();
        // By force the files go all the same; a pane without a member is somebody's to close.
        match closed.map_err(|error| CliError::Refused(format!("the team was not deleted: {}", with_causes(&error)))) {
            Err(error) if args.force => tell(&error),
            closed => closed?,
        }
        delete(&team)?;
    }
    for script in scripts {
        // What a dead one left; a living one takes its own away when it ends.
        if let Ok(Holder::Dead) = team.holder(&script)
            && let Ok(hold) = team.hold(&script)
        {
            hold.end();
        }
    }
    if !left.is_empty() {
        output::tell(&text::for_terminal(&format!("lead: still at work: {}", left.join(", "))));
    }
    if args.json {
        out.json(&Removed { name, deleted: true, working })?;
    } else {
        out.line(&format!("{name}  deleted"))?;
    }
    Ok(Exit::Success)
}

fn tell(error: &CliError) {
    output::tell(&text::for_terminal(&format!("lead: {}", with_causes(error))));
}

/// Lets its lead remove it; with `wait` it asks the members to end and waits for them.
fn by_its_lead(team: &Team, lead: &Registered, wait: Option<Duration>) -> Result<(), CliError> {
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let request = TeamRequest::TeamRemove { team: team.name(), wait_ms };
    let patience = wait.unwrap_or_default() + deadlines().reply;
    match ask_lead(&lead.entry.address, &request, patience, "its lead has not removed the team") {
        // In words that are its lead's own: who refused, who did not answer.
        Err(CliError::Declined(Declined::Failed(why))) => Err(CliError::Refused(why)),
        other => other.map(drop),
    }
}

/// Ends the members that are processes of ours; what can't be ended is told.
fn end_members(team: &Team, teams: &Teams<'_>) {
    let Ok(roster) = team.roster() else { return };
    let ours = roster.members().filter(|m| !m.is_lead() && m.session_id.is_some() && m.backend() != Backend::External);
    for member in ours {
        if matches!(teams.state(team, &roster, member), Ok(MemberState::Running(Some(_))))
            && let Err(error) = kill_here(team, member, PATIENCE, teams)
        {
            tell(&error);
        }
    }
}

/// Who would lose something, in words. Of a roster that can't be read only the lead is known.
fn working(team: &Team, teams: &Teams<'_>) -> Result<Vec<String>, CliError> {
    let mut found = Vec::new();
    if let Some(leader) = team.leader()? {
        found.push(leader.map_or_else(
            || "its lead".to_owned(),
            |l| format!("its lead (pid {}, session {}, {})", l.pid, l.session, l.address),
        ));
    }
    let Ok(roster) = team.roster() else { return Ok(found) };
    for member in roster.members() {
        match teams.state(team, &roster, member)? {
            // Told already.
            MemberState::Running(_) if member.is_lead() => {}
            MemberState::Running(Some(pid)) | MemberState::External(Some(pid)) => {
                found.push(format!("{} (pid {pid})", member.name));
            }
            MemberState::Running(None) => found.push(member.name.clone()),
            MemberState::Unknown => {
                found.push(format!("{} (of another program, which does not tell whether it lives)", member.name));
            }
            MemberState::External(None) | MemberState::Gone => {}
        }
    }
    Ok(found)
}

fn scripts(team: &Team) -> Vec<String> {
    let of = |roster: Roster| {
        let scripts = roster.members().filter(|m| m.backend() == Backend::External);
        scripts.map(|m| m.name.clone()).collect()
    };
    team.roster().map(of).unwrap_or_default()
}
