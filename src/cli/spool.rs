//! Bytes that wait for a slow reader: the first of them in memory, the others in a file, so that a
//! session neither waits for its reader nor grows with what the reader has not taken.
//!
//! Limits: the file lies in the folder for temporary files, has no name (it is gone with the
//! process), and is emptied whenever the reader has caught up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that wait in memory.
const MEMORY: usize = 1 << 20;
/// Most bytes taken at a time.
const CHUNK: u64 = 256 << 10;

/// First in, first out.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// What comes first.
    head: Vec<u8>,
    /// What comes after it: the bytes from `read` to `written`.
    file: Option<File>,
    read: u64,
    written: u64,
}

impl Spool {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.read == self.written
    }

    /// Adds to the end. Fails if there is no room for the file; what was added before is still there.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = self.read == self.written && self.head.len() + bytes.len() <= MEMORY;
        if fits {
            self.head.extend_from_slice(bytes);
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Moves what comes first into `out`, which is emptied before; nothing if nothing waits.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        if !self.head.is_empty() {
            std::mem::swap(&mut self.head, out);
            return Ok(());
        }
        let (Some(file), true) = (&self.file, self.read < self.written) else { return Ok(()) };
        let length = CHUNK.min(self.written - self.read);
        out.resize(usize::try_from(length).unwrap_or_default(), 0);
        file.read_exact_at(out, self.read)?;
        self.read += length;
        if self.read == self.written {
            (self.read, self.written) = (0, 0);
            file.set_len(0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all; how much that was, and whether each byte was the next one.
    fn drain(spool: &mut Spool, next: &mut u8) -> usize {
        let (mut all, mut out) = (0, Vec::new());
        while !spool.is_empty() {
            spool.take(&mut out).unwrap();
            assert!(!out.is_empty() && out.len() <= MEMORY);
            for byte in &out {
                assert_eq!(byte, next);
                *next = next.wrapping_add(1);
            }
            all += out.len();
        }
        all
    }

    /// The next `len` bytes of an endless count.
    fn count(from: &mut u8, len: usize) -> Vec<u8> {
        let bytes = (0..len).map(|n| from.wrapping_add(u8::try_from(n % 256).unwrap())).collect();
        *from = from.wrapping_add(u8::try_from(len % 256).unwrap());
        bytes
    }

    #[test]
    fn bytes_come_out_in_order_wherever_they_waited() {
        let (mut spool, mut given, mut taken) = (Spool::default(), 0, 0);
        for sizes in [vec![1, 2, 3], vec![MEMORY], vec![MEMORY + 1], vec![MEMORY, 1, 5, MEMORY * 3, 7], vec![0, 4]] {
            for size in &sizes {
                spool.push(&count(&mut given, *size)).unwrap();
            }
            assert!(spool.head.capacity() <= 2 * MEMORY);
            assert_eq!(drain(&mut spool, &mut taken), sizes.iter().sum::<usize>());
        }
    }

    #[test]
    fn what_comes_while_it_is_emptied_stays_behind_what_waits() {
        let (mut spool, mut given, mut taken, mut out) = (Spool::default(), 0, 0u8, Vec::new());
        let mut left = 0;
        for round in 0..40 {
            for size in [MEMORY / 2, 100, 3] {
                spool.push(&count(&mut given, size)).unwrap();
                left += size;
            }
            if round % 3 == 0 {
                spool.take(&mut out).unwrap();
                out.iter().for_each(|byte| {
                    assert_eq!(*byte, taken);
                    taken = taken.wrapping_add(1);
                });
                left -= out.len();
            }
        }
        assert_eq!(drain(&mut spool, &mut taken), left);
        let length = spool.file.as_ref().unwrap().metadata().unwrap().len();
        assert_eq!(length, 0, "a reader that has caught up leaves nothing on disk");
    }
}
