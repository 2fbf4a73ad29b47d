//! What transcripts cost: a line written, and the end of a large file read.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use lead::core::clock::iso;
use lead::core::entry::{Boundary, Line, Place as LinePlace, Said, Talk};
use lead::core::ids::random_uuid;
use lead::core::message::{Block, Message};
use lead::store::atomic::Durability;
use lead::store::reader::tail;
use lead::store::transcript::TranscriptWriter;

use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::whole::{Task, run_whole};
use crate::{Res, Scope};

/// The argument that makes this program read the end of a transcript.
pub const TAIL: &str = "--tail";
/// Bytes of a large transcript.
const LARGE: u64 = 100 << 20;

/// Reads the end of a transcript and does nothing else: for its memory.
pub fn tail_main(path: &Path) -> ExitCode {
    if tail(path).is_ok_and(|t| !t.lines.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Appending and resuming.
pub async fn files(scope: &mut Scope) -> Res<()> {
    create(scope)?;
    append(scope)?;
    resume(scope).await
}

/// No limit of ours, but the ground that the others stand on: a worker makes four files until it is
/// ready, and some file systems take 5 us for one and some 500.
fn create(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let mut times = Samples::default();
    for number in 0..scope.count(200, 50) {
        let begun = Instant::now();
        File::create_new(place.path(&format!("new-{number}")))?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = "a new file in the folder".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: None, ours: times, target: Target::Open });
    Ok(())
}

fn append(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let line = line(4 << 10);
    let mut bytes = line.to_bytes()?;
    bytes.push(b'\n');
    let mut file = OpenOptions::new().create_new(true).append(true).open(place.path("limit.jsonl"))?;
    let mut transcript = TranscriptWriter::create(&place.path("ours.jsonl"), Durability::Process)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(5000, 500) {
        let begun = Instant::now();
        file.write_all(&bytes)?;
        limit.push(begun.elapsed().as_secs_f64() * 1e6);
        let begun = Instant::now();
        transcript.append(&line)?;
        ours.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = "transcript append, 4 KiB".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::AtMost(10.0) });
    Ok(())
}

async fn resume(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let path = place.path("large.jsonl");
    let needed = write_large(&path)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(50, 5) {
        let mut bytes = vec![0; usize::try_from(needed)?];
        let begun = Instant::now();
        File::open(&path)?.read_exact_at(&mut bytes, fs::metadata(&path)?.len() - needed)?;
        limit.push(begun.elapsed().as_secs_f64() * 1e6);
        let begun = Instant::now();
        let found = tail(&path)?;
        ours.push(begun.elapsed().as_secs_f64() * 1e6);
        if !matches!(found.lines.first(), Some(Line::Boundary(_))) {
            return Err("the tail of the transcript does not begin with its compaction".into());
        }
    }
    let name = "resume behind a compaction".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::AtMost(10e3) });

    let path = place.path("whole.jsonl");
    write_whole(&path)?;
    let text = path.to_string_lossy().into_owned();
    let (bench, bare) = (scope.programs.bench.clone(), scope.programs.bare.clone());
    let (scan, read) = (Task::new(&bare, &["--scan", &text]), Task::new(&bench, &[TAIL, &text]));
    let (mut times, mut peaks) = ([Samples::default(), Samples::default()], [Samples::default(), Samples::default()]);
    for _ in 0..scope.count(7, 2) {
        for (i, command) in [&scan, &read].into_iter().enumerate() {
            let took = run_whole(scope, &place, command).await?;
            times[i].push(took.wall_us);
            peaks[i].push(took.peak_kib);
        }
    }
    let [limit, ours] = times;
    let name = "full scan of 100 MiB".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::AtMost(250e3) });
    let [limit, ours] = peaks;
    let name = "its peak memory".to_owned();
    scope.add(Row { name, unit: Unit::Kib, limit: Some(limit), ours, target: Target::Open });
    Ok(())
}

/// A large transcript that was compacted near its end; how many bytes are needed to go on.
fn write_large(path: &Path) -> Res<u64> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut put = |line: &Line| -> Res<u64> {
        let mut bytes = line.to_bytes()?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        Ok(bytes.len() as u64)
    };
    let before = line(4 << 10);
    let mut length = 0;
    while length < LARGE {
        length += put(&before)?;
    }
    let boundary = Line::Boundary(Box::new(Boundary { uuid: random_uuid(), ..Boundary::default() }));
    let mut needed = put(&boundary)?;
    for _ in 0..50 {
        needed += put(&before)?;
    }
    file.flush()?;
    Ok(needed)
}

/// A large transcript in which nearly all is of kinds that are passed over, and nothing compacted,
/// so that a reader must go through to the beginning and keeps little.
fn write_whole(path: &Path) -> Res<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let talk = line(4 << 10).to_bytes()?;
    let other = serde_json::to_vec(&serde_json::json!({
        "type": "progress", "uuid": random_uuid(), "data": "x".repeat(4 << 10),
    }))?;
    let mut length = 0;
    for number in 0_u64.. {
        if length >= LARGE {
            break;
        }
        let bytes = if number % 100 == 0 { &talk } else { &other };
        file.write_all(bytes)?;
        file.write_all(b"\n")?;
        length += bytes.len() as u64 + 1;
    }
    Ok(file.flush()?)
}

/// A user line with a text of so many bytes.
fn line(bytes: usize) -> Line {
    let message = Message::user(vec![Block::text("word ".repeat(bytes / 5))]);
    Line::Talk(Box::new(Talk {
        parent_uuid: Some(random_uuid()),
        is_sidechain: true,
        agent_id: Some("a-0123456789abcdef".to_owned()),
        kind: message.role,
        message: Said { id: None, kind: None, message, model: None, stop_reason: None, usage: None },
        uuid: random_uuid(),
        timestamp: iso(0),
        origin: None,
        msg_id: None,
        from: None,
        tool_use_result: None,
        is_meta: None,
        is_compact_summary: None,
        is_visible_in_transcript_only: None,
        run: Some(1),
        place: LinePlace::default(),
    }))
}
