//! Bytes ↔ frames: a `u32` big-endian length, then MessagePack with named fields. What comes in
//! is foreign: a bad length is refused before anything is allocated, nesting is bounded, and
//! bytes after the value make the whole frame bad.

use std::io::Cursor;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio_util::codec::LengthDelimitedCodec;

use super::error::WireError;
use crate::core::frame::{Envelope, Frame};
use crate::core::limits::FRAME_BYTES;

/// Deepest nesting of a frame.
pub const MAX_DEPTH: usize = 64;

/// What both sides frame with.
pub(super) fn framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().length_field_type::<u32>().big_endian().max_frame_length(FRAME_BYTES).new_codec()
}

/// An envelope on its way out; [`Envelope`] without the need to own the frame.
#[derive(Serialize)]
struct Outgoing<'a> {
    seq: u64,
    re: u64,
    frame: &'a Frame,
}

/// The bytes of a frame, without the length.
///
/// Nesting is checked here too: the encoder writes what no decoder accepts, and the receiver
/// would answer such a frame by closing the connection.
pub(super) fn encode(seq: u64, re: u64, frame: &Frame) -> Result<Bytes, WireError> {
    let bytes = rmp_serde::to_vec_named(&Outgoing { seq, re, frame })
        .map_err(|e| WireError::Malformed(format!("can't be encoded: {e}")))?;
    if bytes.len() > FRAME_BYTES {
        return Err(WireError::TooLong { bytes: bytes.len(), limit: FRAME_BYTES });
    }
    if matches!(frame, Frame::Call { .. } | Frame::CallResult { .. }) {
        decode_as::<IgnoredAny>(&bytes)?;
    }
    Ok(Bytes::from(bytes))
}

/// The frame in `bytes`, which are used up by it.
pub(super) fn decode(bytes: &[u8]) -> Result<Envelope, WireError> {
    decode_as(bytes)
}

fn decode_as<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, WireError> {
    let mut decoder = rmp_serde::Deserializer::new(Cursor::new(bytes));
    decoder.set_max_depth(MAX_DEPTH);
    let value = T::deserialize(&mut decoder).map_err(|e| WireError::Malformed(e.to_string()))?;
    if usize::try_from(decoder.position()) != Ok(bytes.len()) {
        return Err(WireError::Malformed("bytes after the value".into()));
    }
    Ok(value)
}
