//! How the last run of an agent ended whose process is gone. Used by `wait`, `result` and `stop`.
//! Whoever asks first records it, if the agent and its lead did not (spec 4.3).

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::CliError;
use super::lookup::Target;
use super::owner::lead_of;
use crate::core::agent::{Meta, Outcome};
use crate::core::clock;
use crate::core::entry::{Line, parse_line};
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::paths::AgentFiles;
use crate::proc::sweep;
use crate::store::StoreError;
use crate::store::lock::{is_held, wait_shared};
use crate::store::reader::{Follow, StartAt, tail};
use crate::store::runtime::{RuntimeDir, list, sweep_dead};
use crate::store::session::read_meta;
use crate::store::settle::{Settled, settle};
use crate::supervisor::{Remains, outcome_of_dead};

/// What became of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    /// Its last run ended so.
    Ended(Box<Outcome>),
    /// It works (again).
    Running,
    /// It was recorded and never came to life.
    NeverStarted,
}

/// Whether the agent's lead, if there is one, is left time to record the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    MayRecord,
    /// It is known not to answer.
    IsOut,
}

/// Tells what became of an agent, without waiting for its end. Blocks for as long as its lead may
/// take to record an end that has just come.
pub(super) fn fate(target: &Target, runtime: &RuntimeDir, lead: Lead) -> Result<Fate, CliError> {
    let path = target.files.transcript();
    if !appears(&target.files)? {
        return Ok(Fate::NeverStarted);
    }
    if is_held(path)? {
        return Ok(Fate::Running);
    }
    let tail = tail(path)?;
    match (tail.open_run, tail.last_outcome) {
        (None, Some(outcome)) => Ok(Fate::Ended(Box::new(outcome))),
        (None, None) => Ok(Fate::NeverStarted),
        (Some(run), _) => of_dead(target, run, runtime, lead),
    }
}

/// Waits until there is a transcript, but not longer than a start may take. False if none came.
pub(super) fn appears(files: &AgentFiles) -> Result<bool, CliError> {
    let path = files.transcript();
    if path.exists() {
        return Ok(true);
    }
    let left = read_meta(files).map_or(Duration::ZERO, |meta| time_to_start(&meta, clock::now_ms()));
    if left.is_zero() {
        return Ok(path.exists());
    }
    let first = Follow::open(path, StartAt::Start)?.next_line(Some(Instant::now() + left))?;
    Ok(first.is_some())
}

/// A stream that ends when the exclusive lock of `path` is free, which is when its process is gone.
pub(super) fn end_of(path: &Path) -> Result<UnixStream, CliError> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|source| CliError::System { action: "make a pair of sockets", source })?;
    let path = path.to_owned();
    std::thread::spawn(move || {
        // However this returns, there is nothing more to wait for.
        let _: Result<(), StoreError> = wait_shared(&path);
        drop(theirs);
    });
    Ok(ours)
}

/// How much of the time that a start may take is left.
pub(super) fn time_to_start(meta: &Meta, now_ms: u64) -> Duration {
    deadlines().ready.saturating_sub(Duration::from_millis(now_ms.saturating_sub(meta.created_at)))
}

/// The process is gone, its run has no outcome: its lead records it, else we do.
fn of_dead(target: &Target, run: u32, runtime: &RuntimeDir, lead: Lead) -> Result<Fate, CliError> {
    let path = target.files.transcript();
    let session = session_of(&target.files);
    if lead == Lead::MayRecord
        && lead_of(&target.id, &target.files, runtime)?.is_some()
        && let Some(outcome) = wait_for_outcome(path, run, deadlines().reply)?
    {
        return Ok(Fate::Ended(Box::new(outcome)));
    }
    let (id, files) = (&target.id, &target.files);
    let session = session.unwrap_or_else(SessionId::random);
    let names = dead_names(id, runtime);
    let settled = settle(files, id, &session, |run, _, _| {
        let leftovers = names.iter().flat_map(|name| sweep(name, &[])).collect();
        outcome_of_dead(id, &session, files, Remains { run, exit: None, leftovers })
    });
    match settled {
        Ok(Settled::Existing(outcome)) => Ok(Fate::Ended(Box::new(outcome))),
        Ok(Settled::Written(outcome)) => {
            // It can't have taken itself out of the registry.
            for name in &names {
                if let Err(error) = sweep_dead(runtime, name) {
                    tracing::warn!(%error, "what a dead process left in the registry is still there");
                }
            }
            Ok(Fate::Ended(Box::new(outcome)))
        }
        Ok(Settled::NeverStarted) => Ok(Fate::NeverStarted),
        // Resumed meanwhile.
        Err(StoreError::Locked { .. }) => Ok(Fate::Running),
        Err(error) => Err(error.into()),
    }
}

/// The session an agent belongs to: its meta says it, and so does its place.
pub(super) fn session_of(files: &AgentFiles) -> Option<SessionId> {
    let recorded = read_meta(files).ok().and_then(|meta| SessionId::parse(&meta.session_id));
    recorded.or_else(|| SessionId::parse(files.session_transcript()?.file_stem()?.to_str()?))
}

fn wait_for_outcome(path: &Path, run: u32, longest: Duration) -> Result<Option<Outcome>, CliError> {
    let deadline = Instant::now() + longest;
    let mut follow = Follow::open(path, StartAt::End)?;
    // It may have been written between the first look and this one.
    let tail = tail(path)?;
    if tail.open_run != Some(run) {
        return Ok(tail.last_outcome);
    }
    while let Some(bytes) = follow.next_line(Some(deadline))? {
        if let Ok(Line::Outcome(outcome)) = parse_line(&bytes)
            && outcome.run >= run
        {
            return Ok(Some(*outcome));
        }
    }
    Ok(None)
}

/// What a dead agent's processes were called in the registry: their tools are known by it. If the
/// entries are gone, so are the tools, since whoever removed them swept those.
fn dead_names(id: &AgentId, runtime: &RuntimeDir) -> Vec<String> {
    let dead = list(runtime).unwrap_or_default().into_iter();
    dead.filter(|r| !r.alive && r.entry.agent_id == id.as_str()).map(|r| r.name).collect()
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
