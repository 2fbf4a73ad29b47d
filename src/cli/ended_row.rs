//! A row of `lead wait` and `lead result` (formats A).

use serde::Serialize;

use crate::core::agent::{Denial, Meta, Outcome, RunUsage};
use crate::core::text;

/// Characters of a result in a line for people.
const SHORT: usize = 100;

/// How one agent ended, or why that can't be told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct EndedRow {
    /// The id, or what was asked for if that is nobody's.
    pub id: String,
    pub run: Option<u32>,
    /// `completed`, `failed`, `killed`; `running` when the time was over; `unknown`.
    pub status: String,
    pub result: Option<String>,
    pub error: Option<String>,
    pub exit: Option<i32>,
    pub signal: Option<String>,
    pub usage: Option<RunUsage>,
    pub worktree: Option<Worktree>,
    pub permission_denials: Vec<Denial>,
}

/// Where an isolated agent worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Worktree {
    path: String,
    branch: Option<String>,
}

impl EndedRow {
    /// Of an agent that has ended.
    pub(super) fn of(outcome: &Outcome, meta: Option<&Meta>) -> Self {
        let worktree =
            meta.and_then(|m| Some(Worktree { path: m.worktree_path.clone()?, branch: m.worktree_branch.clone() }));
        Self {
            id: outcome.agent_id.to_string(),
            run: Some(outcome.run),
            status: outcome.status.to_string(),
            result: outcome.result.clone(),
            error: outcome.error.clone(),
            exit: outcome.exit,
            signal: outcome.signal.clone(),
            usage: Some(outcome.usage),
            worktree,
            permission_denials: outcome.permission_denials.clone(),
        }
    }

    /// Of one that has not, or that nobody knows.
    pub(super) fn without_outcome(id: &str, status: &str, error: Option<String>) -> Self {
        Self {
            id: id.to_owned(),
            run: None,
            status: status.to_owned(),
            result: None,
            error,
            exit: None,
            signal: None,
            usage: None,
            worktree: None,
            permission_denials: Vec::new(),
        }
    }

    /// How it ended.
    pub(super) fn status(&self) -> &str {
        &self.status
    }

    /// On one line, for people.
    pub(super) fn line(&self) -> String {
        let said = match (self.status.as_str(), &self.error, &self.result) {
            ("completed", _, Some(result)) => text::one_line(result, SHORT),
            (_, Some(error), _) => text::one_line(error, SHORT),
            _ => String::new(),
        };
        format!("{}  {:9}  {said}", text::one_line(&self.id, 60), self.status).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn outcome(status: &str, error: Option<&str>) -> Outcome {
        serde_json::from_value(json!({
            "agentId": "a-1a2b3c4d5e6f7890", "run": 2, "status": status, "result": "first\u{1b}[2J\nsecond", "error": error,
        }))
        .unwrap()
    }

    #[test]
    fn a_row_has_every_field_and_says_null_for_what_is_absent() {
        let row = serde_json::to_value(EndedRow::of(&outcome("completed", None), None)).unwrap();
        let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "id run status result error exit signal usage worktree permission_denials";
        assert_eq!(keys, expected.split(' ').collect::<Vec<_>>());
        assert_eq!((&row["run"], &row["worktree"], &row["exit"]), (&json!(2), &Value::Null, &Value::Null));
        assert_eq!(row["usage"], json!({"total_tokens": 0, "tool_uses": 0, "duration_ms": 0}));
        let meta: Meta =
            serde_json::from_value(json!({"agentType": "x", "worktreePath": "/w", "worktreeBranch": "b"})).unwrap();
        let row = serde_json::to_value(EndedRow::of(&outcome("completed", None), Some(&meta))).unwrap();
        assert_eq!(row["worktree"], json!({"path": "/w", "branch": "b"}));
    }

    #[test]
    fn lines_are_safe_and_say_why_it_failed() {
        let line = EndedRow::of(&outcome("completed", None), None).line();
        assert_eq!(line, "a-1a2b3c4d5e6f7890  completed  first [2J second");
        let line = EndedRow::of(&outcome("failed", Some("its process was lost")), None).line();
        assert_eq!(line, "a-1a2b3c4d5e6f7890  failed     its process was lost");
    }
}
