//! Adding a permission rule to a settings file that others write too (R048): under a lock, replaced
//! as a whole, with every other byte of it kept.
//!
//! Called by whoever answers a permission question with "always". Programs that know nothing of our
//! lock may write at the same time: what they wrote until just before the file is replaced is kept.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::SettingsError;
use super::layers::{RuleKind, parse};
use super::place::{find, offset};
use super::schema::Settings;
use crate::core::limits::{Durability, deadlines};
use crate::store::StoreError;
use crate::store::atomic::{new_file_beside, sync_folder_of};
use crate::store::lock::exclusive_within;

/// How often a file that another program changes meanwhile is tried again.
const TRIES: u32 = 20;

/// What became of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the file now.
    Now,
    /// It was there already; nothing was written.
    Before,
}

/// Adds `rule` to the list `kind` of the settings file `path`, which is made if it is not there, with
/// the folders above it. Order, form and unknown keys of the file stay as they are. Blocks for as long
/// as others write it, at most for the deadline `lock`.
pub fn add_rule(path: &Path, kind: RuleKind, rule: &str, durability: Durability) -> Result<Added, SettingsError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| unwritable(path, StoreError::at(folder, "create the folder")(e)))?;
    }
    // The file that a link leads to is the one that is replaced, and locked.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let lock_path = lock_of(&real);
    let lock = exclusive_within(&lock_path, deadlines().lock).map_err(|source| unwritable(path, source))?;
    let change = |text: &str| with_rule(text, kind, rule, path);
    let done = replace(&real, path, change, durability);
    // Whoever waits for it sees that its name is gone, and makes a new one.
    let _ = fs::remove_file(&lock_path);
    drop(lock);
    done
}

/// Replaces the file `real`, which `path` names, by what `change` makes of it; under its lock.
fn replace(
    real: &Path,
    path: &Path,
    change: impl Fn(&str) -> Result<Option<String>, SettingsError>,
    durability: Durability,
) -> Result<Added, SettingsError> {
    for _ in 0..TRIES {
        let before = read(real).map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
        let Some(after) = change(before.as_deref().unwrap_or_default())? else { return Ok(Added::Before) };
        let temp = prepare(real, &after, durability).map_err(|source| unwritable(path, source))?;
        if read(real).ok().flatten() != before {
            continue;
        }
        temp.persist(real).map_err(|e| unwritable(path, StoreError::at(real, "replace")(e.error)))?;
        sync_folder_of(real, durability).map_err(|source| unwritable(path, source))?;
        return Ok(Added::Now);
    }
    let reason = "another program keeps changing it".to_owned();
    Err(unwritable(path, StoreError::Damaged { path: real.to_owned(), reason }))
}

fn unwritable(path: &Path, source: StoreError) -> SettingsError {
    SettingsError::Unwritable { path: path.to_owned(), source }
}

fn lock_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.lock"))
}

/// The file's text; none if there is no file.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The new file, which has the permissions of the old one.
fn prepare(path: &Path, text: &str, durability: Durability) -> Result<tempfile::NamedTempFile, StoreError> {
    let mut temp = new_file_beside(path)?;
    temp.write_all(text.as_bytes()).map_err(StoreError::at(path, "write"))?;
    if let Ok(old) = fs::metadata(path) {
        let permissions = fs::Permissions::from_mode(old.permissions().mode() & 0o777);
        temp.as_file().set_permissions(permissions).map_err(StoreError::at(path, "keep the permissions of"))?;
    }
    if durability == Durability::Disk {
        temp.as_file().sync_all().map_err(StoreError::at(path, "sync"))?;
    }
    Ok(temp)
}

/// `text` with the rule; none if it holds it.
fn with_rule(text: &str, kind: RuleKind, rule: &str, path: &Path) -> Result<Option<String>, SettingsError> {
    let origin = path.display().to_string();
    let mark = if text.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    let text = &text[mark.len()..];
    let value = parse(text, &origin)?;
    // A file that nobody can use is not made worse.
    Settings::read(&value).map_err(|wrong| SettingsError::wrong(&origin, text, wrong))?;
    let list = format!("permissions.{}", kind.as_str());
    let said = Value::String(rule.to_owned()).to_string();
    let permissions = value.get("permissions").filter(|v| !v.is_null());
    let rules = permissions.and_then(|p| p.get(kind.as_str())).filter(|v| !v.is_null());
    if rules.and_then(Value::as_array).is_some_and(|rules| rules.iter().any(|r| r == rule)) {
        return Ok(None);
    }
    let named = format!("\"{}\": [{said}]", kind.as_str());
    let whole = format!("\"permissions\": {{{named}}}");
    let changed = if text.trim().is_empty() {
        format!("{{\n  \"permissions\": {{\n    \"{}\": [\n      {said}\n    ]\n  }}\n}}\n", kind.as_str())
    } else if rules.is_some() {
        insert(text, &list, &said)
    } else if permissions.is_some() {
        put(text, &list, &format!("[{said}]")).unwrap_or_else(|| insert(text, "permissions", &named))
    } else {
        put(text, "permissions", &format!("{{{named}}}")).unwrap_or_else(|| insert(text, "", &whole))
    };
    Ok(Some(format!("{mark}{changed}")))
}

/// `text` with the value at `path`, which is `null`, replaced; none if nothing is there.
fn put(text: &str, path: &str, value: &str) -> Option<String> {
    let piece = find(text, path)?;
    let at = offset(text, piece);
    Some(format!("{}{value}{}", &text[..at], &text[at + piece.len()..]))
}

/// `text` with one more member at the end of the list or object at `path`, in the form of the others.
fn insert(text: &str, path: &str, member: &str) -> String {
    let piece = find(text, path).unwrap_or(text);
    let start = offset(text, piece);
    let end = start + piece.len().saturating_sub(1);
    let inside = &text[start + 1..end];
    let last = start + 1 + inside.trim_end().len();
    let behind = &text[last..end];
    let comma = if inside.trim().is_empty() { "" } else { "," };
    let space = match behind.rfind('\n') {
        // The closing bracket stands on a line of its own, so each member does.
        Some(line) if !comma.is_empty() => format!("\n{}{}", &behind[line + 1..], indent(inside, &behind[line + 1..])),
        _ if comma.is_empty() => String::new(),
        _ => " ".to_owned(),
    };
    format!("{}{comma}{space}{member}{}", &text[..last], &text[last..])
}

/// What members of a list are indented by, beyond its closing bracket.
fn indent<'a>(inside: &'a str, closing: &str) -> &'a str {
    let first = inside.trim_start_matches(['\r', '\n']);
    let blank = &first[..first.len() - first.trim_start_matches([' ', '\t']).len()];
    blank.strip_prefix(closing).filter(|more| !more.is_empty()).unwrap_or("  ")
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
