//! `lead team send`: mail from a shell into the mailboxes of a team. Who sends it is decided here,
//! not by who sends; messages between runtimes are not a shell's to send.

use clap::Args;
use serde::Serialize;

use super::caller::refuse_silent_agents;
use super::error::{CliError, Exit, with_causes};
use super::output::{self, Output};
use super::prompt;
use super::send::first_words;
use super::teams::{Speaker, Teams};
use crate::core::clock;
use crate::core::ids::random_uuid;
use crate::core::limits;
use crate::core::team::Letter;
use crate::core::team::protocol::{Content, Role};
use crate::core::team::roster::Directory;
use crate::core::text;
use crate::store::team::mailbox::Rescue;
use crate::store::team::{Team, TeamError};

/// Arguments of `lead team send`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 in the mailbox, 1 not in all of them, 2 too long, 3 refused or full, 4 unknown team or member."
)]
pub(super) struct SendArgs {
    /// A member, team-lead, or `*` for all but the sender
    to: String,
    /// What is said; `-`: it is read from standard input
    message: String,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Send it as this script member instead of as `user`
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Say it in 5 to 10 words, for lists; without it they are taken from the message
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// What became of a message (formats A).
#[derive(Debug, Serialize)]
struct Row {
    /// `delivered`; `refused` if it is in none of several mailboxes, `partial` if not in all.
    outcome: &'static str,
    to: String,
    id: Option<String>,
    message: String,
    from: String,
    msg_id: String,
    delivered: Vec<String>,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Failed {
    name: String,
    error: String,
}

pub(super) fn run(args: &SendArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_silent_agents(&teams.runtime)?;
    let team = teams.find(args.team.as_deref())?;
    let speaker = teams.speaker(&team, args.name.as_deref())?;
    let said = said(&args.message)?;
    let letter = Letter {
        to: args.to.clone(),
        from: speaker.name.clone(),
        summary: Some(args.summary.clone().unwrap_or_else(|| first_words(&said))),
        text: said,
        color: speaker.color.clone(),
        sent_ms: clock::now_ms(),
        msg_id: random_uuid(),
    };
    let row = if args.to == "*" { to_all(&team, letter, &speaker)? } else { to_one(&team, &letter, &speaker)? };
    if args.json {
        out.json(&row)?;
    } else {
        row.failed.iter().for_each(|f| output::tell(&text::for_terminal(&format!("lead: {}: {}", f.name, f.error))));
        out.line(&row.message)?;
    }
    Ok(if row.failed.is_empty() { Exit::Success } else { Exit::Failed })
}

fn to_one(team: &Team, letter: &Letter, speaker: &Speaker) -> Result<Row, CliError> {
    let roster = team.roster()?;
    check_content(letter, speaker, &roster.directory())?;
    let sent = team.send(letter)?;
    tell_rescue(sent.rescue.as_ref());
    Ok(Row {
        outcome: "delivered",
        to: letter.to.clone(),
        id: Some(crate::core::team::name::agent_id(&sent.to, &roster.head().name)),
        message: format!("delivered to {}'s inbox", text::one_line(&sent.to, 80)),
        from: letter.from.clone(),
        msg_id: letter.msg_id.clone(),
        delivered: vec![sent.to],
        failed: Vec::new(),
    })
}

fn to_all(team: &Team, letter: Letter, speaker: &Speaker) -> Result<Row, CliError> {
    let roster = team.roster()?;
    if !matches!(Content::of(&letter.text), Content::Plain | Content::Unknown(_)) {
        return Err(CliError::Refused("a message between runtimes goes to one member, not to all".to_owned()));
    }
    let (mut delivered, mut failed) = (Vec::new(), Vec::new());
    let sender = if speaker.is_member { letter.from.as_str() } else { "" };
    for name in roster.others(sender) {
        match team.send(&Letter { to: name.to_owned(), ..letter.clone() }) {
            Ok(sent) => {
                tell_rescue(sent.rescue.as_ref());
                delivered.push(sent.to);
            }
            // It left just now.
            Err(TeamError::NoMember { .. }) => {}
            Err(error) => failed.push(Failed { name: name.to_owned(), error: with_causes(&error) }),
        }
    }
    let count = delivered.len() + failed.len();
    if count == 0 {
        return Err(CliError::Refused("nobody else is in the team".to_owned()));
    }
    let outcome = match (delivered.len(), failed.len()) {
        (_, 0) => "delivered",
        (0, _) => "refused",
        _ => "partial",
    };
    Ok(Row {
        outcome,
        to: letter.to,
        id: None,
        message: format!("delivered to {} of {count} inboxes", delivered.len()),
        from: letter.from,
        msg_id: letter.msg_id,
        delivered,
        failed,
    })
}

/// What says that it is a message between runtimes has to be one that a script may send.
fn check_content(letter: &Letter, speaker: &Speaker, directory: &Directory) -> Result<(), CliError> {
    let hint = "say it in words";
    match Content::of(&letter.text) {
        Content::Plain | Content::Unknown(_) => Ok(()),
        Content::Broken { kind, reason } => {
            Err(CliError::usage(format!("this is no {kind}: {reason}")).with_hint(hint))
        }
        Content::Protocol(protocol) if !speaker.is_member => Err(CliError::Refused(format!(
            "a {} is a message between runtimes, and only members send them; {hint}",
            protocol.kind()
        ))),
        Content::Protocol(protocol) => {
            let to = directory.find(&letter.to).unwrap_or(&letter.to);
            let role = if crate::core::team::name::same(to, crate::core::team::name::LEAD) {
                Role::Lead
            } else {
                Role::Member
            };
            protocol.may_send(Role::Member, role, to == speaker.name).map_err(CliError::Refused)
        }
    }
}

fn tell_rescue(rescue: Option<&Rescue>) {
    if let Some(rescue) = rescue {
        output::tell(&rescued(rescue));
    }
}

/// What became of a broken mailbox, for people.
pub(super) fn rescued(rescue: &Rescue) -> String {
    let Rescue { moved_to, reason, kept } = rescue;
    let text =
        format!("lead: a broken mailbox ({reason}) is now {}; {kept} of its messages were kept", moved_to.display());
    text::for_terminal(&text)
}

fn said(argument: &str) -> Result<String, CliError> {
    let limit = limits::MAIL_TEXT_BYTES;
    let too_long = |bytes| CliError::Team(TeamError::MailTooLong { bytes, limit });
    let said = match argument {
        // How much more it is nobody has read.
        "-" => prompt::promised(limit)?.ok_or_else(|| too_long(limit + 1))?,
        said if said.len() > limit => return Err(too_long(said.len())),
        said => said.to_owned(),
    };
    if said.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_be_as_long_as_a_mailbox_takes_and_says_something() {
        let longest = "x".repeat(limits::MAIL_TEXT_BYTES);
        assert_eq!(said(&longest).unwrap().len(), limits::MAIL_TEXT_BYTES);
        assert!(said(&format!("{longest}x")).unwrap_err().to_string().contains("65537"));
        assert!(said(" \n").is_err());
    }
}
