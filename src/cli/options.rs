//! From flags, environment and settings to what a session is run with. Nothing below reads any of
//! them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::args::{OutputFormat, RunArgs};
use super::caller::acting_agent;
use super::error::CliError;
use super::folders::{Folders, real_folder};
use super::output;
use super::run::{Progress, Run};
use crate::core::env;
use crate::core::ids::SessionId;
use crate::lead::{SessionChoice, SessionOptions};
use crate::permission::Mode;
use crate::settings::models::{ModelTable, PLAYBOOK, ResolvedModel};
use crate::settings::{Loaded, RuleKind, Settings, SettingsSources};
use crate::tool::TOOLS;

/// Settings of the machine's administrator.
const MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// Which session the flags mean.
pub(super) fn session_choice(flags: &RunArgs) -> Result<SessionChoice, CliError> {
    let parse = |flag: &str, text: &str| {
        SessionId::parse(text.trim())
            .ok_or_else(|| CliError::usage(format!("{flag} takes the id of a session, a UUID, not {text:?}")))
    };
    match (&flags.resume, flags.continue_latest, &flags.session_id) {
        (Some(id), ..) => Ok(SessionChoice::Resume(parse("--resume", id)?)),
        (None, true, _) => Ok(SessionChoice::Continue),
        (None, false, Some(id)) => Ok(SessionChoice::New(parse("--session-id", id)?)),
        (None, false, None) => Ok(SessionChoice::New(SessionId::random())),
    }
}

/// Everything but the prompt.
pub(super) fn resolve(run: &Run, session: SessionChoice, folders: &Folders) -> Result<SessionOptions, CliError> {
    let flags = &run.flags;
    let cwd = match &flags.cwd {
        Some(folder) => real_folder(folder)?,
        None => folders.cwd.clone(),
    };
    let mut loaded = load(&cwd, flags.settings.as_deref(), folders)?;
    if !loaded.settings.lead.nested_sessions
        && let Some(agent) = acting_agent(&folders.open_runtime()?)
    {
        return Err(CliError::Nested(agent));
    }
    add_flags(&mut loaded, flags, &cwd, folders)?;
    let mode = mode(flags, &loaded.settings)?;
    if mode == Mode::BypassPermissions && nix::unistd::geteuid().is_root() {
        output::tell("lead: warning: every tool call is permitted, and this runs as root");
    }
    let models = loaded.settings.models();
    let model = choose_model(flags.model.as_deref(), &loaded.settings, &models, folders)?;
    let fallback = fallback(flags.fallback_model.as_deref(), &model, &models, folders)?;
    let mut environment = folders.environment.clone();
    for (name, value) in &loaded.settings.env {
        environment.retain(|(n, _)| n != name);
        environment.push((name.clone(), value.clone()));
    }
    // With JSON it has a meaning of its own, and programs that read that always say it.
    let told = flags.verbose && flags.output_format == OutputFormat::Text;
    Ok(SessionOptions {
        config_dir: folders.config.clone(),
        runtime_dir: folders.runtime.clone(),
        cwd,
        home: folders.home.clone(),
        environment,
        settings: Arc::new(loaded.settings),
        rules: loaded.rules,
        mode,
        model,
        models,
        session,
        coordinator: run.coordinator,
        prompt: None,
        max_turns: flags.max_turns,
        fallback,
        max_budget_usd: flags.max_budget_usd,
        tools: tools(&flags.tools)?,
        json_schema: flags.json_schema.as_deref().map(|text| schema(text, &folders.cwd)).transpose()?,
        detach: flags.detach,
        system_prompt: flags.system_prompt.clone(),
        append_system_prompt: flags.append_system_prompt.clone(),
        progress: run.progress == Progress::Shown || told || output::is_watched(),
    })
}

/// All layers of settings for work in `cwd`.
pub(super) fn load(cwd: &Path, flag: Option<&str>, folders: &Folders) -> Result<Loaded, CliError> {
    let flag = flag.map(|text| match text.trim_start().starts_with('{') {
        true => text.to_owned(),
        // As the shell sees it, whatever --cwd says.
        false => folders.cwd.join(text).to_string_lossy().into_owned(),
    });
    Ok(Settings::load(&SettingsSources {
        user: Some(folders.config.settings()),
        project: Some(project_root(cwd)),
        flag,
        managed: Some(PathBuf::from(MANAGED)),
        cwd: cwd.to_path_buf(),
        home: folders.home.clone(),
    })?)
}

/// `lead.stallAfter` for showing what runs; a broken file must not keep it from being shown.
pub(super) fn stall_after(folders: &Folders) -> Duration {
    load(&folders.cwd, None, folders).map(|l| l.settings).unwrap_or_default().lead.stall_after
}

/// The folder whose `.claude` holds the project's settings: the checkout's root, or the folder
/// itself outside of one.
fn project_root(cwd: &Path) -> PathBuf {
    let root = cwd.ancestors().find(|dir| dir.join(".git").exists());
    root.unwrap_or(cwd).to_path_buf()
}

fn add_flags(loaded: &mut Loaded, flags: &RunArgs, cwd: &Path, folders: &Folders) -> Result<(), CliError> {
    loaded.add_rules(RuleKind::Allow, &flags.allowed_tools, "--allowed-tools", cwd);
    loaded.add_rules(RuleKind::Deny, &flags.disallowed_tools, "--disallowed-tools", cwd);
    for folder in &flags.add_dir {
        let folder = real_folder(&folders.cwd.join(folder))?;
        if !loaded.rules.additional_directories.contains(&folder) {
            loaded.rules.additional_directories.push(folder);
        }
    }
    Ok(())
}

fn mode(flags: &RunArgs, settings: &Settings) -> Result<Mode, CliError> {
    if flags.dangerously_skip_permissions {
        return Ok(Mode::BypassPermissions);
    }
    let (said, by) = match (&flags.permission_mode, &settings.default_mode) {
        (Some(mode), _) => (mode, "--permission-mode"),
        (None, Some(mode)) => (mode, "the setting permissions.defaultMode"),
        (None, None) => return Ok(Mode::default()),
    };
    Mode::parse(said).map_err(|error| CliError::usage(format!("{by}: {error}")))
}

/// Flag > settings > environment.
fn choose_model(
    flag: Option<&str>,
    settings: &Settings,
    models: &ModelTable,
    folders: &Folders,
) -> Result<ResolvedModel, CliError> {
    let said = [
        flag,
        settings.model.as_deref(),
        settings.env.get(env::MODEL).map(String::as_str),
        folders.variable(env::MODEL),
    ];
    let name = said.into_iter().flatten().map(str::trim).find(|name| !name.is_empty()).ok_or(CliError::NoModel)?;
    Ok(models.resolve(&playbook_path(name, &folders.cwd))?)
}

fn fallback(
    flag: Option<&str>,
    model: &ResolvedModel,
    models: &ModelTable,
    folders: &Folders,
) -> Result<Option<ResolvedModel>, CliError> {
    let Some(name) = flag else { return Ok(None) };
    let found = models.resolve(&playbook_path(name.trim(), &folders.cwd))?;
    if found == *model {
        return Err(CliError::usage(format!("--fallback-model is the model itself, {model}")));
    }
    Ok(Some(found))
}

/// Names of `--tools`; none = all. A name that nobody has is a slip of the pen.
fn tools(said: &[String]) -> Result<Option<Vec<String>>, CliError> {
    if said.is_empty() {
        return Ok(None);
    }
    let names = said.iter().flat_map(|list| list.split([',', ' '])).map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(|name| if name == "Task" { "Agent" } else { name }.to_owned()).collect();
    match names.iter().find(|name| !TOOLS.contains(&name.as_str())) {
        Some(unknown) => Err(CliError::usage(format!("--tools: there is no tool {unknown:?}"))
            .with_hint(format!("tools are: {}", TOOLS.join(", ")))),
        None => Ok(Some(names)),
    }
}

/// `--json-schema`: the schema itself, or a file that holds it, as the shell sees it.
fn schema(said: &str, cwd: &Path) -> Result<Value, CliError> {
    let wrong = |why: String| CliError::usage(format!("--json-schema: {why}"));
    let text = if said.trim_start().starts_with('{') {
        said.to_owned()
    } else {
        std::fs::read_to_string(cwd.join(said)).map_err(|e| wrong(format!("can't read the file {said:?}: {e}")))?
    };
    serde_json::from_str(&text).map_err(|e| wrong(format!("the schema is no JSON: {e}")))
}

/// A playbook's file as seen from everywhere, since agents may work in other folders. A word that
/// is no file here is the name of a built-in playbook, or a mistake that opening it tells of.
fn playbook_path(name: &str, cwd: &Path) -> String {
    match name.strip_prefix(PLAYBOOK).filter(|file| !file.is_empty()) {
        Some(file) if file.contains(['/', '.']) || cwd.join(file).is_file() => {
            let path = cwd.join(file);
            // One that is not there is told of as it was named.
            format!("{PLAYBOOK}{}", path.canonicalize().unwrap_or(path).display())
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
