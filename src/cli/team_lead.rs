//! Asking the lead of a team for something that only it can do.

use std::time::Duration;

use super::error::CliError;
use super::stop::async_runtime;
use super::teams::Teams;
use crate::core::frame::Frame;
use crate::core::ids::random_uuid;
use crate::core::team::Member;
use crate::core::text;
use crate::lead::{Declined, TeamRequest};
use crate::store::runtime::{Registered, find_alive};
use crate::store::team::{Team, TeamError};
use crate::tool::ToolOutput;
use crate::wire::{WireError, dial_and_greet, parse_address};

/// The living lead of `team`; none if nobody leads it.
pub(super) fn lead_of_team(team: &Team, teams: &Teams<'_>) -> Result<Option<Registered>, CliError> {
    let Some(leader) = team.leader()? else { return Ok(None) };
    let found = match &leader {
        Some(leader) => find_alive(&teams.runtime, |e| e.role == "lead" && e.pid == leader.pid)?,
        None => None,
    };
    // It holds the lock and is not registered: it is just coming or going.
    let busy =
        || CliError::Refused(format!("the lead of team {:?} is just starting or ending; try again", team.name()));
    found.map(Some).ok_or_else(busy)
}

/// The same; that there is none is an error which says who can be.
pub(super) fn lead_or_advice(team: &Team, teams: &Teams<'_>) -> Result<Registered, CliError> {
    match lead_of_team(team, teams)? {
        Some(lead) => Ok(lead),
        None => {
            let session = team.roster().ok().and_then(|roster| roster.head().lead_session_id.clone());
            Err(CliError::NoTeamLead { team: team.name(), session })
        }
    }
}

/// A member of the roster; the error lists those there are.
pub(super) fn member_of(team: &Team, name: &str) -> Result<Member, CliError> {
    let roster = team.roster()?;
    match roster.member(name) {
        Some(member) => Ok(member.clone()),
        None => {
            let members = roster.names().into_iter().map(str::to_owned).collect();
            Err(TeamError::NoMember { name: name.to_owned(), team: roster.head().name.clone(), members }.into())
        }
    }
}

/// Asks a session for `request`; `awaited` says in an error what did not come in time.
pub(super) fn ask_lead(
    address: &str,
    request: &TeamRequest,
    patience: Duration,
    awaited: &str,
) -> Result<ToolOutput, CliError> {
    let (tool, input) = request.to_call();
    let call = Frame::Call { tool, tool_use_id: format!("team_{}", random_uuid()), input };
    let runtime = async_runtime()?;
    let answer = runtime.block_on(async {
        let path = parse_address(address)?;
        let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
        link.request(call, patience).await
    });
    runtime.shutdown_background();
    let output = match answer {
        Ok(Frame::CallResult { text, is_error, structured }) => ToolOutput { text, is_error, structured },
        Ok(Frame::Error { message, .. }) => return Err(CliError::Refused(message)),
        Ok(_) => return Err(WireError::Malformed(format!("{address} answered something else")).into()),
        Err(WireError::TimedOut { .. }) => {
            return Err(CliError::TimedOut { what: awaited.to_owned(), waited: patience });
        }
        Err(error) => return Err(error.into()),
    };
    match Declined::read(&output) {
        None => Ok(output),
        Some(Declined::Usage(why)) => Err(CliError::usage(why)),
        Some(Declined::Refused(why)) => Err(CliError::Refused(why)),
        Some(other) => Err(other.into()),
    }
}

/// A field of an answer, as text.
pub(super) fn field(output: &ToolOutput, name: &str) -> Option<String> {
    output.structured.as_ref()?.get(name)?.as_str().map(str::to_owned)
}

/// The words of an answer, for a person.
pub(super) fn words(output: &ToolOutput) -> String {
    text::for_terminal(&output.text)
}
