//! What a conversation holds so far, as conditions and variables ask for it. Messages are taken in
//! one by one, so that replaying a history of any length passes over it once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::core::message::{Block, Known, Message, Role, text_of};
use crate::core::text;

const OPEN: &str = "<task-notification>";
const CLOSE: &str = "</task-notification>";
const MAIL: &str = "<teammate-message ";
const MAIL_END: &str = "\n</teammate-message>";

/// The conversation up to some message.
#[derive(Default)]
pub(super) struct History<'a> {
    /// Text of each user message, tool results included, in order.
    pub texts: Vec<String>,
    /// The tool results, in order.
    pub results: Vec<&'a [Block]>,
    /// The notifications, in order of arrival.
    pub notifications: Vec<Notification<'a>>,
    /// What members of a team wrote, in order of arrival.
    pub mails: Vec<Mail<'a>>,
    /// Ids of the agents launched, in the order of the calls' results.
    pub agents: Vec<String>,
    /// Tool names by id of the use.
    tools: HashMap<&'a str, &'a str>,
}

impl<'a> History<'a> {
    /// Takes in the next message.
    pub fn take(&mut self, message: &'a Message) {
        match message.role {
            Role::Assistant => self.take_uses(message),
            Role::User => self.take_user(message),
        }
    }

    /// Text of the latest user message.
    pub fn latest(&self) -> &str {
        self.texts.last().map_or("", String::as_str)
    }

    /// Text of the first user message.
    pub fn prompt(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    fn take_uses(&mut self, message: &'a Message) {
        for block in &message.content {
            if let Block::Known(Known::ToolUse { id, name, .. }) = block {
                self.tools.insert(id, name);
            }
        }
    }

    fn take_user(&mut self, message: &'a Message) {
        let mut parts: Vec<Cow<'a, str>> = Vec::new();
        for block in &message.content {
            match block {
                Block::Known(Known::Text { text }) => {
                    self.take_notifications(text);
                    self.take_mails(text);
                    parts.push(Cow::Borrowed(text));
                }
                Block::Known(Known::ToolResult { tool_use_id, content, is_error }) => {
                    let text = text_of(content);
                    let launch = self.tools.get(tool_use_id.as_str()) == Some(&"Agent") && !is_error;
                    if let Some(id) = launch.then(|| last_agent_id(&text)).flatten()
                        && !self.agents.contains(&id)
                    {
                        self.agents.push(id);
                    }
                    self.results.push(content);
                    parts.push(Cow::Owned(text));
                }
                Block::Known(Known::ToolUse { .. }) | Block::Other(_) => {}
            }
        }
        self.texts.push(parts.join("\n"));
    }

    fn take_notifications(&mut self, mut text: &'a str) {
        while let Some(end) = text.find(CLOSE) {
            // The innermost opening tag: prose before a notification may name the tag.
            if let Some(start) = text[..end].rfind(OPEN) {
                let body = Notification(&text[start + OPEN.len()..end]);
                if body.has("task-id") {
                    self.notifications.push(body);
                }
            }
            text = &text[end + CLOSE.len()..];
        }
    }

    /// What is said is escaped, so the first closing tag is the mail's own.
    fn take_mails(&mut self, mut text: &'a str) {
        while let Some((_, rest)) = text.split_once(MAIL) {
            if let Some((attributes, body)) = rest.split_once(">\n")
                && let Some((said, after)) = body.split_once(MAIL_END)
            {
                self.mails.push(Mail { attributes, said });
                text = after;
            } else {
                text = rest;
            }
        }
    }
}

/// A `<teammate-message>`: its attributes, and what it says, both as shown.
#[derive(Clone, Copy)]
pub(super) struct Mail<'a> {
    attributes: &'a str,
    said: &'a str,
}

impl Mail<'_> {
    /// `from`, `summary` or `text`, as it was sent; empty if this mail has none.
    pub fn field(self, name: &str) -> Option<String> {
        let shown = match name {
            "text" => self.said,
            "from" => self.attribute("teammate_id"),
            "summary" => self.attribute("summary"),
            _ => return None,
        };
        Some(text::unescape(shown))
    }

    fn attribute(&self, name: &str) -> &str {
        let after = self.attributes.split_once(&format!("{name}=\"")).map_or("", |(_, rest)| rest);
        after.split('"').next().unwrap_or("")
    }
}

/// The body of a `<task-notification>`.
#[derive(Clone, Copy)]
pub(super) struct Notification<'a>(&'a str);

impl<'a> Notification<'a> {
    /// A field by the name variables use; `None` if there is no such field, empty if this
    /// notification has none.
    pub fn field(self, name: &str) -> Option<String> {
        let tag = match name {
            "task_id" => "task-id",
            "tool_use_id" => "tool-use-id",
            "output_file" => "output-file",
            "status" => "status",
            "summary" => "summary",
            "result" => "result",
            "usage" => "usage",
            "worktree" => "worktree",
            _ => return None,
        };
        Some(text::unescape(self.inside(tag).unwrap_or("")))
    }

    fn has(self, tag: &str) -> bool {
        self.inside(tag).is_some()
    }

    fn inside(self, tag: &str) -> Option<&'a str> {
        let start = self.0.find(&format!("<{tag}>"))? + tag.len() + 2;
        let end = self.0[start..].find(&format!("</{tag}>"))?;
        Some(&self.0[start..start + end])
    }
}

/// The last agent id in the result of an `Agent` call: a foreground call's answer may name any ids,
/// and ends with a trailer that names the agent's own.
fn last_agent_id(text: &str) -> Option<String> {
    static ID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\ba-[0-9a-f]{16}\b").ok());
    ID.as_ref()?.find_iter(text).last().map(|m| m.as_str().to_owned())
}
