//! A connection: one task reads frames, one writes them, and a [`Link`] is the handle that
//! everybody else holds. Sending never waits, so a process's main loop can do it; a request is a
//! future of its own, whose deadline is its caller's.
//!
//! It ends when the peer closes or sends garbage, or when somebody calls [`Link::close`]. Dropping
//! the last link is the polite end: what is queued is still written, then the peer sees the end.
//! The queue out is bounded by [`QUEUE_FRAMES`] and [`QUEUE_BYTES`]; when the inbox is full the peer
//! is read no further until there is room.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

use super::codec::{decode, encode, framing};
use super::error::WireError;
use super::peer::{Peer, PeerStream};
use crate::core::frame::Frame;
use crate::core::limits::{FRAME_BYTES, REQUESTS_IN_FLIGHT, deadlines};

/// Frames waiting to be written.
const QUEUE_FRAMES: usize = 1024;
/// Bytes waiting to be written.
const QUEUE_BYTES: usize = 4 * FRAME_BYTES;
/// Bytes waiting to be written behind which nothing is queued that may be lost.
const OFFERED_BYTES: usize = FRAME_BYTES / 4;
/// Frames waiting to be received.
const INBOX_FRAMES: usize = 256;
/// Kibibytes waiting to be received; a frame that is longer waits alone.
const INBOX_KIB: u32 = 1 << 10;
/// Bytes gathered into one write.
const WRITE_BATCH: usize = 64 << 10;

/// Starts connections.
pub struct Connection;

impl Connection {
    /// Starts the two tasks of a connection on the current runtime.
    pub fn start(stream: PeerStream) -> (Link, Inbox) {
        let PeerStream { stream, peer, permit } = stream;
        let (reader, writer) = stream.into_split();
        let (queue, queued) = mpsc::channel(QUEUE_FRAMES);
        let (inbox, incoming) = mpsc::channel(INBOX_FRAMES);
        let shared = Arc::new(Shared {
            peer,
            queued_bytes: AtomicUsize::new(0),
            pending: Mutex::default(),
            closed: CancellationToken::new(),
            unused: CancellationToken::new(),
            written: CancellationToken::new(),
        });
        tokio::spawn(write_frames(writer, queued, Arc::clone(&shared)));
        let sender = InboxSender { inbox, room: Arc::new(Semaphore::new(INBOX_KIB as usize)) };
        tokio::spawn(read_frames(reader, sender, Arc::clone(&shared), permit));
        let slots = Semaphore::new(REQUESTS_IN_FLIGHT);
        (Link(Arc::new(Handle { shared, queue, seq: AtomicU64::new(1), slots })), Inbox(incoming))
    }
}

/// What the two tasks and the links share.
struct Shared {
    peer: Peer,
    queued_bytes: AtomicUsize,
    /// Requests that wait for their replies, by number.
    pending: Mutex<HashMap<u64, oneshot::Sender<Frame>>>,
    /// Nothing comes in or goes out any more.
    closed: CancellationToken,
    /// All links are dropped.
    unused: CancellationToken,
    /// The writer has ended.
    written: CancellationToken,
}

impl Shared {
    fn pending(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Frame>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Outgoing {
    Frame(Bytes),
    /// Answered when everything before it is in the kernel's hands.
    Flush(oneshot::Sender<()>),
}

/// The sending side of a connection; clones share it.
#[derive(Clone)]
pub struct Link(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Outgoing>,
    seq: AtomicU64,
    slots: Semaphore,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.unused.cancel();
    }
}

impl Link {
    /// Queues a one-way frame. Never waits.
    ///
    /// # Errors
    /// [`WireError::Closed`]; [`WireError::Slow`] if the queue is full; [`WireError::TooLong`] and
    /// [`WireError::Malformed`] for what the peer would not accept.
    pub fn send(&self, frame: impl Borrow<Frame>) -> Result<(), WireError> {
        self.reply(0, frame)
    }

    /// Queues a one-way frame that may be lost, if the peer keeps up: most of the queue stays free for
    /// frames that count. Never waits.
    ///
    /// # Errors
    /// As [`Link::send`]; [`WireError::Slow`] long before the queue is full.
    pub fn offer(&self, frame: impl Borrow<Frame>) -> Result<(), WireError> {
        let shared = &self.0.shared;
        let is_free = self.0.queue.capacity() > QUEUE_FRAMES / 2;
        if !is_free || shared.queued_bytes.load(Ordering::Relaxed) > OFFERED_BYTES {
            return Err(WireError::Slow { pid: shared.peer.pid });
        }
        self.send(frame)
    }

    /// Queues the reply to the incoming frame number `seq`. Never waits.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn reply(&self, seq: u64, frame: impl Borrow<Frame>) -> Result<(), WireError> {
        self.queue(encode(self.next_seq(), seq, frame.borrow())?)
    }

    /// Sends a frame and waits for its reply, which may be a [`Frame::Error`]. At most
    /// [`REQUESTS_IN_FLIGHT`] are under way at a time; waiting for a place counts.
    ///
    /// Somebody must keep receiving from the [`Inbox`] meanwhile, or drop it.
    ///
    /// # Errors
    /// [`WireError::TimedOut`] after `deadline`; else as [`Link::send`].
    pub async fn request(&self, frame: impl Borrow<Frame>, deadline: Duration) -> Result<Frame, WireError> {
        let seq = self.next_seq();
        let what = name_of(frame.borrow());
        let bytes = encode(seq, 0, frame.borrow())?;
        drop(frame);
        let exchange = async {
            let _slot = self.0.slots.acquire().await.map_err(|_| WireError::Closed)?;
            let (answer, reply) = oneshot::channel();
            self.0.shared.pending().insert(seq, answer);
            let _pending = Pending { shared: &self.0.shared, seq };
            self.queue(bytes)?;
            tokio::select! {
                biased;
                reply = reply => reply.map_err(|_| WireError::Closed),
                () = self.0.shared.closed.cancelled() => Err(WireError::Closed),
            }
        };
        timeout(deadline, exchange).await.unwrap_or_else(|_| Err(self.timed_out(what, deadline)))
    }

    /// Waits until every frame queued so far is in the kernel's hands.
    ///
    /// # Errors
    /// [`WireError::TimedOut`] if the peer does not read; [`WireError::Closed`].
    pub async fn flush(&self, deadline: Duration) -> Result<(), WireError> {
        let flush = async {
            let (done, flushed) = oneshot::channel();
            self.0.queue.send(Outgoing::Flush(done)).await.map_err(|_| WireError::Closed)?;
            flushed.await.map_err(|_| WireError::Closed)
        };
        timeout(deadline, flush).await.unwrap_or_else(|_| Err(self.timed_out("a flush".into(), deadline)))
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.0.shared.peer
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.0.shared.closed.is_cancelled() || self.0.queue.is_closed()
    }

    /// Returns when the connection has ended; what came in before is still in the inbox.
    pub async fn closed(&self) {
        self.0.shared.closed.cancelled().await;
    }

    /// Ends the connection now, for all links. What is not flushed is lost.
    pub fn close(&self) {
        self.0.shared.closed.cancel();
    }

    fn next_seq(&self) -> u64 {
        self.0.seq.fetch_add(1, Ordering::Relaxed)
    }

    fn queue(&self, bytes: Bytes) -> Result<(), WireError> {
        if self.is_closed() {
            return Err(WireError::Closed);
        }
        let length = bytes.len();
        let shared = &self.0.shared;
        let slow = || WireError::Slow { pid: shared.peer.pid };
        let before = shared.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let queued = if before + length > QUEUE_BYTES {
            Err(slow())
        } else {
            self.0.queue.try_send(Outgoing::Frame(bytes)).map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => slow(),
                mpsc::error::TrySendError::Closed(_) => WireError::Closed,
            })
        };
        if queued.is_err() {
            shared.queued_bytes.fetch_sub(length, Ordering::Relaxed);
        }
        queued
    }

    fn timed_out(&self, what: String, waited: Duration) -> WireError {
        WireError::TimedOut { what, waited, pid: Some(self.peer().pid) }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", self.peer()).field("closed", &self.is_closed()).finish()
    }
}

/// Forgets a request however its future ends.
struct Pending<'a> {
    shared: &'a Shared,
    seq: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.shared.pending().remove(&self.seq);
    }
}

/// A frame that is not the reply to a request of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Its number, for [`Link::reply`].
    pub seq: u64,
    /// Its content.
    pub frame: Frame,
}

/// The receiving side of a connection. Without it, frames that are not replies are dropped.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<(Incoming, OwnedSemaphorePermit)>);

/// The other end of an [`Inbox`].
struct InboxSender {
    inbox: mpsc::Sender<(Incoming, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

impl InboxSender {
    /// Waits until there is room for a frame of so many bytes, and hands it over. Nobody may want it.
    async fn send(&self, incoming: Incoming, bytes: usize) {
        let kib = u32::try_from(bytes >> 10).unwrap_or(INBOX_KIB).clamp(1, INBOX_KIB);
        // Mostly there is room, and then nothing needs to be waited for, which costs more.
        let room = match Arc::clone(&self.room).try_acquire_many_owned(kib) {
            Ok(room) => Ok(room),
            Err(_) => Arc::clone(&self.room).acquire_many_owned(kib).await,
        };
        let Ok(room) = room else { return };
        if let Err(mpsc::error::TrySendError::Full(waiting)) = self.inbox.try_send((incoming, room)) {
            let _ = self.inbox.send(waiting).await;
        }
    }
}

impl Inbox {
    /// The next frame; none once the connection has ended and everything was received.
    /// Can be dropped at any time without losing a frame.
    pub async fn recv(&mut self) -> Option<Incoming> {
        self.0.recv().await.map(|(incoming, _room)| incoming)
    }
}

async fn read_frames(
    half: OwnedReadHalf,
    sender: InboxSender,
    shared: Arc<Shared>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let mut frames = FramedRead::new(half, framing());
    let unwanted = async {
        sender.inbox.closed().await;
        shared.written.cancelled().await;
    };
    let ended = async {
        tokio::select! {
            () = shared.closed.cancelled() => {}
            () = unwanted => {}
        }
    };
    let mut ended = std::pin::pin!(ended);
    loop {
        let read = tokio::select! {
            biased;
            () = &mut ended => break,
            read = frames.next() => read,
        };
        let mut length = 0;
        let envelope = match read {
            None => break,
            Some(Ok(bytes)) => {
                length = bytes.len();
                decode(&bytes)
            }
            // It closed without having read everything.
            Some(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset => break,
            Some(Err(e)) => Err(WireError::Malformed(e.to_string())),
        };
        let envelope = match envelope {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::warn!(pid = shared.peer.pid, %error, "connection closed");
                break;
            }
        };
        if envelope.re != 0 {
            // Whoever asked may have given up: a late reply is nobody's.
            if let Some(answer) = shared.pending().remove(&envelope.re) {
                let _ = answer.send(envelope.frame);
            }
            continue;
        }
        let incoming = Incoming { seq: envelope.seq, frame: envelope.frame };
        tokio::select! {
            biased;
            () = sender.send(incoming, length) => {}
            () = &mut ended => break,
        }
    }
    shared.closed.cancel();
}

async fn write_frames(half: OwnedWriteHalf, queue: mpsc::Receiver<Outgoing>, shared: Arc<Shared>) {
    let mut work = std::pin::pin!(write_queue(half, queue, &shared));
    // Dropping a half-written frame is right here, and only here: nothing follows it.
    tokio::select! {
        () = &mut work => {}
        () = shared.closed.cancelled() => {}
        // Nobody is left to close the connection: a peer that reads no more must not keep it.
        () = shared.unused.cancelled() => {
            let _ = timeout(deadlines().reply, async {
                tokio::select! {
                    () = &mut work => {}
                    () = shared.closed.cancelled() => {}
                }
            })
            .await;
        }
    }
    shared.written.cancel();
}

/// Writes what is queued until all links are gone. An error is not told: a peer that is gone may
/// have left frames for the reader, which then comes to the end of the connection itself.
async fn write_queue(half: OwnedWriteHalf, mut queue: mpsc::Receiver<Outgoing>, shared: &Shared) {
    let mut sink: FramedWrite<_, LengthDelimitedCodec> = FramedWrite::new(half, framing());
    sink.set_backpressure_boundary(WRITE_BATCH);
    let mut flushed = Vec::new();
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Outgoing::Frame(bytes) => {
                    let length = bytes.len();
                    let fed = sink.feed(bytes).await;
                    shared.queued_bytes.fetch_sub(length, Ordering::Relaxed);
                    if fed.is_err() {
                        return;
                    }
                }
                Outgoing::Flush(done) => flushed.push(done),
            }
            next = queue.try_recv().ok();
        }
        if SinkExt::<Bytes>::flush(&mut sink).await.is_err() {
            return;
        }
        for done in flushed.drain(..) {
            let _ = done.send(());
        }
    }
    let _ = SinkExt::<Bytes>::close(&mut sink).await;
}

/// The name of a frame's kind. Written through a writer that stops after the first word, so that
/// the content is never formatted.
fn name_of(frame: &Frame) -> String {
    struct FirstWord(String);
    impl fmt::Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for c in text.chars() {
                if !c.is_alphanumeric() {
                    return Err(fmt::Error);
                }
                self.0.push(c);
            }
            Ok(())
        }
    }
    let mut word = FirstWord(String::new());
    let _ = write!(word, "{frame:?}");
    word.0
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
