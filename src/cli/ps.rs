//! `lead ps`: who runs, from the registry alone; no process is asked, so none can hold it up.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::Args;

use super::cost::Cost;
use super::ended::time_to_start;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::options::stall_after;
use super::output::Output;
use super::ps_row::PsRow;
use super::table::{self, Align};
use super::teams::Teams;
use crate::core::agent::{Outcome, RowState};
use crate::core::clock;
use crate::core::entry::{Line, parse_line};
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::AgentFiles;
use crate::core::team::roster::Backend;
use crate::store::StoreError;
use crate::store::lock::is_held;
use crate::store::reader::lines_from_end;
use crate::store::runtime::{Registered, list};
use crate::store::session::{all_agents, read_meta, resolve};
use crate::store::team::Team;

/// Arguments of `lead ps`.
#[derive(Args, Debug)]
pub(super) struct PsArgs {
    /// List the agents of this session only: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// List the members of this team only, its scripts too
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// List agents that have ended too
    #[arg(long)]
    all: bool,
    /// Show memory and processor time
    #[arg(long)]
    memory: bool,
    /// List what belongs to other config folders too
    #[arg(long)]
    all_configs: bool,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &PsArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let mut registered = list(&folders.open_runtime()?)?;
    registered.retain(|r| args.all_configs || folders.is_ours(&r.entry.config_dir));
    let mut rows = process_rows(&registered, args.json || args.memory, folders);
    if args.all {
        rows.extend(ended_rows(folders, &registered));
    }
    if let Some(session) = &args.session {
        rows.retain(|row| row.session.starts_with(session.as_str()));
    }
    if let Some(wanted) = &args.team {
        let teams = Teams::of(folders)?;
        let team = teams.find(Some(wanted))?;
        let (name, folder) = (team.name(), team.folder());
        rows.retain(|row| row.team.as_deref().is_some_and(|of| of == name || of == folder));
        rows.extend(script_rows(&team, &teams)?);
    }
    sort(&mut rows);
    if args.json {
        out.json(&rows)?;
    } else if rows.is_empty() {
        out.line("no agents are running")?;
    } else {
        out.text(&render(&rows, args.memory, clock::now_ms()))?;
    }
    Ok(Exit::Success)
}

/// Scripts that are members: they have no entry in the registry.
fn script_rows(team: &Team, teams: &Teams<'_>) -> Result<Vec<PsRow>, CliError> {
    let (name, roster) = (team.name(), team.roster()?);
    let scripts = roster.members().filter(|m| m.backend() == Backend::External);
    scripts.map(|m| Ok(PsRow::of_script(m, &name, teams.state(team, &roster, m)?))).collect()
}

/// The agents of a session, those that have ended too.
pub(super) fn rows_of_session(session: &SessionId, folders: &Folders, registered: &[Registered]) -> Vec<PsRow> {
    let mut rows = process_rows(registered, false, folders);
    rows.extend(ended_rows(folders, registered));
    rows.retain(|row| row.session == session.as_str() && row.role != "lead");
    sort(&mut rows);
    rows
}

fn process_rows(registered: &[Registered], with_cost: bool, folders: &Folders) -> Vec<PsRow> {
    let now = clock::now_ms();
    let stall_after = u64::try_from(stall_after(folders).as_millis()).unwrap_or(u64::MAX);
    let shown = registered.iter().filter(|r| r.alive || was_not_told(r));
    let row = |r: &Registered| {
        let cost = if r.alive && with_cost { Cost::of(r.entry.pid) } else { Cost::default() };
        PsRow::of_process(r, cost, stall_after, now)
    };
    shown.flat_map(|r| std::iter::once(row(r)).chain(PsRow::of_shells(r))).collect()
}

/// Whether a dead process's end is news: it left no outcome. (A lead has none.)
fn was_not_told(dead: &Registered) -> bool {
    let Some(state) = &dead.state else { return true };
    dead.entry.role == "lead" || !matches!(last_outcome(&AgentFiles::of(&state.transcript)), Ok(Some(_)))
}

/// Agents of this config folder that have no process, by their links.
fn ended_rows(folders: &Folders, registered: &[Registered]) -> Vec<PsRow> {
    let listed: HashSet<AgentId> = registered
        .iter()
        .filter(|r| r.alive || was_not_told(r))
        .filter_map(|r| AgentId::parse(&r.entry.agent_id))
        .collect();
    let ids = all_agents(&folders.config).into_iter().filter(|id| !listed.contains(id));
    ids.filter_map(|id| ended_row(&id, folders)).collect()
}

/// None if its files are gone or damaged, of which `lead doctor` tells.
fn ended_row(id: &AgentId, folders: &Folders) -> Option<PsRow> {
    let files = resolve(&folders.config, id).ok()?;
    let meta = read_meta(&files).ok()?;
    let outcome = last_outcome(&files).unwrap_or_default();
    let starts = !files.transcript().exists() && !time_to_start(&meta, clock::now_ms()).is_zero();
    let transcript = files.transcript().to_string_lossy();
    let mut row = PsRow::of_files(id.as_str(), &meta, &transcript, outcome.as_ref(), starts);
    if outcome.is_none() && is_held(files.transcript()).unwrap_or(false) {
        // It lives and is not in the registry: it has just come, or its entry was taken away.
        row.state = RowState::Running.as_str();
    }
    Some(row)
}

/// The outcome of the latest run, without reading further back than that run's last line.
pub(super) fn last_outcome(files: &AgentFiles) -> Result<Option<Outcome>, StoreError> {
    for bytes in lines_from_end(files.transcript())? {
        match parse_line(&bytes?) {
            Ok(Line::Outcome(outcome)) => return Ok(Some(*outcome)),
            Ok(Line::Talk(_)) => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}

/// Sessions in the order in which they began, each lead before its agents, each of them before the
/// shells it runs.
fn sort(rows: &mut [PsRow]) {
    let mut began: HashMap<String, u64> = HashMap::new();
    for row in rows.iter() {
        let started = row.started_ms.unwrap_or(u64::MAX);
        began.entry(row.session.clone()).and_modify(|b| *b = started.min(*b)).or_insert(started);
    }
    let agents: HashMap<String, Option<u64>> = rows.iter().map(|row| (row.id.clone(), row.started_ms)).collect();
    rows.sort_by_cached_key(|row| {
        let session = row.session.clone();
        // A shell stands where its agent does.
        let agent = row.agent.as_ref().unwrap_or(&row.id).clone();
        let is_under_lead = agent == session;
        let started = agents.get(&agent).copied().flatten();
        (
            (began.get(&session).copied(), session),
            (!is_under_lead && row.role != "lead", started, agent),
            (row.agent.is_some(), row.started_ms, row.id.clone()),
        )
    });
}

pub(super) fn render(rows: &[PsRow], memory: bool, now_ms: u64) -> String {
    let mut columns = vec![
        ("ROLE", Align::Left, 10),
        ("ID", Align::Left, 40),
        ("NAME", Align::Left, 24),
        ("STATE", Align::Left, 30),
        ("SINCE", Align::Right, 6),
        ("TOKENS", Align::Right, 8),
    ];
    if memory {
        columns.extend([("MEMORY", Align::Right, 12), ("CPU", Align::Right, 10)]);
    }
    columns.push(("ACTIVITY", Align::Left, 60));
    let cells = |row: &PsRow| {
        let since = row.since_ms.map(|t| table::short_duration(Duration::from_millis(now_ms.saturating_sub(t))));
        let mut cells = vec![
            row.role.clone(),
            row.id.clone(),
            row.name.clone().or_else(|| row.r#type.clone()).unwrap_or_default(),
            row.state_text(),
            since.unwrap_or_default(),
            table::short_count(row.tokens()),
        ];
        if memory {
            cells.push(row.pss_bytes.map(table::mebibytes).unwrap_or_default());
            cells.push(row.cpu_ms.map(|ms| format!("{}.{:02}s", ms / 1000, ms % 1000 / 10)).unwrap_or_default());
        }
        cells.push(row.activity_text());
        cells
    };
    table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(session: &str, role: &str, id: &str, started: u64) -> PsRow {
        PsRow {
            id: id.to_owned(),
            role: role.to_owned(),
            session: session.to_owned(),
            started_ms: Some(started),
            ..PsRow::default()
        }
    }

    #[test]
    fn agents_stand_below_their_lead() {
        let mut rows = vec![
            row("s2", "worker", "a-3", 30),
            row("s1", "worker", "a-2", 25),
            row("s2", "lead", "s2", 40),
            row("s1", "worker", "a-1", 20),
            row("s1", "lead", "s1", 10),
        ];
        sort(&mut rows);
        let ids: Vec<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["s1", "a-1", "a-2", "s2", "a-3"]);
    }

    #[test]
    fn shells_stand_below_whoever_runs_them() {
        let shell =
            |id: &str, agent: &str, started| PsRow { agent: Some(agent.to_owned()), ..row("s", "shell", id, started) };
        let mut rows = vec![
            shell("b-2", "a-1", 50),
            row("s", "worker", "a-2", 30),
            shell("b-4", "s", 60),
            shell("b-1", "a-1", 40),
            row("s", "worker", "a-1", 20),
            shell("b-3", "a-2", 35),
            row("s", "lead", "s", 10),
        ];
        sort(&mut rows);
        let ids: Vec<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["s", "b-4", "a-1", "b-1", "b-2", "a-2", "b-3"]);
    }

    #[test]
    fn a_long_or_nasty_name_does_not_break_the_table() {
        let mut nasty = row("s", "worker", "a-1a2b3c4d5e6f7890", 0);
        nasty.name = Some(format!("x\u{1b}]0;title\u{7}\n{}", "y".repeat(300)));
        nasty.state = "running";
        nasty.since_ms = Some(0);
        nasty.description = Some("d".repeat(1000));
        let shown = render(&[nasty], false, 61_000);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(!shown.contains('\u{1b}') && shown.lines().all(|l| l.chars().count() < 200), "{shown}");
        assert!(shown.contains(" 1m "), "{shown}");
    }

    #[test]
    fn the_latest_run_s_end_is_found_and_an_open_run_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent-a1a2b3c4d5e6f7890.jsonl");
        let files = AgentFiles::of(&path);
        let talk = r#"{"type":"user","isSidechain":true,"parentUuid":null,"message":{"role":"user","content":"x"},"uuid":"u","run":1}"#;
        let end =
            r#"{"type":"system","subtype":"agent_outcome","agentId":"a-1a2b3c4d5e6f7890","run":1,"status":"failed"}"#;
        std::fs::write(&path, format!("{talk}\n{end}\n")).unwrap();
        assert_eq!(last_outcome(&files).unwrap().map(|o| o.run), Some(1));
        std::fs::write(&path, format!("{talk}\n{end}\n{talk}\n")).unwrap();
        assert_eq!(last_outcome(&files).unwrap(), None);
        assert!(last_outcome(&AgentFiles::of(dir.path().join("none"))).is_err());
    }
}
