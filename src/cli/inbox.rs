//! `lead inbox`: a mailbox of a team from a shell. Looking changes nothing; what is marked read is
//! marked when it is printed, and only for scripts: a process records what it reads before.

use std::collections::HashSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::output::{self, Output};
use super::team_send::rescued;
use super::teams::{Teams, script_named};
use super::vigil::{Vigil, Woken, deadline_in};
use crate::core::clock::parse_iso;
use crate::core::team::Mail;
use crate::core::team::protocol::Content;
use crate::core::text;
use crate::store::atomic::create_private_dir;
use crate::store::team::mailbox::Seen;
use crate::store::team::{Mailbox, Team};

/// Arguments of `lead inbox`.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 3 refused, 4 no such team or member, 5 timed out."
)]
pub(super) struct InboxArgs {
    #[command(subcommand)]
    verb: InboxVerb,
}

#[derive(Debug, Subcommand)]
enum InboxVerb {
    /// Print the messages of a member
    Read(ReadArgs),
    /// Print messages that are not read, and go on with those that come
    Watch(WatchArgs),
    /// Drop what need not be kept of messages that are read
    Compact(CompactArgs),
}

#[derive(Args, Debug)]
struct ReadArgs {
    /// The member
    name: String,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Only those that are not read
    #[arg(long)]
    unread: bool,
    /// Mark read what is printed; for scripts' mailboxes
    #[arg(long)]
    mark: bool,
    /// Print JSON: an array with a row for each
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 the team was deleted, 3 refused, 4 no such team or member, 5 timed out.")]
struct WatchArgs {
    /// The member
    name: String,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Mark read what is printed; for scripts' mailboxes
    #[arg(long)]
    mark: bool,
    /// End after this time, such as 100ms, 20s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Print JSON: an object on each line
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct CompactArgs {
    /// The member
    name: String,
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

impl InboxArgs {
    /// Whether JSON is wanted.
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            InboxVerb::Read(args) => args.json,
            InboxVerb::Watch(args) => args.json,
            InboxVerb::Compact(args) => args.json,
        }
    }
}

/// A message.
#[derive(Debug, Serialize)]
struct Row<'a> {
    from: &'a str,
    text: &'a str,
    summary: Option<&'a str>,
    color: Option<&'a str>,
    /// Absent: the sender did not say when.
    sent_ms: Option<u64>,
    read: bool,
    msg_id: Option<&'a str>,
    /// The type of a message between runtimes; absent for what is said.
    protocol: Option<String>,
}

impl<'a> Row<'a> {
    fn of(mail: &'a Mail) -> Self {
        let protocol = match Content::of(&mail.text) {
            Content::Protocol(protocol) => Some(protocol.kind().to_owned()),
            Content::Broken { kind, .. } => Some(kind),
            Content::Plain | Content::Unknown(_) => None,
        };
        Self {
            from: &mail.from,
            text: &mail.text,
            summary: mail.summary.as_deref(),
            color: mail.color.as_deref(),
            sent_ms: parse_iso(&mail.timestamp),
            read: mail.read,
            msg_id: mail.msg_id.as_deref(),
            protocol,
        }
    }

    /// For people: who, when, what. Messages between runtimes are nobody's chat.
    fn lines(&self, mail: &Mail) -> String {
        let time = if mail.timestamp.is_empty() { "?" } else { &mail.timestamp };
        let head = format!("{}  {}", text::one_line(time, 40), text::one_line(self.from, 80));
        if let Some(kind) = &self.protocol {
            return format!("{head}  [{kind}]");
        }
        let said = text::for_terminal(self.text);
        match said.trim_end().contains('\n') {
            false => format!("{head}  {}", said.trim_end()),
            true => format!("{head}\n    {}", said.trim_end().replace('\n', "\n    ")),
        }
    }
}

pub(super) fn run(args: &InboxArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let teams = Teams::of(folders)?;
    match &args.verb {
        InboxVerb::Read(args) => read(args, &teams, out),
        InboxVerb::Watch(args) => watch(args, &teams, out),
        InboxVerb::Compact(args) => compact(args, &teams, out),
    }
}

/// Refuses to mark mail that its reader has not recorded.
fn check_mark(team: &Team, name: &str, teams: &Teams<'_>) -> Result<(), CliError> {
    refuse_agents(&teams.runtime, "mark mail in a mailbox from a shell")?;
    script_named(&team.roster()?, name).map(drop)
}

fn read(args: &ReadArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let team = teams.find(args.team.as_deref())?;
    let mailbox = team.mailbox(&args.name)?;
    if args.mark {
        check_mark(&team, mailbox.name(), teams)?;
        // What can be marked has an id from here on.
        tell_of(&mailbox.unread()?);
    }
    let seen = mailbox.look()?;
    tell_of(&seen);
    let shown: Vec<&Mail> = seen.mail.iter().filter(|mail| !args.unread || !mail.read).collect();
    if args.json {
        out.json(&shown.iter().map(|mail| Row::of(mail)).collect::<Vec<_>>())?;
    } else {
        shown.iter().try_for_each(|mail| out.line(&Row::of(mail).lines(mail)))?;
    }
    if args.mark {
        mark(&mailbox, shown.iter().copied(), out)?;
    }
    Ok(Exit::Success)
}

/// Marks what was printed, once it is out.
fn mark<'m>(mailbox: &Mailbox, shown: impl Iterator<Item = &'m Mail>, out: &mut Output) -> Result<(), CliError> {
    out.flush()?;
    let ids: Vec<&str> = shown.filter(|mail| !mail.read).filter_map(|mail| mail.msg_id.as_deref()).collect();
    if !ids.is_empty() {
        mailbox.mark(&ids)?;
    }
    Ok(())
}

fn tell_of(seen: &Seen) {
    if let Some(rescue) = &seen.rescue {
        output::tell(&rescued(rescue));
    }
    for bad in &seen.bad {
        let said = format!("lead: entry {} is no message ({}): {}", bad.index, bad.reason, bad.excerpt);
        output::tell(&text::one_line(&said, 300));
    }
}

fn watch(args: &WatchArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let team = teams.find(args.team.as_deref())?;
    let mailbox = team.mailbox(&args.name)?;
    if args.mark {
        check_mark(&team, mailbox.name(), teams)?;
    }
    let deadline = deadline_in(args.timeout);
    if !team.inboxes().is_dir() {
        // Another program's team, in which nobody has got mail yet.
        create_private_dir(&team.inboxes())?;
    }
    let mut vigil = Vigil::over(&team.inboxes())?;
    let mut printed: HashSet<String> = HashSet::new();
    let mut told = HashSet::new();
    loop {
        let seen = mailbox.unread()?;
        if told.insert((seen.bad.len(), seen.rescue.is_some())) {
            tell_of(&seen);
        }
        let id = |mail: &Mail| mail.msg_id.clone().unwrap_or_default();
        let new: Vec<&Mail> = seen.mail.iter().filter(|mail| !printed.contains(&id(mail))).collect();
        for mail in &new {
            if args.json {
                out.json(&Row::of(mail))?;
            } else {
                out.line(&Row::of(mail).lines(mail))?;
            }
        }
        out.flush()?;
        if args.mark {
            mark(&mailbox, new.iter().copied(), out)?;
        }
        // Only what may come again is remembered.
        printed = seen.mail.iter().map(id).collect();
        match vigil.wait(deadline)? {
            Woken::Changed => {}
            Woken::TimedOut => return Ok(Exit::TimedOut),
            Woken::Gone => {
                output::tell(&format!("lead: the team {} was deleted", team.folder()));
                return Ok(Exit::Success);
            }
        }
    }
}

fn compact(args: &CompactArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct Compacted<'a> {
        name: &'a str,
        dropped: usize,
        kept: usize,
    }
    refuse_agents(&teams.runtime, "compact mailboxes")?;
    let mailbox = teams.find(args.team.as_deref())?.mailbox(&args.name)?;
    let dropped = mailbox.compact()?;
    let kept = mailbox.look()?.mail.len();
    if args.json {
        out.json(&Compacted { name: mailbox.name(), dropped, kept })?;
    } else {
        out.line(&format!("{}  {dropped} dropped, {kept} kept", text::one_line(mailbox.name(), 80)))?;
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> String {
        let mail: Mail = serde_json::from_value(serde_json::json!({"from": "api", "text": text})).unwrap();
        Row::of(&mail).lines(&mail)
    }

    #[test]
    fn messages_between_runtimes_are_one_line_and_words_are_shown() {
        assert_eq!(lines("done\u{1b}[2J\n"), "?  api  done[2J");
        assert_eq!(lines("one\ntwo"), "?  api\n    one\n    two");
        assert_eq!(lines(r#"{"type":"idle_notification","from":"api","result":"x"}"#), "?  api  [idle_notification]");
        assert_eq!(lines(r#"{"type":"shutdown_request"}"#), "?  api  [shutdown_request]", "one that lacks its id");
        assert_eq!(lines(r#"{"type":"mine"}"#), r#"?  api  {"type":"mine"}"#);
    }
}
