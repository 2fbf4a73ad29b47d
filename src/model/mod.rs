//! L2: whoever answers a [`Request`](crate::core::message::Request): a model provider, or a playbook that plays one.

pub mod anthropic;
mod call;
mod http;
mod metered;
mod open;
pub mod playbook;
mod retry;
pub mod serve;
mod sse;

pub use call::{BoxFuture, CallEvent, Model, ModelError, Observer, Retrying};
pub use metered::{MeteredModel, Named};
pub use open::{ReadAt, open, open_with};
