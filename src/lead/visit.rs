//! What others ask of a session over its socket (spec 5.3): status, messages, stops. Who asks is
//! computed from the peer's process, and messages from outside carry no authority (spec 2.3).

use std::time::Instant;

use super::queue::Priority;
use super::session::Session;
use crate::agent::{Event as AgentEvent, Input};
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::frame::{Delivered, Delivery, Frame};
use crate::core::limits;
use crate::endpoint::{Identity, Visit, identify, may_send, stop_shell};
use crate::settings::AcceptCrossSession;
use crate::supervisor::Newborn;

impl Session {
    /// Answers a request that came over the session's socket.
    pub(super) fn on_visit(&mut self, visit: Visit) {
        let Visit { link, seq, frame, inbox } = visit;
        if let (Frame::Hello(hello), Some(inbox)) = (&frame, inbox) {
            let hello = hello.clone();
            let id = hello.id.clone();
            if !self.nursery.arrive(Newborn { link: link.clone(), inbox, hello }) {
                let reason = format!("this lead waits for no member {id:?} that would start by itself");
                let _ = link.reply(seq, Frame::Refused { reason });
            }
            return;
        }
        if let Frame::StopShell { id, reason } = &frame {
            return match identify(&self.runtime, link.peer()) {
                Identity::Person | Identity::Lead(_) => stop_shell(&self.shells, id, reason, &link, seq),
                Identity::Agent(agent) => {
                    let why = format!("{agent} is an agent, and agents can't stop what others run");
                    let _ = link.reply(seq, refused(&why));
                }
            };
        }
        let answer = match frame {
            Frame::Status => match &self.registration {
                Some(registration) => Frame::StatusReply {
                    entry: Box::new(registration.entry().clone()),
                    state: Box::new(self.current_state()),
                },
                None => refused("the session is ending"),
            },
            Frame::Deliver(delivery) => {
                let identity = identify(&self.runtime, link.peer());
                if let Err(why) = may_send(&self.runtime, &identity) {
                    refused(&why)
                } else if delivery.to.is_some() {
                    return self.route(delivery, &identity, link, seq);
                } else {
                    let watched = delivery.notify_idle.then(|| delivery.msg_id.clone());
                    let answer = self.take_in(delivery, &identity);
                    if let (Some(msg_id), Frame::Delivered(Delivered { outcome, .. })) = (watched, &answer)
                        && outcome == "queued"
                        && self.idle_watchers.len() < limits::CONNECTIONS
                    {
                        self.idle_watchers.push((link.clone(), msg_id));
                    }
                    answer
                }
            }
            Frame::Call { tool, tool_use_id, input } => {
                return self.on_call(tool, tool_use_id, input, &identify(&self.runtime, link.peer()), link, seq);
            }
            Frame::Stop { id: Some(id), kill, reason } => match identify(&self.runtime, link.peer()) {
                Identity::Agent(agent) => {
                    refused(&format!("{agent} is an agent, and agents can't stop agents; its lead or the person can"))
                }
                Identity::Person | Identity::Lead(_) => match self.running(id.as_str()) {
                    Err(why) => Frame::Error { code: "not_found".to_owned(), message: why },
                    Ok(id) if self.stop_agent(&id, &reason, kill) => Frame::Done,
                    Ok(id) => refused(&format!("{id} has too many requests waiting; try again")),
                },
            },
            Frame::Background { id } => match identify(&self.runtime, link.peer()) {
                Identity::Agent(agent) => refused(&format!("{agent} is an agent, and agents don't move agents")),
                Identity::Person | Identity::Lead(_) => match self.background(&id) {
                    Ok(()) => Frame::Done,
                    Err(why) => refused(&why),
                },
            },
            Frame::HandOver => {
                let answer = self.begin_hand_over(&identify(&self.runtime, link.peer()));
                // Only who is told yes waits for the end; others may ask as often as they like.
                if answer == Frame::Done {
                    self.partings.push(link.clone());
                }
                answer
            }
            Frame::Questions => self.open_questions(),
            Frame::Permit { id, verdict, always } => return self.permit(&id, verdict, always, link, seq),
            _ => Frame::Error { code: "unsupported".to_owned(), message: "a lead can't do that".to_owned() },
        };
        let _ = link.reply(seq, answer);
    }

    /// Finishes the turn and lets the session go (spec 4.4): agents go on, and whoever resumes the
    /// session takes them over with all that they have to say.
    fn begin_hand_over(&mut self, identity: &Identity) -> Frame {
        if *identity != Identity::Person {
            return refused(&format!(
                "{} is an agent or session, and only the person hands one over",
                identity.label()
            ));
        }
        if self.quit.is_some() || self.detached.is_some() {
            return refused("the session is ending");
        }
        self.handing_over = true;
        self.say("the session is handed over after this turn");
        Frame::Done
    }

    /// A message from outside the session: on disk first, then the sender is told.
    fn take_in(&mut self, delivery: Delivery, identity: &Identity) -> Frame {
        let delivered = |outcome: &str, message: &str| {
            Frame::Delivered(Delivered { outcome: outcome.to_owned(), message: message.to_owned() })
        };
        if self.options.settings.lead.accept_cross_session == AcceptCrossSession::Off && *identity != Identity::Person {
            return delivered("refused", "this session takes no messages from others (lead.acceptCrossSession)");
        }
        if self.quit.is_some() {
            return delivered("refused", "the session is ending");
        }
        if self.handing_over {
            return delivered("refused", "the session is being handed over; send it to the next lead");
        }
        if delivery.text.len() > limits::MESSAGE_BYTES {
            return delivered("refused", &format!("messages are at most {} bytes", limits::MESSAGE_BYTES));
        }
        if self.seen.contains(&delivery.msg_id) {
            return delivered("queued", "this message was taken in before");
        }
        let from = identity.label();
        let waiting = self.queue.snapshot().iter().filter(|e| e.input.msg_id.is_some()).count();
        if let Err(why) = self.arrivals.admit(&from, waiting, Instant::now()) {
            return delivered("refused", &why);
        }
        let text = identity.heard(&delivery.text);
        let origin =
            (*identity != Identity::Person).then(|| Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None });
        let enqueued = Enqueued {
            msg_id: delivery.msg_id.clone(),
            from: from.clone(),
            content: text.clone(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.id.as_str().to_owned(),
        };
        if let Err(error) = self.driver.record(&Line::Enqueued(enqueued)) {
            return delivered("refused", &format!("the session can't write the message down: {error}"));
        }
        self.seen.insert(delivery.msg_id.clone());
        let input = Input { text, origin, msg_id: Some(delivery.msg_id), from: Some(from), ..Input::default() };
        if delivery.now && *identity == Identity::Person {
            if !self.driver.is_idle() {
                self.step(AgentEvent::Inputs(vec![input]));
                return delivered("queued", "the session sees it at its next step");
            }
            self.queue.push(Priority::Now, input);
        } else {
            self.queue.push(Priority::Next, input);
        }
        delivered("queued", "the session sees it with its next turn")
    }
}

fn refused(message: &str) -> Frame {
    Frame::Error { code: "refused".to_owned(), message: message.to_owned() }
}
