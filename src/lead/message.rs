//! Carries out `SendMessage` (spec 2.3): to agents of this session, running or ended, and to other
//! sessions by address.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::ask::{Ask, Asker};
use super::session::{Inner, Session};
use crate::agent::Input;
use crate::core::frame::{Delivered, Delivery, Frame, Prompt};
use crate::core::ids::AgentId;
use crate::core::limits::deadlines;
use crate::core::text;
use crate::supervisor::{Command, Deliver, ReadyReceiver, Slot};
use crate::tool::ToolOutput;
use crate::tool::message::{Message, Said};
use crate::wire::{Inbox, Incoming, Link, dial_and_greet, parse_address};

/// Rounds between delivering (it just ended) and resuming (it just came back).
const ROUNDS: u32 = 3;
/// Time all rounds together may take.
const ROUNDS_TIME: Duration = Duration::from_secs(5);

/// Messages on their way to other processes, one at a time to each address: two connections to a process
/// that is busy are heard in any order. The latest to an address is done when all before it are.
#[derive(Debug, Default)]
pub(super) struct Underway(HashMap<PathBuf, JoinHandle<()>>);
/// An agent as messages may be addressed to it.
fn called(id: &AgentId, slot: &Slot) -> String {
    match &slot.meta.name {
        Some(name) => format!("{name} ({id})"),
        None => id.as_str().to_owned(),
    }
}

/// A message that may go out.
struct Outgoing {
    to: String,
    text: String,
    summary: String,
    /// Whether the receiver's next rest is to be told.
    notify_idle: bool,
}

impl Session {
    /// Carries out one `SendMessage` call.
    pub(super) fn send_message(&mut self, ask: Ask) {
        let message = match Message::parse(&ask.input) {
            Ok(message) => message,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        if self.is_for_member(&message) {
            return self.send_in_team(ask, message);
        }
        let outgoing = match check(message) {
            Ok(outgoing) => outgoing,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        if outgoing.to.contains(':') {
            return self.send_to_address(ask, outgoing);
        }
        let id = match self.recipient(&outgoing.to) {
            Ok(id) => id,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        if ask.asker == Asker::Agent(id.clone()) {
            return ask.answer(ToolOutput::error("that is yourself; a message is for another agent"));
        }
        self.deliver_or_resume(ask, &id, outgoing);
    }

    /// The agents that run: what they are called and what they do.
    pub(super) fn agents_in_words(&self) -> Vec<(String, String)> {
        let live = self.supervisor.iter().filter(|(_, slot)| slot.is_live());
        let mut live: Vec<_> = live.map(|(id, slot)| (called(id, slot), slot.meta.description.clone())).collect();
        live.sort();
        live
    }

    fn recipient(&self, to: &str) -> Result<AgentId, String> {
        if to == "*" {
            return Err("there is no team to send to: `*` reaches the members of a team".to_owned());
        }
        let found = self.supervisor.by_name(to).cloned().or_else(|| AgentId::parse(to));
        if let Some(id) = found.filter(|id| self.supervisor.get(id).is_some()) {
            return Ok(id);
        }
        let mut known: Vec<String> = self.supervisor.iter().map(|(id, slot)| called(id, slot)).collect();
        known.sort();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(format!("there is no agent {to:?} in this session; it has: {known}"))
    }

    fn deliver_or_resume(&mut self, ask: Ask, id: &AgentId, outgoing: Outgoing) {
        if ask.rounds >= ROUNDS || ask.since.elapsed() > ROUNDS_TIME {
            let text = format!("{id} ends and comes back all the time; the message was not delivered. Try again.");
            return ask.answer(ToolOutput::error(text));
        }
        let from = ask.asker.label(&self.id);
        let (reply, answer) = oneshot::channel();
        let delivery = Delivery {
            msg_id: ask.msg_id.clone(),
            to: None,
            text: outgoing.text.clone(),
            summary: Some(outgoing.summary),
            from: Some(from.clone()),
            notify_idle: false,
            now: false,
        };
        let inner = self.inner.clone();
        let (id, to) = (id.clone(), outgoing.to);
        if self.supervisor.command(&id, Command::Deliver(Deliver { delivery, reply })) {
            tokio::spawn(async move {
                let delivered = answer.await.unwrap_or_else(|_| gone());
                if delivered.outcome == "ended" {
                    // Its end reaches the table before this does, so the next round resumes it.
                    let again = Inner::Ask(Ask { rounds: ask.rounds + 1, ..ask });
                    let _ = inner.send(again).await;
                    return;
                }
                ask.answer(output(&to, &id, &delivered));
            });
            return;
        }
        if self.supervisor.get(&id).is_some_and(Slot::is_live) {
            let pid = self.agent_pid(&id).unwrap_or_default();
            let text = format!("{id} (pid {pid}) has too many messages waiting; the message was refused");
            return ask.answer(ToolOutput::error(text));
        }
        let prompt = Prompt { text: outgoing.text, msg_id: Some(ask.msg_id.clone()), from };
        match self.resume_agent(&id, prompt) {
            Err(refusal) => ask.answer(ToolOutput::error(refusal)),
            Ok(ready) => {
                self.say(&format!("agent {id} continued"));
                tokio::spawn(async move {
                    let delivered = resumed(ready).await;
                    ask.answer(output(&to, &id, &delivered));
                });
            }
        }
    }

    fn send_to_address(&mut self, ask: Ask, outgoing: Outgoing) {
        let path = match parse_address(&outgoing.to) {
            Ok(path) => path,
            Err(error) => return ask.answer(ToolOutput::error(error.to_string())),
        };
        let session = self.id.as_str().to_owned();
        let inner = self.inner.clone();
        let address = path.clone();
        let before = self.underway.0.remove(&path);
        let sending = tokio::spawn(async move {
            if let Some(mut before) = before
                && timeout(deadlines().reply, &mut before).await.is_err()
            {
                let text = format!("{} can't be reached: it does not answer an earlier message", outgoing.to);
                ask.answer(ToolOutput::error(text));
                // What is sent next must not overtake that one either.
                let _ = before.await;
                return;
            }
            let delivery = Delivery {
                msg_id: ask.msg_id.clone(),
                to: None,
                text: outgoing.text,
                summary: Some(outgoing.summary),
                from: None,
                notify_idle: outgoing.notify_idle,
                now: false,
            };
            let mut inbox = None;
            let sent = async {
                let (link, receiver, _) = dial_and_greet(&path, "lead", &session).await?;
                inbox = Some((link.clone(), receiver));
                link.request(Frame::Deliver(delivery), deadlines().reply).await
            };
            let result = match sent.await {
                Ok(Frame::Delivered(delivered)) if delivered.outcome == "queued" => {
                    if let Some((link, receiver)) = inbox.filter(|_| outgoing.notify_idle) {
                        tokio::spawn(hear_of_idle(outgoing.to.clone(), link, receiver, inner));
                    }
                    ToolOutput::ok(format!("queued: {}", delivered.message))
                        .with(json!({"outcome": "queued", "to": outgoing.to}))
                }
                Ok(Frame::Delivered(delivered)) => {
                    ToolOutput::error(format!("{}: {}", delivered.outcome, delivered.message))
                }
                Ok(Frame::Error { message, .. }) => ToolOutput::error(message),
                Ok(_) => ToolOutput::error(format!("{} answered something else", outgoing.to)),
                Err(error) => ToolOutput::error(format!("{} can't be reached: {error}", outgoing.to)),
            };
            ask.answer(result);
        });
        self.underway.0.retain(|_, earlier| !earlier.is_finished());
        self.underway.0.insert(address, sending);
    }
}

fn check(message: Message) -> Result<Outgoing, String> {
    let Message { to, said, summary, notify_when_idle: notify_idle } = message;
    match said {
        Said::Plain(text) => Ok(Outgoing { to, text, summary, notify_idle }),
        _ => Err("structured messages are for members of a team; send plain text to an agent".to_owned()),
    }
}

/// Waits until the receiver of a message is idle or gone, which ends by itself with either process,
/// and tells the model once.
async fn hear_of_idle(to: String, link: Link, mut inbox: Inbox, inner: mpsc::Sender<Inner>) {
    let said = loop {
        match inbox.recv().await {
            Some(Incoming { frame: Frame::Idle { .. }, .. }) => break "is idle",
            Some(_) => {}
            None => break "has ended",
        }
    };
    link.close();
    let text = format!(
        "<session-idle address=\"{}\">The session you wrote to {said}.</session-idle>",
        text::escape_attribute(&to)
    );
    let _ = inner.send(Inner::Notice(Input { text, is_meta: true, ..Input::default() })).await;
}

async fn resumed(ready: ReadyReceiver) -> Delivered {
    match ready.await {
        Ok(Ok(_)) => Delivered {
            outcome: "resumed".to_owned(),
            message: "it had ended and goes on in the background with this message; its result comes as a \
<task-notification>"
                .to_owned(),
        },
        Ok(Err(error)) => {
            Delivered { outcome: "refused".to_owned(), message: format!("it could not be continued: {error}") }
        }
        Err(_) => gone(),
    }
}

fn gone() -> Delivered {
    Delivered { outcome: "refused".to_owned(), message: "the session is ending".to_owned() }
}

fn output(to: &str, id: &AgentId, delivered: &Delivered) -> ToolOutput {
    let text = format!("{}: {}", delivered.outcome, delivered.message);
    let structured = json!({
        "success": delivered.outcome != "refused",
        "outcome": delivered.outcome,
        "to": to,
        "agentId": id.as_str(),
        "message": delivered.message,
    });
    match delivered.outcome.as_str() {
        "refused" => ToolOutput::error(text).with(structured),
        _ => ToolOutput::ok(text).with(structured),
    }
}
