//! What an agent says, told to its owner line by line: as the agent tells it over its link, and from
//! its transcript what the link did not carry, because the agent crashed, was taken over from
//! another lead, or wrote faster than the link took.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::event::{Doing, SupervisorEvent};
use super::life::Life;
use crate::core::entry::{Line, parse_line};
use crate::core::frame::{Frame, Telling};
use crate::core::limits;
use crate::core::paths::AgentFiles;
use crate::store::StoreError;
use crate::store::reader::lines_from_end;

/// Hands each line of one run that is not in `told` to `each`, oldest first, with its length in bytes:
/// what was said, and the boundaries of compactions. `each` says whether it wants more. Blocks, and
/// holds one line at a time.
pub fn each_line_of_run(
    files: &AgentFiles,
    run: u32,
    told: &HashSet<String>,
    mut each: impl FnMut(Line, usize) -> bool,
) -> Result<(), StoreError> {
    let Some(first) = first_untold(files, run, told)? else { return Ok(()) };
    let path = files.transcript();
    let mut file = BufReader::new(File::open(path).map_err(StoreError::at(path, "open"))?);
    let (mut bytes, mut begun) = (Vec::new(), false);
    loop {
        bytes.clear();
        // A longer line, which is none of ours, comes in pieces that are no lines.
        let mut limited = (&mut file).take(limits::ENTRY_BYTES as u64 + 1);
        if limited.read_until(b'\n', &mut bytes).map_err(StoreError::at(path, "read"))? == 0 {
            return Ok(());
        }
        begun = begun || memchr::memmem::find(&bytes, first.as_bytes()).is_some();
        let Some(line) = begun.then(|| parse_line(&bytes).ok()).flatten() else { continue };
        let is_over = match &line {
            Line::Talk(talk) => talk.run.is_some_and(|of| of > run),
            Line::Outcome(outcome) => outcome.run >= run,
            _ => false,
        };
        let is_untold = uuid_of(&line).is_some_and(|uuid| !told.contains(uuid));
        if is_over || (is_untold && !each(line, bytes.len())) {
            return Ok(());
        }
    }
}

/// The id of the first line of a run that is not in `told`. Reads no further back than the run's
/// beginning.
fn first_untold(files: &AgentFiles, run: u32, told: &HashSet<String>) -> Result<Option<String>, StoreError> {
    // Boundaries, and another program's lines, name no run: they belong to that of what follows them.
    let (mut of, mut first) = (None, None);
    for bytes in lines_from_end(files.transcript())? {
        let Ok(line) = parse_line(&bytes?) else { continue };
        of = match &line {
            Line::Talk(talk) => talk.run.or(of),
            Line::Outcome(outcome) => Some(outcome.run),
            _ => of,
        };
        match of.map(|of| of.cmp(&run)) {
            Some(Ordering::Less) => break,
            Some(Ordering::Greater) => {}
            None | Some(Ordering::Equal) => {
                let untold = uuid_of(&line).filter(|uuid| !told.contains(*uuid));
                first = untold.map(str::to_owned).or(first);
            }
        }
    }
    Ok(first)
}

/// Room for what agents told and the owner has not taken yet: what it tells of may be large, and a
/// slow owner must not gather it.
#[derive(Clone, Debug)]
pub(super) struct Room(Arc<Semaphore>);

/// Kibibytes of it; what is longer waits alone.
const ROOM_KIB: u32 = 8 << 10;

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_KIB as usize)))
    }

    /// Waits for room for so many bytes, which is given back when the permit is dropped.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes >> 10).unwrap_or(ROOM_KIB).clamp(1, ROOM_KIB);
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_many_owned(kib).await.ok()
    }
}

/// The id of a line that is told; none of other kinds.
fn uuid_of(line: &Line) -> Option<&str> {
    match line {
        Line::Talk(talk) => Some(&talk.uuid),
        Line::Boundary(boundary) => Some(&boundary.uuid),
        Line::Outcome(_) | Line::Enqueued(_) | Line::Mode(_) | Line::Switched(_) | Line::Other => None,
    }
}

impl Life {
    /// Hands on what the agent told of its conversation.
    pub(super) async fn on_told(&mut self, frame: Frame) {
        let (what, bytes) = match frame {
            Frame::Entry { json } => {
                return match parse_line(json.as_bytes()) {
                    Ok(line) => self.tell(line, json.len()).await,
                    Err(error) => tracing::warn!(id = %self.id, %error, "the agent told of a line that is none"),
                };
            }
            Frame::Compacting => (Doing::Compacting, 0),
            Frame::ReplyPart { message_id, event } => {
                let bytes = event.len();
                (Doing::Part { message_id, event }, bytes)
            }
            Frame::ModelWaits(wait) => (Doing::Waiting(wait), 0),
            _ => return,
        };
        let (id, room) = (self.id.clone(), self.room.take(bytes).await);
        let _ = self.events.send(SupervisorEvent::Doing { id, what, room }).await;
    }

    /// Hands on what the agent's file has of this run and nobody was told.
    pub(super) async fn tell_untold(&mut self, run: u32) {
        if self.launcher.telling() == Telling::Nothing {
            return;
        }
        let (files, told) = (self.files.clone(), std::mem::take(&mut self.told));
        let (sender, mut lines) = mpsc::channel(1);
        let read = tokio::task::spawn_blocking(move || {
            let each = |line, bytes| sender.blocking_send((line, bytes)).is_ok();
            (each_line_of_run(&files, run, &told, each), told)
        });
        while let Some((line, bytes)) = lines.recv().await {
            self.tell(line, bytes).await;
        }
        let Ok((read, told)) = read.await else { return };
        self.told.extend(told);
        match read {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => tracing::warn!(id = %self.id, %error, "what the agent said can't be read"),
        }
    }

    /// Other lines than these are no part of the conversation.
    async fn tell(&mut self, line: Line, bytes: usize) {
        if uuid_of(&line).is_some_and(|uuid| self.told.insert(uuid.to_owned())) {
            let (id, line, room) = (self.id.clone(), Box::new(line), self.room.take(bytes).await);
            let _ = self.events.send(SupervisorEvent::Line { id, line, room }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_lines_of_a_run_come_in_order_and_without_those_told() {
        let folder = tempfile::tempdir().unwrap();
        let files = AgentFiles::of(folder.path().join("agent-a1a2b3c4d5e6f7890.jsonl"));
        let line = |uuid: &str, run: u32| json!({"parentUuid": null, "type": "user", "message": {"role": "user", "content": uuid}, "uuid": uuid, "run": run});
        let outcome = |run: u32| json!({"type": "system", "subtype": "agent_outcome", "agentId": "a-1a2b3c4d5e6f7890", "run": run, "status": "completed"});
        let boundary = |uuid: &str| json!({"type": "system", "subtype": "compact_boundary", "uuid": uuid});
        let run_two = [line("uuid b.", 2), boundary("uuid |."), line("uuid c.", 2), line("uuid d.", 2), outcome(2)];
        let lines =
            [&[line("uuid a.", 1), outcome(1)], &run_two[..], &[boundary("uuid ||."), line("uuid e.", 3)]].concat();
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        std::fs::write(files.transcript(), text).unwrap();
        let of = |run, told: &[&str]| {
            let told = told.iter().map(|t| (*t).to_owned()).collect();
            let mut seen = Vec::new();
            let each = |line: Line, _| {
                seen.extend(uuid_of(&line).map(str::to_owned));
                true
            };
            each_line_of_run(&files, run, &told, each).unwrap();
            seen
        };
        assert_eq!(of(1, &[]), ["uuid a."]);
        assert_eq!(of(2, &[]), ["uuid b.", "uuid |.", "uuid c.", "uuid d."]);
        assert_eq!(of(2, &["uuid c."]), ["uuid b.", "uuid |.", "uuid d."]);
        assert_eq!(of(3, &["uuid e."]), ["uuid ||."]);
        assert_eq!(of(4, &[]), [""; 0]);
        assert_eq!(of(2, &["uuid b.", "uuid |.", "uuid c.", "uuid d."]), [""; 0]);
        let mut seen = 0;
        let stops = |_, _| {
            seen += 1;
            seen < 2
        };
        each_line_of_run(&files, 2, &HashSet::new(), stops).unwrap();
        assert_eq!(seen, 2, "whoever wants no more is told no more");
    }
}
