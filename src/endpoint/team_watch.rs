//! Wakes the loop of a lead or a teammate when its mailbox or its board may be another (spec 3.3).

use std::path::PathBuf;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::core::team::name::{LEAD, same};
use crate::core::text::with_causes;
use crate::store::StoreError;
use crate::store::team::{Changed, Team, TeamError, Watch};

/// What may be another now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The mailbox.
    pub mail: bool,
    /// Mailboxes of others: what they have not read keeps the team at work. Told to the lead only.
    pub others: bool,
    /// The board.
    pub board: bool,
    /// The team may be gone; nothing more is told of it.
    pub gone: bool,
}

/// The watch on a member's mailbox and the board of its team.
#[derive(Debug)]
pub struct TeamWatch {
    watch: Option<AsyncFd<Watch>>,
    inbox: PathBuf,
    inboxes: PathBuf,
    is_lead: bool,
}

impl TeamWatch {
    /// For the member `name`. Needs a runtime. What can't be watched by the kernel is looked at every
    /// second, which is said once.
    #[expect(deprecated, reason = "its successor is unsafe for types that may not own the descriptor; a watch does")]
    pub fn open(team: &Team, name: &str) -> Result<Self, TeamError> {
        let watch = team.watch()?;
        if let Some(why) = watch.polls() {
            tracing::warn!("mail and cards of team {} are looked for every second: {why}", team.name());
        }
        let inbox = team.mailbox(name)?.path().to_path_buf();
        let watch = AsyncFd::with_interest(watch, Interest::READABLE).map_err(StoreError::at(&team.path(), "watch"))?;
        Ok(Self { watch: Some(watch), inbox, inboxes: team.inboxes(), is_lead: same(name, LEAD) })
    }

    /// Resolves when something may be another. Can be dropped and asked again.
    pub async fn changed(&mut self) -> Changes {
        while let Some(watch) = &mut self.watch {
            let taken = match watch.readable_mut().await {
                Ok(mut ready) => {
                    let taken = ready.get_inner_mut().try_changes().map_err(|e| with_causes(&e));
                    // All events are taken: what happens from here on makes it readable again.
                    ready.clear_ready();
                    taken
                }
                Err(error) => Err(with_causes(&error)),
            };
            match taken {
                Ok(None) => {}
                Ok(Some(Changed::Gone)) => {
                    self.watch = None;
                    return Changes { mail: true, others: self.is_lead, board: true, gone: true };
                }
                Ok(Some(Changed::All)) => {
                    return Changes { mail: true, others: self.is_lead, board: true, gone: false };
                }
                Ok(Some(Changed::Files(files))) => {
                    let mail = files.contains(&self.inbox);
                    let board = files.iter().any(|file| !file.starts_with(&self.inboxes));
                    let is_others = |file: &PathBuf| file.starts_with(&self.inboxes) && *file != self.inbox;
                    let others = self.is_lead && files.iter().any(is_others);
                    if mail || others || board {
                        return Changes { mail, others, board, gone: false };
                    }
                }
                Err(why) => {
                    tracing::error!("mail and cards go unnoticed from here on: {why}");
                    self.watch = None;
                }
            }
        }
        std::future::pending().await
    }
}

/// The next changes of a watch that may not be there.
pub async fn changes_of(watch: &mut Option<TeamWatch>) -> Changes {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::team::Letter;
    use crate::store::team::testing::Place;

    #[tokio::test]
    async fn a_lead_hears_when_a_member_has_read_its_mail_and_members_hear_of_their_own() {
        let place = Place::new();
        let team = place.team("t", &["ann", "bob"]);
        let mut lead = TeamWatch::open(&team, LEAD).unwrap();
        let mut bob = TeamWatch::open(&team, "bob").unwrap();
        let send = |to: &str| {
            let letter = Letter {
                to: to.to_owned(),
                from: "user".to_owned(),
                text: "x".to_owned(),
                summary: None,
                color: None,
                sent_ms: 1,
                msg_id: format!("to-{to}"),
            };
            let _ = team.send(&letter).unwrap();
        };
        let (others, mail) =
            (Changes { others: true, ..Changes::default() }, Changes { mail: true, ..Changes::default() });
        send("ann");
        assert_eq!(lead.changed().await, others);
        team.mailbox("ann").unwrap().mark(&["to-ann"]).unwrap();
        assert_eq!(lead.changed().await, others);
        send("bob");
        assert_eq!(bob.changed().await, mail);
    }
}
