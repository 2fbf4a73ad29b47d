//! For the tests of this folder: a conversation with a playbook, tool results made up.

use serde_json::json;

use super::book::Playbook;
use super::play::{Turn, play};
use super::strict::check_request;
use crate::core::message::{Block, Caller, Known, Message, Request, ToolSpec};

/// A conversation. Each request is checked as a strict provider would.
pub struct Conversation {
    pub request: Request,
}

impl Conversation {
    pub fn new(role: &str, agent_type: &str, tools: &[&str], prompt: &str) -> Self {
        let tool = |name: &&str| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        };
        let caller = Caller { role: role.into(), agent_type: agent_type.into(), name: String::new() };
        Self {
            request: Request {
                model: "playbook:test".into(),
                system: "be good".into(),
                messages: vec![Message::user(vec![Block::text(prompt)])],
                tools: tools.iter().map(tool).collect(),
                web_search: false,
                max_tokens: 100,
                caller,
            },
        }
    }

    pub fn lead(prompt: &str) -> Self {
        Self::new("lead", "main", &["Agent", "Bash"], prompt)
    }

    /// The next turn; its reply becomes part of the conversation.
    pub fn turn(&mut self, book: &Playbook) -> Turn {
        check_request(&self.request).unwrap_or_else(|e| panic!("{e}"));
        let turn = play(book, &self.request);
        if let Ok(reply) = &turn.answer {
            self.request.messages.push(Message::assistant(reply.content.clone()));
        }
        turn
    }

    /// The text of the next turn.
    pub fn text(&mut self, book: &Playbook) -> String {
        match self.turn(book).answer {
            Ok(reply) => crate::core::message::text_of(&reply.content),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// The person, or the lead, says something.
    pub fn say(&mut self, texts: &[&str]) {
        self.request.messages.push(Message::user(texts.iter().map(|t| Block::text(*t)).collect()));
    }

    /// The tool calls of the latest reply: id, name, input.
    pub fn calls(&self) -> Vec<(String, String, serde_json::Value)> {
        let content = self.request.messages.last().map(|m| m.content.clone()).unwrap_or_default();
        let call = |block| match block {
            Block::Known(Known::ToolUse { id, name, input }) => Some((id, name, input)),
            _ => None,
        };
        content.into_iter().filter_map(call).collect()
    }

    /// Answers the tool calls of the latest reply, in order, and says `texts` after that.
    pub fn answer(&mut self, results: &[&str], texts: &[&str]) {
        let calls = self.calls();
        assert_eq!(calls.len(), results.len(), "{calls:?}");
        let results = calls.iter().zip(results).map(|((id, ..), text)| Block::tool_result(id, *text, false));
        let content = results.chain(texts.iter().map(|t| Block::text(*t))).collect();
        self.request.messages.push(Message::user(content));
    }
}

/// A notification as leads write them.
pub fn notification(task_id: &str, status: &str, result: &str) -> String {
    let result = crate::core::text::escape(result);
    format!(
        "<task-notification>\n<task-id>{task_id}</task-id>\n<status>{status}</status>\n\
         <summary>Agent \"{task_id}\" {status}</summary>\n<result>{result}</result>\n</task-notification>"
    )
}

/// A playbook from YAML.
pub fn book(yaml: &str) -> Playbook {
    Playbook::parse(yaml, "test").unwrap_or_else(|e| panic!("{e}"))
}
