//! Playbooks made by tests, and what the processes that play them were asked.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::session::{Note, notes_of, text_of};
use super::world::World;

/// A playbook file that records every request.
pub struct Book {
    path: PathBuf,
    record: PathBuf,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Writes a playbook of these agents.
pub fn book(world: &World, agents: &[Value]) -> Book {
    Book::write(world, &json!({ "agents": agents }).to_string())
}

impl Book {
    /// From YAML with a top-level `agents`, such as the files of `tests/support`; `names` are
    /// replaced by `values`.
    pub fn yaml(world: &World, text: &str, names: &[(&str, &str)]) -> Self {
        let text = names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        let book = Self::path(world);
        fs::write(&book.path, format!("record: {}\n{text}", book.record.display())).unwrap();
        book
    }

    fn path(world: &World) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = world.root().join("books");
        Self { path: folder.join(format!("{number}.yaml")), record: folder.join(format!("{number}.record.jsonl")) }
    }

    fn write(world: &World, json: &str) -> Self {
        let book = Self::path(world);
        let record = json!(book.record);
        let text = format!("{{\"record\": {record}, {}", &json[1..]);
        // JSON is YAML but for characters that YAML wants escaped.
        let plain = |c: char| {
            !matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
        };
        let escape = |c: char| if plain(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
        fs::write(&book.path, text.chars().map(escape).collect::<String>()).unwrap();
        book
    }

    /// What `--model` is given.
    pub fn model(&self) -> String {
        format!("playbook:{}", self.path.display())
    }

    /// Its file.
    pub fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        text.lines().map(|line| Request(serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))).collect()
    }

    /// Those of one role.
    pub fn of(&self, role: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|r| r.0["caller"]["role"] == role).collect()
    }

    /// The latest of the lead.
    pub fn last(&self) -> Request {
        self.of("lead").pop().unwrap_or_else(|| panic!("the lead asked nothing"))
    }

    /// Those of the agent whose first message holds `prompt`.
    pub fn asked(&self, prompt: &str) -> Vec<Request> {
        self.of("worker").into_iter().filter(|r| r.prompt().contains(prompt)).collect()
    }
}

/// One request to the model.
#[derive(Clone, Debug)]
pub struct Request(pub Value);

impl Request {
    /// The messages.
    pub fn messages(&self) -> &[Value] {
        self.0["messages"].as_array().unwrap()
    }

    /// Text of the first message.
    pub fn prompt(&self) -> String {
        self.messages().first().map(|m| text_of(&m["content"])).unwrap_or_default()
    }

    /// Text of the last message, tool results included.
    pub fn latest(&self) -> String {
        self.messages().last().map(|m| text_of(&m["content"])).unwrap_or_default()
    }

    /// Text of all messages.
    pub fn all(&self) -> String {
        self.messages().iter().map(|m| text_of(&m["content"])).collect::<Vec<_>>().join("\n")
    }

    /// The notifications in it.
    pub fn notes(&self) -> Vec<Note> {
        notes_of(self.messages())
    }

    /// The results of tools in it, in order: their text, and whether they are errors.
    pub fn results(&self) -> Vec<(String, bool)> {
        let blocks = self.messages().iter().flat_map(|m| m["content"].as_array().into_iter().flatten());
        let results = blocks.filter(|b| b["type"] == "tool_result");
        results.map(|b| (text_of(&b["content"]), b["is_error"] == true)).collect()
    }

    /// The process that asked.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0["pid"].as_i64().unwrap()).unwrap()
    }

    /// Names of the tools offered.
    pub fn tools(&self) -> Vec<&str> {
        self.0["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// How one kind of agent is played.
pub fn agent(matches: Value, turns: &[Value]) -> Value {
    json!({"match": matches, "turns": turns})
}

/// How leads are played.
pub fn lead_rule(turns: &[Value]) -> Value {
    agent(json!({"role": "^lead$"}), turns)
}

/// How workers are played whose prompt holds this.
pub fn worker_rule(prompt: &str, turns: &[Value]) -> Value {
    agent(json!({"role": "^worker$", "prompt": prompt}), turns)
}

/// A turn: what is said, and the tools called after it.
pub fn turn(text: &str, tools: &[Value]) -> Value {
    let mut turn = json!({"tools": tools});
    if !text.is_empty() {
        turn["text"] = json!(text);
    }
    turn
}

/// A call of a tool.
pub fn call(name: &str, input: Value) -> Value {
    json!({"name": name, "input": input})
}

/// A call of `Bash`.
pub fn bash(command: &str) -> Value {
    call("Bash", json!({"command": command, "description": "Run a step"}))
}

/// A call of `Agent` in the background.
pub fn spawn(description: &str, prompt: &str) -> Value {
    call("Agent", json!({"description": description, "prompt": prompt, "run_in_background": true}))
}

/// A call of `Agent` that waits for the answer.
pub fn ask(description: &str, prompt: &str) -> Value {
    call("Agent", json!({"description": description, "prompt": prompt}))
}

/// A call of `SendMessage`.
pub fn tell(to: &str, message: &str) -> Value {
    call("SendMessage", json!({"to": to, "message": message, "summary": "Words for another agent"}))
}

/// A call of `TaskStop`.
pub fn stop(id: &str) -> Value {
    call("TaskStop", json!({"task_id": id}))
}
