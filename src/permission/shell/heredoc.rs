//! Here-documents: where their bodies end, and what runs inside them.

use super::part::{Expansion, Unparsed, Word};
use super::split::Splitter;

/// A here-document whose body begins with the next line.
pub(super) struct HereDocument {
    delimiter: String,
    strip_tabs: bool,
    /// Its delimiter is quoted: nothing in it is expanded.
    literal: bool,
}

impl HereDocument {
    pub(super) fn new(delimiter: Word, operator: &str) -> Result<Self, Unparsed> {
        if !is_delimiter(&delimiter) {
            return Err(Unparsed("a here-document with an odd delimiter"));
        }
        Ok(Self { literal: delimiter.raw != delimiter.text, delimiter: delimiter.text, strip_tabs: operator == "<<-" })
    }
}

/// Only plain delimiters are understood: one that is read differently from the shell (`~` is not
/// expanded there) would make commands look like a body.
fn is_delimiter(word: &Word) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'.';
    word.expansion == Expansion::None && !word.text.is_empty() && word.text.bytes().all(plain)
}

impl<'a> Splitter<'a> {
    /// Takes a line's end and the here-documents that begin behind it.
    pub(super) fn newline(&mut self) -> Result<(), Unparsed> {
        self.bump();
        for document in std::mem::take(&mut self.bodies) {
            let body = self.body(&document)?;
            if !document.literal {
                // It is expanded when its command runs, which was before any `cd` on the line; all
                // folders since then count as possible here.
                self.nested(|outer| outer.expand(body))?;
            }
        }
        Ok(())
    }

    /// Takes the lines up to the delimiter, and the delimiter's.
    fn body(&mut self, document: &HereDocument) -> Result<&'a str, Unparsed> {
        let start = self.pos;
        loop {
            let line = self.rest().split('\n').next().unwrap_or_default();
            let text = if document.strip_tabs { line.trim_start_matches('\t') } else { line };
            if text == document.delimiter {
                let body = start..self.pos;
                self.pos += line.len();
                // The newline behind the delimiter ends the command as any other does.
                if self.peek() == Some('\n') {
                    self.bump();
                }
                return Ok(&self.text[body]);
            }
            if !document.literal && line.ends_with('\\') {
                // Joined with the next line before that is compared with the delimiter.
                return Err(Unparsed("a here-document whose lines go on"));
            }
            self.pos += line.len();
            if self.bump().is_none() {
                return Err(Unparsed("a here-document without its end"));
            }
        }
    }
}
