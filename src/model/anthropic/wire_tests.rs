//! The client against servers that are no good: bytes written by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server_tests::{Log, QUICK, call, model, request};
use super::*;
use crate::core::message::{Block, text_of};

const SOON: Duration = Duration::from_secs(30);

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const END: &str = "0\r\n\r\n";

const STREAM: &str = concat!(
    "event: message_start\n",
    r#"data: {"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":1}}}"#,
    "\n\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"héllo"}}"#,
    "\n\n",
    r#"data: {"type":"content_block_stop","index":0}"#,
    "\n\n",
    r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}"#,
    "\n\n",
    r#"data: {"type":"message_stop"}"#,
    "\n\n",
);

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// A whole answer.
fn answer() -> Vec<u8> {
    [HEAD.as_bytes(), &chunk(STREAM.as_bytes()), END.as_bytes()].concat()
}

/// Reads one request; false if there is none.
async fn take_request(stream: &mut TcpStream) -> bool {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let shown = String::from_utf8_lossy(&text).to_lowercase();
        if let Some((head, body)) = shown.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return true;
            }
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return false,
            Ok(n) => text.extend_from_slice(&part[..n]),
        }
    }
}

/// What a server does with each connection after it took a request.
enum Then {
    /// Waits for the next request.
    KeepOpen,
    Close,
    /// Sends the second part again and again.
    Flood(Vec<u8>),
}

/// Answers the n-th request with the n-th answer; counts connections.
async fn server(answers: Vec<(Vec<u8>, Then)>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut answers = answers.into_iter();
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            while take_request(&mut stream).await {
                let Some((bytes, then)) = answers.next() else { return };
                let _ = stream.write_all(&bytes).await;
                match then {
                    Then::KeepOpen => {}
                    Then::Close => break,
                    Then::Flood(more) => while stream.write_all(&more).await.is_ok() {},
                }
            }
        }
    });
    (url, count)
}

async fn lines_and_text(answers: Vec<(Vec<u8>, Then)>, stall: Duration) -> (Vec<String>, String, Log) {
    let (url, _) = server(answers).await;
    let log = Log::default();
    let reply = call(&model(&url, QUICK, stall), &request("go"), &log).await;
    let text = reply.map_or_else(|e| e.to_string(), |r| text_of(&r.content));
    (log.lines(), text, log)
}

const TWICE: [&str; 3] = ["sent 1", "wait 1", "sent 2"];
const TWICE_DISCARDED: [&str; 3] = ["sent 1", "wait 1 discarded", "sent 2"];

#[tokio::test]
async fn a_stream_may_come_in_any_pieces_with_any_line_ends() {
    for ends in ["\n", "\r\n", "\r"] {
        let stream = format!("\u{feff}: hi\n\n{STREAM}").replace('\n', ends);
        let mut bytes = HEAD.as_bytes().to_vec();
        stream.as_bytes().chunks(3).for_each(|part| bytes.extend(chunk(part)));
        bytes.extend(END.as_bytes());
        let (lines, text, _) = lines_and_text(vec![(bytes, Then::KeepOpen)], SOON).await;
        assert_eq!((lines.as_slice(), text.as_str()), (&["sent 1".to_owned()][..], "héllo"), "{ends:?}");
    }
}

#[tokio::test]
async fn connections_that_end_anywhere_are_tried_again() {
    let whole = answer();
    let head = HEAD.len();
    // Before the head, in it, behind it, within an event, before the last event's blank line.
    for (at, discarded) in [(0, false), (9, false), (head, false), (head + 40, false), (head + 200, true)] {
        let (lines, text, log) =
            lines_and_text(vec![(whole[..at].to_vec(), Then::Close), (answer(), Then::KeepOpen)], SOON).await;
        let wanted = if discarded { TWICE_DISCARDED } else { TWICE };
        assert_eq!((lines.as_slice(), text.as_str()), (&wanted.map(str::to_owned)[..], "héllo"), "{at}");
        assert!(log.reason(0).contains("http://127.0.0.1"), "{}", log.reason(0));
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_ends_by_the_deadline() {
    let (lines, text, log) =
        lines_and_text(vec![(Vec::new(), Then::KeepOpen), (answer(), Then::KeepOpen)], Duration::from_secs(1)).await;
    assert_eq!((lines.as_slice(), text.as_str()), (&TWICE.map(str::to_owned)[..], "héllo"));
    assert!(log.reason(0).contains("no answer within 1s"), "{}", log.reason(0));
}

#[tokio::test]
async fn a_flood_of_pings_is_no_progress() {
    let ping = chunk(b"data: {\"type\":\"ping\"}\n\n");
    let flood = Then::Flood(ping.repeat(1000));
    let begun = STREAM.find("\n\n").map_or("", |end| &STREAM[..end + 2]);
    let first = [HEAD.as_bytes(), &chunk(begun.as_bytes())].concat();
    let (lines, text, log) =
        lines_and_text(vec![(first, flood), (answer(), Then::KeepOpen)], Duration::from_secs(1)).await;
    assert_eq!((lines.as_slice(), text.as_str()), (&TWICE_DISCARDED.map(str::to_owned)[..], "héllo"));
    assert!(log.reason(0).contains("nothing but pings"), "{}", log.reason(0));
}

#[tokio::test]
async fn a_page_is_no_stream_and_is_not_asked_for_again() {
    let page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nlogin".to_vec();
    let (lines, text, _) = lines_and_text(vec![(page, Then::KeepOpen)], SOON).await;
    assert_eq!(lines, ["sent 1"]);
    assert!(text.contains("text/html"), "{text}");
    let moved = b"HTTP/1.1 302 Found\r\nlocation: http://example.com/\r\ncontent-length: 0\r\n\r\n".to_vec();
    let (lines, text, _) = lines_and_text(vec![(moved, Then::KeepOpen)], SOON).await;
    assert_eq!((lines.len(), text.as_str()), (1, "API error 302: Found"));
}

#[tokio::test]
async fn an_endless_event_and_an_endless_error_are_bounded() {
    let first = [HEAD.as_bytes(), &chunk(b"data: ")].concat();
    let flood = Then::Flood(chunk(&vec![b'x'; 1 << 20]));
    let (lines, text, _) = lines_and_text(vec![(first, flood)], SOON).await;
    assert_eq!(lines, ["sent 1"]);
    assert!(text.contains("longer than"), "{text}");
    let head = "HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n".as_bytes().to_vec();
    let flood = Then::Flood(chunk(&vec![b'x'; 1 << 20]));
    let (lines, text, _) = lines_and_text(vec![(head, flood)], SOON).await;
    assert_eq!((lines.len(), text.as_str()), (1, "API error 400: Bad Request"));
}

#[tokio::test]
async fn a_connection_serves_many_calls_and_one_that_went_away_costs_nothing() {
    let mut answers: Vec<(Vec<u8>, Then)> = (0..5).map(|_| (answer(), Then::KeepOpen)).collect();
    answers.push((answer(), Then::Close));
    answers.push((answer(), Then::KeepOpen));
    let (url, connections) = server(answers).await;
    let (model, log) = (model(&url, QUICK, SOON), Log::default());
    for _ in 0..7 {
        let reply = call(&model, &request("go"), &log).await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(reply.content, [Block::text("héllo")]);
        // The end of the stream is read beside the call.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    assert_eq!(log.lines(), ["sent 1"; 7]);
}
