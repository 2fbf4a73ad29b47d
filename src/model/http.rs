//! Where a provider's API is, and the client that reaches it.
//!
//! Plain http is spoken with this machine only.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};

use super::call::ModelError;
use crate::core::provider::Proxy;
use crate::http::{Client, SendError, is_loopback};

/// Where an API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
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
        Ok(Self { text, is_loopback })
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The address of `path` (with a leading slash) below it.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A client of one API.
pub struct Http {
    base: BaseUrl,
    client: Client,
}

impl Http {
    /// Nothing is loaded or opened yet; `connect` is the longest that a connection may take.
    pub fn new(base: BaseUrl, proxy: Proxy, connect: Duration) -> Self {
        Self { base, client: Client::new(proxy, connect) }
    }

    /// Where the API is.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Sends a request; returns when the head of the answer is there.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        self.client.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        for good in
            ["http://127.0.0.1:80", "http://127.9.9.9", "http://localhost:1/", "http://[::1]:5/v", "http://LocalHost"]
        {
            assert!(BaseUrl::parse(good).is_ok_and(|u| u.is_loopback()), "{good}");
        }
        for good in ["https://api.example.com", " https://10.0.0.1:8443/gate/way/ "] {
            assert!(BaseUrl::parse(good).is_ok_and(|u| !u.is_loopback()), "{good}");
        }
        let bad = [
            ("http://example.com", "another machine"),
            ("http://10.0.0.1:80", "another machine"),
            ("http://localhost.example.com", "another machine"),
            ("http://0.0.0.0:1", "another machine"),
            ("http://127.0.0.1@example.com/", "user name"),
            ("https://me:pw@example.com", "user name"),
            ("https://example.com/?a=b", "query"),
            ("ftp://localhost", "begins neither"),
            ("localhost:80", ""),
            ("/v1", "no host"),
            ("", ""),
            ("http://", ""),
        ];
        for (text, part) in bad {
            let error = BaseUrl::parse(text).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains("can't be used") && error.contains(part), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn paths_are_put_below_the_address() {
        let join = |base: &str| BaseUrl::parse(base).map(|u| u.join("/v1/messages")).unwrap();
        assert_eq!(join("https://a.example/"), "https://a.example/v1/messages");
        assert_eq!(join("http://localhost:1/gate//"), "http://localhost:1/gate/v1/messages");
    }
}
