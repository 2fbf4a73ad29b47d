//! A Messages API that answers at once, and the least client of it: the other end of `lead -p`, and
//! the limit beside it. Not part of the bare program, which must stay as small as what it stands for.

mod raw;

use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream, UnixStream};

use raw::{Message, Raw};

/// What the client sends; about as little as a request can be.
const QUESTION: &str =
    r#"{"model":"instant","max_tokens":8192,"stream":true,"messages":[{"role":"user","content":"Say it."}]}"#;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done =
        tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| match args.as_slice() {
            ["--serve"] => runtime.block_on(serve()),
            ["--ask", address, times] => {
                times.parse().map_err(io::Error::other).and_then(|times| runtime.block_on(ask(address, times)))
            }
            _ => Err(io::Error::other("it is started by scripts/bench")),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "instant: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until the parent's link on fd 0 ends, which is told the address first.
async fn serve() -> io::Result<()> {
    let stream = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    let mut link = Raw::new(UnixStream::from_std(stream)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    link.send(&Message { seq: 0, re: 0, body: listener.local_addr()?.to_string() }).await?;
    loop {
        tokio::select! {
            ended = link.receive() => return ended.map(drop),
            accepted = listener.accept() => {
                let stream = accepted?.0;
                stream.set_nodelay(true)?;
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // One that breaks is its client's to notice.
                tokio::spawn(async move { drop(connection.await) });
            }
        }
    }
}

/// `/N/v1/messages`: a tool call while the conversation has less than N results, then a text.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let wanted = request.uri().path().split('/').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let results = memchr::memmem::find_iter(&body, br#""type":"tool_result""#).count();
    let mut response = Response::new(Full::from(stream(if results < wanted { Some(results) } else { None })));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// The events of a reply: the tool call of that number, or a text.
fn stream(call: Option<usize>) -> String {
    let (begin, delta, reason) = match call {
        Some(number) => (
            format!(r#"{{"type":"tool_use","id":"toolu_{number}","name":"Read","input":{{}}}}"#),
            r#"{"type":"input_json_delta","partial_json":"{\"file_path\":\"note\"}"}"#,
            "tool_use",
        ),
        None => (r#"{"type":"text","text":""}"#.to_owned(), r#"{"type":"text_delta","text":"measured"}"#, "end_turn"),
    };
    let usage = r#"{"input_tokens":10,"output_tokens":1}"#;
    let id = call.map_or_else(|| "last".to_owned(), |number| number.to_string());
    let events = [
        (
            "message_start",
            format!(
                r#","message":{{"id":"msg_{id}","type":"message","role":"assistant","model":"instant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{usage}}}"#
            ),
        ),
        ("content_block_start", format!(r#","index":0,"content_block":{begin}"#)),
        ("content_block_delta", format!(r#","index":0,"delta":{delta}"#)),
        ("content_block_stop", r#","index":0"#.to_owned()),
        (
            "message_delta",
            format!(r#","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":5}}"#),
        ),
        ("message_stop", String::new()),
    ];
    let line = |(kind, rest)| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n");
    events.into_iter().map(line).collect()
}

/// Asks so many times over one connection, and reads each answer to its end.
async fn ask(address: &str, times: usize) -> io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.await) });
    for _ in 0..times {
        let request = Request::post("/0/v1/messages")
            .header(HOST, address)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(QUESTION))
            .map_err(io::Error::other)?;
        sender.ready().await.map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if memchr::memmem::find(&body, b"measured").is_none() {
            return Err(io::Error::other("the server answered something else"));
        }
    }
    Ok(())
}
