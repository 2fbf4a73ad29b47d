//! `lead agents`: the types of agents that a session started here would have, and where each is from.

use clap::Args;
use serde::Serialize;

use super::error::{CliError, Exit};
use super::folders::Folders;
use super::options;
use super::output::Output;
use super::table::{Align, render};
use crate::core::env;
use crate::permission::{Mode, Policy};
use crate::settings::definitions::{Definition, builtin};
use crate::tool::TOOLS;
use crate::tool::pool::{Restriction, Role, pool};

/// Arguments of `lead agents`.
#[derive(Args, Debug)]
pub(super) struct AgentsArgs {
    /// List what a session in coordinator mode would have
    #[arg(long)]
    coordinator: bool,
    /// Print JSON: an array of objects
    #[arg(long)]
    pub json: bool,
}

/// One type of agent.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    description: String,
    /// Where its definition is from: `built-in`.
    source: &'static str,
    /// What it has when it is started, before rules that deny a whole tool.
    tools: Vec<String>,
    /// As the definition says; none = the model of whoever starts it.
    model: Option<String>,
    /// Its own mode; none = what the lead's becomes.
    permission_mode: Option<String>,
    background: bool,
    max_turns: Option<u32>,
    /// `Bash` runs nothing but commands that read.
    read_only_bash: bool,
    /// The rule that forbids to start it, with its file.
    denied_by: Option<String>,
}

pub(super) fn run(args: &AgentsArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let loaded = options::load(&folders.cwd, None, folders)?;
    let (policy, _) = Policy::new(Mode::Default, &loaded.rules, &folders.cwd, None, folders.home.as_deref(), false);
    let set = |name: &str| {
        let own = loaded.settings.env.get(name).map(String::as_str);
        own.or_else(|| folders.variable(name)).is_some_and(env::truthy)
    };
    let simple = set(env::SIMPLE);
    let definitions = builtin(args.coordinator, set(env::DISABLE_BUILTIN_AGENTS));
    let rows: Vec<Row> = definitions.into_iter().map(|d| row(d, args.coordinator, simple, &policy)).collect();
    if args.json {
        out.json(&rows)?;
    } else if rows.is_empty() {
        out.line(&format!("there are no types of agents: {} is set", env::DISABLE_BUILTIN_AGENTS))?;
    } else {
        out.text(&table(&rows))?;
    }
    Ok(Exit::Success)
}

fn row(definition: Definition, coordinator: bool, simple: bool, policy: &Policy) -> Row {
    let role = match coordinator {
        true => Role::CoordinatorWorker { simple },
        false if definition.background => Role::AsyncWorker,
        false => Role::SyncWorker,
    };
    let restriction = Restriction { tools: definition.tools.as_deref(), disallowed: &definition.disallowed_tools };
    let denied = policy.denies_agent_type(&definition.name).map(|rule| format!("{} ({})", rule.rule, rule.source));
    Row {
        tools: pool(role, restriction, &TOOLS),
        denied_by: denied,
        name: definition.name,
        description: definition.description,
        source: "built-in",
        model: definition.model,
        permission_mode: definition.permission_mode,
        background: definition.background || coordinator,
        max_turns: definition.max_turns,
        read_only_bash: definition.read_only_bash,
    }
}

fn table(rows: &[Row]) -> String {
    let columns = [
        ("NAME", Align::Left, 30),
        ("FROM", Align::Left, 40),
        ("MODEL", Align::Left, 30),
        ("MODE", Align::Left, 20),
        ("TOOLS", Align::Left, 80),
        ("NOTES", Align::Left, 80),
    ];
    let cells = rows.iter().map(|row| {
        let or = |value: &Option<String>, without: &str| value.clone().unwrap_or_else(|| without.to_owned());
        let notes = [
            row.background.then(|| "in the background".to_owned()),
            row.read_only_bash.then(|| "Bash only reads".to_owned()),
            row.max_turns.map(|n| format!("at most {n} turns")),
            row.denied_by.as_ref().map(|rule| format!("denied by {rule}")),
        ];
        vec![
            row.name.clone(),
            row.source.to_owned(),
            or(&row.model, "inherited"),
            or(&row.permission_mode, "inherited"),
            row.tools.join(" "),
            notes.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]
    });
    render(&columns, &cells.collect::<Vec<_>>())
}
