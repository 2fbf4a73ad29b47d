//! What can go wrong on disk, by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why something could not be stored, read or locked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused: try again (disk full), or tell the person.
    #[error("{action} {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, such as `write`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else holds it: deliver to the holder, or say who it is.
    #[error("{} is in use by {}", path.display(), holder(*holder_pid))]
    Locked {
        /// The file.
        path: PathBuf,
        /// The process that holds it, where the registry told.
        holder_pid: Option<i32>,
    },
    /// A lock that is held for moments only did not become free.
    #[error("{} stayed locked for {} (deadline `{setting}`)", path.display(), humantime::format_duration(*waited))]
    LockTimeout {
        /// The lock file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
        /// The deadline's name in `core::limits`.
        setting: &'static str,
    },
    /// It is there already: take another name.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is no such file.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Its content is not what it should be.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Over a limit; nothing was written.
    #[error("{what} has {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// What is too long.
        what: String,
        /// Its length.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A folder that other users could tamper with.
    #[error("{} can't be trusted: {reason}", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

fn holder(pid: Option<i32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl StoreError {
    /// Turns what the system said about `path` into an error: `Missing` and `Exists` where it said
    /// so, else `Io`. For `map_err`.
    pub(crate) fn at(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Io { path, action, source },
        }
    }

    /// An error about the content of `path`.
    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn texts_name_path_process_and_limit_and_keep_the_source() {
        let path = PathBuf::from("/x/y");
        let locked = StoreError::Locked { path: path.clone(), holder_pid: Some(7) };
        assert_eq!(locked.to_string(), "/x/y is in use by process 7");
        let waited = Duration::from_millis(1500);
        let timeout = StoreError::LockTimeout { path: path.clone(), waited, setting: "lock" };
        assert_eq!(timeout.to_string(), "/x/y stayed locked for 1s 500ms (deadline `lock`)");
        let full = StoreError::at(&path, "write")(io::Error::from_raw_os_error(28));
        assert_eq!(full.to_string(), "write /x/y");
        assert!(full.source().is_some_and(|s| s.to_string().contains("No space left")));
        let gone = StoreError::at(&path, "open")(io::Error::from(io::ErrorKind::NotFound));
        assert!(matches!(gone, StoreError::Missing { .. }));
    }
}
