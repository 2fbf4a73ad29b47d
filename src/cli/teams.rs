//! What the verbs of teams share: whether there are teams, which one is meant, who acts in it, and
//! which of its members live.

use std::path::PathBuf;

use super::caller::caller;
use super::error::CliError;
use super::folders::Folders;
use super::options;
use super::output;
use crate::core::env;
use crate::core::hook::HookSet;
use crate::core::ids::AgentId;
use crate::core::limits::Durability;
use crate::core::team::roster::{Backend, HEADLESS};
use crate::core::team::{Member, Roster};
use crate::core::text;
pub(super) use crate::endpoint::MemberState as State;
use crate::endpoint::{Identity, alive_test, member_state};
use crate::hook::{HookPlace, Hooks};
use crate::permission::Mode;
use crate::settings::Loaded;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::store::team::{Team, TeamError};
use crate::tool::tasks::TaskDesk;

/// The teams of this config folder.
pub(super) struct Teams<'a> {
    pub folders: &'a Folders,
    pub runtime: RuntimeDir,
    pub durability: Durability,
    /// The user's.
    hooks: HookSet,
    hook_warnings: Vec<String>,
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
        let Loaded { settings, hook_warnings, .. } = options::load(&folders.cwd, None, folders)?;
        let set = settings.env.get(env::TEAMS_DISABLED).map(String::as_str);
        if set.or_else(|| folders.variable(env::TEAMS_DISABLED)).is_some_and(env::truthy) {
            return Err(CliError::TeamsOff);
        }
        let (durability, hooks) = (settings.lead.durability, settings.hooks);
        Ok(Self { folders, runtime: folders.open_runtime()?, durability, hooks, hook_warnings })
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
        Ok(member_state(&self.runtime, team, roster, member)?)
    }

    /// For [`Team::life`]: only those are dead of whom that is known.
    pub(super) fn is_alive(&self, team: &Team, member: &Member) -> bool {
        alive_test(&self.runtime, team)(member)
    }

    /// The board of a team, for whoever calls. What is wrong with the user's hooks is told.
    pub(super) fn desk(&self, team: &Team, speaker: &Speaker) -> TaskDesk {
        let warnings = self.hook_warnings.iter();
        warnings.for_each(|warning| output::tell(&text::for_terminal(&format!("lead: warning: {warning}"))));
        let place = HookPlace {
            session: self.folders.variable(env::SESSION_ID).unwrap_or_default().to_owned(),
            transcript: PathBuf::new(),
            cwd: self.folders.cwd.clone(),
            permission_mode: Mode::default().as_str().to_owned(),
        };
        // Nobody's, as far as models are concerned: what a tool's shell has, its hooks may have.
        let vars = self.folders.environment.iter().filter(|(name, _)| !env::MODEL_CREDENTIALS.contains(&name.as_str()));
        TaskDesk {
            board: team.board(),
            team: Some(team.clone()),
            me: speaker.name.clone(),
            colour: speaker.color.clone(),
            is_lead: !speaker.is_member,
            hooks: Hooks::new(self.hooks.clone(), place, vars.cloned().collect()),
            nudge: false,
            is_alive: alive_test(&self.runtime, team),
        }
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
        _ if member.is_lead() => "lead".to_owned(),
        Backend::External => "script".to_owned(),
        Backend::Headless if member.socket.is_some() => "process".to_owned(),
        Backend::Headless => HEADLESS.to_owned(),
        Backend::Tmux => format!("tmux {}", member.tmux_pane_id.as_deref().unwrap_or_default()).trim().to_owned(),
        Backend::Other(other) => other.unwrap_or_else(|| "other".to_owned()),
    }
}
