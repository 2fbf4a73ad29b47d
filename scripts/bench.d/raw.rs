//! Frames without anything around them: what a connection can be at best. Shared by the measuring
//! program and the bare one at the other end.

use std::io;

use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The least a request needs: numbers and content.
#[derive(Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its number.
    pub seq: u64,
    /// The number of the request it answers; 0 = it answers none.
    pub re: u64,
    /// Its content.
    pub body: String,
}

/// One end of a connection: `u32` big-endian length, then MessagePack.
pub struct Raw {
    stream: UnixStream,
    incoming: BytesMut,
    outgoing: Vec<u8>,
}

impl Raw {
    /// Over a socket of the current runtime.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: BytesMut::with_capacity(128 << 10), outgoing: Vec::new() }
    }

    /// Queues a value until [`Raw::flush`].
    pub fn queue(&mut self, value: &impl Serialize) -> io::Result<()> {
        let start = self.outgoing.len();
        self.outgoing.extend_from_slice(&[0; 4]);
        rmp_serde::encode::write_named(&mut self.outgoing, value).map_err(io::Error::other)?;
        let length = u32::try_from(self.outgoing.len() - start - 4).map_err(io::Error::other)?;
        self.outgoing[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Writes what is queued.
    pub async fn flush(&mut self) -> io::Result<()> {
        let written = self.stream.write_all(&self.outgoing).await;
        self.outgoing.clear();
        written
    }

    /// Writes one value.
    pub async fn send(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.queue(value)?;
        self.flush().await
    }

    /// The content of the next frame; none at the end.
    pub async fn next(&mut self) -> io::Result<Option<BytesMut>> {
        loop {
            if let Some(length) = self.incoming.first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if self.incoming.len() >= 4 + length {
                    self.incoming.advance(4);
                    return Ok(Some(self.incoming.split_to(length)));
                }
                self.incoming.reserve(4 + length - self.incoming.len());
            }
            if self.stream.read_buf(&mut self.incoming).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next message; none at the end.
    pub async fn receive(&mut self) -> io::Result<Option<Message>> {
        let Some(bytes) = self.next().await? else { return Ok(None) };
        rmp_serde::from_slice(&bytes).map(Some).map_err(io::Error::other)
    }
}
