//! Words: quotes, expansions, patterns.

use super::part::{Expansion, Unparsed, Word};
use super::split::{End, Splitter};

/// A word while it is read.
#[derive(Default)]
struct Building {
    text: String,
    expansion: Expansion,
    /// An unquoted `{` was seen.
    brace: bool,
    /// Where in `text` an unquoted `[` was seen first.
    bracket: Option<usize>,
}

impl Building {
    /// Something stands here that the shell replaces without splitting it.
    fn replaced(&mut self) {
        let at_start = self.text.is_empty();
        self.expansion = self.expansion.max(if at_start { Expansion::Free } else { Expansion::Tail });
    }

    fn free(&mut self) {
        self.expansion = Expansion::Free;
    }

    fn variable(&mut self, source: &str, quoting: Quoting) {
        match quoting {
            // `"$@"` is several words even in quotes.
            Quoting::Double if !source.contains('@') => self.replaced(),
            _ => self.free(),
        }
        self.text.push_str(source);
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
        Ok(Word { raw: self.text[start..self.pos].to_owned(), text: word.text, expansion: word.expansion })
    }

    fn plain(&mut self, word: &mut Building, c: char) {
        match c {
            '*' | '?' => word.replaced(),
            // A set at the start matches files that begin with anything.
            ']' if word.bracket == Some(0) => word.free(),
            ']' if word.bracket.is_some() => word.replaced(),
            ',' if word.brace => word.free(),
            '.' if word.brace && word.text.ends_with('.') => word.free(),
            '[' => word.bracket = word.bracket.or(Some(word.text.len())),
            '{' => word.brace = true,
            _ => {}
        }
        word.text.push(c);
    }

    fn single_quotes(&mut self, word: &mut Building) -> Result<(), Unparsed> {
        self.bump();
        loop {
            match self.bump() {
                None => return Err(Unparsed("unbalanced quotes")),
                Some('\'') => return Ok(()),
                Some('\n') if self.awaits_body() => return Err(Unparsed("a here-document behind quoted lines")),
                Some(c) => word.text.push(c),
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
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.text.push(c),
                        Some(c) => word.text.extend(['\\', c]),
                    }
                }
                Some('$') => self.dollar(word, Quoting::Double)?,
                Some('`') => self.backticks(word, Quoting::Double)?,
                Some('\n') if self.awaits_body() => return Err(Unparsed("a here-document behind quoted lines")),
                Some(c) => {
                    self.bump();
                    word.text.push(c);
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
                word.text.push(c);
                Ok(())
            }
        }
    }

    /// `~` and `~/…` are the home folder, if it is known; `~name` may be anything.
    fn tilde(&mut self, word: &mut Building) {
        self.bump();
        let ends = self.peek().is_none_or(|c| c == '/' || is_meta(c));
        match self.home.filter(|_| ends) {
            Some(home) => word.text.push_str(&home.to_string_lossy()),
            None => {
                word.free();
                word.text.push('~');
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
                word.text.push('$');
                return Ok(());
            }
        }
        let source = self.text[start..self.pos].to_owned();
        word.variable(&source, quoting);
        Ok(())
    }

    /// `{NAME}`; every other form (defaults, indirection, `@P`) may assign or run something.
    fn braced_name(&mut self) -> Result<(), Unparsed> {
        self.bump();
        let before = self.pos;
        if self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
            self.name();
        }
        let named = self.pos > before;
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
}
