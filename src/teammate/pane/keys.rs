//! What a terminal sends, as keys. Pure: bytes come in as they arrive, in any pieces.

/// What a key means on the input line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Characters that were typed.
    Text(String),
    /// Text that was pasted in one piece; of one that is too long, more than is allowed.
    Paste(String),
    /// Send the line.
    Enter,
    /// A new line within it.
    Newline,
    /// Interrupt the turn.
    Interrupt,
    /// End of input.
    End,
    /// Draw again.
    Redraw,
    /// Delete the character before the cursor, or at it.
    Backspace,
    /// See above.
    Delete,
    /// One character, or a word.
    Left,
    /// See above.
    Right,
    /// See above.
    WordLeft,
    /// See above.
    WordRight,
    /// Begin and end of the line.
    LineStart,
    /// See above.
    LineEnd,
    /// A row, or in the history.
    Up,
    /// See above.
    Down,
    /// Delete to the begin of the line, to its end, the word before the cursor.
    KillToStart,
    /// See above.
    KillToEnd,
    /// See above.
    KillWord,
}

/// What terminals send for keys, tmux and xterm both. None begins with another, so the order does not
/// count.
#[rustfmt::skip]
const KEYS: [(&[u8], Key); 53] = [
    (b"\r", Key::Enter),             (b"\n", Key::Newline),
    (b"\x1b\r", Key::Newline),       (b"\x1b\n", Key::Newline),
    (b"\x1b[13;2u", Key::Newline),   (b"\x1b[13;3u", Key::Newline),
    (b"\x03", Key::Interrupt),       (b"\x04", Key::End),
    (b"\x0c", Key::Redraw),
    (b"\x7f", Key::Backspace),       (b"\x08", Key::Backspace),
    (b"\x1b[3~", Key::Delete),
    (b"\x02", Key::Left),            (b"\x06", Key::Right),
    (b"\x1b[D", Key::Left),          (b"\x1b[C", Key::Right),
    (b"\x1bOD", Key::Left),          (b"\x1bOC", Key::Right),
    (b"\x1b[1;5D", Key::WordLeft),   (b"\x1b[1;5C", Key::WordRight),
    (b"\x1b[1;3D", Key::WordLeft),   (b"\x1b[1;3C", Key::WordRight),
    (b"\x1bb", Key::WordLeft),       (b"\x1bf", Key::WordRight),
    (b"\x01", Key::LineStart),       (b"\x05", Key::LineEnd),
    (b"\x1b[H", Key::LineStart),     (b"\x1b[F", Key::LineEnd),
    (b"\x1bOH", Key::LineStart),     (b"\x1bOF", Key::LineEnd),
    (b"\x1b[1~", Key::LineStart),    (b"\x1b[4~", Key::LineEnd),
    (b"\x1b[7~", Key::LineStart),    (b"\x1b[8~", Key::LineEnd),
    (b"\x1b[1;5H", Key::LineStart),  (b"\x1b[1;5F", Key::LineEnd),
    (b"\x10", Key::Up),              (b"\x0e", Key::Down),
    (b"\x1b[A", Key::Up),            (b"\x1b[B", Key::Down),
    (b"\x1bOA", Key::Up),            (b"\x1bOB", Key::Down),
    (b"\x1b[1;2A", Key::Up),         (b"\x1b[1;2B", Key::Down),
    (b"\x1b[1;3A", Key::Up),         (b"\x1b[1;3B", Key::Down),
    (b"\x1b[1;5A", Key::Up),         (b"\x1b[1;5B", Key::Down),
    (b"\x15", Key::KillToStart),     (b"\x0b", Key::KillToEnd),
    (b"\x17", Key::KillWord),        (b"\x1b\x7f", Key::KillWord),
    (b"\x1b\x08", Key::KillWord),
];

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// Bytes of a sequence; a longer one is none.
const SEQUENCE: usize = 32;

/// Reads keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// The beginning of a key that has not come whole.
    pending: Vec<u8>,
    /// What was pasted so far.
    paste: Option<Vec<u8>>,
    /// Bytes of a paste; what comes after one more is forgotten.
    most: usize,
}

/// Whether a read left something behind that can be read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// That was all for now.
    None,
    /// There may be more.
    More,
}

enum Next {
    /// Bytes that are no key, or are one.
    Taken(usize, Option<Key>),
    /// The beginning of a key.
    Part,
    /// Bytes after which a paste begins.
    Paste(usize),
}

impl Keys {
    /// Pastes have at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { pending: Vec::new(), paste: None, most }
    }

    /// The keys that `bytes` bring to an end.
    pub(super) fn feed(&mut self, bytes: &[u8], rest: Rest) -> Vec<Key> {
        let mut all = std::mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        let mut left = all.as_slice();
        let mut keys = Vec::new();
        while !left.is_empty() {
            if let Some(paste) = &mut self.paste {
                // Only the beginning of the end can be cut in two.
                let end = find(left, PASTE_END);
                let taken = end.unwrap_or_else(|| left.len() - begin_of(left, PASTE_END));
                let room = (self.most + 1).saturating_sub(paste.len());
                paste.extend_from_slice(&left[..taken.min(room)]);
                left = &left[taken..];
                if end.is_none() {
                    break;
                }
                left = &left[PASTE_END.len()..];
                keys.extend(self.paste.take().map(|paste| Key::Paste(String::from_utf8_lossy(&paste).into_owned())));
                continue;
            }
            match next(left, rest) {
                Next::Taken(length, key) => {
                    keys.extend(key);
                    left = &left[length..];
                }
                Next::Part => break,
                Next::Paste(length) => {
                    self.paste = Some(Vec::new());
                    left = &left[length..];
                }
            }
        }
        self.pending = left.to_vec();
        keys
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// How many bytes at the end of `bytes` are the beginning of `what`.
fn begin_of(bytes: &[u8], what: &[u8]) -> usize {
    (1..what.len()).rev().find(|n| bytes.ends_with(&what[..*n])).unwrap_or(0)
}

/// The first key of `bytes`, which are not empty.
fn next(bytes: &[u8], rest: Rest) -> Next {
    if let Some((sequence, key)) = KEYS.iter().find(|(sequence, _)| bytes.starts_with(sequence)) {
        return Next::Taken(sequence.len(), Some(key.clone()));
    }
    if bytes.starts_with(PASTE_START) {
        return Next::Paste(PASTE_START.len());
    }
    match bytes {
        [0x1b, b'[', ..] => sequence(bytes),
        [0x1b, b'O', _, ..] => Next::Taken(3, None),
        [0x1b, b'O'] => Next::Part,
        // Two escapes, or an escape before a letter beyond ASCII: the second stands for itself.
        [0x1b, 0x1b | 0x80.., ..] => Next::Taken(1, None),
        [0x1b, _, ..] => Next::Taken(2, None),
        // A terminal sends a sequence in one piece, so that this is the key itself.
        [0x1b] if rest == Rest::None => Next::Taken(1, None),
        [0x1b] => Next::Part,
        [control, ..] if control.is_ascii_control() => Next::Taken(1, None),
        _ => typed(bytes),
    }
}

/// A control sequence that means nothing here: it is passed over as a whole.
fn sequence(bytes: &[u8]) -> Next {
    let end = bytes[2..].iter().position(|b| !(0x20..=0x3f).contains(b));
    match end {
        _ if end.unwrap_or(bytes.len()) > SEQUENCE => Next::Taken(2, None),
        None => Next::Part,
        Some(end) if (0x40..=0x7e).contains(&bytes[end + 2]) => Next::Taken(end + 3, None),
        // Cut off by another key.
        Some(end) => Next::Taken(end + 2, None),
    }
}

fn typed(bytes: &[u8]) -> Next {
    let end = bytes.iter().position(u8::is_ascii_control).unwrap_or(bytes.len());
    let is_last = end == bytes.len();
    let bytes = &bytes[..end];
    let text = |valid: usize| Some(Key::Text(String::from_utf8_lossy(&bytes[..valid]).into_owned()));
    match std::str::from_utf8(bytes) {
        Ok(_) => Next::Taken(end, text(end)),
        Err(error) if error.valid_up_to() > 0 => Next::Taken(error.valid_up_to(), text(error.valid_up_to())),
        Err(error) => match error.error_len() {
            Some(length) => Next::Taken(length, None),
            None if is_last => Next::Part,
            None => Next::Taken(end, None),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 100;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Keys::new(MOST).feed(bytes, Rest::None)
    }

    fn text(text: &str) -> Key {
        Key::Text(text.to_owned())
    }

    #[test]
    fn no_key_begins_with_another() {
        for (n, (a, _)) in KEYS.iter().enumerate() {
            for (b, _) in KEYS.iter().skip(n + 1).chain([&(PASTE_START, Key::End)]) {
                assert!(!a.starts_with(b) && !b.starts_with(a), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn keys_of_the_table_come_between_typed_text() {
        for (sequence, key) in KEYS {
            let bytes = [b"a", sequence, "ö".as_bytes()].concat();
            assert_eq!(keys(&bytes), [text("a"), key, text("ö")], "{sequence:?}");
        }
    }

    #[test]
    fn what_means_nothing_is_passed_over_as_a_whole() {
        for odd in ["\x1b[5~", "\x1b[I", "\x1b[?1;2c", "\x1b[<0;5;5M", "\x1bOP", "\x1bx", "\t", "\x1b[99;99R", "\0"] {
            assert_eq!(keys(format!("{odd}\r").as_bytes()).last(), Some(&Key::Enter), "{odd:?}");
            let letter = keys(format!("{odd}研").as_bytes());
            assert_eq!(letter, [text("研")], "{odd:?}");
        }
        assert_eq!(keys(b"\xc3\r"), [Key::Enter]);
        assert_eq!(keys(b"a\xff\xc3(b"), [text("a"), text("(b")]);
        assert_eq!(keys(b"\x1b[12\rb"), [Key::Enter, text("b")], "a sequence cut off");
        let long = [b"\x1b[".to_vec(), vec![b'1'; 40], b"b".to_vec()].concat();
        assert!(matches!(keys(&long).as_slice(), [Key::Text(_)]), "no sequence is that long");
    }

    #[test]
    fn an_escape_alone_is_a_key_and_swallows_nothing() {
        let mut keys = Keys::new(MOST);
        assert_eq!(keys.feed(b"\x1b", Rest::None), []);
        assert_eq!(keys.feed(b"a", Rest::None), [text("a")]);
        assert_eq!(keys.feed(b"\x1b", Rest::More), []);
        assert_eq!(keys.feed(b"[A", Rest::None), [Key::Up]);
    }

    #[test]
    fn pastes_hold_what_would_be_keys_and_have_a_limit() {
        let paste = |text: &str| [PASTE_START, text.as_bytes(), PASTE_END].concat();
        assert_eq!(
            keys(&[paste("a\r\n\x03\x1b[A"), b"\r".to_vec()].concat()),
            [Key::Paste("a\r\n\x03\x1b[A".into()), Key::Enter]
        );
        let whole = "x".repeat(MOST);
        assert_eq!(keys(&paste(&whole)), [Key::Paste(whole.clone())]);
        assert_eq!(keys(&paste(&(whole.clone() + "xyz"))), [Key::Paste(whole + "x")]);
        assert_eq!(keys(&paste("")), [Key::Paste(String::new())]);
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_keys_as_the_whole(
            parts in proptest::collection::vec(0_usize..KEYS.len() + 4, 1..20),
            cuts in proptest::collection::vec(1_usize..7, 1..40),
        ) {
            let mut bytes = Vec::new();
            for part in parts {
                match part.checked_sub(KEYS.len()) {
                    None => bytes.extend_from_slice(KEYS[part].0),
                    Some(0) => bytes.extend_from_slice("a研é".as_bytes()),
                    Some(1) => bytes.extend_from_slice(b"\x1b[200~ab\x1b[20\r\xe7\x1b[201~"),
                    Some(2) => bytes.extend_from_slice(b"\x1b[?25;1$y"),
                    Some(_) => bytes.extend_from_slice("🙂".as_bytes()),
                }
            }
            let joined = |keys: Vec<Key>| keys.into_iter().fold(Vec::<Key>::new(), |mut all, key| {
                match (all.last_mut(), key) {
                    (Some(Key::Text(before)), Key::Text(more)) => before.push_str(&more),
                    (_, key) => all.push(key),
                }
                all
            });
            let mut pieces = Keys::new(MOST);
            let mut left = bytes.as_slice();
            let mut found = Vec::new();
            for cut in cuts.iter().cycle() {
                if left.is_empty() { break }
                let (piece, more) = left.split_at((*cut).min(left.len()));
                found.extend(pieces.feed(piece, if more.is_empty() { Rest::None } else { Rest::More }));
                left = more;
            }
            prop_assert_eq!(joined(found), joined(keys(&bytes)));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Keys::new(MOST);
            reader.feed(&bytes, Rest::None);
            prop_assert!(reader.pending.len() <= SEQUENCE + 2);
        }
    }
}
