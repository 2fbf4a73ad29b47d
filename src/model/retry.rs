//! When a failed call is repeated, and after which delay. The decisions are pure; [`retrying`]
//! carries them out. For every provider that is reached over a network.
//!
//! A delay is drawn evenly from zero to a bound that doubles each time, so that agents that failed
//! together do not come back together. What the server asks for is waited first, up to
//! [`RETRY_AFTER_CAP`].

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::call::{CallEvent, ModelError, Observer, Retrying};
use crate::core::provider::Retry;

/// The most a server can make us wait.
pub const RETRY_AFTER_CAP: Duration = Duration::from_secs(60);

/// How one attempt failed.
#[derive(Debug)]
pub enum Failed {
    /// It may go better next time.
    Passing(Passing),
    /// It would fail again.
    Lasting(ModelError),
}

/// A failure that may pass.
#[derive(Debug)]
pub struct Passing {
    /// What the caller gets if there is no next time.
    pub error: ModelError,
    /// What the server asks us to wait.
    pub retry_after: Option<Duration>,
    /// The reply of which parts had arrived.
    pub message_id: Option<String>,
}

impl Failed {
    /// The connection failed, or what came over it is no whole reply.
    pub fn broken(reason: impl Into<String>, message_id: Option<&str>) -> Self {
        Self::Passing(Passing {
            error: ModelError::NoReply(reason.into()),
            retry_after: None,
            message_id: message_id.map(str::to_owned),
        })
    }

    /// The provider answered with an error, before or within a reply.
    pub fn answered(status: u16, message: String, retry_after: Option<Duration>, message_id: Option<&str>) -> Self {
        let error = ModelError::answered(status, message);
        if error.may_pass() {
            return Self::Passing(Passing { error, retry_after, message_id: message_id.map(str::to_owned) });
        }
        Self::Lasting(error)
    }
}

/// The delay before repetition `attempt` (from 1); `random` is drawn evenly from 0 to 1.
pub fn delay(policy: &Retry, attempt: u32, retry_after: Option<Duration>, random: f64) -> Duration {
    let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    let bound = policy.base.saturating_mul(doubled).min(policy.cap);
    let spread = bound.mul_f64(random.clamp(0.0, 1.0));
    retry_after.map_or(Duration::ZERO, |asked| asked.min(RETRY_AFTER_CAP)) + spread
}

/// Runs `attempt` until it succeeds, fails for good, or the repetitions are used up; ends with
/// [`ModelError::Cancelled`] as soon as `cancel` fires.
pub async fn retrying<T, F: Future<Output = Result<T, Failed>>>(
    policy: &Retry,
    cancel: &CancellationToken,
    observer: &dyn Observer,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ModelError> {
    let mut repetition = 0;
    loop {
        observer.observe(CallEvent::Sent { attempt: repetition + 1 });
        let passing = match cancel.run_until_cancelled(attempt()).await {
            None => return Err(ModelError::Cancelled),
            Some(Ok(done)) => return Ok(done),
            Some(Err(Failed::Lasting(error))) => return Err(error),
            Some(Err(Failed::Passing(passing))) => passing,
        };
        if repetition >= policy.attempts {
            return Err(tried(passing.error, repetition + 1));
        }
        repetition += 1;
        let delay = delay(policy, repetition, passing.retry_after, random());
        let reason = passing.error.to_string();
        tracing::warn!(repetition, ?delay, "the model is asked again: {reason}");
        observer.observe(CallEvent::Waiting(Retrying {
            attempt: repetition,
            attempts: policy.attempts,
            delay,
            reason: &reason,
            discarded_message_id: passing.message_id.as_deref(),
        }));
        if tokio::time::timeout(delay, cancel.cancelled()).await.is_ok() {
            return Err(ModelError::Cancelled);
        }
    }
}

/// The last error, with how often it was tried.
fn tried(error: ModelError, times: u32) -> ModelError {
    let tried = |text: String| if times > 1 { format!("{text} (tried {times} times)") } else { text };
    match error {
        ModelError::Api { status, message } => ModelError::Api { status, message: tried(message) },
        ModelError::NoReply(reason) => ModelError::NoReply(tried(reason)),
        other => other,
    }
}

/// From 0 to 1. A random UUID's last 32 bits: no generator to seed or share.
fn random() -> f64 {
    let [.., a, b, c, d] = uuid::Uuid::new_v4().into_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
