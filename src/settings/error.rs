//! Why settings can't be used.

use std::path::PathBuf;

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
    #[error("{origin}: `{key}` is {found}, expected {expected}")]
    WrongValue {
        /// The file, or the flag.
        origin: String,
        /// Dotted path of the key.
        key: String,
        /// What stands there, in words.
        found: String,
        /// What may stand there, in words.
        expected: &'static str,
    },
}
