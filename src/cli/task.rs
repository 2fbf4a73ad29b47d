//! `lead task`: the task board of a team from a shell. Agents may look; what changes a card they do
//! with their own tools, so they need those to do it here.

use std::io;
use std::pin::pin;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::caller::refuse_agents_without;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::output::{self, Output};
use super::stop::async_runtime;
use super::task_claim;
use super::task_row::{ListRow, TaskRow, owners, render};
use super::task_watch::{self, WatchArgs};
use super::teams::Teams;
use crate::core::team::board::{NewCard, Patch, Updated};
use crate::core::team::{CardId, Status};
use crate::core::text;
use crate::lead::Declined;
use crate::proc::Signals;
use crate::store::team::Team;
use crate::tool::tasks::{Changed, TaskError};

/// Arguments of `lead task`.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 2 called wrongly, 3 refused, 4 no such team, task or member, 5 timed out."
)]
pub(super) struct TaskArgs {
    #[command(subcommand)]
    verb: TaskVerb,
}

#[derive(Debug, Subcommand)]
enum TaskVerb {
    /// Make a task
    Create(CreateArgs),
    /// List all tasks
    List(ListArgs),
    /// Show one task
    Get(GetArgs),
    /// Change a task
    Update(Box<UpdateArgs>),
    /// Take a task that can be begun, for a script
    Claim(ClaimArgs),
    /// Print what changes, a line for each task that did
    Watch(WatchArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// What is to be done, in a few words
    #[arg(long, value_name = "TEXT")]
    subject: String,
    /// What is to be done
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// Have it wait for these tasks (can be repeated)
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', value_parser = card_id)]
    blocked_by: Vec<CardId>,
    /// Keep this JSON object with it
    #[arg(long, value_name = "JSON", value_parser = object)]
    metadata: Option<Metadata>,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct GetArgs {
    /// The number of the task
    #[arg(value_name = "N", value_parser = card_id)]
    task: CardId,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct UpdateArgs {
    /// The number of the task
    #[arg(value_name = "N", value_parser = card_id)]
    task: CardId,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// How far it is; deleted takes it off the board
    #[arg(long, value_parser = ["pending", "in_progress", "completed", "deleted"])]
    status: Option<String>,
    /// The member whose it is, who is told; "" for nobody
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// What is to be done, in a few words
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// What is to be done
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Have these tasks wait for it (can be repeated)
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', value_parser = card_id)]
    add_blocks: Vec<CardId>,
    /// Have it wait for these tasks (can be repeated)
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', value_parser = card_id)]
    add_blocked_by: Vec<CardId>,
    /// Set these keys of what is kept with it, a JSON object; null takes a key out
    #[arg(long, value_name = "JSON", value_parser = object)]
    metadata: Option<Metadata>,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

/// Arguments of `lead task claim`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 it is yours, 3 somebody else's or none can be claimed, 4 unknown, 5 timed out.\nWith --wait 3 means that no task is open any more."
)]
pub(super) struct ClaimArgs {
    /// The number of the task; without it the first that can be begun
    #[arg(value_name = "N", value_parser = card_id)]
    pub task: Option<CardId>,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    pub team: Option<String>,
    /// The script member that takes it
    #[arg(long = "as", value_name = "NAME")]
    pub name: String,
    /// Wait until it can be begun, as long as there is something to wait for
    #[arg(long)]
    pub wait: bool,
    /// Give up waiting after this time, such as 100ms, 20s, 5m, 1h
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// A JSON object from the command line.
#[derive(Clone, Debug)]
struct Metadata(crate::core::team::Object);

fn card_id(text: &str) -> Result<CardId, String> {
    CardId::parse(text).ok_or_else(|| "tasks have numbers, such as 7".to_owned())
}

fn object(text: &str) -> Result<Metadata, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Metadata(object)),
        Ok(_) => Err(r#"a JSON object is needed, such as {"key": "value"}"#.to_owned()),
        Err(error) => Err(format!("no JSON: {error}")),
    }
}

impl TaskArgs {
    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            TaskVerb::Create(args) => args.json,
            TaskVerb::List(args) => args.json,
            TaskVerb::Get(args) => args.json,
            TaskVerb::Update(args) => args.json,
            TaskVerb::Claim(args) => args.json,
            TaskVerb::Watch(args) => args.json,
        }
    }
}

pub(super) fn run(args: &TaskArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let teams = Teams::of(folders)?;
    match &args.verb {
        TaskVerb::Create(args) => create(args, &teams, out),
        TaskVerb::List(args) => list(args, &teams, out),
        TaskVerb::Get(args) => {
            let card = teams.find(args.team.as_deref())?.board().get(args.task)?;
            let row = TaskRow::of(args.task, &card);
            if args.json {
                out.json(&row)?;
            } else {
                row.lines().iter().try_for_each(|line| out.line(line))?;
            }
            Ok(Exit::Success)
        }
        TaskVerb::Update(args) => update(args, &teams, out),
        TaskVerb::Claim(args) => task_claim::run(args, &teams, out),
        TaskVerb::Watch(args) => task_watch::run(args, &teams, out),
    }
}

fn create(args: &CreateArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents_without(&teams.runtime, "TaskCreate", "make tasks without TaskCreate")?;
    let team = teams.find(args.team.as_deref())?;
    let desk = teams.desk(&team, &teams.speaker(&team, None)?);
    check_subject(Some(&args.subject))?;
    let new = NewCard {
        subject: args.subject.clone(),
        description: args.description.clone(),
        active_form: None,
        blocked_by: args.blocked_by.clone(),
        metadata: args.metadata.clone().map(|m| m.0),
    };
    let card = carry_out(|cancel| async move { desk.create(new, &cancel).await })?;
    let id = card.id.ok_or_else(|| CliError::Refused("the new task has no number".to_owned()))?;
    if args.json {
        out.json(&TaskRow::of(id, &card))?;
    } else {
        out.line(&id.to_string())?;
    }
    Ok(Exit::Success)
}

fn check_subject(subject: Option<&str>) -> Result<(), CliError> {
    match subject {
        Some(text) if text.trim().is_empty() => Err(CliError::usage("the subject is empty")),
        _ => Ok(()),
    }
}

fn list(args: &ListArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let team = teams.find(args.team.as_deref())?;
    let listing = owners(&team, teams, |owners| team.board().list(owners))?;
    let rows: Vec<ListRow> = listing.rows.iter().map(|row| ListRow::of(row, &listing.damaged)).collect();
    if args.json {
        out.json(&rows)?;
    } else if rows.is_empty() {
        out.line("there are no tasks")?;
    } else {
        out.text(&render(&rows))?;
    }
    Ok(Exit::Success)
}

fn update(args: &UpdateArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents_without(&teams.runtime, "TaskUpdate", "change tasks without TaskUpdate")?;
    let team = teams.find(args.team.as_deref())?;
    let speaker = teams.speaker(&team, None)?;
    check_subject(args.subject.as_deref())?;
    if args.status.as_deref() == Some("deleted") {
        return delete(args, &team, out);
    }
    let patch = Patch {
        subject: args.subject.clone(),
        description: args.description.clone(),
        active_form: None,
        status: args.status.clone().map(Status::from),
        owner: args.owner.clone(),
        add_blocks: args.add_blocks.clone(),
        add_blocked_by: args.add_blocked_by.clone(),
        metadata: args.metadata.clone().map(|m| m.0),
    };
    if patch == Patch::default() {
        let hint = "say what is to become of it, such as --status completed";
        return Err(CliError::usage("nothing was to be changed").with_hint(hint));
    }
    let (desk, task) = (teams.desk(&team, &speaker), args.task);
    let Changed { updated, untold } = carry_out(|cancel| async move { desk.update(task, patch, &cancel).await })?;
    if let (Some(owner), Some(why)) = (&updated.new_owner, untold) {
        output::tell(&text::for_terminal(&format!("lead: {owner} was not told of it: {why}")));
    }
    print_updated(args.task, &updated, args.json, out)?;
    Ok(Exit::Success)
}

/// Does what may wait for hooks. A signal ends them, and then nothing is done.
fn carry_out<T, F>(work: impl FnOnce(CancellationToken) -> F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, TaskError>>,
{
    let cancel = CancellationToken::new();
    let mut interrupted = None;
    let done = async_runtime()?.block_on(async {
        let listening = Signals::listen().map_err(|source| CliError::System { action: "listen to signals", source });
        let mut signals = listening?;
        let mut work = pin!(work(cancel.clone()));
        loop {
            tokio::select! {
                done = &mut work => return Ok::<_, CliError>(done),
                signal = signals.recv() => {
                    interrupted = Some(signal);
                    cancel.cancel();
                }
            }
        }
    })?;
    done.map_err(|error| match (error, interrupted) {
        (TaskError::Cancelled { .. }, Some(signal)) => Declined::Interrupted(signal).into(),
        (TaskError::Team(error), _) => error.into(),
        (TaskError::Hook { event, words }, _) => CliError::Refused(format!("a {} hook says: {words}", event.as_str())),
        (error @ TaskError::Cancelled { .. }, _) => CliError::Refused(error.to_string()),
        (TaskError::Broken(error), _) => {
            CliError::System { action: "work at the task board", source: io::Error::other(error) }
        }
    })
}

fn print_updated(id: CardId, updated: &Updated, json: bool, out: &mut Output) -> Result<(), CliError> {
    #[derive(Serialize)]
    struct Row {
        #[serde(flatten)]
        task: TaskRow,
        /// Names of the fields that are another now.
        changed: Vec<String>,
    }
    let task = TaskRow::of(id, &updated.card);
    let changed: Vec<String> = updated.fields.iter().map(|field| snake(field)).collect();
    if json {
        return out.json(&Row { task, changed });
    }
    let what = if changed.is_empty() { "nothing changed".to_owned() } else { changed.join(", ") };
    // Whether those it was linked to are done does not stand on it.
    let task = TaskRow { blocked_by: Vec::new(), ..task };
    out.line(&format!("{}  [{what}]", task.line()))
}

/// `blockedBy` as scripts are told of it.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn delete(args: &UpdateArgs, team: &Team, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Deleted {
        id: String,
        deleted: bool,
    }
    team.board().delete(args.task)?;
    if args.json {
        out.json(&Deleted { id: args.task.to_string(), deleted: true })?;
    } else {
        out.line(&format!("#{}  deleted", args.task))?;
    }
    Ok(Exit::Success)
}
