//! What every model provider offers: one call, its events, and why there may be no reply.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::core::message::{Reply, Request};

/// A boxed future, so that traits with async methods can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that answers requests.
pub trait Model: Send + Sync {
    /// One request, one reply; `observer` is told what happens meanwhile. Ends early with
    /// [`ModelError::Cancelled`] when `cancel` fires.
    fn call_observed<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// Like [`Self::call_observed`], and nobody is told anything.
    fn call<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.call_observed(request, cancel, &Unobserved)
    }
}

/// Is told what happens during a call, in order. Called from within the call, so it must not block.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn observe(&self, event: CallEvent<'_>);
}

/// Something that happened during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvent<'a> {
    /// The request is sent, for the first time (1) or again; waiting, if there was any, is over.
    Sent {
        /// Counts from 1.
        attempt: u32,
    },
    /// A part of the reply arrived.
    Part {
        /// The reply it belongs to.
        message_id: &'a str,
        /// The API's event, as JSON on one line.
        event: &'a str,
    },
    /// The attempt failed; the request is sent again after `delay`.
    Waiting(Retrying<'a>),
}

/// A failed attempt that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrying<'a> {
    /// Which repetition comes next, from 1.
    pub attempt: u32,
    /// The most there may be.
    pub attempts: u32,
    /// How long is waited before.
    pub delay: Duration,
    /// Why the attempt failed, in words.
    pub reason: &'a str,
    /// The reply of which parts were told and which will never be whole.
    pub discarded_message_id: Option<&'a str>,
}

/// Tells nobody.
struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: CallEvent<'_>) {}
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The provider answered with an error; one that may pass was repeated as often as is allowed.
    #[error("API error {status}: {message}")]
    Api {
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The conversation is longer than the model's window. Asking again only helps after it was
    /// made shorter.
    #[error("the conversation is too long for the model: {message}")]
    Overflow {
        /// HTTP status, 400 or 413.
        status: u16,
        /// What the provider said.
        message: String,
    },
    /// The provider refuses thoughts in the conversation: another model had them, or what came
    /// before them has changed. They may be left out.
    #[error("the model does not take the thoughts in the conversation: {message}")]
    Thoughts {
        /// What the provider said.
        message: String,
    },
    /// No whole reply came, as often as it was tried: no connection, a cut or broken stream.
    #[error("no reply: {0}")]
    NoReply(String),
    /// The call was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Nothing proves to the provider who pays.
    #[error("there are no credentials for the Messages API")]
    NoCredentials,
    /// The model can't be used at all: no such provider, no such file, broken playbook or address.
    #[error("{0}")]
    Unusable(String),
}

impl ModelError {
    /// What a provider's error of this status means.
    pub(super) fn answered(status: u16, message: String) -> Self {
        if status == 413 || (status == 400 && says_too_long(&message)) {
            return Self::Overflow { status, message };
        }
        if status == 400 && says_thoughts_misfit(&message) {
            return Self::Thoughts { message };
        }
        Self::Api { status, message }
    }

    /// Whether the same request may fare better at another time, or with another model.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Api { status, .. } => matches!(status, 408 | 409 | 429 | 500..=599),
            Self::NoReply(_) => true,
            Self::Overflow { .. }
            | Self::Thoughts { .. }
            | Self::Cancelled
            | Self::NoCredentials
            | Self::Unusable(_) => false,
        }
    }

    /// The HTTP status the provider answered with, if it answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } | Self::Overflow { status, .. } => Some(*status),
            Self::Thoughts { .. } => Some(400),
            Self::NoReply(_) | Self::Cancelled | Self::NoCredentials | Self::Unusable(_) => None,
        }
    }
}

/// Whether an error's message says that the prompt does not fit into the model's window.
fn says_too_long(message: &str) -> bool {
    let message = message.to_lowercase();
    ["prompt is too long", "prompt too long", "exceed context limit", "context window", "maximum context length"]
        .iter()
        .any(|part| message.contains(part))
}

/// Whether an error's message says that thoughts were changed, or are not this model's or not of
/// this conversation.
fn says_thoughts_misfit(message: &str) -> bool {
    let message = message.to_lowercase();
    let is_refused = ["cannot be modified", "signature", "bound to a different"].iter().any(|p| message.contains(p));
    is_refused && (message.contains("thinking") || message.contains("bound to a different conversation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_thoughts_are_told_from_other_mistakes() {
        let refused = |status, message: &str| {
            matches!(ModelError::answered(status, message.to_owned()), ModelError::Thoughts { .. })
        };
        assert!(refused(400, "messages.3.content.0: `thinking` blocks in the latest message cannot be modified."));
        assert!(refused(400, "messages.1.content.0: Invalid `signature` in `thinking` block"));
        assert!(refused(400, "messages.1: The block is bound to a different conversation"));
        assert!(!refused(400, "\"thinking.type.disabled\" is not supported for this model."));
        assert!(!refused(400, "messages.1: the field text cannot be modified"));
        assert!(!refused(500, "Invalid `signature` in `thinking` block"));
    }

    #[test]
    fn what_passes_is_what_another_model_or_another_time_may_answer() {
        let api = |status| ModelError::answered(status, String::new()).may_pass();
        assert!([408, 409, 429, 500, 529, 599].into_iter().all(api));
        assert!([400, 401, 403, 404, 413, 499, 600].into_iter().all(|status| !api(status)));
        assert!(ModelError::NoReply(String::new()).may_pass() && !ModelError::Cancelled.may_pass());
    }
}
