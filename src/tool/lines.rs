//! A text line by line with numbers, as a stream: lines and texts of any length.

use std::io::{self, BufRead, Read as _};

use tokio_util::sync::CancellationToken;

/// Characters of a line that are shown.
const LINE_CHARS: usize = 2000;
/// Most bytes of a line that are kept; a character has at most four.
const LINE_BYTES: usize = LINE_CHARS * 4;
const CHUNK_BYTES: u64 = 64 * 1024;

/// One line, cut to what is shown.
pub(super) struct Line {
    /// The beginning.
    kept: Vec<u8>,
    /// Length in bytes, without the newline.
    length: usize,
}

impl Line {
    fn is_whole(&self) -> bool {
        self.length == self.kept.len()
    }

    /// Whether it ends with a carriage return, which is part of the line's end.
    pub(super) fn is_crlf(&self) -> bool {
        self.is_whole() && self.kept.last() == Some(&b'\r')
    }

    /// Whether it is text as it stands, as far as it was kept.
    pub(super) fn is_text(&self) -> bool {
        !self.is_whole() || std::str::from_utf8(&self.kept).is_ok()
    }

    /// As it is shown, with a newline.
    pub(super) fn numbered(&self, number: usize) -> String {
        let end = usize::from(self.is_crlf());
        let kept = String::from_utf8_lossy(&self.kept[..self.kept.len() - end]);
        numbered(number, &kept, self.length - end)
    }
}

/// Line `number` as it is shown, with a newline; `length` is its whole length in bytes.
pub(super) fn numbered(number: usize, line: &str, length: usize) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        None if length <= line.len() => format!("{number:>6}\t{line}\n"),
        cut => {
            let end = cut.map_or(line.len(), |(at, _)| at);
            format!("{number:>6}\t{} [line cut: {length} bytes in all]\n", &line[..end])
        }
    }
}

/// A text without what stands before its lines where it was shown with numbers; none if it was not.
pub(super) fn without_numbers(text: &str) -> Option<String> {
    let strip = |line: &'_ str| -> Option<String> {
        let (number, rest) = line.split_once('\t')?;
        let number = number.trim_start();
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then(|| rest.to_owned())
    };
    let lines: Option<Vec<String>> = text.split('\n').filter(|l| !l.is_empty()).map(strip).collect();
    Some(lines?.join("\n")).filter(|text| !text.is_empty())
}

/// Reads lines and counts them.
pub(super) struct Lines<'a, R> {
    reader: R,
    cancel: &'a CancellationToken,
    chunk: Vec<u8>,
    /// Number of the line read last.
    pub(super) number: usize,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(reader: R, cancel: &'a CancellationToken) -> Self {
        Self { reader, cancel, chunk: Vec::new(), number: 0 }
    }

    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }

    /// The next line, or `None` at the end; an unwanted one is only counted. A cancel cuts it off.
    pub(super) fn next(&mut self, wanted: bool) -> io::Result<Option<Line>> {
        let mut line = Line { kept: Vec::new(), length: 0 };
        let mut begun = false;
        loop {
            self.chunk.clear();
            // In pieces, since a line may be as long as the file.
            (&mut self.reader).take(CHUNK_BYTES).read_until(b'\n', &mut self.chunk)?;
            let ended = self.chunk.last() == Some(&b'\n');
            let part = &self.chunk[..self.chunk.len() - usize::from(ended)];
            if wanted && line.kept.len() < LINE_BYTES {
                line.kept.extend_from_slice(&part[..part.len().min(LINE_BYTES - line.kept.len())]);
            }
            line.length += part.len();
            if ended || self.chunk.is_empty() || self.cancel.is_cancelled() {
                begun |= ended;
                self.number += usize::from(begun);
                return Ok(begun.then_some(line));
            }
            begun = true;
        }
    }
}

/// `lines 3, 5 and 9`, or `lines 3, 5, 9 and 4 more`, or `line 3`.
pub(super) fn name_lines(numbers: &[usize]) -> String {
    const NAMED: usize = 10;
    let mut words: Vec<String> = numbers.iter().take(NAMED).map(usize::to_string).collect();
    match (numbers.len(), words.pop()) {
        (0 | 1, last) => format!("line {}", last.unwrap_or_default()),
        (count, Some(last)) if count > NAMED => {
            words.push(last);
            format!("lines {} and {} more", words.join(", "), count - NAMED)
        }
        (_, last) => format!("lines {} and {}", words.join(", "), last.unwrap_or_default()),
    }
}

/// A piece of text in quotes, on one line and not too long.
pub(super) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(160).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_lines_read_well() {
        assert_eq!(name_lines(&[3]), "line 3");
        assert_eq!(name_lines(&[3, 5]), "lines 3 and 5");
        assert_eq!(name_lines(&[1, 2, 3]), "lines 1, 2 and 3");
        let many: Vec<usize> = (1..=10).collect();
        assert_eq!(name_lines(&many), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10");
        let more: Vec<usize> = (1..=12).collect();
        assert_eq!(name_lines(&more), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
    }

    #[test]
    fn numbers_are_taken_off_only_where_every_line_has_one() {
        assert_eq!(without_numbers("     1\tone\n     2\t\ttwo\n").as_deref(), Some("one\n\ttwo"));
        assert_eq!(without_numbers("12\tx").as_deref(), Some("x"));
        for text in ["", "one", "1\tone\ntwo", "a\tb", "\tb", "1\t"] {
            assert_eq!(without_numbers(text), None, "{text:?}");
        }
    }
}
