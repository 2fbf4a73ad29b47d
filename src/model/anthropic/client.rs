//! The client of the Messages API: sends a rendered request, reads the stream, repeats what failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request as HttpRequest, Response};
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::reply::{ApiError, Assembly, StreamError, Taken};
use super::request::render;
use crate::core::clock::{self, Millis};
use crate::core::limits::{self, MODEL_REQUEST_BYTES, STREAM_BYTES};
use crate::core::message::{Caller, Reply, Request};
use crate::core::provider::{Credentials, ProviderAccess, Retry};
use crate::core::text;
use crate::core::text::with_causes;
use crate::http::SendError;
use crate::model::call::{BoxFuture, CallEvent, Model, ModelError, Observer};
use crate::model::http::{BaseUrl, Http};
use crate::model::retry::{Failed, retrying};
use crate::model::sse::SseParser;

const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
const API_VERSION: &str = "2023-06-01";
/// Most of an error's body that is read.
const ERROR_BYTES: usize = 64 << 10;
/// Characters of an error's message that are shown.
const ERROR_CHARS: usize = 500;
/// How long an error's body is waited for; its status is known already.
const ERROR_WAIT: Duration = Duration::from_secs(5);
/// How long the end of a finished stream is waited for, so that its connection can serve again.
const DRAIN: Duration = Duration::from_secs(1);

/// How long each part of a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// A connection.
    pub connect: Duration,
    /// Between a request and its answer, and between two events that are no pings.
    pub stall: Duration,
    /// One whole reply.
    pub reply: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let limits = limits::deadlines();
        Self { connect: limits.model_connect, stall: limits.model_stall, reply: limits.model_reply }
    }
}

/// The Messages API as a [`Model`]. One serves any number of conversations.
pub struct AnthropicModel {
    http: Http,
    headers: HeaderMap,
    retry: Retry,
    patience: Patience,
    /// The provider refused its own search: the model has none, or the account may not use it.
    refuses_search: AtomicBool,
}

impl AnthropicModel {
    /// Opens nothing yet. Fails if the address or the credentials can't be used; only a server on
    /// this machine may go without credentials.
    pub fn new(access: &ProviderAccess) -> Result<Self, ModelError> {
        Self::with_patience(access, Patience::default())
    }

    pub(super) fn with_patience(access: &ProviderAccess, patience: Patience) -> Result<Self, ModelError> {
        let given = access.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let base = BaseUrl::parse(given.unwrap_or(DEFAULT_BASE_URL))?;
        if access.credentials.is_empty() && !base.is_loopback() {
            return Err(ModelError::NoCredentials);
        }
        Ok(Self {
            headers: headers(&access.credentials)?,
            http: Http::new(base, access.proxy.clone(), patience.connect),
            retry: access.retry,
            patience,
            refuses_search: AtomicBool::new(false),
        })
    }

    /// Where the API is.
    pub fn address(&self) -> String {
        self.http.base().to_string()
    }

    /// Asks for something that costs nothing: whether the API is there and takes the credentials.
    pub async fn probe(&self) -> Result<(), ModelError> {
        let (response, _) = self
            .send(Method::GET, "/v1/models?limit=1", self.headers.clone(), Bytes::new())
            .await
            .map_err(|failed| match failed {
                Failed::Passing(passing) => passing.error,
                Failed::Lasting(error) => error,
            })?;
        drop(response);
        Ok(())
    }

    /// Sends one request; the answer, which is a success, and when the whole of it is due.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Instant), Failed> {
        let due = Instant::now() + self.patience.reply;
        let mut request = HttpRequest::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.http.base().join(path).parse().map_err(|e| {
            Failed::Lasting(ModelError::Unusable(format!("the API's address {}: {e}", self.http.base())))
        })?;
        *request.headers_mut() = headers;
        let response = match timeout(self.patience.stall, self.http.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(SendError::Failed(what))) => return Err(self.broken(&what, None)),
            Ok(Err(SendError::Unusable(what))) => return Err(Failed::Lasting(ModelError::Unusable(what))),
            Err(_) => return Err(self.broken(&format!("no answer within {:?}", self.patience.stall), None)),
        };
        if response.status().is_success() {
            return Ok((response, due));
        }
        Err(Self::refused(response).await)
    }

    /// A server on this machine is told who asks, so that a playbook behind it can match on it.
    fn headers_for(&self, caller: &Caller) -> HeaderMap {
        let mut headers = self.headers.clone();
        if self.http.base().is_loopback() {
            let all =
                [("x-lead-role", &caller.role), ("x-lead-type", &caller.agent_type), ("x-lead-name", &caller.name)];
            for (name, text) in all {
                if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                    headers.insert(name, value);
                }
            }
        }
        headers
    }

    /// One call, repeated as often as is allowed.
    async fn ask(
        &self,
        request: &Request,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Result<Reply, ModelError> {
        let body = render(request).map_err(|e| ModelError::Unusable(format!("the request has no JSON form: {e}")))?;
        if body.len() > MODEL_REQUEST_BYTES {
            let message = format!("{} bytes, and {MODEL_REQUEST_BYTES} can be sent", body.len());
            return Err(ModelError::Overflow { status: 413, message });
        }
        let body = Bytes::from(body);
        let headers = self.headers_for(&request.caller);
        let attempt = || self.attempt(headers.clone(), body.clone(), observer);
        retrying(&self.retry, cancel, observer, attempt).await
    }

    fn broken(&self, what: &str, message_id: Option<&str>) -> Failed {
        Failed::broken(format!("{}: {what}", self.http.base()), message_id)
    }

    /// Reads the error that was answered.
    async fn refused(response: Response<Incoming>) -> Failed {
        let (head, body) = response.into_parts();
        let body = match timeout(ERROR_WAIT, Limited::new(body, ERROR_BYTES).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            // The status says enough.
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|v| parse_retry_after(v, clock::now_ms()));
        Failed::answered(head.status.as_u16(), error_message(&body, head.status), retry_after, None)
    }

    /// One attempt.
    async fn attempt(&self, headers: HeaderMap, body: Bytes, observer: &dyn Observer) -> Result<Reply, Failed> {
        let (response, due) = self.send(Method::POST, "/v1/messages", headers, body).await?;
        let kind = response.headers().get(header::CONTENT_TYPE).map(|v| String::from_utf8_lossy(v.as_bytes()));
        let kind = kind.unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            // A login page, a proxy's greeting: it would be there next time too.
            let shown = text::one_line(&kind, 100);
            let what = format!("{} answered with {shown:?}, not with a stream of events", self.http.base());
            return Err(Failed::Lasting(ModelError::NoReply(what)));
        }
        self.read(response.into_body(), due, observer).await
    }

    /// Reads a stream to the end of its reply.
    async fn read(&self, mut body: Incoming, due: Instant, observer: &dyn Observer) -> Result<Reply, Failed> {
        let stall = self.patience.stall;
        let (mut parser, mut assembly) = (SseParser::default(), Assembly::default());
        let mut progress = Instant::now();
        let mut bytes = 0;
        loop {
            let id = assembly.message_id();
            let until = due.min(progress + stall);
            // Checked by itself: a flood of pings would always have something to read.
            let frame = match timeout_at(until, body.frame()).await {
                _ if Instant::now() >= until => {
                    let what = if until < due { format!("nothing but pings for {stall:?}") } else { "too slow".into() };
                    return Err(self.broken(&what, id));
                }
                Err(_) | Ok(None) => return Err(self.broken("the stream was cut before its end", id)),
                Ok(Some(Err(error))) => {
                    return Err(self.broken(&format!("the stream was cut before its end: {}", with_causes(&error)), id));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(chunk) = frame.into_data() else { continue };
            bytes += chunk.len();
            if bytes > STREAM_BYTES {
                return Err(self.too_long(&format!("the reply is longer than {STREAM_BYTES} bytes")));
            }
            for data in parser.push(&chunk).map_err(|e| self.too_long(&e.to_string()))? {
                match assembly.take(&data) {
                    Ok(Taken::Ping) => {}
                    Ok(Taken::Progress) => {
                        progress = Instant::now();
                        tell(observer, assembly.message_id(), &data);
                    }
                    Ok(Taken::Done(reply)) => {
                        tell(observer, Some(&reply.id), &data);
                        drain(body);
                        return Ok(reply);
                    }
                    Err(StreamError::Api { status, message }) => {
                        return Err(Failed::answered(status, shown(&message), None, assembly.message_id()));
                    }
                    Err(error @ StreamError::Malformed(_)) => {
                        return Err(self.broken(&error.to_string(), assembly.message_id()));
                    }
                }
            }
        }
    }

    /// A reply beyond all bounds would be as long the next time.
    fn too_long(&self, what: &str) -> Failed {
        Failed::Lasting(ModelError::NoReply(format!("{}: {what}", self.http.base())))
    }
}

impl Model for AnthropicModel {
    fn call_observed<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            if request.web_search && !self.refuses_search.load(Ordering::Relaxed) {
                match self.ask(request, cancel, observer).await {
                    Err(ModelError::Api { status: 400, message }) if is_about_search(&message) => {
                        tracing::warn!("the provider refuses its web search, which is left out from now on: {message}");
                        self.refuses_search.store(true, Ordering::Relaxed);
                    }
                    answer => return answer,
                }
            }
            if request.web_search {
                return self.ask(&Request { web_search: false, ..request.clone() }, cancel, observer).await;
            }
            self.ask(request, cancel, observer).await
        })
    }
}

/// Whether a refusal is about the search that was offered, not about one in the conversation.
fn is_about_search(message: &str) -> bool {
    let message = message.to_lowercase();
    (message.contains("web_search") || message.contains("web search")) && !message.contains("tool use with id")
}

/// The headers of every request.
fn headers(credentials: &Credentials) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("lead/", env!("CARGO_PKG_VERSION"))));
    headers.insert("anthropic-version", HeaderValue::from_static(API_VERSION));
    let secrets = [
        (HeaderName::from_static("x-api-key"), "", &credentials.api_key, "API key"),
        (header::AUTHORIZATION, "Bearer ", &credentials.auth_token, "auth token"),
    ];
    for (name, before, secret, called) in secrets {
        let Some(secret) = secret.as_deref().map(str::trim).filter(|s| !s.is_empty()) else { continue };
        let mut value = HeaderValue::from_str(&format!("{before}{secret}"))
            .map_err(|_| ModelError::Unusable(format!("the {called} holds characters that can't be sent")))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// `retry-after`: seconds, or a date.
fn parse_retry_after(value: &str, now: Millis) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    let at = Millis::try_from(at.as_millisecond()).ok()?;
    Some(Duration::from_millis(at.saturating_sub(now)))
}

/// What the body of an error says, or the usual words for its status.
fn error_message(body: &[u8], status: hyper::StatusCode) -> String {
    #[derive(Deserialize)]
    struct ErrorBody {
        error: ApiError,
    }
    let said = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error }) if !error.message.is_empty() => error.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    match shown(&said) {
        said if said.is_empty() => status.canonical_reason().unwrap_or("no reason given").to_owned(),
        said => said,
    }
}

/// Foreign text, fit for a line of ours.
fn shown(text: &str) -> String {
    text::one_line(&text::for_terminal(text), ERROR_CHARS)
}

fn tell(observer: &dyn Observer, message_id: Option<&str>, data: &[u8]) {
    // Line breaks between data lines are blanks of the JSON: within its strings they are escaped.
    let event = String::from_utf8_lossy(data).replace('\n', " ");
    observer.observe(CallEvent::Part { message_id: message_id.unwrap_or_default(), event: &event });
}

/// Reads what is left of a stream: its end mark, without which the connection can't be used again.
fn drain(mut body: Incoming) {
    tokio::spawn(timeout(DRAIN, async move { while let Some(Ok(_)) = body.frame().await {} }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_wait_is_read_as_seconds_or_date() {
        let at = |text| parse_retry_after(text, 1_445_412_470_000).map(|d| d.as_millis());
        assert_eq!(at("7"), Some(7000));
        assert_eq!(at(" 0.25 "), Some(250));
        assert_eq!(at("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10_000));
        assert_eq!(at("Tue, 20 Oct 2015 07:28:00 GMT"), Some(0));
        for bad in ["", "-1", "soon", "NaN", "inf", "1e40"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_say_what_the_provider_said_on_one_line() {
        let say = |body: &str| error_message(body.as_bytes(), hyper::StatusCode::BAD_GATEWAY);
        assert_eq!(say(r#"{"type":"error","error":{"type":"x","message":"a\nb\u001b[31m"}}"#), "a b[31m");
        assert_eq!(say("<html>\n <b>oops</b>"), "<html> <b>oops</b>");
        assert_eq!(say(""), "Bad Gateway");
        assert_eq!(say(r#"{"error":{"message":""}}"#), r#"{"error":{"message":""}}"#);
        assert_eq!(say(&"x".repeat(5000)).chars().count(), ERROR_CHARS + 1);
    }

    #[test]
    fn credentials_are_needed_for_other_machines_and_an_empty_one_is_none() {
        let with = |key: Option<&str>, token: Option<&str>, base: Option<&str>| {
            AnthropicModel::new(&ProviderAccess {
                credentials: Credentials { api_key: key.map(str::to_owned), auth_token: token.map(str::to_owned) },
                base_url: base.map(str::to_owned),
                ..ProviderAccess::default()
            })
        };
        assert!(matches!(with(None, None, None), Err(ModelError::NoCredentials)));
        assert!(matches!(with(Some(""), Some(" \n"), Some("")), Err(ModelError::NoCredentials)));
        assert!(with(None, None, Some("http://127.0.0.1:1")).is_ok());
        let model = with(Some(" key\n"), Some("tok"), None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.http.base().to_string(), DEFAULT_BASE_URL);
        assert_eq!(
            (&model.headers["x-api-key"], &model.headers["authorization"]),
            (&HeaderValue::from_static("key"), &HeaderValue::from_static("Bearer tok"))
        );
        assert!(!format!("{:?}", model.headers).contains("tok"));
        let error = with(Some("k\u{1}ey"), None, None).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("API key") && !error.contains("k\u{1}ey"), "{error}");
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod server_tests;

#[cfg(test)]
#[path = "wire_tests.rs"]
mod wire_tests;
