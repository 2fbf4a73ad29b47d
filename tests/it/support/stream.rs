//! The lines of `--output-format stream-json`, and what holds for every stream.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::playbook::Book;
use super::run::Lead;
use super::session::Session;
use super::world::World;

/// A headless run whose output is a stream.
pub fn streaming<'w>(world: &'w World, book: &Book, prompt: &str) -> Lead<'w> {
    let args = ["-p", prompt, "--model", &book.model(), "--output-format", "stream-json"];
    world.lead(&args).args(&["--permission-mode", "bypassPermissions"])
}

/// The lines of a stream.
pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Whether it is a `system` line of this kind.
pub fn is(line: &Value, subtype: &str) -> bool {
    line["type"] == "system" && line["subtype"] == subtype
}

/// Fails unless the stream begins with an init and ends with its only result, which it returns.
pub fn check_ends(stream: &[Value]) -> &Value {
    assert!(is(&stream[0], "init"), "{:#}", stream[0]);
    let results = stream.iter().filter(|l| l["type"] == "result").count();
    assert_eq!(results, 1, "{stream:#?}");
    let last = stream.last().unwrap();
    assert_eq!(last["type"], "result", "{last:#}");
    for line in stream {
        assert_eq!(line.as_object().unwrap().keys().next().unwrap(), "type", "{line:#}");
        assert!(line["session_id"].is_string() && line["uuid"].is_string(), "{line:#}");
    }
    last
}

/// Fails unless each message of the transcripts, from line `from` of the main one on, is in the
/// stream once, marked with its agent.
pub fn check_whole(stream: &[Value], session: &Session, from: usize) {
    let is_message = |l: &&Value| l["type"] == "user" || l["type"] == "assistant";
    let mut expected = BTreeMap::new();
    let main = session.lines();
    for line in main[from..].iter().filter(is_message) {
        expected.insert(line["uuid"].to_string(), (Value::Null, Value::Null, line["message"].clone()));
    }
    for agent in session.agents() {
        for line in agent.lines().iter().filter(is_message) {
            let whose = (json!(agent.id), agent.meta["toolUseId"].clone(), line["message"].clone());
            expected.insert(line["uuid"].to_string(), whose);
        }
    }
    let mut seen = BTreeMap::new();
    for line in stream.iter().filter(is_message) {
        let whose = (line["agent_id"].clone(), line["parent_tool_use_id"].clone(), line["message"].clone());
        assert!(seen.insert(line["uuid"].to_string(), whose).is_none(), "told twice: {line:#}");
    }
    let missing: Vec<_> = expected.keys().filter(|uuid| !seen.contains_key(*uuid)).collect();
    assert!(missing.is_empty(), "{} of {} are missing", missing.len(), expected.len());
    assert_eq!(seen, expected);
}
