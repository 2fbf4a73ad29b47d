//! The lead's mailbox (spec 3.3, 2.1): what members say is written into the transcript, then marked
//! read, then shown with the next turn. It comes before the notice that its sender rests (R025).

use std::time::{Duration, Instant};

use super::super::queue::Priority;
use super::super::session::Session;
use super::delete::Removal;
use super::led::{News, report};
use crate::agent::{Event as AgentEvent, Input};
use crate::core::clock;
use crate::core::entry::{Enqueued, Line, ORIGIN_PEER, Origin};
use crate::core::fault::{self, Fault};
use crate::core::limits;
use crate::core::team::name::LEAD;
use crate::core::team::payload::IdleNotification;
use crate::core::team::protocol::Content;
use crate::core::team::{Mail, Protocol, shown};
use crate::core::text::{escape, with_causes};
use crate::proc::deadline;
use crate::store::StoreError;
use crate::store::team::TeamError;
use crate::store::team::mailbox::Seen;

/// How long after messages could not be marked read the others are looked at.
const RETRY: Duration = Duration::from_secs(1);

impl Session {
    /// Reads the mailbox if something may have come, and looks whether all is done if it may be.
    pub(in super::super) fn attend_team(&mut self) {
        let Some(led) = &mut self.team else { return };
        // Its files may be gone the next moment.
        let is_going = led.removal.as_ref().is_some_and(Removal::is_removing);
        if led.reads || !led.has_mail || self.handing_over || is_going {
            return;
        }
        (led.has_mail, led.reads) = (false, true);
        let (team, inner) = (led.team.clone(), self.inner.clone());
        tokio::spawn(async move {
            let seen = tokio::task::spawn_blocking(move || team.mailbox(LEAD)?.unread()).await;
            let seen = seen.unwrap_or_else(|panic| {
                tracing::error!(%panic, "reading the mailbox failed");
                Ok(Seen::default())
            });
            report(&inner, News::Mail(seen)).await;
        });
    }

    pub(super) fn on_team_mail(&mut self, seen: Result<Seen, TeamError>) {
        let seen = match seen {
            Ok(seen) => seen,
            // It is being removed, by this session or by somebody's force: there is nothing to take in.
            Err(TeamError::Gone { .. }) => return self.on_team_marked(false),
            Err(error) => {
                tracing::warn!("the mailbox of the lead can't be read: {}", with_causes(&error));
                Seen::default()
            }
        };
        if let Some(rescue) = &seen.rescue {
            self.say(&format!(
                "the mailbox of the lead was broken ({}); it lies at {}, {} messages were kept",
                rescue.reason,
                rescue.moved_to.display(),
                rescue.kept
            ));
        }
        let (mut taken, mut more) = (Vec::new(), false);
        for mail in seen.mail {
            let Some(id) = mail.msg_id.clone() else { continue };
            if taken.len() >= limits::HAND_OVER {
                more = true;
                break;
            }
            if !self.seen.contains(&id) {
                match Content::of(&mail.text) {
                    Content::Plain | Content::Unknown(_) => {
                        fault::point(Fault::MailBeforeEntry);
                        if let Err(error) = self.take_in_mail(&id, &mail) {
                            tracing::warn!("a message stays in the mailbox, since it can't be written down: {error}");
                            break;
                        }
                    }
                    Content::Protocol(message) => {
                        // Once, also when it is read again before it is marked.
                        self.seen.insert(id.clone());
                        self.on_mailed(&mail, *message);
                    }
                    Content::Broken { kind, reason } => {
                        tracing::warn!("a {kind} from {:?} can't be used: {reason}", mail.from);
                    }
                }
            }
            taken.push(id);
        }
        self.mark_read(taken, more);
    }

    /// What was taken in is marked read, and is looked for `more` if there is.
    pub(super) fn on_team_marked(&mut self, more: bool) {
        if let Some(led) = &mut self.team {
            led.reads = false;
            led.has_mail |= more;
        }
        self.attend_team();
    }

    fn take_in_mail(&mut self, id: &str, mail: &Mail) -> Result<(), StoreError> {
        let text = shown::mail(mail);
        self.driver.record(&Line::Enqueued(Enqueued {
            msg_id: id.to_owned(),
            from: mail.from.clone(),
            content: text.clone(),
            timestamp: clock::iso(clock::now_ms()),
            session_id: self.id.as_str().to_owned(),
        }))?;
        self.seen.insert(id.to_owned());
        let origin = Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None });
        let (msg_id, from) = (Some(id.to_owned()), Some(mail.from.clone()));
        self.queue.push(Priority::Next, Input { text, origin, msg_id, from, ..Input::default() });
        Ok(())
    }

    fn mark_read(&mut self, ids: Vec<String>, more: bool) {
        let Some(led) = self.team.as_ref().filter(|_| !ids.is_empty()) else { return self.on_team_marked(more) };
        fault::point(Fault::EntryBeforeMark);
        let (team, inner) = (led.team.clone(), self.inner.clone());
        tokio::spawn(async move {
            let marked = tokio::task::spawn_blocking(move || {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                team.mailbox(LEAD)?.mark(&ids)
            });
            let why = match marked.await {
                Ok(Ok(_)) => None,
                // What stays unread is known by its id when it is read again.
                Ok(Err(error)) => Some(with_causes(&error)),
                Err(panic) => Some(panic.to_string()),
            };
            if let Some(why) = why {
                tracing::warn!("messages were not marked read: {why}");
                if more {
                    // The next look would fare no better at once.
                    deadline(Some(Instant::now() + RETRY)).await;
                }
            }
            report(&inner, News::Marked { more }).await;
        });
    }

    /// A message between runtimes that came by mail, where anybody can write: what it tells is passed on
    /// as told, and nothing is granted because of it (spec 5.6).
    fn on_mailed(&mut self, mail: &Mail, message: Protocol) {
        let said = match message {
            Protocol::IdleNotification(notice) => {
                // Whatever it says of itself.
                let notice = IdleNotification { from: mail.from.clone(), ..notice };
                return self.team.iter_mut().for_each(|led| led.rested.push(notice.clone()));
            }
            Protocol::TeammateTerminated(gone) => {
                format!("{} ended: {}", gone.name, gone.reason.unwrap_or_else(|| "no reason was given".to_owned()))
            }
            Protocol::TaskAssignment(card) => {
                format!("Card #{} \"{}\" is yours now, says {}", card.task_id, card.subject, card.assigned_by)
            }
            other => {
                if let Some(member) = self.other(&mail.from) {
                    return self.on_other_said(mail, member, other);
                }
                let (kind, from) = (other.kind(), &mail.from);
                tracing::warn!(
                    "a {kind} from {from:?} came by mail and is ignored: it counts over the owner link only"
                );
                return;
            }
        };
        let text = format!("<team-notice>\n{}\n</team-notice>", escape(&said));
        self.step(AgentEvent::Note(Input { text, is_meta: true, ..Input::default() }));
    }
}
