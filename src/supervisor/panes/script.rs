//! A script for tmux: commands as lists of words, one per line. A command that fails ends its own line
//! and no other.

use super::quote::word;

/// What begins a line of output that we asked for; whatever else tmux says are complaints.
pub(super) const TAG: &str = "lead:";

/// Commands that are carried out in order.
#[derive(Debug, Default)]
pub(super) struct Script {
    commands: Vec<Vec<String>>,
}

impl Script {
    /// Adds a command.
    pub(super) fn add<S: Into<String>>(&mut self, words: impl IntoIterator<Item = S>) {
        self.commands.push(words.into_iter().map(Into::into).collect());
    }

    /// Adds commands for the case that a format is true of `target`. What `target` is looked up in
    /// must be named in the commands again: tmux reads the format elsewhere if it is gone.
    pub(super) fn add_if(&mut self, target: &str, format: &str, then: &Self) {
        self.add(["if-shell", "-F", "-t", target, format, &then.lines().join(" ; ")]);
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The script as tmux reads it.
    pub(super) fn text(&self) -> String {
        self.lines().into_iter().map(|line| line + "\n").collect()
    }

    fn lines(&self) -> Vec<String> {
        let line = |words: &Vec<String>| words.iter().map(|w| word(w)).collect::<Vec<_>>().join(" ");
        self.commands.iter().map(line).collect()
    }

    /// The commands for a log: of variables only the names.
    pub(super) fn shown(&self) -> impl Iterator<Item = Vec<&str>> {
        self.commands.iter().map(|words| {
            let before = std::iter::once("").chain(words.iter().map(String::as_str));
            let name = |word| str::split_once(word, '=').map_or(word, |(name, _)| name);
            before.zip(words).map(|(before, word)| if before == "-e" { name(word) } else { word }).collect()
        })
    }
}

/// What tmux printed.
#[derive(Debug)]
pub(super) struct Answer {
    /// Lines that begin with [`TAG`], without it, and those between them.
    lines: Vec<String>,
}

impl Answer {
    pub(super) fn new(output: &[u8]) -> Self {
        Self { lines: String::from_utf8_lossy(output).lines().map(str::to_owned).collect() }
    }

    /// The words behind `lead:<tag> ` of each such line.
    pub(super) fn tagged<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
        self.lines.iter().filter_map(move |line| {
            let rest = line.strip_prefix(TAG)?.strip_prefix(tag)?.strip_prefix(' ')?;
            Some(rest.split(' ').collect())
        })
    }

    /// What comes before the line that is `lead:<tag>`.
    pub(super) fn before(&self, tag: &str) -> Self {
        let is_mark = |line: &&String| line.strip_prefix(TAG) == Some(tag);
        Self { lines: self.lines.iter().take_while(|line| !is_mark(line)).cloned().collect() }
    }

    /// The lines behind the one that is `lead:<tag>`.
    pub(super) fn behind<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = &'a str> {
        let is_mark = move |line: &String| line.strip_prefix(TAG) == Some(tag);
        self.lines.iter().skip_while(move |line| !is_mark(line)).skip(1).map(String::as_str)
    }

    /// What tmux complained of.
    pub(super) fn complaints(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).filter(|l| !l.starts_with(TAG)).collect();
        crate::core::text::one_line(&lines.join("; "), 300)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown() {
        let mut script = Script::default();
        script.add(["new-window", "-e", "NAME=secret=x", "-e", "EMPTY=", "--", "a=b"]);
        let shown: Vec<_> = script.shown().collect();
        assert_eq!(shown, [["new-window", "-e", "NAME", "-e", "EMPTY", "--", "a=b"]]);
    }

    #[test]
    fn commands_in_a_condition_are_one_word() {
        let mut then = Script::default();
        then.add(["kill-pane", "-t", "%1"]);
        then.add(["rename-window", "a b"]);
        let mut script = Script::default();
        script.add_if("%1", "1", &then);
        let inner = "kill-pane\\040-t\\040%1\\040\\073\\040rename-window\\040\\042a\\134040b\\042";
        assert_eq!(script.text(), format!("if-shell -F -t %1 1 \"{inner}\"\n"));
    }

    #[test]
    fn answers_are_told_from_complaints() {
        let answer = Answer::new(b"lead:new 0 %1 7\nno space\nlead:new 1 %2 8\nlead:end\nlead:new 2 %3 9\nA=b\n");
        assert_eq!(answer.before("end").tagged("new").count(), 2);
        assert_eq!(answer.behind("end").collect::<Vec<_>>(), ["lead:new 2 %3 9", "A=b"]);
        assert_eq!(answer.complaints(), "no space; A=b");
        assert_eq!(answer.tagged("ne").count() + answer.tagged("end").count(), 0);
    }
}
