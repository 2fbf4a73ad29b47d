//! What the verbs of teams share: whether there are teams, which one is meant, who acts in it, and
//! which of its members live.

use super::caller::caller;
use super::error::CliError;
use super::folders::Folders;
use super::options;
use crate::core::env;
use crate::core::ids::AgentId;
use crate::core::limits::Durability;
use crate::core::team::roster::{Backend, HEADLESS};
use crate::core::team::{Member, Roster};
use crate::endpoint::Identity;
use crate::proc::pid_with_argument;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::store::team::{Holder, Team, TeamError};

/// The teams of this config folder.
pub(super) struct Teams<'a> {
    pub folders: &'a Folders,
    pub runtime: RuntimeDir,
    pub durability: Durability,
}

/// Whether a member works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its process lives, as far as is known which.
    Running(Option<i32>),
    /// It is a script, of a living command or of none.
    External(Option<i32>),
    /// Its process is gone.
    Gone,
    /// Another program runs it, and nobody can say from outside.
    Unknown,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Running(_) => "running",
            Self::External(_) => "external",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }

    /// Its process.
    pub(super) fn pid(self) -> Option<i32> {
        match self {
            Self::Running(pid) | Self::External(pid) => pid,
            Self::Gone | Self::Unknown => None,
        }
    }
}

/// Who says or does something in a team.
#[derive(Debug)]
pub(super) struct Speaker {
    /// As it stands in `from`.
    pub name: String,
    pub color: Option<String>,
    /// Whether that is a member's name.
    pub is_member: bool,
}

impl<'a> Teams<'a> {
    /// Fails if teams are turned off.
    pub(super) fn of(folders: &'a Folders) -> Result<Self, CliError> {
        let settings = options::load(&folders.cwd, None, folders)?.settings;
        let set = settings.env.get(env::TEAMS_DISABLED).map(String::as_str);
        if set.or_else(|| folders.variable(env::TEAMS_DISABLED)).is_some_and(env::truthy) {
            return Err(CliError::TeamsOff);
        }
        Ok(Self { folders, runtime: folders.open_runtime()?, durability: settings.lead.durability })
    }

    /// The team of this name, else the one this process was started for. None is made up.
    pub(super) fn find(&self, name: Option<&str>) -> Result<Team, CliError> {
        let Some(name) = name.or_else(|| self.folders.variable(env::TEAM)) else {
            let hint = format!("name it with --team, or set {}; `lead team list` lists them", env::TEAM);
            return Err(CliError::usage("no team was named").with_hint(hint));
        };
        Ok(Team::open(&self.folders.config, name, self.durability)?)
    }

    /// Who calls, in `team`: a person is `user` or the script member it names by `--as`, an agent is
    /// itself, whatever it says.
    pub(super) fn speaker(&self, team: &Team, said: Option<&str>) -> Result<Speaker, CliError> {
        let roster = team.roster()?;
        match (caller(&self.runtime), said) {
            (Identity::Agent(agent), said) => self.agent_in(&roster, agent, said),
            (_, Some(said)) => script_named(&roster, said).map(Speaker::of),
            (who, None) => Ok(Speaker { name: who.label(), color: None, is_member: false }),
        }
    }

    fn agent_in(&self, roster: &Roster, agent: AgentId, said: Option<&str>) -> Result<Speaker, CliError> {
        let address = find_alive(&self.runtime, |e| e.agent_id == agent.as_str())?.map(|r| r.entry.address);
        let member = roster.members().find(|m| m.socket.is_some() && m.socket == address);
        match (member, said) {
            (Some(member), Some(said)) if member.name != said => {
                Err(CliError::NotForAgents { agent, what: "act under another name" })
            }
            (Some(member), _) => Ok(Speaker::of(member)),
            (None, Some(_)) => Err(CliError::NotForAgents { agent, what: "act under another name" }),
            (None, None) => Ok(Speaker { name: agent.into(), color: None, is_member: false }),
        }
    }

    /// Whether a member works.
    pub(super) fn state(&self, team: &Team, roster: &Roster, member: &Member) -> Result<State, CliError> {
        let found = |pid: Option<i32>| pid.map_or(State::Gone, |pid| State::Running(Some(pid)));
        if member.backend() == Backend::External {
            return Ok(match team.holder(&member.name)? {
                Holder::Alive(pid) => State::External(pid),
                Holder::Nobody => State::External(None),
                Holder::Dead => State::Gone,
            });
        }
        if member.is_lead() && roster.head().lead.is_some() {
            return Ok(match team.leader()? {
                Some(leader) => State::Running(leader.map(|l| l.pid)),
                None => State::Gone,
            });
        }
        if let Some(address) = &member.socket {
            return Ok(found(find_alive(&self.runtime, |e| e.address == *address)?.map(|r| r.entry.pid)));
        }
        // Of another program. One in a pane says who it is in its arguments, others are in a process
        // that does not.
        let in_pane = member.backend() == Backend::Tmux
            || member.tmux_pane_id.as_deref().is_some_and(|pane| pane.starts_with('%'));
        Ok(match (in_pane, &member.agent_id) {
            (true, Some(id)) => found(pid_with_argument("--agent-id", id)),
            _ => State::Unknown,
        })
    }

    /// For [`Team::life`]: only those are dead of whom that is known.
    pub(super) fn is_alive(&self, team: &Team, member: &Member) -> bool {
        let state = team.roster().map_err(CliError::from).and_then(|roster| self.state(team, &roster, member));
        !matches!(state, Ok(State::Gone))
    }
}

impl Speaker {
    fn of(member: &Member) -> Self {
        Self { name: member.name.clone(), color: member.color.clone(), is_member: true }
    }
}

/// The script member of this name. Nobody acts in the name of a process.
pub(super) fn script_named<'r>(roster: &'r Roster, name: &str) -> Result<&'r Member, CliError> {
    let Some(member) = roster.member(name) else {
        let members = roster.names().into_iter().map(str::to_owned).collect();
        return Err(TeamError::NoMember { name: name.to_owned(), team: roster.head().name.clone(), members }.into());
    };
    match member.backend() {
        Backend::External => Ok(member),
        _ => Err(CliError::Refused(format!(
            "{:?} is no script: nobody else acts in its name; `lead team join {} --as NAME` makes a member for a script",
            member.name,
            roster.head().name
        ))),
    }
}

/// How a member is run, for people.
pub(super) fn backend_shown(member: &Member) -> String {
    match member.backend() {
        Backend::External => "script".to_owned(),
        Backend::Headless if member.socket.is_some() => "process".to_owned(),
        Backend::Headless => HEADLESS.to_owned(),
        Backend::Tmux => format!("tmux {}", member.tmux_pane_id.as_deref().unwrap_or_default()).trim().to_owned(),
        Backend::Other(other) => other.unwrap_or_else(|| "other".to_owned()),
    }
}
