//! Where people put files for agents: the folders from the working folder upwards, and which of
//! their files count. For skills and instructions.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Where a session looks for what people wrote down.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Config folder.
    pub config: &'a Path,
    /// Working folder, a real path.
    pub cwd: &'a Path,
    /// Home folder.
    pub home: Option<&'a Path>,
}

impl Places<'_> {
    /// The working folder and the folders above it, nearest first, without `/`.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.cwd.ancestors().filter(|folder| folder.parent().is_some())
    }

    /// The `.claude` folders among them that exist. Those of the home and the config folder are the
    /// person's own and found there.
    pub(super) fn claude_folders(&self) -> impl Iterator<Item = PathBuf> {
        let found = self.folders().filter(|folder| Some(*folder) != self.home).map(|folder| folder.join(".claude"));
        found.filter(|folder| folder != self.config && folder.is_dir() && is_trusted(folder))
    }

    /// The root of the project: the nearest folder with `.git`, else the working folder.
    pub fn project(&self) -> PathBuf {
        let found = self.folders().find(|folder| folder.join(".git").exists());
        found.unwrap_or(self.cwd).to_path_buf()
    }
}

/// Whether what lies at `path` was put there by this user or the system. In a folder where everybody
/// may write, such as `/tmp`, somebody else may have put it there for us.
pub(super) fn is_trusted(path: &Path) -> bool {
    let foreign = |metadata: Metadata| ![0, nix::unistd::geteuid().as_raw()].contains(&metadata.uid());
    let open = path.parent().and_then(|folder| folder.metadata().ok()).is_none_or(|folder| folder.mode() & 0o002 != 0);
    !open || path.symlink_metadata().is_ok_and(|metadata| !foreign(metadata))
}

/// The text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// As far as it was read.
    pub text: String,
    /// Whether there is more of it.
    pub is_cut: bool,
}

/// Reads at most `limit` bytes of a regular file, without ever waiting for a pipe or device. What is
/// no UTF-8 text is an error.
pub fn read_text(path: &Path, limit: usize) -> io::Result<TextFile> {
    let regular = |metadata: &Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    };
    // Looked at before it is opened: opening alone can make a device act.
    regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    regular(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > limit;
    bytes.truncate(limit);
    let no_text = || io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text");
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The limit may lie within a character.
        Err(error) if is_cut && error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            String::from_utf8(error.into_bytes()[..end].to_vec()).map_err(|_| no_text())?
        }
        Err(_) => return Err(no_text()),
    };
    if text.contains('\0') {
        return Err(no_text());
    }
    Ok(TextFile { text, is_cut })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_text_is_read_up_to_its_limit_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let read = |bytes: &[u8], limit| {
            fs::write(&path, bytes).unwrap();
            read_text(&path, limit)
        };
        let text = |text: &str, is_cut| TextFile { text: text.to_owned(), is_cut };
        assert_eq!(read(b"abc", 3).unwrap(), text("abc", false));
        assert_eq!(read(b"abcd", 3).unwrap(), text("abc", true));
        assert_eq!(read("abé".as_bytes(), 3).unwrap(), text("ab", true));
        for bad in [&b"a\0b"[..], b"caf\xe9", b"\xff\xfe"] {
            assert_eq!(read(bad, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert!(read_text(dir.path(), 9).is_err());
        nix::unistd::mkfifo(&dir.path().join("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_text(&dir.path().join("p"), 9).is_err());
        assert!(read_text(Path::new("/dev/zero"), 9).is_err());
        assert_eq!(read_text(&dir.path().join("none"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_project_begins_at_the_nearest_git_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let cwd = root.join("r/a/b");
        fs::create_dir_all(&cwd).unwrap();
        let places = Places { config: Path::new("/c"), cwd: &cwd, home: None };
        assert_eq!(places.project(), cwd);
        fs::create_dir(root.join("r/.git")).unwrap();
        assert_eq!(places.project(), root.join("r"));
        assert!(places.folders().all(|folder| folder != Path::new("/")));
        assert_eq!(places.folders().next(), Some(cwd.as_path()));
    }

    #[test]
    fn a_file_of_somebody_else_in_an_open_folder_does_not_count() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(is_trusted(&file));
        assert!(!is_trusted(&dir.path().join("none")));
        if nix::unistd::geteuid().is_root() {
            let somebody = nix::unistd::Uid::from_raw(12345);
            nix::unistd::chown(&file, Some(somebody), None).unwrap();
            assert!(!is_trusted(&file));
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            assert!(is_trusted(&file), "in a folder of ours it is there by our will");
        }
    }
}
