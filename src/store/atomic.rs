//! Small files, replaced as a whole: a reader sees the old content or the new one, and a failed
//! write leaves the old one. Used for meta, state, roster, cards, settings.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::StoreError;
pub use crate::core::limits::Durability;

/// Replaces `path`, which becomes 0600, by a file of `bytes`: temp file in the same folder, then
/// rename. The folder must exist.
pub fn write(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), StoreError> {
    let mut temp = new_file_beside(path)?;
    temp.write_all(bytes).map_err(StoreError::at(path, "write"))?;
    if durability == Durability::Disk {
        temp.as_file().sync_all().map_err(StoreError::at(path, "sync"))?;
    }
    temp.persist(path).map_err(|e| StoreError::at(path, "replace")(e.error))?;
    sync_folder_of(path, durability)
}

/// A new hidden file in the folder of `path`, 0600, open for reading and appending, removed again
/// unless it is persisted. A crash leaves it as `.….tmp`.
pub(crate) fn new_file_beside(path: &Path) -> Result<tempfile::NamedTempFile, StoreError> {
    let folder = folder_of(path);
    tempfile::Builder::new()
        .prefix(".")
        .suffix(".tmp")
        .rand_bytes(12)
        .append(true)
        .tempfile_in(folder)
        .map_err(StoreError::at(folder, "create a file in"))
}

/// Makes names in the folder of `path` last, if asked to.
pub(crate) fn sync_folder_of(path: &Path, durability: Durability) -> Result<(), StoreError> {
    if durability == Durability::Process {
        return Ok(());
    }
    let folder = folder_of(path);
    File::open(folder).and_then(|f| f.sync_all()).map_err(StoreError::at(folder, "sync"))
}

/// Renames onto a name that nobody has; `AlreadyExists` if somebody does.
pub(super) fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(StoreError::at(path, "remove")(e)),
        _ => Ok(()),
    }
}

/// The folder `path` lies in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes `path` and every folder above it that is missing, 0700. Existing ones stay as they are.
pub fn create_private_dir(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(StoreError::at(path, "create the folder"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_whole_and_private_and_nothing_is_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        create_private_dir(&folder).unwrap();
        create_private_dir(&folder).unwrap();
        for made in [&folder, &dir.path().join("a")] {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let path = folder.join("x.json");
        for (text, durability) in [("one", Durability::Process), ("two", Durability::Disk)] {
            write(&path, text.as_bytes(), durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_temp_file() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("folder");
        fs::create_dir(&taken).unwrap();
        assert!(matches!(write(&taken, b"x", Durability::Process), Err(StoreError::Io { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let nowhere = dir.path().join("none/x");
        assert!(matches!(write(&nowhere, b"x", Durability::Process), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn readers_never_see_half_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (a, b) = ("a".repeat(20_000), "b".repeat(30_000));
        write(&path, a.as_bytes(), Durability::Process).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                for i in 0..200 {
                    write(&path, if i % 2 == 0 { &b } else { &a }.as_bytes(), Durability::Process).unwrap();
                }
            });
            for _ in 0..400 {
                let seen = fs::read_to_string(&path).unwrap();
                assert!(seen == a || seen == b, "{} bytes", seen.len());
            }
        });
    }
}
