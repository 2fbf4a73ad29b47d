//! What `lead doctor` says of settings: which file sets which key, which of them counts, and what in
//! them can't be used or is not used by this build.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::doctor::Finding;
use super::error::with_causes;
use super::folders::Folders;
use super::options;
use crate::permission::{Mode, Policy};
use crate::settings::Loaded;

/// Keys under `lead` that this build obeys.
const KNOWN: [&str; 20] = [
    "models",
    "contextWindow",
    "maxAgents",
    "maxAgentsTotal",
    "autoBackgroundMs",
    "forkSubagent",
    "forkStagger",
    "nestedSessions",
    "coordinatorMode",
    "scratchpad",
    "verificationNudge",
    "backgroundWait",
    "permissionTimeout",
    "shutdownGrace",
    "orphanTtl",
    "stallAfter",
    "acceptCrossSession",
    "durability",
    "retry",
    "prices",
];

/// A settings file and what it sets.
#[derive(Debug, Serialize)]
pub(super) struct SettingsFile {
    path: PathBuf,
    layer: &'static str,
    /// Dotted keys that this file sets and that count.
    keys: Vec<String>,
    /// Dotted keys that this file sets and another one sets over it: key → that file.
    overridden: BTreeMap<String, String>,
}

/// All that was seen of settings.
#[derive(Debug, Default)]
pub(super) struct SettingsCheck {
    pub files: Vec<SettingsFile>,
    pub notes: Vec<String>,
    pub findings: Vec<Finding>,
}

/// Looks at the settings for work in the present folder.
pub(super) fn check(folders: &Folders) -> SettingsCheck {
    match options::load(&folders.cwd, None, folders) {
        Ok(loaded) => of(&loaded, folders),
        Err(error) => SettingsCheck {
            findings: vec![Finding::new(with_causes(&error), "correct the file")],
            ..SettingsCheck::default()
        },
    }
}

fn of(loaded: &Loaded, folders: &Folders) -> SettingsCheck {
    let mut check = SettingsCheck::default();
    for file in loaded.files.iter().filter(|f| f.found) {
        let origin = file.path.display().to_string();
        let (mut keys, mut overridden) = (Vec::new(), BTreeMap::new());
        for (key, origins) in loaded.origins.iter().filter(|(_, origins)| origins.contains(&origin)) {
            match origins.last().filter(|last| **last != origin && !adds_up(key)) {
                Some(winner) => drop(overridden.insert(key.clone(), winner.clone())),
                None => keys.push(key.clone()),
            }
        }
        check.files.push(SettingsFile { path: file.path.clone(), layer: file.layer, keys, overridden });
    }
    if let Some(said) = &loaded.mode
        && let Err(error) = Mode::parse(&said.word)
    {
        check.findings.push(Finding::new(format!("{}: {error}", said.by), "correct the file"));
    }
    let (_, warnings) = Policy::new(Mode::Default, &loaded.rules, &folders.cwd, None, folders.home.as_deref(), false);
    check.findings.extend(warnings.into_iter().map(|warning| Finding::new(warning, "correct the rule")));
    let broken = loaded.hook_warnings.iter().map(|warning| Finding::new(warning.clone(), "correct the hook"));
    check.findings.extend(broken);
    for folder in loaded.rules.additional_directories.iter().filter(|folder| !folder.is_dir()) {
        check.notes.push(format!("the added folder {} does not exist", folder.display()));
    }
    if let Some(lead) = loaded.settings.raw.get("lead").and_then(Value::as_object) {
        for key in lead.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            let prefix = format!("lead.{key}");
            let by = loaded.origins.iter().find(|(k, _)| **k == prefix || k.starts_with(&format!("{prefix}.")));
            let file = by.and_then(|(_, origins)| origins.last()).cloned().unwrap_or_default();
            check.notes.push(format!("{prefix} of {file} is not used by this build"));
        }
    }
    check
}

/// Whether each file's part of `key` counts.
fn adds_up(key: &str) -> bool {
    key.starts_with("hooks.") || (key.starts_with("permissions.") && key != "permissions.defaultMode")
}

impl SettingsFile {
    pub(super) fn for_person(&self) -> String {
        let overridden: Vec<String> =
            self.overridden.iter().map(|(key, by)| format!("{key} (but {by} sets it too, and counts)")).collect();
        let keys = [self.keys.clone(), overridden].concat();
        let keys = if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        format!("{} ({}): {keys}", self.path.display(), self.layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::paths::ConfigDir;
    use crate::settings::{Settings, SettingsSources};

    #[test]
    fn it_says_which_file_counts_and_what_is_wrong_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("p/.claude")).unwrap();
        let user = root.join("user.json");
        let local = root.join("p/.claude/settings.local.json");
        std::fs::write(
            &user,
            r#"{"model": "a", "lead": {"maxAgents": 1, "sandbox": "off"}, "permissions": {"allow": ["Read"], "defaultMode": "yolo"}}"#,
        )
        .unwrap();
        std::fs::write(
            &local,
            r#"{"model": "b", "permissions": {"allow": ["Bash(rm"], "additionalDirectories": ["gone"]}}"#,
        )
        .unwrap();
        let sources = SettingsSources {
            user: Some(user.clone()),
            project: Some(root.join("p")),
            cwd: root.join("p"),
            ..SettingsSources::default()
        };
        let folders = Folders {
            config: ConfigDir::new(root.clone()),
            runtime: root.join("r"),
            home: None,
            cwd: root.join("p"),
            environment: Vec::new(),
        };
        let check = of(&Settings::load(&sources).unwrap(), &folders);
        let [of_user, of_local] = check.files.as_slice() else { panic!("{:?}", check.files) };
        assert_eq!(of_user.keys, ["lead.maxAgents", "lead.sandbox", "permissions.allow", "permissions.defaultMode"]);
        assert_eq!(of_user.overridden["model"], local.display().to_string());
        assert_eq!(of_local.keys, ["model", "permissions.additionalDirectories", "permissions.allow"]);
        let said = |text: &str| check.findings.iter().any(|f| f.what.contains(text));
        assert!(said("yolo") && said("Bash(rm") && check.findings.len() == 2, "{:?}", check.findings);
        assert!(
            check.notes.iter().any(|n| n.contains("lead.sandbox of") && n.contains("user.json")),
            "{:?}",
            check.notes
        );
        assert!(check.notes.iter().any(|n| n.contains("p/gone does not exist")), "{:?}", check.notes);
        assert!(of_user.for_person().contains("model (but ") && of_user.for_person().contains("(user)"));
    }

    /// A key that the schema reads and this list does not have would be reported as unused.
    #[test]
    fn every_key_that_is_read_is_known() {
        for key in KNOWN {
            let sources =
                SettingsSources { flag: Some(format!(r#"{{"lead": {{"{key}": [[]]}}}}"#)), ..Default::default() };
            let error = Settings::load(&sources).unwrap_err().to_string();
            assert!(error.contains(&format!("`lead.{key}`")), "{error}");
        }
    }
}
