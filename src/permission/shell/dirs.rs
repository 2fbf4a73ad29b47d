//! In which folders a later command may run, given the `cd`s before it.

use std::path::{Path, PathBuf};

use super::part::{Expansion, Part};
use crate::permission::path::normalise;

/// More possibilities than this count as unknown.
const MOST: usize = 8;

/// The folders possible now, and all of this shell so far. A failed `cd` leaves the shell where it
/// was, so a folder counts as certain only behind `&&`.
#[derive(Clone, Debug)]
pub(super) struct Dirs {
    current: Option<Vec<PathBuf>>,
    seen: Option<Vec<PathBuf>>,
}

impl Dirs {
    pub(super) fn new(cwd: &Path) -> Self {
        let start = Some(vec![cwd.to_path_buf()]);
        Self { current: start.clone(), seen: start }
    }

    pub(super) fn current(&self) -> Option<Vec<PathBuf>> {
        self.current.clone()
    }

    /// The next command runs whether or not the last one succeeded.
    pub(super) fn after_any(&mut self) {
        self.current.clone_from(&self.seen);
    }

    /// Takes note of a command that changes the folder.
    pub(super) fn follow(&mut self, part: &Part, home: Option<&Path>) {
        match part.command() {
            "cd" if part.assignments.is_empty() => match target(part, home) {
                Some(target) => self.enter(&target),
                None => self.lose(),
            },
            "cd" | "pushd" | "popd" => self.lose(),
            "command" | "builtin" if part.words.iter().any(|w| ["cd", "pushd", "popd"].contains(&w.text.as_str())) => {
                self.lose();
            }
            _ => {}
        }
    }

    fn enter(&mut self, target: &Path) {
        let (Some(current), Some(seen)) = (&mut self.current, &mut self.seen) else { return };
        for dir in current.iter_mut() {
            *dir = normalise(&dir.join(target));
            if !seen.contains(dir) {
                seen.push(dir.clone());
            }
        }
        current.dedup();
        if seen.len() > MOST {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.current = None;
        self.seen = None;
    }
}

fn target(part: &Part, home: Option<&Path>) -> Option<PathBuf> {
    let arguments = match part.arguments() {
        [first, rest @ ..] if first.text == "--" => rest,
        all if all.iter().any(|w| w.text.starts_with('-')) => return None,
        all => all,
    };
    match arguments {
        [] => home.map(Path::to_path_buf),
        [one] if one.expansion == Expansion::None && !one.text.is_empty() && one.text != "-" => {
            Some(PathBuf::from(&one.text))
        }
        _ => None,
    }
}
