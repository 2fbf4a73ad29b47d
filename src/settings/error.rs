//! Why settings can't be used.

use std::path::PathBuf;

use super::place::position;
use super::reader::Wrong;
use crate::store::StoreError;

/// What stands in the way of loading settings. All are for the person who wrote the file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is there (or was named by a flag) and can't be read.
    #[error("can't read settings file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("broken JSON in {origin} at line {line}, column {column}")]
    Syntax {
        /// The file, or the flag.
        origin: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A value is not what its key takes.
    #[error("{origin} at line {line}, column {column}: `{key}` is {found}, expected {expected}")]
    WrongValue {
        /// The file, or the flag.
        origin: String,
        /// From 1: of the value, or of what it is missing in.
        line: usize,
        /// From 1.
        column: usize,
        /// Dotted path of the key.
        key: String,
        /// What stands there, in words.
        found: String,
        /// What may stand there, in words.
        expected: &'static str,
    },
    /// The file could not be changed; it is as it was.
    #[error("can't change settings file {}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
}

impl SettingsError {
    /// A value of `text`, which is from `origin`, that is not what its key takes.
    pub(super) fn wrong(origin: &str, text: &str, wrong: Wrong) -> Self {
        let (line, column) = position(text, &wrong.key);
        let Wrong { key, found, expected } = wrong;
        Self::WrongValue { origin: origin.to_owned(), line, column, key, found, expected }
    }
}
