//! A transcript as a list of events, one per thing that was said or done: what `lead logs` prints.
//! Pure.

use serde::Serialize;

use crate::core::entry::{Line, ORIGIN_NOTIFICATION, ORIGIN_PEER, Talk};
use crate::core::message::{Block, Known, Role, telling_input};
use crate::core::server_tool;
use crate::core::text;

/// Characters of what was said in an event's line.
const SHORT: usize = 160;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LogEvent {
    /// ISO 8601, or empty where the line has no time.
    pub time: String,
    /// `user`, `assistant`, `tool`, `agent`, or who sent a message.
    pub who: String,
    /// `prompt`, `message`, `notification`, `text`, `thinking`, `call`, `result`, `error`,
    /// `outcome`, `queued`, `mode`, `compacted`.
    pub what: &'static str,
    /// Name of the tool, of calls.
    pub tool: Option<String>,
    /// In short, on one line.
    pub text: String,
}

/// The events of one line; none for what is kept for other readers only.
pub(super) fn events_of(line: &Line) -> Vec<LogEvent> {
    let one = |time: &str, who: &str, what, text: &str| {
        vec![LogEvent {
            time: time.to_owned(),
            who: who.to_owned(),
            what,
            tool: None,
            text: text::one_line(text, SHORT),
        }]
    };
    match line {
        Line::Talk(talk) if talk.is_meta == Some(true) => Vec::new(),
        Line::Talk(talk) => talk.message.message.content.iter().filter_map(|block| of_block(talk, block)).collect(),
        Line::Outcome(outcome) => {
            let said = match (&outcome.error, &outcome.result) {
                (Some(error), _) => format!("{}: {error}", outcome.status),
                (None, Some(result)) => format!("{}: {result}", outcome.status),
                (None, None) => outcome.status.to_string(),
            };
            one(&outcome.timestamp, "agent", "outcome", &said)
        }
        Line::Enqueued(enqueued) => one(&enqueued.timestamp, &enqueued.from, "queued", &enqueued.content),
        Line::Mode(mode) => one("", "agent", "mode", &mode.mode),
        Line::Boundary(_) => one("", "agent", "compacted", "what came before was replaced by a summary"),
        Line::Switched(switch) => {
            one(&switch.timestamp, "agent", "model", &format!("{} goes on: {}", switch.to, switch.reason))
        }
        Line::Other => Vec::new(),
    }
}

fn of_block(talk: &Talk, block: &Block) -> Option<LogEvent> {
    let (what, tool, said) = match block {
        Block::Known(Known::Text { .. }) | Block::Other(_) if block.as_text().is_some() => {
            let text = block.as_text().unwrap_or_default();
            if text.trim().is_empty() {
                return None;
            }
            (what_of_text(talk), None, text.to_owned())
        }
        Block::Known(Known::Text { .. }) => return None,
        Block::Known(Known::ToolUse { name, input, .. }) => ("call", Some(name.clone()), telling_input(input)),
        Block::Known(Known::ToolResult { content, is_error, .. }) => {
            let what = if *is_error { "error" } else { "result" };
            (what, None, crate::core::message::text_of(content))
        }
        Block::Other(_) if block.is_thinking() => ("thinking", None, String::new()),
        Block::Other(value) if server_tool::use_id(block).is_some() => {
            let name = value["name"].as_str().unwrap_or_default();
            ("call", Some(name.to_owned()), telling_input(&value["input"]))
        }
        Block::Other(_) => return None,
    };
    let who = match (talk.kind, what) {
        (_, "result" | "error") => "tool",
        (Role::Assistant, _) => "assistant",
        (Role::User, _) => talk.from.as_deref().unwrap_or("user"),
    };
    Some(LogEvent {
        time: talk.timestamp.clone(),
        who: text::one_line(who, 60),
        what,
        tool: tool.map(|t| text::one_line(&t, 60)),
        text: text::one_line(&said, SHORT),
    })
}

fn what_of_text(talk: &Talk) -> &'static str {
    match (talk.kind, talk.origin.as_ref().map(|o| o.kind.as_str())) {
        (Role::Assistant, _) => "text",
        (Role::User, Some(ORIGIN_NOTIFICATION)) => "notification",
        (Role::User, Some(ORIGIN_PEER)) => "message",
        (Role::User, _) => "prompt",
    }
}

impl LogEvent {
    /// As a line for people: time to the second, who, what.
    pub(super) fn line(&self) -> String {
        let time = self.time.get(..19).map(|t| format!("{}Z  ", text::one_line(&t.replace('T', " "), 19)));
        let tool = self.tool.as_ref().map(|t| format!("{t} ")).unwrap_or_default();
        let line = format!("{}{}  {}  {tool}{}", time.unwrap_or_default(), self.who, self.what, self.text);
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::entry::parse_line;
    use serde_json::{Value, json};

    fn events(line: Value) -> Vec<LogEvent> {
        events_of(&parse_line(line.to_string().as_bytes()).unwrap())
    }

    fn lines(line: Value) -> Vec<String> {
        events(line).iter().map(LogEvent::line).collect()
    }

    fn talk(kind: &str, content: Value) -> Value {
        json!({"type": kind, "parentUuid": null, "uuid": "u", "timestamp": "2026-01-01T10:20:30.456Z",
            "message": {"role": kind, "content": content}})
    }

    #[test]
    fn each_thing_said_or_done_is_one_line() {
        assert_eq!(lines(talk("user", json!("find\nit"))), ["2026-01-01 10:20:30Z  user  prompt  find it"]);
        let reply = json!([
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "wc -l x", "description": "count"}},
        ]);
        let shown = lines(talk("assistant", reply));
        assert_eq!(shown.len(), 3);
        assert!(shown[1].ends_with("assistant  text  I look.") && shown[2].ends_with("assistant  call  Bash wc -l x"));
        let search = json!([
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tea"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "text", "text": "3 EUR", "citations": [{"url": "u"}]},
        ]);
        let shown = lines(talk("assistant", search));
        assert!(shown.len() == 2 && shown[0].ends_with("call  web_search tea") && shown[1].ends_with("text  3 EUR"));
        let answer = json!([{"type": "tool_result", "tool_use_id": "t", "content": "no such file", "is_error": true}]);
        assert!(lines(talk("user", answer))[0].ends_with("tool  error  no such file"));
        let end = json!({"type": "system", "subtype": "agent_outcome", "agentId": "a-1a2b3c4d5e6f7890", "run": 1,
            "status": "failed", "error": "lost", "timestamp": "2026-01-01T10:20:31.000Z"});
        assert_eq!(lines(end), ["2026-01-01 10:20:31Z  agent  outcome  failed: lost"]);
    }

    #[test]
    fn messages_and_notifications_say_from_whom() {
        let mut message = talk("user", json!("hello"));
        message["origin"] = json!({"kind": "peer"});
        message["from"] = json!("a-1a2b3c4d5e6f7890");
        assert!(lines(message)[0].ends_with("a-1a2b3c4d5e6f7890  message  hello"));
        let mut notice = talk("user", json!("<task-notification>"));
        notice["origin"] = json!({"kind": "task-notification", "taskId": "a", "run": 1});
        assert_eq!(events(notice)[0].what, "notification");
    }

    #[test]
    fn nothing_in_a_line_can_command_a_terminal_or_break_it() {
        let mut nasty = talk("user", json!(format!("a\u{1b}[2Jb\n{}", "x".repeat(10_000))));
        nasty["from"] = json!("me\u{7}\nyou");
        nasty["timestamp"] = json!("\u{1b}]0;t\u{7}2026-01-01T10:20:30.456Z");
        for line in lines(nasty) {
            assert!(!line.contains(['\u{1b}', '\u{7}', '\n']) && line.chars().count() < 300, "{line:?}");
        }
        assert!(events(json!({"type": "file-history-snapshot"})).is_empty());
        assert!(
            events(json!({"type": "user", "uuid": "u", "parentUuid": null, "isMeta": true,
            "message": {"role": "user", "content": "x"}}))
            .is_empty()
        );
    }
}
