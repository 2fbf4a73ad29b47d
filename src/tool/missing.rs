//! Why a file can't be opened, in words that help: what it is instead, and which names are like it.

use std::io;
use std::path::Path;

use super::files::shown;

/// Entries of a folder that are compared with a name that was not found.
const SIBLINGS: usize = 10_000;

/// Why a file can't be opened, and what to do instead.
pub(super) fn explain(path: &Path, error: &io::Error) -> String {
    let name = shown(path);
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no file {name}{}", alternatives(path)),
        io::ErrorKind::IsADirectory => format!("{name} is a folder; use Glob with `path` set to it to see its files"),
        io::ErrorKind::PermissionDenied => format!("{name} can't be read: the system denies access"),
        _ => format!("{name} can't be read: {error}"),
    }
}

/// `; similar names there: a, b`, or the folder that is missing.
fn alternatives(path: &Path) -> String {
    let (Some(folder), Some(wanted)) = (path.parent(), path.file_name()) else { return String::new() };
    let Ok(entries) = std::fs::read_dir(folder) else {
        let existing = folder.ancestors().find(|f| f.is_dir());
        return existing.map_or(String::new(), |f| format!("; the path exists up to {}", shown(f)));
    };
    let wanted = wanted.to_string_lossy().to_lowercase();
    let most = 1 + wanted.chars().count() / 3;
    let mut close: Vec<(usize, String)> = entries
        .take(SIBLINGS)
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            // Names of very different length are not worth the comparison.
            let distance =
                (name.len().abs_diff(wanted.len()) <= 4 * most).then(|| distance(&wanted, &name.to_lowercase()))?;
            (distance <= most).then_some((distance, name))
        })
        .collect();
    close.sort_unstable();
    let names: Vec<String> = close.into_iter().take(3).map(|(_, name)| shown(Path::new(&name))).collect();
    if names.is_empty() { String::new() } else { format!("; similar names there: {}", names.join(", ")) }
}

/// How many characters must be added, dropped or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
