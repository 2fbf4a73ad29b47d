//! The Messages API.
//!
//! - [`AnthropicModel`] is the client, a [`Model`](super::Model).
//! - `request` renders what is sent, `reply` puts together what comes back; both without I/O.
//!
//! Limits: streamed calls only, HTTP/1.1, no thinking asked for (what comes is kept and sent back
//! unmodified).

mod client;
mod reply;
mod request;

pub use client::AnthropicModel;
