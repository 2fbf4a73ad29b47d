//! What others ask of a worker: its owner over the link, whoever connects over its own socket. Who
//! asks is computed from the connection, and messages are on disk before their sender is told.

use std::time::Instant;

use super::identity::{Identity, identify, may_send};
use super::shells::stop_shell;
use super::visitors::Visit;
use super::worker::Worker;
use crate::agent::{Event as AgentEvent, Input};
use crate::core::agent::{Owner, RunStatus};
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::fault::{self, Fault};
use crate::core::frame::{Delivered, Delivery, Frame};
use crate::core::limits;
use crate::store::runtime::list;
use crate::wire::Incoming;

impl Worker {
    pub(super) fn on_owner(&mut self, incoming: Option<Incoming>) {
        let Some(Incoming { seq, frame }) = incoming else {
            self.owner.inbox = None;
            if self.state.owner == Owner::Lead {
                self.state.owner = if self.owner.is_free { Owner::None } else { Owner::Lost };
                if self.owner.is_free {
                    self.questions.let_go();
                }
                self.publish();
            }
            return;
        };
        let link = self.owner.link.clone();
        match frame {
            Frame::Release => {
                self.owner.is_free = true;
                self.state.owner = Owner::None;
                self.questions.let_go();
                self.publish();
                let _ = link.reply(seq, Frame::Done);
            }
            Frame::Deliver(delivery) => {
                let from = delivery.from.clone().unwrap_or_else(|| self.config.session.as_str().to_owned());
                let text = delivery.text.clone();
                let answer = self.deliver(delivery, from, text);
                let _ = link.reply(seq, answer);
            }
            Frame::Stop { reason, .. } => {
                let _ = link.reply(seq, Frame::Done);
                self.begin_stop(RunStatus::Killed, reason, None);
            }
            Frame::SetPermissions(said) => {
                let _ = link.reply(seq, self.permissions.answer(&said));
            }
            Frame::Status => {
                let _ = link.reply(seq, self.status());
            }
            Frame::Ping => {
                let _ = link.reply(seq, Frame::Pong);
            }
            _ => {
                let _ = link.reply(seq, unsupported());
            }
        }
    }

    pub(super) fn on_visit(&mut self, visit: Visit) {
        let Visit { link, inbox, seq, frame } = visit;
        match frame {
            Frame::Status => {
                let _ = link.reply(seq, self.status());
            }
            Frame::Deliver(delivery) => {
                let identity = identify(&self.runtime, link.peer());
                if let Err(message) = may_send(&self.runtime, &identity) {
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                    return;
                }
                let text = identity.heard(&delivery.text);
                let answer = match self.admit(&identity) {
                    Ok(()) => self.deliver(delivery, identity.label(), text),
                    Err(why) => refused_delivery(why),
                };
                let _ = link.reply(seq, answer);
            }
            Frame::Stop { reason, .. } => match identify(&self.runtime, link.peer()) {
                Identity::Agent(id) => {
                    let message =
                        format!("{id} is an agent, and agents can't stop other agents; its lead or the person can");
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                }
                Identity::Person | Identity::Lead(_) => {
                    let _ = link.reply(seq, Frame::Done);
                    self.begin_stop(RunStatus::Killed, reason, None);
                }
            },
            Frame::StopShell { id, reason } => match identify(&self.runtime, link.peer()) {
                Identity::Agent(agent) => {
                    let message = format!("{agent} is an agent, and agents can't stop what others run");
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                }
                Identity::Person | Identity::Lead(_) => stop_shell(&self.shells, &id, &reason, &link, seq),
            },
            Frame::Adopt { session, telling } => {
                let lead = list(&self.runtime).unwrap_or_default().into_iter().find(|r| {
                    r.alive
                        && r.entry.role == "lead"
                        && r.entry.session == self.config.session.as_str()
                        && r.entry.pid == link.peer().pid
                });
                if session != self.config.session || lead.is_none() {
                    let message = format!("only the live lead of session {} can adopt this agent", self.config.session);
                    let _ = link.reply(seq, Frame::Error { code: "refused".to_owned(), message });
                    return;
                }
                self.owner.link.close();
                self.owner.link = link.clone();
                self.owner.inbox = inbox;
                self.state.owner = Owner::Lead;
                self.publish();
                let adopted = Frame::Adopted { state: Box::new(self.state.clone()), runtime: self.name.clone() };
                let _ = link.reply(seq, adopted);
                self.questions.put_again(&link);
                // From the answer on: what is on disk by now the new owner reads itself.
                self.owner.lines.tell(link, telling);
            }
            _ => {
                let _ = link.reply(seq, unsupported());
            }
        }
    }

    /// Whether another message of somebody outside is taken in.
    fn admit(&mut self, identity: &Identity) -> Result<(), String> {
        if !self.config.accept_cross_session && *identity != Identity::Person {
            return Err("this agent takes no messages from others (lead.acceptCrossSession)".to_owned());
        }
        self.arrivals.admit(&identity.label(), self.driver.pending(), Instant::now())
    }

    /// Takes a message in: on disk first, then the sender is told (spec 2.3).
    fn deliver(&mut self, delivery: Delivery, from: String, text: String) -> Frame {
        let delivered =
            |outcome: &str, message: String| Frame::Delivered(Delivered { outcome: outcome.to_owned(), message });
        if self.seen.contains(&delivery.msg_id) {
            return delivered("queued", "this message was taken in before".to_owned());
        }
        if self.ending || self.stop.is_some() {
            return delivered("ended", "the agent's run is ending".to_owned());
        }
        if text.len() > limits::FRAME_BYTES / 2 || delivery.text.len() > limits::MESSAGE_BYTES {
            return delivered("refused", format!("messages are at most {} bytes", limits::MESSAGE_BYTES));
        }
        fault::point(Fault::DeliverBeforeEnqueue);
        let enqueued = Enqueued {
            msg_id: delivery.msg_id.clone(),
            from: from.clone(),
            content: text.clone(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.config.session.as_str().to_owned(),
        };
        if let Err(error) = self.driver.record(&Line::Enqueued(enqueued)) {
            return delivered("refused", format!("the agent can't write the message down: {error}"));
        }
        fault::point(Fault::EnqueueBeforeReply);
        self.seen.insert(delivery.msg_id.clone());
        let input = Input {
            text,
            origin: Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
            msg_id: Some(delivery.msg_id),
            from: Some(from),
            ..Input::default()
        };
        self.step(AgentEvent::Inputs(vec![input]));
        delivered("queued", "the agent sees it at its next step".to_owned())
    }

    fn status(&self) -> Frame {
        match self.registration.as_ref() {
            Some(registration) => Frame::StatusReply {
                entry: Box::new(registration.entry().clone()),
                state: Box::new(self.current_state()),
            },
            None => unsupported(),
        }
    }
}

fn refused_delivery(message: String) -> Frame {
    Frame::Delivered(Delivered { outcome: "refused".to_owned(), message })
}

fn unsupported() -> Frame {
    Frame::Error { code: "unsupported".to_owned(), message: "a worker can't do that".to_owned() }
}
