//! `lead reap`: ends and records what the dead left behind: agents that go on without their lead,
//! agents that died without an outcome, those that never started, files and tools of dead processes.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::caller::refuse_agents;
use super::ended::{Fate, Lead, fate, time_to_start};
use super::error::{CliError, Exit, with_causes};
use super::folders::Folders;
use super::lookup::Target;
use super::output::Output;
use super::ps::last_outcome;
use super::stop::{How, Stop, async_runtime};
use super::table::{self, Align};
use crate::core::agent::{Leftover, Owner};
use crate::core::clock;
use crate::core::ids::AgentId;
use crate::core::paths::{AgentFiles, ConfigDir};
use crate::proc::sweep;
use crate::store::StoreError;
use crate::store::lock::is_held;
use crate::store::runtime::{self, Registered, RuntimeDir, find_alive, list};
use crate::store::session::{all_agents, read_meta, resolve, undo_spawn};

/// Arguments of `lead reap`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing is left, 1 something could not be ended.")]
pub(super) struct ReapArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Deal with what belongs to other config folders too
    #[arg(long)]
    all_configs: bool,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    pub json: bool,
}

/// How long an orphan's end is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// One thing that was dealt with.
#[derive(Debug, Default, Serialize)]
struct Row {
    /// `orphan`, `outcome`, `never_started`, `registry`.
    what: &'static str,
    /// The agent or session.
    id: String,
    session: Option<String>,
    pid: Option<i32>,
    /// How it ended; none with `--dry-run`.
    status: Option<String>,
    error: Option<String>,
    /// Processes that its tools had left.
    leftovers: Vec<Leftover>,
    /// Whether it was not possible.
    #[serde(skip)]
    failed: bool,
}

pub(super) fn run(args: &ReapArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    refuse_agents(&dir, "end agents")?;
    let mut registered = list(&dir)?;
    registered.retain(|r| args.all_configs || folders.is_ours(&r.entry.config_dir));
    let mut configs = vec![folders.config.clone()];
    for one in &registered {
        let config = ConfigDir::new(&one.entry.config_dir);
        if !folders.is_ours(&one.entry.config_dir) && !configs.contains(&config) {
            configs.push(config);
        }
    }
    // Orphans first: their ends are outcomes; the registry last: it tells whose tools are whose.
    let mut rows = orphans(&registered, &dir, args.dry_run)?;
    for config in &configs {
        rows.extend(agents_without_end(config, &dir, args.dry_run)?);
    }
    rows.extend(dead_entries(&dir, &registered, args.dry_run)?);
    print(&rows, args, out)?;
    Ok(if rows.iter().any(|row| row.failed) { Exit::Failed } else { Exit::Success })
}

fn is_orphan(one: &Registered) -> bool {
    one.alive && one.entry.role != "lead" && one.state.as_ref().is_some_and(|s| s.owner == Owner::Lost)
}

fn orphans(registered: &[Registered], dir: &RuntimeDir, dry_run: bool) -> Result<Vec<Row>, CliError> {
    let of = |one: &Registered| Row {
        what: "orphan",
        id: one.entry.agent_id.clone(),
        session: Some(one.entry.session.clone()),
        pid: Some(one.entry.pid),
        ..Row::default()
    };
    let found: Vec<&Registered> = registered.iter().filter(|r| is_orphan(r)).collect();
    if dry_run || found.is_empty() {
        return Ok(found.into_iter().map(of).collect());
    }
    let runtime = async_runtime()?;
    let rows = runtime.block_on(async {
        let mut ends = Vec::new();
        for one in found {
            let id = AgentId::parse(&one.entry.agent_id);
            let files = one.state.as_ref().map(|s| AgentFiles::of(&s.transcript));
            let Some((id, files)) = id.zip(files) else { continue };
            // Taken over by a lead meanwhile, it is none any more.
            let Some(now) = find_alive(dir, |e| e.agent_id == id.as_str())?.filter(is_orphan) else { continue };
            let deadline = Instant::now() + PATIENCE;
            let target = Target { id, files };
            let stop = Stop { target, how: How::Reap, dir: dir.clone(), deadline, waited: PATIENCE };
            ends.push((of(&now), tokio::spawn(stop.run())));
        }
        let mut rows = Vec::new();
        for (row, end) in ends {
            rows.push(match end.await {
                Ok(Ok(ended)) => Row { status: Some(ended.status().to_owned()), ..row },
                // It ended by itself.
                Ok(Err(CliError::NotRunning { status, .. })) => Row { status: Some(status.to_string()), ..row },
                Ok(Err(error)) => Row { error: Some(with_causes(&error)), failed: true, ..row },
                Err(panic) => Row { error: Some(panic.to_string()), failed: true, ..row },
            });
        }
        Ok(rows)
    });
    // Waits for locks that nobody needs any more must not hold the exit up.
    runtime.shutdown_background();
    rows
}

/// Agents whose process is gone and left no outcome, and agents that never had one.
fn agents_without_end(config: &ConfigDir, dir: &RuntimeDir, dry_run: bool) -> Result<Vec<Row>, CliError> {
    let mut rows = Vec::new();
    for id in all_agents(config) {
        let row = |what| Row { what, id: id.to_string(), ..Row::default() };
        let Ok(files) = resolve(config, &id) else { continue };
        let path = files.transcript();
        if path.exists() {
            let is_open = !is_held(path).unwrap_or(true) && matches!(last_outcome(&files), Ok(None));
            if is_open {
                rows.extend(record_end(&Target { id: id.clone(), files }, dir, row("outcome"), dry_run)?);
            }
            continue;
        }
        if may_start(&files) {
            continue;
        }
        let mut row = row("never_started");
        if !dry_run {
            match undo_spawn(config, &files, &id) {
                Ok(()) => row.status = Some("removed".to_owned()),
                Err(error) => {
                    row.error = Some(with_causes(&error));
                    row.failed = true;
                }
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// None if it has an end, or works again.
fn record_end(target: &Target, dir: &RuntimeDir, row: Row, dry_run: bool) -> Result<Option<Row>, CliError> {
    if dry_run {
        return Ok(Some(row));
    }
    Ok(match fate(target, dir, Lead::MayRecord)? {
        Fate::Ended(outcome) => Some(Row {
            session: Some(outcome.session_id.clone()),
            status: Some(outcome.status.to_string()),
            leftovers: outcome.leftovers,
            ..row
        }),
        Fate::Running | Fate::NeverStarted => None,
    })
}

/// Whether an agent without a transcript may still come to life: its start is recent, or somebody
/// holds its session, and may have many to start.
fn may_start(files: &AgentFiles) -> bool {
    let is_recent = read_meta(files).is_ok_and(|meta| !time_to_start(&meta, clock::now_ms()).is_zero());
    let is_held = match files.session_transcript().map(|path| is_held(&path)) {
        None | Some(Err(StoreError::Missing { .. })) => false,
        // One that can't be looked at is left alone.
        Some(held) => held.unwrap_or(true),
    };
    is_recent || is_held
}

/// Files of processes that are gone, and what their tools left running.
fn dead_entries(dir: &RuntimeDir, registered: &[Registered], dry_run: bool) -> Result<Vec<Row>, CliError> {
    let of = |one: &Registered| Row {
        what: "registry",
        id: one.entry.agent_id.clone(),
        session: Some(one.entry.session.clone()),
        pid: Some(one.entry.pid),
        ..Row::default()
    };
    if dry_run {
        return Ok(registered.iter().filter(|r| !r.alive).map(of).collect());
    }
    let mut rows = Vec::new();
    runtime::sweep(dir, &mut |dead| {
        let leftovers = sweep(&dead.name, &[]);
        rows.push(Row { status: Some("removed".to_owned()), leftovers, ..of(dead) });
    })?;
    Ok(rows)
}

fn print(rows: &[Row], args: &ReapArgs, out: &mut Output) -> Result<(), CliError> {
    if args.json {
        return out.json(&rows);
    }
    if rows.is_empty() {
        return out.line("nothing is left behind");
    }
    let columns = [
        ("WHAT", Align::Left, 14),
        ("ID", Align::Left, 40),
        ("PID", Align::Right, 8),
        ("STATUS", Align::Left, 12),
        ("NOTE", Align::Left, 80),
    ];
    let cells = |row: &Row| {
        let leftovers: Vec<String> = row.leftovers.iter().map(|l| format!("{} (pid {})", l.command, l.pid)).collect();
        let note = row.error.clone().unwrap_or_else(|| leftovers.join(", "));
        vec![
            row.what.replace('_', " "),
            row.id.clone(),
            row.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            row.status.clone().unwrap_or_default(),
            note,
        ]
    };
    out.text(&table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>()))
}
