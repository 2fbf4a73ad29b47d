//! `lead team`: teams made, listed and shown from a shell. What is done with their members is in
//! `team_add`, `team_end`, `team_join` and `team_send`, how they end in `team_delete`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::output::{self, Output};
use super::table::{self, Align};
use super::team_add::{self, AddArgs, AdoptArgs};
use super::team_delete::{self, DeleteArgs};
use super::team_end::{self, KillArgs, PaneArgs, ShutdownArgs};
use super::team_join::{self, JoinArgs};
use super::team_send::{self, SendArgs};
use super::team_show::{self, ShowArgs};
use super::teams::Teams;
use crate::core::clock;
use crate::endpoint::MemberState;
use crate::store::team::{NewTeam, Team, all, create};

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
    /// Let a running session lead a team that has no lead
    Adopt(AdoptArgs),
    /// Delete a team with its mail and its tasks
    Delete(DeleteArgs),
    /// Add a member, or bring back one that has ended
    Add(Box<AddArgs>),
    /// Ask a member to end
    Shutdown(ShutdownArgs),
    /// End a member by force
    Kill(KillArgs),
    /// Take a member's pane out of sight
    Hide(PaneArgs),
    /// Bring a hidden pane back
    Unhide(PaneArgs),
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

impl TeamArgs {
    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            TeamVerb::Create(args) => args.json,
            TeamVerb::List(args) => args.json,
            TeamVerb::Show(args) => args.json,
            TeamVerb::Delete(args) => args.json,
            TeamVerb::Adopt(args) => args.json,
            TeamVerb::Add(args) => args.json,
            TeamVerb::Shutdown(args) => args.member.json,
            TeamVerb::Kill(args) => args.member.json,
            TeamVerb::Hide(args) | TeamVerb::Unhide(args) => args.member.json,
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
        TeamVerb::Adopt(args) => team_add::adopt(args, &teams, out),
        TeamVerb::Delete(args) => team_delete::run(args, &teams, out),
        TeamVerb::Add(args) => team_add::add(args, &teams, out),
        TeamVerb::Shutdown(args) => team_end::shutdown(args, &teams, out),
        TeamVerb::Kill(args) => team_end::kill(args, &teams, out),
        TeamVerb::Hide(args) => team_end::show_pane(args, false, &teams, out),
        TeamVerb::Unhide(args) => team_end::show_pane(args, true, &teams, out),
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
        let works = matches!(teams.state(team, &roster, member)?, MemberState::Running(_) | MemberState::External(_));
        row.alive += usize::from(works);
    }
    Ok(row)
}
