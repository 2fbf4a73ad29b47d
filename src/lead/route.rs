//! What an `Agent` call becomes (spec 1.2): a pure decision, or a refusal in words a model can act
//! on. Nothing is ever silently changed.

use std::path::PathBuf;

use crate::core::env;
use crate::core::ids::check_name;
use crate::core::limits;
use crate::permission::Policy;
use crate::settings::definitions::{Definition, default_type, find};
use crate::settings::models::{ChildModel, ModelTable, Provider, ResolvedModel, child_model};
use crate::tool::agents::AgentInput;
use crate::tool::pool::Role;

/// How the caller gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// As the call's result.
    Sync,
    /// Later, as a notification.
    Async,
}

/// An agent to start.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub route: Route,
    pub role: Role,
    pub definition: Definition,
    pub model: ResolvedModel,
    pub cwd: PathBuf,
    pub name: Option<String>,
    pub description: String,
    pub prompt: String,
    /// What the person says of an agent besides; nothing in a model's call.
    pub bounds: Bounds,
}

/// What the person alone says of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The only tools of its pool that it has; none = all.
    pub tools: Option<Vec<String>>,
    /// Most model replies of a run.
    pub max_turns: Option<u32>,
}

/// What the decision depends on.
pub(super) struct Context<'a> {
    pub coordinator: bool,
    pub simple: bool,
    pub background_disabled: bool,
    pub definitions: &'a [Definition],
    pub policy: &'a Policy,
    pub model: &'a ResolvedModel,
    pub models: &'a ModelTable,
    pub model_variable: Option<&'a str>,
    pub cwd: &'a std::path::Path,
    /// The living agent of a name, if there is one.
    pub name_taken: &'a dyn Fn(&str) -> Option<String>,
}

/// Decides.
pub(super) fn plan(input: AgentInput, context: &Context<'_>) -> Result<Plan, String> {
    if input.prompt.trim().is_empty() {
        return Err("the prompt is empty; the agent sees nothing else, so write the whole task into it".to_owned());
    }
    if input.prompt.len() > limits::PROMPT_BYTES {
        return Err(format!(
            "the prompt has {} bytes, the limit is {}; write it to a file and name the file",
            input.prompt.len(),
            limits::PROMPT_BYTES
        ));
    }
    if let Some(team) = &input.team_name {
        return Err(match (context.coordinator, &input.name) {
            (true, Some(_)) => {
                "a coordinator has no teammates: leave team_name out and continue workers by id with SendMessage"
                    .to_owned()
            }
            _ => format!("there is no team {team:?}; leave team_name out to start a subagent"),
        });
    }
    if input.mode.is_some() {
        return Err("mode is for teammates, and there is no team; a subagent's mode follows from yours".to_owned());
    }
    match input.isolation.as_deref() {
        None => {}
        Some(other) => {
            return Err(format!(
                "isolation {other:?} is not available; leave it out, or start a worktree yourself and pass its folder as cwd"
            ));
        }
    }
    if let Some(name) = &input.name {
        check_name(name)?;
        if let Some(id) = (context.name_taken)(name) {
            return Err(format!(
                "the name {name:?} belongs to {id}, which still runs; choose another, or SendMessage to it"
            ));
        }
    }
    let wanted = input.subagent_type.as_deref().unwrap_or_else(|| default_type(context.coordinator));
    if wanted == "fork" {
        return Err("forks are not available here; name one of the types on offer".to_owned());
    }
    let definition = find(context.definitions, wanted).map_err(|e| e.to_string())?;
    if let Some(rule) = context.policy.denies_agent_type(&definition.name) {
        return Err(format!("agents of type {:?} are denied by rule {} ({})", definition.name, rule.rule, rule.source));
    }
    let background = input.run_in_background == Some(true) || context.coordinator || definition.background;
    if background && context.background_disabled {
        return Err(format!(
            "{} is set, so nothing runs in the background; leave run_in_background out",
            env::DISABLE_BACKGROUND
        ));
    }
    let route = if background { Route::Async } else { Route::Sync };
    let role = match route {
        _ if context.coordinator => Role::CoordinatorWorker { simple: context.simple },
        Route::Async => Role::AsyncWorker,
        Route::Sync => Role::SyncWorker,
    };
    let said = ChildModel {
        env: context.model_variable,
        call: input.model.as_deref().filter(|_| !context.coordinator),
        definition: definition.model.as_deref(),
    };
    let mut model = child_model(said, context.model, context.models).map_err(|e| e.to_string())?;
    // A playbook's file is named from here; the agent may work elsewhere.
    let book = context.cwd.join(&model.id);
    if model.provider == Provider::Playbook && book.is_file() {
        model.id = book.to_string_lossy().into_owned();
    }
    let cwd = match &input.cwd {
        None => context.cwd.to_path_buf(),
        Some(folder) => {
            let folder = context.cwd.join(folder);
            folder.canonicalize().ok().filter(|f| f.is_dir()).ok_or_else(|| {
                format!("cwd {} is not a folder that exists; yours is {}", folder.display(), context.cwd.display())
            })?
        }
    };
    Ok(Plan {
        route,
        role,
        definition: definition.clone(),
        model,
        cwd,
        name: input.name,
        description: input.description,
        prompt: input.prompt,
        bounds: Bounds::default(),
    })
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
