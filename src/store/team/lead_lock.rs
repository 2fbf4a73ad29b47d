//! Who leads a team: one living process, by a lock it holds for life (spec 3.2).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::TeamError;
use crate::core::paths::ConfigDir;
use crate::store::StoreError;
use crate::store::atomic::{create_private_dir, folder_of};
use crate::store::lock::{self, FileLock, Patience};

/// Who leads, as it says in its lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its pid.
    pub pid: i32,
    /// Its address.
    pub address: String,
    /// Its session.
    pub session: String,
}

/// The right to lead a team; ends when this is dropped, or with the process.
#[derive(Debug)]
#[must_use = "the team is led only as long as this lives"]
pub struct LeadLock {
    _lock: FileLock,
}

fn path_of(config: &ConfigDir, folder: &str) -> PathBuf {
    config.locks().join(format!("{folder}.lead"))
}

/// Takes the lead of the team in this folder; [`TeamError::Led`] if a living process has it.
pub(super) fn take(config: &ConfigDir, folder: &str, leader: &Leader) -> Result<LeadLock, TeamError> {
    let path = path_of(config, folder);
    create_private_dir(folder_of(&path))?;
    let open = |options: &mut OpenOptions| options.mode(0o600).open(&path).map_err(StoreError::at(&path, "open"));
    open(OpenOptions::new().append(true).create(true))?;
    let lock = match lock::exclusive_unless_held(&path, Patience::with_holder(Duration::ZERO)) {
        Err(StoreError::Locked { .. }) => return Err(led(folder, read(&path))),
        lock => lock?,
    };
    let mut line = serde_json::to_vec(leader).map_err(|e| StoreError::damaged(&path, e))?;
    line.push(b'\n');
    // In one write, over what the last leader left: no reader finds nobody.
    open(OpenOptions::new().write(true))?.write_all_at(&line, 0).map_err(StoreError::at(&path, "write"))?;
    Ok(LeadLock { _lock: lock })
}

fn led(folder: &str, leader: Option<Leader>) -> TeamError {
    TeamError::Led { team: folder.to_owned(), pid: leader.as_ref().map(|l| l.pid), address: leader.map(|l| l.address) }
}

/// The living process that leads the team in this folder: `None` if there is none, `Some(None)` if
/// it has not said yet who it is.
pub(super) fn holder(config: &ConfigDir, folder: &str) -> Result<Option<Option<Leader>>, StoreError> {
    let path = path_of(config, folder);
    match lock::is_held(&path) {
        Err(StoreError::Missing { .. }) => Ok(None),
        held => Ok(held?.then(|| read(&path))),
    }
}

fn read(path: &Path) -> Option<Leader> {
    let bytes = fs::read(path).ok()?;
    serde_json::from_slice(bytes.split(|b| *b == b'\n').next()?).ok()
}
