//! Where the next entry of a mailbox goes: before the closing bracket, without reading what is in
//! front of it. Pure.

use crate::core::team::kept::BOM;

/// A place in a file: what comes before it stays, and so does what comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    /// Length of what comes before, up to the last entry or the opening bracket.
    head: usize,
    /// Where the closing bracket is.
    close: usize,
    /// Whether there are no entries.
    is_first: bool,
}

/// Finds the place; the reason if this can't be a mailbox. An empty file is none: that is for the
/// caller to decide.
pub(super) fn place(bytes: &[u8]) -> Result<Splice, String> {
    let body = bytes.strip_prefix(BOM).unwrap_or(bytes);
    if body.trim_ascii_start().first() != Some(&b'[') {
        return Err("it does not begin with `[`".to_owned());
    }
    let closed = bytes.trim_ascii_end();
    let Some(inside) = closed.strip_suffix(b"]") else { return Err("it does not end with `]`".to_owned()) };
    let head = inside.trim_ascii_end();
    match head.last() {
        Some(b'[')
            if head.trim_ascii().len() == 1 || head.strip_prefix(BOM).is_some_and(|h| h.trim_ascii() == b"[") =>
        {
            Ok(Splice { head: head.len(), close: inside.len(), is_first: true })
        }
        Some(b'}') => Ok(Splice { head: head.len(), close: inside.len(), is_first: false }),
        _ => Err("its last entry is not an object".to_owned()),
    }
}

impl Splice {
    /// The file of `bytes` with `entry` behind all others, in pieces.
    pub(super) fn parts<'a>(&self, bytes: &'a [u8], entry: &'a [u8]) -> [&'a [u8]; 5] {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        [&bytes[..self.head], separator, entry, b"\n", &bytes[self.close..]]
    }
}
