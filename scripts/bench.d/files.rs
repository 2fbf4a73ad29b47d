//! What it costs to make a file, and to write a line of a transcript.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Instant;

use lead::core::entry::Line;
use lead::core::message::{Block, Message};
use lead::store::atomic::Durability;
use lead::store::transcript::TranscriptWriter;

use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::resume::talk;
use crate::{Res, Scope};

/// Making and appending.
pub async fn files(scope: &mut Scope) -> Res<()> {
    create(scope)?;
    append(scope)
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
    let line = Line::Talk(Box::new(talk(None, Message::user(vec![Block::text("word ".repeat((4 << 10) / 5))]))));
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
