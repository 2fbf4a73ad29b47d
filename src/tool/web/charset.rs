//! From the bytes of a page to its text.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// How far into a page the name of its encoding is looked for, as browsers do.
const PRESCAN: usize = 1024;

/// Decodes `bytes`. The first of these counts: a byte order mark, `named` (by the server), what the
/// page says of itself, UTF-8 if it is that, windows-1252 (which includes latin-1). What can't be
/// decoded becomes U+FFFD.
pub(super) fn decode(bytes: &[u8], named: Option<&str>) -> String {
    let by_name = |label: &str| Encoding::for_label(label.trim_matches(['"', '\'']).as_bytes());
    let encoding = named.and_then(by_name).or_else(|| by_name(&declared(bytes)?)).unwrap_or_else(|| {
        let is_utf8 = match std::str::from_utf8(bytes) {
            Ok(_) => true,
            // A page that was cut may end within a character.
            Err(error) => error.error_len().is_none() && !bytes[..error.valid_up_to()].is_ascii(),
        };
        if is_utf8 { UTF_8 } else { WINDOWS_1252 }
    });
    encoding.decode(bytes).0.into_owned()
}

/// The value of the first `charset=` near the begin.
fn declared(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN)]).to_ascii_lowercase();
    let (_, rest) = head.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let name = rest.split(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c))).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_of_the_encoding_counts_in_its_turn() {
        let latin = b"caf\xe9";
        assert_eq!(decode("café".as_bytes(), None), "café");
        assert_eq!(decode(latin, None), "café");
        assert_eq!(decode(latin, Some("\"ISO-8859-1\"")), "café");
        assert_eq!(decode(b"\xef\xbb\xbfcaf\xc3\xa9", Some("latin1")), "café");
        assert_eq!(decode(b"<meta charset='iso-8859-2'>\xe8", None), "<meta charset='iso-8859-2'>č");
        let old = b"<meta http-equiv=content-type content=\"text/html; charset=shift_jis\">\x93\xfa";
        assert!(decode(old, None).ends_with('日'));
        assert_eq!(decode(&"éaé".as_bytes()[..4], None), "éa\u{fffd}");
        assert_eq!(decode(b"a charset of no = kind \xc3\xa9", Some("x-unknown")), "a charset of no = kind é");
    }
}
