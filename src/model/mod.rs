//! L2: whoever answers a [`Request`]: a model provider, or a playbook that plays one.

mod open;
pub mod playbook;

use std::future::Future;
use std::pin::Pin;

use tokio_util::sync::CancellationToken;

use crate::core::message::{Reply, Request};

pub use open::{ReadAt, open};

/// A boxed future, so that traits with async methods can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that answers requests.
pub trait Model: Send + Sync {
    /// One request, one reply. Ends early with [`ModelError::Cancelled`] when `cancel` fires.
    fn call<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The provider answered with an error.
    #[error("API error {status}: {message}")]
    Api {
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The call was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The model can't be used at all: no such provider, no such file, broken playbook.
    #[error("{0}")]
    Unusable(String),
}
