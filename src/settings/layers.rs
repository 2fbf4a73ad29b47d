//! Finding, reading and merging the layers (spec 8.1). Called at start and when settings are
//! reloaded; only reads.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::SettingsError;
use super::schema::Settings;
use crate::core::frame::{PermissionRules, ScopedRule};
use crate::core::hook::{Hook, HookSet};

/// Where settings come from, lowest first.
#[derive(Clone, Debug, Default)]
pub struct SettingsSources {
    /// `settings.json` in the config folder.
    pub user: Option<PathBuf>,
    /// The project's root: `.claude/settings.json` and `.claude/settings.local.json` in it.
    pub project: Option<PathBuf>,
    /// `--settings`: JSON if it begins with `{`, else a file.
    pub flag: Option<String>,
    /// `/etc/claude-code/managed-settings.json`.
    pub managed: Option<PathBuf>,
    /// Working folder: what relative paths of the flag start from, and the root of its rules.
    pub cwd: PathBuf,
    /// What `~` means in `additionalDirectories`.
    pub home: Option<PathBuf>,
    /// What the command line says about permissions.
    pub flags: PermissionFlags,
}

impl SettingsSources {
    /// The file that belongs to this person and this project alone: where lasting grants go.
    pub fn local(&self) -> Option<PathBuf> {
        self.project.as_ref().map(|root| root.join(LOCAL))
    }

    /// All files that settings are read from, there or not.
    pub fn files(&self) -> Vec<PathBuf> {
        let project = self.project.iter().flat_map(|root| [root.join(PROJECT), root.join(LOCAL)]);
        let flag = self.flag.iter().filter(|text| !text.trim_start().starts_with('{')).map(|text| self.cwd.join(text));
        self.user.iter().cloned().chain(project).chain(flag).chain(self.managed.iter().cloned()).collect()
    }
}

const PROJECT: &str = ".claude/settings.json";
const LOCAL: &str = ".claude/settings.local.json";

/// What the command line says about permissions.
#[derive(Clone, Debug, Default)]
pub struct PermissionFlags {
    /// `--allowed-tools`. Each text may hold several rules with commas or blanks between them.
    pub allow: Vec<String>,
    /// `--disallowed-tools`, likewise.
    pub deny: Vec<String>,
    /// `--add-dir`, absolute.
    pub folders: Vec<PathBuf>,
    /// `--permission-mode`, or what the flag that permits everything stands for.
    pub mode: Option<String>,
}

/// A permission mode and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidMode {
    /// As it was written.
    pub word: String,
    /// The flag, or the setting and its file.
    pub by: String,
}

/// One file, found or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// `user`, `project`, `local`, `flag`, `managed`.
    pub layer: &'static str,
    /// Whether it exists.
    pub found: bool,
}

/// Settings and where they come from.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// All layers merged.
    pub settings: Settings,
    /// Rules of all layers and flags, added up, and the added folders (absolute).
    pub rules: PermissionRules,
    /// The permission mode: the administrator's, else the flag's, else that of the files.
    pub mode: Option<SaidMode>,
    /// All files looked for, lowest layer first.
    pub files: Vec<FileReport>,
    /// Dotted key → who set it, lowest layer first: of most keys the last counts, of lists of
    /// rules, added folders and hooks all do.
    pub origins: BTreeMap<String, Vec<String>>,
    /// What is wrong with hooks, each with its place: such ones are passed over.
    pub hook_warnings: Vec<String>,
}

/// Which list a rule goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// `allow`
    Allow,
    /// `ask`
    Ask,
    /// `deny`
    Deny,
}

impl RuleKind {
    /// The list's key under `permissions`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

const DEFAULT_MODE: &str = "permissions.defaultMode";

struct Layer {
    text: String,
    value: Value,
    /// A file's path, or the flag.
    origin: String,
    /// What `/…` patterns and relative folders start from.
    root: PathBuf,
}

impl Settings {
    /// Reads and merges all layers. A file that is not there is skipped, but one named by
    /// `--settings` must be there.
    pub fn load(sources: &SettingsSources) -> Result<Loaded, SettingsError> {
        let mut loaded = Loaded::default();
        let mut merged = Value::Object(Map::new());
        let mut hooks = HookSet::default();
        for layer in find_layers(sources, &mut loaded.files)? {
            Settings::read(&layer.value)
                .map_err(|wrong| SettingsError::wrong(&layer.origin, without_mark(&layer.text), wrong))?;
            loaded.take_permissions(&layer, sources.home.as_deref());
            loaded.take_hooks(&layer, &mut hooks);
            merge(&mut merged, &layer.value, "", &layer.origin, &mut loaded.origins);
        }
        loaded.settings = Settings::read(&merged)
            .map_err(|wrong| SettingsError::wrong("merged settings", &merged.to_string(), wrong))?;
        if !hooks.hooks.is_empty() {
            hooks.project.clone_from(&sources.project);
        }
        loaded.settings.hooks = hooks;
        loaded.take_flags(&sources.flags, &sources.cwd);
        Ok(loaded)
    }
}

impl Loaded {
    /// The administrator's file, if it is the one that sets `key`: nothing else may.
    pub fn managed(&self, key: &str) -> Option<&Path> {
        let file = self.files.iter().find(|f| f.layer == "managed" && f.found)?;
        let last = self.origins.get(key)?.last()?;
        (*last == file.path.display().to_string()).then_some(file.path.as_path())
    }

    fn take_flags(&mut self, flags: &PermissionFlags, cwd: &Path) {
        self.add_rules(RuleKind::Allow, &flags.allow, "--allowed-tools", cwd);
        self.add_rules(RuleKind::Deny, &flags.deny, "--disallowed-tools", cwd);
        for folder in &flags.folders {
            if !self.rules.additional_directories.contains(folder) {
                self.rules.additional_directories.push(folder.clone());
            }
        }
        let flag = flags.mode.as_ref().filter(|_| self.managed(DEFAULT_MODE).is_none());
        self.mode = match (flag, &self.settings.default_mode) {
            (Some(word), _) => Some(SaidMode { word: word.clone(), by: "--permission-mode".to_owned() }),
            (None, Some(word)) => {
                let file = self.origins.get(DEFAULT_MODE).and_then(|o| o.last()).cloned().unwrap_or_default();
                Some(SaidMode { word: word.clone(), by: format!("{DEFAULT_MODE} of {file}") })
            }
            (None, None) => None,
        };
    }

    /// Each text may hold several rules with commas or blanks between them; blanks inside parentheses
    /// belong to a rule.
    fn add_rules(&mut self, kind: RuleKind, list: &[String], source: &str, root: &Path) {
        for rule in list.iter().flat_map(|text| split_rules(text)) {
            self.rule(kind, ScopedRule { rule, root: root.to_path_buf(), source: source.to_owned() });
        }
    }

    fn rule(&mut self, kind: RuleKind, rule: ScopedRule) {
        let list = match kind {
            RuleKind::Allow => &mut self.rules.allow,
            RuleKind::Ask => &mut self.rules.ask,
            RuleKind::Deny => &mut self.rules.deny,
        };
        if !list.contains(&rule) {
            list.push(rule);
        }
    }

    fn take_hooks(&mut self, layer: &Layer, all: &mut HookSet) {
        let (hooks, wrong) = super::hooks::read(&layer.value);
        let new: Vec<Hook> = hooks.into_iter().filter(|hook| !all.hooks.contains(hook)).collect();
        all.hooks.extend(new);
        for wrong in wrong {
            let error = SettingsError::wrong(&layer.origin, without_mark(&layer.text), wrong);
            self.hook_warnings.push(format!("{error}; it is passed over"));
        }
    }

    fn take_permissions(&mut self, layer: &Layer, home: Option<&Path>) {
        let permissions = &layer.value["permissions"];
        let texts = |key: &str| -> Vec<String> {
            let list = permissions[key].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        for (kind, key) in [(RuleKind::Allow, "allow"), (RuleKind::Ask, "ask"), (RuleKind::Deny, "deny")] {
            for rule in texts(key) {
                self.rule(kind, ScopedRule { rule, root: layer.root.clone(), source: layer.origin.clone() });
            }
        }
        for text in texts("additionalDirectories") {
            let folder = match (text.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => layer.root.join(&text),
            };
            if !self.rules.additional_directories.contains(&folder) {
                self.rules.additional_directories.push(folder);
            }
        }
    }
}

fn find_layers(sources: &SettingsSources, reports: &mut Vec<FileReport>) -> Result<Vec<Layer>, SettingsError> {
    let mut layers = Vec::new();
    let mut files: Vec<(&'static str, PathBuf, PathBuf)> = Vec::new();
    if let Some(user) = &sources.user {
        files.push(("user", user.clone(), folder_of(user)));
    }
    if let Some(project) = &sources.project {
        let shared = project.join(PROJECT);
        // In the home folder the project's file is the user's: its rules count once, as theirs.
        if !sources.user.as_ref().is_some_and(|user| same_file(user, &shared)) {
            files.push(("project", shared, project.clone()));
        }
        files.push(("local", project.join(LOCAL), project.clone()));
    }
    for (name, path, root) in files {
        layers.extend(optional_layer(name, path, root, reports)?);
    }
    if let Some(text) = &sources.flag {
        layers.push(flag_layer(text, &sources.cwd, reports)?);
    }
    if let Some(managed) = &sources.managed {
        layers.extend(optional_layer("managed", managed.clone(), folder_of(managed), reports)?);
    }
    Ok(layers)
}

fn optional_layer(
    layer: &'static str,
    path: PathBuf,
    root: PathBuf,
    reports: &mut Vec<FileReport>,
) -> Result<Option<Layer>, SettingsError> {
    let text = match read_regular(&path) {
        Ok(text) => Some(text),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(source) => return Err(SettingsError::Unreadable { path, source }),
    };
    reports.push(FileReport { path: path.clone(), layer, found: text.is_some() });
    let Some(text) = text else { return Ok(None) };
    let origin = path.display().to_string();
    Ok(Some(Layer { value: parse(&text, &origin)?, text, origin, root }))
}

fn flag_layer(text: &str, cwd: &Path, reports: &mut Vec<FileReport>) -> Result<Layer, SettingsError> {
    if text.trim_start().starts_with('{') {
        let origin = "--settings".to_owned();
        return Ok(Layer { value: parse(text, &origin)?, text: text.to_owned(), origin, root: cwd.to_path_buf() });
    }
    let path = cwd.join(text);
    // Not only regular files: shells hand over pipes (`--settings <(…)`).
    let content =
        std::fs::read_to_string(&path).map_err(|source| SettingsError::Unreadable { path: path.clone(), source })?;
    reports.push(FileReport { path: path.clone(), layer: "flag", found: true });
    let origin = path.display().to_string();
    Ok(Layer { value: parse(&content, &origin)?, text: content, origin, root: folder_of(&path) })
}

/// Never waits: a named pipe in place of a settings file is an error.
fn read_regular(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    std::fs::read_to_string(path)
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

pub(super) fn parse(text: &str, origin: &str) -> Result<Value, SettingsError> {
    let text = without_mark(text);
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_str(text).map_err(|source| SettingsError::Syntax {
        origin: origin.to_owned(),
        line: source.line(),
        column: source.column(),
        source,
    })
}

/// Lays `over` on top of `base`: objects key by key, lists that add up behind each other, the rest
/// replaced; `null` says nothing.
fn merge(base: &mut Value, over: &Value, path: &str, origin: &str, origins: &mut BTreeMap<String, Vec<String>>) {
    match (&mut *base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over.iter().filter(|(_, v)| !v.is_null()) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let empty = if value.is_object() { Value::Object(Map::new()) } else { Value::Null };
                merge(base.entry(key.clone()).or_insert(empty), value, &path, origin, origins);
            }
            return;
        }
        (Value::Array(base), Value::Array(over)) if adds_up(path) => {
            for value in over {
                if !base.contains(value) {
                    base.push(value.clone());
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
    origins.entry(path.to_owned()).or_default().push(origin.to_owned());
}

fn adds_up(path: &str) -> bool {
    let lists = ["permissions.allow", "permissions.ask", "permissions.deny", "permissions.additionalDirectories"];
    lists.contains(&path) || path.starts_with("hooks.")
}

/// `Bash(git log:*), Read` → two rules.
fn split_rules(text: &str) -> Vec<String> {
    let mut rules = vec![String::new()];
    let mut depth = 0u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match rules.last_mut() {
            Some(_) if depth == 0 && (c == ',' || c.is_whitespace()) => rules.push(String::new()),
            Some(rule) => rule.push(c),
            None => {}
        }
    }
    rules.retain(|rule| !rule.is_empty());
    rules
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
