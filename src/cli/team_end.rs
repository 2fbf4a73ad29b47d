//! `lead team shutdown`, `kill`, `hide`, `unhide`: the end of a member, asked for or forced, and its
//! pane. The team's lead does it; where there is none, the request goes by mail and a kill is done here.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::caller::refuse_agents;
use super::error::{CliError, Exit, with_causes};
use super::lookup::{find_agent, ours};
use super::output::{self, Output};
use super::stop::{How, Stop, async_runtime};
use super::team_lead::{ask_lead, field, lead_of_team, lead_or_advice, member_of, words};
use super::teams::{State, Teams};
use crate::core::clock;
use crate::core::ids::random_uuid;
use crate::core::limits::deadlines;
use crate::core::team::payload::ShutdownRequest;
use crate::core::team::roster::Backend;
use crate::core::team::{Letter, Member, Protocol};
use crate::core::text;
use crate::lead::TeamRequest;
use crate::store::team::Team;

/// Who is meant.
#[derive(Args, Debug)]
pub(super) struct MemberArgs {
    /// The member
    name: String,
    /// Its team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lead team shutdown`.
#[derive(Args, Debug)]
#[command(
    after_help = "The member's model answers. One that says no goes on; `lead team kill` is the force.\nExit codes: 0 it ended (without a lead: it was asked by mail), 3 it refused or is not running, 4 unknown, 5 no answer in time."
)]
pub(super) struct ShutdownArgs {
    #[command(flatten)]
    pub member: MemberArgs,
    /// Tell it why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait this long for its answer, such as 30s
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Arguments of `lead team kill`.
#[derive(Args, Debug)]
#[command(
    after_help = "It stays in the roster, its cards are free; `lead team add TEAM NAME --resume` brings it back.\nExit codes: 0 it is gone, 3 not running, 4 unknown, 5 still there when the time was over."
)]
pub(super) struct KillArgs {
    #[command(flatten)]
    pub member: MemberArgs,
    /// Wait this long for its end, such as 20s
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Arguments of `lead team hide` and `unhide`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 done, 3 it has no pane or its team no lead, 4 unknown.")]
pub(super) struct PaneArgs {
    #[command(flatten)]
    pub member: MemberArgs,
}

impl MemberArgs {
    fn find(&self, teams: &Teams<'_>) -> Result<(Team, Member), CliError> {
        let team = teams.find(self.team.as_deref())?;
        let member = member_of(&team, &self.name)?;
        if member.is_lead() {
            let hint = "`lead hand-over SESSION` lets its session go, `lead team delete` removes the team";
            return Err(CliError::usage(format!("{} is the lead of the team", member.name)).with_hint(hint));
        }
        Ok((team, member))
    }
}

pub(super) fn shutdown(args: &ShutdownArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "end members of teams")?;
    let (team, member) = args.member.find(teams)?;
    refuse_if_gone(&team, &member, teams)?;
    let lead = match member.backend() {
        // Scripts need not answer.
        Backend::External => None,
        _ => lead_of_team(&team, teams)?,
    };
    let Some(lead) = lead else { return by_mail(args, &team, &member, out) };
    let request =
        TeamRequest::TeamShutdown { team: team.name(), name: member.name.clone(), reason: args.reason.clone() };
    let awaited = format!("{} has not answered", member.name);
    let output = ask_lead(&lead.entry.address, &request, args.timeout, &awaited)?;
    print_end(&output, &member.name, args.member.json, out)
}

/// Asks by mail, where there is no link to ask over.
fn by_mail(args: &ShutdownArgs, team: &Team, member: &Member, out: &mut Output) -> Result<Exit, CliError> {
    let now = clock::now_ms();
    let request = Protocol::ShutdownRequest(ShutdownRequest {
        request_id: format!("shutdown-{now}@{}", member.name),
        from: "user".to_owned(),
        reason: args.reason.clone(),
        timestamp: clock::iso(now),
    });
    let sent = team.send(&Letter {
        to: member.name.clone(),
        from: "user".to_owned(),
        text: request.to_text(),
        summary: None,
        color: None,
        sent_ms: now,
        msg_id: random_uuid(),
    })?;
    let is_process = member.backend() != Backend::External && member.session_id.is_some();
    let note = if is_process {
        "the team has no lead, so the request is in its mailbox; it reads that when a lead has taken the team over, and \
not before: `lead team kill` ends it now"
    } else {
        "the request is in its mailbox"
    };
    if args.member.json {
        out.json(&json!({"name": sent.to, "state": "asked", "message": note}))?;
    } else {
        out.line(&text::for_terminal(&format!("{}: {note}", sent.to)))?;
    }
    Ok(Exit::Success)
}

fn refuse_if_gone(team: &Team, member: &Member, teams: &Teams<'_>) -> Result<(), CliError> {
    match teams.state(team, &team.roster()?, member)? {
        State::Gone => Err(CliError::Refused(format!("{} is not running", member.name))),
        State::Running(_) | State::External(_) | State::Unknown => Ok(()),
    }
}

pub(super) fn kill(args: &KillArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "kill members of teams")?;
    let (team, member) = args.member.find(teams)?;
    if member.backend() == Backend::External {
        return Err(CliError::Refused(format!("{} is a script, and whoever started it ends it", member.name)));
    }
    if member.session_id.is_none() {
        return Err(CliError::Refused(format!("{} is run by another program, which ends it", member.name)));
    }
    refuse_if_gone(&team, &member, teams)?;
    let begun = Instant::now();
    match lead_of_team(&team, teams) {
        Ok(Some(lead)) => {
            let request = TeamRequest::TeamKill { team: team.name(), name: member.name.clone() };
            let patience = args.timeout.min(deadlines().stop_kill + deadlines().reply);
            match ask_lead(&lead.entry.address, &request, patience, "") {
                Ok(output) => return print_end(&output, &member.name, args.member.json, out),
                Err(CliError::Refused(why)) => return Err(CliError::Refused(why)),
                Err(error) => {
                    let why = with_causes(&error);
                    output::tell(&text::for_terminal(&format!(
                        "lead: its lead can't kill it: {why}; going on without"
                    )));
                }
            }
        }
        Ok(None) => {}
        Err(error) => output::tell(&text::for_terminal(&format!("lead: {}", with_causes(&error)))),
    }
    kill_here(&team, &member, args.timeout.saturating_sub(begun.elapsed()), teams)?;
    if args.member.json {
        out.json(&json!({"name": member.name, "state": "ended", "status": "killed"}))?;
    } else {
        out.line(&format!("{} ended; it stays in the roster, its cards are free", member.name))?;
    }
    Ok(Exit::Success)
}

/// Ends a member's process without a lead; roster and board are right after it.
pub(super) fn kill_here(team: &Team, member: &Member, patience: Duration, teams: &Teams<'_>) -> Result<(), CliError> {
    let id = crate::core::ids::AgentId::member(&member.name, team.folder());
    let id = id.ok_or_else(|| CliError::NoAgent(member.name.clone()))?;
    let registered = ours(teams.folders, &teams.runtime)?;
    let target = find_agent(id.as_str(), teams.folders, &registered)?;
    let deadline = Instant::now() + patience;
    let stop = Stop { target, how: How::Kill, dir: teams.runtime.clone(), deadline, waited: patience };
    let runtime = async_runtime()?;
    let ended = runtime.block_on(stop.run());
    runtime.shutdown_background();
    match ended {
        Ok(_) | Err(CliError::NotRunning { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn print_end(output: &crate::tool::ToolOutput, name: &str, json: bool, out: &mut Output) -> Result<Exit, CliError> {
    if json {
        let status = field(output, "status");
        out.json(&json!({
            "name": name, "state": field(output, "state"), "status": status, "error": field(output, "error"),
        }))?;
    } else {
        out.line(&words(output))?;
    }
    Ok(Exit::Success)
}

pub(super) fn show_pane(
    args: &PaneArgs,
    is_shown: bool,
    teams: &Teams<'_>,
    out: &mut Output,
) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "move panes")?;
    let (team, member) = args.member.find(teams)?;
    let lead = lead_or_advice(&team, teams)?;
    let (team, name) = (team.name(), member.name);
    let request = if is_shown { TeamRequest::TeamUnhide { team, name } } else { TeamRequest::TeamHide { team, name } };
    let output = ask_lead(&lead.entry.address, &request, deadlines().resume, "its pane was not moved")?;
    if args.member.json {
        out.json(&output.structured)?;
    } else {
        out.line(&words(&output))?;
    }
    Ok(Exit::Success)
}
