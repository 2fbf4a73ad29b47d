//! What is asked of a session over its own socket, by the verbs of the command line: to start an
//! agent that is the person's own, to hand a message to one of its agents, to let one go to the
//! background. Who asks is computed from the peer's process (spec 5.6), and decides what is granted.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::ask::{Ask, Asker};
use super::delegate::launched_output;
use super::roles::background_disabled;
use super::route::{Bounds, Plan};
use super::session::Session;
use crate::agent::{Event as AgentEvent, Input};
use crate::core::agent::Meta;
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_SPAWN, Origin, SPAWN_PROMPT};
use crate::core::env;
use crate::core::frame::{Delivered, Delivery, Frame};
use crate::core::ids::{self, AgentId};
use crate::core::limits;
use crate::core::paths::AgentFiles;
use crate::core::text;
use crate::endpoint::Identity;
use crate::proc::StopSignal;
use crate::settings::AcceptCrossSession;
use crate::supervisor::{Command, Launched, SupervisorEvent};
use crate::tool::ToolOutput;
use crate::tool::agents::{AgentInput, parse_input};
use crate::wire::Link;

/// The longest key of a request, bytes: it is kept in the agent's launch facts.
const KEY_BYTES: usize = 128;
/// Characters of an agent's prompt that the main conversation is told.
const PROMPT_CHARS: usize = 2000;

/// Input of the call `Agent` when the person makes it: an agent of the person's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpawnInput {
    /// Self-contained task.
    pub prompt: String,
    /// Type of agent; none = the session's default.
    pub agent_type: Option<String>,
    /// Addressable name.
    pub name: Option<String>,
    /// Model; none = that of its type, else the session's.
    pub model: Option<String>,
    /// Working folder; none = the session's.
    pub cwd: Option<String>,
    /// The only tools of its pool that it has; none = all.
    pub tools: Option<Vec<String>>,
    /// Most model replies of a run.
    pub max_turns: Option<u32>,
}

impl SpawnInput {
    fn split(self) -> (AgentInput, Bounds) {
        let input = AgentInput {
            description: description(&self.prompt),
            prompt: self.prompt,
            subagent_type: self.agent_type,
            name: self.name,
            model: self.model,
            run_in_background: Some(true),
            cwd: self.cwd,
            ..AgentInput::default()
        };
        (input, Bounds { tools: self.tools, max_turns: self.max_turns })
    }
}

/// Why an agent of the person's was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// What was asked for does not exist or makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It is not possible now, or not permitted.
    #[error("{0}")]
    Refused(String),
    /// Its process did not come to life.
    #[error("{0}")]
    Failed(String),
    /// The session is ending: whoever takes it up next can be asked.
    #[error("the session is ending")]
    Ending,
    /// A signal ended whoever started it.
    #[error("stopped by {} while it started", .0.name())]
    Interrupted(StopSignal),
}

impl Declined {
    /// Reads why something that the person asked for was not done; none if it was.
    pub fn read(output: &ToolOutput) -> Option<Self> {
        if !output.is_error {
            return None;
        }
        let text = output.text.strip_prefix("the agent was not started: ").unwrap_or(&output.text).to_owned();
        let declined = output.structured.as_ref().and_then(|s| s.get("declined")).and_then(Value::as_str);
        Some(match declined {
            Some("usage") => Self::Usage(text),
            Some("refused") => Self::Refused(text),
            Some("ending") => Self::Ending,
            _ => Self::Failed(text),
        })
    }

    pub(super) fn output(&self) -> ToolOutput {
        let kind = match self {
            Self::Usage(_) => "usage",
            Self::Refused(_) => "refused",
            Self::Failed(_) | Self::Interrupted(_) => "failed",
            Self::Ending => "ending",
        };
        ToolOutput::error(self.to_string()).with(json!({ "declined": kind }))
    }
}

/// An agent of the person's that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its id.
    pub id: AgentId,
    /// Its address and pid; none if it was started by an earlier request of the same key.
    pub reachable: Option<(String, i32)>,
}

impl Started {
    /// Reads the answer of a person's `Agent` call.
    pub fn read(output: &ToolOutput) -> Result<Self, Declined> {
        let field = |name: &str| output.structured.as_ref().and_then(|s| s.get(name));
        if let Some(declined) = Declined::read(output) {
            return Err(declined);
        }
        let text = &output.text;
        let id = field("agentId").and_then(Value::as_str).and_then(AgentId::parse);
        let id = id.ok_or_else(|| Declined::Failed(format!("the answer names no agent: {text}")))?;
        let address = field("address").and_then(Value::as_str).map(str::to_owned);
        let pid = field("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
        Ok(Self { id, reachable: address.zip(pid) })
    }
}

/// Adds to the answer of a start where the agent is.
pub(super) fn reachable(mut output: ToolOutput, launched: &Launched) -> ToolOutput {
    if let Some(Value::Object(fields)) = &mut output.structured {
        fields.insert("address".to_owned(), json!(launched.address));
        fields.insert("pid".to_owned(), json!(launched.pid));
    }
    output
}

/// 3 to 5 words for lists: the first ones of the prompt.
pub(super) fn description(prompt: &str) -> String {
    let words: Vec<&str> = prompt.split_whitespace().take(5).collect();
    text::one_line(&words.join(" "), 50)
}

impl Session {
    /// A call of a tool that came over the session's socket: only the person has one, `Agent`.
    pub(super) fn on_call(
        &mut self,
        tool: String,
        tool_use_id: String,
        input: Value,
        identity: &Identity,
        link: Link,
        seq: u64,
    ) {
        let refuse = |code: &str, message: String| {
            let _ = link.reply(seq, Frame::Error { code: code.to_owned(), message });
        };
        if let Identity::Agent(agent) = identity {
            if super::team::TeamRequest::is_one(&tool) {
                return refuse("refused", format!("{agent} is an agent, and agents don't change teams"));
            }
            return refuse("refused", format!("{agent} is an agent, and agents can't start agents"));
        }
        if super::team::TeamRequest::is_one(&tool) {
            if tool_use_id.is_empty() || tool_use_id.len() > KEY_BYTES {
                return refuse("refused", format!("the id of a call has 1 to {KEY_BYTES} bytes"));
            }
            let (mut ask, answer) = Ask::of_visitor(Asker::Person, &tool, input);
            ask.tool_use_id = tool_use_id;
            self.on_team_request(ask);
            return answer_when_known(link, seq, answer);
        }
        if tool != "Agent" {
            return refuse("unsupported", format!("a lead carries out Agent for others, not {tool:?}"));
        }
        if tool_use_id.is_empty() || tool_use_id.len() > KEY_BYTES {
            return refuse("refused", format!("the id of a call has 1 to {KEY_BYTES} bytes"));
        }
        let (mut ask, answer) = Ask::of_visitor(Asker::Person, &tool, input);
        ask.tool_use_id = tool_use_id;
        self.spawn_for_person(ask);
        answer_when_known(link, seq, answer);
    }

    /// Starts an agent that is the person's. A request that is made again finds what the first one
    /// started (R054).
    pub(super) fn spawn_for_person(&mut self, ask: Ask) {
        if self.quit.is_some() {
            return ask.answer(Declined::Ending.output());
        }
        if let Some(slot) = self.supervisor.by_tool_use(&ask.tool_use_id).cloned() {
            let found = self.supervisor.get(&slot).map(|s| launched_output(&slot, &s.meta, &s.files, ""));
            return ask.answer(found.unwrap_or_else(|| Declined::Ending.output()));
        }
        match self.plan_for_person(&ask.input) {
            Ok(plan) => self.start_agent(ask, plan),
            Err(declined) => ask.answer(declined.output()),
        }
    }

    fn plan_for_person(&self, input: &Value) -> Result<Plan, Declined> {
        let input: SpawnInput = parse_input("Agent", input).map_err(Declined::Usage)?;
        let (input, bounds) = input.split();
        self.supervisor.check_room(true).map_err(Declined::Refused)?;
        let is_taken = input.name.as_deref().and_then(|name| self.supervisor.by_name(name));
        let is_refusal = background_disabled(&self.options)
            || is_taken.and_then(|id| self.supervisor.get(id)).is_some_and(crate::supervisor::Slot::is_live)
            || input.subagent_type.as_deref().is_some_and(|t| self.policy.get().denies_agent_type(t).is_some());
        let kind = if is_refusal { Declined::Refused } else { Declined::Usage };
        let plan = self.plan(input).map_err(kind)?;
        Ok(Plan { bounds, ..plan })
    }

    /// Tells the main conversation of an agent that the person is about to start. It starts no turn:
    /// the agent's end does.
    pub(super) fn note_spawn(
        &mut self,
        id: &AgentId,
        meta: &Meta,
        files: &AgentFiles,
        prompt: &str,
    ) -> Result<(), String> {
        let file = files.transcript().display();
        let prompt = text::cap(prompt, PROMPT_CHARS, |all| format!("[cut at {PROMPT_CHARS} of {all} characters]"));
        self.note(format!(
            "The user started agent {id} of type {} with `lead spawn`; it works in the background on its own, and its \
end comes as a task notification. SendMessage with to: \"{id}\" reaches it. Output file: {file}\n{}{}{}",
            meta.agent_type,
            SPAWN_PROMPT.0,
            text::escape(&prompt),
            SPAWN_PROMPT.1
        ))
    }

    /// Takes back what [`Self::note_spawn`] said.
    pub(super) fn note_not_started(&mut self, id: &AgentId, meta: &Meta) {
        if meta.detached
            && let Err(error) = self.note(format!("Agent {id} could not be started: there is no such agent."))
        {
            tracing::warn!(%id, %error, "that the agent was not started was not written down");
        }
    }

    pub(super) fn note(&mut self, text: String) -> Result<(), String> {
        let origin = Some(Origin { kind: ORIGIN_SPAWN.to_owned(), task_id: None, run: None });
        let mut note = Input { text, origin, from: Some(Identity::Person.label()), ..Input::default() };
        if !self.driver.is_idle() {
            // The conversation has it at its next step; until then this line has.
            let msg_id = ids::random_uuid();
            let enqueued = Enqueued {
                msg_id: msg_id.clone(),
                from: Identity::Person.label(),
                content: note.text.clone(),
                timestamp: clock::iso(clock::now_ms()),
                session_id: self.id.as_str().to_owned(),
            };
            self.driver.record(&Line::Enqueued(enqueued)).map_err(|e| e.to_string())?;
            note.msg_id = Some(msg_id);
        }
        self.step(AgentEvent::Note(note));
        match self.driver.stall_reason() {
            Some(reason) if self.driver.is_idle() => Err(reason.to_owned()),
            _ => Ok(()),
        }
    }

    /// Keeps table and conversation true. To be called with every event of an agent's task, before it
    /// is acted on.
    pub(super) fn note_event(&mut self, event: &SupervisorEvent) {
        if let SupervisorEvent::NotStarted { id, fresh: true } = event
            && let Some(meta) = self.supervisor.get(id).map(|slot| slot.meta.clone())
        {
            self.note_not_started(id, &meta);
        }
        self.supervisor.note(event);
    }

    /// What an agent's end is when its session ends: a stop, or a farewell to one that is the person's.
    pub(super) fn end_or_release(&mut self, id: &AgentId, reason: &str, kill: bool) {
        if self.supervisor.get(id).is_some_and(|slot| slot.meta.detached) {
            if self.supervisor.command(id, Command::Release) {
                self.say(&format!("agent {id} goes on without this session"));
            }
        } else {
            self.stop_agent(id, reason, kill);
        }
    }

    /// Hands a message on to one of this session's agents: delivers it, or resumes the agent with it.
    pub(super) fn route(&mut self, delivery: Delivery, identity: &Identity, link: Link, seq: u64) {
        let refuse = |message: String| {
            let _ = link.reply(seq, Frame::Delivered(Delivered { outcome: "refused".to_owned(), message }));
        };
        let to = self.bare_name(delivery.to.unwrap_or_default());
        if self.quit.is_some() {
            return refuse("the session is ending".to_owned());
        }
        if to.contains(':') {
            // It would go out in this session's name.
            return refuse(format!("{to:?} is no agent of this session; send to the address itself"));
        }
        if delivery.text.len() > limits::MESSAGE_BYTES {
            return refuse(format!("messages are at most {} bytes", limits::MESSAGE_BYTES));
        }
        let (asker, is_ours) = match identity {
            Identity::Person => (Asker::Person, true),
            Identity::Lead(session) if *session == self.id => (Asker::Main, true),
            Identity::Lead(session) => (Asker::Session(session.clone()), false),
            Identity::Agent(id) => (Asker::Agent(id.clone()), self.supervisor.get(id).is_some()),
        };
        if !is_ours && self.options.settings.lead.accept_cross_session == AcceptCrossSession::Off {
            return refuse("this session takes no messages from others (lead.acceptCrossSession)".to_owned());
        }
        let message = if is_ours { delivery.text } else { identity.heard(&delivery.text) };
        let summary = delivery.summary.unwrap_or_else(|| description(&message));
        let (mut ask, answer) =
            Ask::of_visitor(asker, "SendMessage", json!({ "to": to, "message": message, "summary": summary }));
        ask.msg_id = delivery.msg_id;
        self.send_message(ask);
        tokio::spawn(async move {
            let delivered = match answer.await {
                Ok(output) => delivered_of(output),
                Err(_) => Delivered { outcome: "refused".to_owned(), message: "the session is ending".to_owned() },
            };
            let _ = link.reply(seq, Frame::Delivered(delivered));
        });
    }

    /// Verbs name members by their ids, their team by their bare names.
    fn bare_name(&self, to: String) -> String {
        let member = AgentId::parse(&to).and_then(|id| {
            let (name, team) = id.as_member()?;
            self.team.as_ref().filter(|led| led.team.folder() == team).map(|_| name.to_owned())
        });
        member.unwrap_or(to)
    }

    /// Lets a foreground agent go on in the background; the error says what it is otherwise.
    pub(super) fn background(&mut self, id: &AgentId) -> Result<(), String> {
        if background_disabled(&self.options) {
            return Err(format!("{} is set, so nothing moves to the background", env::DISABLE_BACKGROUND));
        }
        if self.move_to_background(id) {
            return Ok(());
        }
        Err(match self.supervisor.get(id) {
            Some(slot) if slot.is_live() => format!("{id} runs in the background already"),
            Some(_) => format!("{id} has ended already"),
            None => format!("there is no agent {id} in this session"),
        })
    }
}

/// Answers a call that came over the session's socket once its output is there.
fn answer_when_known(link: Link, seq: u64, answer: oneshot::Receiver<ToolOutput>) {
    tokio::spawn(async move {
        let output = answer.await.unwrap_or_else(|_| Declined::Ending.output());
        let ToolOutput { text, is_error, structured } = output;
        let _ = link.reply(seq, Frame::CallResult { text, is_error, structured });
    });
}

/// What the answer of `SendMessage` says became of the message.
fn delivered_of(output: ToolOutput) -> Delivered {
    let field = |name: &str| output.structured.as_ref()?.get(name)?.as_str().map(str::to_owned);
    match (field("outcome"), field("message")) {
        (Some(outcome), Some(message)) => Delivered { outcome, message },
        // A member's mailbox has it.
        _ if !output.is_error => Delivered { outcome: "queued".to_owned(), message: output.text },
        _ => Delivered { outcome: "refused".to_owned(), message: output.text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_refusals_keep_their_kind_over_the_wire() {
        for declined in [
            Declined::Usage("no such type".to_owned()),
            Declined::Refused("too many".to_owned()),
            Declined::Failed("died".to_owned()),
            Declined::Ending,
        ] {
            assert_eq!(Started::read(&declined.output()), Err(declined));
        }
        let plain = ToolOutput::error("the agent was not started: exit code 9");
        assert_eq!(Started::read(&plain), Err(Declined::Failed("exit code 9".to_owned())));
        let output = ToolOutput::ok("started").with(json!({"agentId": "a-1a2b3c4d5e6f7890"}));
        assert_eq!(Started::read(&output).map(|s| s.reachable), Ok(None));
        let launched = Launched { pid: 7, address: "uds:/x".to_owned(), pane: None };
        let started = Started::read(&reachable(output, &launched));
        assert_eq!(started.map(|s| s.reachable), Ok(Some(("uds:/x".to_owned(), 7))));
        assert!(Started::read(&ToolOutput::ok("nothing")).is_err());
    }

    #[test]
    fn a_description_is_the_first_words() {
        assert_eq!(description("  look\nat the  tree and report "), "look at the tree and");
        assert!(description(&"x".repeat(1000)).chars().count() <= 51);
    }
}
