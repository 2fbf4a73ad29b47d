//! The runtime folder: who runs on this machine, told without asking anybody (spec 5.2).
//!
//! Each process has `<hex>.json` (who it is; its exclusive lock is held for life, and that lock is
//! what "alive" means), `<hex>.state` (what it does, replaced on every change) and `<hex>.sock`.
//! Names are random and never reused. Every start sweeps what the dead left.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::StoreError;
use super::atomic::{self, remove, rename_new};
use super::lock::{self, FileLock, Patience};
use crate::core::agent::{LiveState, RegistryEntry};
use crate::core::{ids, limits};

/// Length of a name.
const NAME_LEN: usize = 12;
/// Files without an entry that are younger may belong to a process that is about to register.
const ORPHAN_AGE: Duration = Duration::from_secs(60);
/// A start must not wait for a holder, nor long for another sweep (which holds a shared lock).
const SWEEP_PATIENCE: Patience = Patience { holder: Duration::ZERO, probes: Duration::from_millis(50) };

/// A runtime folder that was checked: ours alone, with room for socket paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// `LEAD_RUNTIME_DIR` as given, else `/tmp/lead-<uid>`.
    pub fn default_path(given: Option<PathBuf>, uid: u32) -> PathBuf {
        given.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| PathBuf::from(format!("/tmp/lead-{uid}")))
    }

    /// Makes the folder (0700) if it is not there and checks it. [`StoreError::TooLong`] if socket
    /// paths in it would be, [`StoreError::Unsafe`] if it is a symlink, another user's, or open to
    /// others.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(StoreError::at(path, "find"))?;
        let dir = Self(path);
        let longest = dir.socket_path(&"0".repeat(NAME_LEN)).as_os_str().len();
        if longest > limits::SOCKET_PATH_BYTES {
            let what = format!("the path of a socket in {}", dir.0.display());
            return Err(StoreError::TooLong { what, bytes: longest, limit: limits::SOCKET_PATH_BYTES });
        }
        if let Some(parent) = dir.0.parent() {
            atomic::create_private_dir(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(&dir.0) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::at(&dir.0, "create the folder")(e));
            }
            _ => dir.check()?,
        }
        Ok(dir)
    }

    fn check(&self) -> Result<(), StoreError> {
        let found = fs::symlink_metadata(&self.0).map_err(StoreError::at(&self.0, "examine"))?;
        let uid = nix::unistd::geteuid().as_raw();
        let mode = found.mode() & 0o777;
        let reason = if found.is_symlink() {
            "it is a symlink".to_owned()
        } else if !found.is_dir() {
            "it is not a folder".to_owned()
        } else if found.uid() != uid {
            format!("it belongs to user {}, not to {uid}", found.uid())
        } else if mode & 0o077 != 0 {
            format!("others may use it (mode {mode:o}, must be 700)")
        } else {
            return Ok(());
        };
        Err(StoreError::Unsafe { path: self.0.clone(), reason })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the process `name` listens.
    pub fn socket_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.sock"))
    }

    fn entry_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    fn state_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.state"))
    }

    fn state_temp_path(&self, name: &str) -> PathBuf {
        self.0.join(format!(".{name}.state.tmp"))
    }

    fn unregistered_path(&self, name: &str) -> PathBuf {
        self.0.join(format!(".{name}.tmp"))
    }

    /// A name nobody has or had. Should two processes draw the same, binding the socket or
    /// publishing fails for one of them.
    pub fn reserve_name(&self) -> String {
        loop {
            let name = ids::random_runtime_name();
            let taken = [self.entry_path(&name), self.socket_path(&name), self.unregistered_path(&name)];
            if !taken.iter().any(|p| p.exists()) {
                return name;
            }
        }
    }
}

/// This process in the registry. Dropping it takes it out.
#[derive(Debug)]
#[must_use = "the process is registered only as long as this lives"]
pub struct Registration {
    dir: RuntimeDir,
    name: String,
    entry: RegistryEntry,
    _lock: FileLock,
}

impl Registration {
    /// Enters the process under `name`, whose socket is bound already. Nobody sees an entry that
    /// is not locked or not whole. It shows as starting until the first [`Self::set_state`]: a file
    /// less stands between a process and its being ready.
    pub fn publish(dir: &RuntimeDir, name: &str, entry: &RegistryEntry) -> Result<Self, StoreError> {
        let path = dir.entry_path(name);
        if !ids::is_lower_hex(name, NAME_LEN) {
            return Err(StoreError::damaged(&path, "its name is not 12 hex digits"));
        }
        if path.exists() {
            return Err(StoreError::Exists { path });
        }
        let json = to_json(entry, &path)?;
        let temp = dir.unregistered_path(name);
        let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&temp);
        let file = file.map_err(StoreError::at(&temp, "create"))?;
        let published = (|| {
            let lock = FileLock::of_new(file, &temp)?;
            lock.file().write_all(&json).map_err(StoreError::at(&temp, "write"))?;
            rename_new(&temp, &path).map_err(StoreError::at(&path, "create"))?;
            Ok(Self { dir: dir.clone(), name: name.to_owned(), entry: entry.clone(), _lock: lock })
        })();
        if published.is_err() {
            // The socket is the caller's to remove.
            remove(&temp)?;
        }
        published
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the process entered.
    pub fn entry(&self) -> &RegistryEntry {
        &self.entry
    }

    /// Replaces what is told about what this process does.
    pub fn set_state(&self, state: &LiveState) -> Result<(), StoreError> {
        write_state(&self.dir, &self.name, state)
    }

    /// Takes the process out of the registry, its socket file included.
    pub fn remove(self) -> Result<(), StoreError> {
        remove_files(&self.dir, &self.name)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // What stays is swept by the next start. After `remove` there is nothing left.
        let _ = remove_files(&self.dir, &self.name);
    }
}

/// Replaces a process's state. Only that process writes it, so the temp file needs no random name,
/// and one that a killed process leaves goes with its entry.
fn write_state(dir: &RuntimeDir, name: &str, state: &LiveState) -> Result<(), StoreError> {
    let (path, temp) = (dir.state_path(name), dir.state_temp_path(name));
    let json = to_json(state, &path)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp);
    opened.and_then(|mut file| file.write_all(&json)).map_err(StoreError::at(&temp, "write"))?;
    fs::rename(&temp, &path).map_err(StoreError::at(&path, "replace"))
}

/// Takes a name's files away. To be called under the entry's lock; the entry goes last, so that a
/// crash in between leaves something to sweep.
fn remove_files(dir: &RuntimeDir, name: &str) -> Result<(), StoreError> {
    remove(&dir.socket_path(name))?;
    remove(&dir.state_path(name))?;
    remove(&dir.state_temp_path(name))?;
    remove(&dir.entry_path(name))
}

fn to_json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|e| StoreError::damaged(path, e))
}

/// A process as the registry shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// Its name in the runtime folder.
    pub name: String,
    /// Who it is.
    pub entry: RegistryEntry,
    /// What it does, or did last.
    pub state: Option<LiveState>,
    /// Whether it holds its lock.
    pub alive: bool,
}

/// Everyone in the registry, the dead ones too that nobody has swept yet. Asks no process; entries
/// that can't be read are left out.
pub fn list(dir: &RuntimeDir) -> Result<Vec<Registered>, StoreError> {
    let names = Names::read(dir)?;
    Ok(names.entries.iter().filter_map(|name| read_entry(dir, name, |_| true)).collect())
}

/// A living process whose entry satisfies `wanted`.
pub fn find_alive(dir: &RuntimeDir, wanted: impl Fn(&RegistryEntry) -> bool) -> Result<Option<Registered>, StoreError> {
    let names = Names::read(dir)?;
    Ok(names.entries.iter().filter_map(|name| read_entry(dir, name, &wanted)).find(|r| r.alive))
}

fn read_entry(dir: &RuntimeDir, name: &str, wanted: impl Fn(&RegistryEntry) -> bool) -> Option<Registered> {
    let path = dir.entry_path(name);
    let mut file = File::open(&path).ok()?;
    let mut json = Vec::new();
    file.read_to_end(&mut json).ok()?;
    let entry = serde_json::from_slice(&json).ok().filter(wanted)?;
    let alive = lock::is_file_held(&file, &path).ok()?;
    Some(Registered { name: name.to_owned(), entry, state: read_state(dir, name), alive })
}

fn read_state(dir: &RuntimeDir, name: &str) -> Option<LiveState> {
    serde_json::from_slice(&fs::read(dir.state_path(name)).ok()?).ok()
}

/// Takes the dead out of the registry and returns them. `on_dead` is called before one is removed,
/// while no other process can sweep it: for what else the dead one left, such as processes.
/// Blocks.
pub fn sweep(dir: &RuntimeDir, on_dead: &mut dyn FnMut(&Registered)) -> Result<Vec<Registered>, StoreError> {
    let names = Names::read(dir)?;
    let mut dead = Vec::new();
    for name in &names.entries {
        match sweep_one(dir, name, on_dead) {
            Ok(found) => dead.extend(found),
            // Alive, or being swept by another, or swept already.
            Err(StoreError::Locked { .. } | StoreError::Missing { .. }) => {}
            Err(e) => tracing::warn!(error = &e as &dyn std::error::Error, "an entry of the registry can't be swept"),
        }
    }
    names.sweep_orphans(dir);
    Ok(dead)
}

/// Takes one dead process out of the registry. False if it lives, or is swept by somebody else. Blocks.
pub fn sweep_dead(dir: &RuntimeDir, name: &str) -> Result<bool, StoreError> {
    match sweep_one(dir, name, &mut |_| {}) {
        Ok(found) => Ok(found.is_some()),
        Err(StoreError::Locked { .. } | StoreError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn sweep_one(
    dir: &RuntimeDir,
    name: &str,
    on_dead: &mut dyn FnMut(&Registered),
) -> Result<Option<Registered>, StoreError> {
    let path = dir.entry_path(name);
    let lock = lock::exclusive_unless_held(&path, SWEEP_PATIENCE)?;
    // A probe must find it dead while `on_dead` works.
    let Some(_lock) = lock.downgrade(&path)? else { return Ok(None) };
    let found = read_entry(dir, name, |_| true);
    found.iter().for_each(&mut *on_dead);
    remove_files(dir, name)?;
    Ok(found)
}

/// What lies in the folder.
#[derive(Default)]
struct Names {
    entries: Vec<String>,
    /// Files that belong to an entry, or to none: path and the name of the entry.
    companions: Vec<(PathBuf, String)>,
    temps: Vec<PathBuf>,
}

impl Names {
    fn read(dir: &RuntimeDir) -> Result<Self, StoreError> {
        let mut names = Self::default();
        for file in fs::read_dir(&dir.0).map_err(StoreError::at(&dir.0, "list"))? {
            let file = file.map_err(StoreError::at(&dir.0, "list"))?.file_name();
            let Some((stem, extension)) = file.to_str().and_then(|f| f.rsplit_once('.')) else { continue };
            let named = ids::is_lower_hex(stem, NAME_LEN);
            match extension {
                "json" if named => names.entries.push(stem.to_owned()),
                "sock" | "state" if named => names.companions.push((dir.0.join(&file), stem.to_owned())),
                "tmp" if stem.starts_with('.') => names.temps.push(dir.0.join(&file)),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Removes what processes left that died while they registered or wrote. Best effort: what
    /// stays is tried again by the next sweep.
    fn sweep_orphans(&self, dir: &RuntimeDir) {
        let mut unregistered = HashSet::new();
        for temp in self.temps.iter().filter(|p| is_old(p)) {
            // Locked = it is being registered, however slowly.
            match lock::exclusive_unless_held(temp, SWEEP_PATIENCE) {
                Ok(_lock) => drop(remove(temp)),
                Err(_) => drop(unregistered.insert(temp.clone())),
            }
        }
        for (path, name) in &self.companions {
            let registering = unregistered.contains(&dir.unregistered_path(name));
            if !registering && !dir.entry_path(name).exists() && is_old(path) {
                let _ = remove(path);
            }
        }
    }
}

fn is_old(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|m| m.modified());
    changed.is_ok_and(|t| SystemTime::now().duration_since(t).is_ok_and(|age| age > ORPHAN_AGE))
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
