//! Puts a new content in a file's place, as a whole or not at all: a temporary file in the same folder
//! is written, and renamed. Called by the tools that change files, for a [`Target`] they have checked.
//!
//! Two agents: whoever renames holds a lock of the folder and compares the file once more under it,
//! so that of two agents the second is told. Other programs know nothing of that lock; what one of
//! them writes in the microseconds between comparison and rename is lost. The same holds between
//! agents where the folder can't be locked (some network file systems, folders that can't be read).
//!
//! Kept: permissions, owner and group as far as the system lets us, links to the file. Not kept: hard
//! links (the other names keep the old content, and the answer says so; writing in place instead
//! could leave half a file), extended attributes, inode number. A crash leaves a `.….tmp`.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tempfile::NamedTempFile;

use super::files::{open_regular, shown};
use super::seen::{hash, read_whole, state_of};
use super::target::{Existing, Target};
use crate::core::limits::deadlines;
use crate::core::tool_state::FileState;
use crate::store::StoreError;
use crate::store::lock::{FileLock, folder_within};

/// A file that was replaced or made.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) state: FileState,
    /// What the model should know besides.
    pub(super) notes: Vec<String>,
}

impl Target<'_> {
    /// Makes the file hold `content`. On any error nothing was changed, and nothing is left over.
    pub(super) fn replace(&self, content: &[u8]) -> Result<Replaced, String> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let fail = |error: io::Error| format!("{} can't be written: {error}; nothing was changed", self.name());
        if self.existing.is_some() {
            // A rename asks for permission to the folder only.
            rustix::fs::access(&self.path, Access::WRITE_OK).map_err(|errno| fail(errno.into()))?;
        }
        let made = NewFolders::make(folder).map_err(|(folder, error)| {
            format!("the folder {} can't be made: {error}; nothing was changed", shown(&folder))
        })?;
        let mut temp = tempfile::Builder::new()
            .prefix(".")
            .suffix(".tmp")
            .rand_bytes(12)
            .permissions(Permissions::from_mode(if self.existing.is_some() { 0o600 } else { 0o666 }))
            .tempfile_in(folder)
            .map_err(|error| fail(without_path(error)))?;
        temp.write_all(content).map_err(fail)?;
        let mut notes = Vec::new();
        if let Some(existing) = &self.existing {
            notes.extend(keep_owner(temp.as_file(), existing).map_err(fail)?);
            notes.extend((existing.metadata.nlink() > 1).then(|| {
                "it had other hard links, which keep the content it had: change them too if they are meant".to_owned()
            }));
        }
        let metadata = self.put_in_place(temp, folder)?;
        made.keep();
        let state = state_of(&self.path, &metadata, Some(hash(content)));
        self.context.state().see(state.clone());
        Ok(Replaced { state, notes })
    }

    fn put_in_place(&self, temp: NamedTempFile, folder: &Path) -> Result<std::fs::Metadata, String> {
        let fail = |error: io::Error| format!("{} can't be written: {error}; nothing was changed", self.name());
        let metadata = temp.as_file().metadata().map_err(fail)?;
        let _lock = lock(folder)?;
        if self.context.cancel.is_cancelled() {
            return Err("cancelled; nothing was changed".to_owned());
        }
        self.compare_again()?;
        match &self.existing {
            Some(_) => temp.persist(&self.path).map_err(|e| fail(e.error))?,
            None => temp.persist_noclobber(&self.path).map_err(|e| match e.error.kind() {
                io::ErrorKind::AlreadyExists => self.appeared(),
                _ => fail(e.error),
            })?,
        };
        Ok(metadata)
    }

    /// Fails unless the file is what [`Target::find`] found.
    fn compare_again(&self) -> Result<(), String> {
        match (&self.existing, open_regular(&self.path)) {
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (None, _) => Err(self.appeared()),
            (Some(_), Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("{} was removed meanwhile; nothing was changed", self.name()))
            }
            (Some(_), Err(error)) => Err(format!("{} can't be read: {error}; nothing was changed", self.name())),
            (Some(before), Ok((file, now))) => {
                let same = match &before.content {
                    Some(content) => read_whole(file).is_ok_and(|now| now.as_ref() == Some(content)),
                    None => times(&before.metadata) == times(&now),
                };
                if same { Ok(()) } else { Err(self.changed()) }
            }
        }
    }

    fn appeared(&self) -> String {
        format!("{} was made by somebody else meanwhile: Read it first", self.name())
    }
}

/// What the system said, without the temporary file's name, which says nothing to a model.
fn without_path(error: io::Error) -> io::Error {
    let source = error.get_ref().and_then(|wrapped| wrapped.source());
    let code = source.and_then(|s| s.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
    code.map_or(error, io::Error::from_raw_os_error)
}

fn times(metadata: &std::fs::Metadata) -> (u64, u64, i64, i64) {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// The lock of a folder, if its file system has such. None = go on without.
fn lock(folder: &Path) -> Result<Option<FileLock>, String> {
    match folder_within(folder, deadlines().lock) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ StoreError::LockTimeout { .. }) => Err(format!(
            "{error}: another process holds it, such as an agent that changes a file there; nothing was changed, try \
             again"
        )),
        Err(_) => Ok(None),
    }
}

/// Gives `file` the owner and permissions of `existing`; a note if the owner could not be kept.
fn keep_owner(file: &File, existing: &Existing) -> io::Result<Option<String>> {
    let own = file.metadata()?;
    let (old, mut mode) = (&existing.metadata, existing.metadata.mode() & 0o7777);
    let mut note = None;
    if (own.uid(), own.gid()) != (old.uid(), old.gid())
        && std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid())).is_err()
    {
        // Under another owner these bits would mean something else.
        mode &= 0o777;
        note = Some(format!(
            "its owner {}:{} could not be kept, it is {}:{} now",
            old.uid(),
            old.gid(),
            own.uid(),
            own.gid()
        ));
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(note)
}

/// Folders that were made for a file; removed again, as far as they are empty, unless it is kept.
struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    fn make(folder: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut made = Self(Vec::new());
        let missing: Vec<&Path> = folder.ancestors().take_while(|f| !f.is_dir()).collect();
        for folder in missing.into_iter().rev() {
            match std::fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_path_buf()),
                // Somebody else made it in this moment.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(error) => return Err((folder.to_path_buf(), error)),
            }
        }
        Ok(made)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // One that somebody uses by now stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
