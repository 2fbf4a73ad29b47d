//! `lead team`: teams made, listed, shown and deleted from a shell. How a script joins one and how
//! it sends mail is in `team_join` and `team_send`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::output::{self, Output};
use super::table::{self, Align};
use super::team_join::{self, JoinArgs};
use super::team_send::{self, SendArgs};
use super::team_show::{self, ShowArgs};
use super::teams::{State, Teams};
use crate::core::clock;
use crate::core::team::Roster;
use crate::core::team::roster::Backend;
use crate::core::text;
use crate::store::team::{Holder, NewTeam, Team, all, create, delete};

/// Arguments of `lead team`.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 2 called wrongly, 3 refused, 4 no such team or member, 5 its files stay locked."
)]
pub(super) struct TeamArgs {
    #[command(subcommand)]
    verb: TeamVerb,
}

#[derive(Debug, Subcommand)]
enum TeamVerb {
    /// Make a team without a lead, for scripts
    Create(CreateArgs),
    /// List all teams
    List(ListArgs),
    /// Show one team: its members and how far its tasks are
    Show(ShowArgs),
    /// Delete a team with its mail and its tasks
    Delete(DeleteArgs),
    /// Make a script a member
    Join(JoinArgs),
    /// Send a message to a member, or to all
    Send(SendArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    /// The name it is to have; if there is such a team, it gets a number
    team: String,
    /// Say what it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct DeleteArgs {
    /// The team
    team: String,
    /// Delete it even if members or its lead still work
    #[arg(long)]
    force: bool,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

impl TeamArgs {
    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            TeamVerb::Create(args) => args.json,
            TeamVerb::List(args) => args.json,
            TeamVerb::Show(args) => args.json,
            TeamVerb::Delete(args) => args.json,
            TeamVerb::Join(args) => args.json,
            TeamVerb::Send(args) => args.json,
        }
    }
}

pub(super) fn run(args: &TeamArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let teams = Teams::of(folders)?;
    match &args.verb {
        TeamVerb::Create(args) => make(args, &teams, out),
        TeamVerb::List(args) => list(args, &teams, out),
        TeamVerb::Show(args) => team_show::run(args, &teams, out),
        TeamVerb::Delete(args) => remove(args, &teams, out),
        TeamVerb::Join(args) => team_join::run(args, &teams, out),
        TeamVerb::Send(args) => team_send::run(args, &teams, out),
    }
}

fn make(args: &CreateArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Made {
        name: String,
        roster: std::path::PathBuf,
        tasks: std::path::PathBuf,
    }
    refuse_agents(&teams.runtime, "make teams")?;
    let description = args.description.clone();
    let new = NewTeam { name: args.team.clone(), description, lead: None, created_ms: clock::now_ms() };
    let team = create(&teams.folders.config, &new, teams.durability)?.team;
    let name = team.name();
    if name != args.team {
        output::tell(&format!("lead: there is a team {:?} already, so this one is {name:?}", args.team));
    }
    if args.json {
        out.json(&Made { name, roster: team.roster_path(), tasks: team.board().path().to_owned() })?;
    } else {
        out.line(&name)?;
    }
    Ok(Exit::Success)
}

/// A team, as it is listed. Of one whose roster can't be read nothing but the folder is known.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    description: Option<String>,
    /// How many members it has, and how many of them are known to work.
    members: usize,
    alive: usize,
    /// Whether a living process leads it, and which.
    led: bool,
    lead_pid: Option<i32>,
    lead_session: Option<String>,
    created_ms: Option<u64>,
    roster: std::path::PathBuf,
    error: Option<String>,
}

fn list(args: &ListArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let all = all(&teams.folders.config, teams.durability)?;
    let rows = all.iter().map(|team| row(team, teams)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        out.json(&rows)?;
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        out.line("there are no teams")?;
        return Ok(Exit::Success);
    }
    let columns = [
        ("TEAM", Align::Left, 64),
        ("LEAD", Align::Left, 12),
        ("MEMBERS", Align::Right, 7),
        ("ALIVE", Align::Right, 5),
        ("DESCRIPTION", Align::Left, 60),
    ];
    let cells = |row: &Row| {
        let lead = match (row.led, row.lead_pid) {
            (true, Some(pid)) => format!("pid {pid}"),
            (true, None) => "yes".to_owned(),
            (false, _) => "none".to_owned(),
        };
        let said = row.error.clone().or(row.description.clone()).unwrap_or_default();
        vec![row.name.clone(), lead, row.members.to_string(), row.alive.to_string(), said]
    };
    out.text(&table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>()))?;
    Ok(Exit::Success)
}

fn row(team: &Team, teams: &Teams<'_>) -> Result<Row, CliError> {
    let mut row = Row {
        name: team.folder().to_owned(),
        description: None,
        members: 0,
        alive: 0,
        led: false,
        lead_pid: None,
        lead_session: None,
        created_ms: None,
        roster: team.roster_path(),
        error: None,
    };
    let roster = match team.roster() {
        Ok(roster) => roster,
        Err(error) => {
            row.error = Some(super::error::with_causes(&error));
            return Ok(row);
        }
    };
    let leader = team.leader()?;
    row.led = leader.is_some();
    row.lead_pid = leader.flatten().map(|l| l.pid);
    let head = roster.head();
    if !head.name.is_empty() {
        row.name.clone_from(&head.name);
    }
    row.description.clone_from(&head.description);
    row.lead_session.clone_from(&head.lead_session_id);
    row.created_ms = head.created_at;
    for member in roster.members() {
        row.members += 1;
        let works = matches!(teams.state(team, &roster, member)?, State::Running(_) | State::External(_));
        row.alive += usize::from(works);
    }
    Ok(row)
}

fn remove(args: &DeleteArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
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
    let working = working(&team, teams)?;
    if !working.is_empty() && !args.force {
        return Err(CliError::Refused(format!(
            "team {name:?} is in use: {}; stop them first, or delete it with --force",
            working.join(", ")
        )));
    }
    let scripts = scripts(&team);
    delete(&team)?;
    for script in scripts {
        // What a dead one left; a living one takes its own away when it ends.
        if let Ok(Holder::Dead) = team.holder(&script)
            && let Ok(hold) = team.hold(&script)
        {
            hold.end();
        }
    }
    if !working.is_empty() {
        output::tell(&text::for_terminal(&format!("lead: still at work: {}", working.join(", "))));
    }
    if args.json {
        out.json(&Removed { name, deleted: true, working })?;
    } else {
        out.line(&format!("{name}  deleted"))?;
    }
    Ok(Exit::Success)
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
            State::Running(_) if member.is_lead() => {}
            State::Running(Some(pid)) | State::External(Some(pid)) => {
                found.push(format!("{} (pid {pid})", member.name));
            }
            State::Running(None) => found.push(member.name.clone()),
            State::Unknown => {
                found.push(format!("{} (of another program, which does not tell whether it lives)", member.name));
            }
            State::External(None) | State::Gone => {}
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
