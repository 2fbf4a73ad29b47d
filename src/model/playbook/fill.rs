//! Variables: `{{prompt}}`, `{{result.N}}` and the rest are replaced by what the conversation holds.
//! Text that was filled in is never looked at again, so what a tool printed can't name a variable.

use serde_json::Value;

use super::book::When;
use super::history::History;
use crate::core::message::text_of;

/// Fills templates for one turn.
pub(super) struct Filler<'a> {
    /// The conversation.
    pub history: &'a History<'a>,
    /// The condition under which the turn is played.
    pub when: &'a When,
    /// Variables that stand for nothing, in order of appearance.
    pub unmatched: Vec<String>,
}

impl Filler<'_> {
    /// `template` with its variables replaced; those that stand for nothing stay as written.
    pub fn text(&mut self, template: &str) -> String {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(start) = rest.find("{{") {
            out.push_str(&rest[..start]);
            let inside = &rest[start + 2..];
            let Some(name) = inside.find("}}").map(|end| &inside[..end]).filter(|name| is_name(name)) else {
                // Only the first brace is passed over: `{{{prompt}}` holds a variable.
                out.push('{');
                rest = &rest[start + 1..];
                continue;
            };
            match self.value(name.trim()) {
                Some(value) => out.push_str(&value),
                None => {
                    self.unmatched.push(name.trim().to_owned());
                    out.push_str(&rest[start..start + name.len() + 4]);
                }
            }
            rest = &inside[name.len() + 2..];
        }
        out.push_str(rest);
        out
    }

    /// `input` with the variables in all its strings replaced; keys stay.
    pub fn value_of(&mut self, input: &Value) -> Value {
        match input {
            Value::String(template) => Value::String(self.text(template)),
            Value::Array(items) => items.iter().map(|item| self.value_of(item)).collect(),
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), self.value_of(value))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        let parts: Vec<&str> = name.split('.').collect();
        match parts[..] {
            ["prompt"] => Some(self.history.prompt().to_owned()),
            ["result", n] => {
                let from_end = nth(n)?;
                self.history.results.iter().rev().nth(from_end).map(|content| text_of(content))
            }
            ["notification", n, field] => self.history.notifications.get(nth(n)?)?.field(field),
            ["mail", n, field] => self.history.mails.get(nth(n)?)?.field(field),
            ["agent", n] => self.history.agents.get(nth(n)?).cloned(),
            ["agent", n, field] => {
                let id = self.history.agents.get(nth(n)?)?;
                let mut latest_first = self.history.notifications.iter().rev();
                latest_first.find(|note| note.field("task_id").as_deref() == Some(id))?.field(field)
            }
            ["capture", group] => self.capture(group),
            _ => None,
        }
    }

    fn capture(&self, group: &str) -> Option<String> {
        let latest = self.when.latest.as_ref().and_then(|p| p.0.captures(self.history.latest()));
        let any = || {
            let pattern = self.when.any.as_ref()?;
            self.history.texts.iter().find_map(|text| pattern.0.captures(text))
        };
        let found = latest.and_then(|c| c.name(group).map(|m| m.as_str().to_owned()));
        found.or_else(|| any()?.name(group).map(|m| m.as_str().to_owned()))
    }
}

/// What may stand between the braces; anything else is text.
fn is_name(text: &str) -> bool {
    let name = text.trim_matches(' ');
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

/// `1` is the first: index 0.
fn nth(text: &str) -> Option<usize> {
    text.parse::<usize>().ok()?.checked_sub(1)
}
