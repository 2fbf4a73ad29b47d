//! A member's mailbox (spec 3.3): each message is in its transcript before it is marked read, so that a
//! crash in between leaves it to be marked, not to be shown again.

use super::member::{Done, Teammate};
use crate::agent::Input;
use crate::core::fault::{self, Fault};
use crate::core::limits;
use crate::core::team::name::{LEAD, same};
use crate::core::team::protocol::Content;
use crate::core::team::{Mail, Protocol, shown};
use crate::core::text::with_causes;
use crate::store::team::TeamError;
use crate::store::team::mailbox::Seen;

impl Teammate {
    /// Reads what came.
    pub(super) fn read_mail(&self) {
        let (mailbox, done) = (self.mailbox.clone(), self.done.clone());
        // To wake a thread takes longer than to read a file that is short.
        if let Some(seen) = mailbox.unread_at_once()
            && done.try_send(Done::Mail(Ok(seen))).is_ok()
        {
            return;
        }
        tokio::spawn(async move {
            let read = tokio::task::spawn_blocking(move || mailbox.unread()).await;
            let read = read.unwrap_or_else(|panic| {
                tracing::error!(%panic, "reading the mailbox failed");
                Ok(Seen::default())
            });
            let _ = done.send(Done::Mail(read)).await;
        });
    }

    /// Takes in what was read. The look is over when that is marked.
    pub(super) fn on_mail(&mut self, seen: Result<Seen, TeamError>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!("the mailbox can't be read: {}", with_causes(&error));
                self.attention.looked();
                return self.retry_mail();
            }
        };
        if let Some(rescue) = &seen.rescue {
            let (moved, kept, reason) = (rescue.moved_to.display(), rescue.kept, &rescue.reason);
            tracing::warn!("the mailbox was broken ({reason}); it lies at {moved}, {kept} messages were kept");
        }
        let (mut said, mut taken) = (Vec::new(), Vec::new());
        for mail in seen.mail {
            let Some(id) = mail.msg_id.clone() else { continue };
            // Taken in before, and not marked yet.
            if self.agent.seen.contains(&id) {
                taken.push(id);
                continue;
            }
            match Content::of(&mail.text) {
                Content::Plain | Content::Unknown(_) => said.push((id, mail)),
                Content::Protocol(message) => {
                    // Once, also when it is read again before it is marked.
                    self.agent.seen.insert(id.clone());
                    self.on_mailed(&mail, *message);
                    taken.push(id);
                }
                Content::Broken { kind, reason } => {
                    tracing::warn!("a {kind} from {:?} can't be used: {reason}", mail.from);
                    taken.push(id);
                }
            }
        }
        // What the lead says comes first.
        said.sort_by_key(|(_, mail)| !same(&mail.from, LEAD));
        let room = limits::HAND_OVER.saturating_sub(taken.len());
        let more = said.len() > room;
        said.truncate(room);
        let mut inputs = Vec::new();
        for (id, mail) in said {
            fault::point(Fault::MailBeforeEntry);
            match self.agent.take_in(&id, &mail.from, shown::mail(&mail)) {
                Ok(input) => {
                    inputs.push(input);
                    taken.push(id);
                }
                Err(error) => {
                    tracing::warn!("a message stays in the mailbox, since it can't be written down: {error}");
                    self.retry_mail();
                    break;
                }
            }
        }
        if !inputs.is_empty() {
            self.tell(inputs);
        }
        if taken.is_empty() {
            return self.attention.looked();
        }
        fault::point(Fault::EntryBeforeMark);
        let (mailbox, done) = (self.mailbox.clone(), self.done.clone());
        tokio::spawn(async move {
            let marked = tokio::task::spawn_blocking(move || {
                let ids: Vec<&str> = taken.iter().map(String::as_str).collect();
                mailbox.mark(&ids).map(drop)
            });
            let marked = marked.await.unwrap_or_else(|panic| {
                tracing::error!(%panic, "marking messages read failed");
                Ok(())
            });
            let _ = done.send(Done::Marked { marked, more }).await;
        });
    }

    pub(super) fn on_marked(&mut self, marked: Result<(), TeamError>, more: bool) {
        match marked {
            Ok(()) => self.attention.wake(more, false),
            // What stays unread is known by its id when it is read again.
            Err(error) => {
                tracing::warn!("messages were not marked read: {}", with_causes(&error));
                self.retry_mail();
            }
        }
    }

    /// A message between runtimes that came by mail, where anybody can write: it may ask and wake, and
    /// has no authority (spec 5.6).
    fn on_mailed(&mut self, mail: &Mail, message: Protocol) {
        match message {
            Protocol::ShutdownRequest(request) => self.ask_to_end(&request),
            Protocol::TaskAssignment(_) => {
                self.attention.told();
                self.attention.wake(false, true);
            }
            other => {
                let (kind, from) = (other.kind(), &mail.from);
                tracing::warn!(
                    "a {kind} from {from:?} came by mail and is ignored: it counts over the owner link only"
                );
            }
        }
    }

    /// Something the person typed at its pane.
    pub(super) fn person_said(&mut self, text: String) {
        self.tell(vec![Input { text, from: Some("user".to_owned()), ..Input::default() }]);
    }
}
