//! Agents that tests start by `lead spawn`.

use serde_json::Value;

use super::playbook::Book;
use super::run::{Done, Lead};
use super::world::World;

/// `lead spawn` of an agent to which everything is permitted; prints JSON.
pub fn spawning<'w>(world: &'w World, book: &Book, prompt: &str) -> Lead<'w> {
    world.lead(&["spawn", "--json", "--model", &book.model(), "--permission-mode", "bypassPermissions", prompt])
}

/// Starts one; what `lead spawn` printed.
pub fn spawned(world: &World, book: &Book, prompt: &str, args: &[&str]) -> Value {
    let done = spawning(world, book, prompt).args(args).run();
    done.expect(0).json()
}

/// A field of a row, as text.
pub fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_else(|| panic!("no {field}: {row:#}")).to_owned()
}

/// The pid in a row.
pub fn pid_of(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap_or_else(|| panic!("no pid: {row:#}"))).unwrap()
}

/// Goes on with a session; everything is permitted, the result comes as JSON.
pub fn resuming<'w>(world: &'w World, book: &Book, session: &str, prompt: Option<&str>) -> Lead<'w> {
    let lead = world.lead(&["-p", "--resume", session, "--model", &book.model(), "--output-format", "json"]);
    lead.args(&["--permission-mode", "bypassPermissions"]).args(prompt.as_slice())
}

/// The error object of a verb that was run with `--json`.
pub fn error_of(done: &Done) -> Value {
    let error = done.json()["error"].clone();
    assert!(error["code"].is_string() && error["message"].is_string(), "{done:#?}");
    error
}
