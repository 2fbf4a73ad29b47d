//! What can be told of a broken mailbox: every complete message in it. Pure.

use serde_json::value::RawValue;

use super::entries;
use crate::core::team::kept::BOM;

/// How much is read again and again before the search is given up, as a multiple of the length: a
/// file of nothing but opening brackets must not take hours.
const EFFORT: usize = 16;
/// And in all, bytes.
const MOST_EFFORT: usize = 64 << 20;

/// The messages in `bytes`, as they stand there, in their order: objects of their own that say who
/// sent what. What stands inside of a message's text is no object, since its quotes are escaped.
pub(super) fn salvage(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let mut found = Vec::new();
    let mut effort = bytes.len().saturating_mul(EFFORT).min(MOST_EFFORT);
    let mut from = 0;
    while let Some(open) = memchr::memchr(b'{', &bytes[from..]) {
        let start = from + open;
        let rest = &bytes[start..];
        from = start + 1;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        let cost = match values.next() {
            Some(Ok(value)) if entries::is_mail(value.get()) => {
                found.push(value.get().as_bytes());
                from = start + value.get().len();
                continue;
            }
            // Messages may stand inside.
            Some(Ok(value)) => value.get().len(),
            Some(Err(e)) => length_until(rest, &e),
            None => 1,
        };
        match effort.checked_sub(cost) {
            Some(left) => effort = left,
            None => break,
        }
    }
    found
}

/// How many bytes were read when this error was met.
fn length_until(bytes: &[u8], error: &serde_json::Error) -> usize {
    let line = match error.line().checked_sub(2) {
        Some(newline) => memchr::memchr_iter(b'\n', bytes).nth(newline).map_or(bytes.len(), |at| at + 1),
        None => 0,
    };
    line + error.column()
}

/// A mailbox of these entries.
pub(super) fn file_of(entries: &[&[u8]]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for (number, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
        out.extend_from_slice(entry);
    }
    out.extend_from_slice(b"\n]");
    out
}
