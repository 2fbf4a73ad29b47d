//! The grammar: lists, pipelines, groups, loops, simple commands.

use std::path::Path;

use super::dirs::Dirs;
use super::heredoc::HereDocument;
use super::part::{Assignment, Expansion, Part, Unparsed};
use super::runs;
use super::word::is_meta;

/// Longest command that is looked at, bytes: Linux takes no longer argument.
const LONGEST: usize = 128 * 1024;
/// Deepest nesting of subshells and substitutions.
const DEEPEST: u32 = 24;

/// Splits `command`, which would run in `cwd`, into everything it runs. `home` is what `~` means.
pub fn split(command: &str, cwd: &Path, home: Option<&Path>) -> Result<Vec<Part>, Unparsed> {
    if command.len() > LONGEST || command.contains('\0') {
        return Err(Unparsed("a command that is too long or holds a null character"));
    }
    let mut splitter = Splitter::new(command, Dirs::new(cwd), home);
    splitter.list(End::Text)?;
    Ok(splitter.parts)
}

/// What ends a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Text,
    Paren,
    Brace,
}

/// The place in a text, and what was found before it.
pub(super) struct Splitter<'a> {
    pub(super) text: &'a str,
    pub(super) pos: usize,
    pub(super) home: Option<&'a Path>,
    pub(super) dirs: Dirs,
    pub(super) parts: Vec<Part>,
    pub(super) bodies: Vec<HereDocument>,
    loops: u32,
    depth: u32,
}

impl<'a> Splitter<'a> {
    fn new(text: &'a str, dirs: Dirs, home: Option<&'a Path>) -> Self {
        Self { text, pos: 0, home, dirs, parts: Vec::new(), bodies: Vec::new(), loops: 0, depth: 0 }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.pos..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.pos += token.len();
        }
        found
    }

    pub(super) fn awaits_body(&self) -> bool {
        !self.bodies.is_empty()
    }

    /// Runs `read` as a subshell: its `cd`s end with it.
    pub(super) fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<(), Unparsed>) -> Result<(), Unparsed> {
        if self.depth >= DEEPEST {
            return Err(Unparsed("too deep nesting"));
        }
        if self.awaits_body() {
            return Err(Unparsed("a substitution between a here-document and its body"));
        }
        let dirs = self.dirs.clone();
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        self.dirs = dirs;
        result
    }

    /// Splits another text as if it stood here.
    pub(super) fn split_text(&mut self, text: &str) -> Result<(), Unparsed> {
        self.read_text(text, |inner| inner.list(End::Text))
    }

    /// Reads another text as if it stood here.
    pub(super) fn read_text(
        &mut self,
        text: &str,
        read: impl FnOnce(&mut Splitter<'_>) -> Result<(), Unparsed>,
    ) -> Result<(), Unparsed> {
        let mut inner = Splitter::new(text, self.dirs.clone(), self.home);
        inner.depth = self.depth;
        inner.loops = self.loops;
        read(&mut inner)?;
        self.parts.append(&mut inner.parts);
        Ok(())
    }

    /// Reads commands up to and including `end`.
    pub(super) fn list(&mut self, end: End) -> Result<(), Unparsed> {
        if end == End::Paren && self.rest().starts_with("\\\n") {
            return Err(Unparsed("a parenthesis that goes on in the next line"));
        }
        loop {
            self.blanks();
            match self.peek() {
                None if end == End::Text && !self.awaits_body() => return Ok(()),
                None => return Err(Unparsed("an end that is missing")),
                Some('\n') => self.newline()?,
                Some(')') if end == End::Paren && !self.awaits_body() => {
                    self.bump();
                    return Ok(());
                }
                Some('}') if end == End::Brace && self.keyword() == "}" => {
                    self.bump();
                    return Ok(());
                }
                Some(_) => {
                    self.command()?;
                    self.operator()?;
                }
            }
        }
    }

    fn operator(&mut self) -> Result<(), Unparsed> {
        self.blanks();
        if self.eat("&&") {
            return Ok(());
        }
        self.dirs.after_any();
        if self.rest().starts_with(";;") || self.rest().starts_with(";&") {
            return Err(Unparsed("`case`"));
        }
        if ["||", "|&", "|", ";", "&"].iter().any(|op| self.eat(op)) {
            return Ok(());
        }
        match self.peek() {
            None | Some('\n' | ')') => Ok(()),
            Some(_) => Err(Unparsed("words behind the end of a compound command")),
        }
    }

    fn command(&mut self) -> Result<(), Unparsed> {
        let mut negated = false;
        loop {
            self.blanks();
            if self.rest().starts_with("((") {
                return Err(Unparsed("arithmetic"));
            }
            if self.eat("(") {
                self.nested(|inner| inner.list(End::Paren))?;
                return self.trailing_redirects();
            }
            let word = self.keyword();
            match word {
                "case" | "esac" | "select" | "function" | "coproc" | "[[" | "}" | "in" => {
                    return Err(Unparsed("a compound command that is not understood"));
                }
                "{" => {
                    self.pos += word.len();
                    self.group()?;
                    return self.trailing_redirects();
                }
                "!" | "time" | "if" | "then" | "elif" | "else" | "do" | "while" | "until" => {
                    self.pos += word.len();
                    negated |= word == "!";
                    if word == "time" {
                        self.options_of_time();
                    }
                    self.loops += u32::from(matches!(word, "while" | "until"));
                    self.lines()?;
                }
                "for" => {
                    self.pos += word.len();
                    self.loops += 1;
                    return self.for_header();
                }
                "done" | "fi" => {
                    self.pos += word.len();
                    if word == "done" {
                        self.loops = self.loops.checked_sub(1).ok_or(Unparsed("`done` without a loop"))?;
                    }
                    return self.trailing_redirects();
                }
                _ => {
                    self.simple()?;
                    if negated {
                        self.dirs.after_any();
                    }
                    return Ok(());
                }
            }
        }
    }

    fn options_of_time(&mut self) {
        loop {
            self.blanks();
            match self.keyword() {
                option @ ("-p" | "--") => self.pos += option.len(),
                _ => return,
            }
        }
    }

    fn group(&mut self) -> Result<(), Unparsed> {
        if self.depth >= DEEPEST {
            return Err(Unparsed("too deep nesting"));
        }
        self.depth += 1;
        let result = self.list(End::Brace);
        self.depth -= 1;
        self.dirs.after_any();
        result
    }

    /// `NAME in words`, up to the separator. A loop assigns its variable, so only names that no
    /// program takes notice of are understood.
    fn for_header(&mut self) -> Result<(), Unparsed> {
        self.blanks();
        let name = self.keyword();
        let harmless = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        self.pos += name.len();
        self.blanks();
        if !harmless || self.keyword() != "in" {
            return Err(Unparsed("a `for` that is not understood"));
        }
        self.pos += "in".len();
        loop {
            self.blanks();
            match self.peek() {
                Some('\n' | ';') => return Ok(()),
                Some(c) if !is_meta(c) => {
                    self.word()?;
                }
                _ => return Err(Unparsed("a `for` that is not understood")),
            }
        }
    }

    fn simple(&mut self) -> Result<(), Unparsed> {
        let mut part = Part { dirs: self.dirs.current(), ..Part::default() };
        let start = self.pos;
        loop {
            self.blanks();
            if self.redirect(&mut part)? {
                continue;
            }
            match self.peek() {
                None => break,
                Some('(') => return Err(Unparsed("a function or an array")),
                Some(c) if is_meta(c) => break,
                Some(_) => {
                    let word = self.word()?;
                    if part.words.is_empty() && is_subscripted(&word.raw) {
                        return Err(Unparsed("an array"));
                    }
                    if word.raw.starts_with('{') && self.rest().starts_with(['<', '>']) {
                        return Err(Unparsed("a redirection of a named descriptor"));
                    }
                    match assigned_name(&word.raw).filter(|_| part.words.is_empty()) {
                        Some(name) => part.assignments.push(Assignment { name: name.to_owned(), raw: word.raw }),
                        None => part.words.push(word),
                    }
                }
            }
        }
        if self.pos == start {
            return Err(Unparsed("an operator without a command"));
        }
        self.finish(part)
    }

    fn finish(&mut self, part: Part) -> Result<(), Unparsed> {
        if part.words.first().is_some_and(|w| w.expansion != Expansion::None) {
            return Err(Unparsed("a command whose name is an expansion"));
        }
        let moves = ["cd", "pushd", "popd"].iter().any(|c| part.words.iter().take(2).any(|w| w.text == *c));
        if moves && self.loops > 0 {
            return Err(Unparsed("a change of folder inside a loop"));
        }
        if runs::moves_home(&part) {
            return Err(Unparsed("a change of what `cd` and `~` mean"));
        }
        let scripts = runs::scripts(&part)?;
        self.dirs.follow(&part, self.home);
        self.parts.push(part);
        scripts.iter().try_for_each(|script| self.nested(|outer| outer.split_text(script)))
    }

    /// The plain word that stands here, without taking it; empty if it is quoted or none.
    fn keyword(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| is_meta(c) || matches!(c, '\'' | '"' | '\\' | '$' | '`')).unwrap_or(rest.len());
        let quoted = rest[end..].starts_with(['\'', '"', '\\', '$', '`']);
        if quoted { "" } else { &rest[..end] }
    }

    /// Skips blanks, continued lines and a comment.
    pub(super) fn blanks(&mut self) {
        loop {
            if self.rest().starts_with([' ', '\t']) {
                self.pos += 1;
            } else if !self.eat("\\\n") {
                break;
            }
        }
        let fresh = self.text[..self.pos].chars().next_back().is_none_or(is_meta);
        if fresh && self.peek() == Some('#') {
            self.pos += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn lines(&mut self) -> Result<(), Unparsed> {
        self.blanks();
        while self.peek() == Some('\n') {
            self.newline()?;
            self.blanks();
        }
        Ok(())
    }
}

/// `NAME` of `NAME=value` and `NAME+=value`.
fn assigned_name(raw: &str) -> Option<&str> {
    let (name, _) = raw.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let first = name.bytes().next()?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && !first.is_ascii_digit()).then_some(name)
}

/// `NAME[…`: bash expands what stands in the brackets once more, and assigns if a `=` follows.
fn is_subscripted(raw: &str) -> bool {
    let name = raw.split('[').next().unwrap_or_default();
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    raw.len() > name.len() && plain && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}
