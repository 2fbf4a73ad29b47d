//! A file that a tool is about to change: found, and compared with what the agent saw of it. The
//! change itself is `replace`.

use std::fs::Metadata;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::ToolContext;
use super::files::{open_regular, shown};
use super::missing::explain;
use super::seen::{hash, is_as_seen, read_whole, state_of};
use super::text_file::{Encoding, decode};
use crate::core::limits::EDIT_BYTES;

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;

/// A file, there or not yet.
pub(super) struct Target<'a> {
    pub(super) context: &'a ToolContext,
    /// As the model named it, absolute.
    pub(super) named: PathBuf,
    /// Links followed: what is replaced is the file, and a link to it stays.
    pub(super) path: PathBuf,
    /// None: it is to be made.
    pub(super) existing: Option<Existing>,
}

/// What is there.
pub(super) struct Existing {
    pub(super) metadata: Metadata,
    /// None: more than can be edited.
    pub(super) content: Option<Vec<u8>>,
}

impl<'a> Target<'a> {
    /// Looks at what `path` names. What is no regular file is an error that says what it is.
    pub(super) fn find(context: &'a ToolContext, path: &str) -> Result<Self, String> {
        let named = context.cwd.join(path);
        if path == "~" || path.starts_with("~/") {
            return Err(format!("`~` is not replaced here: give the whole path instead of {path}"));
        }
        if path.ends_with('/') {
            return Err(format!("{} names a folder; give the path of a file", shown(&named)));
        }
        let refuse = |error: &io::Error| match error.kind() {
            io::ErrorKind::InvalidInput => format!("{} can't be a file: {error}", shown(&named)),
            _ => explain(&named, error),
        };
        let path = resolve(&named).map_err(|error| refuse(&error))?;
        let existing = match open_regular(&path) {
            Ok((file, metadata)) => Some(Existing { content: read_whole(file).map_err(|e| refuse(&e))?, metadata }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refuse(&error)),
        };
        Ok(Self { context, named, path, existing })
    }

    /// Its name for the model.
    pub(super) fn name(&self) -> String {
        shown(&self.named)
    }

    /// Fails unless the agent saw the file as it is now; one that is not there needs no look.
    pub(super) fn check_seen(&self) -> Result<(), String> {
        let Some(existing) = &self.existing else { return Ok(()) };
        let now = state_of(&self.path, &existing.metadata, existing.content.as_deref().map(hash));
        match self.context.state().file(&now.path) {
            None => Err(format!("{} exists and you have not read it: Read it first", self.name())),
            Some(seen) if is_as_seen(seen, &now) => Ok(()),
            Some(_) => Err(self.changed()),
        }
    }

    /// The text of the file that is there, and how it holds it.
    pub(super) fn text(&self) -> Result<(String, Encoding), String> {
        let existing = self.existing.as_ref().ok_or_else(|| explain(&self.named, &io::ErrorKind::NotFound.into()))?;
        let Some(content) = &existing.content else {
            return Err(format!(
                "{} has {} bytes, and files of more than {EDIT_BYTES} can't be edited; change it with a command, such \
                 as sed",
                self.name(),
                existing.metadata.len()
            ));
        };
        decode(content).map_err(|not| {
            format!(
                "{} {}, and editing it as text would damage it; change it with a command, such as perl or python",
                self.name(),
                not.explain()
            )
        })
    }

    pub(super) fn changed(&self) -> String {
        format!("{} changed since you read it: read it again", self.name())
    }
}

/// Follows all links. Of a file that does not exist the name stays, and so do folders that don't exist
/// in front of it.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        // A link to nothing stands for the file that it names.
        match (std::fs::read_link(&path), path.parent()) {
            (Ok(to), Some(folder)) => path = folder.join(to),
            _ => return resolve_missing(&path),
        }
    }
    Err(io::Error::from(nix::errno::Errno::ELOOP))
}

fn resolve_missing(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match (at.components().next_back(), at.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name);
                at = parent;
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "`..` comes after a folder that does not exist",
                ));
            }
        }
        match at.canonicalize() {
            Ok(folder) if folder.is_dir() => {
                return Ok(missing.iter().rev().fold(folder, |path, name| path.join(name)));
            }
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}
