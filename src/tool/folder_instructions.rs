//! `CLAUDE.md` files of the folders a file is read from: shown with the file, each once in a
//! conversation. What was shown is recorded with the result of the call, so that a resumed
//! conversation knows; a compaction forgets it, because the summary does not hold them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::{HidePath, shown};
use crate::core::knowledge::Knowledge;
use crate::settings::instructions::{InstructionFile, of_folders};

/// What one conversation is shown beside the files it reads.
#[derive(Default)]
pub struct FolderInstructions {
    /// None = nothing is shown.
    project: Option<PathBuf>,
    /// Held by the system prompt.
    told: HashSet<PathBuf>,
    /// Files that may not be read.
    hides: Option<HidePath>,
    /// Shown since the last compaction.
    shown: Mutex<HashSet<PathBuf>>,
}

impl FolderInstructions {
    /// For a conversation that is told of `knowledge` and was `shown` these files before.
    pub fn new(knowledge: &Knowledge, hides: HidePath, shown: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            project: knowledge.project.clone(),
            told: knowledge.told.iter().cloned().collect(),
            hides: Some(hides),
            shown: Mutex::new(shown.into_iter().collect()),
        }
    }

    /// Forgets what was shown: the conversation does not hold it any more.
    pub fn forget(&self) {
        self.shown().clear();
    }

    fn shown(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is to show with `file`. Reads files, so it may block.
    pub(super) fn of(&self, file: &Path) -> Vec<InstructionFile> {
        let (Some(project), Ok(file)) = (&self.project, file.canonicalize()) else { return Vec::new() };
        let hidden = |path: &Path| self.hides.as_ref().is_some_and(|hides| hides(path));
        of_folders(project, &file, |path| self.told.contains(path) || self.shown().contains(path) || hidden(path))
    }

    /// Of `files` those that no other call showed meanwhile; from here on they count as shown.
    pub(super) fn claim(&self, mut files: Vec<InstructionFile>) -> Vec<InstructionFile> {
        let mut shown = self.shown();
        files.retain(|file| shown.insert(file.real.clone()));
        files
    }
}

/// How the model is shown them, below what it read.
pub(super) fn block(files: &[InstructionFile]) -> String {
    let mut text =
        "\n\n<system-reminder>\nInstructions that people wrote for work in this folder; heed them from here \
                    on.\n"
            .to_owned();
    for file in files {
        let _ = write!(text, "\nContents of {}:\n\n{}\n", shown(&file.path), file.text);
        if file.is_cut {
            text.push_str("[cut here; Read shows the whole]\n");
        }
    }
    text.push_str("</system-reminder>");
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::core::knowledge::SHOWN_INSTRUCTIONS;
    use crate::tool::testing::context;
    use crate::tool::{Read, Tool, ToolContext};

    struct Place {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            for (name, text) in [
                ("p/CLAUDE.md", "TOP"),
                ("p/sub/CLAUDE.md", "SUB"),
                ("p/sub/deep/CLAUDE.md", "DEEP"),
                ("p/sub/a.txt", "a"),
                ("p/sub/deep/b.txt", "b"),
                ("out/CLAUDE.md", "OUT"),
                ("out/c.txt", "c"),
            ] {
                fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
                fs::write(root.join(name), text).unwrap();
            }
            std::os::unix::fs::symlink(root.join("out/c.txt"), root.join("p/sub/link.txt")).unwrap();
            Self { _dir: dir, root }
        }

        fn context(&self, hides: HidePath, shown: &[&str]) -> ToolContext {
            let knowledge = Knowledge {
                project: Some(self.root.join("p")),
                told: vec![self.root.join("p/CLAUDE.md")],
                ..Knowledge::default()
            };
            let shown = shown.iter().map(|name| self.root.join(name));
            let instructions = Arc::new(FolderInstructions::new(&knowledge, hides, shown));
            ToolContext { instructions, ..context(&self.root.join("p"), &self.root.join("results")) }
        }

        /// What reading a file shows beside it: texts in order, and what is recorded.
        async fn read(&self, context: &ToolContext, name: &str) -> (Vec<&'static str>, Vec<String>) {
            let output = Read.run(&json!({"file_path": name}), context).await;
            assert!(!output.is_error, "{}", output.text);
            let mut found: Vec<_> = ["TOP", "SUB", "DEEP", "OUT"]
                .into_iter()
                .filter_map(|text| output.text.find(&format!("\n{text}\n")).map(|at| (at, text)))
                .collect();
            found.sort_unstable();
            let recorded = output.structured.unwrap_or_default()[SHOWN_INSTRUCTIONS].clone();
            let recorded = recorded.as_array().into_iter().flatten().filter_map(Value::as_str);
            let recorded =
                recorded.map(|path| path.strip_prefix(&*self.root.to_string_lossy()).unwrap_or(path).to_owned());
            (found.into_iter().map(|(_, text)| text).collect(), recorded.collect())
        }
    }

    fn nothing_hidden() -> HidePath {
        Arc::new(|_| false)
    }

    #[tokio::test]
    async fn each_file_is_shown_once_until_a_compaction() {
        let place = Place::new();
        let context = place.context(nothing_hidden(), &[]);
        let all = (vec!["SUB", "DEEP"], vec!["/p/sub/CLAUDE.md".to_owned(), "/p/sub/deep/CLAUDE.md".to_owned()]);
        assert_eq!(place.read(&context, "sub/deep/b.txt").await, all);
        assert_eq!(place.read(&context, "sub/deep/b.txt").await.0, [""; 0]);
        assert_eq!(place.read(&context, "sub/a.txt").await.0, [""; 0]);
        context.instructions.forget();
        assert_eq!(place.read(&context, "sub/a.txt").await.0, ["SUB"]);
        let resumed = place.context(nothing_hidden(), &["p/sub/CLAUDE.md"]);
        assert_eq!(place.read(&resumed, "sub/deep/b.txt").await.0, ["DEEP"]);
    }

    #[tokio::test]
    async fn reads_side_by_side_show_it_once() {
        let place = Place::new();
        let context = place.context(nothing_hidden(), &[]);
        let (one, two) = tokio::join!(place.read(&context, "sub/a.txt"), place.read(&context, "sub/a.txt"));
        assert_eq!([one.0, two.0].concat(), ["SUB"]);
    }

    #[tokio::test]
    async fn nothing_comes_from_outside_of_the_project_or_against_a_rule() {
        let place = Place::new();
        let context = place.context(Arc::new(|path| path.ends_with("deep/CLAUDE.md")), &[]);
        let outside = place.root.join("out/c.txt");
        assert_eq!(place.read(&context, &outside.to_string_lossy()).await.0, [""; 0]);
        assert_eq!(place.read(&context, "sub/link.txt").await.0, [""; 0], "it lies where it leads to");
        assert_eq!(place.read(&context, "sub/deep/b.txt").await.0, ["SUB"]);
        assert_eq!(place.read(&context, "sub/deep/CLAUDE.md").await.0, [""; 0], "not beside itself");
        let nobody = ToolContext { instructions: Arc::default(), ..context };
        assert_eq!(place.read(&nobody, "sub/a.txt").await.0, [""; 0]);
    }
}
