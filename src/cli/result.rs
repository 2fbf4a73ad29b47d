//! `lead result`: what an agent answered.

use clap::Args;

use super::ended::{Fate, Lead, fate};
use super::ended_row::EndedRow;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::{Target, find_agent, ours};
use super::output::{self, Output};
use crate::core::agent::{Outcome, RunStatus};
use crate::core::text;
use crate::store::StoreError;
use crate::store::reader::outcomes_since;
use crate::store::session::read_meta;

/// Arguments of `lead result`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 it completed, 1 it failed or was killed, 3 it still runs, 4 unknown.")]
pub(super) struct ResultArgs {
    /// The agent: its id, the beginning of it, or its name if it runs
    agent: String,
    /// Print the result of this run instead of the latest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &ResultArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let runtime = folders.open_runtime()?;
    let target = find_agent(&args.agent, folders, &ours(folders, &runtime)?)?;
    if let Some(run) = args.run
        && let Some(outcome) = recorded(&target, run)?
    {
        return print(&outcome, &target, args.json, out);
    }
    match (fate(&target, &runtime, Lead::MayRecord)?, args.run) {
        (Fate::Ended(outcome), None) => print(&outcome, &target, args.json, out),
        (Fate::Ended(outcome), Some(run)) if outcome.run == run => print(&outcome, &target, args.json, out),
        (Fate::Running, _) => Err(CliError::StillRunning(target.id)),
        (Fate::NeverStarted, _) => Err(CliError::NeverStarted(target.id)),
        (Fate::Ended(_), Some(run)) => Err(CliError::NoRun { id: target.id, run }),
    }
}

fn recorded(target: &Target, run: u32) -> Result<Option<Outcome>, CliError> {
    match outcomes_since(target.files.transcript(), run - 1) {
        Ok(outcomes) => Ok(outcomes.into_iter().find(|o| o.run == run)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn print(outcome: &Outcome, target: &Target, json: bool, out: &mut Output) -> Result<Exit, CliError> {
    if json {
        out.json(&EndedRow::of(outcome, read_meta(&target.files).ok().as_ref()))?;
    } else {
        if let Some(result) = outcome.result.as_deref().filter(|r| !r.is_empty()) {
            out.answer(result)?;
        }
        if outcome.status != RunStatus::Completed {
            let why = outcome.error.as_deref().unwrap_or("no reason was recorded");
            output::tell(&format!("lead: agent {} {}: {}", target.id, outcome.status, text::for_terminal(why)));
        }
    }
    Ok(match outcome.status {
        RunStatus::Completed => Exit::Success,
        RunStatus::Failed | RunStatus::Killed => Exit::Failed,
    })
}
