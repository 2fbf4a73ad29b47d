//! `lead team join`: makes a script a member. With a command the membership lasts as long as the
//! command: its place is held by a lock that the command inherits, its signals are handed on, and
//! when it is over its cards are free and its entry is gone.

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::output::{self, Output};
use super::stop::async_runtime;
use super::teams::Teams;
use crate::core::clock;
use crate::core::env;
use crate::core::team::Member;
use crate::core::team::name::check_member;
use crate::core::team::roster::Backend;
use crate::proc::{Signals, StopSignal, signal_name};
use crate::store::team::{Hold, Holder, Team, TeamError};

/// Arguments of `lead team join`.
#[derive(Args, Debug)]
#[command(
    after_help = "With a command: its exit code, or 128 and the number of the signal that ended it.\nWithout: 0 a member now or before, 3 somebody else has the name, 4 no such team."
)]
pub(super) struct JoinArgs {
    /// The team
    team: String,
    /// The name it is to have in the team
    #[arg(long = "as", value_name = "NAME")]
    name: String,
    /// Run this and be a member for as long as it runs; it finds the team's name in LEAD_TEAM
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
    /// Print JSON: one object; nothing but errors if there is a command
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    team: String,
    state: &'static str,
}

/// How one got in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    New,
    /// It had joined before.
    Known,
}

pub(super) fn run(args: &JoinArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents(&teams.runtime, "make scripts members of teams")?;
    check_member(&args.name).map_err(TeamError::BadName)?;
    let team = teams.find(Some(&args.team))?;
    // Whoever joins under this name is alone at it.
    let was = team.holder(&args.name)?;
    let hold = team.hold(&args.name)?;
    let entry = enter(&team, &args.name, was, teams)?;
    let Some((program, arguments)) = args.command.split_first() else {
        hold.end();
        if args.json {
            out.json(&Row { name: &args.name, team: team.name(), state: "external" })?;
        } else {
            out.line(&format!(
                "{}  {}",
                args.name,
                if entry == Entry::New { "joined" } else { "is a member already" }
            ))?;
        }
        return Ok(Exit::Success);
    };
    let mut command = Command::new(program);
    // The block that children inherit has lost its secrets by now.
    command.args(arguments).envs(teams.folders.environment.iter().cloned()).env(env::TEAM, team.name());
    let done = hold.bequeath().map_err(CliError::from).and_then(|()| {
        let runtime = async_runtime()?;
        runtime.block_on(run_command(command, program))
    });
    let how = match &done {
        Ok(status) => ending(*status),
        Err(_) => "did not start".to_owned(),
    };
    let left = leave(&team, &args.name, &how, hold);
    let status = done?;
    left?;
    Ok(Exit::Passed(code_of(status)))
}

/// Enters the script in the roster. What a dead one of this name had begun is free again.
fn enter(team: &Team, name: &str, was: Holder, teams: &Teams<'_>) -> Result<Entry, CliError> {
    let roster = team.roster()?;
    if let Some(member) = roster.member(name) {
        if member.backend() != Backend::External || member.name != name {
            return Err(CliError::Refused(format!("{:?} is a member of team {:?} already", member.name, team.name())));
        }
        if was == Holder::Dead {
            team.board().release(name, &format!("{name} was killed"))?;
        }
        return Ok(Entry::Known);
    }
    let member = Member {
        name: name.to_owned(),
        agent_type: Some("script".to_owned()),
        backend_type: Some("external".to_owned()),
        tmux_pane_id: Some(String::new()),
        cwd: teams.folders.cwd.to_str().map(str::to_owned),
        joined_at: Some(clock::now_ms()),
        subscriptions: Some(Vec::new()),
        ..Member::default()
    };
    let got = team.add_member(&member)?.name;
    if got == name {
        return Ok(Entry::New);
    }
    // Whoever asked for a name goes on to use it.
    team.remove_member(&got)?;
    Err(CliError::Refused(format!(
        "there is mail in team {:?} for another {name:?}, who is no member any more; {got:?} is free",
        team.name()
    )))
}

/// Takes the script out, with its mail, and frees its cards.
fn leave(team: &Team, name: &str, how: &str, hold: Hold) -> Result<(), CliError> {
    // In this order: cards of one who is not in the roster are free for everybody, should this end here.
    let left = match team.remove_member(name) {
        Ok((_, unread)) => {
            if unread > 0 {
                output::tell(&format!("lead: {name} left with {unread} unread messages, which are gone"));
            }
            team.board().release(name, &format!("{name} {how}")).map(drop)
        }
        // Deleted meanwhile, the whole team or only this member.
        Err(TeamError::NoTeam { .. } | TeamError::NoMember { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    hold.end();
    Ok(left?)
}

async fn run_command(mut command: Command, program: &str) -> Result<ExitStatus, CliError> {
    // Before there is a command that a signal would have to be handed to.
    let mut signals = Signals::listen().map_err(|source| CliError::System { action: "listen to signals", source })?;
    let failed = |source| CliError::Program { program: program.to_owned(), source };
    let mut child = command.spawn().map_err(failed)?;
    loop {
        tokio::select! {
            status = child.wait() => return status.map_err(failed),
            signal = signals.recv() => hand_on(signal, &child),
        }
    }
}

/// A Ctrl-C of the terminal has reached the command already.
fn hand_on(signal: StopSignal, child: &Child) {
    let signal = match signal {
        StopSignal::Interrupt if io::stdin().is_terminal() => return,
        StopSignal::Interrupt => Signal::SIGINT,
        StopSignal::Terminate => Signal::SIGTERM,
        StopSignal::Hangup => Signal::SIGHUP,
    };
    // Not reaped yet, so the number is still its own. One that has ended needs none.
    if let Some(pid) = child.id() {
        let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by {}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|n| 128 + n));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        for (raw, code, how) in
            [(0, 0, "exit code 0"), (7 << 8, 7, "exit code 7"), (9, 137, "SIGKILL"), (15, 143, "SIGTERM")]
        {
            let status = ExitStatus::from_raw(raw);
            assert_eq!(code_of(status), code);
            assert!(ending(status).contains(how), "{}", ending(status));
        }
    }
}
