//! `lead team show`: one team, its members with what is known of their lives, and its tasks in
//! numbers. Read from files and locks; no process is asked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::error::{CliError, Exit};
use super::output::Output;
use super::table::{self, Align};
use super::task_row::owners;
use super::teams::{Teams, backend_shown};
use crate::core::team::roster::Backend;
use crate::core::team::{Member, Roster, Status};
use crate::core::text;
use crate::store::team::Team;

/// Arguments of `lead team show`.
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The team
    team: String,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// A member, as it is shown.
#[derive(Debug, Serialize)]
struct MemberRow {
    name: String,
    id: Option<String>,
    /// `lead`, `teammate`, `external`.
    role: &'static str,
    #[serde(rename = "type")]
    kind: Option<String>,
    model: Option<String>,
    color: Option<String>,
    /// As the roster says; absent = another program did not say.
    backend: Option<String>,
    /// `running`, `external`, `gone`, `unknown`.
    state: &'static str,
    pid: Option<i32>,
    address: Option<String>,
    session: Option<String>,
    cwd: Option<String>,
    worktree: Option<String>,
    joined_ms: Option<u64>,
    /// Messages that wait for it; absent = its mailbox can't be read.
    unread: Option<usize>,
    #[serde(skip)]
    shown_backend: String,
}

impl MemberRow {
    fn of(team: &Team, roster: &Roster, member: &Member, teams: &Teams<'_>) -> Result<Self, CliError> {
        let state = teams.state(team, roster, member)?;
        let role = match member.backend() {
            _ if member.is_lead() => "lead",
            Backend::External => "external",
            _ => "teammate",
        };
        let seen = team.mailbox(&member.name).and_then(|mailbox| mailbox.look());
        Ok(Self {
            name: member.name.clone(),
            id: member.agent_id.clone(),
            role,
            kind: member.agent_type.clone(),
            model: member.model.clone(),
            color: member.color.clone(),
            backend: member.backend_type.clone(),
            state: state.as_str(),
            pid: state.pid(),
            address: member.socket.clone(),
            session: member.session_id.clone(),
            cwd: member.cwd.clone(),
            worktree: member.worktree_path.clone(),
            joined_ms: member.joined_at,
            unread: seen.ok().map(|seen| seen.unread().count()),
            shown_backend: backend_shown(member),
        })
    }
}

#[derive(Debug, Default, Serialize)]
struct Tasks {
    pending: usize,
    in_progress: usize,
    completed: usize,
    /// Of another status, or not to be read.
    other: usize,
}

#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    description: Option<String>,
    led: bool,
    lead_pid: Option<i32>,
    lead_address: Option<String>,
    lead_session: Option<String>,
    created_ms: Option<u64>,
    roster: PathBuf,
    members: Vec<MemberRow>,
    tasks: Tasks,
}

pub(super) fn run(args: &ShowArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let team = teams.find(Some(&args.team))?;
    let roster = team.roster()?;
    let leader = team.leader()?;
    let members = roster.members().map(|m| MemberRow::of(&team, &roster, m, teams)).collect::<Result<Vec<_>, _>>()?;
    let head = roster.head();
    let led = leader.is_some();
    let leader = leader.flatten();
    let shown = Shown {
        name: team.name(),
        description: head.description.clone(),
        led,
        lead_pid: leader.as_ref().map(|l| l.pid),
        lead_session: leader.as_ref().map(|l| l.session.clone()).or(head.lead_session_id.clone()),
        lead_address: leader.map(|l| l.address),
        created_ms: head.created_at,
        roster: team.roster_path(),
        members,
        tasks: tasks(&team, teams)?,
    };
    if args.json {
        out.json(&shown)?;
    } else {
        print(&shown, out)?;
    }
    Ok(Exit::Success)
}

fn tasks(team: &Team, teams: &Teams<'_>) -> Result<Tasks, CliError> {
    let listing = owners(team, teams, |owners| team.board().list(owners))?;
    let mut tasks = Tasks::default();
    for row in listing.rows {
        *match row.status {
            Status::Pending => &mut tasks.pending,
            Status::InProgress => &mut tasks.in_progress,
            Status::Completed => &mut tasks.completed,
            Status::Other(_) => &mut tasks.other,
        } += 1;
    }
    Ok(tasks)
}

fn print(shown: &Shown, out: &mut Output) -> Result<(), CliError> {
    let lead = match (shown.led, shown.lead_pid, &shown.lead_address) {
        (true, Some(pid), Some(address)) => format!("pid {pid} at {address}"),
        (true, ..) => "a process that has not said which".to_owned(),
        (false, ..) => "none".to_owned(),
    };
    let description = text::one_line(shown.description.as_deref().unwrap_or("none"), 500);
    let Tasks { pending, in_progress, completed, other } = &shown.tasks;
    out.line(&format!("team         {}", text::one_line(&shown.name, 200)))?;
    out.line(&format!("description  {description}"))?;
    out.line(&format!("lead         {}", text::one_line(&lead, 200)))?;
    out.line(&format!("roster       {}", shown.roster.display()))?;
    let more = if *other > 0 { format!(", {other} other") } else { String::new() };
    out.line(&format!("tasks        {pending} pending, {in_progress} in progress, {completed} completed{more}"))?;
    if shown.members.is_empty() {
        return out.line("members      none");
    }
    let columns = [
        ("MEMBER", Align::Left, 40),
        ("STATE", Align::Left, 9),
        ("BACKEND", Align::Left, 20),
        ("PID", Align::Right, 9),
        ("UNREAD", Align::Right, 6),
        ("TYPE", Align::Left, 30),
        ("FOLDER", Align::Left, 50),
    ];
    let cells = |row: &MemberRow| {
        vec![
            row.name.clone(),
            row.state.to_owned(),
            row.shown_backend.clone(),
            row.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            row.unread.map_or_else(|| "?".to_owned(), |n| n.to_string()),
            row.kind.clone().unwrap_or_default(),
            row.cwd.clone().unwrap_or_default(),
        ]
    };
    out.line("")?;
    out.text(&table::render(&columns, &shown.members.iter().map(cells).collect::<Vec<_>>()))
}
