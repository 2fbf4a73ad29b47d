//! L1: HTTP/1.1 to other machines: one client for whoever needs one, with the machine's TLS roots and
//! the proxy of the environment. For model providers and for the tool that reads web pages.
//!
//! Making a [`Client`] costs nothing: connections, TLS and roots come with the first request that
//! needs them, so that a start and a worker that never asks for them stay cheap.

mod client;
mod connector;
#[cfg(test)]
mod tests;

pub use client::{Client, SendError, is_loopback};
