//! Redirections, and what looks like them: process substitutions.

use super::heredoc::HereDocument;
use super::part::{Expansion, Part, Redirect, Unparsed, Word};
use super::split::{End, Splitter};
use super::word::is_meta;

/// Longest first, so that none is taken for the beginning of another.
const OPERATORS: [&str; 12] = ["&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">"];

impl Splitter<'_> {
    /// Redirections behind a group or loop are a part of their own.
    pub(super) fn trailing_redirects(&mut self) -> Result<(), Unparsed> {
        let mut part = Part { dirs: self.dirs.current(), ..Part::default() };
        self.blanks();
        while self.redirect(&mut part)? {
            self.blanks();
        }
        if !part.words.is_empty() {
            return Err(Unparsed("words behind the end of a compound command"));
        }
        if !part.redirects.is_empty() {
            self.parts.push(part);
        }
        Ok(())
    }

    /// Reads one redirection or process substitution, if one stands here.
    pub(super) fn redirect(&mut self, part: &mut Part) -> Result<bool, Unparsed> {
        let start = self.pos;
        let digits = self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let behind = &self.rest()[digits..];
        if !(behind.starts_with(['<', '>']) || (digits == 0 && behind.starts_with("&>"))) {
            return Ok(false);
        }
        if digits == 0 && self.substitutes() {
            let fresh = self.text[..start].chars().next_back().is_none_or(is_meta);
            if !fresh {
                return Err(Unparsed("a process substitution inside a word"));
            }
            self.process_substitution()?;
            let ends = self.peek().is_none_or(is_meta);
            if part.words.is_empty() || !ends || self.rest().starts_with(['<', '>', '(']) {
                return Err(Unparsed("a process substitution that is a command or a piece of a word"));
            }
            // A pipe's other end: what it yields is what the commands inside read.
            let text = "/dev/fd/63".to_owned();
            let raw = self.text[start..self.pos].to_owned();
            part.words.push(Word { raw, text, expansion: Expansion::None, pattern: None });
            return Ok(true);
        }
        self.pos += digits;
        let operator = OPERATORS.into_iter().find(|op| self.eat(op)).unwrap_or_default();
        if matches!(operator, "<" | ">") && self.peek() == Some('(') {
            return Err(Unparsed("a process substitution inside a word"));
        }
        if matches!(operator, "<&" | ">&") && self.eat("-") {
            // Closes the descriptor; what follows without a blank is a word of its own.
            return Ok(true);
        }
        self.blanks();
        if self.substitutes() {
            // Only where a file can stand: a here-document's delimiter is never expanded.
            if !matches!(operator, "<" | ">" | ">>" | "&>" | "&>>" | ">|") {
                return Err(Unparsed("a process substitution behind an operator that takes none"));
            }
            self.process_substitution()?;
            if !self.peek().is_none_or(is_meta) {
                return Err(Unparsed("a process substitution that is a piece of a word"));
            }
            return Ok(true);
        }
        let target = self.word()?;
        if target.raw.is_empty() {
            return Err(Unparsed("a redirection without a target"));
        }
        self.take_redirect(operator, target, part)?;
        Ok(true)
    }

    fn take_redirect(&mut self, operator: &str, target: Word, part: &mut Part) -> Result<(), Unparsed> {
        let number = target.text.strip_suffix('-').unwrap_or(&target.text);
        let descriptor = !target.text.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        match operator {
            "<<" | "<<-" => self.bodies.push(HereDocument::new(target, operator)?),
            "<<<" => {}
            "<&" | ">&" if descriptor && target.expansion == Expansion::None => {}
            "<&" => return Err(Unparsed("a descriptor that is not a number")),
            "<" if target.text.starts_with("/dev/tcp") || target.text.starts_with("/dev/udp") => {
                return Err(Unparsed("a redirection from the network"));
            }
            _ => part.redirects.push(Redirect { target, writes: operator != "<" }),
        }
        Ok(())
    }

    /// Whether `<(` or `>(` stands here.
    fn substitutes(&self) -> bool {
        self.rest().starts_with("<(") || self.rest().starts_with(">(")
    }

    fn process_substitution(&mut self) -> Result<(), Unparsed> {
        self.bump();
        self.bump();
        if self.peek() == Some('(') {
            return Err(Unparsed("two parentheses in a row"));
        }
        let before = self.parts.len();
        self.nested(|inner| inner.list(End::Paren))?;
        // An empty one becomes no word at all.
        if self.parts.len() == before { Err(Unparsed("an empty process substitution")) } else { Ok(()) }
    }
}
