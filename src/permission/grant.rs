//! The rule that permits from now on just such calls as one that was asked about: the narrowest
//! there is, so that a grant never reaches further than the question did.

use serde_json::Value;

use super::rule::{canonical, host_of};

/// The rule for a call of `tool` with `input`, or why there is none. Paths are absolute, so that
/// the rule means the same wherever it is read.
pub fn rule_for(tool: &str, input: &Value) -> Result<String, String> {
    let tool = canonical(tool);
    let text = |key: &str| {
        let value = input.get(key).and_then(Value::as_str).filter(|v| !v.is_empty());
        value.ok_or_else(|| format!("the call has no `{key}`"))
    };
    let path = |key: &str, kind: &str| {
        let path = text(key)?;
        if !path.starts_with('/') {
            return Err(format!("{path} is no absolute path"));
        }
        if path.contains(['*', '?', '[', ']', '!', '\\', '\n']) || path.ends_with(' ') {
            return Err(format!("{path} has characters that are a pattern in a rule"));
        }
        Ok(format!("{kind}(/{path})"))
    };
    match tool {
        "Bash" => {
            let command = text("command")?.trim();
            if command.contains('*') || command.ends_with(":*") || command.contains('\n') {
                return Err("the command has characters that are a pattern in a rule".to_owned());
            }
            Ok(format!("Bash({command})"))
        }
        "Read" => path("file_path", "Read"),
        // A folder's rule is about all that is in it.
        "Glob" | "Grep" => path("path", "Read"),
        "Edit" | "Write" => path("file_path", "Edit"),
        "NotebookEdit" => path("notebook_path", "Edit"),
        "WebFetch" => match host_of(text("url")?) {
            Some(host) => Ok(format!("WebFetch(domain:{host})")),
            None => Err("its address names no host".to_owned()),
        },
        "Agent" => Ok(match input.get("subagent_type").and_then(Value::as_str) {
            Some(agent_type) => format!("Agent({agent_type})"),
            None => "Agent".to_owned(),
        }),
        "ExitPlanMode" => Err("each plan is decided about for itself".to_owned()),
        other => Ok(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::core::frame::{PermissionRules, ScopedRule};
    use crate::permission::{Decision, Mode, Policy};

    fn allowed(rule: &str, tool: &str, input: &Value) -> bool {
        let said = ScopedRule { rule: rule.to_owned(), root: "/srv".into(), source: "test".to_owned() };
        let rules = PermissionRules { allow: vec![said], ..PermissionRules::default() };
        let (policy, warnings) = Policy::new(Mode::Default, &rules, Path::new("/work"), None, None, false);
        assert!(warnings.is_empty(), "{warnings:?}");
        matches!(policy.decide(tool, input), Decision::Allow { .. })
    }

    #[test]
    fn the_rule_permits_the_call_and_no_neighbour_of_it() {
        let cases = [
            ("Bash", json!({"command": "make -j4 all"}), json!({"command": "make -j4 all install"})),
            ("Bash", json!({"command": "echo \"(a)\" > out.txt"}), json!({"command": "echo \"(a)\" > out2.txt"})),
            ("Write", json!({"file_path": "/opt/x/a.txt"}), json!({"file_path": "/opt/x/b.txt"})),
            ("Read", json!({"file_path": "/opt/x/a (1).txt"}), json!({"file_path": "/opt/x/a"})),
            ("Grep", json!({"path": "/usr", "pattern": "p"}), json!({"path": "/", "pattern": "p"})),
            ("NotebookEdit", json!({"notebook_path": "/opt/n.ipynb"}), json!({"notebook_path": "/opt/m.ipynb"})),
            ("WebFetch", json!({"url": "https://docs.example.org/a"}), json!({"url": "https://example.org/a"})),
            ("mcp__hub__push", json!({}), Value::Null),
        ];
        for (tool, call, neighbour) in cases {
            let rule = rule_for(tool, &call).unwrap();
            assert!(allowed(&rule, tool, &call), "{rule} does not permit {call}");
            if !neighbour.is_null() {
                assert!(!allowed(&rule, tool, &neighbour), "{rule} permits {neighbour}");
            }
        }
    }

    #[test]
    fn what_would_become_a_pattern_gets_no_rule() {
        for (tool, call) in [
            ("Bash", json!({"command": "rm *.o"})),
            ("Bash", json!({"command": "make\nrm -r /"})),
            ("Bash", json!({})),
            ("Read", json!({"file_path": "notes.txt"})),
            ("Edit", json!({"file_path": "/opt/[ab]/x"})),
            ("WebFetch", json!({"url": "nowhere"})),
        ] {
            assert!(rule_for(tool, &call).is_err(), "{tool} {call}");
        }
    }
}
