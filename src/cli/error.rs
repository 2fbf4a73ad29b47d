//! What a command can fail with, and the only place that knows exit codes, error codes and hints
//! (spec 7.1). The matches are exhaustive, so that a new error must choose its code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::agent::RunStatus;
use crate::core::env;
use crate::core::ids::{AgentId, SessionId};
use crate::core::team::Refusal;
use crate::core::text;
pub(super) use crate::core::text::with_causes;
use crate::lead::{Declined, LeadError};
use crate::model::ModelError;
use crate::model::serve::ServeError;
use crate::proc::StopSignal;
use crate::settings::SettingsError;
use crate::settings::models::UnknownModel;
use crate::store::StoreError;
use crate::store::team::TeamError;
use crate::wire::WireError;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// All well.
    Success,
    /// The run failed, an agent failed, or something was found.
    Failed,
    /// It was called wrongly.
    Usage,
    /// What was asked for is not possible now.
    Refused,
    /// What was asked for does not exist.
    NotFound,
    /// It took too long.
    TimedOut,
    /// Nobody reads the output any more.
    ClosedPipe,
    /// A signal ended it.
    Signal(StopSignal),
    /// As a command ended that was run for the caller.
    Passed(u8),
}

impl Exit {
    /// The code for the shell.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::NotFound => 4,
            Self::TimedOut => 5,
            Self::ClosedPipe => 141,
            Self::Signal(signal) => signal.exit_code(),
            Self::Passed(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A command that could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// It was called wrongly.
    #[error("{message}")]
    Usage { message: String, hint: Option<String> },
    /// No model was chosen.
    #[error("no model was chosen")]
    NoModel,
    /// There is no model of this name.
    #[error(transparent)]
    UnknownModel(#[from] UnknownModel),
    /// The settings can't be used.
    #[error("can't use the settings")]
    Settings(#[from] SettingsError),
    /// A folder to work in that is none.
    #[error("can't work in {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// No agent has this id or name.
    #[error("there is no agent {0:?}")]
    NoAgent(String),
    /// No session has this id.
    #[error("there is no session {0:?}")]
    NoSession(String),
    /// No question has this id.
    #[error("no question {0:?} waits for an answer")]
    NoQuestion(String),
    /// No run of this number was recorded.
    #[error("agent {id} has no run {run} with an outcome")]
    NoRun { id: AgentId, run: u32 },
    /// It was recorded and never came to life.
    #[error("agent {0} never started")]
    NeverStarted(AgentId),
    /// Several agents are meant.
    #[error("{text:?} may be any of {}", candidates.join(", "))]
    Ambiguous { text: String, candidates: Vec<String> },
    /// It still works.
    #[error("agent {0} is still running")]
    StillRunning(AgentId),
    /// It has ended already.
    #[error("agent {id} is not running: its last run is {status}")]
    NotRunning { id: AgentId, status: RunStatus },
    /// What was waited for did not come.
    #[error("{what} after {}", humantime::format_duration(*waited))]
    TimedOut { what: String, waited: Duration },
    /// An agent would start a session of its own.
    #[error("agent {0} can't start a session of its own")]
    Nested(AgentId),
    /// An agent asks for what only its lead and the person may do.
    #[error("{agent} is an agent, and agents can't {what}")]
    NotForAgents { agent: AgentId, what: &'static str },
    /// The owner of an agent says no.
    #[error("refused: {0}")]
    Refused(String),
    /// An agent of the person's was not started.
    #[error("the agent was not started: {0}")]
    Declined(#[from] Declined),
    /// Nobody runs the session, so nobody hears what is said to it.
    #[error("session {0} is not running")]
    NoLead(SessionId),
    /// Something of a session lives.
    #[error("session {session} is in use{}", agent.as_ref().map(|id| format!(": agent {id} runs")).unwrap_or_default())]
    SessionLives { session: SessionId, agent: Option<AgentId> },
    /// A playbook is not served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The session did not start.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Nobody leads a team, so nobody starts or asks its members.
    #[error("nobody leads team {team:?}")]
    NoTeamLead { team: String, session: Option<String> },
    /// No running session could take a team over.
    #[error("no session runs in {} that could lead team {team:?}", folder.display())]
    NobodyAdopts { team: String, folder: PathBuf, session: Option<String> },
    /// There are no teams.
    #[error("teams are turned off: {} is set", env::TEAMS_DISABLED)]
    TeamsOff,
    /// A command that a script joins a team with.
    #[error("can't run {program:?}")]
    Program { program: String, source: io::Error },
    /// Something of a team.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// Something on disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something on a socket.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The result can't be written.
    #[error("can't write the output")]
    Output(#[source] io::Error),
    /// The operating system refused something basic.
    #[error("can't {action}")]
    System { action: &'static str, source: io::Error },
}

impl CliError {
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// Adds a hint to a usage error; others have their own.
    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        match self {
            Self::Usage { message, .. } => Self::Usage { message, hint: Some(hint.into()) },
            other => other,
        }
    }

    /// How the program ends with it.
    pub(super) fn exit(&self) -> Exit {
        self.kind().0
    }

    /// Exit and the stable word of JSON errors.
    fn kind(&self) -> (Exit, &'static str) {
        match self {
            Self::Usage { .. } => (Exit::Usage, "usage"),
            Self::NoModel => (Exit::Usage, "no_model"),
            Self::UnknownModel(_) => (Exit::Usage, "unknown_model"),
            Self::Settings(_) => (Exit::Usage, "settings"),
            Self::Folder { .. } => (Exit::Usage, "folder"),
            Self::NoAgent(_) | Self::NoSession(_) | Self::NoQuestion(_) | Self::NoRun { .. } => {
                (Exit::NotFound, "not_found")
            }
            Self::NeverStarted(_) => (Exit::NotFound, "never_started"),
            Self::Ambiguous { .. } => (Exit::Usage, "ambiguous"),
            Self::StillRunning(_) => (Exit::Refused, "running"),
            Self::NotRunning { .. } => (Exit::Refused, "not_running"),
            Self::TimedOut { .. } => (Exit::TimedOut, "timed_out"),
            Self::Nested(_) => (Exit::Refused, "nested_session"),
            Self::NotForAgents { .. } | Self::Refused(_) => (Exit::Refused, "refused"),
            Self::Declined(Declined::Usage(_)) => (Exit::Usage, "usage"),
            Self::Declined(Declined::Refused(_)) => (Exit::Refused, "refused"),
            Self::Declined(Declined::Ending) => (Exit::Refused, "ending"),
            Self::Declined(Declined::Failed(_)) => (Exit::Failed, "launch"),
            Self::Declined(Declined::Interrupted(signal)) => (Exit::Signal(*signal), "interrupted"),
            Self::NoLead(_) => (Exit::Refused, "not_running"),
            Self::SessionLives { .. } => (Exit::Refused, "running"),
            Self::Serve(ServeError::Playbook(_)) => (Exit::Usage, "playbook"),
            Self::Serve(ServeError::Listen { .. }) => (Exit::Refused, "port"),
            Self::Lead(error) => lead_kind(error),
            Self::NoTeamLead { .. } | Self::NobodyAdopts { .. } => (Exit::Refused, "not_running"),
            Self::TeamsOff => (Exit::Refused, "teams_off"),
            Self::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => (Exit::NotFound, "not_found"),
            Self::Program { .. } => (Exit::Failed, "program"),
            Self::Team(error) => team_kind(error),
            Self::Store(error) => store_kind(error),
            Self::Wire(error) => wire_kind(error),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => (Exit::ClosedPipe, "closed_pipe"),
            Self::Output(_) => (Exit::Failed, "output"),
            Self::System { .. } => (Exit::Failed, "system"),
        }
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } => hint.clone(),
            Self::NoModel | Self::Lead(LeadError::Model(ModelError::NoCredentials)) => Some(WAYS_TO_A_MODEL.to_owned()),
            Self::Ambiguous { .. } => Some("use more of the id".to_owned()),
            Self::NoAgent(_) => Some("`lead ps --all` lists all agents of this config folder".to_owned()),
            Self::NoQuestion(_) => Some("`lead permissions list` lists those that wait".to_owned()),
            Self::NoSession(_) => Some("`lead sessions` lists all sessions of this config folder".to_owned()),
            Self::StillRunning(id) => Some(format!("`lead wait {id}` returns when it has ended")),
            Self::Nested(_) => Some("the setting lead.nestedSessions permits it".to_owned()),
            Self::TimedOut { .. } => Some("--timeout sets how long to wait".to_owned()),
            Self::Lead(LeadError::Running { .. }) => Some("`lead ps` shows it; wait for its end, or end it".to_owned()),
            Self::Serve(ServeError::Listen { .. }) => Some("without --port a free one is taken".to_owned()),
            Self::NoRun { id, .. } => Some(format!("`lead result {id}` prints the latest")),
            Self::NotRunning { id, .. } => Some(format!("`lead result {id}` prints what it answered")),
            Self::NoLead(id) => Some(format!("`lead -p --resume {id} \"PROMPT\"` goes on with it")),
            Self::SessionLives { session, agent: None } => {
                Some(format!("`lead ps --session {session}` shows who runs it"))
            }
            Self::SessionLives { agent: Some(id), .. } => Some(format!("`lead stop {id}` ends it")),
            Self::Wire(WireError::Unreachable { .. }) => {
                Some("`lead ps` lists the addresses of all who run".to_owned())
            }
            Self::NoTeamLead { team, session } => Some(format!(
                "`lead team adopt {team}` gives it to a running session, `lead --resume {}` {}",
                session.as_deref().unwrap_or("SESSION"),
                if session.is_some() { "brings its lead back" } else { "starts one" }
            )),
            Self::NobodyAdopts { session, .. } => Some(format!(
                "start one with `lead`, or go on with the lead it had: `lead --resume {}`; --session names one that runs \
elsewhere",
                session.as_deref().unwrap_or("SESSION")
            )),
            Self::TeamsOff => Some(format!("unset {} to have them", env::TEAMS_DISABLED)),
            Self::Team(TeamError::NoTeam { .. }) => Some("`lead team create NAME` makes one".to_owned()),
            Self::Team(TeamError::MailTooLong { .. }) => Some("write it to a file and send the file's path".to_owned()),
            Self::Team(TeamError::Refused(Refusal::NothingToClaim { .. })) => {
                Some("with --wait it waits until one can be claimed".to_owned())
            }
            Self::NeverStarted(_)
            | Self::UnknownModel(_)
            | Self::Settings(_)
            | Self::Folder { .. }
            | Self::NotForAgents { .. }
            | Self::Refused(_)
            | Self::Declined(_)
            | Self::Serve(ServeError::Playbook(_))
            | Self::Lead(_)
            | Self::Program { .. }
            | Self::Team(_)
            | Self::Store(_)
            | Self::Wire(_)
            | Self::Output(_)
            | Self::System { .. } => None,
        }
    }

    /// With its causes and its hint, for a person.
    pub(super) fn for_person(&self) -> String {
        let mut shown = format!("lead: {}", text::for_terminal(&with_causes(self)));
        if let Some(hint) = self.hint() {
            shown.push('\n');
            shown.push_str(&hint);
        }
        shown
    }

    /// For a script.
    pub(super) fn for_script(&self) -> Value {
        json!({"error": {"code": self.kind().1, "message": with_causes(self), "hint": self.hint()}})
    }
}

/// The one screen for whoever has no model yet.
const WAYS_TO_A_MODEL: &str = "\
To see agents at work right now, without any model or key: lead demo

Ways to a model of your own:
  ANTHROPIC_API_KEY=KEY        a key of the Messages API, in the environment
  ANTHROPIC_AUTH_TOKEN=TOKEN   a token in its place, sent as bearer
  ANTHROPIC_BASE_URL=URL       another server of that API; one on this machine needs no key
  --model playbook:FILE        no provider at all: a file says what the model answers
Which model, the first that is there counts:
  --model NAME                 opus, sonnet, haiku, a full id, or playbook:FILE
  `model` in settings.json
  ANTHROPIC_MODEL=NAME         in the environment
`lead doctor` checks credentials and provider without sending a prompt.";

fn lead_kind(error: &LeadError) -> (Exit, &'static str) {
    match error {
        LeadError::Running { .. } => (Exit::Refused, "session_running"),
        LeadError::SessionExists(_) => (Exit::Refused, "session_exists"),
        LeadError::NoSession(_) => (Exit::NotFound, "not_found"),
        LeadError::Usage(_) => (Exit::Usage, "usage"),
        LeadError::WorkingFolder { .. } => (Exit::Usage, "folder"),
        LeadError::Model(ModelError::Unusable(_)) => (Exit::Usage, "model"),
        LeadError::Model(ModelError::NoCredentials) => (Exit::Usage, "credentials"),
        LeadError::Model(
            ModelError::Api { .. }
            | ModelError::Overflow { .. }
            | ModelError::Thoughts { .. }
            | ModelError::NoReply(_)
            | ModelError::Cancelled,
        ) => (Exit::Failed, "model"),
        LeadError::Store(error) => store_kind(error),
        LeadError::Wire(error) => wire_kind(error),
        LeadError::Launch(_) => (Exit::Failed, "launch"),
        LeadError::System { .. } => (Exit::Failed, "system"),
    }
}

fn team_kind(error: &TeamError) -> (Exit, &'static str) {
    match error {
        TeamError::Store(error) => store_kind(error),
        TeamError::Busy { .. } | TeamError::Foreign { .. } | TeamError::Lost { .. } => (Exit::TimedOut, "timed_out"),
        TeamError::BadName(_) => (Exit::Usage, "bad_name"),
        TeamError::NoTeam { .. } | TeamError::Gone { .. } | TeamError::NoMember { .. } => (Exit::NotFound, "not_found"),
        TeamError::NoMailbox { .. } => (Exit::Refused, "no_mailbox"),
        TeamError::Led { .. } => (Exit::Refused, "led"),
        TeamError::Held { .. } => (Exit::Refused, "in_use"),
        TeamError::MailTooLong { .. } => (Exit::Usage, "too_long"),
        TeamError::MailboxFull { .. } | TeamError::TooMuchProtocol { .. } => (Exit::Refused, "mailbox_full"),
        TeamError::Refused(Refusal::Unknown { .. } | Refusal::NotMember { .. }) => (Exit::NotFound, "not_found"),
        TeamError::Refused(Refusal::Itself(_) | Refusal::Circle { .. }) => (Exit::Refused, "circle"),
        TeamError::Refused(Refusal::Owned { .. }) => (Exit::Refused, "owned"),
        TeamError::Refused(Refusal::NotPending { .. }) => (Exit::Refused, "not_pending"),
        TeamError::Refused(Refusal::Blocked { .. }) => (Exit::Refused, "blocked"),
        TeamError::Refused(Refusal::NothingToClaim { .. }) => (Exit::Refused, "nothing_to_claim"),
    }
}

fn store_kind(error: &StoreError) -> (Exit, &'static str) {
    match error {
        StoreError::Locked { .. } => (Exit::Refused, "locked"),
        StoreError::LockTimeout { .. } => (Exit::TimedOut, "timed_out"),
        StoreError::Missing { .. } => (Exit::NotFound, "not_found"),
        StoreError::Io { .. }
        | StoreError::Exists { .. }
        | StoreError::Damaged { .. }
        | StoreError::TooLong { .. }
        | StoreError::Unsafe { .. } => (Exit::Failed, "store"),
    }
}

fn wire_kind(error: &WireError) -> (Exit, &'static str) {
    match error {
        WireError::TimedOut { .. } => (Exit::TimedOut, "timed_out"),
        WireError::Refused { .. } => (Exit::Refused, "refused"),
        WireError::Unreachable { .. } => (Exit::NotFound, "unreachable"),
        WireError::Closed
        | WireError::Slow { .. }
        | WireError::TooLong { .. }
        | WireError::Malformed(_)
        | WireError::PeerUid { .. }
        | WireError::Address(_)
        | WireError::Io { .. } => (Exit::Failed, "wire"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        let rows = [
            (CliError::usage("x"), 2),
            (CliError::NoModel, 2),
            (CliError::NoAgent("x".into()), 4),
            (CliError::Ambiguous { text: "a".into(), candidates: vec!["a-1".into()] }, 2),
            (CliError::StillRunning(AgentId::random()), 3),
            (CliError::Nested(AgentId::random()), 3),
            (CliError::TimedOut { what: "x".into(), waited: Duration::from_secs(1) }, 5),
            (CliError::Output(io::ErrorKind::BrokenPipe.into()), 141),
            (CliError::Output(io::ErrorKind::StorageFull.into()), 1),
            (CliError::Lead(LeadError::Usage("x".into())), 2),
            (CliError::Store(StoreError::Locked { path: "/x".into(), holder_pid: None }), 3),
            (CliError::Lead(StoreError::Missing { path: "/x".into() }.into()), 4),
        ];
        for (error, code) in rows {
            assert_eq!(error.exit().code(), code, "{error}");
        }
    }

    #[test]
    fn causes_are_told_and_nothing_can_command_the_terminal() {
        let error = CliError::Folder { path: "/x\u{1b}[2J".into(), source: io::Error::from_raw_os_error(2) };
        let shown = error.for_person();
        assert!(shown.contains("/x[2J: No such file"), "{shown}");
        let json = error.for_script();
        assert_eq!(json["error"]["code"], "folder");
        assert_eq!(json["error"]["hint"], Value::Null);
        assert!(CliError::NoModel.for_person().contains("lead demo"));
    }
}
