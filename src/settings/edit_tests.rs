use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

fn with(text: &str, kind: RuleKind, rule: &str) -> Option<String> {
    with_rule(text, kind, rule, Path::new("/s.json")).unwrap()
}

#[test]
fn r048_only_the_rule_is_added_and_every_other_byte_is_kept() {
    let rows = [
        ("", "{\n  \"permissions\": {\n    \"allow\": [\n      \"R(x:*)\"\n    ]\n  }\n}\n"),
        ("{}", "{\"permissions\": {\"allow\": [\"R(x:*)\"]}}"),
        ("{\n}\n", "{\"permissions\": {\"allow\": [\"R(x:*)\"]}\n}\n"),
        (
            "{\n  \"z\": 1.0,\n  \"a\": {\"big\": 123456789012345678901234567890}\n}",
            "{\n  \"z\": 1.0,\n  \"a\": {\"big\": 123456789012345678901234567890},\n  \"permissions\": {\"allow\": [\"R(x:*)\"]}\n}",
        ),
        (
            "{\"permissions\": {\"deny\": [\"x\"]}, \"k\": \"\\u00e9\"}",
            "{\"permissions\": {\"deny\": [\"x\"], \"allow\": [\"R(x:*)\"]}, \"k\": \"\\u00e9\"}",
        ),
        (
            "{\n\t\"permissions\": {\n\t\t\"allow\": [\n\t\t\t\"a\",\n\t\t\t\"b\"\n\t\t],\n\t\t\"ask\": []\n\t}\n}",
            "{\n\t\"permissions\": {\n\t\t\"allow\": [\n\t\t\t\"a\",\n\t\t\t\"b\",\n\t\t\t\"R(x:*)\"\n\t\t],\n\t\t\"ask\": []\n\t}\n}",
        ),
        ("{\"permissions\": {\"allow\": [ ]}}", "{\"permissions\": {\"allow\": [\"R(x:*)\" ]}}"),
        ("{\"permissions\": {\"allow\": [\"a\" ]}}", "{\"permissions\": {\"allow\": [\"a\", \"R(x:*)\" ]}}"),
        ("{\"permissions\": null}", "{\"permissions\": {\"allow\": [\"R(x:*)\"]}}"),
        ("{\"permissions\": {\"allow\": null}}", "{\"permissions\": {\"allow\": [\"R(x:*)\"]}}"),
        ("\u{feff}{}", "\u{feff}{\"permissions\": {\"allow\": [\"R(x:*)\"]}}"),
        ("{\r\n  \"a\": 1\r\n}", "{\r\n  \"a\": 1,\n  \"permissions\": {\"allow\": [\"R(x:*)\"]}\r\n}"),
    ];
    for (before, after) in rows {
        assert_eq!(with(before, RuleKind::Allow, "R(x:*)").as_deref(), Some(after), "{before:?}");
        assert_eq!(with(after, RuleKind::Allow, "R(x:*)"), None, "{after:?}");
        let again = with(after, RuleKind::Deny, "quote \" and \\ back").unwrap();
        let value: Value = serde_json::from_str(again.trim_start_matches('\u{feff}')).unwrap();
        assert_eq!(value["permissions"]["allow"].as_array().unwrap().last().unwrap(), "R(x:*)");
        assert_eq!(value["permissions"]["deny"].as_array().unwrap().last().unwrap(), "quote \" and \\ back");
    }
}

#[test]
fn broken_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.json");
    for (text, said) in [
        ("{\n  \"a\": 1,\n}", "at line 3, column 1"),
        ("{\"permissions\": []}", "`permissions` is a list"),
        ("{\"permissions\": {\"allow\": [1]}}", "`permissions.allow[0]` is the number 1"),
        ("[]", "is a list"),
    ] {
        fs::write(&path, text).unwrap();
        let error = add_rule(&path, RuleKind::Allow, "Read", Durability::Process).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("s.json"), "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no lock and no other file is left");
}

#[test]
fn folders_are_made_and_links_and_permissions_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = dir.path().join("p/.claude/settings.local.json");
    assert_eq!(add_rule(&fresh, RuleKind::Ask, "Read", Durability::Disk).unwrap(), Added::Now);
    assert_eq!(add_rule(&fresh, RuleKind::Ask, "Read", Durability::Disk).unwrap(), Added::Before);
    assert_eq!(fs::read_dir(fresh.parent().unwrap()).unwrap().count(), 1);
    let shared = dir.path().join("shared.json");
    fs::write(&shared, "{}").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o664)).unwrap();
    let link = dir.path().join("link.json");
    symlink(&shared, &link).unwrap();
    add_rule(&link, RuleKind::Allow, "Read", Durability::Process).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o664);
    assert!(fs::read_to_string(&shared).unwrap().contains("Read"));
}

/// What each process of the race does; by itself it is no test.
#[test]
fn r048_part_of_the_race() {
    let Ok(path) = std::env::var("LEAD_TEST_RACE_FILE") else { return };
    let number = std::env::var("LEAD_TEST_RACE_NUMBER").unwrap();
    for i in 0..8 {
        let rule = format!("Bash(run {number} {i})");
        let added = add_rule(Path::new(&path), RuleKind::Allow, &rule, Durability::Process).unwrap();
        assert_eq!(added, Added::Now);
    }
}

#[test]
fn r048_sixteen_processes_that_add_rules_lose_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settings.local.json");
    let other = "{\n  \"statusLine\": {\"x\": [1]},\n  \"permissions\": {\n    \"allow\": [\n      \"Read\"\n    ],\n    \"future\": 1.50\n  },\n  \"zz\": null\n}\n";
    fs::write(&path, other).unwrap();
    let mine = std::env::current_exe().unwrap();
    let name = "settings::edit::tests::r048_part_of_the_race";
    let children: Vec<_> = (0..16)
        .map(|number| {
            let mut child = Command::new(&mine);
            child.args([name, "--exact", "--quiet"]).env("LEAD_TEST_RACE_FILE", &path);
            child.env("LEAD_TEST_RACE_NUMBER", number.to_string()).stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    let text = fs::read_to_string(&path).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let rules: Vec<&str> =
        value["permissions"]["allow"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
    assert_eq!(rules.len(), 1 + 16 * 8);
    for number in 0..16 {
        let own: Vec<_> = rules.iter().filter(|r| r.starts_with(&format!("Bash(run {number} "))).collect();
        let expected: Vec<String> = (0..8).map(|i| format!("Bash(run {number} {i})")).collect();
        assert_eq!(own, expected.iter().collect::<Vec<_>>(), "in the order in which it added them");
    }
    assert!(
        text.starts_with(
            "{\n  \"statusLine\": {\"x\": [1]},\n  \"permissions\": {\n    \"allow\": [\n      \"Read\",\n"
        )
    );
    assert!(text.ends_with("\n    ],\n    \"future\": 1.50\n  },\n  \"zz\": null\n}\n"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no lock and no other file is left");
}
