//! What the main conversation is told and may use: prompt and tools by mode (spec 1.5, 2.6).

use std::path::Path;
use std::sync::Arc;

use super::knowledge::Known;
use super::options::SessionOptions;
use super::structured::StructuredOutput;
use crate::agent::{Toolbox, coordinator_prompt, main_prompt, team_context, workers_context};
use crate::core::env;
use crate::core::message::Caller;
use crate::endpoint::{Equipment, toolbox};
use crate::permission::Mode;
use crate::settings::definitions::{Definition, builtin};
use crate::tool::agents::AgentTool;
use crate::tool::pool::{Restriction, Role, pool};
use crate::tool::{TEAM_TOOLS, TOOLS};

/// Prompt, tools and name of the main conversation in one mode.
pub(super) struct MainRole {
    pub caller: Caller,
    pub system: String,
    pub toolbox: Toolbox,
}

/// A variable of the session's environment.
pub(super) fn variable<'a>(options: &'a SessionOptions, name: &str) -> Option<&'a str> {
    options.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
}

fn truthy(options: &SessionOptions, name: &str) -> bool {
    variable(options, name).is_some_and(env::truthy)
}

/// Whether nothing may go to the background.
pub(super) fn background_disabled(options: &SessionOptions) -> bool {
    truthy(options, env::DISABLE_BACKGROUND)
}

/// Whether workers have the small set of tools.
pub(super) fn simple(options: &SessionOptions) -> bool {
    truthy(options, env::SIMPLE)
}

/// Whether a session can have a team.
pub(super) fn teams_enabled(options: &SessionOptions) -> bool {
    !truthy(options, env::TEAMS_DISABLED)
}

/// The types of agents of this session.
pub(super) fn definitions(options: &SessionOptions, coordinator: bool) -> Vec<Definition> {
    builtin(coordinator, truthy(options, env::DISABLE_BUILTIN_AGENTS))
}

/// Puts the main conversation's role together.
pub(super) fn main_role(
    options: &SessionOptions,
    equipment: &Equipment<'_>,
    known: &Known,
    coordinator: bool,
    scratchpad: Option<&Path>,
    structured: Option<StructuredOutput>,
) -> MainRole {
    let policy = equipment.policy;
    let definitions = definitions(options, coordinator);
    let role = if coordinator { Role::Coordinator } else { Role::Main };
    let restriction = Restriction { tools: options.tools.as_deref(), disallowed: &[] };
    let mut names = pool(role, restriction, &TOOLS);
    let now = policy.get();
    names.retain(|name| now.denies_tool(name).is_none());
    names.retain(|name| options.mode == Mode::Plan || name != "ExitPlanMode");
    names.retain(|name| teams_enabled(options) || !TEAM_TOOLS.contains(&name.as_str()));
    let types: Vec<(String, String)> = definitions
        .iter()
        .filter(|d| now.denies_agent_type(&d.name).is_none())
        .map(|d| (d.name.clone(), d.description.clone()))
        .collect();
    let mut toolbox = toolbox(&names, equipment, || AgentTool {
        types: types.clone(),
        always_background: coordinator,
        background_allowed: !background_disabled(options),
        teammates: teams_enabled(options) && !coordinator,
    });
    if let Some(structured) = structured {
        toolbox = toolbox.with(Arc::new(structured));
    }
    let mut system = match &options.system_prompt {
        Some(replaced) => replaced.clone(),
        None if coordinator => coordinator_prompt(&options.cwd, simple(options)),
        None => main_prompt(&options.cwd),
    };
    if coordinator {
        let workers = pool(Role::CoordinatorWorker { simple: simple(options) }, Restriction::default(), &TOOLS);
        system.push_str(&workers_context(&workers, &[], scratchpad));
    } else if let Some(folder) = scratchpad {
        system.push_str(&scratchpad_note(folder));
    }
    if names.iter().any(|name| name == "TeamCreate") {
        system.push_str(team_context());
    }
    system.push_str(&known.prompt(&known.knowledge, &names));
    if let Some(appended) = &options.append_system_prompt {
        system.push('\n');
        system.push_str(appended);
    }
    let agent_type = if coordinator { "coordinator" } else { "main" };
    let caller = Caller { role: "lead".to_owned(), agent_type: agent_type.to_owned(), name: String::new() };
    MainRole { caller, system, toolbox }
}

/// What an agent is told about the folder it shares with the others of its session.
pub(super) fn scratchpad_note(folder: &Path) -> String {
    format!(
        "\nScratchpad: {} - shared by all agents of this session; reading and writing there needs no permission.\n",
        folder.display()
    )
}

/// What an agent is told that may run commands in the background.
pub(super) const BACKGROUND_NOTE: &str = "A message that opens with `<task-notification>` is the system's signal that a \
background command of yours ended; nobody typed it. Your answer counts once none of them runs any more.\n";

/// The whole system prompt of an agent: its type's prompt, then where it is.
pub(super) fn agent_prompt(definition_prompt: &str, cwd: &Path, scratchpad: Option<&Path>) -> String {
    let mut text = format!("{definition_prompt}\n\nWorking folder: {}\n", cwd.display());
    if let Some(folder) = scratchpad {
        text.push_str(&scratchpad_note(folder));
    }
    text
}
