//! `TodoWrite`: the agent's own list of things to do. It is kept in its transcript and nowhere else.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;
use crate::core::tool_state::{Todo, TodoStatus};

/// Most items of a list.
const ITEMS: usize = 1000;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct TodoWrite;

impl Tool for TodoWrite {
    fn spec(&self) -> ToolSpec {
        let text = |about: &str| json!({"type": "string", "minLength": 1, "description": about});
        ToolSpec {
            name: "TodoWrite".to_owned(),
            description: "Keeps your list of things to do, for work of several steps. Each call gives the whole list, \
                          which takes the place of the one before. Keep one item in_progress at a time, and mark an \
                          item completed as soon as it is, never before."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "content": text("What is to be done: Run the tests"),
                                "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                                "activeForm": text("What is said while it is being done: Running the tests")
                            },
                            "required": ["content", "status", "activeForm"],
                            "additionalProperties": false
                        }
                    }
                },
                "required": ["todos"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    /// What is in progress by then: so lists of agents say what each is at.
    fn describe(&self, input: &Value) -> Activity {
        let todos = parse(input).unwrap_or_default();
        let current = todos.iter().find(|todo| todo.status == TodoStatus::InProgress);
        Activity {
            tool: "TodoWrite".to_owned(),
            description: current.map_or("Plan".to_owned(), |todo| one_line(&todo.active_form, 80)),
            is_search: false,
            is_read: false,
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match parse(input) {
                Err(why) => ToolOutput::error(why),
                Ok(new) => {
                    let old = std::mem::replace(&mut context.state().todos, new.clone());
                    ToolOutput::ok(told(&old, &new)).with(json!({"oldTodos": old, "newTodos": new}))
                }
            }
        })
    }
}

fn parse(input: &Value) -> Result<Vec<Todo>, String> {
    let items = Arguments::new(input, &["todos"])?.list("todos")?;
    if items.len() > ITEMS {
        return Err(format!("`todos` has {} items, the most are {ITEMS}", items.len()));
    }
    items.iter().enumerate().map(|(at, item)| todo(at, item)).collect()
}

fn todo(at: usize, item: &Value) -> Result<Todo, String> {
    let Some(fields) = item.as_object() else {
        return Err(format!("todos[{at}] is {item}, expected an object with content, status and activeForm"));
    };
    let text = |field: &str| match fields.get(field) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        None | Some(Value::Null) => Err(format!("todos[{at}].{field} is missing")),
        Some(other) => Err(format!("todos[{at}].{field} is {other}, expected a string that is not empty")),
    };
    let status = match text("status")?.as_str() {
        "pending" => TodoStatus::Pending,
        "in_progress" => TodoStatus::InProgress,
        "completed" => TodoStatus::Completed,
        other => {
            return Err(format!("todos[{at}].status is {other:?}; one of pending, in_progress, completed is expected"));
        }
    };
    Ok(Todo { content: text("content")?, status, active_form: text("activeForm")? })
}

fn word(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Pending => "pending",
        TodoStatus::InProgress => "in progress",
        TodoStatus::Completed => "completed",
    }
}

/// How many items there are and what is different from before.
fn told(old: &[Todo], new: &[Todo]) -> String {
    let count = |status| new.iter().filter(|todo| todo.status == status).count();
    let running = count(TodoStatus::InProgress);
    let mut text = format!(
        "{} todos: {} completed, {running} in progress, {} pending.",
        new.len(),
        count(TodoStatus::Completed),
        count(TodoStatus::Pending)
    );
    let name = |todo: &Todo| one_line(&todo.content, 100);
    let mut left: Vec<&Todo> = old.iter().collect();
    let mut changes = Vec::new();
    for todo in new {
        match left.iter().position(|before| before.content == todo.content).map(|at| left.remove(at)) {
            None => changes.push(format!("added ({}): {}", word(todo.status), name(todo))),
            Some(before) if before.status != todo.status => {
                changes.push(format!("{} -> {}: {}", word(before.status), word(todo.status), name(todo)));
            }
            Some(_) => {}
        }
    }
    changes.extend(left.into_iter().map(|todo| format!("removed ({}): {}", word(todo.status), name(todo))));
    if changes.is_empty() {
        changes.push("nothing is different from before".to_owned());
    }
    for change in changes {
        text.push_str("\n- ");
        text.push_str(&change);
    }
    if running > 1 {
        text.push_str(&format!(
            "\n[{running} are in progress at a time; one is better, so that it is clear where you are]"
        ));
    }
    text
}

#[cfg(test)]
#[path = "todo_tests.rs"]
mod tests;
