use super::*;
use crate::core::frame::{Frame, Telling};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const SOON: Duration = Duration::from_secs(30);

fn pair() -> ((Link, Inbox), (Link, Inbox)) {
    let (a, b) = UnixStream::pair().unwrap();
    (start(a), start(b))
}

fn start(stream: UnixStream) -> (Link, Inbox) {
    Connection::start(PeerStream::new(stream).unwrap())
}

/// A connection whose other end is driven by hand.
fn raw() -> ((Link, Inbox), UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    (start(a), b)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("within the deadline")
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn entry(length: usize) -> Frame {
    Frame::Entry { json: "x".repeat(length) }
}

/// Answers every Ping until the connection ends.
fn answer_pings((link, mut inbox): (Link, Inbox)) -> tokio::task::JoinHandle<usize> {
    tokio::spawn(async move {
        let mut count = 0;
        while let Some(incoming) = inbox.recv().await {
            if incoming.frame == Frame::Ping {
                link.reply(incoming.seq, Frame::Pong).unwrap();
            }
            count += 1;
        }
        count
    })
}

#[test]
fn futures_and_handles_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn futures(link: &Link, inbox: &mut Inbox) {
        is_send(&link.request(Frame::Ping, SOON));
        is_send(&link.flush(SOON));
        is_send(&inbox.recv());
    }
    let _ = futures;
}

#[tokio::test]
async fn replies_find_their_requests_in_any_order() {
    let ((client, _client_inbox), (server, mut server_inbox)) = pair();
    let asked: Vec<_> = (0..10)
        .map(|run| {
            let client = client.clone();
            tokio::spawn(async move { client.request(Frame::Outcome { run }, SOON).await })
        })
        .collect();
    let mut received = Vec::new();
    while received.len() < 10 {
        received.push(soon(server_inbox.recv()).await.unwrap());
    }
    for incoming in received.iter().rev() {
        server.reply(incoming.seq, &incoming.frame).unwrap();
    }
    for (run, answer) in asked.into_iter().enumerate() {
        let run = u32::try_from(run).unwrap();
        assert_eq!(soon(answer).await.unwrap().unwrap(), Frame::Outcome { run });
    }
}

#[tokio::test]
async fn one_way_frames_keep_their_order_and_are_all_read_before_the_end() {
    let ((client, client_inbox), (_server, mut server_inbox)) = pair();
    for run in 0..200 {
        client.send(Frame::Outcome { run }).unwrap();
    }
    soon(client.flush(SOON)).await.unwrap();
    drop((client, client_inbox));
    for run in 0..200 {
        assert_eq!(soon(server_inbox.recv()).await.map(|i| i.frame), Some(Frame::Outcome { run }));
    }
    assert_eq!(soon(server_inbox.recv()).await, None);
}

#[tokio::test]
async fn dropping_the_last_link_writes_what_is_queued() {
    let ((client, client_inbox), (_server, mut server_inbox)) = pair();
    for run in 0..100 {
        client.send(Frame::Outcome { run }).unwrap();
    }
    drop((client, client_inbox));
    let mut count = 0;
    while soon(server_inbox.recv()).await.is_some() {
        count += 1;
    }
    assert_eq!(count, 100);
}

#[tokio::test]
async fn two_sides_that_ask_each_other_at_once_do_not_deadlock() {
    let (a, b) = pair();
    let (left, right) = (a.0.clone(), b.0.clone());
    let (served_a, served_b) = (answer_pings(a), answer_pings(b));
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..500 {
        for link in [left.clone(), right.clone()] {
            asked.spawn(async move { link.request(Frame::Ping, SOON).await });
        }
    }
    while let Some(answer) = soon(asked.join_next()).await {
        assert_eq!(answer.unwrap().unwrap(), Frame::Pong);
    }
    left.close();
    assert_eq!(soon(served_a).await.unwrap(), 500);
    assert_eq!(soon(served_b).await.unwrap(), 500);
    assert!(right.is_closed());
}

#[tokio::test]
async fn a_silent_peer_is_named_when_the_deadline_passes() {
    let ((client, _inbox), _silent) = raw();
    let error = soon(client.request(Frame::Status, Duration::from_millis(20))).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("does not answer (stopped? pid {})", std::process::id())), "{text}");
    assert!(text.contains("Status"), "{text}");
    assert!(!client.is_closed());
    assert_eq!(client.0.shared.pending().len(), 0);
}

#[tokio::test]
async fn late_and_unasked_replies_are_dropped() {
    let ((client, mut client_inbox), (server, mut server_inbox)) = pair();
    assert!(client.request(Frame::Ping, Duration::ZERO).await.is_err());
    assert!(client.request(Frame::Ping, Duration::from_millis(5)).await.is_err());
    let seq = soon(server_inbox.recv()).await.unwrap().seq;
    server.reply(seq, Frame::Pong).unwrap();
    server.reply(4711, Frame::Pong).unwrap();
    server.send(Frame::Done).unwrap();
    assert_eq!(soon(client_inbox.recv()).await.map(|i| i.frame), Some(Frame::Done));
    assert!(!client.is_closed());
}

#[tokio::test]
async fn requests_over_the_bound_wait_for_a_place() {
    let ((client, _client_inbox), (server, mut server_inbox)) = pair();
    let asked: Vec<_> = (0..REQUESTS_IN_FLIGHT + 1)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.request(Frame::Ping, SOON).await })
        })
        .collect();
    let mut received = Vec::new();
    while received.len() < REQUESTS_IN_FLIGHT {
        received.push(soon(server_inbox.recv()).await.unwrap());
    }
    assert!(timeout(Duration::from_millis(50), server_inbox.recv()).await.is_err(), "one too many was sent");
    server.reply(received[0].seq, Frame::Pong).unwrap();
    received.push(soon(server_inbox.recv()).await.unwrap());
    for incoming in &received[1..] {
        server.reply(incoming.seq, Frame::Pong).unwrap();
    }
    for answer in asked {
        assert_eq!(soon(answer).await.unwrap().unwrap(), Frame::Pong);
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_fills_a_bounded_queue() {
    let ((client, _inbox), silent) = raw();
    let mut sent = 0;
    let error = loop {
        match client.send(Frame::Ping) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WireError::Slow { .. }), "{error}");
    assert_eq!(sent, QUEUE_FRAMES);
    assert!(matches!(client.flush(Duration::from_millis(1)).await, Ok(()) | Err(WireError::TimedOut { .. })));
    client.close();
    soon(client.closed()).await;
    assert!(matches!(client.send(Frame::Ping), Err(WireError::Closed)));
    assert!(matches!(soon(client.request(Frame::Ping, SOON)).await, Err(WireError::Closed)));
    drop(silent);
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes_too() {
    let ((client, _inbox), _silent) = raw();
    let big = entry(FRAME_BYTES - 1000);
    for _ in 0..4 {
        client.send(&big).unwrap();
    }
    assert!(matches!(client.send(&big), Err(WireError::Slow { .. })));
    assert!(client.0.shared.queued_bytes.load(Ordering::Relaxed) <= QUEUE_BYTES);
    client.send(Frame::Ping).unwrap();
}

#[tokio::test]
async fn a_peer_is_read_no_further_than_there_is_room_in_the_inbox() {
    let ((client, _inbox), (_link, mut inbox)) = pair();
    for _ in 0..20 {
        client.send(entry(INBOX_KIB as usize * 1024 * 2 / 3)).unwrap();
    }
    // All that can be read is read once nothing more can be written.
    while client.flush(Duration::from_millis(200)).await.is_ok() {}
    assert_eq!(inbox.0.len(), 1, "a second one would be more than fits");
    for _ in 0..20 {
        assert!(matches!(soon(inbox.recv()).await, Some(Incoming { frame: Frame::Entry { .. }, .. })));
    }
    // One that is longer than all of it has it for itself.
    client.send(entry(INBOX_KIB as usize * 2048)).unwrap();
    assert!(soon(inbox.recv()).await.is_some());
}

#[tokio::test]
async fn what_may_be_lost_leaves_most_of_the_queue_to_what_counts() {
    let ((client, _inbox), _silent) = raw();
    let mut offered = 0;
    while client.offer(Frame::Ping).is_ok() {
        offered += 1;
    }
    assert_eq!(offered, QUEUE_FRAMES / 2);
    let counted = (0..QUEUE_FRAMES).take_while(|_| client.send(Frame::Ping).is_ok()).count();
    assert_eq!(counted, QUEUE_FRAMES / 2);
    let ((client, _inbox), _silent) = raw();
    client.send(entry(OFFERED_BYTES)).unwrap();
    assert!(matches!(client.offer(Frame::Ping), Err(WireError::Slow { .. })));
    client.send(Frame::Ping).unwrap();
}

#[tokio::test]
async fn the_longest_frame_passes_and_one_more_byte_does_not() {
    let ((client, _client_inbox), (_server, mut server_inbox)) = pair();
    let overhead = encode(1, 0, &entry(1 << 20)).unwrap().len() - (1 << 20);
    let longest = entry(FRAME_BYTES - overhead);
    assert_eq!(encode(1, 0, &longest).unwrap().len(), FRAME_BYTES);
    client.send(&longest).unwrap();
    assert_eq!(soon(server_inbox.recv()).await.map(|i| i.frame), Some(longest));
    let error = client.send(entry(FRAME_BYTES - overhead + 1)).unwrap_err();
    assert!(matches!(error, WireError::TooLong { bytes, limit } if bytes == FRAME_BYTES + 1 && limit == FRAME_BYTES));
    assert!(!client.is_closed());
}

#[tokio::test]
async fn a_length_over_the_limit_closes_the_connection_at_once() {
    for length in [u32::MAX, u32::try_from(FRAME_BYTES).unwrap() + 1] {
        let ((link, mut inbox), mut foreign) = raw();
        foreign.write_all(&length.to_be_bytes()).await.unwrap();
        // Nothing of the body is sent: whoever waited for it (or made room for it) would hang here.
        assert_eq!(soon(inbox.recv()).await, None);
        assert!(link.is_closed());
        assert!(foreign.read(&mut [0; 8]).await.is_ok_and(|n| n == 0));
    }
}

#[tokio::test]
async fn garbage_closes_its_connection_only() {
    let good = encode(1, 0, &Frame::Ping).unwrap();
    let mut trailing = good.to_vec();
    trailing.push(0xc0);
    let mut deep = vec![0x91; 5000];
    deep.push(0xc0);
    let other = pair();
    let other_link = other.0.0.clone();
    let _served = answer_pings(other.1);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[], &[0xc1], &trailing, &deep, &good[..good.len() - 1]] {
        let ((link, mut inbox), mut foreign) = raw();
        foreign.write_all(&framed(&good)).await.unwrap();
        foreign.write_all(&framed(garbage)).await.unwrap();
        assert_eq!(soon(inbox.recv()).await, Some(Incoming { seq: 1, frame: Frame::Ping }), "what came before counts");
        assert_eq!(soon(inbox.recv()).await, None, "{garbage:x?}");
        assert!(link.is_closed());
    }
    assert_eq!(soon(other_link.request(Frame::Ping, SOON)).await.unwrap(), Frame::Pong);
}

#[tokio::test]
async fn nesting_is_refused_where_it_is_sent() {
    let ((client, _client_inbox), (_server, mut server_inbox)) = pair();
    let nested = |depth: usize| Frame::Call {
        tool: "t".into(),
        tool_use_id: "u".into(),
        input: (0..depth).fold(serde_json::Value::Null, |v, _| serde_json::json!([v])),
    };
    let deepest = (1..super::super::MAX_DEPTH).rev().find(|&d| encode(1, 0, &nested(d)).is_ok()).unwrap();
    assert!(deepest > 50, "{deepest}");
    client.send(nested(deepest)).unwrap();
    assert_eq!(soon(server_inbox.recv()).await.map(|i| i.frame), Some(nested(deepest)));
    assert!(matches!(client.send(nested(deepest + 1)), Err(WireError::Malformed(_))));
    assert!(!client.is_closed());
}

#[tokio::test]
async fn a_torn_frame_is_the_end_without_a_frame() {
    let ((link, mut inbox), mut foreign) = raw();
    let bytes = framed(&encode(1, 0, &Frame::Ping).unwrap());
    foreign.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    drop(foreign);
    assert_eq!(soon(inbox.recv()).await, None);
    assert!(link.is_closed());
}

#[tokio::test]
async fn requests_end_when_the_peer_goes() {
    let ((client, _inbox), foreign) = raw();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.request(Frame::Ping, SOON).await }
    });
    tokio::task::yield_now().await;
    drop(foreign);
    assert!(matches!(soon(asked).await.unwrap(), Err(WireError::Closed)));
}

#[tokio::test]
async fn without_inboxes_replies_still_arrive_and_the_last_link_ends_it() {
    let ((client, client_inbox), server) = pair();
    drop(client_inbox);
    let server_link = server.0.clone();
    let served = answer_pings(server);
    server_link.send(Frame::Done).unwrap();
    assert_eq!(soon(client.request(Frame::Ping, SOON)).await.unwrap(), Frame::Pong);
    drop(client);
    soon(server_link.closed()).await;
    assert_eq!(soon(served).await.unwrap(), 1);
}

#[tokio::test]
async fn a_connection_that_nobody_holds_ends_although_the_peer_stays() {
    let ((link, inbox), mut foreign) = raw();
    drop((link, inbox));
    let mut rest = Vec::new();
    soon(foreign.read_to_end(&mut rest)).await.unwrap();
    // The reader is gone as well: the peer's writes fail instead of filling a buffer.
    let gone = async { while foreign.write_all(&framed(b"x")).await.is_ok() {} };
    soon(gone).await;
}

#[test]
fn kinds_are_named_without_their_content() {
    assert_eq!(name_of(&Frame::Ping), "Ping");
    assert_eq!(name_of(&entry(1 << 20)), "Entry");
    assert_eq!(name_of(&Frame::Refused { reason: "x".into() }), "Refused");
}

fn samples() -> Vec<Bytes> {
    let frames = [
        Frame::Ping,
        Frame::Stop { id: None, kill: true, reason: "r".into() },
        Frame::Call { tool: "t".into(), tool_use_id: "u".into(), input: serde_json::json!({"a": [1, {"b": null}]}) },
        Frame::Welcome(Box::new(crate::core::frame::Welcome {
            config: serde_json::from_value(serde_json::json!({
                "id": "a-1a2b3c4d5e6f7890", "run": 1, "session": "7f2c1c2e-0c1f-4f6e-9a55-0a3c9d1f6b11",
                "agent_type": "worker", "description": "d", "model": "m", "max_tokens": 1000, "system_prompt": "s", "pool": ["Bash"],
                "permission_mode": "default", "permissions": {}, "cwd": "/", "config_dir": "/", "runtime_dir": "/",
                "transcript": "/t", "place": serde_json::to_value(crate::core::entry::Place::default()).unwrap(),
                "permission_timeout_ms": 1, "durability": "process"
            }))
            .unwrap(),
            prompt: crate::core::frame::Prompt { text: "p".into(), msg_id: None, from: "f".into() },
            secrets: vec![("K".into(), "v".into())],
            owner: crate::core::agent::Owner::Lead,
            access: crate::core::provider::ProviderAccess::default(),
            telling: Telling::Nothing,
        })),
    ];
    frames.iter().map(|f| encode(1, 0, f).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn mutated_frames_never_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let samples = samples();
        let mut bytes = samples[which.index(samples.len())].to_vec();
        prop_assert!(decode(&bytes).is_ok());
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn streams_of_garbage_end_the_connection(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ((link, mut inbox), mut foreign) = raw();
            let _ = foreign.write_all(&bytes).await;
            drop(foreign);
            while soon(inbox.recv()).await.is_some() {}
            assert!(link.is_closed());
        });
    }
}
