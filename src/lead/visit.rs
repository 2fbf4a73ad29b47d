//! What others ask of a session over its socket (spec 5.3): status, messages, stops. Who asks is
//! computed from the peer's process, and messages from outside carry no authority (spec 2.3).

use super::queue::Priority;
use super::roles::background_disabled;
use super::session::Session;
use crate::agent::Input;
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::env;
use crate::core::frame::{Delivered, Delivery, Frame};
use crate::core::limits;
use crate::core::text;
use crate::endpoint::{Identity, Visit, identify};
use crate::settings::AcceptCrossSession;

/// Messages from outside that may wait.
const OUTSIDE_MESSAGES: usize = 256;

impl Session {
    /// Answers a request that came over the session's socket.
    pub(super) fn on_visit(&mut self, visit: Visit) {
        let Visit { link, seq, frame, .. } = visit;
        let answer = match frame {
            Frame::Status => match &self.registration {
                Some(registration) => Frame::StatusReply {
                    entry: Box::new(registration.entry().clone()),
                    state: Box::new(self.current_state()),
                },
                None => refused("the session is ending"),
            },
            Frame::Deliver(delivery) => self.take_in(delivery, &identify(&self.runtime, link.peer())),
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
                Identity::Person | Identity::Lead(_) if background_disabled(&self.options) => {
                    refused(&format!("{} is set, so nothing moves to the background", env::DISABLE_BACKGROUND))
                }
                Identity::Person | Identity::Lead(_) if self.foreground.remove(&id).is_some() => Frame::Done,
                Identity::Person | Identity::Lead(_) => refused(&format!("{id} is not in the foreground")),
            },
            _ => Frame::Error { code: "unsupported".to_owned(), message: "a lead can't do that".to_owned() },
        };
        let _ = link.reply(seq, answer);
    }

    /// A message from outside the session: on disk first, then the sender is told.
    fn take_in(&mut self, delivery: Delivery, identity: &Identity) -> Frame {
        let delivered = |outcome: &str, message: &str| {
            Frame::Delivered(Delivered { outcome: outcome.to_owned(), message: message.to_owned() })
        };
        if delivery.to.is_some() {
            return delivered("refused", "this session does not route messages from outside to its agents");
        }
        if self.options.settings.lead.accept_cross_session == AcceptCrossSession::Off && *identity != Identity::Person {
            return delivered("refused", "this session takes no messages from others (lead.acceptCrossSession)");
        }
        if self.quit.is_some() {
            return delivered("refused", "the session is ending");
        }
        if delivery.text.len() > limits::MESSAGE_BYTES {
            return delivered("refused", &format!("messages are at most {} bytes", limits::MESSAGE_BYTES));
        }
        if self.seen.contains(&delivery.msg_id) {
            return delivered("queued", "this message was taken in before");
        }
        if self.queue.snapshot().iter().filter(|e| e.input.msg_id.is_some()).count() >= OUTSIDE_MESSAGES {
            return delivered("refused", &format!("{OUTSIDE_MESSAGES} messages wait already"));
        }
        let from = identity.label();
        let (text, origin) = match identity {
            Identity::Person => (delivery.text, None),
            _ => (
                format!(
                    "<cross-session-message from=\"{}\">\n{}\n</cross-session-message>",
                    text::escape_attribute(&from),
                    text::escape(&delivery.text)
                ),
                Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
            ),
        };
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
        let input = Input { text, origin, msg_id: Some(delivery.msg_id), from: Some(from), is_meta: false };
        self.queue.push(Priority::Next, input);
        delivered("queued", "the session sees it with its next turn")
    }
}

fn refused(message: &str) -> Frame {
    Frame::Error { code: "refused".to_owned(), message: message.to_owned() }
}
