//! Patterns of rules about `Bash`, held against the simple commands that a line runs.

use super::shell::{Expansion, HARMLESS_VARIABLES, Part, is_wrapper};

/// Words behind a wrapper that are tried as the command it runs; of a longer line nobody can say.
const MOST_POSITIONS: usize = 64;
/// Words behind a command that may be options before its subcommand.
const MOST_OPTIONS: usize = 8;

/// What a rule says between its parentheses.
#[derive(Clone, Debug)]
pub(super) enum CommandPattern {
    Exact(String),
    Prefix(String),
    /// `*` stands for any characters.
    Wildcard(String),
}

/// Whether a command is what a rule forbids or asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Touch {
    No,
    /// It may become it when the shell expands it.
    May,
    Yes,
}

impl CommandPattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix(":*") {
            Some("") => Err("nothing stands before `:*`".to_owned()),
            Some(prefix) if !prefix.contains('*') => Ok(Self::Prefix(prefix.to_owned())),
            Some(prefix) => Ok(Self::Wildcard(format!("{prefix} *"))),
            None if text.contains('*') => Ok(Self::Wildcard(text.to_owned())),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => {
                text.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
            }
            Self::Wildcard(pattern) => {
                // `ls *` is also `ls` alone.
                let alone = pattern.strip_suffix(" *").is_some_and(|start| wildcard(start, text));
                alone || wildcard(pattern, text)
            }
        }
    }

    /// What every text that matches begins with.
    fn beginning(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
            Self::Wildcard(pattern) => pattern.split('*').next().unwrap_or_default().trim_end(),
        }
    }

    /// Whether the command is what the pattern says, in any disguise that can be seen through: behind
    /// a wrapper, as a path, with options before its subcommand, with an expansion in a place that
    /// decides.
    pub(super) fn touches(&self, part: &Part) -> Touch {
        if self.matches(&part.raw()) {
            return Touch::Yes;
        }
        let joined = Joined::new(part);
        let itself = self.touches_at(&joined, 0);
        if !is_wrapper(part.command()) || itself == Touch::Yes {
            return itself;
        }
        let wrapped = (1..part.words.len().min(MOST_POSITIONS)).map(|at| self.touches_at(&joined, at));
        let found = wrapped.filter(|touch| *touch == Touch::Yes).max().unwrap_or(itself);
        let unseen = part.words.len() > MOST_POSITIONS || wrapped_is_unknown(part);
        if unseen { found.max(Touch::May) } else { found }
    }

    fn touches_at(&self, joined: &Joined<'_>, at: usize) -> Touch {
        let Some(word) = joined.part.words.get(at) else { return Touch::No };
        let rest = joined.from(at);
        let path = word.text.as_str();
        let bare = path.rsplit('/').next().unwrap_or(path);
        if self.matches(rest) || self.matches(&format!("{bare}{}", &rest[path.len()..])) {
            return Touch::Yes;
        }
        let mut behind = joined.subcommands(at).into_iter().map(|from| format!("{bare} {}", joined.from(from)));
        if behind.any(|text: String| self.matches(&text)) {
            return Touch::Yes;
        }
        if self.may_become(joined.part, at, bare) { Touch::May } else { Touch::No }
    }

    /// Whether an expansion stands where the pattern still says something.
    fn may_become(&self, part: &Part, at: usize, bare: &str) -> bool {
        let mut known = String::new();
        for (i, word) in part.words.iter().enumerate().skip(at) {
            if word.expansion != Expansion::None {
                let beginning = self.beginning();
                return beginning.len() > known.len() && beginning.starts_with(&known);
            }
            known.push_str(if i == at { bare } else { &word.text });
            known.push(' ');
        }
        false
    }

    /// Whether the command is what the pattern allows: as written, or with its quotes resolved.
    /// Variables set for the command must be part of the pattern, but for those that change nothing.
    pub(super) fn spans(&self, part: &Part) -> bool {
        if part.words.is_empty() {
            return false;
        }
        // A word with blanks in it is not the words that the rule names.
        let named = self.beginning().split_whitespace().count().max(1);
        let disguised = part.words.iter().take(named).any(|w| w.text.contains(char::is_whitespace));
        let plain = part.assignments.iter().all(|a| HARMLESS_VARIABLES.contains(&a.name.as_str()));
        self.matches(&part.raw()) && !part.command().contains(char::is_whitespace)
            || (plain && !disguised && self.matches(&part.resolved(0)))
    }
}

/// Whether the command that a wrapper runs is an expansion.
fn wrapped_is_unknown(part: &Part) -> bool {
    let words = &part.words;
    let is_option = |text: &str| {
        text.starts_with('-') || text.contains('=') || text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
    };
    // The first word that is no option, and the next if that may be an option's value.
    let Some(at) = (1..words.len()).find(|at| words[*at].expansion != Expansion::None || !is_option(&words[*at].text))
    else {
        return false;
    };
    let is_value = words[at - 1].text.starts_with('-');
    words[at..].iter().take(if is_value { 2 } else { 1 }).any(|w| w.expansion != Expansion::None)
}

/// The words of a part with a blank between, and where each begins.
struct Joined<'a> {
    part: &'a Part,
    text: String,
    starts: Vec<usize>,
}

impl<'a> Joined<'a> {
    fn new(part: &'a Part) -> Self {
        let (mut text, mut starts) = (String::new(), Vec::with_capacity(part.words.len()));
        for word in &part.words {
            if !starts.is_empty() {
                text.push(' ');
            }
            starts.push(text.len());
            text.push_str(&word.text);
        }
        Self { part, text, starts }
    }

    fn from(&self, at: usize) -> &str {
        self.starts.get(at).map_or("", |start| &self.text[*start..])
    }

    /// Words that may be the subcommand of the command at `at`: those behind its options, each of
    /// which may take a value.
    fn subcommands(&self, at: usize) -> Vec<usize> {
        let mut reached = vec![at + 1];
        let mut found = Vec::new();
        let end = self.part.words.len().min(at + 1 + MOST_OPTIONS);
        for i in at + 1..end {
            if !reached.contains(&i) || !self.part.words[i].text.starts_with('-') {
                continue;
            }
            for next in [i + 1, i + 2] {
                if next < self.part.words.len() && !reached.contains(&next) {
                    reached.push(next);
                    found.push(next);
                }
            }
        }
        found
    }
}

/// `*` in `pattern` stands for any characters, nothing else is special.
fn wildcard(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let rows = [
            ("git * main", "git push origin main", true),
            ("git * main", "git main", false),
            ("ls *", "ls", true),
            ("ls *", "lsof", false),
            ("ls*", "lsof", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("*x*", "axb", true),
        ];
        for (pattern, text, expected) in rows {
            let command = CommandPattern::Wildcard(pattern.to_owned());
            assert_eq!(command.matches(text), expected, "{pattern} {text}");
        }
    }
}
