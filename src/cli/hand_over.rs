//! `lead hand-over`: asks a living lead to finish its turn and let its session go, so that another
//! terminal or a newer build resumes it. Its agents go on meanwhile and belong to nobody.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::{find_session, ours};
use super::output::Output;
use crate::core::frame::Frame;
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::paths::SessionFiles;
use crate::store::lock::wait_shared;
use crate::store::runtime::{Registered, find_alive};
use crate::wire::{dial_and_greet, parse_address};

/// Arguments of `lead hand-over`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 handed over, 3 refused, 4 no such session runs, 5 its turn took too long.")]
pub(super) struct HandOverArgs {
    /// The session: its id or the beginning of it
    #[arg(value_name = "SESSION")]
    session: String,
    /// Wait this long for the end of its turn, such as 30s, 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print JSON: the session, who led it, and the agents that wait for the next lead
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &HandOverArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    refuse_agents(&dir, "hand a session over")?;
    let (session, files) = find_session(&args.session, folders)?;
    let lead = find_alive(&dir, |e| e.role == "lead" && e.session == session.as_str())?;
    let lead = lead.ok_or_else(|| CliError::NoLead(session.clone()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::System { action: "start the runtime", source })?;
    let done = runtime.block_on(hand_over(args, &lead, &session, &files));
    // A wait for a lock that nobody needs any more must not hold the exit up.
    runtime.shutdown_background();
    done?;
    let waiting: Vec<AgentId> = ours(folders, &dir)?
        .into_iter()
        .filter(|r| r.alive && r.entry.role != "lead" && r.entry.session == session.as_str())
        .filter_map(|r| AgentId::parse(&r.entry.agent_id))
        .collect();
    if args.json {
        out.json(&json!({"session": session, "pid": lead.entry.pid, "agents": waiting}))?;
    } else {
        let agents = match waiting.len() {
            0 => "no agents wait".to_owned(),
            1 => "1 agent waits".to_owned(),
            n => format!("{n} agents wait"),
        };
        out.line(&format!("{session} is free, {agents}; go on with: lead -p --resume {session}"))?;
    }
    Ok(Exit::Success)
}

async fn hand_over(
    args: &HandOverArgs,
    lead: &Registered,
    session: &SessionId,
    files: &SessionFiles,
) -> Result<(), CliError> {
    let began = Instant::now();
    let path = parse_address(&lead.entry.address).map_err(crate::wire::WireError::from)?;
    let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
    match link.request(Frame::HandOver, deadlines().reply).await? {
        Frame::Done => {}
        Frame::Error { message, .. } => return Err(CliError::Refused(message)),
        _ => return Err(CliError::Refused("the session answered something else".to_owned())),
    }
    link.close();
    let transcript = files.transcript().to_path_buf();
    let gone = tokio::task::spawn_blocking(move || wait_shared(&transcript));
    match tokio::time::timeout(args.timeout.saturating_sub(began.elapsed()), gone).await {
        Ok(Ok(gone)) => Ok(gone?),
        Ok(Err(panic)) => Err(CliError::System { action: "wait for its end", source: std::io::Error::other(panic) }),
        Err(_) => Err(CliError::TimedOut {
            what: format!("session {session} is still in its turn, and is let go at its end,"),
            waited: args.timeout,
        }),
    }
}
