//! Makes connections, within a deadline that holds for all of it: name, TCP, tunnel, TLS.
//!
//! A proxy serves https alone, through a tunnel, and never this machine.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::client::is_loopback;
use crate::core::provider::Proxy;

/// A peer that is gone is noticed after this and three times a third of it.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

type BoxError = Box<dyn Error + Send + Sync>;

/// See the head of this file.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    /// Tells which addresses the proxy is for; none = there is no proxy.
    proxy: Result<Option<Arc<Matcher>>, String>,
    /// Made with the first https connection: loading the roots takes milliseconds.
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
    deadline: Duration,
}

impl Connector {
    pub(super) fn new(proxy: &Proxy, deadline: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE / 3));
        tcp.set_keepalive_retries(Some(3));
        Self { tcp, proxy: matcher(proxy), tls: Arc::default(), deadline }
    }

    /// Trusts these roots instead of the machine's.
    #[cfg(test)]
    pub(super) fn trusting(self, roots: RootCertStore) -> Self {
        Self { tls: Arc::new(OnceLock::from(tls_config(roots))), ..self }
    }

    /// The error is what makes each connection to this address fail.
    pub(super) fn check(&self, to: &Uri) -> Result<(), String> {
        if is_https(to) {
            self.tls()?;
        }
        self.tunnel(to).map(drop)
    }

    /// The way through the proxy, if there is one for this address.
    pub(super) fn tunnel(&self, to: &Uri) -> Result<Option<Tunnel<HttpConnector>>, String> {
        if !is_https(to) || to.host().is_none_or(is_loopback) {
            return Ok(None);
        }
        let Some(found) = self.proxy.clone()?.and_then(|proxy| proxy.intercept(to)) else { return Ok(None) };
        let tunnel = Tunnel::new(found.uri().clone(), self.tcp.clone());
        Ok(Some(match found.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        }))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(|| tls_config(roots())).clone()
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if !is_https(&uri) {
            let connecting = self.tcp.call(uri);
            return Box::pin(within(self.deadline, async { Ok(MaybeHttpsStream::Http(connecting.await?)) }));
        }
        let deadline = self.deadline;
        match self.tls().and_then(|tls| Ok((tls, self.tunnel(&uri)?))) {
            Err(what) => Box::pin(async { Err(what.into()) }),
            Ok((tls, Some(tunnel))) => Box::pin(within(deadline, HttpsConnector::from((tunnel, tls)).call(uri))),
            Ok((tls, None)) => Box::pin(within(deadline, HttpsConnector::from((self.tcp.clone(), tls)).call(uri))),
        }
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

async fn within<T>(deadline: Duration, connecting: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match tokio::time::timeout(deadline, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(format!("no connection within {deadline:?}").into()),
    }
}

fn matcher(proxy: &Proxy) -> Result<Option<Arc<Matcher>>, String> {
    let Some(https) = proxy.https.as_deref() else { return Ok(None) };
    // Without exceptions it is for every host, so it can be looked at before a host is known.
    let any = Uri::from_static("https://any.invalid");
    let Some(found) = Matcher::builder().https(https).build().intercept(&any) else {
        return Err("the proxy in HTTPS_PROXY is no URL".to_owned());
    };
    if found.uri().scheme_str() != Some("http") {
        return Err("the proxy in HTTPS_PROXY is not reached by http://, the only kind that is supported".to_owned());
    }
    let bypass = proxy.bypass.as_deref().unwrap_or_default();
    Ok(Some(Arc::new(Matcher::builder().https(https).no(bypass).build())))
}

pub(super) fn tls_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    // The provider is named, so that nothing depends on one installed for the whole process.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS can't be set up: {e}"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The system's roots (or those of `SSL_CERT_FILE`); a machine without any gets Mozilla's.
pub(super) fn roots() -> RootCertStore {
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
