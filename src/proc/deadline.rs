//! Deadlines as an arm of a loop's `select!`.

use std::future::pending;
use std::time::Instant;

/// Resolves at `at`; never, if there is no deadline. Can be dropped and made anew at any time.
pub async fn deadline(at: Option<Instant>) {
    let never = pending::<()>();
    match at {
        Some(at) => {
            let _ = tokio::time::timeout_at(at.into(), never).await;
        }
        None => never.await,
    }
}
