//! What can go wrong with a team's files, by what the caller can do about it.

use std::path::PathBuf;
use std::time::Duration;

use crate::core::team::Refusal;
use crate::store::StoreError;

/// Why something of a team could not be read or changed. Whatever was to be written is not, unless
/// the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// A file could not be read, written or locked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process of ours holds the team's lock: try again later, or look at that process.
    #[error("{} stayed locked by {} for {} (deadline `lock`)", path.display(), process(*pid), show(*waited))]
    Busy {
        /// The team's lock.
        path: PathBuf,
        /// The process that holds it, as far as it said.
        pid: Option<u32>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Another program holds a file's lock: try again later.
    #[error(
        "{} is locked by another program ({} was renewed {} ago); waited {} (deadline `lock`)",
        path.display(), lock.display(), show(*age), show(*waited)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The lock folder.
        lock: PathBuf,
        /// Time since its holder last touched it.
        age: Duration,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A file's lock was taken away again and again: try again later.
    #[error("{} was locked by another program each time before it could be written; gave up after {}", path.display(), show(*waited))]
    Lost {
        /// The file.
        path: PathBuf,
        /// How long it was tried.
        waited: Duration,
    },
    /// A name can't be used; the text says why and suggests another.
    #[error("{0}")]
    BadName(String),
    /// There is no such team.
    #[error("there is no team {name:?}; {}", teams(known))]
    NoTeam {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The team was deleted.
    #[error("team {team:?} is gone: it was deleted")]
    Gone {
        /// Name of its folder.
        team: String,
    },
    /// Nobody of that name is in the team.
    #[error("{name:?} is not a member of team {team:?}; the members are {}", members.join(", "))]
    NoMember {
        /// Who was meant.
        name: String,
        /// The team.
        team: String,
        /// Who there is.
        members: Vec<String>,
    },
    /// A member whose name no file of its own can have, so it has no mailbox.
    #[error("{name:?} of team {team:?} can't be written to: its mailbox would be that of another member as well")]
    NoMailbox {
        /// The member.
        name: String,
        /// The team.
        team: String,
    },
    /// Somebody else leads the team.
    #[error("team {team:?} is led by process {}", leader(*pid, address.as_deref()))]
    Led {
        /// The team.
        team: String,
        /// The process, as far as it said.
        pid: Option<i32>,
        /// Its address.
        address: Option<String>,
    },
    /// A script works as this member.
    #[error("{name:?} of team {team:?} is in use: {} holds it", holder(*pid))]
    Held {
        /// The member.
        name: String,
        /// The team.
        team: String,
        /// The process, as far as it said.
        pid: Option<i32>,
    },
    /// A message is too long; nothing is cut.
    #[error("the message has {bytes} bytes, a mailbox message can have {limit}")]
    MailTooLong {
        /// Its length.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A mailbox has no room until its owner reads.
    #[error("the mailbox of {to:?} is full: {bytes} bytes of {limit}, all of it unread")]
    MailboxFull {
        /// Whose.
        to: String,
        /// What it would have.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A mailbox has no room for protocol messages until its owner reads.
    #[error("the mailbox of {to:?} holds {count} unread protocol messages, the limit is {limit}")]
    TooMuchProtocol {
        /// Whose.
        to: String,
        /// How many.
        count: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The rules of the board do not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

fn show(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn holder(pid: Option<i32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn leader(pid: Option<i32>, address: Option<&str>) -> String {
    match (pid, address) {
        (Some(pid), Some(address)) => format!("{pid} ({address})"),
        (Some(pid), None) => pid.to_string(),
        (None, _) => "that has not said who it is".to_owned(),
    }
}

fn teams(known: &[String]) -> String {
    if known.is_empty() { "there is none".to_owned() } else { format!("there is {}", known.join(", ")) }
}
