//! `lead wait`: returns when agents are gone. Each is waited for by its transcript's lock, which
//! its process holds for life, so nothing is asked and nothing polled.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Args;

use super::ended::{Fate, Lead, appears, fate};
use super::ended_row::EndedRow;
use super::error::{CliError, Exit, with_causes};
use super::folders::Folders;
use super::idle::{Rest, wait_idle};
use super::lookup::{Subject, find_agent, find_subject, ours};
use super::output::{self, Output};
use super::patience::WaitLine;
use crate::core::agent::{RowState, RunStatus};
use crate::store::lock::wait_shared;
use crate::store::runtime::RuntimeDir;
use crate::store::session::read_meta;

/// Arguments of `lead wait`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 all completed, 1 any failed or was killed, 4 any is unknown, 5 timed out.")]
pub(super) struct WaitArgs {
    /// Agents to wait for: ids, beginnings of ids, or names of agents that run; with --idle sessions too
    #[arg(required = true, value_name = "AGENT")]
    agents: Vec<String>,
    /// Return when the first of them has ended
    #[arg(long)]
    any: bool,
    /// Return when they have nothing to do, even if they have not ended
    #[arg(long)]
    idle: bool,
    /// Give up after this time, such as 100ms, 20s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Print JSON: an array with a row for each agent
    #[arg(long)]
    pub json: bool,
}

/// Status of one that has not ended.
const RUNNING: &str = "running";

/// What is known of one of those asked for.
enum Known {
    Waiting(Subject),
    Ended {
        row: EndedRow,
        status: RunStatus,
    },
    /// It has nothing to do, or is a session that is over.
    Resting(EndedRow),
    Unknown(EndedRow),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    End,
    Idle,
}

pub(super) fn run(args: &WaitArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let deadline = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let runtime = folders.open_runtime()?;
    let until = if args.idle { Until::Idle } else { Until::End };
    let mut known = look_up(args, until, folders, &runtime)?;
    let (ended, ends) = mpsc::channel();
    for (place, one) in known.iter().enumerate() {
        if let Known::Waiting(subject) = one {
            let (subject, runtime, ended) = (subject.clone(), runtime.clone(), ended.clone());
            // Abandoned when the time is over: it waits for a lock, which nothing interrupts.
            std::thread::spawn(move || {
                // Nobody listens any more when enough has ended.
                let _ = ended.send((place, wait_for(&subject, until, &runtime)));
            });
        }
    }
    drop(ended);
    let mut timed_out = false;
    let mut line = WaitLine::begin();
    while !is_enough(&known, args.any) {
        let (place, end) = match receive(&ends, [deadline, line.due()].into_iter().flatten().min()) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|at| Instant::now() >= at) => {
                timed_out = true;
                break;
            }
            Err(RecvTimeoutError::Timeout) => {
                let left = known.iter().filter(|k| matches!(k, Known::Waiting(_))).count();
                line.show(&format!("{left} of {}", known.len()));
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        known[place] = end?;
        line.clear();
        if !args.json {
            out.line(&row_of(&known[place]).line())?;
            // Somebody may watch, or act on the first one.
            out.flush()?;
        }
    }
    drop(line);
    let rows: Vec<EndedRow> = known.iter().map(row_of).collect();
    if args.json {
        out.json(&rows)?;
    } else {
        let untold = rows.iter().filter(|row| timed_out && row.status == RUNNING);
        untold.for_each(|row| output::tell(&row.line()));
    }
    Ok(verdict(&known, timed_out))
}

fn look_up(args: &WaitArgs, until: Until, folders: &Folders, runtime: &RuntimeDir) -> Result<Vec<Known>, CliError> {
    let registered = ours(folders, runtime)?;
    let mut known = Vec::new();
    for text in &args.agents {
        let found = match until {
            Until::End => find_agent(text, folders, &registered).map(Subject::Agent),
            Until::Idle => find_subject(text, folders, &registered),
        };
        known.push(match found {
            Ok(subject) => Known::Waiting(subject),
            // The others are worth waiting for all the same, but this one need not wait to be told.
            Err(error @ (CliError::NoAgent(_) | CliError::NoSession(_))) => {
                output::tell(&error.for_person());
                Known::Unknown(EndedRow::without_outcome(text, "unknown", Some(with_causes(&error))))
            }
            Err(error) => return Err(error),
        });
    }
    Ok(known)
}

/// Blocks until an agent is gone and its end recorded, or what else is waited for has come.
fn wait_for(subject: &Subject, until: Until, runtime: &RuntimeDir) -> Result<Known, CliError> {
    let resting = |status| Known::Resting(EndedRow::without_outcome(subject.id(), status, None));
    loop {
        if until == Until::Idle && wait_idle(subject, runtime)? == Rest::Idle {
            return Ok(resting(RowState::Idle.as_str()));
        }
        let Subject::Agent(target) = subject else { return Ok(resting("ended")) };
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
    let has_come = |k: &Known| matches!(k, Known::Ended { .. } | Known::Resting(_));
    (any && known.iter().any(has_come)) || !known.iter().any(is_waiting)
}

fn row_of(known: &Known) -> EndedRow {
    match known {
        Known::Ended { row, .. } | Known::Resting(row) | Known::Unknown(row) => row.clone(),
        Known::Waiting(subject) => EndedRow::without_outcome(subject.id(), RUNNING, None),
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
    use crate::cli::lookup::Target;
    use crate::core::ids::AgentId;
    use crate::core::paths::AgentFiles;

    fn ended(status: RunStatus) -> Known {
        Known::Ended { row: EndedRow::without_outcome("a", "x", None), status }
    }

    fn unknown() -> Known {
        Known::Unknown(EndedRow::without_outcome("a", "unknown", None))
    }

    fn waiting() -> Known {
        Known::Waiting(Subject::Agent(Target { id: AgentId::random(), files: AgentFiles::of("/x") }))
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
