//! The client: sends a request, gives the head of the answer.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;

use super::connector::Connector;
use crate::core::provider::Proxy;
use crate::core::text::with_causes;

/// How long a connection waits for its next request.
const IDLE: Duration = Duration::from_secs(60);

type Pooled = legacy::Client<Connector, Full<Bytes>>;

/// Keeps connections to any number of hosts.
pub struct Client {
    proxy: Proxy,
    connect: Duration,
    made: OnceLock<(Connector, Pooled)>,
}

impl Client {
    /// Nothing is loaded or opened yet; `connect` is the longest that a connection may take.
    pub fn new(proxy: Proxy, connect: Duration) -> Self {
        Self { proxy, connect, made: OnceLock::new() }
    }

    /// Sends a request to the host of its absolute address; returns when the head of the answer is
    /// there. The error says what failed, and is [`SendError::Unusable`] if it would fail each time.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        let (connector, pooled) = self.made.get_or_init(|| made(Connector::new(&self.proxy, self.connect)));
        connector.check(request.uri()).map_err(SendError::Unusable)?;
        pooled.request(request).await.map_err(|e| SendError::Failed(with_causes(&e)))
    }

    #[cfg(test)]
    pub(super) fn over(connector: Connector) -> Self {
        Self { proxy: Proxy::default(), connect: Duration::ZERO, made: OnceLock::from(made(connector)) }
    }
}

fn made(connector: Connector) -> (Connector, Pooled) {
    // No timer: what idles too long is found at the next request, and nothing wakes up for it.
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(2);
    let pooled = builder.build(connector.clone());
    (connector, pooled)
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Failed(String),
    /// Nothing can be sent to this address by this client, such as through a proxy that is no URL.
    #[error("{0}")]
    Unusable(String),
}

/// Whether a host, as it stands in an address, is this machine by its name.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
