//! What an agent saw of a file, so that it changes only what it knows: size and time, and the hash of
//! its content. The hash decides where there is one: a touched file is the same file, and a change
//! within one tick of the file system's clock is seen.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::core::limits::EDIT_BYTES;
use crate::core::tool_state::FileState;

/// The state of the file at `path` (links followed) with this content; no content = it is too large.
pub(super) fn state_of(path: &Path, metadata: &Metadata, sha256: Option<String>) -> FileState {
    FileState {
        path: path.to_string_lossy().into_owned(),
        size: metadata.len(),
        mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
        sha256,
    }
}

/// Whether a file is still as it was seen. `now` has a hash wherever the file is not too large.
pub(super) fn is_as_seen(seen: &FileState, now: &FileState) -> bool {
    match (&seen.sha256, &now.sha256) {
        (Some(seen), Some(now)) => seen == now,
        _ => (seen.size, seen.mtime_ns) == (now.size, now.mtime_ns),
    }
}

/// Hash of a file's content, hex.
pub(super) fn hash(content: &[u8]) -> String {
    hex(Sha256::digest(content).as_slice())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Hashes what is read through it, unless that is more than is hashed.
pub(super) struct Hashing<R> {
    inner: R,
    /// None once too much was read.
    hash: Option<Sha256>,
    count: usize,
}

impl<R: Read> Hashing<R> {
    /// `size` is what the system says: no hash is begun for what is known to be too large.
    pub(super) fn new(inner: R, size: u64) -> Self {
        Self { inner, hash: (size <= EDIT_BYTES as u64).then(Sha256::new), count: 0 }
    }

    /// Reads on to the end; the hash of all.
    pub(super) fn finish(mut self) -> io::Result<Option<String>> {
        let mut rest = vec![0; 64 << 10];
        while self.hash.is_some() && self.read(&mut rest)? > 0 {}
        Ok(self.hash.map(|hash| hex(hash.finalize().as_slice())))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.count += got;
        if self.count > EDIT_BYTES {
            self.hash = None;
        }
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..got]);
        }
        Ok(got)
    }
}

/// All that `reader` has, if that is not more than can be edited.
pub(super) fn read_whole(reader: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    reader.take(EDIT_BYTES as u64 + 1).read_to_end(&mut content)?;
    Ok((content.len() <= EDIT_BYTES).then_some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_pieces_hashes_as_a_whole_up_to_the_limit() {
        let mut reader = Hashing::new(&b"hello world"[..], 0);
        reader.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(reader.finish().unwrap(), Some(hash(b"hello world")));
        let zeros = |size: usize| Hashing::new(io::repeat(0).take(size as u64), 0).finish().unwrap();
        assert!(zeros(EDIT_BYTES).is_some());
        assert_eq!(zeros(EDIT_BYTES + 1), None);
        assert_eq!(Hashing::new(&b"x"[..], EDIT_BYTES as u64 + 1).finish().unwrap(), None);
        assert!(read_whole(io::repeat(0).take(EDIT_BYTES as u64)).unwrap().is_some());
        assert!(read_whole(io::repeat(0)).unwrap().is_none());
    }

    #[test]
    fn the_hash_decides_where_there_is_one() {
        let state = |size, mtime_ns, sha256: Option<&str>| FileState {
            path: "/a".to_owned(),
            size,
            mtime_ns,
            sha256: sha256.map(str::to_owned),
        };
        assert!(is_as_seen(&state(1, 1, Some("a")), &state(1, 2, Some("a"))), "touched");
        assert!(!is_as_seen(&state(1, 1, Some("a")), &state(1, 1, Some("b"))), "changed within a tick");
        assert!(is_as_seen(&state(1, 1, None), &state(1, 1, None)));
        assert!(!is_as_seen(&state(1, 1, None), &state(1, 2, None)));
        assert!(!is_as_seen(&state(1, 1, None), &state(2, 1, Some("a"))), "it became small");
    }
}
