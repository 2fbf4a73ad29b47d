//! Frames on sockets (spec 5.3): MessagePack with named fields inside a length prefix. An unknown
//! frame decodes to [`Frame::Unknown`], so that an older peer can answer `unsupported` and keep
//! the connection.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::{LiveState, Owner, Progress, RegistryEntry};
use super::entry::Place;
use super::hook::HookSet;
use super::ids::{AgentId, SessionId, ShellId};
use super::knowledge::Knowledge;
use super::provider::ProviderAccess;
use super::question::{OpenQuestion, Question, Verdict};
use super::team::Protocol;

/// The protocol's number. Peers of another number are refused.
pub const PROTOCOL: u32 = 1;

/// The build a child must share with the lead that starts it.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// What this process says of its build: [`BUILD`], or in debug builds what `LEAD_BUILD` says instead,
/// so that tests have programs of different builds without building twice.
pub fn build() -> &'static str {
    static CELL: OnceLock<String> = OnceLock::new();
    CELL.get_or_init(|| {
        let said = cfg!(debug_assertions).then(|| std::env::var(super::env::BUILD).ok()).flatten();
        said.unwrap_or_else(|| BUILD.to_owned())
    })
}

/// What travels: a frame, its number, and the number of the request it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Number of this frame on this connection, from 1.
    pub seq: u64,
    /// The `seq` of the request that this answers; 0 = it answers none.
    #[serde(default)]
    pub re: u64,
    /// The content.
    pub frame: Frame,
}

/// All frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Frame {
    /// First frame of the side that connects or was started.
    Hello(Hello),
    /// Answer to a shell's or session's `Hello`: who listens here.
    HelloOk {
        /// The listener.
        entry: Box<RegistryEntry>,
    },
    /// Parent → child, once: all it needs.
    Welcome(Box<Welcome>),
    /// The peer is not accepted.
    Refused {
        /// Why.
        reason: String,
    },
    /// Child → parent: reachable at this address, prompt recorded.
    Ready {
        /// `uds:/…`.
        address: String,
        /// Runtime name (`<12 hex>`), the value of its tools' `LEAD_RUN`.
        runtime: String,
    },
    /// A new lead takes an agent over.
    Adopt {
        /// The lead's session.
        session: SessionId,
        /// As in [`Welcome::telling`].
        #[serde(default)]
        telling: Telling,
    },
    /// Answer to `Adopt`: full status.
    Adopted {
        /// What the agent is doing.
        state: Box<LiveState>,
        /// Runtime name of the agent.
        runtime: String,
    },
    /// Lead → agent: go on without an owner.
    Release,
    /// A message for the receiver, or for an agent of the receiving lead (`to`).
    Deliver(Delivery),
    /// The receiver of a `Deliver` that asked for it has nothing to do any more.
    Idle {
        /// The message.
        msg_id: String,
    },
    /// What became of a `Deliver`.
    Delivered(Delivered),
    /// Stop an agent (`id`, of the receiving lead) or the receiver itself.
    Stop {
        /// The agent; none = the receiver.
        #[serde(default)]
        id: Option<AgentId>,
        /// Enter the ladder at SIGKILL.
        #[serde(default)]
        kill: bool,
        /// Who asks, in words.
        #[serde(default)]
        reason: String,
    },
    /// Stop a background shell of the receiver; answered when it has ended.
    StopShell {
        /// The shell.
        id: ShellId,
        /// Who asks, in words.
        #[serde(default)]
        reason: String,
    },
    /// End the running turn, not the agent.
    Interrupt,
    /// The person → lead: finish the turn and let the session go, so that another lead takes it over.
    HandOver,
    /// Turn a foreground agent of the receiving lead into a background one.
    Background {
        /// The agent.
        id: AgentId,
    },
    /// Change the permission mode of the receiver.
    SetMode {
        /// The new mode.
        mode: String,
    },
    /// Owner → agent: rules, and a mode, that hold from the next tool call on.
    SetPermissions(Box<SetPermissions>),
    /// Agent → owner: run a tool that the lead carries out.
    Call {
        /// The tool.
        tool: String,
        /// The call's id.
        tool_use_id: String,
        /// Its input.
        input: Value,
    },
    /// Answer to a `Call`.
    CallResult {
        /// Text for the model.
        text: String,
        /// Whether it failed.
        is_error: bool,
        /// Structured result for the transcript.
        #[serde(default)]
        structured: Option<Value>,
    },
    /// Agent → owner: may this call run?
    Permission {
        /// The call.
        question: Question,
    },
    /// Answer to a `Permission`.
    PermissionAnswer {
        /// What was decided.
        verdict: Verdict,
    },
    /// Which questions wait at the receiving lead's desk?
    Questions,
    /// Answer to `Questions`.
    QuestionList {
        /// Oldest first.
        questions: Vec<OpenQuestion>,
    },
    /// The person answers a question that waits at the receiving lead's desk.
    Permit {
        /// The question.
        id: String,
        /// The answer.
        verdict: Verdict,
        /// Whether such calls are permitted from now on without a question.
        #[serde(default)]
        always: bool,
    },
    /// Owner ↔ teammate: what their runtimes tell each other (spec 3.4). Its authority is the link's.
    Protocol {
        /// The message.
        message: Box<Protocol>,
    },
    /// Agent → owner: the outcome line of this run is on disk (a hint; the line counts).
    Outcome {
        /// The run.
        run: u32,
    },
    /// Agent → owner, viewers: counters.
    Progress {
        /// The counters.
        progress: Progress,
    },
    /// Agent → owner, viewers: a change of state.
    State {
        /// The state.
        state: Box<LiveState>,
    },
    /// Agent → owner: a transcript line was written (its JSON).
    Entry {
        /// The line.
        json: String,
    },
    /// Agent → owner: it begins to summarise its conversation, which ends with the boundary's `Entry`.
    Compacting,
    /// Agent → owner: a part of a reply arrived. What the link does not take is lost.
    ReplyPart {
        /// The reply.
        message_id: String,
        /// The API's event, as JSON on one line.
        event: String,
    },
    /// Agent → owner: a model call failed and is repeated.
    ModelWaits(ModelWait),
    /// What are you doing?
    Status,
    /// Answer to `Status`.
    StatusReply {
        /// The receiver.
        entry: Box<RegistryEntry>,
        /// What it is doing.
        state: Box<LiveState>,
    },
    /// Are you there?
    Ping,
    /// Answer to `Ping`.
    Pong,
    /// Done.
    Done,
    /// The request failed.
    Error {
        /// A stable word, such as `not_found`, `refused`, `unsupported`.
        code: String,
        /// For people and models.
        message: String,
    },
    /// Anything newer than this build.
    #[serde(other)]
    Unknown,
}

/// First frame of the side that connects or was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the sender.
    pub protocol: u32,
    /// [`BUILD`] of the sender.
    pub build: String,
    /// `lead`, `worker`, `teammate`, `shell`.
    pub role: String,
    /// Agent id, session id, or empty.
    pub id: String,
}

/// Everything a child needs, sent once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Who it is and how it works.
    pub config: AgentConfig,
    /// First prompt of this run.
    pub prompt: Prompt,
    /// Variables of its tools that are not in its own environment.
    pub secrets: Vec<(String, String)>,
    /// Whether the other end of the link is its owner, or it is detached.
    pub owner: Owner,
    /// How its model is reached.
    #[serde(default)]
    pub access: ProviderAccess,
    /// What the owner wants to be told of the conversation.
    #[serde(default)]
    pub telling: Telling,
}

/// How much an agent tells its owner of its conversation while it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telling {
    /// Its state only.
    #[default]
    Nothing,
    /// Each line that is written, each compaction, each repetition of a model call.
    Lines,
    /// The parts of replies, too.
    Parts,
}

/// A model call that failed and is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelWait {
    /// Which repetition comes next, from 1.
    pub attempt: u32,
    /// The most there may be.
    pub attempts: u32,
    /// How long is waited before.
    pub delay_ms: u64,
    /// Why the attempt failed, in words.
    pub reason: String,
    /// The reply of which parts were told and which will never be whole.
    #[serde(default)]
    pub discarded_message_id: Option<String>,
}

/// What an agent is told first in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The text; empty = nothing is said: a member is brought back and goes on.
    pub text: String,
    /// Duplicate guard, when it is a message that resumed the agent.
    #[serde(default)]
    pub msg_id: Option<String>,
    /// Who said it: an agent id, session id, name.
    pub from: String,
}

/// Who an agent is and how it works; immutable during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The agent.
    pub id: AgentId,
    /// This run, from 1.
    pub run: u32,
    /// The session it belongs to.
    pub session: SessionId,
    /// Type of agent.
    pub agent_type: String,
    /// 3-5 words.
    pub description: String,
    /// Addressable name.
    #[serde(default)]
    pub name: Option<String>,
    /// Model with provider prefix.
    pub model: String,
    /// Most tokens of a reply.
    pub max_tokens: u32,
    /// The model's context window, tokens; 0 = unknown.
    #[serde(default)]
    pub context_window: u64,
    /// Its system prompt.
    pub system_prompt: String,
    /// Names of its tools.
    pub pool: Vec<String>,
    /// Permission mode.
    pub permission_mode: String,
    /// Rules and folders of the lead.
    pub permissions: PermissionRules,
    /// `Bash` is limited to the read-only list whatever the mode (types `Explore`, `Plan`).
    #[serde(default)]
    pub read_only_bash: bool,
    /// Working folder.
    pub cwd: PathBuf,
    /// Config folder.
    pub config_dir: PathBuf,
    /// Runtime folder.
    pub runtime_dir: PathBuf,
    /// Its transcript.
    pub transcript: PathBuf,
    /// Fields repeated on every line.
    pub place: Place,
    /// Scratchpad of the session.
    #[serde(default)]
    pub scratchpad: Option<PathBuf>,
    /// Most model replies of a run.
    #[serde(default)]
    pub max_turns: Option<u32>,
    /// Whether `Bash` may run commands in the background.
    #[serde(default)]
    pub background_shells: bool,
    /// How long the run waits for background shells that say nothing (`lead.backgroundWait`).
    #[serde(default)]
    pub background_wait_ms: u64,
    /// Whether it takes messages from other sessions and their agents (`lead.acceptCrossSession`).
    #[serde(default = "yes")]
    pub accept_cross_session: bool,
    /// Whether it is the person's, and so is no orphan when its lead is gone.
    #[serde(default)]
    pub detached: bool,
    /// How long an orphan's permission question waits for a new lead.
    pub permission_timeout_ms: u64,
    /// `process` or `disk`.
    pub durability: String,
    /// What people wrote down for it.
    #[serde(default)]
    pub knowledge: Knowledge,
    /// The user's hooks.
    #[serde(default)]
    pub hooks: HookSet,
    /// Its team, if it is a member of one.
    #[serde(default)]
    pub membership: Option<Box<Membership>>,
}

/// What a member knows of its place in a team. Its transcript is a session of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The team's name, which is that of its folder too.
    pub team: String,
    /// The member's exact name.
    pub name: String,
    /// Its colour.
    pub color: String,
    /// Its own session.
    pub session: SessionId,
    /// The task list, if it is not the team's own.
    #[serde(default)]
    pub task_list: Option<String>,
    /// How long it waits for another lead when its own is gone (`lead.orphanTtl`).
    pub orphan_ttl_ms: u64,
    /// What stands at the end of the prompts of agents that it starts: places, skills, instructions.
    #[serde(default)]
    pub agents_prompt: String,
    /// Most agents of its own that live at a time (`lead.maxAgents`), and that it starts in all.
    #[serde(default)]
    pub max_agents: (usize, usize),
    /// Whether it shows itself in the terminal that it was started in.
    #[serde(default)]
    pub has_pane: bool,
}

fn yes() -> bool {
    true
}

/// Permission rules as they reach every process of a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PermissionRules {
    /// Rules that allow, each with the folder that its `/…` patterns are relative to.
    pub allow: Vec<ScopedRule>,
    /// Rules that ask.
    pub ask: Vec<ScopedRule>,
    /// Rules that deny.
    pub deny: Vec<ScopedRule>,
    /// Folders in which reading and editing is as free as in the working folder.
    pub additional_directories: Vec<PathBuf>,
}

/// What an agent may do from now on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetPermissions {
    /// Permission mode; none = the present one.
    pub mode: Option<String>,
    /// The mode holds only if it permits less than the present one: so says a lead that has taken an agent
    /// over and did not see what its mode became.
    pub narrows: bool,
    /// Rules and folders of the lead, in place of all earlier ones.
    pub rules: PermissionRules,
}

/// A rule and the root of the file it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedRule {
    /// `Tool` or `Tool(pattern)`.
    pub rule: String,
    /// Folder that a pattern beginning with `/` is relative to.
    pub root: PathBuf,
    /// Where it was said: a file's path, or the flag.
    pub source: String,
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Duplicate guard.
    pub msg_id: String,
    /// Agent id or name, for the receiving lead to route; none = the receiver itself.
    #[serde(default)]
    pub to: Option<String>,
    /// The text.
    pub text: String,
    /// 5-10 words.
    #[serde(default)]
    pub summary: Option<String>,
    /// Who sends, as the owner lead computed it; believed on the owner link only.
    #[serde(default)]
    pub from: Option<String>,
    /// Whether the sender wants one [`Frame::Idle`] when the receiver has nothing to do any more.
    #[serde(default)]
    pub notify_idle: bool,
    /// Whether a lead takes it in at the next tool-round boundary of its running turn; agents always do.
    #[serde(default)]
    pub now: bool,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// `queued`, `resumed`, `ended`, `refused`.
    pub outcome: String,
    /// In words.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_frames_and_fields_decode() {
        #[derive(Serialize)]
        struct Newer<'a> {
            t: &'a str,
            x: u32,
        }
        #[derive(Serialize)]
        struct NewerEnvelope<'a> {
            seq: u64,
            re: u64,
            frame: Newer<'a>,
            extra: &'a str,
        }
        for (tag, expected) in [("teleport", Frame::Unknown), ("ping", Frame::Ping)] {
            let bytes =
                rmp_serde::to_vec_named(&NewerEnvelope { seq: 1, re: 0, frame: Newer { t: tag, x: 3 }, extra: "e" });
            let envelope: Envelope =
                rmp_serde::from_slice(&bytes.unwrap_or_default()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(envelope.frame, expected);
        }
    }

    #[test]
    fn frames_with_json_values_round_trip() {
        let frame = Frame::Call {
            tool: "SendMessage".into(),
            tool_use_id: "t".into(),
            input: serde_json::json!({"n": u64::MAX, "f": 1.5, "s": "ü", "a": [null, true]}),
        };
        let envelope = Envelope { seq: 7, re: 3, frame };
        let bytes = rmp_serde::to_vec_named(&envelope).unwrap_or_default();
        assert_eq!(rmp_serde::from_slice::<Envelope>(&bytes).ok(), Some(envelope));
    }
}
