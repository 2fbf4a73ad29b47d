//! Images for a model. It gets only what the provider takes: one broken or oversized image would have
//! every later request of the conversation refused. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::ToolOutput;
use crate::core::message::Block;

/// Bytes that become at most 5 MB of base64.
const BYTES: usize = 3_750_000;
/// Pixels in each direction, as many images of one request may have.
const SIDE: u32 = 2000;

/// What kind of image a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl Kind {
    /// By the first bytes.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            _ if start.starts_with(b"\x89PNG\r\n\x1a\n") => Some(Self::Png),
            _ if start.starts_with(b"\xff\xd8\xff") => Some(Self::Jpeg),
            _ if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") => Some(Self::Gif),
            _ if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") => Some(Self::Webp),
            _ => None,
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// Width and height, if the file is whole as far as its outer structure tells.
    fn size(self, file: &[u8]) -> Option<(u32, u32)> {
        match self {
            Self::Png => png(file),
            Self::Jpeg => jpeg(file),
            Self::Gif => {
                let side = |at: usize| Some(u32::from(u16::from_le_bytes([*file.get(at)?, *file.get(at + 1)?])));
                (file.last() == Some(&0x3b)).then_some((side(6)?, side(8)?))
            }
            Self::Webp => webp(file),
        }
    }
}

/// An image as the model is given it, or why it can't be.
pub(super) fn show(name: &str, kind: Kind, file: &[u8]) -> Result<ToolOutput, String> {
    let media_type = kind.media_type();
    let smaller = "make a smaller copy with a command, such as `convert IMAGE -resize 1500x1500 COPY`, and read that";
    let Some((width, height)) = kind.size(file).filter(|(w, h)| *w > 0 && *h > 0) else {
        return Err(format!("{name} begins like {media_type}, but is damaged ({} bytes)", file.len()));
    };
    if width > SIDE || height > SIDE {
        return Err(format!(
            "{name} has {width} x {height} pixels, and at most {SIDE} x {SIDE} can be shown; {smaller}"
        ));
    }
    if file.len() > BYTES {
        return Err(format!("{name} has {} bytes, and images can be shown up to {BYTES}; {smaller}", file.len()));
    }
    let text = format!("{name}: {media_type}, {width} x {height} pixels");
    Ok(ToolOutput::ok(text).with(json!({
        "type": "image",
        "file": {
            "base64": STANDARD.encode(file),
            "type": media_type,
            "originalSize": file.len(),
            "dimensions": {"originalWidth": width, "originalHeight": height}
        }
    })))
}

/// The image in what [`show`] answered, as a block of the Messages API.
pub(super) fn block(structured: Option<&Value>) -> Option<Block> {
    let structured = structured.filter(|s| s.get("type").is_some_and(|kind| kind == "image"))?;
    let file = structured.get("file")?;
    let (data, media_type) = (file.get("base64")?, file.get("type")?);
    Some(Block::Other(json!({
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": data}
    })))
}

fn four(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// Goes over all chunks to the last one.
fn png(file: &[u8]) -> Option<(u32, u32)> {
    let size = (u32::from_be_bytes(four(file, 16)?), u32::from_be_bytes(four(file, 20)?));
    let mut at = 8;
    loop {
        let length = usize::try_from(u32::from_be_bytes(four(file, at)?)).ok()?;
        let kind = four(file, at + 4)?;
        at = at.checked_add(12)?.checked_add(length)?;
        if at > file.len() {
            return None;
        }
        if &kind == b"IEND" {
            return Some(size);
        }
    }
}

/// Goes over the segments to the frame header. The end marker must be there too, and near the end of
/// the file: an embedded preview has one of its own.
fn jpeg(file: &[u8]) -> Option<(u32, u32)> {
    memchr::memmem::rfind(&file[file.len().saturating_sub(256)..], b"\xff\xd9")?;
    let mut at = 2;
    loop {
        while *file.get(at)? == 0xff && *file.get(at + 1)? == 0xff {
            at += 1;
        }
        let (begin, marker) = (*file.get(at)?, *file.get(at + 1)?);
        if begin != 0xff || marker == 0xd9 || marker == 0xda {
            return None;
        }
        let two = |at: usize| Some(u32::from(u16::from_be_bytes([*file.get(at)?, *file.get(at + 1)?])));
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            return Some((two(at + 7)?, two(at + 5)?));
        }
        at += 2 + usize::try_from(two(at + 2)?).ok()?;
    }
}

fn webp(file: &[u8]) -> Option<(u32, u32)> {
    let length = usize::try_from(u32::from_le_bytes(four(file, 4)?)).ok()?;
    if length.checked_add(8)? > file.len() {
        return None;
    }
    let side = |at: usize| Some(u32::from(u16::from_le_bytes([*file.get(at)?, *file.get(at + 1)?]) & 0x3fff));
    match &four(file, 12)? {
        b"VP8 " => Some((side(26)?, side(28)?)),
        b"VP8L" => {
            let bits = u32::from_le_bytes(four(file, 21)?);
            Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => {
            let three =
                |at: usize| Some(u32::from_le_bytes([*file.get(at)?, *file.get(at + 1)?, *file.get(at + 2)?, 0]) + 1);
            Some((three(24)?, three(27)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png_of(width: u32, height: u32, padding: usize) -> Vec<u8> {
        let chunk = |kind: &[u8; 4], data: &[u8]| {
            [&u32::try_from(data.len()).unwrap().to_be_bytes(), &kind[..], data, &[0; 4]].concat()
        };
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
        let parts = [chunk(b"IHDR", &header), chunk(b"IDAT", &vec![0; padding]), chunk(b"IEND", &[])];
        [b"\x89PNG\r\n\x1a\n".to_vec(), parts.concat()].concat()
    }

    fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
        let [w, h] = [width.to_be_bytes(), height.to_be_bytes()];
        let frame = [&[0xff, 0xc2, 0, 8, 8][..], &h, &w, &[1]].concat();
        [&[0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff][..], &frame, &[0xff, 0xda, 0, 2, 9, 9, 0xff, 0xd9]].concat()
    }

    fn webp_of(chunk: &[u8]) -> Vec<u8> {
        let length = u32::try_from(chunk.len() + 4).unwrap();
        [b"RIFF", &length.to_le_bytes()[..], b"WEBP", chunk].concat()
    }

    #[test]
    fn sizes_are_read_of_every_kind_and_half_files_are_none() {
        let gif = [&b"GIF89a"[..], &[3, 1, 4, 0, 0, 0, 0], &[0x3b]].concat();
        let lossy = webp_of(&[b"VP8 ", &[0; 10][..], &[200, 0, 100, 0], &[0; 4]].concat());
        let bits = (199_u32 | 99 << 14).to_le_bytes();
        let lossless = webp_of(&[b"VP8L", &[0, 0, 0, 0, 0x2f][..], &bits].concat());
        let extended = webp_of(&[b"VP8X", &[0; 8][..], &[199, 0, 0], &[99, 0, 0]].concat());
        for (file, kind, size) in [
            (png_of(200, 100, 9), Kind::Png, (200, 100)),
            (jpeg_of(200, 100), Kind::Jpeg, (200, 100)),
            (gif, Kind::Gif, (259, 4)),
            (lossy, Kind::Webp, (200, 100)),
            (lossless, Kind::Webp, (200, 100)),
            (extended, Kind::Webp, (200, 100)),
        ] {
            assert_eq!(Kind::of(&file), Some(kind));
            assert_eq!(kind.size(&file), Some(size), "{kind:?}");
            for end in 12..file.len() {
                assert_eq!(kind.size(&file[..end]), None, "{kind:?} of {end} bytes");
                assert!(show("x", kind, &file[..end]).unwrap_err().contains("damaged"));
            }
        }
        assert_eq!(Kind::of(b"plain"), None);
    }

    #[test]
    fn what_a_provider_would_refuse_is_refused_here() {
        let shown = show("x.png", Kind::Png, &png_of(SIDE, SIDE, 10)).unwrap();
        assert_eq!(shown.text, "x.png: image/png, 2000 x 2000 pixels");
        let file = &shown.structured.as_ref().unwrap()["file"];
        assert_eq!(STANDARD.decode(file["base64"].as_str().unwrap()).unwrap(), png_of(SIDE, SIDE, 10));
        let sent = serde_json::to_value(shown.block("t")).unwrap();
        assert_eq!(
            sent["content"][0]["source"],
            json!({"type": "base64", "media_type": "image/png", "data": file["base64"]})
        );
        assert_eq!(sent["content"][1], json!({"type": "text", "text": shown.text}));
        for (width, height) in [(SIDE + 1, 1), (1, SIDE + 1), (0, 1)] {
            assert!(show("x.png", Kind::Png, &png_of(width, height, 1)).is_err());
        }
        let frame = png_of(1, 1, 0).len();
        assert!(show("x.png", Kind::Png, &png_of(1, 1, BYTES - frame)).is_ok());
        assert!(show("x.png", Kind::Png, &png_of(1, 1, BYTES - frame + 1)).unwrap_err().contains("smaller copy"));
    }
}
