//! What happens in a session, told to whoever shows it while it happens: a stream of JSON, later a
//! screen. Told, never asked: whoever listens changes nothing by it.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::options::RunReport;
use crate::agent::Witness;
use crate::core::agent::{LiveState, Meta, Outcome, Progress};
use crate::core::entry::Line;
use crate::core::frame::Telling;
use crate::core::ids::{AgentId, SessionId};
use crate::core::message::Block;
use crate::core::paths::AgentFiles;
use crate::model::{CallEvent, Retrying};
use crate::supervisor::Doing;
use crate::tool::shell::{Shell, ShellEnd};

/// Something that happened.
pub enum Told<'a> {
    /// A turn of the main conversation begins.
    Turn(&'a Setting),
    /// A line of a conversation is on disk; each comes once.
    Line(Who<'a>, &'a Line),
    /// Something happened during a model call. Of agents only what [`Listener::telling`] asks for, and
    /// not when a call is sent; parts may be missing, then all that follow of that reply.
    Call(Who<'a>, CallEvent<'a>),
    /// A conversation is being summarised; the line of its boundary ends this.
    Compacting(Who<'a>),
    /// An agent was started, continued or taken over.
    Started {
        /// The agent.
        task: Task<'a>,
        /// What it was told, if that is known.
        prompt: Option<&'a str>,
        /// Whether the main conversation goes on meanwhile.
        background: bool,
    },
    /// The main conversation waits for this agent no longer, which goes on in the background.
    Backgrounded(Task<'a>),
    /// An agent has used more tools.
    Progress {
        /// The agent.
        task: Task<'a>,
        /// Its counters.
        progress: &'a Progress,
        /// Since its run began, or since it was taken over.
        duration: Duration,
    },
    /// A run of an agent is over.
    Ended(Task<'a>, &'a Outcome),
    /// A run of an agent did not begin.
    NotStarted(Task<'a>),
    /// A background shell of the main conversation was started.
    ShellStarted(&'a Shell),
    /// A background shell of the main conversation has ended.
    ShellEnded(&'a Shell, &'a ShellEnd),
    /// The run is over, or with [`InputKind::Messages`] what one message asked for is done.
    Result(&'a RunReport),
}

/// Whose conversation it is.
#[derive(Clone, Copy)]
pub enum Who<'a> {
    /// The session's own.
    Main,
    /// An agent's.
    Agent(Task<'a>),
}

/// An agent, as it is told of.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Its id.
    pub id: &'a AgentId,
    /// Its launch facts.
    pub meta: &'a Meta,
    /// Its files.
    pub files: &'a AgentFiles,
}

/// What a session works with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Working folder.
    pub cwd: PathBuf,
    /// Names of the tools.
    pub tools: Vec<String>,
    /// The model's id.
    pub model: String,
    /// Permission mode.
    pub mode: &'static str,
    /// Name of the variable that holds the credentials, or `none`.
    pub credentials: &'static str,
    /// Types of agents.
    pub agents: Vec<String>,
    /// Names of the skills.
    pub skills: Vec<String>,
}

/// Is told what happens in a session. Called from its loop and from its model calls, so it must not
/// block.
pub trait Listener: Send + Sync {
    /// Something happened in this session.
    fn hear(&self, session: &SessionId, what: Told<'_>);

    /// What it wants to hear of agents' conversations.
    fn telling(&self) -> Telling {
        Telling::Lines
    }
}

/// What a session is connected with while it runs.
#[derive(Default)]
pub struct Streams {
    /// Who is told what happens.
    pub listener: Option<Arc<dyn Listener>>,
    /// What is said to it after its start.
    pub inputs: Option<Inputs>,
    /// Fires when nobody can be told anything any more: the session ends.
    pub unheard: CancellationToken,
}

/// What is said to a session that runs. It is not over before the sender is dropped.
pub struct Inputs {
    /// Where it comes from.
    pub receiver: mpsc::Receiver<SessionInput>,
    /// What it is.
    pub kind: InputKind,
}

/// How what is said is dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// It is the prompt, or there is none: no turn begins before it is known.
    Prompt,
    /// Each is a turn of its own with a result of its own.
    Messages,
}

/// Something said to a session that runs.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionInput {
    /// A message of the person.
    Message {
        /// The text.
        text: String,
        /// All of it, in order, if it is more than text; else empty.
        blocks: Vec<Block>,
        /// Its id, if it has one: said again it is not a second message.
        id: Option<String>,
    },
    /// A message that can't be taken; in words. It has a result like any other.
    Refused(String),
    /// What came can't be used, and nothing more comes; in words.
    Unusable(String),
}

/// Tells the listener of one session.
pub(super) struct Teller {
    session: SessionId,
    setting: Setting,
    listener: Option<Arc<dyn Listener>>,
    /// Whether a turn was told of: nothing else is told before.
    begun: bool,
    /// Of agents that run: since when, and the tool calls told of.
    tasks: HashMap<AgentId, (Instant, u64)>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Teller {
    pub(super) fn new(session: SessionId, setting: Setting, listener: Option<Arc<dyn Listener>>) -> Self {
        Self { session, setting, listener, begun: false, tasks: HashMap::new() }
    }

    pub(super) fn turn(&mut self) {
        self.begun = true;
        if let Some(listener) = &self.listener {
            listener.hear(&self.session, Told::Turn(&self.setting));
        }
    }

    pub(super) fn tell(&mut self, what: Told<'_>) {
        if !self.begun {
            self.turn();
        }
        if let Some(listener) = &self.listener {
            listener.hear(&self.session, what);
        }
    }

    /// Whether anybody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    pub(super) fn started(&mut self, task: Task<'_>, prompt: Option<&str>, background: bool) {
        self.tasks.insert(task.id.clone(), (Instant::now(), 0));
        self.tell(Told::Started { task, prompt, background });
    }

    /// What an agent's conversation does, beside its lines.
    pub(super) fn doing(&mut self, task: Task<'_>, what: &Doing) {
        let who = Who::Agent(task);
        self.tell(match what {
            Doing::Compacting => Told::Compacting(who),
            Doing::Part { message_id, event } => Told::Call(who, CallEvent::Part { message_id, event }),
            Doing::Waiting(wait) => {
                let retry = Retrying {
                    attempt: wait.attempt,
                    attempts: wait.attempts,
                    delay: Duration::from_millis(wait.delay_ms),
                    reason: &wait.reason,
                    discarded_message_id: wait.discarded_message_id.as_deref(),
                };
                Told::Call(who, CallEvent::Waiting(retry))
            }
        });
    }

    pub(super) fn state(&mut self, task: Task<'_>, state: &LiveState) {
        let Some((since, told)) = self.tasks.get_mut(task.id) else { return };
        let progress = &state.progress;
        if progress.tool_uses > *told {
            *told = progress.tool_uses;
            let duration = since.elapsed();
            self.tell(Told::Progress { task, progress, duration });
        }
    }

    pub(super) fn ended(&mut self, task: Task<'_>, outcome: &Outcome) {
        self.tasks.remove(task.id);
        self.tell(Told::Ended(task, outcome));
    }

    pub(super) fn not_started(&mut self, task: Task<'_>) {
        self.tasks.remove(task.id);
        self.tell(Told::NotStarted(task));
    }
}

/// Tells the listener of the main conversation.
pub(super) struct MainWitness {
    pub session: SessionId,
    pub listener: Arc<dyn Listener>,
}

impl Witness for MainWitness {
    fn line(&self, line: &Line) {
        self.listener.hear(&self.session, Told::Line(Who::Main, line));
    }

    fn call(&self, event: CallEvent<'_>) {
        self.listener.hear(&self.session, Told::Call(Who::Main, event));
    }

    fn compacting(&self) {
        self.listener.hear(&self.session, Told::Compacting(Who::Main));
    }
}
