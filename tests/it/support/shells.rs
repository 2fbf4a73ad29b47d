//! Background shells: calls that start them, what transcripts and lists say of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::playbook::call;
use super::session::Note;
use super::wait::eventually;
use super::world::World;

/// Finds the id of the first shell that was started.
pub const SHELL: &str = "id: (?<shell>b-[0-9a-f]{8})";

/// A call of `Bash` in the background.
pub fn start(command: &str, description: &str) -> Value {
    call("Bash", json!({"command": command, "description": description, "run_in_background": true}))
}

/// A call of `TaskOutput`.
pub fn output_of(id: &str, more: Value) -> Value {
    let mut input = json!({"task_id": id});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    call("TaskOutput", input)
}

/// The shells that a transcript's calls started.
pub fn started(lines: &[Value]) -> Vec<String> {
    lines.iter().filter_map(|l| l["toolUseResult"]["backgroundTaskId"].as_str()).map(str::to_owned).collect()
}

/// How often the end of each shell was told.
pub fn told(lines: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().filter(|l| l["origin"]["kind"] == "task-notification") {
        if let Some(id) = line["origin"]["taskId"].as_str().filter(|id| id.starts_with("b-")) {
            *counts.entry(id.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Fails unless each shell that was started was told of once.
pub fn each_told_once(lines: &[Value]) {
    let expected: BTreeMap<String, usize> = started(lines).into_iter().map(|id| (id, 1)).collect();
    assert!(!expected.is_empty());
    assert_eq!(told(lines), expected);
}

/// The status and summary of each notification, in order.
pub fn ends(notes: &[Note]) -> Vec<(String, String)> {
    notes.iter().map(|n| (n.status(), n.get("summary"))).collect()
}

/// The rows of the running shells.
pub fn shells(world: &World) -> Vec<Value> {
    world.ps(&[]).into_iter().filter(|row| row["role"] == "shell").collect()
}

/// Waits for so many running shells; their rows.
pub fn wait_shells(world: &World, count: usize) -> Vec<Value> {
    eventually(&format!("{count} background shells"), || {
        let rows = shells(world);
        if rows.len() == count { Ok(rows) } else { Err(rows) }
    })
}

/// Waits until the only agent has answered and waits for its shells; its row.
pub fn wait_waiting(world: &World) -> Value {
    eventually("the agent waits for its shells", || {
        let rows = world.workers();
        let row = rows.first().cloned().unwrap_or_default();
        if row["state"] == "waiting" { Ok(row) } else { Err(rows) }
    })
}

/// Waits until the lead's latest call is one of `TaskOutput`.
pub fn wait_taskoutput(world: &World) {
    eventually("the lead waits for an output", || {
        let rows = world.ps(&[]);
        let lead = rows.iter().find(|r| r["role"] == "lead").cloned().unwrap_or_default();
        let last = lead["activity"].as_array().and_then(|a| a.last().cloned()).unwrap_or_default();
        if last["tool"] == "TaskOutput" { Ok(()) } else { Err(rows) }
    });
}
