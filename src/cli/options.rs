//! From flags, environment and settings to what a session is run with. Nothing below reads any of
//! them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::args::RunArgs;
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
    let mut environment = folders.environment.clone();
    for (name, value) in &loaded.settings.env {
        environment.retain(|(n, _)| n != name);
        environment.push((name.clone(), value.clone()));
    }
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
        system_prompt: flags.system_prompt.clone(),
        append_system_prompt: flags.append_system_prompt.clone(),
        progress: run.progress == Progress::Shown || output::is_watched(),
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
