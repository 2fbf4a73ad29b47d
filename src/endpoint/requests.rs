//! What others ask of an agent: its owner over the link, whoever connects over its own socket. Who
//! asks is computed from the connection, and messages are on disk before their sender is told.

use std::time::Instant;

use super::agent::Agent;
use super::identity::{Identity, identify, may_send};
use super::shells::stop_shell;
use super::visitors::Visit;
use crate::agent::{Event as AgentEvent, Input};
use crate::core::agent::{Owner, RunStatus};
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::fault::{self, Fault};
use crate::core::frame::{Delivered, Delivery, Frame};
use crate::core::ids::SessionId;
use crate::core::limits;
use crate::core::paths::ConfigDir;
use crate::store::StoreError;
use crate::store::atomic::Durability;
use crate::store::runtime::list;
use crate::store::team::Team;
use crate::wire::Incoming;

impl Agent {
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
                if let Err(message) = self.may_adopt(&session, link.peer().pid) {
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

    /// Whether the process `pid` may become the owner, as the lead of `session` (spec 5.3).
    fn may_adopt(&self, session: &SessionId, pid: i32) -> Result<(), String> {
        let registered = list(&self.runtime).unwrap_or_default();
        let is_lead = registered
            .iter()
            .any(|r| r.alive && r.entry.role == "lead" && r.entry.session == session.as_str() && r.entry.pid == pid);
        match &self.config.membership {
            None if is_lead && *session == self.config.session => Ok(()),
            None => Err(format!("only the live lead of session {} can adopt this agent", self.config.session)),
            Some(membership) => {
                let config = ConfigDir::new(&self.config.config_dir);
                let team = Team::open(&config, &membership.team, Durability::Process);
                let leader = team.and_then(|team| team.leader()).ok().flatten().flatten();
                if is_lead && leader.is_some_and(|leader| leader.pid == pid) {
                    return Ok(());
                }
                Err(format!("only the live lead of team {} can adopt its members", membership.team))
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
        match self.take_in(&delivery.msg_id, &from, text) {
            Ok(input) => {
                fault::point(Fault::EnqueueBeforeReply);
                self.step(AgentEvent::Inputs(vec![input]));
                delivered("queued", "the agent sees it at its next step".to_owned())
            }
            Err(error) => delivered("refused", format!("the agent can't write the message down: {error}")),
        }
    }

    /// Writes a message down, so that it is shown to the model even if this process dies first; what
    /// is to be told to the conversation.
    pub fn take_in(&mut self, msg_id: &str, from: &str, text: String) -> Result<Input, StoreError> {
        self.driver.record(&Line::Enqueued(Enqueued {
            msg_id: msg_id.to_owned(),
            from: from.to_owned(),
            content: text.clone(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.config.place.session_id.clone(),
        }))?;
        self.seen.insert(msg_id.to_owned());
        Ok(Input {
            text,
            origin: Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
            msg_id: Some(msg_id.to_owned()),
            from: Some(from.to_owned()),
            ..Input::default()
        })
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
    Frame::Error { code: "unsupported".to_owned(), message: "an agent can't do that".to_owned() }
}
