//! Playbooks of whole teams: turns that hang on what was said, members that agree to end, and what a
//! team leaves behind.

use std::fs;

use serde_json::{Value, json};

use super::playbook::{Request, agent, call};
use super::wait::eventually;
use super::world::World;

/// A turn that is played once this was ever said to the agent.
pub fn once_told(pattern: &str, tools: &[Value]) -> Value {
    json!({"when": {"any": pattern}, "tools": tools})
}

/// A turn that is played each time this is the latest that was said.
pub fn whenever(pattern: &str, tools: &[Value]) -> Value {
    json!({"when": {"latest": pattern}, "tools": tools, "repeat": true})
}

/// A turn that ends a shutdown request with yes.
fn agrees() -> Value {
    let yes = json!({"type": "shutdown_response", "request_id": "{{capture.id}}", "approve": true});
    whenever(SHUTDOWN, &[say("team-lead", yes)])
}

/// What a shutdown request looks like.
pub const SHUTDOWN: &str = r#"shutdown-request request_id="(?P<id>[^"]+)""#;

/// A call of `SendMessage` with an object.
pub fn say(to: &str, message: Value) -> Value {
    call("SendMessage", json!({"to": to, "message": message}))
}

/// A member that is played so, and agrees to end whenever it is asked to.
pub fn member_rule(name: &str, turns: &[Value]) -> Value {
    let turns: Vec<Value> = turns.iter().cloned().chain([agrees()]).collect();
    agent(json!({"role": "^teammate$", "name": format!("^{name}$")}), &turns)
}

/// A call of `Agent` that adds a member.
pub fn add(name: &str, prompt: &str) -> Value {
    call("Agent", json!({"description": "Work in the team", "prompt": prompt, "name": name}))
}

/// A call of `TeamCreate`.
pub fn create_team(name: &str) -> Value {
    call("TeamCreate", json!({"team_name": name}))
}

/// The requests of one member.
pub fn of_member(requests: &[Request], name: &str) -> Vec<Request> {
    let is_it = |r: &&Request| r.0["caller"]["role"] == "teammate" && r.0["caller"]["name"] == name;
    requests.iter().filter(is_it).cloned().collect()
}

/// Waits until a member is in this state in the list of processes.
pub fn wait_member(world: &World, name: &str, state: &str) -> Value {
    eventually(&format!("{name} is {state}"), || {
        let rows = world.ps(&[]);
        match rows.iter().find(|row| row["name"] == name) {
            Some(row) if row["state"] == state => Ok(row.clone()),
            row => Err((row.cloned(), rows.len())),
        }
    })
}

/// Waits for a question about this tool at the desk; its id.
pub fn wait_question(world: &World, tool: &str) -> String {
    eventually(&format!("a question about {tool}"), || {
        let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
        let row = rows.as_array().into_iter().flatten().find(|row| row["tool"] == tool).cloned();
        row.map(|row| row["id"].as_str().unwrap().to_owned()).ok_or(rows)
    })
}

/// Fails if anything of a team is left in the config folder.
pub fn no_team_left(world: &World) {
    for folder in ["teams", "tasks", "lead/agents"] {
        let left: Vec<_> = fs::read_dir(world.config().join(folder)).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{folder} holds {left:?}");
    }
    world.assert_nothing_left();
}
