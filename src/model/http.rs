//! The way to a provider: one HTTP/1.1 client that is made at the first request, since loading the
//! system's TLS roots takes milliseconds that a start must not pay. For every provider.
//!
//! Plain http is spoken with this machine only. A proxy serves https alone, through a tunnel.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::call::ModelError;
use crate::core::provider::Proxy;

/// How long a connection waits for its next request.
const IDLE: Duration = Duration::from_secs(60);
/// A peer that is gone is noticed after this and three times a third of it.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

type BoxError = Box<dyn Error + Send + Sync>;

/// Where an API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    uri: Uri,
    is_loopback: bool,
}

impl BaseUrl {
    /// Reads an address. Without TLS only this machine is accepted: credentials and conversations
    /// would pass a network in the clear.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let refuse = |what: &str| Err(ModelError::Unusable(format!("the API's address can't be used: {what}")));
        let text = text.trim().trim_end_matches('/').to_owned();
        let Ok(uri) = text.parse::<Uri>() else { return refuse("it is no URL") };
        let Some(host) = uri.host().filter(|h| !h.is_empty()) else { return refuse("it names no host") };
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return refuse("it holds a user name or password; set ANTHROPIC_API_KEY instead");
        }
        if uri.query().is_some() {
            return refuse("it has a query");
        }
        let is_loopback = is_loopback(host);
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_loopback => {}
            Some("http") => return refuse(&format!("{host} is another machine, which is reached by https only")),
            _ => return refuse("it begins neither with https:// nor with http://"),
        }
        Ok(Self { text, uri, is_loopback })
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The address of `path` (with a leading slash) below it.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }

    fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A client of one API.
pub struct Http {
    base: BaseUrl,
    proxy: Proxy,
    connect: Duration,
    client: OnceLock<Result<Client<Connector, Full<Bytes>>, String>>,
}

impl Http {
    /// Nothing is loaded or opened yet; `connect` is the longest that a connection may take.
    pub fn new(base: BaseUrl, proxy: Proxy, connect: Duration) -> Self {
        Self { base, proxy, connect, client: OnceLock::new() }
    }

    /// Where the API is.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Sends a request; returns when the head of the answer is there. The error says what failed,
    /// and is [`SendError::Unusable`] if it would fail each time.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        let client = self.client.get_or_init(|| {
            let roots = if self.base.is_https() { roots() } else { RootCertStore::empty() };
            Ok(client(Connector::new(&self.base, &self.proxy, self.connect, roots)?))
        });
        match client {
            Ok(client) => client.request(request).await.map_err(|e| SendError::Failed(chain(&e))),
            Err(what) => Err(SendError::Unusable(what.clone())),
        }
    }
}

fn client(connector: Connector) -> Client<Connector, Full<Bytes>> {
    // No timer: what idles too long is found at the next request, and nothing wakes up for it.
    Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(2).build(connector)
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Failed(String),
    /// No client could be made.
    #[error("{0}")]
    Unusable(String),
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Makes connections, within a deadline that holds for all of it: name, TCP, tunnel, TLS.
#[derive(Clone)]
struct Connector {
    route: Route,
    deadline: Duration,
}

#[derive(Clone)]
enum Route {
    Direct(HttpsConnector<HttpConnector>),
    Tunnelled(HttpsConnector<Tunnel<HttpConnector>>),
}

impl Connector {
    fn new(base: &BaseUrl, proxy: &Proxy, deadline: Duration, roots: RootCertStore) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE / 3));
        tcp.set_keepalive_retries(Some(3));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls_config(roots)?).https_or_http().enable_http1();
        let route = match tunnel(base, proxy, &tcp)? {
            Some(tunnel) => Route::Tunnelled(tls.wrap_connector(tunnel)),
            None => Route::Direct(tls.wrap_connector(tcp)),
        };
        Ok(Self { route, deadline })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.route {
            Route::Direct(route) => route.poll_ready(cx),
            Route::Tunnelled(route) => route.poll_ready(cx),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = match &mut self.route {
            Route::Direct(route) => route.call(uri),
            Route::Tunnelled(route) => route.call(uri),
        };
        let deadline = self.deadline;
        Box::pin(async move {
            match tokio::time::timeout(deadline, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {deadline:?}").into()),
            }
        })
    }
}

/// The proxy's tunnel, if there is a proxy for this address.
fn tunnel(base: &BaseUrl, proxy: &Proxy, tcp: &HttpConnector) -> Result<Option<Tunnel<HttpConnector>>, String> {
    let Some(https) = proxy.https.as_deref().filter(|_| base.is_https() && !base.is_loopback()) else {
        return Ok(None);
    };
    let matcher = Matcher::builder().https(https).no(proxy.bypass.as_deref().unwrap_or_default()).build();
    let Some(found) = matcher.intercept(&base.uri) else {
        let bypassed = Matcher::builder().https(https).build().intercept(&base.uri).is_some();
        return if bypassed { Ok(None) } else { Err("the proxy in HTTPS_PROXY is no URL".to_owned()) };
    };
    if found.uri().scheme_str() != Some("http") {
        return Err("the proxy in HTTPS_PROXY is not reached by http://, the only kind that is supported".to_owned());
    }
    let tunnel = Tunnel::new(found.uri().clone(), tcp.clone());
    Ok(Some(match found.basic_auth() {
        Some(auth) => tunnel.with_auth(auth.clone()),
        None => tunnel,
    }))
}

fn tls_config(roots: RootCertStore) -> Result<ClientConfig, String> {
    // The provider is named, so that nothing depends on one installed for the whole process.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS can't be set up: {e}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The system's roots (or those of `SSL_CERT_FILE`); a machine without any gets Mozilla's.
fn roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!("TLS roots: {error}");
    }
    store.add_parsable_certificates(native.certs);
    if store.is_empty() {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    store
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
