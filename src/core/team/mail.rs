//! An entry of a mailbox (formats A and B.5), as it is read and as it is written.

use serde::{Deserialize, Serialize};

use super::super::clock::{Millis, iso};
use super::kept::lenient;

/// A message as somebody wrote it. `from` is unverified text without authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Who sent it, as they say.
    pub from: String,
    /// What it says; JSON if it is a protocol message.
    pub text: String,
    /// The same in a few words.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// ISO 8601; empty if the writer left it out.
    #[serde(default, deserialize_with = "lenient")]
    pub timestamp: String,
    /// The sender's.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Whether the receiver has it in its transcript.
    #[serde(default, deserialize_with = "lenient")]
    pub read: bool,
    /// UUID by which the receiver knows it again.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
}

/// A message to be sent. Time and id come from the caller, so that one that is sent again is the
/// same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The member it is for.
    pub to: String,
    /// Who sends it: set by the system, never by a model.
    pub from: String,
    /// What it says, at most [`super::super::limits::MAIL_TEXT_BYTES`].
    pub text: String,
    /// The same in a few words.
    pub summary: Option<String>,
    /// The sender's colour; none for the lead.
    pub color: Option<String>,
    /// When it was sent.
    pub sent_ms: Millis,
    /// A UUID.
    pub msg_id: String,
}

impl Letter {
    /// As it lies in the mailbox.
    pub fn to_mail(&self) -> Mail {
        Mail {
            from: self.from.clone(),
            text: self.text.clone(),
            summary: self.summary.clone(),
            timestamp: iso(self.sent_ms),
            color: self.color.clone(),
            read: false,
            msg_id: Some(self.msg_id.clone()),
        }
    }
}
