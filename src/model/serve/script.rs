//! What is sent for a played turn, piece by piece: the plan of a stream, without I/O.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::core::message::{Block, Known, Reply};
use crate::model::playbook::{FaultKind, events};

/// A step of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These bytes.
    Send(Bytes),
    /// A pause.
    Pause(Duration),
    /// The connection is cut.
    Cut,
    /// Pings without end, one per so much time.
    Pings(Duration),
}

/// Between two pings of a stream that stands still. Short, so that a client with a short deadline
/// sees several of them.
const PING: Duration = Duration::from_millis(20);

/// The pieces of `reply`'s stream, broken by `fault`.
pub(super) fn script(reply: &Reply, fault: Option<FaultKind>, event_delay: Duration) -> Vec<Piece> {
    let mut all: Vec<Bytes> = events(reply).iter().map(sse).collect();
    let (begin, end) = target(reply);
    let last = match fault {
        None => None,
        Some(FaultKind::CutBefore) => {
            all.truncate(begin + 1);
            Some(Piece::Cut)
        }
        Some(FaultKind::CutInTool) => {
            // Within an event, too: half of what the last one that counts would have held.
            let at = begin + 1 + (end - begin - 1) / 2;
            let half = all[at].slice(..all[at].len() / 2);
            all.truncate(at);
            all.push(half);
            Some(Piece::Cut)
        }
        Some(FaultKind::CutAfter) => {
            all.truncate(end + 1);
            Some(Piece::Cut)
        }
        Some(FaultKind::NoEnd) => {
            all.pop();
            None
        }
        Some(FaultKind::Stall) => {
            all.truncate(2);
            Some(Piece::Pings(PING))
        }
        Some(FaultKind::Malformed) => {
            all[begin + 1] =
                Bytes::from_static(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\n\n");
            None
        }
        Some(FaultKind::Overloaded) => {
            all.truncate(2);
            let error = json!({"type": "overloaded_error", "message": "overloaded within the stream"});
            all.push(sse(&json!({"type": "error", "error": error})));
            None
        }
    };
    let mut pieces = if event_delay.is_zero() {
        // In one piece: a loopback client should not be woken for each event.
        vec![Piece::Send(all.concat().into())]
    } else {
        all.into_iter().flat_map(|event| [Piece::Pause(event_delay), Piece::Send(event)]).collect()
    };
    pieces.extend(last);
    pieces
}

/// The places of the first call's begin and end in the events; without a call the last block's.
fn target(reply: &Reply) -> (usize, usize) {
    let call = reply.content.iter().position(|b| matches!(b, Block::Known(Known::ToolUse { .. })));
    let wanted = json!(call.unwrap_or(reply.content.len().saturating_sub(1)));
    let is = |event: &Value, kind: &str| event["type"] == kind && event["index"] == wanted;
    let all = events(reply);
    let begin = all.iter().position(|e| is(e, "content_block_start")).unwrap_or(1);
    let end = all.iter().position(|e| is(e, "content_block_stop")).unwrap_or(begin + 1);
    (begin, end)
}

fn sse(event: &Value) -> Bytes {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::message::Usage;

    fn sent(fault: Option<FaultKind>) -> (String, Option<Piece>) {
        let content = vec![
            Block::text("before"),
            Block::tool_use("t", "Bash", json!({"command": "a command of some length"})),
            Block::tool_use("u", "Bash", json!({})),
        ];
        let reply = Reply { id: "m".into(), model: "x".into(), content, stop_reason: None, usage: Usage::default() };
        let mut text = String::new();
        let mut last = None;
        for piece in script(&reply, fault, Duration::ZERO) {
            match piece {
                Piece::Send(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                other => last = Some(other),
            }
        }
        (text, last)
    }

    #[test]
    fn streams_are_broken_where_they_should_be() {
        let (whole, last) = sent(None);
        assert!(whole.ends_with("{\"type\":\"message_stop\"}\n\n") && last.is_none());
        let (text, last) = sent(Some(FaultKind::CutBefore));
        assert!(text.contains("\"t\"") && !text.contains("partial_json") && whole.starts_with(&text), "{text}");
        assert_eq!(last, Some(Piece::Cut));
        let (text, last) = sent(Some(FaultKind::CutInTool));
        assert!(text.contains("partial_json") && !text.ends_with("\n\n") && whole.starts_with(&text), "{text}");
        assert!(!text.contains("\"index\":2"), "{text}");
        assert_eq!(last, Some(Piece::Cut));
        let (text, last) = sent(Some(FaultKind::CutAfter));
        assert!(
            text.ends_with("{\"type\":\"content_block_stop\",\"index\":1}\n\n") && whole.starts_with(&text),
            "{text}"
        );
        assert_eq!(last, Some(Piece::Cut));
        let (text, last) = sent(Some(FaultKind::NoEnd));
        assert!(text.contains("message_delta") && !text.contains("message_stop") && last.is_none(), "{text}");
        let (text, last) = sent(Some(FaultKind::Stall));
        assert!(text.ends_with("{\"type\":\"ping\"}\n\n"), "{text}");
        assert_eq!(last, Some(Piece::Pings(PING)));
        let (text, _) = sent(Some(FaultKind::Overloaded));
        assert!(text.contains("overloaded_error") && !text.contains("content_block"), "{text}");
        let (text, _) = sent(Some(FaultKind::Malformed));
        assert!(text.contains("\"content_block_delta\",\n\n"), "{text}");
    }

    #[test]
    fn an_empty_reply_can_be_broken_too() {
        let reply = Reply {
            id: "m".into(),
            model: "x".into(),
            content: vec![Block::text("")],
            stop_reason: None,
            usage: Usage::default(),
        };
        use FaultKind::{CutAfter, CutBefore, CutInTool, Malformed, NoEnd, Overloaded, Stall};
        for fault in [CutBefore, CutInTool, CutAfter, NoEnd, Stall, Malformed, Overloaded] {
            assert!(!script(&reply, Some(fault), Duration::from_millis(1)).is_empty());
        }
    }
}
