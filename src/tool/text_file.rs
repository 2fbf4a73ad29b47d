//! Text as files hold it: UTF-8 with or without a byte order mark, or UTF-16 with one. What was
//! decoded is encoded in the same way again. Pure.

/// Bytes at the beginning that are looked at: a null byte among them means that it is no text.
pub(super) const PROBE_BYTES: usize = 8192;

const UTF8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
const UTF16_LITTLE: [u8; 2] = [0xff, 0xfe];
const UTF16_BIG: [u8; 2] = [0xfe, 0xff];

/// How a file holds its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf8Marked,
    Utf16Little,
    Utf16Big,
}

impl Encoding {
    /// What the first bytes of a file tell.
    pub(super) fn of(start: &[u8]) -> Self {
        match start {
            _ if start.starts_with(&UTF8_MARK) => Self::Utf8Marked,
            _ if start.starts_with(&UTF16_LITTLE) => Self::Utf16Little,
            _ if start.starts_with(&UTF16_BIG) => Self::Utf16Big,
            _ => Self::Utf8,
        }
    }

    /// The byte order mark.
    pub(super) fn mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 => &[],
            Self::Utf8Marked => &UTF8_MARK,
            Self::Utf16Little => &UTF16_LITTLE,
            Self::Utf16Big => &UTF16_BIG,
        }
    }

    pub(super) fn is_utf16(self) -> bool {
        matches!(self, Self::Utf16Little | Self::Utf16Big)
    }

    /// What is unusual about it, for an answer.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Utf8 => None,
            Self::Utf8Marked => Some("UTF-8 with a byte order mark"),
            Self::Utf16Little | Self::Utf16Big => Some("UTF-16"),
        }
    }

    /// The bytes of a file with this text.
    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        let mut out = self.mark().to_vec();
        match self {
            Self::Utf8 | Self::Utf8Marked => out.extend_from_slice(text.as_bytes()),
            Self::Utf16Little => out.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
            Self::Utf16Big => out.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
        }
        out
    }
}

/// Why bytes are no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotText {
    /// Null bytes.
    Binary,
    /// No valid UTF-8 in this line.
    Utf8 { line: usize },
    /// No valid UTF-16.
    Utf16,
}

impl NotText {
    /// What it is, after the name of the file.
    pub(super) fn explain(self) -> String {
        match self {
            Self::Binary => "is a binary file".to_owned(),
            Self::Utf8 { line } => format!("is no valid UTF-8 (first in line {line})"),
            Self::Utf16 => "begins like UTF-16, but is none".to_owned(),
        }
    }
}

/// The text of a file and how it holds it.
pub(super) fn decode(bytes: &[u8]) -> Result<(String, Encoding), NotText> {
    let encoding = Encoding::of(bytes);
    let rest = &bytes[encoding.mark().len()..];
    let text = if encoding.is_utf16() {
        let (units, []) = rest.as_chunks::<2>() else { return Err(NotText::Utf16) };
        let unit = |two: &[u8; 2]| match encoding {
            Encoding::Utf16Big => u16::from_be_bytes(*two),
            _ => u16::from_le_bytes(*two),
        };
        String::from_utf16(&units.iter().map(unit).collect::<Vec<_>>()).map_err(|_| NotText::Utf16)?
    } else if looks_binary(rest) {
        return Err(NotText::Binary);
    } else {
        let broken = |error: std::str::Utf8Error| NotText::Utf8 {
            line: 1 + memchr::memchr_iter(b'\n', &rest[..error.valid_up_to()]).count(),
        };
        std::str::from_utf8(rest).map_err(broken)?.to_owned()
    };
    if looks_binary(text.as_bytes()) { Err(NotText::Binary) } else { Ok((text, encoding)) }
}

/// Whether this beginning of a file has a null byte.
pub(super) fn looks_binary(start: &[u8]) -> bool {
    memchr::memchr(0, &start[..start.len().min(PROBE_BYTES)]).is_some()
}

/// Whether most lines of a text end with CRLF.
pub(super) fn is_crlf(text: &str) -> bool {
    let (mut all, mut crlf) = (0_usize, 0_usize);
    for at in memchr::memchr_iter(b'\n', text.as_bytes()) {
        all += 1;
        crlf += usize::from(at > 0 && text.as_bytes()[at - 1] == b'\r');
    }
    crlf > all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_encoded_in_the_same_way() {
        let text = "héllo\r\nworld 𝄞\n";
        let utf16 = |to: fn(u16) -> [u8; 2], mark: &[u8]| {
            [mark.to_vec(), text.encode_utf16().flat_map(to).collect::<Vec<_>>()].concat()
        };
        for (bytes, encoding) in [
            (text.as_bytes().to_vec(), Encoding::Utf8),
            ([&UTF8_MARK, text.as_bytes()].concat(), Encoding::Utf8Marked),
            (utf16(u16::to_le_bytes, &[0xff, 0xfe]), Encoding::Utf16Little),
            (utf16(u16::to_be_bytes, &[0xfe, 0xff]), Encoding::Utf16Big),
        ] {
            assert_eq!(decode(&bytes), Ok((text.to_owned(), encoding)));
            assert_eq!(encoding.encode(text), bytes);
        }
        assert_eq!(decode(b""), Ok((String::new(), Encoding::Utf8)));
    }

    #[test]
    fn what_is_no_text_is_told_apart() {
        assert_eq!(decode(b"a\0b"), Err(NotText::Binary));
        assert_eq!(decode(b"a\nb\nc\xffd"), Err(NotText::Utf8 { line: 3 }));
        assert_eq!(decode(&[0xff, 0xfe, b'a']), Err(NotText::Utf16), "half a unit");
        assert_eq!(decode(&[0xff, 0xfe, 0x00, 0xd8]), Err(NotText::Utf16), "half a pair");
        assert_eq!(decode(&[0xff, 0xfe, 0, 0, b'a', 0, 0, 0]), Err(NotText::Binary), "UTF-32");
        let late = [vec![b'x'; PROBE_BYTES], vec![0]].concat();
        assert!(decode(&late).is_ok(), "only the beginning is looked at");
    }

    #[test]
    fn crlf_counts_where_most_lines_end_with_it() {
        assert!(is_crlf("a\r\nb\r\nc\n") && is_crlf("a\r\n"));
        assert!(!is_crlf("") && !is_crlf("a") && !is_crlf("\n") && !is_crlf("a\r\nb\n") && !is_crlf("a\rb\r"));
    }
}
