//! Tests of the routing of `Agent` calls: what each becomes, and the words of each refusal.

use std::path::Path;

use super::*;
use crate::core::frame::{PermissionRules, ScopedRule};
use crate::permission::{Mode, Policy};
use crate::settings::definitions::builtin;

struct Case {
    coordinator: bool,
    background_disabled: bool,
    deny: Option<&'static str>,
    taken: Option<&'static str>,
}

const PLAIN: Case = Case { coordinator: false, background_disabled: false, deny: None, taken: None };
const COORDINATOR: Case = Case { coordinator: true, ..PLAIN };

fn input(json: serde_json::Value) -> AgentInput {
    let mut object = serde_json::json!({"description": "d", "prompt": "do it"});
    for (key, value) in json.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    serde_json::from_value(object).unwrap_or_else(|e| panic!("{e}"))
}

fn decide(case: &Case, json: serde_json::Value) -> Result<Plan, String> {
    let cwd = Path::new("/tmp");
    let deny = case.deny.map(|rule| ScopedRule { rule: rule.into(), root: cwd.into(), source: "flag".into() });
    let rules = PermissionRules { deny: deny.into_iter().collect(), ..PermissionRules::default() };
    let (policy, _) = Policy::new(Mode::Default, &rules, cwd, None, None, false);
    let models = ModelTable::default();
    let model = models.resolve("claude-parent-1").unwrap_or_else(|e| panic!("{e}"));
    let definitions = builtin(case.coordinator, false);
    let taken = |name: &str| case.taken.filter(|t| *t == name).map(|_| "a-1a2b3c4d5e6f7890".to_owned());
    plan(
        input(json),
        &Context {
            coordinator: case.coordinator,
            simple: false,
            background_disabled: case.background_disabled,
            definitions: &definitions,
            policy: &policy,
            model: &model,
            models: &models,
            model_variable: None,
            cwd,
            name_taken: &taken,
        },
    )
}

#[test]
fn calls_go_to_the_foreground_unless_something_says_otherwise() {
    let plain = decide(&PLAIN, serde_json::json!({})).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((plain.route, plain.role), (Route::Sync, Role::SyncWorker));
    assert_eq!(plain.definition.name, "general-purpose");
    for key in ["run_in_background", "async"] {
        let asked = decide(&PLAIN, serde_json::json!({key: true})).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((asked.route, asked.role), (Route::Async, Role::AsyncWorker));
    }
    let worker = decide(&COORDINATOR, serde_json::json!({"model": "opus"})).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((worker.route, worker.role), (Route::Async, Role::CoordinatorWorker { simple: false }));
    assert_eq!(worker.definition.name, "worker");
    assert_eq!(worker.model.id, "claude-parent-1", "a coordinator's model argument is ignored");
}

#[test]
fn refusals_say_what_was_wrong_and_what_exists() {
    let blocked = Case { background_disabled: true, ..PLAIN };
    let denied = Case { deny: Some("Agent(Explore)"), ..PLAIN };
    let taken = Case { taken: Some("bob"), ..PLAIN };
    let rows = [
        (&PLAIN, serde_json::json!({"subagent_type": "nope"}), "general-purpose"),
        (&PLAIN, serde_json::json!({"subagent_type": "worker"}), "there is no agent type"),
        (&PLAIN, serde_json::json!({"subagent_type": "fork"}), "forks are not available"),
        (&PLAIN, serde_json::json!({"prompt": " "}), "prompt is empty"),
        (&PLAIN, serde_json::json!({"isolation": "worktree"}), "worktree"),
        (&PLAIN, serde_json::json!({"isolation": "remote"}), "remote"),
        (&PLAIN, serde_json::json!({"team_name": "t", "name": "bob"}), "no team"),
        (&PLAIN, serde_json::json!({"mode": "plan"}), "mode is for teammates"),
        (&PLAIN, serde_json::json!({"name": "../x"}), "try"),
        (&PLAIN, serde_json::json!({"model": "gpt-1"}), "unknown model"),
        (&PLAIN, serde_json::json!({"cwd": "/nonexistent"}), "not a folder that exists"),
        (&COORDINATOR, serde_json::json!({"team_name": "t", "name": "bob"}), "a coordinator has no teammates"),
        (&blocked, serde_json::json!({"run_in_background": true}), "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"),
        (&denied, serde_json::json!({"subagent_type": "Explore"}), "denied by rule Agent(Explore)"),
        (&taken, serde_json::json!({"name": "bob"}), "a-1a2b3c4d5e6f7890"),
    ];
    for (case, json, words) in rows {
        let refusal = decide(case, json.clone()).err().unwrap_or_else(|| panic!("{json} was not refused"));
        assert!(refusal.contains(words), "{json}: {refusal}");
    }
}

#[test]
fn the_folder_of_an_agent_is_a_real_path() {
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    let folder = dir.path().join("with space");
    std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{e}"));
    let plan = decide(&PLAIN, serde_json::json!({"cwd": folder.join("..").join("with space")}));
    assert_eq!(plan.map(|p| Some(p.cwd)), Ok(folder.canonicalize().ok()));
}
