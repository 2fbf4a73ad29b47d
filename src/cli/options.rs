//! From flags, environment and settings to what a session is run with. Nothing below reads any of
//! them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::args::{OutputFormat, PromptTool, RunArgs};
use super::caller::acting_agent;
use super::error::CliError;
use super::folders::{Folders, real_folder};
use super::output;
use super::run::{Progress, Run};
use crate::core::env;
use crate::core::ids::SessionId;
use crate::lead::{Questions, SessionChoice, SessionOptions, Standing, TeammateMode};
use crate::permission::Mode;
use crate::settings::models::{ModelTable, PLAYBOOK, ResolvedModel};
use crate::settings::{Loaded, PermissionFlags, Settings, SettingsError, SettingsSources};
use crate::tool::TOOLS;

/// Settings of the machine's administrator.
const MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// Which session the flags mean.
pub(super) fn session_choice(flags: &RunArgs) -> Result<SessionChoice, CliError> {
    let parse = |flag: &str, text: &str| {
        SessionId::parse(text.trim())
            .ok_or_else(|| CliError::usage(format!("{flag} takes the id of a session, a UUID, not {text:?}")))
    };
    let existing = flags.resume.is_some() || flags.continue_latest;
    if existing && flags.session_id.is_some() && !flags.fork_session {
        let hint = "add --fork-session to go on with a copy under that id";
        return Err(
            CliError::usage("a session that goes on keeps its id, so --session-id can't be used").with_hint(hint)
        );
    }
    if flags.fork_session && !existing {
        return Err(CliError::usage("--fork-session needs the session to copy: --resume ID or --continue"));
    }
    match (&flags.resume, flags.continue_latest, &flags.session_id) {
        (Some(id), ..) => Ok(SessionChoice::Resume(parse("--resume", id)?)),
        (None, true, _) => Ok(SessionChoice::Continue),
        (None, false, Some(id)) => Ok(SessionChoice::New(parse("--session-id", id)?)),
        (None, false, None) => Ok(SessionChoice::New(SessionId::random())),
    }
}

/// The id of the copy that --fork-session makes.
fn fork(flags: &RunArgs) -> Option<SessionId> {
    let said = flags.session_id.as_deref().and_then(|text| SessionId::parse(text.trim()));
    flags.fork_session.then(|| said.unwrap_or_else(SessionId::random))
}

/// Everything but the prompt.
pub(super) fn resolve(run: &Run, session: SessionChoice, folders: &Folders) -> Result<SessionOptions, CliError> {
    let flags = &run.flags;
    let cwd = match &flags.cwd {
        Some(folder) => real_folder(folder)?,
        None => folders.cwd.clone(),
    };
    let mut sources = sources(&cwd, flags.settings.as_deref(), folders)?;
    sources.flags = permission_flags(flags, folders)?;
    let loaded = Settings::load(&sources)?;
    if !loaded.settings.lead.nested_sessions
        && let Some(agent) = acting_agent(&folders.open_runtime()?)
    {
        return Err(CliError::Nested(agent));
    }
    loaded.hook_warnings.iter().for_each(|warning| output::tell(&format!("lead: warning: {warning}")));
    let mode = mode(&loaded, &sources.flags)?;
    if mode == Mode::BypassPermissions && !run.goes_on && nix::unistd::geteuid().is_root() {
        output::tell("lead: warning: every tool call is permitted, and this runs as root");
    }
    let models = loaded.settings.models();
    let said = not_overruled(&loaded, "model", "--model", flags.model.as_deref());
    let model = choose_model(said, &loaded.settings, &models, folders)?;
    let fallback = fallback(flags.fallback_model.as_deref(), &model, &models, folders)?;
    let mut environment = folders.environment.clone();
    for (name, value) in &loaded.settings.env {
        environment.retain(|(n, _)| n != name);
        environment.push((name.clone(), value.clone()));
    }
    let loaded_mode = loaded.settings.teammate_mode.clone();
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
        sources: Arc::new(sources),
        mode,
        questions: match flags.permission_prompt_tool {
            Some(PromptTool::Desk) => Questions::Desk,
            None => Questions::Denied,
        },
        model,
        models,
        session,
        fork: fork(flags),
        standing: Standing::Lead,
        coordinator: run.coordinator,
        prompt: None,
        max_turns: flags.max_turns,
        fallback,
        max_budget_usd: flags.max_budget_usd,
        tools: tools(&flags.tools)?,
        json_schema: flags.json_schema.as_deref().map(|text| schema(text, &folders.cwd)).transpose()?,
        detach: flags.detach,
        teammates: teammate_mode(flags, &loaded_mode)?,
        system_prompt: flags.system_prompt.clone(),
        append_system_prompt: flags.append_system_prompt.clone(),
        progress: run.progress == Progress::Shown || told || output::is_watched(),
    })
}

/// Where members of a team run: as the flags say, else the settings.
fn teammate_mode(flags: &RunArgs, settings: &Option<String>) -> Result<TeammateMode, CliError> {
    if flags.tmux {
        return Ok(TeammateMode::Private);
    }
    match (flags.teammate_mode, settings) {
        (Some(mode), _) => Ok(mode),
        (None, Some(word)) => TeammateMode::parse(word)
            .map_err(|why| CliError::usage(format!("the setting teammateMode can't be used: {why}"))),
        (None, None) => Ok(TeammateMode::Auto),
    }
}

/// All layers of settings for work in `cwd`.
pub(super) fn load(cwd: &Path, flag: Option<&str>, folders: &Folders) -> Result<Loaded, CliError> {
    Ok(Settings::load(&sources(cwd, flag, folders)?)?)
}

/// Where settings for work in `cwd` come from; `flag` is `--settings`.
fn sources(cwd: &Path, flag: Option<&str>, folders: &Folders) -> Result<SettingsSources, CliError> {
    Ok(SettingsSources {
        user: Some(folders.config.settings()),
        project: Some(project_root(cwd)),
        flag: flag.map(|text| settings_flag(text, folders)).transpose()?,
        managed: Some(PathBuf::from(MANAGED)),
        cwd: cwd.to_path_buf(),
        home: folders.home.clone(),
        flags: PermissionFlags::default(),
    })
}

/// A file is named as the shell sees it, whatever --cwd says. What a shell hands over by a pipe
/// (`--settings <(…)`) can be read once only, so it is taken here.
fn settings_flag(text: &str, folders: &Folders) -> Result<String, CliError> {
    if text.trim_start().starts_with('{') {
        return Ok(text.to_owned());
    }
    let path = folders.cwd.join(text);
    if std::fs::metadata(&path).map_or(true, |m| m.is_file()) {
        return Ok(path.to_string_lossy().into_owned());
    }
    let content = std::fs::read_to_string(&path).map_err(|source| SettingsError::Unreadable { path, source })?;
    match content.trim_start_matches('\u{feff}').trim() {
        "" => Ok("{}".to_owned()),
        object if object.starts_with('{') => Ok(object.to_owned()),
        _ => Err(CliError::usage(format!("--settings: {text} holds no JSON object"))),
    }
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

fn permission_flags(flags: &RunArgs, folders: &Folders) -> Result<PermissionFlags, CliError> {
    let bypass = flags.dangerously_skip_permissions.then(|| Mode::BypassPermissions.as_str().to_owned());
    let added = flags.add_dir.iter().map(|folder| real_folder(&folders.cwd.join(folder)));
    Ok(PermissionFlags {
        allow: flags.allowed_tools.clone(),
        deny: flags.disallowed_tools.clone(),
        folders: added.collect::<Result<_, _>>()?,
        mode: bypass.or_else(|| flags.permission_mode.clone()),
    })
}

fn mode(loaded: &Loaded, flags: &PermissionFlags) -> Result<Mode, CliError> {
    not_overruled(loaded, "permissions.defaultMode", "the permission mode of the command line", flags.mode.as_deref());
    match &loaded.mode {
        Some(said) => Mode::parse(&said.word).map_err(|error| CliError::usage(format!("{}: {error}", said.by))),
        None => Ok(Mode::default()),
    }
}

/// What a flag says, unless the administrator's file says something else; then that is told.
fn not_overruled<'a>(loaded: &Loaded, key: &str, flag: &str, said: Option<&'a str>) -> Option<&'a str> {
    let (said, file) = (said?, loaded.managed(key));
    if let Some(file) = file {
        output::tell(&format!("lead: warning: {flag} ({said}) does not count: {key} is set by {}", file.display()));
        return None;
    }
    Some(said)
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
pub(super) fn tools(said: &[String]) -> Result<Option<Vec<String>>, CliError> {
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
pub(super) fn playbook_path(name: &str, cwd: &Path) -> String {
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
