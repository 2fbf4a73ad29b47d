//! A session's files, as a reader of another program would see them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The lines of a transcript; fails at one that is no JSON.
pub fn lines_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {line}", path.display())))
        .collect()
}

/// The text of a message's content, tool results included.
pub fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let of = |block: &Value| match block["type"].as_str() {
                Some("text") => block["text"].as_str().unwrap_or_default().to_owned(),
                Some("tool_result") => text_of(&block["content"]),
                _ => String::new(),
            };
            blocks.iter().map(of).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A notification as the model sees it.
#[derive(Clone, Debug)]
pub struct Note {
    /// The whole text.
    pub text: String,
}

impl Note {
    /// What stands in this tag, unescaped.
    pub fn get(&self, tag: &str) -> String {
        let inside =
            self.text.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
        lead::core::text::unescape(inside.map_or("", |(inside, _)| inside))
    }

    /// Its status.
    pub fn status(&self) -> String {
        self.get("status")
    }
}

/// The notifications in messages: text blocks of the user that begin with the tag.
pub fn notes_of(messages: &[Value]) -> Vec<Note> {
    let blocks = messages.iter().filter(|m| m["role"] == "user");
    let blocks = blocks.flat_map(|m| m["content"].as_array().into_iter().flatten());
    let texts = blocks.filter(|b| b["type"] == "text").filter_map(|b| b["text"].as_str());
    texts.filter(|t| t.starts_with("<task-notification>")).map(|t| Note { text: t.to_owned() }).collect()
}

/// Fails unless each tool use of `messages` is answered in the message after it, once.
pub fn paired(messages: &[Value]) {
    let ids = |message: &Value, kind: &str, field: &str| -> Vec<String> {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.filter(|b| b["type"] == kind).filter_map(|b| b[field].as_str().map(str::to_owned)).collect()
    };
    for (at, message) in messages.iter().enumerate() {
        let used = ids(message, "tool_use", "id");
        if used.is_empty() {
            continue;
        }
        let next = messages.get(at + 1).unwrap_or_else(|| panic!("nothing answers {used:?}"));
        let mut answered = ids(next, "tool_result", "tool_use_id");
        let mut used = used;
        used.sort();
        answered.sort();
        assert_eq!(used, answered, "message {at} and the next");
    }
}

/// The conversation that a transcript's lines hold, as a model is sent it: lines of one speaker that
/// follow each other are one message.
fn conversation(lines: &[Value]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for line in lines.iter().filter(|l| l["type"] == "user" || l["type"] == "assistant") {
        let message = &line["message"];
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        match messages.last_mut().filter(|last| last["role"] == message["role"]) {
            Some(last) => last["content"].as_array_mut().unwrap().extend(blocks),
            None => messages.push(serde_json::json!({"role": message["role"], "content": blocks})),
        }
    }
    messages
}

/// One agent of a session.
#[derive(Clone, Debug)]
pub struct AgentFiles {
    /// `a-…`.
    pub id: String,
    /// Its transcript.
    pub path: PathBuf,
    /// Its launch facts.
    pub meta: Value,
}

impl AgentFiles {
    /// Its transcript's lines; none if there is no transcript.
    pub fn lines(&self) -> Vec<Value> {
        if self.path.exists() { lines_of(&self.path) } else { Vec::new() }
    }

    /// The outcomes, one per run.
    pub fn outcomes(&self) -> Vec<Value> {
        self.lines().into_iter().filter(|l| l["subtype"] == "agent_outcome").collect()
    }

    /// The only outcome.
    pub fn outcome(&self) -> Value {
        let mut outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1, "outcomes of {}: {outcomes:#?}", self.id);
        outcomes.remove(0)
    }

    /// The user lines that are no tool results.
    pub fn said(&self) -> Vec<Value> {
        let is_result = |l: &Value| {
            let blocks = l["message"]["content"].as_array();
            blocks.is_some_and(|b| b.iter().any(|b| b["type"] == "tool_result"))
        };
        self.lines().into_iter().filter(|l| l["type"] == "user" && !is_result(l)).collect()
    }

    /// The number of tool results.
    pub fn results(&self) -> usize {
        let lines = self.lines();
        let blocks = lines.iter().flat_map(|l| l["message"]["content"].as_array().into_iter().flatten());
        blocks.filter(|b| b["type"] == "tool_result").count()
    }
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its transcript.
    pub path: PathBuf,
}

impl Session {
    pub(super) fn find(config: &Path, id: &str) -> Option<Self> {
        let projects = fs::read_dir(config.join("projects")).ok()?.flatten();
        let path = projects.map(|p| p.path().join(format!("{id}.jsonl"))).find(|p| p.exists())?;
        Some(Self { path })
    }

    /// The lines of the main transcript.
    pub fn lines(&self) -> Vec<Value> {
        lines_of(&self.path)
    }

    /// Fails unless each tool use of each transcript is answered, once.
    pub fn paired(&self) {
        paired(&conversation(&self.lines()));
        self.agents().iter().for_each(|agent| paired(&conversation(&agent.lines())));
    }

    /// Its agents, in the order of their start.
    pub fn agents(&self) -> Vec<AgentFiles> {
        let folder = self.path.with_extension("").join("subagents");
        let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
        let metas = files.filter(|p| p.to_str().is_some_and(|p| p.ends_with(".meta.json")));
        let mut agents: Vec<AgentFiles> = metas
            .map(|path| {
                let stem = path.file_name().unwrap().to_str().unwrap().strip_suffix(".meta.json").unwrap().to_owned();
                let hex = stem.strip_prefix("agent-a").unwrap();
                let meta = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                AgentFiles { id: format!("a-{hex}"), path: folder.join(format!("{stem}.jsonl")), meta }
            })
            .collect();
        agents.sort_by_key(|a| (a.meta["createdAt"].as_u64(), a.id.clone()));
        agents
    }

    /// The agent of this description.
    pub fn agent(&self, description: &str) -> AgentFiles {
        let agents = self.agents();
        let found = agents.iter().find(|a| a.meta["description"] == description);
        found.unwrap_or_else(|| panic!("no agent {description:?} in {agents:#?}")).clone()
    }

    /// How often each outcome was consumed: notifications and synchronous answers, by agent and run.
    pub fn consumed(&self) -> BTreeMap<(String, u64), usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines() {
            let (origin, answer) = (&line["origin"], &line["toolUseResult"]);
            let key = if origin["kind"] == "task-notification" {
                (origin["taskId"].as_str(), origin["run"].as_u64())
            } else {
                (answer["agentId"].as_str(), answer["run"].as_u64())
            };
            if let (Some(id), Some(run)) = key {
                *counts.entry((id.to_owned(), run)).or_default() += 1;
            }
        }
        counts
    }

    /// Fails unless each run of each agent left one outcome, and each outcome was consumed once.
    pub fn check(&self) {
        let mut outcomes = BTreeSet::new();
        for agent in self.agents() {
            for outcome in agent.outcomes() {
                let run = outcome["run"].as_u64().unwrap();
                assert!(outcomes.insert((agent.id.clone(), run)), "two outcomes of run {run} of {}", agent.id);
            }
            let runs: BTreeSet<u64> = agent.lines().iter().filter_map(|l| l["run"].as_u64()).collect();
            let ended: BTreeSet<u64> = outcomes.iter().filter(|(id, _)| *id == agent.id).map(|(_, run)| *run).collect();
            assert_eq!(runs, ended, "runs of {} and their outcomes", agent.id);
        }
        let consumed = self.consumed();
        let expected: BTreeMap<(String, u64), usize> = outcomes.into_iter().map(|key| (key, 1)).collect();
        assert_eq!(consumed, expected, "how often outcomes were consumed, and how often they should have been");
    }
}
