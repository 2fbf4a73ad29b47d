//! `lead background`: lets an agent that its lead waits for go on in the background.

use clap::Args;

use super::caller::refuse_agents;
use super::ended::{Fate, Lead, fate, session_of};
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::{Target, find_agent, ours};
use super::output::Output;
use super::stop::async_runtime;
use crate::core::agent::Owner;
use crate::core::frame::Frame;
use crate::core::limits::deadlines;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::wire::{WireError, dial_and_greet, parse_address};

/// Arguments of `lead background`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 it goes on in the background, 3 it is not in the foreground, 4 unknown.")]
pub(super) struct BackgroundArgs {
    /// The agent: its id, the beginning of it, or its name
    agent: String,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &BackgroundArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    refuse_agents(&dir, "move agents")?;
    let target = find_agent(&args.agent, folders, &ours(folders, &dir)?)?;
    let runtime = async_runtime()?;
    runtime.block_on(ask_its_lead(&target, &dir))?;
    if args.json {
        out.json(&serde_json::json!({"id": target.id, "background": true}))?;
    } else {
        out.line(&format!("{}  goes on in the background", target.id))?;
    }
    Ok(Exit::Success)
}

async fn ask_its_lead(target: &Target, dir: &RuntimeDir) -> Result<(), CliError> {
    let id = &target.id;
    let lead = match session_of(&target.files) {
        Some(session) => find_alive(dir, |e| e.role == "lead" && e.session == session.as_str())?,
        None => None,
    };
    let Some(lead) = lead else { return Err(without_lead(target, dir)?) };
    let path = parse_address(&lead.entry.address).map_err(WireError::from)?;
    let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
    match link.request(Frame::Background { id: id.clone() }, deadlines().reply).await? {
        Frame::Done => Ok(()),
        Frame::Error { message, .. } => Err(CliError::Refused(message)),
        _ => Err(WireError::Malformed("the lead answered something else".to_owned()).into()),
    }
}

/// What an agent is that no lead waits for.
fn without_lead(target: &Target, dir: &RuntimeDir) -> Result<CliError, CliError> {
    let id = target.id.clone();
    Ok(match fate(target, dir, Lead::IsOut)? {
        Fate::Ended(outcome) => CliError::NotRunning { id, status: outcome.status },
        Fate::NeverStarted => CliError::NeverStarted(id),
        Fate::Running => {
            let found = find_alive(dir, |e| e.agent_id == id.as_str())?;
            let owner = found.and_then(|r| r.state).map(|s| s.owner);
            let what = if owner == Some(Owner::Lost) { "an orphan" } else { "detached" };
            CliError::Refused(format!("{id} is {what}: no lead waits for it, so it is in the background already"))
        }
    })
}
