//! What a command is split into.

use std::path::PathBuf;

/// One simple command, wherever it stood: in a list, a pipeline, a subshell, a substitution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// `NAME=value` before the command, or alone.
    pub assignments: Vec<Assignment>,
    /// The command and its arguments; empty for a bare assignment, and for redirections that stand
    /// alone or behind a group.
    pub words: Vec<Word>,
    /// Redirections from or into files. Those of descriptors (`2>&1`) and here-documents are left
    /// out.
    pub redirects: Vec<Redirect>,
    /// Every folder the command may run in; none = unknown.
    pub dirs: Option<Vec<PathBuf>>,
}

/// `NAME=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// As written.
    pub raw: String,
}

/// One word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// As written.
    pub raw: String,
    /// With quotes resolved; expansions stand in it as they are written.
    pub text: String,
    /// What the shell may make of it.
    pub expansion: Expansion,
    /// If all that is to be expanded are `*` and `?`: the word as a pattern, in which `\\` takes the
    /// meaning off the next character.
    pub pattern: Option<String>,
}

/// What may become of a word when the shell expands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expansion {
    /// It is what `text` says.
    #[default]
    None,
    /// One or more words that begin with the first character of `text`.
    Tail,
    /// Anything, also several words or none.
    Free,
}

/// `< file`, `> file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The file.
    pub target: Word,
    /// Whether the file is written.
    pub writes: bool,
}

/// Why a command could not be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unparsed(pub &'static str);

impl Part {
    /// Assignments, command and arguments as written, a space between.
    pub fn raw(&self) -> String {
        let assignments = self.assignments.iter().map(|a| a.raw.as_str());
        join(assignments.chain(self.words.iter().map(|w| w.raw.as_str())))
    }

    /// Command and arguments with quotes resolved, a space between, from the word `from` on.
    pub fn resolved(&self, from: usize) -> String {
        join(self.words.iter().skip(from).map(|w| w.text.as_str()))
    }

    /// The command's name.
    pub fn command(&self) -> &str {
        self.words.first().map_or("", |w| w.text.as_str())
    }

    /// The words after the command.
    pub fn arguments(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Redirections that write a file (the null device and the standard streams are none).
    pub fn writes(&self) -> impl Iterator<Item = &Word> {
        let files = self.redirects.iter().filter(|r| r.writes).map(|r| &r.target);
        files.filter(|w| w.expansion != Expansion::None || !HARMLESS.contains(&w.text.as_str()))
    }
}

const HARMLESS: [&str; 3] = ["/dev/null", "/dev/stdout", "/dev/stderr"];

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}
