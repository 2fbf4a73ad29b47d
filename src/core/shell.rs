//! Background shells as transcripts and lists know them (spec 1.10, 2.2): which of them a conversation
//! still has to be told of, and what is shown of one that runs. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::entry::{ORIGIN_NOTIFICATION, Talk};
use super::ids::ShellId;
use super::message::{Block, Known};

/// Field of a tool's structured result: the background shell that the call started.
pub const STARTED_SHELL: &str = "backgroundTaskId";
/// Field of a tool's structured result: the folder in which the next shell command runs, if the call
/// changed it.
pub const SHELL_FOLDER: &str = "shellCwd";

/// A background shell that was started and whose end was not told, as the call's result records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenShell {
    /// The shell.
    pub id: ShellId,
    /// The call that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// What it does, on one line.
    #[serde(default)]
    pub description: String,
    /// The command.
    #[serde(default)]
    pub command: String,
    /// The file with its output.
    #[serde(default)]
    pub output_file: String,
}

impl OpenShell {
    /// The shell that the call answered by this line started. Other programs' ids don't count: theirs
    /// were reported in ways of their own.
    fn started_by(talk: &Talk) -> Option<Self> {
        let result = talk.tool_use_result.as_ref()?;
        let text = |field: &str| result.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let tool_use_id = talk.message.message.content.iter().find_map(|block| match block {
            Block::Known(Known::ToolResult { tool_use_id, .. }) => Some(tool_use_id.clone()),
            _ => None,
        });
        Some(Self {
            id: ShellId::parse(result.get(STARTED_SHELL)?.as_str()?)?,
            tool_use_id,
            description: text("description"),
            command: text("command"),
            output_file: text("outputFile"),
        })
    }
}

/// The shells that a conversation started and was not told the end of, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenShells(Vec<OpenShell>);

impl OpenShells {
    /// Takes in a line: the start of a shell, or the notification of its end.
    pub fn note(&mut self, talk: &Talk) {
        if let Some(shell) = OpenShell::started_by(talk) {
            self.insert(shell);
        }
        let told = talk.origin.as_ref().filter(|o| o.kind == ORIGIN_NOTIFICATION).and_then(|o| o.task_id.as_deref());
        if let Some(id) = told.and_then(ShellId::parse) {
            self.0.retain(|shell| shell.id != id);
        }
    }

    /// Takes in one that a compaction carried over.
    pub fn insert(&mut self, shell: OpenShell) {
        if self.0.iter().all(|known| known.id != shell.id) {
            self.0.push(shell);
        }
    }

    /// Oldest first.
    pub fn as_slice(&self) -> &[OpenShell] {
        &self.0
    }
}

/// Takes from a transcript line what [`OpenShells`] would know of a shell by it. For the copy of a
/// conversation: its shells run in the session that was copied, and are reported there.
pub fn disown(line: &mut Map<String, Value>) {
    if let Some(result) = line.get_mut("toolUseResult").and_then(Value::as_object_mut) {
        result.shift_remove(STARTED_SHELL);
    }
    if line.get("subtype").and_then(Value::as_str) == Some("compact_boundary") {
        line.shift_remove("shells");
    }
}

/// The folder in which the next shell command runs, if the call answered by this line changed it.
pub fn shell_folder(talk: &Talk) -> Option<&str> {
    talk.tool_use_result.as_ref()?.get(SHELL_FOLDER)?.as_str()
}

/// A background shell that runs, as its agent publishes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellState {
    /// The shell.
    pub id: ShellId,
    /// What it does, on one line.
    pub description: String,
    /// Its process.
    pub pid: i32,
    /// Milliseconds since the epoch.
    pub started_ms: u64,
    /// The folder it was started in.
    pub cwd: String,
    /// The file with its output.
    pub output_file: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::entry::{Line, parse_line};
    use serde_json::json;

    fn note(shells: &mut OpenShells, line: Value) {
        match parse_line(line.to_string().as_bytes()) {
            Ok(Line::Talk(talk)) => shells.note(&talk),
            other => panic!("{other:?}"),
        }
    }

    fn started(id: &str) -> Value {
        json!({"type": "user", "parentUuid": null, "uuid": "u", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("toolu_{id}"), "content": "started"}]},
            "toolUseResult": {"backgroundTaskId": id, "description": "Build", "outputFile": "/o", "command": "make"}})
    }

    fn told(id: &str) -> Value {
        json!({"type": "user", "parentUuid": null, "uuid": "u", "message": {"role": "user", "content": "ended"},
            "origin": {"kind": "task-notification", "taskId": id}})
    }

    #[test]
    fn a_shell_is_open_from_its_start_until_its_end_is_told() {
        let mut shells = OpenShells::default();
        for id in ["b-00000001", "b-00000002", "b-00000001"] {
            note(&mut shells, started(id));
        }
        let ids = |shells: &OpenShells| shells.as_slice().iter().map(|s| s.id.to_string()).collect::<Vec<_>>();
        assert_eq!(ids(&shells), ["b-00000001", "b-00000002"]);
        let first = &shells.as_slice()[0];
        assert_eq!(first.tool_use_id.as_deref(), Some("toolu_b-00000001"));
        assert_eq!((first.description.as_str(), first.output_file.as_str()), ("Build", "/o"));
        note(&mut shells, told("b-00000001"));
        note(&mut shells, told("a-1a2b3c4d5e6f7890"));
        assert_eq!(ids(&shells), ["b-00000002"]);
    }

    #[test]
    fn what_other_programs_started_is_not_ours_to_report() {
        let mut shells = OpenShells::default();
        note(&mut shells, started("bz3k9x0q1"));
        assert!(shells.as_slice().is_empty());
    }
}
