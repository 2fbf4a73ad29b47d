//! Tells an agent's owner what its conversation does: each line as soon as it is on disk (R097), and
//! what is no line if the owner wants to know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::agent::Witness;
use crate::core::entry::Line;
use crate::core::frame::{Frame, ModelWait, Telling};
use crate::model::CallEvent;
use crate::wire::Link;

/// Sees an agent's conversation for its owner. Lines that the link does not take, because it is full or
/// gone, the owner reads from the transcript at the end of the run; other things are lost then.
#[derive(Default)]
pub(super) struct LineTeller {
    ear: Mutex<Ear>,
    /// Who sees the same in this process.
    beside: Option<Arc<dyn Witness>>,
}

/// Who listens, and to what.
#[derive(Default)]
struct Ear {
    link: Option<Link>,
    telling: Telling,
    /// A reply of which a part was lost: the rest would make no sense.
    cut: Option<String>,
}

impl LineTeller {
    /// One that lets `beside` see everything, too.
    pub(super) fn beside(beside: Option<Arc<dyn Witness>>) -> Self {
        Self { ear: Mutex::default(), beside }
    }

    /// From now on over this link.
    pub(super) fn tell(&self, link: Link, telling: Telling) {
        *self.ear() = Ear { link: Some(link), telling, cut: None };
    }

    fn ear(&self) -> MutexGuard<'_, Ear> {
        self.ear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link, if the owner wants to hear so much.
    fn link(&self, telling: Telling) -> Option<Link> {
        let ear = self.ear();
        ear.link.clone().filter(|_| ear.telling >= telling)
    }

    fn part(&self, message_id: &str, event: &str) {
        let Some(link) = self.link(Telling::Parts) else { return };
        if self.ear().cut.as_deref() == Some(message_id) {
            return;
        }
        let part = Frame::ReplyPart { message_id: message_id.to_owned(), event: event.to_owned() };
        if link.offer(part).is_err() {
            self.ear().cut = Some(message_id.to_owned());
        }
    }
}

impl Witness for LineTeller {
    fn line(&self, line: &Line) {
        if let Some(beside) = &self.beside {
            beside.line(line);
        }
        let Some(link) = self.link(Telling::Lines) else { return };
        if let Some(json) = line.to_bytes().ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
            let _ = link.send(Frame::Entry { json });
        }
    }

    fn call(&self, event: CallEvent<'_>) {
        if let Some(beside) = &self.beside {
            beside.call(event);
        }
        match event {
            CallEvent::Sent { .. } => {}
            CallEvent::Part { message_id, event } => self.part(message_id, event),
            CallEvent::Waiting(retry) => {
                let Some(link) = self.link(Telling::Lines) else { return };
                let _ = link.send(Frame::ModelWaits(ModelWait {
                    attempt: retry.attempt,
                    attempts: retry.attempts,
                    delay_ms: u64::try_from(retry.delay.as_millis()).unwrap_or(u64::MAX),
                    reason: retry.reason.to_owned(),
                    discarded_message_id: retry.discarded_message_id.map(str::to_owned),
                }));
            }
        }
    }

    fn compacting(&self) {
        if let Some(beside) = &self.beside {
            beside.compacting();
        }
        if let Some(link) = self.link(Telling::Lines) {
            let _ = link.send(Frame::Compacting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::UnixStream;

    use super::*;
    use crate::model::Retrying;
    use crate::wire::{Connection, Inbox, PeerStream};

    const SOON: Duration = Duration::from_secs(30);

    /// A teller, and the other end, of which both halves must be held.
    fn told_to(telling: Telling) -> (LineTeller, (Link, Inbox)) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let start = |stream| Connection::start(PeerStream::new(stream).unwrap());
        let teller = LineTeller::default();
        teller.tell(start(ours).0, telling);
        (teller, start(theirs))
    }

    /// The kinds of the frames that come until the teller is gone; of parts their reply.
    async fn heard(teller: LineTeller, (_link, mut inbox): (Link, Inbox)) -> Vec<String> {
        drop(teller);
        let mut heard = Vec::new();
        while let Some(incoming) = tokio::time::timeout(SOON, inbox.recv()).await.unwrap() {
            heard.push(match incoming.frame {
                Frame::Compacting => "compacting".to_owned(),
                Frame::ReplyPart { message_id, .. } => message_id,
                Frame::ModelWaits(wait) => format!("withdrawn {:?}", wait.discarded_message_id),
                other => format!("{other:?}"),
            });
        }
        heard
    }

    fn part(teller: &LineTeller, message_id: &str) {
        teller.call(CallEvent::Part { message_id, event: "{}" });
    }

    #[tokio::test]
    async fn an_owner_hears_as_much_as_it_asked_for() {
        for (telling, wanted) in [
            (Telling::Nothing, &[][..]),
            (Telling::Lines, &["withdrawn Some(\"m1\")", "compacting"]),
            (Telling::Parts, &["m1", "withdrawn Some(\"m1\")", "compacting"]),
        ] {
            let (teller, other) = told_to(telling);
            teller.call(CallEvent::Sent { attempt: 1 });
            part(&teller, "m1");
            teller.call(CallEvent::Waiting(Retrying {
                attempt: 1,
                attempts: 2,
                delay: SOON,
                reason: "cut",
                discarded_message_id: Some("m1"),
            }));
            teller.compacting();
            assert_eq!(heard(teller, other).await, wanted, "{telling:?}");
        }
    }

    #[tokio::test]
    async fn a_reply_of_which_a_part_was_lost_is_told_no_further() {
        let (teller, other) = told_to(Telling::Parts);
        // Nothing is written before somebody waits.
        (0..2000).for_each(|_| part(&teller, "m1"));
        teller.compacting();
        let link = teller.ear().link.clone().unwrap();
        link.flush(SOON).await.unwrap();
        part(&teller, "m1");
        part(&teller, "m2");
        drop(link);
        let heard = heard(teller, other).await;
        let first = heard.iter().take_while(|what| *what == "m1").count();
        assert!(first > 100 && first < 1000, "{first}");
        assert_eq!(heard[first..], ["compacting", "m2"]);
    }
}
