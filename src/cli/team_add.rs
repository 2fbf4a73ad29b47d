//! `lead team add` and `lead team adopt`: the lead of a team adds a member or brings one back; a session
//! takes over a team that has no lead.

use clap::Args;
use serde_json::json;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::real_folder;
use super::lookup::{find_session, ours};
use super::options::playbook_path;
use super::output::{self, Output};
use super::prompt;
use super::team_lead::{ask_lead, field, lead_or_advice, member_of, words};
use super::teams::Teams;
use crate::core::ids::AgentId;
use crate::core::limits::{self, deadlines};
use crate::core::team::name::check_member;
use crate::core::text;
use crate::lead::{AddInput, TeamRequest};
use crate::store::runtime::{Registered, find_alive};
use crate::store::session::resolve;
use crate::store::team::TeamError;

/// Arguments of `lead team add`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the member's id. Its team's lead starts it; without a living one nothing is started.\nExit codes: 0 it runs, 1 it did not start, 2 called wrongly, 3 refused, 4 no such team or member."
)]
pub(super) struct AddArgs {
    /// The team
    team: String,
    /// The name it is to have; one that is taken gets a number
    name: String,
    /// What it is to do; `-`: it is read from standard input
    #[arg(required_unless_present = "resume")]
    prompt: Option<String>,
    /// Make it an agent of this type
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "resume")]
    agent_type: Option<String>,
    /// Use this model: an alias, a full id, or playbook:FILE
    #[arg(long, value_name = "MODEL", conflicts_with = "resume")]
    model: Option<String>,
    /// Let it work in this permission mode, such as plan
    #[arg(long, value_name = "MODE", conflicts_with = "resume")]
    mode: Option<String>,
    /// Let it work in this folder instead of the lead's
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    cwd: Option<std::path::PathBuf>,
    /// Bring back the member of this name whose process is gone, with all it knows
    #[arg(long)]
    resume: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lead team adopt`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 taken over, 2 several sessions could, 3 somebody leads it or no session runs, 4 no such team or session."
)]
pub(super) struct AdoptArgs {
    /// The team
    team: String,
    /// The running session that is to lead it; without it the one of this folder
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn add(args: &AddArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "add members to teams")?;
    let team = teams.find(Some(&args.team))?;
    let mut name = args.name.clone();
    if args.resume {
        name = member_of(&team, &name)?.name;
    } else {
        check_member(&name).map_err(TeamError::BadName)?;
    }
    let lead = lead_or_advice(&team, teams)?;
    let input = AddInput {
        team: team.name(),
        name: name.clone(),
        agent_type: args.agent_type.clone(),
        model: args.model.as_deref().map(|model| playbook_path(model.trim(), &teams.folders.cwd)),
        mode: args.mode.clone(),
        cwd: args.cwd.as_deref().map(real_folder).transpose()?.map(|cwd| cwd.to_string_lossy().into_owned()),
        resume: args.resume,
        prompt: said(args.prompt.as_deref())?,
    };
    let patience = deadlines().ready + deadlines().reply;
    let output = ask_lead(&lead.entry.address, &TeamRequest::TeamAdd(input), patience, "the member is not ready")?;
    let got = field(&output, "name").unwrap_or_else(|| name.clone());
    if got != name {
        let told = format!(
            "lead: there is or was a member {name:?}, so this one is {got:?}; --resume brings one back that has ended"
        );
        output::tell(&text::for_terminal(&told));
    }
    let id = field(&output, "agent_id").unwrap_or_default();
    if args.json {
        let number = |key: &str| output.structured.as_ref().and_then(|s| s.get(key)).cloned();
        let files = AgentId::parse(&id).and_then(|id| resolve(&teams.folders.config, &id).ok());
        out.json(&json!({
            "id": id, "name": got, "team": team.name(), "session": field(&output, "session_id"),
            "address": field(&output, "address"), "pid": number("pid"), "backend": field(&output, "backend"),
            "resumed": args.resume, "transcript": files.map(|f| f.transcript().to_owned()),
        }))?;
    } else {
        out.line(&id)?;
    }
    Ok(Exit::Success)
}

fn said(prompt: Option<&str>) -> Result<String, CliError> {
    let said = match prompt {
        None => return Ok(String::new()),
        Some("-") => prompt::promised(limits::PROMPT_BYTES)?.ok_or_else(prompt::too_long)?,
        Some(said) if said.len() > limits::PROMPT_BYTES => return Err(prompt::too_long()),
        Some(said) => said.to_owned(),
    };
    if said.trim().is_empty() {
        return Err(CliError::usage("the prompt is empty"));
    }
    Ok(said)
}

pub(super) fn adopt(args: &AdoptArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "take teams over")?;
    let team = teams.find(Some(&args.team))?;
    if let Some(leader) = team.leader()? {
        let (pid, address) = leader.map(|l| (l.pid, l.address)).unzip();
        return Err(TeamError::Led { team: team.name(), pid, address }.into());
    }
    let lead = match &args.session {
        Some(text) => {
            let (id, _) = find_session(text, teams.folders)?;
            let lead = find_alive(&teams.runtime, |e| e.role == "lead" && e.session == id.as_str())?;
            lead.ok_or(CliError::NoLead(id))?
        }
        None => the_one_here(&team, teams)?,
    };
    let request = TeamRequest::TeamAdopt { team: team.name() };
    // Its members are taken over one after the other.
    let output =
        ask_lead(&lead.entry.address, &request, deadlines().resume, "the session has not taken the team over")?;
    if args.json {
        let members = output.structured.as_ref().and_then(|s| s.get("members")).cloned();
        out.json(&json!({
            "name": team.name(), "session": lead.entry.session, "pid": lead.entry.pid, "members": members,
        }))?;
    } else {
        out.line(&format!("{}  session {}", words(&output), lead.entry.session))?;
    }
    Ok(Exit::Success)
}

/// The session that runs in this folder, if it is the only one.
fn the_one_here(team: &crate::store::team::Team, teams: &Teams<'_>) -> Result<Registered, CliError> {
    let cwd = &teams.folders.cwd;
    let is_here = |r: &Registered| r.alive && r.entry.role == "lead" && std::path::Path::new(&r.entry.cwd) == cwd;
    let mut here: Vec<Registered> = ours(teams.folders, &teams.runtime)?.into_iter().filter(is_here).collect();
    match here.len() {
        1 => Ok(here.remove(0)),
        0 => {
            let session = team.roster().ok().and_then(|roster| roster.head().lead_session_id.clone());
            Err(CliError::NobodyAdopts { team: team.name(), folder: cwd.clone(), session })
        }
        _ => {
            let sessions: Vec<&str> = here.iter().map(|r| r.entry.session.as_str()).collect();
            Err(CliError::usage(format!("several sessions run in {}: {}", cwd.display(), sessions.join(", ")))
                .with_hint("say which is to lead the team with --session"))
        }
    }
}
