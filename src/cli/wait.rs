//! `lead wait`: returns when agents are gone. Each is waited for by its transcript's lock, which
//! its process holds for life, so nothing is asked and nothing polled.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Args;

use super::ended::{Fate, Lead, appears, fate};
use super::ended_row::EndedRow;
use super::error::{CliError, Exit, with_causes};
use super::folders::Folders;
use super::lookup::{Target, find_agent, ours};
use super::output::{self, Output};
use crate::core::agent::RunStatus;
use crate::store::lock::wait_shared;
use crate::store::runtime::RuntimeDir;
use crate::store::session::read_meta;

/// Arguments of `lead wait`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 all completed, 1 any failed or was killed, 4 any is unknown, 5 timed out.")]
pub(super) struct WaitArgs {
    /// Agents to wait for: ids, beginnings of ids, or names of agents that run
    #[arg(required = true, value_name = "AGENT")]
    agents: Vec<String>,
    /// Return when the first of them has ended
    #[arg(long)]
    any: bool,
    /// Give up after this time, such as 100ms, 20s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Print JSON: an array with a row for each agent
    #[arg(long)]
    pub json: bool,
}

/// Status of one that has not ended.
const RUNNING: &str = "running";

/// What is known of one of the agents asked for.
enum Known {
    Waiting(Target),
    Ended { row: EndedRow, status: RunStatus },
    Unknown(EndedRow),
}

pub(super) fn run(args: &WaitArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let deadline = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let runtime = folders.open_runtime()?;
    let mut known = look_up(args, folders, &runtime)?;
    let (ended, ends) = mpsc::channel();
    for (place, one) in known.iter().enumerate() {
        if let Known::Waiting(target) = one {
            let (target, runtime, ended) = (target.clone(), runtime.clone(), ended.clone());
            // Abandoned when the time is over: it waits for a lock, which nothing interrupts.
            std::thread::spawn(move || {
                // Nobody listens any more when enough has ended.
                let _ = ended.send((place, wait_for(&target, &runtime)));
            });
        }
    }
    drop(ended);
    let mut timed_out = false;
    while !is_enough(&known, args.any) {
        let (place, end) = match receive(&ends, deadline) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => {
                timed_out = true;
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        known[place] = end?;
        if !args.json {
            out.line(&row_of(&known[place]).line())?;
            // Somebody may watch, or act on the first one.
            out.flush()?;
        }
    }
    let rows: Vec<EndedRow> = known.iter().map(row_of).collect();
    if args.json {
        out.json(&rows)?;
    } else {
        let untold = rows.iter().filter(|row| timed_out && row.status == RUNNING);
        untold.for_each(|row| output::tell(&row.line()));
    }
    Ok(verdict(&known, timed_out))
}

fn look_up(args: &WaitArgs, folders: &Folders, runtime: &RuntimeDir) -> Result<Vec<Known>, CliError> {
    let registered = ours(folders, runtime)?;
    let mut known = Vec::new();
    for text in &args.agents {
        known.push(match find_agent(text, folders, &registered) {
            Ok(target) => Known::Waiting(target),
            // The others are worth waiting for all the same, but this one need not wait to be told.
            Err(error @ CliError::NoAgent(_)) => {
                output::tell(&error.for_person());
                Known::Unknown(EndedRow::without_outcome(text, "unknown", Some(with_causes(&error))))
            }
            Err(error) => return Err(error),
        });
    }
    Ok(known)
}

/// Blocks until the agent is gone and its end recorded.
fn wait_for(target: &Target, runtime: &RuntimeDir) -> Result<Known, CliError> {
    loop {
        if appears(&target.files)? {
            wait_shared(target.files.transcript())?;
        }
        match fate(target, runtime, Lead::MayRecord)? {
            Fate::Ended(outcome) => {
                let meta = read_meta(&target.files).ok();
                return Ok(Known::Ended { row: EndedRow::of(&outcome, meta.as_ref()), status: outcome.status });
            }
            Fate::NeverStarted => {
                let error = CliError::NeverStarted(target.id.clone()).to_string();
                return Ok(Known::Unknown(EndedRow::without_outcome(target.id.as_str(), "unknown", Some(error))));
            }
            // Resumed in between.
            Fate::Running => {}
        }
    }
}

fn receive<T>(ends: &mpsc::Receiver<T>, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
    match deadline {
        Some(at) => ends.recv_timeout(at.saturating_duration_since(Instant::now())),
        None => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

fn is_enough(known: &[Known], any: bool) -> bool {
    let is_waiting = |k: &Known| matches!(k, Known::Waiting(_));
    (any && known.iter().any(|k| matches!(k, Known::Ended { .. }))) || !known.iter().any(is_waiting)
}

fn row_of(known: &Known) -> EndedRow {
    match known {
        Known::Ended { row, .. } | Known::Unknown(row) => row.clone(),
        Known::Waiting(target) => EndedRow::without_outcome(target.id.as_str(), RUNNING, None),
    }
}

/// The worst of what is known. What still runs counts only when the time was over.
fn verdict(known: &[Known], timed_out: bool) -> Exit {
    let any = |test: fn(&Known) -> bool| known.iter().any(test);
    if timed_out {
        Exit::TimedOut
    } else if any(|k| matches!(k, Known::Unknown(_))) {
        Exit::NotFound
    } else if any(|k| matches!(k, Known::Ended { status: RunStatus::Failed | RunStatus::Killed, .. })) {
        Exit::Failed
    } else {
        Exit::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::AgentId;
    use crate::core::paths::AgentFiles;

    fn ended(status: RunStatus) -> Known {
        Known::Ended { row: EndedRow::without_outcome("a", "x", None), status }
    }

    fn unknown() -> Known {
        Known::Unknown(EndedRow::without_outcome("a", "unknown", None))
    }

    fn waiting() -> Known {
        Known::Waiting(Target { id: AgentId::random(), files: AgentFiles::of("/x") })
    }

    #[test]
    fn the_exit_code_tells_the_worst() {
        use RunStatus::{Completed, Failed, Killed};
        assert_eq!(verdict(&[ended(Completed), ended(Completed)], false), Exit::Success);
        assert_eq!(verdict(&[ended(Completed), waiting()], false), Exit::Success, "--any");
        assert_eq!(verdict(&[ended(Failed), ended(Completed)], false), Exit::Failed);
        assert_eq!(verdict(&[ended(Killed)], false), Exit::Failed);
        assert_eq!(verdict(&[ended(Failed), unknown()], false), Exit::NotFound);
        assert_eq!(verdict(&[ended(Failed), unknown(), waiting()], true), Exit::TimedOut);
    }

    #[test]
    fn any_is_enough_with_one_that_ended_and_all_needs_all() {
        assert!(is_enough(&[ended(RunStatus::Failed), waiting()], true));
        assert!(!is_enough(&[ended(RunStatus::Failed), waiting()], false));
        assert!(!is_enough(&[unknown(), waiting()], true));
        assert!(is_enough(&[unknown()], true) && is_enough(&[unknown()], false));
    }
}
