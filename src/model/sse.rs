//! Server-sent events: from chunks of bytes to the data of each event. For clients of streaming
//! APIs. Time is linear in the bytes, whatever the chunks; line ends may be LF, CR or CRLF; a
//! byte-order mark is skipped. Names and ids of events are ignored, since the APIs repeat them in
//! the data. An event without its closing blank line is none: what a cut stream ends with is lost.

use crate::core::limits::STREAM_EVENT_BYTES;

/// An event is longer than [`STREAM_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {STREAM_EVENT_BYTES} bytes")]
pub struct EventTooLong;

/// Takes a stream in, chunk by chunk.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The line so far.
    line: Vec<u8>,
    /// The data lines of the event so far, joined by newlines.
    data: Vec<u8>,
    has_data: bool,
    /// The chunk before ended with CR: an LF that comes first belongs to it.
    after_cr: bool,
    began: bool,
}

impl SseParser {
    /// Takes the next bytes in; the data of the events that ended in them. After an error the
    /// stream can't be read on.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<Vec<Vec<u8>>, EventTooLong> {
        let mut events = Vec::new();
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                self.grow(chunk)?;
                break;
            };
            self.grow(&chunk[..end])?;
            self.after_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    fn grow(&mut self, part: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + self.data.len() + part.len() > STREAM_EVENT_BYTES {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// The data of the event, if this line ends it.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = self.line.as_slice();
        if !std::mem::replace(&mut self.began, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        let mut event = None;
        if line.is_empty() {
            event = std::mem::take(&mut self.has_data).then(|| std::mem::take(&mut self.data));
        } else if let Some(value) = field(line, b"data") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        self.line.clear();
        event
    }
}

/// The value of the field `name`, if `line` is one.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None => rest.is_empty().then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(chunks: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::default();
        let events = chunks.iter().flat_map(|c| parser.push(c).unwrap());
        events.map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn data_lines_are_joined_and_everything_else_is_skipped() {
        let text = "\u{feff}: a comment\nevent: x\ndata: one\ndata:two\nid: 7\n\n\n\nevent: empty\n\ndata\n\ndata:  a: b\nretry: 1\nnodata: z\n\n";
        assert_eq!(parse(&[text.as_bytes()]), ["one\ntwo", "", " a: b"]);
    }

    #[test]
    fn an_event_that_is_not_closed_is_none() {
        assert_eq!(parse(&[b"data: a\n\ndata: b\n"]), ["a"]);
        assert_eq!(parse(&[b"data: a\n\ndata: b"]), ["a"]);
    }

    #[test]
    fn an_event_may_have_the_limit_and_no_byte_more() {
        let data = vec![b'x'; STREAM_EVENT_BYTES - "data: ".len()];
        let mut parser = SseParser::default();
        parser.push(b"data: ").unwrap();
        parser.push(&data).unwrap();
        assert_eq!(parser.push(b"\n\n").unwrap().len(), 1);
        let mut parser = SseParser::default();
        parser.push(b"data: ").unwrap();
        parser.push(&data).unwrap();
        assert_eq!(parser.push(b"x"), Err(EventTooLong));
        // Many short lines are one event too.
        let mut parser = SseParser::default();
        let lines = b"data: 0123456789\n".repeat(1 << 16);
        assert!((0..100).any(|_| parser.push(&lines).is_err()));
    }

    #[test]
    fn one_long_event_in_small_chunks_takes_linear_time() {
        // Two events of 4 MiB in chunks of 16 bytes; scanning anew for each chunk would compare 10^12 bytes.
        let mut stream = b"data: ".to_vec();
        stream.extend(std::iter::repeat_n(b'x', 4 << 20));
        stream.extend(b"\n\n");
        let mut parser = SseParser::default();
        let count: usize = stream.repeat(2).chunks(16).map(|c| parser.push(c).unwrap().len()).sum();
        assert_eq!(count, 2);
    }

    proptest! {
        #[test]
        fn chunks_and_line_ends_make_no_difference(
            lines in prop::collection::vec("(data: ?[a-zä:]{0,6}|event: x|:c|)", 0..24),
            end in prop::sample::select(vec!["\n", "\r", "\r\n"]),
            size in 1usize..9,
        ) {
            let plain: String = lines.iter().map(|l| format!("{l}\n")).collect();
            let other: String = lines.iter().map(|l| format!("{l}{end}")).collect();
            let chunks: Vec<&[u8]> = other.as_bytes().chunks(size).collect();
            prop_assert_eq!(parse(&chunks), parse(&[plain.as_bytes()]));
        }
    }
}
