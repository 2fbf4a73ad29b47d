//! Reading files that other programs rewrite in place: for a moment they are empty or half there.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::core::limits;
use crate::store::StoreError;
use crate::store::lock::Backoff;

/// How long after its last change a file may still be being written. It takes microseconds; this is
/// for a writer that is not running just then.
const SETTLING: Duration = Duration::from_millis(250);

/// What a file holds.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// There is no such file.
    Missing,
    /// What was read, and the bytes.
    Whole(T, Vec<u8>),
    /// Something else, and not because it is being written: the bytes, and what is wrong.
    Damaged { bytes: Vec<u8>, reason: String },
}

/// Reads `path` with `parse`. What can't be parsed is read again as long as it may be being written.
pub(super) fn read<T>(path: &Path, parse: impl Fn(&[u8]) -> Result<T, String>) -> Result<Found<T>, StoreError> {
    let begun = Instant::now();
    let mut backoff = Backoff::new();
    loop {
        let bytes = match read_bytes(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            bytes => bytes.map_err(StoreError::at(path, "read"))?,
        };
        match parse(&bytes) {
            Ok(whole) => return Ok(Found::Whole(whole, bytes)),
            Err(reason) if begun.elapsed() >= SETTLING || has_settled(path) => {
                return Ok(Found::Damaged { bytes, reason });
            }
            Err(_) => backoff.wait(),
        }
    }
}

/// A file that is no longer than `limit` bytes, as it is just now.
pub(super) fn read_short(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() <= limit))
}

/// No more than is sensible; what is longer is cut, and so is broken.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(limits::SHARED_FILE_BYTES as u64);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(limits::SHARED_FILE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn has_settled(path: &Path) -> bool {
    let Ok(changed) = path.metadata().and_then(|m| m.modified()) else { return false };
    // Either way round: the clock may have been set.
    let age = SystemTime::now().duration_since(changed).unwrap_or_else(|e| e.duration());
    age >= SETTLING
}
