use std::path::PathBuf;
use std::time::Duration;

use super::*;

struct Place {
    dir: tempfile::TempDir,
    sources: SettingsSources,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for folder in ["home/.claude", "p/.claude", "etc"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let sources = SettingsSources {
            user: Some(root.join("home/.claude/settings.json")),
            project: Some(root.join("p")),
            flag: None,
            managed: Some(root.join("etc/managed-settings.json")),
            cwd: root.join("p"),
            home: Some(root.join("home")),
            flags: PermissionFlags::default(),
        };
        Self { dir, sources }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) -> &Self {
        std::fs::write(self.path(relative), text).unwrap();
        self
    }

    fn load(&self) -> Loaded {
        Settings::load(&self.sources).unwrap()
    }

    fn error(&self) -> String {
        Settings::load(&self.sources).unwrap_err().to_string()
    }
}

const USER: &str = "home/.claude/settings.json";
const PROJECT: &str = "p/.claude/settings.json";
const LOCAL: &str = "p/.claude/settings.local.json";
const MANAGED: &str = "etc/managed-settings.json";

#[test]
fn without_files_everything_has_its_default() {
    let loaded = Place::new().load();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.files.len(), 4);
    assert!(loaded.files.iter().all(|f| !f.found));
    let lead = loaded.settings.lead;
    assert_eq!((lead.max_agents, lead.max_agents_total, lead.retry.attempts), (64, 1000, 10));
    assert_eq!((lead.background_wait, lead.stall_after), (Duration::from_secs(600), Duration::from_secs(300)));
    assert!(lead.coordinator_mode && lead.scratchpad && !lead.nested_sessions && lead.auto_background.is_none());
    assert_eq!(lead.durability.as_str(), "process");
}

#[test]
fn higher_layers_win_and_say_where_a_value_is_from() {
    let mut place = Place::new();
    place
        .write(USER, r#"{"model": "u", "lead": {"maxAgents": 1, "durability": "disk"}, "env": {"A": "u", "B": 1}}"#)
        .write(PROJECT, r#"{"model": "p", "lead": {"maxAgents": 2, "nestedSessions": true}, "env": {"A": true}}"#)
        .write(LOCAL, r#"{"model": "l", "agent": "x", "lead": {"maxAgents": 3}}"#)
        .write(MANAGED, r#"{"model": "m", "cleanupPeriodDays": null}"#);
    place.sources.flag = Some(r#" {"model": "f", "lead": {"maxAgents": 4}}"#.to_owned());
    let loaded = place.load();
    let settings = &loaded.settings;
    assert_eq!(settings.model.as_deref(), Some("m"));
    assert_eq!((settings.lead.max_agents, settings.lead.durability), (4, Durability::Disk));
    assert!(settings.lead.nested_sessions);
    assert_eq!(settings.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["A=true", "B=1"]);
    let origin = |key: &str| loaded.origins.get(key).and_then(|o| o.last()).cloned().unwrap_or_default();
    assert_eq!(origin("lead.maxAgents"), "--settings");
    assert_eq!(origin("lead.durability"), place.path(USER).display().to_string());
    assert_eq!(loaded.origins["model"].len(), 5);
    assert!(!loaded.origins.contains_key("cleanupPeriodDays") && !loaded.origins.contains_key("lead"));
}

#[test]
fn rules_add_up_with_their_roots() {
    let mut place = Place::new();
    place
        .write(
            USER,
            r#"{"permissions": {"allow": ["Read"], "deny": ["Bash(rm:*)"], "additionalDirectories": ["~/d"]}}"#,
        )
        .write(PROJECT, r#"{"permissions": {"allow": ["Edit(/src/**)"], "additionalDirectories": ["../q", "/abs"]}}"#)
        .write("p/f.json", r#"{"permissions": {"ask": ["WebFetch"], "defaultMode": "plan"}}"#)
        .write(MANAGED, r#"{"permissions": {"deny": ["WebSearch"]}, "hooks": {"E": [1]}}"#);
    place.sources.flag = Some("f.json".to_owned());
    place.sources.cwd = place.path("p");
    place.sources.flags.allow = ["Bash(git log:*), Read", "Glob Grep", "Read"].map(str::to_owned).to_vec();
    place.sources.flags.folders = vec![PathBuf::from("/flag"), PathBuf::from("/abs")];
    let loaded = place.load();
    let rules = |list: &[crate::core::frame::ScopedRule]| {
        list.iter().map(|r| format!("{} @ {}", r.rule, r.root.display())).collect::<Vec<_>>()
    };
    let at = |rule: &str, root: &str| format!("{rule} @ {}", place.path(root).display());
    assert_eq!(
        rules(&loaded.rules.allow),
        [
            at("Read", "home/.claude"),
            at("Edit(/src/**)", "p"),
            at("Bash(git log:*)", "p"),
            at("Read", "p"),
            at("Glob", "p"),
            at("Grep", "p"),
        ]
    );
    assert_eq!(rules(&loaded.rules.deny), [at("Bash(rm:*)", "home/.claude"), at("WebSearch", "etc")]);
    assert_eq!(rules(&loaded.rules.ask), [at("WebFetch", "p")]);
    assert_eq!(loaded.rules.ask[0].source, place.path("p/f.json").display().to_string());
    assert_eq!(
        loaded.rules.additional_directories,
        [place.path("home/d"), place.path("p/../q"), PathBuf::from("/abs"), PathBuf::from("/flag")]
    );
    assert_eq!(loaded.settings.default_mode.as_deref(), Some("plan"));
    assert_eq!(loaded.settings.raw["permissions"]["deny"].as_array().map(Vec::len), Some(2));
}

#[test]
fn in_the_home_folder_the_user_file_counts_once() {
    let mut place = Place::new();
    place.write(USER, r#"{"permissions": {"allow": ["Read"]}}"#);
    place.sources.project = Some(place.path("home"));
    let loaded = place.load();
    assert_eq!(loaded.rules.allow.len(), 1);
    assert_eq!(loaded.files.iter().filter(|f| f.layer == "project").count(), 0);
}

#[test]
fn unknown_keys_are_kept() {
    let place = Place::new();
    place.write(PROJECT, r#"{"statusLine": {"x": [1]}, "lead": {"future": 1}}"#);
    let raw = place.load().settings.raw;
    assert_eq!((raw["statusLine"]["x"][0].as_u64(), raw["lead"]["future"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn values_of_the_wrong_type_are_named_with_file_and_key() {
    let rows = [
        (r#"{"model": 3}"#, "`model` is the number 3, expected a string"),
        (r#"{"permissions": []}"#, "`permissions` is a list, expected an object"),
        (
            r#"{"permissions": {"allow": "Bash"}}"#,
            "`permissions.allow` is the string \"Bash\", expected a list of strings",
        ),
        (r#"{"permissions": {"deny": ["x", 2]}}"#, "`permissions.deny[1]` is the number 2, expected a string"),
        (r#"{"env": {"A": {}}}"#, "`env.A` is an object, expected a string"),
        (r#"{"env": {"A=B": "x"}}"#, "`env.A=B`"),
        (r#"{"lead": {"maxAgents": -1}}"#, "`lead.maxAgents` is the number -1, expected a whole number"),
        (r#"{"lead": {"maxAgents": "64"}}"#, "`lead.maxAgents` is the string \"64\""),
        (r#"{"lead": {"scratchpad": "yes"}}"#, "`lead.scratchpad` is the string \"yes\", expected true or false"),
        (r#"{"lead": {"stallAfter": "soon"}}"#, "expected a duration such as \"10m\""),
        (r#"{"lead": {"durability": "tape"}}"#, "expected \"process\" or \"disk\""),
        (r#"{"lead": {"retry": {"cap": []}}}"#, "`lead.retry.cap` is a list"),
        (r#"{"lead": {"models": {"opus": 5}}}"#, "`lead.models.opus` is the number 5"),
        (r#"{"lead": {"models": {"x": {"window": "big"}}}}"#, "`lead.models.x.window`"),
        (r#"[1]"#, "`the whole` is a list, expected an object"),
    ];
    for (text, expected) in rows {
        let place = Place::new();
        place.write(LOCAL, text);
        let error = place.error();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.contains(&place.path(LOCAL).display().to_string()), "{error}");
        assert!(error.contains(" at line 1, column "), "{error}");
    }
    let place = Place::new();
    place.write(LOCAL, "{\n  \"lead\": {\n    \"models\": {\"claude-3.5\": {\"window\": \"big\"}}\n  }\n}");
    assert!(place.error().contains("settings.local.json at line 3, column 41: `lead.models.claude-3.5.window`"));
}

#[test]
fn the_administrators_file_wins_over_everything() {
    let mut place = Place::new();
    place
        .write(USER, r#"{"permissions": {"defaultMode": "acceptEdits"}}"#)
        .write(MANAGED, r#"{"permissions": {"defaultMode": "plan", "deny": ["Bash"]}, "model": "m"}"#);
    place.sources.flag = Some(r#"{"permissions": {"defaultMode": "dontAsk"}, "model": "f"}"#.to_owned());
    place.sources.flags.mode = Some("bypassPermissions".to_owned());
    let loaded = place.load();
    let managed = place.path(MANAGED);
    let by = format!("permissions.defaultMode of {}", managed.display());
    assert_eq!(loaded.mode, Some(SaidMode { word: "plan".to_owned(), by }));
    assert_eq!(loaded.managed("permissions.defaultMode"), Some(managed.as_path()));
    assert_eq!((loaded.managed("model"), loaded.managed("agent")), (Some(managed.as_path()), None));
    assert_eq!(loaded.settings.model.as_deref(), Some("m"));
    place.write(MANAGED, "{}");
    let said = |place: &Place| place.load().mode.map(|m| format!("{} {}", m.word, m.by));
    assert_eq!(said(&place).as_deref(), Some("bypassPermissions --permission-mode"));
    place.sources.flags.mode = None;
    assert_eq!(said(&place).as_deref(), Some("dontAsk permissions.defaultMode of --settings"));
}

#[test]
fn broken_files_are_named_with_line_and_column() {
    let mut place = Place::new();
    place.write(USER, "{\n  \"model\": \"x\",\n}");
    assert!(place.error().ends_with("home/.claude/settings.json at line 3, column 1"), "{}", place.error());
    place.write(USER, "\u{feff} \n");
    place.sources.flag = Some("{".to_owned());
    assert!(place.error().contains("--settings at line 1"), "{}", place.error());
    place.sources.flag = Some("nothing.json".to_owned());
    assert!(place.error().contains("nothing.json"), "{}", place.error());
    place.sources.flag = None;
    std::fs::remove_file(place.path(USER)).unwrap();
    nix::unistd::mkfifo(&place.path(USER), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(place.error().contains("can't read"), "{}", place.error());
    std::fs::remove_file(place.path(USER)).unwrap();
    std::fs::create_dir(place.path(USER)).unwrap();
    assert!(place.error().contains("can't read"), "{}", place.error());
}

#[test]
fn durations_are_words_or_milliseconds_and_models_make_a_table() {
    let place = Place::new();
    place.write(
        PROJECT,
        r#"{"lead": {"backgroundWait": "1h 5m", "orphanTtl": 1500, "autoBackgroundMs": 0, "contextWindow": 9,
            "retry": {"attempts": 0, "base": "1ms"}, "models": {"opus": "claude-o", "claude-o": {"maxTokens": 7}}}}"#,
    );
    let settings = place.load().settings;
    assert_eq!(settings.lead.background_wait, Duration::from_secs(3900));
    assert_eq!(settings.lead.orphan_ttl, Duration::from_millis(1500));
    assert_eq!(settings.lead.auto_background, Some(Duration::ZERO));
    assert_eq!((settings.lead.retry.attempts, settings.lead.retry.base), (0, Duration::from_millis(1)));
    let opus = settings.models().resolve("opus").unwrap();
    assert_eq!((opus.id.as_str(), opus.max_tokens, opus.window), ("claude-o", 7, 9));
}

#[test]
fn prices_need_both_directions_and_have_the_usual_cache_prices() {
    let place = Place::new();
    place.write("p/.claude/settings.json", r#"{"lead":{"prices":{"m":{"input":2,"output":8,"cacheRead":0}}}}"#);
    let price = place.load().settings.prices().price("m").unwrap();
    assert_eq!((price.input, price.output, price.cache_write, price.cache_read), (2.0, 8.0, 2.5, 0.0));
    for bad in [r#"{"input":2}"#, r#"{"input":-1,"output":1}"#, r#"{"input":"2","output":1}"#, "5"] {
        place.write("p/.claude/settings.json", &format!(r#"{{"lead":{{"prices":{{"m":{bad}}}}}}}"#));
        let error = Settings::load(&place.sources).unwrap_err().to_string();
        assert!(error.contains("lead.prices.m"), "{bad}: {error}");
    }
}

#[test]
fn hooks_of_all_layers_count_and_broken_ones_are_told_with_their_place() {
    let place = Place::new();
    let hooks = |command: &str| {
        format!(r#"{{"hooks": {{"TaskCreated": [{{"hooks": [{{"type": "command", "command": "{command}"}}]}}]}}}}"#)
    };
    place.write(USER, &hooks("mine")).write(PROJECT, &hooks("ours"));
    place.write(LOCAL, "{\n  \"hooks\": {\"TaskCreated\": [{\"hooks\": [\n    {\"type\": \"command\"}]}]}}");
    place.write(MANAGED, &hooks("mine"));
    let loaded = place.load();
    let commands: Vec<&str> = loaded.settings.hooks.hooks.iter().map(|h| h.command.as_str()).collect();
    assert_eq!(commands, ["mine", "ours"]);
    assert_eq!(loaded.settings.hooks.project, place.sources.project);
    let warning = format!(
        "{} at line 3, column 5: `hooks.TaskCreated[0].hooks[0].command` is missing, expected a command line; it is passed over",
        place.path(LOCAL).display()
    );
    assert_eq!(loaded.hook_warnings, [warning]);
}
