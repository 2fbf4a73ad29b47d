//! The copy of a session's conversation under a new id (`--fork-session`, formats B.3). The session
//! it is taken from may be running: what its writer has not finished writing is left out, and so
//! are messages it took in and has not shown yet, which stay its own. Agents and background shells
//! stay its own too: a copy that took them for its own would report them as lost.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::Path;

use serde_json::{Map, Value};

use super::StoreError;
use super::atomic::Durability;
use super::transcript::TranscriptWriter;
use crate::core::ids::SessionId;
use crate::core::shell::disown;

/// Bytes that are written at a time.
const BATCH: usize = 1 << 20;

/// Copies the transcript `from` to `to`, which must not exist, with `id` as its session; lines keep
/// their uuids. On any error nothing stays. Blocks.
pub fn fork(from: &Path, to: &Path, id: &SessionId, durability: Durability) -> Result<TranscriptWriter, StoreError> {
    let source = File::open(from).map_err(StoreError::at(from, "read"))?;
    let mut writer = TranscriptWriter::create(to, durability)?;
    match copy(BufReader::new(source), from, &mut writer, id) {
        Ok(()) => Ok(writer),
        Err(error) => {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(to);
            Err(error)
        }
    }
}

fn copy(
    mut source: BufReader<File>,
    from: &Path,
    writer: &mut TranscriptWriter,
    id: &SessionId,
) -> Result<(), StoreError> {
    let (mut line, mut batch, mut size) = (Vec::new(), Vec::new(), 0);
    loop {
        line.clear();
        match source.read_until(b'\n', &mut line) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(StoreError::at(from, "read")(e)),
        }
        if !line.ends_with(b"\n") {
            return writer.append_raw(&batch);
        }
        if let Some(copied) = under_new_id(&line, id) {
            size += copied.len();
            batch.push(copied);
        }
        if size >= BATCH {
            writer.append_raw(&batch)?;
            batch.clear();
            size = 0;
        }
    }
}

/// A line of the copy; none for what is not copied.
fn under_new_id(line: &[u8], id: &SessionId) -> Option<Vec<u8>> {
    let mut line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    if line.get("type").and_then(Value::as_str) == Some("queue-operation") {
        return None;
    }
    if let Some(session) = line.get_mut("sessionId") {
        *session = Value::String(id.as_str().to_owned());
    }
    disown(&mut line);
    serde_json::to_vec(&line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_all_but_their_session_and_unfinished_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a.jsonl"), folder.path().join("new/b.jsonl"));
        let text = "{\"type\":\"user\",\"uuid\":\"u1\",\"sessionId\":\"old\",\"z\":1,\"a\":{\"sessionId\":\"in\"}}\n\
                    not json\n\
                    {\"type\":\"queue-operation\",\"operation\":\"enqueue\",\"sessionId\":\"old\"}\n\
                    {\"type\":\"summary\",\"text\":\"no session\"}\n\
                    {\"type\":\"user\",\"toolUseResult\":{\"backgroundTaskId\":\"b-00000001\",\"command\":\"make\"}}\n\
                    {\"type\":\"system\",\"subtype\":\"compact_boundary\",\"shells\":[{\"id\":\"b-00000001\"}]}\n\
                    {\"type\":\"user\",\"uuid\":\"u2\",\"sess";
        std::fs::write(&from, text).unwrap();
        let id = SessionId::random();
        drop(fork(&from, &to, &id, Durability::Process).unwrap());
        let copied = std::fs::read_to_string(&to).unwrap();
        let expected = format!(
            "{{\"type\":\"user\",\"uuid\":\"u1\",\"sessionId\":\"{id}\",\"z\":1,\"a\":{{\"sessionId\":\"in\"}}}}\n\
             {{\"type\":\"summary\",\"text\":\"no session\"}}\n\
             {{\"type\":\"user\",\"toolUseResult\":{{\"command\":\"make\"}}}}\n\
             {{\"type\":\"system\",\"subtype\":\"compact_boundary\"}}\n"
        );
        assert_eq!(copied, expected);
        assert!(matches!(fork(&from, &to, &id, Durability::Process), Err(StoreError::Exists { .. })));
        assert_eq!(std::fs::read_to_string(&to).unwrap(), expected, "what is there stays");
        let missing = folder.path().join("none.jsonl");
        assert!(matches!(
            fork(&missing, &folder.path().join("c"), &id, Durability::Process),
            Err(StoreError::Missing { .. })
        ));
    }

    #[test]
    fn more_than_a_batch_is_copied_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
        let line = format!("{{\"type\":\"user\",\"text\":\"{}\"}}\n", "x".repeat(BATCH / 3));
        std::fs::write(&from, line.repeat(10)).unwrap();
        drop(fork(&from, &to, &SessionId::random(), Durability::Process).unwrap());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), line.repeat(10));
    }
}
