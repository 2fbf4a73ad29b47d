use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::core::frame::{PermissionRules, ScopedRule};

mod commands;
mod paths;
mod reports;

/// A working folder with a repository, an added folder, a scratchpad and a home beside it.
struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in [
            "w/.git",
            "w/src",
            "w/secrets",
            "w/.claude",
            "w/nested/.git",
            "w/bare/objects",
            "added",
            "scratch",
            "home",
            "other/.git",
            "w-other",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["w/secrets/key", "w/src/a", "w/.env", "w/bare/HEAD", "other/a", "home/.bashrc"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        symlink(root.join("other"), root.join("w/escape")).unwrap();
        symlink(root.join("w/secrets/key"), root.join("w/innocent")).unwrap();
        symlink(root.join("w/src"), root.join("entrance")).unwrap();
        symlink(root.join("w/.git"), root.join("w/src/tig")).unwrap();
        symlink(root.join("home/.bashrc"), root.join("w/rc")).unwrap();
        Self { _dir: dir, root }
    }

    fn policy(&self, mode: Mode, rules: &[&str]) -> Policy {
        let (policy, warnings) = self.policy_and_warnings(mode, rules, false);
        assert_eq!(warnings, Vec::<String>::new());
        policy
    }

    /// Rules are written `+rule`, `?rule`, `-rule` for allow, ask, deny.
    fn policy_and_warnings(&self, mode: Mode, rules: &[&str], read_only_bash: bool) -> (Policy, Vec<String>) {
        let scoped = |sign: char| -> Vec<ScopedRule> {
            let of_kind = rules.iter().filter_map(|rule| rule.strip_prefix(sign));
            of_kind
                .map(|rule| ScopedRule { rule: rule.to_owned(), root: self.root.join("w"), source: "test".to_owned() })
                .collect()
        };
        let rules = PermissionRules {
            allow: scoped('+'),
            ask: scoped('?'),
            deny: scoped('-'),
            additional_directories: vec![self.root.join("added")],
        };
        let scratch = self.root.join("scratch");
        let home = self.root.join("home");
        Policy::new(mode, &rules, &self.root.join("w"), Some(&scratch), Some(&home), read_only_bash)
    }

    /// `@/` in a command or path is the place's root.
    fn fill(&self, text: &str) -> String {
        text.replace("@/", &format!("{}/", self.root.display()))
    }
}

fn word(decision: &Decision) -> &'static str {
    assert!(!decision.reason().is_empty());
    match decision {
        Decision::Allow { .. } => "allow",
        Decision::Ask { .. } => "ask",
        Decision::Deny { .. } => "deny",
    }
}

const D: Mode = Mode::Default;
const E: Mode = Mode::AcceptEdits;
const P: Mode = Mode::Plan;
const N: Mode = Mode::DontAsk;
const B: Mode = Mode::BypassPermissions;

/// One or more inputs that are decided alike.
#[derive(Clone, Copy)]
struct Cases {
    mode: Mode,
    rules: &'static [&'static str],
    decision: &'static str,
    /// What the reason says.
    words: &'static str,
    inputs: &'static [&'static str],
}

const fn cases(
    mode: Mode,
    rules: &'static [&'static str],
    decision: &'static str,
    words: &'static str,
    inputs: &'static [&'static str],
) -> Cases {
    Cases { mode, rules, decision, words, inputs }
}

/// Decides about each input as `input` makes it a call, and says all that is not as expected.
fn check(place: &Place, all: &[Cases], input: impl Fn(&str) -> (&'static str, Value)) {
    let mut wrong = Vec::new();
    for Cases { mode, rules, decision: expected, words, inputs } in all {
        let policy = place.policy(*mode, rules);
        for text in *inputs {
            let (tool, call) = input(&place.fill(text));
            let decision = policy.decide(tool, &call);
            if word(&decision) != *expected || !decision.reason().contains(&place.fill(words)) {
                wrong.push(format!("{text:?} in {mode} with {rules:?}: {expected} {words:?}, got {decision:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn r075_every_cell_of_the_mode_table() {
    let place = Place::new();
    let file = |path: &str| json!({ "file_path": place.fill(path) });
    let rows: Vec<(&str, Value, [&str; 5])> = vec![
        // default, acceptEdits, plan, dontAsk, bypassPermissions
        ("Read", file("src/a"), ["allow", "allow", "allow", "allow", "allow"]),
        ("Read", file("@/added/a"), ["allow", "allow", "allow", "allow", "allow"]),
        ("Read", file("@/scratch/a"), ["allow", "allow", "allow", "allow", "allow"]),
        ("Read", file(".git/config"), ["allow", "allow", "allow", "allow", "allow"]),
        ("Read", file("@/other/a"), ["ask", "ask", "ask", "deny", "allow"]),
        ("Read", file("escape/a"), ["ask", "ask", "ask", "deny", "allow"]),
        ("Read", file("../other/a"), ["ask", "ask", "ask", "deny", "allow"]),
        ("Glob", json!({ "pattern": "*" }), ["allow", "allow", "allow", "allow", "allow"]),
        ("Grep", json!({ "pattern": "x", "path": place.fill("@/other") }), ["ask", "ask", "ask", "deny", "allow"]),
        ("Write", file("src/a"), ["ask", "allow", "deny", "deny", "allow"]),
        ("Edit", file("@/added/a"), ["ask", "allow", "deny", "deny", "allow"]),
        ("NotebookEdit", json!({ "notebook_path": "n.ipynb" }), ["ask", "allow", "deny", "deny", "allow"]),
        ("Write", file("@/other/a"), ["ask", "ask", "deny", "deny", "allow"]),
        ("Write", file("escape/new"), ["ask", "ask", "deny", "deny", "allow"]),
        ("Write", file(".git/hooks/x"), ["ask", "ask", "deny", "deny", "allow"]),
        ("Write", file(".claude/settings.json"), ["ask", "ask", "deny", "deny", "allow"]),
        ("Write", file(".claude/worktrees/w/a"), ["ask", "allow", "deny", "deny", "allow"]),
        ("Write", file(".claude/agent-memory/t/MEMORY.md"), ["ask", "allow", "deny", "deny", "allow"]),
        ("Edit", file(".bashrc"), ["ask", "ask", "deny", "deny", "allow"]),
        ("Bash", json!({ "command": "ls" }), ["allow", "allow", "allow", "allow", "allow"]),
        ("Bash", json!({ "command": "make" }), ["ask", "ask", "deny", "deny", "allow"]),
        ("WebFetch", json!({ "url": "https://a.b" }), ["ask", "ask", "ask", "deny", "allow"]),
        ("WebSearch", json!({ "query": "x" }), ["ask", "ask", "ask", "deny", "allow"]),
        ("mcp__s__t", json!({}), ["ask", "ask", "ask", "deny", "allow"]),
        ("Agent", json!({ "prompt": "x" }), ["allow", "allow", "allow", "allow", "allow"]),
        ("SendMessage", json!({}), ["allow", "allow", "allow", "allow", "allow"]),
        ("TaskUpdate", json!({}), ["allow", "allow", "allow", "allow", "allow"]),
        ("TodoWrite", json!({}), ["allow", "allow", "allow", "allow", "allow"]),
        ("StructuredOutput", json!({}), ["allow", "allow", "allow", "allow", "allow"]),
        ("SomethingNew", json!({}), ["ask", "ask", "deny", "deny", "allow"]),
        ("Read", json!({}), ["deny", "deny", "deny", "deny", "deny"]),
        ("Write", json!({ "file_path": 3 }), ["deny", "deny", "deny", "deny", "deny"]),
        ("Bash", json!({ "cmd": "ls" }), ["deny", "deny", "deny", "deny", "deny"]),
    ];
    for (tool, input, expected) in rows {
        for (mode, expected) in [D, E, P, N, B].into_iter().zip(expected) {
            let decision = place.policy(mode, &[]).decide(tool, &input);
            assert_eq!(word(&decision), expected, "{tool} {input} in {mode}: {}", decision.reason());
        }
    }
}

#[test]
fn rules_about_paths_hosts_servers_and_types() {
    let place = Place::new();
    let file = |path: &str| json!({ "file_path": place.fill(path) });
    let rows: Vec<(&str, Value, Mode, Vec<String>, &str)> = [
        ("Read", file("secrets/key"), B, "-Read(secrets/**)", "deny"),
        ("Read", file("innocent"), B, "-Read(/secrets/**)", "deny"),
        ("Read", file("innocent"), B, "-Read(innocent)", "deny"),
        ("Read", file("src/../secrets/key"), B, "-Read(./secrets/)", "deny"),
        ("Read", file("deep/down/.env"), B, "-Read(.env)", "deny"),
        ("Read", file("@/other/.env"), B, "-Read(.env)", "allow"),
        ("Read", file("@/home/x/y"), B, "-Read(~/x)", "deny"),
        ("Read", file("/etc/hosts"), B, "-Read(//etc/**)", "deny"),
        ("Read", file("/etc/hosts"), D, "+Read(//etc/hosts)", "allow"),
        ("Read", file("escape/a"), D, "+Read(escape/**)", "ask"),
        ("Grep", json!({ "pattern": "x", "path": "secrets" }), B, "-Read(secrets/**)", "deny"),
        ("Glob", json!({ "pattern": "x", "path": place.fill("@/other") }), D, "+Read(//**)", "allow"),
        ("Write", file("secrets/key"), B, "-Edit(secrets/**)", "deny"),
        ("NotebookEdit", json!({ "notebook_path": "a.ipynb" }), B, "-Edit", "deny"),
        ("Read", file("secrets/key"), B, "-Edit(secrets/**)", "allow"),
        ("Write", file("src/a"), D, "+Edit(/src/**)", "allow"),
        ("Write", file("src/a"), P, "+Edit(/src/**)", "allow"),
        ("Write", file("other/a"), D, "+Edit(/src/**)", "ask"),
        ("Write", file(".git/x"), D, "+Edit", "ask"),
        ("Write", file("src/a"), E, "?Edit(/src/**)", "ask"),
        ("Write", file("src/a"), P, "?Edit(/src/**)", "deny"),
        ("Write", file("src/a"), N, "?Edit(/src/**)", "deny"),
        ("Edit", file("src/a"), B, "-Write(/src/**)", "allow"),
        ("WebFetch", json!({ "url": "https://Docs.rs/x" }), D, "+WebFetch(domain:docs.rs)", "allow"),
        ("WebFetch", json!({ "url": "https://docs.rs@evil.com" }), D, "+WebFetch(domain:docs.rs)", "ask"),
        ("WebFetch", json!({ "url": "https://x.docs.rs" }), D, "+WebFetch(domain:docs.rs)", "ask"),
        ("WebFetch", json!({ "url": "https://x.docs.rs" }), D, "+WebFetch(domain:*.docs.rs)", "allow"),
        ("WebFetch", json!({ "url": "https://xdocs.rs" }), D, "+WebFetch(domain:*.docs.rs)", "ask"),
        ("mcp__git__push", json!({}), D, "+mcp__git", "allow"),
        ("mcp__git__push", json!({}), D, "+mcp__git__*", "allow"),
        ("mcp__git__push", json!({}), D, "+mcp__git__push", "allow"),
        ("mcp__git__push", json!({}), B, "-mcp__git__pull", "allow"),
        ("mcp__github__push", json!({}), D, "+mcp__git", "ask"),
        ("Agent", json!({ "subagent_type": "Explore" }), B, "-Agent(Explore)", "deny"),
        ("Agent", json!({ "subagent_type": "Plan" }), B, "-Task(Explore)", "allow"),
        ("Task", json!({ "subagent_type": "Explore" }), B, "-Task(Explore)", "deny"),
        ("Agent", json!({}), B, "-Task", "deny"),
        ("Agent", json!({ "subagent_type": "Plan" }), D, "?Agent(Plan)", "ask"),
    ]
    .map(|(tool, input, mode, rule, expected)| (tool, input, mode, vec![rule.to_owned()], expected))
    .to_vec();
    for (tool, input, mode, rules, expected) in rows {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let decision = place.policy(mode, &rules).decide(tool, &input);
        assert_eq!(word(&decision), expected, "{tool} {input} {mode} {rules:?}: {}", decision.reason());
    }
}

#[test]
fn read_only_agents_run_nothing_else_whatever_is_allowed() {
    let place = Place::new();
    for (command, expected) in
        [("git log", "allow"), ("rm x", "deny"), ("ls > f", "deny"), ("f() { ls; }; f", "deny"), ("ls; rm x", "deny")]
    {
        let (policy, _) = place.policy_and_warnings(B, &["+Bash"], true);
        let decision = policy.decide("Bash", &json!({ "command": command }));
        assert_eq!(word(&decision), expected, "{command}: {}", decision.reason());
    }
}

#[test]
fn reasons_name_rule_source_mode_and_path() {
    let place = Place::new();
    let reason = |mode, rules: &[&str], tool: &str, input: Value| {
        place.policy(mode, rules).decide(tool, &input).reason().to_owned()
    };
    assert_eq!(reason(D, &["-Bash(rm:*)"], "Bash", json!({ "command": "rm x" })), "denied by rule Bash(rm:*) of test");
    let outside = reason(N, &[], "Read", json!({ "file_path": place.fill("@/other/a") }));
    assert!(outside.contains("other/a") && outside.contains("dontAsk") && outside.contains("/w"), "{outside}");
    let part = reason(D, &[], "Bash", json!({ "command": "ls; make all" }));
    assert!(part.contains("`make all`") && part.contains("read-only list"), "{part}");
}

#[test]
fn rules_that_are_not_understood_warn_and_never_widen() {
    let place = Place::new();
    let rules = ["+Bash(rm", "-Edit(!x)", "?TodoWrite(x)", "-(x)", "+WebFetch(docs.rs)", "-Read(../x)", "+", "+Bash()"];
    let (policy, warnings) = place.policy_and_warnings(B, &rules, false);
    assert_eq!(warnings.len(), rules.len(), "{warnings:#?}");
    assert!(warnings.iter().any(|w| w.contains("\"Edit(!x)\" of test") && w.contains("all of Edit")), "{warnings:#?}");
    assert_eq!(policy.denies_tool("Write").map(|r| r.rule.as_str()), Some("Edit(!x)"));
    assert_eq!(word(&policy.decide("TodoWrite", &json!({}))), "ask");
    let (policy, _) = place.policy_and_warnings(D, &rules, false);
    assert_eq!(word(&policy.decide("Bash", &json!({ "command": "rm x" }))), "ask");
}

#[test]
fn whole_tools_and_types_can_be_asked_for() {
    let place = Place::new();
    let policy = place.policy(D, &["-Bash", "-Agent(Plan)", "-Read(x)", "-mcp__s"]);
    assert!(policy.denies_tool("Bash").is_some() && policy.denies_tool("mcp__s__t").is_some());
    assert!(policy.denies_tool("Read").is_none() && policy.denies_tool("Agent").is_none());
    assert!(policy.denies_agent_type("Plan").is_some() && policy.denies_agent_type("Explore").is_none());
    assert!(place.policy(D, &["-Task"]).denies_agent_type("Explore").is_some());
    assert!(policy.denies_reading(&place.root.join("w/a/x")) && !policy.denies_reading(&place.root.join("w/a/y")));
}

#[test]
fn mode_and_readable_folders_can_be_set_later() {
    let place = Place::new();
    let mut policy = place.policy(D, &[]).with_readable(&[place.root.join("other")]);
    let file = json!({ "file_path": place.fill("@/other/a") });
    assert_eq!(word(&policy.decide("Read", &file)), "allow");
    policy.set_mode(E);
    assert_eq!(policy.mode(), E);
    assert_eq!(word(&policy.decide("Write", &file)), "ask");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// A read-only agent that may run something may run it in every mode and without rules.
    #[test]
    fn what_a_read_only_agent_may_run_only_reads(command in "(ls|cat|rm|git|find|echo|x|sort|-o| |;|&|>|\\$|\\(|\\)|'|/){1,8}") {
        let (policy, _) = Policy::new(B, &PermissionRules::default(), Path::new("/nowhere"), None, None, true);
        let decision = policy.decide("Bash", &json!({ "command": command }));
        if word(&decision) == "allow" {
            let words = shell::split(&command, Path::new("/nowhere"), None).unwrap();
            for part in words {
                prop_assert!(!["rm", "x"].contains(&part.command()) && part.writes().count() == 0, "{}", command);
            }
        }
    }
}

#[test]
fn a_command_is_judged_by_the_folder_it_runs_in() {
    let place = Place::new();
    let policy = place.policy(Mode::AcceptEdits, &["-Edit(/secrets/**)", "-Read(/secrets/**)"]);
    let decide = |command: &str, folder: &str| {
        let folder = place.root.join(folder);
        word(&policy.decide_from("Bash", &json!({"command": command}), &folder))
    };
    // The same words are about other files in other folders.
    assert_eq!((decide("echo x > f", "w"), decide("echo x > f", "home")), ("allow", "ask"));
    assert_eq!((decide("cat key", "w"), decide("cat key", "w/secrets")), ("allow", "deny"));
    assert_eq!((decide("cat secrets/key", "w"), decide("cat ../secrets/key", "w/src")), ("deny", "deny"));
    assert_eq!((decide("git status", "w"), decide("git status", "other")), ("allow", "ask"));
    // A rule that begins with a slash stays relative to its file, and other tools to the agent's folder.
    assert_eq!(decide("cat secrets/key", "home"), "allow");
    let read = |folder: &str| {
        word(&policy.decide_from("Read", &json!({"file_path": "secrets/key"}), &place.root.join(folder)))
    };
    assert_eq!((read("w"), read("home")), ("deny", "deny"));
}

#[test]
fn a_plan_is_always_asked_about_and_there_is_none_outside_of_plan_mode() {
    let place = Place::new();
    let decide = |mode, rules: &[&str]| place.policy(mode, rules).decide("ExitPlanMode", &json!({"plan": "p"}));
    for rules in [&[][..], &["+ExitPlanMode"], &["?ExitPlanMode"]] {
        assert!(matches!(decide(Mode::Plan, rules), Decision::Ask { .. }), "{rules:?}");
    }
    assert!(matches!(decide(Mode::Plan, &["-ExitPlanMode", "+ExitPlanMode"]), Decision::Deny { .. }));
    for mode in [Mode::Default, Mode::AcceptEdits, Mode::DontAsk, Mode::BypassPermissions] {
        let decision = decide(mode, &["+ExitPlanMode"]);
        let said = format!("you are not in plan mode (mode {mode})");
        assert!(matches!(&decision, Decision::Deny { reason } if reason.starts_with(&said)), "{decision:?}");
    }
    assert!(rule_for("ExitPlanMode", &json!({"plan": "p"})).is_err_and(|why| why.contains("each plan")));
}
