//! What a frame costs: requests one after the other between two processes on one core, and
//! one-way frames as fast as they go.

use std::process::ExitCode;
use std::time::Instant;

use lead::core::frame::Frame;
use lead::wire::{Connection, Inbox, Link, PeerStream, WireError, take_parent_link};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::held::{Held, SOON, start};
use crate::place::Place;
use crate::raw::{Message, Raw};
use crate::report::{Row, Samples, Target, Unit};
use crate::{Res, Scope};

/// The argument that makes this program the other end.
pub const ECHO: &str = "--echo";
/// One-way frames of one block.
const BURST: usize = 100 * BATCH;
/// Frames that are gathered into one write.
const BATCH: usize = 256;

/// The other end of our connection.
pub fn echo_main() -> ExitCode {
    let served = (|| -> Res<()> {
        let stream = take_parent_link()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (link, mut inbox) = Connection::start(PeerStream::from_std(stream)?);
            while let Some(incoming) = inbox.recv().await {
                match incoming.frame {
                    Frame::Ping => link.reply(incoming.seq, Frame::Pong)?,
                    Frame::Error { code, .. } if code == ONE_WAY => {}
                    other => link.reply(incoming.seq, other)?,
                }
            }
            Ok(())
        })
    })();
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Marks a frame that is not answered.
const ONE_WAY: &str = "one_way";

fn frame(code: &str, bytes: usize) -> Frame {
    Frame::Error { code: code.to_owned(), message: "x".repeat(bytes) }
}

struct Ends {
    bare: (Held, Raw),
    ours: (Held, Link, Inbox),
}

impl Ends {
    fn start(scope: &Scope, place: &Place) -> Res<Self> {
        let (held, stream) = start(&scope.programs.bare, &[ECHO], place)?;
        let bare = (held, Raw::new(stream));
        let (held, stream) = start(&scope.programs.bench, &[ECHO], place)?;
        let (link, inbox) = Connection::start(PeerStream::of_child(stream, held.pid(), None));
        Ok(Self { bare, ours: (held, link, inbox) })
    }
}

/// Requests and one-way frames.
pub async fn socket(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    {
        let _pinned = Pinned::new()?;
        let mut ends = Ends::start(scope, &place)?;
        for (bytes, shown) in [(200, "200 B"), (64 << 10, "64 KiB")] {
            let (limit, ours) = round_trips(&mut ends, bytes, scope.count(30, 4)).await?;
            let name = format!("request and reply, {shown}");
            scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::Times(1.3) });
        }
    }
    let mut ends = Ends::start(scope, &place)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(20, 3) {
        limit.push(burst_bare(&mut ends.bare.1).await?);
        ours.push(burst_ours(&ends.ours.1).await?);
    }
    let name = "one-way frames, 200 B".to_owned();
    scope.add(Row { name, unit: Unit::Hertz, limit: Some(limit), ours, target: Target::AtLeast(1e6) });
    Ok(())
}

async fn round_trips(ends: &mut Ends, bytes: usize, blocks: usize) -> Res<(Samples, Samples)> {
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    let mut message = Message { seq: 1, re: 0, body: "x".repeat(bytes) };
    let frame = frame("echo", bytes);
    // The first block warms up and does not count.
    for block in 0..=blocks {
        for _ in 0..200 {
            let begun = Instant::now();
            ends.bare.1.send(&message).await?;
            let reply = ends.bare.1.receive().await?.ok_or("the bare end is gone")?;
            let took = begun.elapsed();
            if reply.re != message.seq || reply.body.len() != bytes {
                return Err("the bare end answered something else".into());
            }
            message.seq += 1;
            if block > 0 {
                limit.push(took.as_secs_f64() * 1e6);
            }
        }
        for _ in 0..200 {
            let begun = Instant::now();
            let reply = ends.ours.1.request(&frame, SOON).await?;
            let took = begun.elapsed();
            if reply != frame {
                return Err("our end answered something else".into());
            }
            if block > 0 {
                ours.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    Ok((limit, ours))
}

async fn burst_bare(link: &mut Raw) -> Res<f64> {
    let one_way = Message { seq: 0, re: 0, body: "x".repeat(200) };
    let begun = Instant::now();
    for _ in 0..BURST / BATCH {
        (0..BATCH).try_for_each(|_| link.queue(&one_way))?;
        link.flush().await?;
    }
    link.send(&Message { seq: 1, re: 0, body: String::new() }).await?;
    link.receive().await?.ok_or("the bare end is gone")?;
    Ok(BURST as f64 / begun.elapsed().as_secs_f64())
}

async fn burst_ours(link: &Link) -> Res<f64> {
    let one_way = frame(ONE_WAY, 200);
    let begun = Instant::now();
    for _ in 0..BURST / BATCH {
        for _ in 0..BATCH {
            while let Err(error) = link.send(&one_way) {
                match error {
                    WireError::Slow { .. } => link.flush(SOON).await?,
                    other => return Err(other.into()),
                }
            }
        }
        // Sending does not wait, so the writer has its turn here.
        tokio::task::yield_now().await;
    }
    // The queue may be full, which a request would not wait for.
    link.flush(SOON).await?;
    link.request(Frame::Ping, SOON).await?;
    Ok(BURST as f64 / begun.elapsed().as_secs_f64())
}

/// Keeps this thread, and what it starts, on one core: across two, a round trip measures how fast
/// an idle core wakes up.
struct Pinned(CpuSet);

impl Pinned {
    fn new() -> Res<Self> {
        let before = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).ok_or("no core to run on")?;
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}
