//! The server: accepts on loopback, answers each request by playing the playbook.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming as IncomingBody};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as HttpRequest, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::incoming::{Check, Refusal, check_strictly, read};
use super::script::{Piece, script};
use crate::core::limits::MODEL_REQUEST_BYTES;
use crate::model::call::ModelError;
use crate::model::playbook::{PlaybookModel, Turn, message, prompt_tokens};

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The playbook's file, or the name of a built-in one.
    pub playbook: String,
    /// The port on 127.0.0.1; 0 = any that is free.
    pub port: u16,
    /// How requests are checked.
    pub check: Check,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The playbook can't be used.
    #[error("can't serve the playbook")]
    Playbook(#[source] ModelError),
    /// The port can't be listened on.
    #[error("can't listen on 127.0.0.1:{port}")]
    Listen {
        /// The port asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
}

/// Serves until `cancel` fires. `ready` is told the base URL (`http://127.0.0.1:PORT`) once
/// connections are accepted.
pub async fn run(
    options: ServeOptions,
    cancel: &CancellationToken,
    ready: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let model = PlaybookModel::open(&options.playbook).map_err(ServeError::Playbook)?;
    let listen = |source| ServeError::Listen { port: options.port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await.map_err(listen)?;
    let server = Server::new(listener, model, options.check).map_err(listen)?;
    ready(&server.base_url());
    server.run(cancel).await;
    Ok(())
}

const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A bound server.
pub(in crate::model) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    desk: Arc<Desk>,
}

/// What the connections share.
struct Desk {
    model: PlaybookModel,
    check: Check,
}

impl Server {
    pub(in crate::model) fn new(listener: TcpListener, model: PlaybookModel, check: Check) -> io::Result<Self> {
        Ok(Self { address: listener.local_addr()?, listener, desk: Arc::new(Desk { model, check }) })
    }

    pub(in crate::model) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Accepts until `cancel` fires; what is open then is cut.
    pub(in crate::model) async fn run(self, cancel: &CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, Arc::clone(&self.desk)));
                    }
                    // Out of descriptors, or the peer has gone again. Connections end meanwhile.
                    Err(error) => {
                        tracing::warn!(%error, "can't accept a connection");
                        pause(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn serve(stream: TcpStream, desk: Arc<Desk>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

impl Desk {
    async fn answer(&self, request: HttpRequest<IncomingBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let is_count = match (head.method, head.uri.path()) {
            (Method::POST, "/v1/messages") => false,
            (Method::POST, "/v1/messages/count_tokens") => true,
            (Method::GET, "/v1/models") => {
                let model = json!({"type": "model", "id": "playbook", "display_name": "a playbook"});
                return whole(StatusCode::OK, &json!({"data": [model], "has_more": false}));
            }
            (method, path) => return refusal(404, &format!("there is no {method} {path} here"), None),
        };
        let body = match Limited::new(body, MODEL_REQUEST_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return refusal(413, "request_too_large: the body is longer than 32 MiB", None),
        };
        let Ok(text) = std::str::from_utf8(&body) else { return refusal(400, "the body is no UTF-8", None) };
        let refuse = |Refusal { status, message }| refusal(status, &message, None);
        let incoming = match read(&head.headers, text) {
            Ok(incoming) => incoming,
            Err(refused) => return refuse(refused),
        };
        if is_count {
            return whole(StatusCode::OK, &json!({"input_tokens": prompt_tokens(&incoming.request)}));
        }
        let played = self.model.record(&incoming.request, Some(text)).and_then(|()| {
            if self.check == Check::Strict
                && let Err(refused) = check_strictly(&head.headers, text, &incoming.request)
            {
                return Ok(Err(refused));
            }
            self.model.next(&incoming.request).map(Ok)
        });
        match played {
            Ok(Ok(turn)) => respond(turn, incoming.stream).await,
            Ok(Err(refused)) => refuse(refused),
            Err(error) => refusal(500, &error.to_string(), None),
        }
    }
}

async fn respond(turn: Turn, is_streamed: bool) -> Response<Body> {
    pause(turn.delay).await;
    let reply = match turn.answer {
        Ok(reply) => reply,
        Err(error) => return refusal(error.status, &error.message, error.retry_after),
    };
    let (kind, pieces) = if is_streamed {
        ("text/event-stream; charset=utf-8", script(&reply, turn.fault, turn.event_delay))
    } else {
        let body = Piece::Send(message(&reply).to_string().into());
        ("application/json", turn.fault.map(|_| Piece::Cut).into_iter().chain([body]).collect())
    };
    let mut response = Response::new(body_of(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A body that carries out `pieces`.
fn body_of(pieces: Vec<Piece>) -> Body {
    let stream = stream::unfold(VecDeque::from(pieces), |mut pieces| async move {
        loop {
            match pieces.pop_front()? {
                Piece::Pause(time) => pause(time).await,
                Piece::Send(bytes) => return Some((Ok(Frame::data(bytes)), pieces)),
                Piece::Cut => {
                    // Without a break the connection would end before it is flushed.
                    tokio::task::yield_now().await;
                    return Some((Err(io::Error::other("cut by the playbook")), pieces));
                }
                Piece::Pings(every) => {
                    pause(every).await;
                    pieces.push_front(Piece::Pings(every));
                    return Some((Ok(Frame::data(Bytes::from_static(PING))), pieces));
                }
            }
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

fn whole(status: StatusCode, json: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(json.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refusal(status: u16, message: &str, retry_after: Option<Duration>) -> Response<Body> {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = whole(status, &json!({"type": "error", "error": {"type": kind, "message": message}}));
    if let Some(wait) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
    }
    response
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        let _ = timeout(time, std::future::pending::<()>()).await;
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
