//! `TaskOutput`: what an agent or a background shell has come to (spec 2.5). Here are its schema and
//! what it shows of a file; the main loop knows the tasks and waits for them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::limits::TOOL_OUTPUT_CHARS;
use crate::core::message::ToolSpec;
use crate::core::text;

/// How long a call waits that does not say, milliseconds.
const DEFAULT_TIMEOUT_MS: usize = 30_000;
/// The longest a call may wait, milliseconds.
const MAX_TIMEOUT_MS: usize = 600_000;

/// Input of `TaskOutput`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOutputInput {
    /// Id of a background shell; id or name of an agent.
    pub task_id: String,
    /// How long to wait for its end; zero = not at all.
    pub wait: Duration,
}

impl TaskOutputInput {
    /// Reads the input; the error says what is wrong in words for the model.
    pub fn parse(input: &Value) -> Result<Self, String> {
        let read = || {
            let arguments = Arguments::new(input, &["task_id", "block", "timeout"])?;
            let task_id = arguments.required("task_id")?.trim().to_owned();
            let block = arguments.flag("block")?.unwrap_or(true);
            let timeout = arguments.count("timeout")?.unwrap_or(DEFAULT_TIMEOUT_MS);
            if timeout > MAX_TIMEOUT_MS {
                return Err(format!("`timeout` is {timeout}, expected milliseconds from 0 to {MAX_TIMEOUT_MS}"));
            }
            let wait = Duration::from_millis(if block { timeout as u64 } else { 0 });
            Ok(Self { task_id, wait })
        };
        read().map_err(|e: String| format!("the input of TaskOutput can't be used: {e}"))
    }
}

/// Shows what an agent or a background shell has come to.
pub struct TaskOutputTool;

impl Tool for TaskOutputTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "TaskOutput".to_owned(),
            description: format!(
                "Shows the state and the output so far of an agent or a background command. With block (the default) \
it waits until the task has ended or the time is up. Of long output the last {TOOL_OUTPUT_CHARS} characters are shown. \
The <task-notification> of its end comes all the same, so there is no need to ask for that alone."
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "task_id": {"type": "string", "description": "Id of the agent or background command"},
                    "block": {"type": "boolean", "default": true, "description": "Wait for its end"},
                    "timeout": {
                        "type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_MS, "default": DEFAULT_TIMEOUT_MS,
                        "description": "The longest to wait, in milliseconds",
                    },
                },
                "required": ["task_id"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn describe(&self, input: &Value) -> Activity {
        let description = input["task_id"].as_str().map(|id| text::one_line(id, 80)).unwrap_or_default();
        Activity { tool: "TaskOutput".to_owned(), description, is_search: false, is_read: true }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        context.agents.call("TaskOutput", &context.tool_use_id, input, &context.cancel)
    }
}

/// The end of a file of output, at most [`TOOL_OUTPUT_CHARS`] characters; what is left out is said in
/// front of it. Blocks.
///
/// # Errors
/// If the file can't be read.
pub fn output_tail(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    // Enough for that many characters of four bytes and the rest of one that is cut.
    let start = len.saturating_sub(4 * (TOOL_OUTPUT_CHARS as u64 + 1));
    let mut bytes = vec![0; usize::try_from(len - start).unwrap_or(usize::MAX)];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], start + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(got);
    let all = String::from_utf8_lossy(&bytes);
    let left_out = all.chars().count().saturating_sub(TOOL_OUTPUT_CHARS);
    if start == 0 && left_out == 0 {
        return Ok(all.into_owned());
    }
    let tail: String = all.chars().skip(left_out).collect();
    Ok(format!(
        "[cut: the last {TOOL_OUTPUT_CHARS} characters of {len} bytes are shown; the whole is in {}]\n{tail}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_has_defaults_and_limits() {
        let parse = |input: Value| TaskOutputInput::parse(&input).map(|i| i.wait.as_millis());
        assert_eq!(parse(json!({"task_id": "b-1"})), Ok(30_000));
        assert_eq!(parse(json!({"task_id": "b-1", "block": false, "timeout": 5})), Ok(0));
        assert_eq!(parse(json!({"task_id": "b-1", "block": "true", "timeout": 600_000})), Ok(600_000));
        for (bad, part) in [
            (json!({}), "task_id"),
            (json!({"task_id": "b-1", "timeout": 600_001}), "600000"),
            (json!({"task_id": "b-1", "timeout": -1}), "timeout"),
            (json!({"task_id": "b-1", "block": 7}), "block"),
            (json!({"task_id": "b-1", "wait": 7}), "wait"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_end_of_long_output_is_shown_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o");
        let tail = |content: &str| {
            std::fs::write(&path, content).unwrap();
            output_tail(&path).unwrap()
        };
        for character in ["x", "\u{1F600}"] {
            let exact = character.repeat(TOOL_OUTPUT_CHARS);
            assert_eq!(tail(&exact), exact);
            let over = tail(&format!("a{exact}"));
            let (notice, shown) = over.split_once('\n').unwrap();
            assert!(notice.contains(path.to_str().unwrap()) && notice.contains("30000"), "{notice}");
            assert_eq!(shown, exact);
            let far_over = tail(&format!("{}{exact}", "ab".repeat(100_000)));
            assert!(far_over.ends_with(&format!("]\n{exact}")), "a character that is cut is not shown");
        }
        assert!(output_tail(&dir.path().join("none")).is_err());
    }
}
