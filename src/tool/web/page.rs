//! Fetches a page: one GET, redirects on the same server, the head checked before the body is read,
//! the body up to a limit.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Request, Response, StatusCode};

use super::address::Address;
use crate::core::limits::WEB_BODY_BYTES;
use crate::core::text::one_line;
use crate::core::text::with_causes;
use crate::http::{Client, SendError};

/// Redirects that are followed.
const REDIRECTS: usize = 10;
/// A body with a null byte in its first this many bytes is no text, whatever its head says.
const PROBE_BYTES: usize = 8192;

/// What became of a fetch.
pub(super) enum Fetched {
    /// A text of some kind; the status may be that of an error.
    Page(Page),
    /// A redirect that is not followed.
    Elsewhere {
        /// What redirects.
        from: Address,
        /// The redirect.
        status: StatusCode,
        /// Where to.
        to: Address,
    },
}

/// The answer of a server.
pub(super) struct Page {
    /// Where it lies, after redirects.
    pub address: Address,
    /// Its status.
    pub status: StatusCode,
    /// Its type, such as `text/html`; empty if the server says none.
    pub kind: String,
    /// The encoding that the server names.
    pub charset: Option<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether more than the limit was there.
    pub is_cut: bool,
}

impl Page {
    /// Whether it is to be read as HTML.
    pub(super) fn is_html(&self) -> bool {
        let begin = String::from_utf8_lossy(&self.body[..self.body.len().min(100)]).trim_start().to_ascii_lowercase();
        match self.kind.as_str() {
            "text/html" | "application/xhtml+xml" => true,
            "" => begin.starts_with("<!doctype html") || begin.starts_with("<html"),
            _ => false,
        }
    }
}

/// Fetches what lies at `address`. The error is for the model.
pub(super) async fn fetch(client: &Client, mut address: Address) -> Result<Fetched, String> {
    for _ in 0..=REDIRECTS {
        let response = get(client, &address).await?;
        let status = response.status();
        let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let Some(location) = text(response.headers(), header::LOCATION).filter(|_| is_redirect) else {
            return read(address, response).await.map(Fetched::Page);
        };
        let shown = one_line(&location, 200);
        let to = address.join(&location).map_err(|what| format!("{address} redirects to {shown:?}: {what}"))?;
        if !address.may_lead_to(&to) {
            return Ok(Fetched::Elsewhere { from: address, status, to });
        }
        address = to;
    }
    Err(format!("{address} is the end of {REDIRECTS} redirects and redirects again"))
}

async fn get(client: &Client, address: &Address) -> Result<Response<Incoming>, String> {
    let request = Request::get(address.uri())
        .header(header::USER_AGENT, concat!("lead/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "text/markdown, text/html;q=0.9, text/plain;q=0.9, */*;q=0.5")
        // Nothing here unpacks.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Full::new(Bytes::new()))
        .map_err(|e| format!("{address} can't be asked for: {e}"))?;
    client.send(request).await.map_err(|error| match error {
        SendError::Unusable(what) => format!("{address} can't be reached: {what}"),
        SendError::Failed(what) => format!("{address} can't be reached: {}", explained(address, &what)),
    })
}

/// What failed, with what it means where that is not clear from it.
fn explained(address: &Address, what: &str) -> String {
    let host = address.host();
    let meaning = if what.contains("dns error") {
        format!("the name {host} is not known; check it")
    } else if what.contains("ertificate") {
        format!("{host} does not prove who it is")
    } else if what.contains("refused") {
        format!("nothing listens on that port of {host}")
    } else {
        return what.to_owned();
    };
    format!("{meaning} ({what})")
}

async fn read(address: Address, response: Response<Incoming>) -> Result<Page, String> {
    let (head, mut body) = response.into_parts();
    let (kind, charset) = content_type(&text(&head.headers, header::CONTENT_TYPE).unwrap_or_default());
    let size = || match body_size(&head.headers) {
        Some(bytes) => format!("{bytes} bytes"),
        None => "of unknown size".to_owned(),
    };
    let is_error = head.status.is_client_error() || head.status.is_server_error();
    if !is_text(&kind) && !is_error {
        return Err(format!("{address} is {kind}, {}: no text, so it can't be shown", size()));
    }
    let packed = text(&head.headers, header::CONTENT_ENCODING).filter(|e| !e.eq_ignore_ascii_case("identity"));
    if let Some(packed) = packed {
        let packed = one_line(&packed, 40);
        return Err(format!("{address} comes packed ({packed}) though it was asked for plainly, and can't be read"));
    }
    let mut bytes = Vec::new();
    let mut is_cut = false;
    while !is_cut && !body.is_end_stream() {
        let frame = match body.frame().await {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                return Err(format!("{address} broke off after {} bytes: {}", bytes.len(), with_causes(&error)));
            }
        };
        let Ok(chunk) = frame.into_data() else { continue };
        let room = WEB_BODY_BYTES - bytes.len();
        is_cut = chunk.len() > room;
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    if bytes[..bytes.len().min(PROBE_BYTES)].contains(&0) && !charset.as_deref().is_some_and(is_wide) {
        let said = if kind.is_empty() { "of no type".to_owned() } else { kind };
        return Err(format!("{address} is {said}, {}, but holds no text", size()));
    }
    Ok(Page { address, status: head.status, kind, charset, body: bytes, is_cut })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn body_size(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_LENGTH)?.trim().parse().ok()
}

/// `Text/HTML; charset=x` → `text/html` and `x`.
fn content_type(value: &str) -> (String, Option<String>) {
    let mut parts = value.split(';').map(str::trim);
    let kind = one_line(parts.next().unwrap_or_default(), 100).to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().to_owned())
    });
    (kind, charset)
}

/// Whether what is of this type can be shown; without a type it is looked at.
fn is_text(kind: &str) -> bool {
    let (family, rest) = kind.split_once('/').unwrap_or((kind, ""));
    let plain = [
        "json",
        "ld+json",
        "x-ndjson",
        "jsonl",
        "xml",
        "xhtml+xml",
        "javascript",
        "x-javascript",
        "ecmascript",
        "typescript",
        "yaml",
        "x-yaml",
        "toml",
        "x-sh",
        "sql",
        "graphql",
        "x-www-form-urlencoded",
    ];
    kind.is_empty()
        || family == "text"
        || rest.ends_with("+json")
        || rest.ends_with("+xml")
        || (family == "application" && plain.contains(&rest))
}

/// Encodings whose texts hold null bytes.
fn is_wide(charset: &str) -> bool {
    charset.trim_matches('"').to_ascii_lowercase().starts_with("utf-16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_text_are_known() {
        for text in ["text/html", "text/x-anything", "application/json", "application/atom+xml", "image/svg+xml", ""] {
            assert!(is_text(text), "{text}");
        }
        for other in ["image/png", "application/octet-stream", "application/pdf", "json", "video/xml"] {
            assert!(!is_text(other), "{other}");
        }
        assert_eq!(content_type("Text/HTML; a=b; Charset = X"), ("text/html".to_owned(), Some("X".to_owned())));
        assert_eq!(content_type(""), (String::new(), None));
    }

    #[test]
    fn failures_are_explained() {
        let address = Address::parse("https://a.example/").unwrap_or_else(|e| panic!("{e}"));
        for (what, meaning) in [
            ("client error (Connect): dns error: no address", "the name a.example is not known"),
            ("client error (Connect): invalid peer certificate: UnknownIssuer", "does not prove who it is"),
            ("no connection within 10s", "no connection within 10s"),
        ] {
            let explained = explained(&address, what);
            assert!(explained.contains(meaning) && explained.contains(what), "{explained}");
        }
    }
}
