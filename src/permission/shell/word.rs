//! Words: quotes, expansions, patterns.

use super::part::{Expansion, Unparsed, Word};
use super::split::{End, Splitter};

/// A word while it is read.
#[derive(Default)]
struct Building {
    text: String,
    expansion: Expansion,
    /// The same with `*` and `?` as they are and everything else that a pattern takes notice of
    /// behind a backslash.
    pattern: String,
    /// Something else than `*` and `?` is to be expanded.
    opaque: bool,
    /// An unquoted `{` was seen.
    brace: bool,
    /// Where in `text` an unquoted `[` was seen first.
    bracket: Option<usize>,
}

impl Building {
    /// A character that is itself.
    fn push(&mut self, c: char) {
        if "*?[]{}!\\".contains(c) {
            self.pattern.push('\\');
        }
        self.pattern.push(c);
        self.text.push(c);
    }

    /// Something stands here that the shell replaces without splitting it.
    fn replaced(&mut self) {
        let at_start = self.text.is_empty();
        self.expansion = self.expansion.max(if at_start { Expansion::Free } else { Expansion::Tail });
    }

    fn free(&mut self) {
        self.opaque = true;
        self.expansion = Expansion::Free;
    }

    fn variable(&mut self, source: &str, quoting: Quoting) {
        match quoting {
            // `"$@"` is several words even in quotes.
            Quoting::Double if !source.contains('@') => self.replaced(),
            _ => self.free(),
        }
        self.opaque = true;
        self.text.push_str(source);
    }

    fn done(self, raw: &str) -> Word {
        let pattern = (self.expansion != Expansion::None && !self.opaque).then_some(self.pattern);
        Word { raw: raw.to_owned(), text: self.text, expansion: self.expansion, pattern }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Plain,
    Double,
}

/// Whether `c` ends a word.
pub(super) fn is_meta(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

impl Splitter<'_> {
    /// Reads the word at the present place; empty raw text = there is none.
    pub(super) fn word(&mut self) -> Result<Word, Unparsed> {
        let start = self.pos;
        let mut word = Building::default();
        while let Some(c) = self.peek() {
            match c {
                '(' => return Err(Unparsed("a parenthesis inside a word")),
                c if is_meta(c) => break,
                '\'' => self.single_quotes(&mut word)?,
                '"' => self.double_quotes(&mut word)?,
                '\\' => self.escape(&mut word)?,
                '$' => self.dollar(&mut word, Quoting::Plain)?,
                '`' => self.backticks(&mut word, Quoting::Plain)?,
                '~' if self.pos == start => self.tilde(&mut word),
                c => {
                    self.bump();
                    self.plain(&mut word, c);
                }
            }
        }
        Ok(word.done(&self.text[start..self.pos]))
    }

    fn plain(&mut self, word: &mut Building, c: char) {
        match c {
            '*' | '?' => {
                word.replaced();
                word.pattern.push(c);
                word.text.push(c);
                return;
            }
            // A set at the start matches files that begin with anything.
            ']' if word.bracket == Some(0) => word.free(),
            ']' if word.bracket.is_some() => {
                word.opaque = true;
                word.replaced();
            }
            ',' if word.brace => word.free(),
            '.' if word.brace && word.text.ends_with('.') => word.free(),
            '[' => word.bracket = word.bracket.or(Some(word.text.len())),
            '{' => word.brace = true,
            _ => {}
        }
        word.push(c);
    }

    fn single_quotes(&mut self, word: &mut Building) -> Result<(), Unparsed> {
        self.bump();
        loop {
            match self.bump() {
                None => return Err(Unparsed("unbalanced quotes")),
                Some('\'') => return Ok(()),
                Some('\n') if self.awaits_body() => return Err(Unparsed("a here-document behind quoted lines")),
                Some(c) => word.push(c),
            }
        }
    }

    fn double_quotes(&mut self, word: &mut Building) -> Result<(), Unparsed> {
        self.bump();
        loop {
            match self.peek() {
                None => return Err(Unparsed("unbalanced quotes")),
                Some('"') => {
                    self.bump();
                    return Ok(());
                }
                Some('\\') => {
                    self.bump();
                    match self.bump() {
                        None => return Err(Unparsed("unbalanced quotes")),
                        Some('\n') => return Err(Unparsed("a word that goes on in the next line")),
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c),
                        Some(c) => ['\\', c].into_iter().for_each(|c| word.push(c)),
                    }
                }
                Some('$') => self.dollar(word, Quoting::Double)?,
                Some('`') => self.backticks(word, Quoting::Double)?,
                Some('\n') if self.awaits_body() => return Err(Unparsed("a here-document behind quoted lines")),
                Some(c) => {
                    self.bump();
                    word.push(c);
                }
            }
        }
    }

    fn escape(&mut self, word: &mut Building) -> Result<(), Unparsed> {
        self.bump();
        match self.bump() {
            None => Err(Unparsed("a backslash at the end")),
            // The shell joins the lines before it looks for names, keywords and operators.
            Some('\n') => Err(Unparsed("a word that goes on in the next line")),
            Some(c) => {
                word.push(c);
                Ok(())
            }
        }
    }

    /// `~` and `~/…` are the home folder, if it is known; `~name` may be anything.
    fn tilde(&mut self, word: &mut Building) {
        self.bump();
        let ends = self.peek().is_none_or(|c| c == '/' || is_meta(c));
        match self.home.filter(|_| ends) {
            Some(home) => home.to_string_lossy().chars().for_each(|c| word.push(c)),
            None => {
                word.free();
                word.push('~');
            }
        }
    }

    fn dollar(&mut self, word: &mut Building, quoting: Quoting) -> Result<(), Unparsed> {
        let start = self.pos;
        self.bump();
        match self.peek() {
            Some('(') if self.rest().starts_with("((") => return Err(Unparsed("arithmetic")),
            Some('(') => {
                self.bump();
                self.nested(|inner| inner.list(End::Paren))?;
            }
            Some('{') => self.braced_name()?,
            Some('[') => return Err(Unparsed("arithmetic")),
            Some('\'' | '"') if quoting == Quoting::Plain => return Err(Unparsed("quotes with `$` before them")),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(),
            Some(c) if c.is_ascii_digit() || "?$!#@*-".contains(c) => {
                self.bump();
            }
            _ => {
                word.push('$');
                return Ok(());
            }
        }
        let source = self.text[start..self.pos].to_owned();
        word.variable(&source, quoting);
        Ok(())
    }

    /// `{NAME}`, `{#NAME}`, and forms that take plain text off it or put some in its place; every
    /// other one (assignment, indirection, `@P`, arithmetic) may assign or run something.
    fn braced_name(&mut self) -> Result<(), Unparsed> {
        self.bump();
        let counts = self.eat("#");
        let before = self.pos;
        if self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
            self.name();
        }
        let named = self.pos > before;
        if !counts && ["%%", "%", "##", "#", ":-", "-", ":+", "+"].iter().any(|op| self.eat(op)) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-+/*? ,:".contains(c);
            while self.peek().is_some_and(plain) {
                self.bump();
            }
        }
        match self.bump() {
            Some('}') if named => Ok(()),
            _ => Err(Unparsed("an expansion that is more than a name")),
        }
    }

    fn name(&mut self) {
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.bump();
        }
    }

    fn backticks(&mut self, word: &mut Building, quoting: Quoting) -> Result<(), Unparsed> {
        let start = self.pos;
        self.bump();
        let inner_start = self.pos;
        loop {
            match self.bump() {
                None => return Err(Unparsed("unbalanced backticks")),
                Some('\\') => return Err(Unparsed("a backslash inside backticks")),
                Some('`') => break,
                Some(_) => {}
            }
        }
        let inner = self.text[inner_start..self.pos - 1].to_owned();
        self.nested(|outer| outer.split_text(&inner))?;
        let source = self.text[start..self.pos].to_owned();
        word.variable(&source, quoting);
        Ok(())
    }

    /// Reads the body of a here-document, in which only `$` and backticks mean something.
    pub(super) fn expand(&mut self, body: &str) -> Result<(), Unparsed> {
        self.read_text(body, |inner| {
            // What becomes of the text is nobody's word.
            let mut word = Building::default();
            loop {
                match inner.peek() {
                    None => return Ok(()),
                    Some('$') => inner.dollar(&mut word, Quoting::Double)?,
                    Some('`') => inner.backticks(&mut word, Quoting::Double)?,
                    Some(c) => {
                        inner.bump();
                        if c == '\\' {
                            inner.bump();
                        }
                    }
                }
            }
        })
    }
}
