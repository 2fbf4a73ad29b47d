//! How a model's provider is reached. A lead takes these values from its environment and settings,
//! its children get them by the handshake; a client never looks into the environment itself.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::env;

/// Everything a provider's client needs beside a model's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderAccess {
    /// What proves who pays.
    pub credentials: Credentials,
    /// Where the API is; none = the provider's own address.
    pub base_url: Option<String>,
    /// The way there.
    pub proxy: Proxy,
    /// How failed calls are repeated.
    pub retry: Retry,
}

impl ProviderAccess {
    /// Takes credentials, address and proxy from the variables that `get` knows. An empty variable
    /// counts as unset.
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| get(name)).map(|v| v.trim().to_owned());
            values.find(|v| !v.is_empty())
        };
        Self {
            credentials: Credentials { api_key: first(&[env::API_KEY]), auth_token: first(&[env::AUTH_TOKEN]) },
            base_url: first(&[env::BASE_URL]),
            proxy: Proxy { https: first(&env::HTTPS_PROXIES), bypass: first(&env::NO_PROXIES) },
            retry: Retry::default(),
        }
    }
}

/// Credentials of the Messages API. Its `Debug` says which there are, never what they are.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credentials {
    /// Sent as `x-api-key`.
    pub api_key: Option<String>,
    /// Sent as bearer.
    pub auth_token: Option<String>,
}

impl Credentials {
    /// Whether there are none; an empty one counts as unset.
    pub fn is_empty(&self) -> bool {
        [&self.api_key, &self.auth_token].into_iter().flatten().all(|text| text.trim().is_empty())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |text: &Option<String>| text.as_ref().map(|_| "hidden");
        f.debug_struct("Credentials")
            .field("api_key", &hidden(&self.api_key))
            .field("auth_token", &hidden(&self.auth_token))
            .finish()
    }
}

/// A proxy for https. Its `Debug` hides the address, which may hold a password.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proxy {
    /// `http://[user:password@]host:port`; none = directly.
    pub https: Option<String>,
    /// Hosts and networks that are reached directly, separated by commas.
    pub bypass: Option<String>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let https = self.https.as_ref().map(|_| "hidden");
        f.debug_struct("Proxy").field("https", &https).field("bypass", &self.bypass).finish()
    }
}

/// `lead.retry`: how a failed call of a model is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Most repetitions of one call.
    pub attempts: u32,
    /// First delay; doubles each time.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 10, base: Duration::from_millis(500), cap: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(vars: &[(&str, &str)]) -> ProviderAccess {
        ProviderAccess::from_vars(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let empty = access(&[("ANTHROPIC_API_KEY", ""), ("ANTHROPIC_AUTH_TOKEN", " \n"), ("ANTHROPIC_BASE_URL", "")]);
        assert_eq!(empty, ProviderAccess::default());
        assert!(empty.credentials.is_empty());
        let blank = Credentials { api_key: Some(" ".into()), auth_token: None };
        assert!(blank.is_empty());
        let some = access(&[
            ("ANTHROPIC_AUTH_TOKEN", "t\n"),
            ("https_proxy", ""),
            ("ALL_PROXY", "http://p:1"),
            ("no_proxy", "x"),
        ]);
        assert_eq!(some.credentials.auth_token.as_deref(), Some("t"));
        assert!(!some.credentials.is_empty());
        assert_eq!((some.proxy.https.as_deref(), some.proxy.bypass.as_deref()), (Some("http://p:1"), Some("x")));
    }

    #[test]
    fn secrets_are_never_shown() {
        let access = access(&[
            ("ANTHROPIC_API_KEY", "sk-secret"),
            ("ANTHROPIC_AUTH_TOKEN", "tok-secret"),
            ("HTTPS_PROXY", "http://me:pw-secret@proxy:3128"),
        ]);
        let shown = format!("{access:?}");
        assert!(!shown.contains("secret") && shown.contains("hidden"), "{shown}");
    }
}
