//! `lead sessions`: which sessions there are, what one has, and its removal. Read from files and the
//! registry; no process is asked.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::caller::refuse_agents;
use super::error::{CliError, Exit, with_causes};
use super::folders::Folders;
use super::lookup::{find_session, ours};
use super::output::{self, Output};
use super::ps::{render as render_agents, rows_of_session};
use super::ps_row::PsRow;
use super::table::{self, Align};
use crate::core::agent::Owner;
use crate::core::clock;
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::{AgentFiles, SessionFiles, scratchpad};
use crate::core::text;
use crate::store::StoreError;
use crate::store::runtime::Registered;
use crate::store::session::agents_of;
use crate::store::sessions::{Beginning, beginning, remove_session, sessions, undelivered};

/// Arguments of `lead sessions`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct SessionsArgs {
    #[command(subcommand)]
    verb: Option<SessionsVerb>,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SessionsVerb {
    /// List all sessions, the latest first
    List(ListArgs),
    /// Show one session and its agents
    Show(ShowArgs),
    /// Remove sessions with everything their agents left
    Rm(RmArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// The session: its id, or the beginning of it
    session: String,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 removed, 1 not all of it could be, 3 something of it runs, 4 unknown.")]
struct RmArgs {
    /// The sessions: ids, or the beginnings of them
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

impl SessionsArgs {
    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            None => self.json,
            Some(SessionsVerb::List(args)) => args.json,
            Some(SessionsVerb::Show(args)) => args.json,
            Some(SessionsVerb::Rm(args)) => args.json,
        }
    }
}

/// A session, as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    id: SessionId,
    /// `owned`: it has a lead, or its member of a team works; `orphaned`, `detached`: it has none, but living agents that lost theirs,
    /// or only such that need none; `ended`.
    state: &'static str,
    cwd: Option<String>,
    /// What it was told first, in short.
    prompt: Option<String>,
    /// The member of a team whose own session it is.
    member: Option<AgentId>,
    last_activity_ms: Option<u64>,
    /// How many agents it has started, how many of them live, and how many ends of theirs its
    /// conversation was not told of.
    agents: usize,
    alive: usize,
    undelivered: usize,
    pid: Option<i32>,
    address: Option<String>,
    transcript: PathBuf,
}

pub(super) fn run(args: &SessionsArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(args.json, folders, out),
        Some(SessionsVerb::List(args)) => list(args.json, folders, out),
        Some(SessionsVerb::Show(args)) => show(args, folders, out),
        Some(SessionsVerb::Rm(args)) => rm(args, folders, out),
    }
}

fn list(json: bool, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let registered = ours(folders, &folders.open_runtime()?)?;
    let living = living_of(&registered);
    let mut rows: Vec<Row> = Vec::new();
    for (id, files) in sessions(&folders.config, "") {
        let living = living.get(id.as_str()).map_or(&[][..], Vec::as_slice);
        let is_empty = fs::metadata(files.transcript()).is_ok_and(|m| m.len() == 0);
        // One in which nothing was said is none.
        if !is_empty || !living.is_empty() {
            rows.push(row(id, &files, living));
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.last_activity_ms));
    if json {
        out.json(&rows)?;
    } else if rows.is_empty() {
        out.line("there are no sessions")?;
    } else {
        out.text(&render(&rows, clock::now_ms()))?;
    }
    Ok(Exit::Success)
}

/// The living processes of each session. A member of a team is one of its lead's, and has one of its own.
fn living_of(registered: &[Registered]) -> HashMap<&str, Vec<&Registered>> {
    let mut living: HashMap<&str, Vec<&Registered>> = HashMap::new();
    for one in registered.iter().filter(|r| r.alive) {
        living.entry(&one.entry.session).or_default().push(one);
        if let Some(own) = own_session(one) {
            living.entry(own).or_default().push(one);
        }
    }
    living
}

fn own_session(one: &Registered) -> Option<&str> {
    let transcript = one.state.as_ref().map(|state| Path::new(&state.transcript))?;
    transcript.file_stem()?.to_str().filter(|_| one.entry.role == "teammate")
}

fn row(id: SessionId, files: &SessionFiles, living: &[&Registered]) -> Row {
    // A damaged one is listed all the same.
    let began = beginning(files.transcript()).unwrap_or_default();
    let is_own = |r: &&&Registered| own_session(r) == Some(id.as_str());
    let lead = living.iter().find(|r| r.entry.role == "lead" || is_own(r));
    let agents: Vec<_> = living.iter().filter(|r| r.entry.role != "lead" && !is_own(r)).collect();
    let is_lost = |r: &Registered| r.state.as_ref().is_some_and(|s| s.owner == Owner::Lost);
    let owned_by = |owner| agents.iter().any(|r| r.state.as_ref().is_some_and(|s| s.owner == owner));
    let state = match lead {
        Some(lead) if is_own(&lead) && is_lost(lead) => "orphaned",
        Some(_) => "owned",
        None if agents.is_empty() => "ended",
        None if owned_by(Owner::Lost) => "orphaned",
        None => "detached",
    };
    let written = fs::metadata(files.transcript()).and_then(|m| m.modified()).ok();
    let written = written.and_then(|t| u64::try_from(t.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok());
    let last_event = living.iter().filter_map(|r| Some(r.state.as_ref()?.last_event_ms)).max();
    Row {
        state,
        cwd: began.cwd,
        prompt: began.prompt.map(|p| text::one_line(&p, 80)),
        member: began.member,
        last_activity_ms: written.max(last_event),
        agents: agents_of(files).len(),
        alive: agents.len(),
        undelivered: undelivered(files).unwrap_or_default(),
        pid: lead.map(|r| r.entry.pid),
        address: lead.map(|r| r.entry.address.clone()),
        transcript: files.transcript().to_owned(),
        id,
    }
}

fn render(rows: &[Row], now_ms: u64) -> String {
    let columns = [
        ("SESSION", Align::Left, 36),
        ("STATE", Align::Left, 9),
        ("LAST", Align::Right, 6),
        ("ALIVE", Align::Right, 6),
        ("UNDELIVERED", Align::Right, 11),
        ("FOLDER", Align::Left, 40),
        ("PROMPT", Align::Left, 50),
    ];
    let cells = |row: &Row| {
        let ago = row.last_activity_ms.map(|t| Duration::from_millis(now_ms.saturating_sub(t)));
        vec![
            row.id.to_string(),
            row.state.to_owned(),
            ago.map(table::short_duration).unwrap_or_default(),
            row.alive.to_string(),
            row.undelivered.to_string(),
            row.cwd.clone().unwrap_or_default(),
            row.member.iter().map(AgentId::as_str).chain(row.prompt.as_deref()).collect::<Vec<_>>().join(": "),
        ]
    };
    table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn show(args: &ShowArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Shown {
        #[serde(flatten)]
        session: Row,
        #[serde(rename = "agent_rows")]
        agents: Vec<PsRow>,
    }
    let registered = ours(folders, &folders.open_runtime()?)?;
    let (id, files) = find_session(&args.session, folders)?;
    let living = living_of(&registered).remove(id.as_str()).unwrap_or_default();
    let agents = rows_of_session(&id, folders, &registered);
    let session = row(id, &files, &living);
    if args.json {
        out.json(&Shown { session, agents })?;
        return Ok(Exit::Success);
    }
    let folder = session.cwd.as_deref().unwrap_or("unknown");
    out.line(&format!("session     {}", session.id))?;
    out.line(&format!("state       {}", session.state))?;
    if let Some(member) = &session.member {
        out.line(&format!("member      {member}"))?;
    }
    if let (Some(pid), Some(address)) = (session.pid, &session.address) {
        let whose = if session.member.is_some() { "process" } else { "lead" };
        out.line(&format!("{whose:<12}pid {pid} at {address}"))?;
    }
    out.line(&format!("folder      {}", text::one_line(folder, 500)))?;
    out.line(&format!("prompt      {}", session.prompt.as_deref().unwrap_or("none")))?;
    out.line(&format!("transcript  {}", session.transcript.display()))?;
    out.line(&format!("agents      {}, {} alive, {} undelivered", session.agents, session.alive, session.undelivered))?;
    if !agents.is_empty() {
        out.line("")?;
        out.text(&render_agents(&agents, false, clock::now_ms()))?;
    }
    Ok(Exit::Success)
}

fn rm(args: &RmArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Removed {
        id: String,
        removed: bool,
        error: Option<String>,
    }
    refuse_agents(&folders.open_runtime()?, "remove sessions")?;
    let mut removed: Vec<(String, Result<(), CliError>)> = Vec::new();
    for said in &args.sessions {
        removed.push(match find_session(said, folders) {
            Ok((id, files)) => (id.to_string(), remove(&id, &files, folders)),
            Err(error) => (said.clone(), Err(error)),
        });
    }
    // One that is asked for alone fails like any other command.
    if let [(_, done)] = &mut removed[..] {
        std::mem::replace(done, Ok(()))?;
    }
    let worst = removed.iter().filter_map(|(_, done)| done.as_ref().err()).map(CliError::exit).max_by_key(|e| e.code());
    for (_, done) in removed.iter().filter(|_| !args.json) {
        if let Err(error) = done {
            output::tell(&error.for_person());
        }
    }
    if args.json {
        let row = |(id, done): (String, Result<(), CliError>)| Removed {
            id,
            removed: done.is_ok(),
            error: done.err().map(|e| with_causes(&e)),
        };
        out.json(&removed.into_iter().map(row).collect::<Vec<_>>())?;
    } else {
        removed.iter().filter(|(_, done)| done.is_ok()).try_for_each(|(id, _)| out.line(&format!("{id}  removed")))?;
    }
    Ok(worst.unwrap_or(Exit::Success))
}

fn remove(id: &SessionId, files: &SessionFiles, folders: &Folders) -> Result<(), CliError> {
    let Beginning { cwd, member, .. } = beginning(files.transcript())?;
    let scratch = cwd.map(|cwd| scratchpad(nix::unistd::getuid().as_raw(), Path::new(&cwd), id));
    let scratch = scratch.as_deref().and_then(Path::parent);
    match remove_session(&folders.config, files, scratch) {
        Err(StoreError::Locked { path, .. }) => {
            let agent: Option<AgentId> = AgentFiles::of(path).agent_id().or(member);
            Err(CliError::SessionLives { session: id.clone(), agent })
        }
        done => Ok(done?),
    }
}
