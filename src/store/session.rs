//! What is recorded of agents and sessions beside their transcripts: an agent's link and meta
//! (made before its process starts), its stop markers, and the ways to find either again.
//!
//! Called by whoever spawns, stops, lists and resumes. Meta and link never change, so nothing here
//! needs a lock.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::StoreError;
use super::atomic::{self, Durability, remove};
use super::lock::{self, Patience};
pub use super::settle::{Settled, settle};
use super::transcript::EXIT_GRACE;
use crate::core::agent::Meta;
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::{AgentFiles, ConfigDir, SessionFiles};

/// Records an agent that is about to be started: its link, which claims the id, then its meta.
/// [`StoreError::Exists`] if the id is taken. On any error nothing stays.
pub fn record_spawn(config: &ConfigDir, files: &AgentFiles, id: &AgentId, meta: &Meta) -> Result<(), StoreError> {
    let link = config.agent_link(id);
    let json = serde_json::to_vec(meta).map_err(|e| StoreError::damaged(&files.meta(), e))?;
    atomic::create_private_dir(&config.agent_links())?;
    if let Some(folder) = files.transcript().parent() {
        atomic::create_private_dir(folder)?;
    }
    std::os::unix::fs::symlink(files.transcript(), &link).map_err(StoreError::at(&link, "create the link"))?;
    atomic::write(&files.meta(), &json, Durability::Process).inspect_err(|_| {
        // The first error is the one to tell; a link without meta reads as "never started".
        let _ = fs::remove_file(&link);
    })
}

/// Takes back what was recorded of an agent that never came to life: log, meta, link, and a
/// transcript with nothing but its prompt. [`StoreError::Locked`] if its process lives. Blocks.
pub fn undo_spawn(config: &ConfigDir, files: &AgentFiles, id: &AgentId) -> Result<(), StoreError> {
    match lock::exclusive_unless_held(files.transcript(), Patience::with_holder(EXIT_GRACE)) {
        Ok(_lock) => remove(files.transcript())?,
        Err(StoreError::Missing { .. }) => {}
        Err(e) => return Err(e),
    }
    remove(&files.log())?;
    remove(&files.meta())?;
    remove(&config.agent_link(id))
}

/// Takes the link of an agent away: it is not found by its id any more. What it left stays.
pub fn unlink(config: &ConfigDir, id: &AgentId) -> Result<(), StoreError> {
    remove(&config.agent_link(id))
}

/// The launch facts of an agent.
pub fn read_meta(files: &AgentFiles) -> Result<Meta, StoreError> {
    let path = files.meta();
    let json = fs::read(&path).map_err(StoreError::at(&path, "read"))?;
    serde_json::from_slice(&json).map_err(|e| StoreError::damaged(&path, e))
}

/// The agent that a tool use of this session has started already: a request that is made again
/// must not start a second one. Reads every meta of the session, so not for each spawn but for
/// requests that may be repetitions: those a resumed session finds without result.
pub fn find_by_tool_use(session: &SessionFiles, tool_use_id: &str) -> Option<(AgentId, Meta)> {
    let found = agents_of(session).into_iter().find(|(_, _, meta)| meta.tool_use_id.as_deref() == Some(tool_use_id));
    found.map(|(id, _, meta)| (id, meta))
}

/// All agents of a session whose meta can be read, oldest first.
pub fn agents_of(session: &SessionFiles) -> Vec<(AgentId, AgentFiles, Meta)> {
    let mut agents: Vec<_> = names_in(&session.subagents())
        .filter_map(|name| {
            let stem = name.strip_suffix(".meta.json")?;
            let files = AgentFiles::of(session.subagents().join(format!("{stem}.jsonl")));
            Some((files.agent_id()?, read_meta(&files).ok()?, files))
        })
        .map(|(id, meta, files)| (id, files, meta))
        .collect();
    agents.sort_by(|(a, _, x), (b, _, y)| x.created_at.cmp(&y.created_at).then_with(|| a.cmp(b)));
    agents
}

/// Names in a folder; none if it can't be read.
pub(super) fn names_in(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

/// Where an agent's files are, by its link. [`StoreError::Missing`] names the link if the id is
/// unknown here.
pub fn resolve(config: &ConfigDir, id: &AgentId) -> Result<AgentFiles, StoreError> {
    let link = config.agent_link(id);
    let files = AgentFiles::of(fs::read_link(&link).map_err(StoreError::at(&link, "read the link"))?);
    let is_its = match id.as_member() {
        Some(_) => session_of(files.transcript()).is_some(),
        None => files.agent_id().as_ref() == Some(id),
    };
    if is_its {
        Ok(files)
    } else {
        let target = files.transcript().display().to_string();
        Err(StoreError::damaged(&link, format!("it leads to {target}, which is not that agent's transcript")))
    }
}

/// The session that a transcript of this path is of.
fn session_of(transcript: &Path) -> Option<SessionId> {
    SessionId::parse(transcript.file_name()?.to_str()?.strip_suffix(".jsonl")?)
}

/// The agents whose id begins with `text`, in either spelling; sorted.
pub fn resolve_prefix(config: &ConfigDir, text: &str) -> Vec<AgentId> {
    if text.is_empty() {
        return Vec::new();
    }
    if let Some(id) = AgentId::parse(text) {
        let known = config.agent_link(&id).symlink_metadata().is_ok();
        return known.then_some(id).into_iter().collect();
    }
    let begins = |id: &AgentId| id.as_str().starts_with(text) || id.undashed().starts_with(text);
    let mut ids: Vec<AgentId> =
        names_in(&config.agent_links()).filter_map(|name| AgentId::parse(&name)).filter(begins).collect();
    ids.sort();
    ids
}

/// All agents that have a link, members of teams too; sorted.
pub fn all_agents(config: &ConfigDir) -> Vec<AgentId> {
    let mut ids: Vec<AgentId> = names_in(&config.agent_links()).filter_map(|name| AgentId::parse(&name)).collect();
    ids.sort();
    ids
}

/// The session started in `cwd` (a real path) that was written to last, for `--continue`.
pub fn latest_session(config: &ConfigDir, cwd: &Path) -> Option<(SessionId, SessionFiles)> {
    let folder = config.project(cwd);
    let sessions = names_in(&folder).filter_map(|name| {
        let path = folder.join(name);
        Some((written(&path)?, session_of(&path)?, path))
    });
    sessions.max().map(|(_, id, path)| (id, SessionFiles::of(path)))
}

/// When a file with something in it was written to.
fn written(path: &PathBuf) -> Option<SystemTime> {
    let found = fs::metadata(path).ok().filter(|m| m.is_file() && m.len() > 0)?;
    found.modified().ok()
}

/// A session by its id, whichever folder it was started in.
pub fn find_session(config: &ConfigDir, id: &SessionId) -> Option<SessionFiles> {
    let projects = config.projects();
    let mut found = names_in(&projects).map(|project| projects.join(project).join(format!("{id}.jsonl")));
    found.find(|path| path.is_file()).map(SessionFiles::of)
}

/// Records that somebody is stopping this run, and why, so that its end is told as `killed` by
/// whoever records it. To be called before the first signal. False if it was recorded before.
pub fn mark_stop(files: &AgentFiles, run: u32, reason: &str) -> Result<bool, StoreError> {
    let path = files.stop_marker(run);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        // The reason is for people; the marker counts without it.
        Ok(mut file) => Ok(file.write_all(reason.as_bytes()).map_or(true, |()| true)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(StoreError::at(&path, "create")(e)),
    }
}

/// Whether somebody is stopping, or has stopped, this run.
pub fn has_stop_marker(files: &AgentFiles, run: u32) -> bool {
    files.stop_marker(run).symlink_metadata().is_ok()
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
