//! Bytes ↔ frames: a `u32` big-endian length, then MessagePack with named fields. What comes in
//! is foreign: a bad length is refused before anything is allocated, nesting is bounded, and
//! bytes after the value make the whole frame bad.

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
    // This decoder lends texts out of `bytes`; the one over a reader, which could tell its position,
    // copies each of them first, and again for the tag of the frame.
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    decoder.set_max_depth(MAX_DEPTH);
    let value = T::deserialize(&mut decoder).map_err(|e| WireError::Malformed(e.to_string()))?;
    // At the end not even the first byte of a number can be read; anything else is another error.
    match u8::deserialize(&mut decoder) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        _ => Err(WireError::Malformed("bytes after the value".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_may_follow_the_value() {
        let good = encode(1, 0, &Frame::Ping).unwrap();
        assert_eq!(decode(&good).unwrap().frame, Frame::Ping);
        for byte in 0..=u8::MAX {
            for more in [&[byte][..], &[byte, 0], &[byte, byte, byte]] {
                let error = decode(&[&good[..], more].concat()).unwrap_err();
                assert!(error.to_string().contains("bytes after the value"), "{more:x?}: {error}");
            }
        }
    }
}
