//! What an agent's tools must know of its earlier calls: the files as it saw them last, and its list
//! of things to do. Kept in memory by the tools, and in the transcript by the structured results of
//! the calls (`fileState`, `newTodos`) and by compaction boundaries, from which a resume reads it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Files that are remembered; of more the longest unseen are forgotten, and must be read again
/// before they are changed. Bounds the line of a compaction boundary to a few megabytes.
const FILES: usize = 10_000;

/// A file as an agent saw or left it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// Absolute, links followed.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Time of its last change, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Of its content, hex; none where the file was too large to be hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// How far a todo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// What is said while it is being done.
    pub active_form: String,
}

/// Files seen and things to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolState {
    /// By path; the number says which was seen last.
    files: HashMap<String, (u64, FileState)>,
    latest: u64,
    /// In the model's order.
    pub todos: Vec<Todo>,
}

impl ToolState {
    /// The file at `path` (absolute, links followed) as it was seen last.
    pub fn file(&self, path: &str) -> Option<&FileState> {
        self.files.get(path).map(|(_, state)| state)
    }

    /// Remembers a file as it is now.
    pub fn see(&mut self, state: FileState) {
        self.latest += 1;
        self.files.insert(state.path.clone(), (self.latest, state));
        if self.files.len() > FILES
            && let Some(oldest) = self.files.values().min_by_key(|(at, _)| *at).map(|(_, state)| state.path.clone())
        {
            self.files.remove(&oldest);
        }
    }

    /// Takes in what a call's structured result (`toolUseResult`) says.
    pub fn note(&mut self, result: &Value) {
        if let Some(state) = result.get("fileState").and_then(|v| FileState::deserialize(v).ok()) {
            self.see(state);
        }
        if let Some(todos) = result.get("newTodos").and_then(|v| Vec::<Todo>::deserialize(v).ok()) {
            self.todos = todos;
        }
    }

    /// Takes in what a compaction boundary says; its files are the longest seen first.
    pub fn restore(&mut self, files: &[FileState], todos: &[Todo]) {
        files.iter().cloned().for_each(|state| self.see(state));
        self.todos = todos.to_vec();
    }

    /// All files, the longest unseen first.
    pub fn files(&self) -> Vec<FileState> {
        let mut files: Vec<&(u64, FileState)> = self.files.values().collect();
        files.sort_unstable_by_key(|(at, _)| *at);
        files.into_iter().map(|(_, state)| state.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(path: &str, size: u64) -> FileState {
        FileState { path: path.to_owned(), size, mtime_ns: 5, sha256: Some("ab".to_owned()) }
    }

    #[test]
    fn results_and_boundaries_bring_back_what_was_known() {
        let mut state = ToolState::default();
        state.note(&json!("Error: no such file"));
        state.note(&json!({"fileState": {"path": "/a"}, "newTodos": "none"}));
        assert_eq!(state, ToolState::default(), "what is not understood is passed over");
        for (path, size) in [("/a", 1), ("/b", 2), ("/a", 3)] {
            state.note(&json!({"type": "text", "fileState": file(path, size)}));
        }
        let todo = Todo { content: "x".into(), status: TodoStatus::InProgress, active_form: "Doing x".into() };
        state.note(&json!({"oldTodos": [], "newTodos": [todo]}));
        assert_eq!(state.file("/a"), Some(&file("/a", 3)));
        assert_eq!(state.files(), [file("/b", 2), file("/a", 3)]);
        assert_eq!(state.todos, [todo]);
        let mut again = ToolState::default();
        again.restore(&state.files(), &state.todos);
        assert_eq!((again.files(), &again.todos), (state.files(), &state.todos));
        assert_eq!(
            serde_json::to_value(&state.todos[0]).unwrap(),
            json!({"content": "x", "status": "in_progress", "activeForm": "Doing x"})
        );
    }

    #[test]
    fn of_too_many_files_the_longest_unseen_are_forgotten() {
        let mut state = ToolState::default();
        for n in 0..FILES {
            state.see(file(&format!("/{n}"), 0));
        }
        state.see(file("/0", 1));
        assert_eq!(state.files().len(), FILES);
        state.see(file("/new", 1));
        assert_eq!(state.files().len(), FILES);
        assert!(state.file("/1").is_none() && state.file("/0").is_some() && state.file("/2").is_some());
    }
}
