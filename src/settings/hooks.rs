//! The key `hooks` of settings: `{"Event": [{"matcher": "…", "hooks": [{"type": "command", "command": "…",
//! "timeout": seconds}]}]}`, as other programs write it. What can't be used is told and passed over: one slip
//! in a file that several programs share must not stop a session. Events of other programs are theirs.

use regex::Regex;
use serde_json::Value;

use super::reader::{Wrong, describe};
use crate::core::hook::{Hook, HookEvent};

/// The hooks of one layer, and what is wrong with it.
pub(super) fn read(settings: &Value) -> (Vec<Hook>, Vec<Wrong>) {
    let mut found = Found::default();
    match &settings["hooks"] {
        Value::Null => {}
        Value::Object(events) => {
            for event in HookEvent::ALL {
                if let Some(groups) = events.get(event.as_str()).filter(|groups| !groups.is_null()) {
                    let place = format!("hooks.{}", event.as_str());
                    found.each(groups, &place, |found, group, place| found.group(event, group, place));
                }
            }
        }
        other => found.wrong("hooks", other, "an object"),
    }
    (found.hooks, found.wrong)
}

#[derive(Default)]
struct Found {
    hooks: Vec<Hook>,
    wrong: Vec<Wrong>,
}

impl Found {
    fn wrong(&mut self, key: &str, found: &Value, expected: &'static str) {
        let found = if found.is_null() { "missing".to_owned() } else { describe(found) };
        self.wrong.push(Wrong { key: key.to_owned(), found, expected });
    }

    fn each(&mut self, list: &Value, place: &str, mut take: impl FnMut(&mut Self, &Value, &str)) {
        match list {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    take(self, item, &format!("{place}[{at}]"));
                }
            }
            other => self.wrong(place, other, "a list"),
        }
    }

    fn group(&mut self, event: HookEvent, group: &Value, place: &str) {
        if !group.is_object() {
            return self.wrong(place, group, "an object with the list `hooks`");
        }
        let matcher = match &group["matcher"] {
            Value::Null => None,
            Value::String(text) if text.is_empty() || text == "*" => None,
            Value::String(text) if whole(text).is_some() => Some(text.clone()),
            other => return self.wrong(&format!("{place}.matcher"), other, "a regular expression"),
        };
        self.each(&group["hooks"], &format!("{place}.hooks"), |found, hook, place| {
            found.hook(event, matcher.as_deref(), hook, place);
        });
    }

    fn hook(&mut self, event: HookEvent, matcher: Option<&str>, hook: &Value, place: &str) {
        if hook["type"] != "command" {
            return self.wrong(&format!("{place}.type"), &hook["type"], "\"command\"");
        }
        let Some(command) = hook["command"].as_str().filter(|command| !command.trim().is_empty()) else {
            return self.wrong(&format!("{place}.command"), &hook["command"], "a command line");
        };
        let timeout_ms = match &hook["timeout"] {
            Value::Null => None,
            value => match value.as_f64().filter(|seconds| (0.001..=1e9).contains(seconds)) {
                // Rounding a number of milliseconds in that range loses nothing that counts.
                Some(seconds) => Some(std::time::Duration::from_secs_f64(seconds)),
                None => return self.wrong(&format!("{place}.timeout"), value, "a number of seconds"),
            },
        };
        let hook = Hook {
            event,
            matcher: matcher.map(str::to_owned),
            command: command.to_owned(),
            timeout_ms: timeout_ms.and_then(|limit| u64::try_from(limit.as_millis()).ok()),
        };
        if !self.hooks.contains(&hook) {
            self.hooks.push(hook);
        }
    }
}

/// A matcher is about the whole of a name.
fn whole(matcher: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{matcher})$")).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(settings: &Value) -> Vec<String> {
        read(settings).1.into_iter().map(|w| format!("{} is {}, expected {}", w.key, w.found, w.expected)).collect()
    }

    #[test]
    fn hooks_are_read_in_their_order_and_those_of_other_programs_left_alone() {
        let command = |command: &str| json!({"type": "command", "command": command});
        let settings = json!({"hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": "theirs"}],
            "TeammateIdle": [{"hooks": [command("idle")]}],
            "TaskCreated": [
                {"matcher": "", "hooks": [command("a"), {"type": "command", "command": "b", "timeout": 1.5}]},
                {"matcher": "re.*|x", "hooks": [command("c")]},
                {"matcher": "*", "hooks": [command("a")]},
            ],
            "TaskCompleted": null,
        }});
        let hook = |event, matcher: Option<&str>, command: &str, timeout_ms| Hook {
            event,
            matcher: matcher.map(str::to_owned),
            command: command.to_owned(),
            timeout_ms,
        };
        let (hooks, wrong) = read(&settings);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(
            hooks,
            [
                hook(HookEvent::TaskCreated, None, "a", None),
                hook(HookEvent::TaskCreated, None, "b", Some(1500)),
                hook(HookEvent::TaskCreated, Some("re.*|x"), "c", None),
                hook(HookEvent::TeammateIdle, None, "idle", None),
            ]
        );
        assert_eq!(read(&json!({})), (vec![], vec![]));
    }

    #[test]
    fn what_is_broken_is_named_and_the_rest_counts() {
        let group =
            |hook: Value| json!({"hooks": {"TaskCreated": [{"hooks": [hook, {"type": "command", "command": "x"}]}]}});
        let at = "hooks.TaskCreated[0].hooks[0]";
        for (hook, wrong) in [
            (json!({"command": "x"}), format!("{at}.type is missing, expected \"command\"")),
            (
                json!({"type": "prompt", "prompt": "x"}),
                format!("{at}.type is the string \"prompt\", expected \"command\""),
            ),
            (json!("x"), format!("{at}.type is missing, expected \"command\"")),
            (json!({"type": "command"}), format!("{at}.command is missing, expected a command line")),
            (
                json!({"type": "command", "command": " "}),
                format!("{at}.command is the string \"\", expected a command line"),
            ),
            (
                json!({"type": "command", "command": "y", "timeout": 0}),
                format!("{at}.timeout is the number 0, expected a number of seconds"),
            ),
        ] {
            assert_eq!(said(&group(hook.clone())), [wrong]);
            assert_eq!(read(&group(hook)).0.len(), 1);
        }
        for (settings, wrong) in [
            (json!({"hooks": [1]}), "hooks is a list, expected an object"),
            (json!({"hooks": {"TaskCreated": {}}}), "hooks.TaskCreated is an object, expected a list"),
            (
                json!({"hooks": {"TaskCreated": [3]}}),
                "hooks.TaskCreated[0] is the number 3, expected an object with the list `hooks`",
            ),
            (json!({"hooks": {"TaskCreated": [{}]}}), "hooks.TaskCreated[0].hooks is missing, expected a list"),
            (
                json!({"hooks": {"TaskCreated": [{"matcher": "(", "hooks": []}]}}),
                "hooks.TaskCreated[0].matcher is the string \"(\", expected a regular expression",
            ),
        ] {
            assert_eq!(said(&settings), [wrong]);
        }
    }
}
