//! `CLAUDE.md` files: what people want agents to know and heed. The person's own (config folder),
//! those from the file system's root down to the working folder (nearer ones later, since they count
//! more), and what they import by `@path`. Read when a session starts; those of deeper folders when
//! something there is read first ([`of_folders`]).
//!
//! A project may come from anybody, so its files import from the project alone, beside Markdown of
//! the config folder; else a project could have the person's secrets read out. The person's own file
//! imports what it likes.

use std::path::{Path, PathBuf};

use super::imports::imports;
use super::project::{Places, is_trusted, read_text};

/// Bytes of all files together that are shown at the start.
const TOTAL_BYTES: usize = 100_000;
/// Bytes of the files of deeper folders that are shown with one file.
const FOLDER_BYTES: usize = 20_000;
/// Longest chain of imports.
const DEPTH: usize = 5;
/// The files of a folder, in the order in which they are shown.
const NAMES: [(&str, Whose); 3] =
    [("CLAUDE.md", Whose::Project), (".claude/CLAUDE.md", Whose::Project), ("CLAUDE.local.md", Whose::PersonHere)];

/// Whose word a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The person's, for everything.
    Person,
    /// The project's.
    Project,
    /// The person's, for this project.
    PersonHere,
}

/// A file of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionFile {
    /// Where it was found.
    pub path: PathBuf,
    /// All links followed: what it is known by.
    pub real: PathBuf,
    /// Whose word it is.
    pub whose: Whose,
    /// Its text, as far as there is room.
    pub text: String,
    /// Whether there is more of it.
    pub is_cut: bool,
}

/// What a session is told at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// In the order in which they are told.
    pub files: Vec<InstructionFile>,
    /// What was left out, in words.
    pub notes: Vec<String>,
}

/// Reads the instructions of a session.
pub fn load(places: &Places<'_>) -> Instructions {
    let mut search = Search { home: places.home, config: Some(places.config), ..Search::default() };
    search.take(&places.config.join("CLAUDE.md"), Whose::Person, &[], 0);
    let project = places.project();
    let mut folders: Vec<&Path> = places.folders().collect();
    folders.reverse();
    for folder in folders {
        search.take_folder(folder, &[folder, &project]);
    }
    let mut found = Instructions { files: search.files, notes: search.notes };
    fit(&mut found.files, TOTAL_BYTES);
    found
}

/// The instructions of the folders from `project` down to that of `file` (both real paths). Those
/// that `is_known`, and `file` itself, are left out.
pub fn of_folders(project: &Path, file: &Path, is_known: impl Fn(&Path) -> bool) -> Vec<InstructionFile> {
    let Some(folder) = file.parent().filter(|folder| folder.starts_with(project)) else { return Vec::new() };
    let mut folders: Vec<&Path> = folder.ancestors().take_while(|folder| folder.starts_with(project)).collect();
    folders.reverse();
    let mut search = Search::default();
    for folder in folders {
        search.take_folder(folder, &[project]);
    }
    search.files.retain(|found| found.real != file && !is_known(&found.real));
    fit(&mut search.files, FOLDER_BYTES);
    search.files
}

#[derive(Default)]
struct Search<'a> {
    home: Option<&'a Path>,
    config: Option<&'a Path>,
    files: Vec<InstructionFile>,
    notes: Vec<String>,
}

impl Search<'_> {
    fn take_folder(&mut self, folder: &Path, within: &[&Path]) {
        for (name, whose) in NAMES {
            let path = folder.join(name);
            // `.claude` of the home folder is the person's own, and was taken.
            let is_own = name.starts_with('.') && Some(folder) == self.home;
            let entry = folder.join(name.split('/').next().unwrap_or(name));
            if !is_own && path.exists() && is_trusted(&entry) {
                self.take(&path, whose, within, 0);
            }
        }
    }

    /// Takes a file and what it imports, each once. `within` bounds what a project's file may lead
    /// to; empty = anything.
    fn take(&mut self, path: &Path, whose: Whose, within: &[&Path], depth: usize) {
        let Ok(real) = path.canonicalize() else { return };
        if !real.is_file() || self.files.iter().any(|known| known.real == real) {
            return;
        }
        let markdown = |config: &Path| real.starts_with(config) && real.extension().is_some_and(|e| e == "md");
        let is_within = within.is_empty() || within.iter().any(|folder| real.starts_with(folder));
        if !is_within && !self.config.is_some_and(markdown) {
            let to = if real == path { String::new() } else { format!(" (it leads to {})", real.display()) };
            self.notes.push(format!("{}{to} is outside of the project, whose files may not import it", path.display()));
            return;
        }
        let read = match read_text(&real, TOTAL_BYTES) {
            Ok(read) => read,
            Err(error) => return self.notes.push(format!("{} can't be read: {error}", path.display())),
        };
        let named = imports(&read.text);
        let text = read.text.trim().to_owned();
        self.files.push(InstructionFile { path: path.to_path_buf(), real, whose, text, is_cut: read.is_cut });
        if depth == DEPTH {
            return;
        }
        for name in named {
            if let Some(found) = self.resolve(&name, path) {
                self.take(&found, whose, within, depth + 1);
            }
        }
    }

    /// The file that `@name` in `importer` is, if there is one: most `@` are no imports.
    fn resolve(&self, name: &str, importer: &Path) -> Option<PathBuf> {
        let folder = importer.parent()?;
        let bare = name.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\'']);
        [name, bare].into_iter().filter(|name| !name.is_empty()).find_map(|name| {
            let path = match name.strip_prefix("~/") {
                Some(rest) => self.home?.join(rest),
                None => folder.join(name),
            };
            path.is_file().then_some(path)
        })
    }
}

/// Cuts what is too much for `room` bytes. The last files, which are nearest, have the first claim.
fn fit(files: &mut [InstructionFile], mut room: usize) {
    for file in files.iter_mut().rev() {
        if file.text.len() > room {
            let end = (0..=room).rev().find(|at| file.text.is_char_boundary(*at)).unwrap_or(0);
            file.text.truncate(end);
            file.is_cut = true;
        }
        room -= file.text.len();
    }
}

#[cfg(test)]
#[path = "instructions_tests.rs"]
mod tests;
