//! The files that a shell command names: in its arguments, in redirections, below the folders it
//! searches. What an argument becomes is only told where it is certain, or a pattern of names.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::path::Target;
use super::policy::Policy;
use super::shell::{Expansion, Part, Word};

/// More files than this that a pattern matches count as unknown.
const MOST_MATCHES: usize = 1000;

/// More names than this in a command are not looked at: nobody can say what they are.
const MOST_NAMES: usize = 2000;

/// Commands that show what is in the files they are given.
const READERS: [&str; 10] = ["cat", "head", "tail", "wc", "grep", "rg", "sort", "uniq", "cut", "diff"];

/// Files that a word may be.
pub(super) enum Named {
    /// These, one for each folder the part may run in, or for each match.
    Known(Vec<Target>),
    /// Nobody can say.
    Unknown,
}

impl Policy {
    /// The files that `word` of `part` may be.
    pub(super) fn targets(&self, part: &Part, word: &Word) -> Named {
        let absolute = word.text.starts_with('/');
        let dirs = match &part.dirs {
            Some(dirs) => dirs.as_slice(),
            None if absolute => std::slice::from_ref(&self.cwd),
            None => return Named::Unknown,
        };
        if word.expansion == Expansion::None {
            return Named::Known(dirs.iter().map(|dir| Target::of_command(Path::new(&word.text), dir)).collect());
        }
        let Some(pattern) = &word.pattern else { return Named::Unknown };
        let mut found = Vec::new();
        for dir in dirs {
            match matching(pattern, dir) {
                // A pattern that matches nothing is handed over as it is.
                Some(paths) if paths.is_empty() => found.push(Target::of_command(Path::new(&word.text), dir)),
                Some(paths) => found.extend(paths.iter().map(|path| Target::of_command(path, dir))),
                None => return Named::Unknown,
            }
        }
        Named::Known(found)
    }

    /// Files that the part names in its arguments, also as `--option=file` or `-ofile`, and in input
    /// redirections, as far as they can be told.
    pub(super) fn files_named(&self, part: &Part) -> Vec<Target> {
        let inputs = part.redirects.iter().filter(|r| !r.writes).map(|r| r.target.clone());
        let arguments = part.arguments().iter().flat_map(|word| self.readings(word));
        let words: Vec<Word> = inputs.chain(arguments).filter(|w| !w.text.is_empty()).take(MOST_NAMES).collect();
        let known = words.iter().filter_map(|word| match self.targets(part, word) {
            Named::Known(targets) => Some(targets),
            Named::Unknown => None,
        });
        known.flatten().collect()
    }

    /// The word itself, and what else it may name: the value of an option, of `name=value`.
    fn readings(&self, word: &Word) -> Vec<Word> {
        let mut all = vec![word.clone()];
        let mut value = |text: &str| {
            // bash expands it behind a `=` too.
            let home = self.home.as_ref().filter(|_| text == "~" || text.starts_with("~/"));
            let text = home.map_or_else(|| text.to_owned(), |home| format!("{}{}", home.display(), &text[1..]));
            all.push(Word { text, raw: word.raw.clone(), expansion: word.expansion, pattern: None });
        };
        match word.text.split_once('=') {
            Some((_, text)) => value(text),
            None if !word.text.starts_with("--") && word.text.is_char_boundary(2.min(word.text.len())) => {
                if let Some(text) = word.text.strip_prefix('-').and_then(|_| word.text.get(2..)) {
                    value(text);
                }
            }
            None => {}
        }
        all
    }

    /// Whether the part shows what is in files of which nobody can say which they are.
    pub(super) fn reads_unknown(&self, part: &Part) -> bool {
        let unknown = |word: &Word| matches!(self.targets(part, word), Named::Unknown);
        if part.redirects.iter().any(|r| !r.writes && unknown(&r.target)) {
            return true;
        }
        let arguments = part.arguments();
        READERS.contains(&part.command())
            && (arguments.len() > MOST_NAMES
                || arguments.iter().any(|word| word.text.starts_with("--files0") || unknown(word)))
    }

    /// Folders below which the part shows what is in all files.
    pub(super) fn searched(&self, part: &Part) -> Vec<Target> {
        let arguments = part.arguments();
        let short = |letters: &[char]| {
            arguments.iter().any(|w| w.text.starts_with('-') && !w.text.starts_with("--") && w.text.contains(letters))
        };
        let long = |name: &str| arguments.iter().any(|w| w.text.len() > 3 && name.starts_with(w.text.as_str()));
        let deep = match part.command() {
            "rg" | "diff" => true,
            "grep" => {
                short(&['r', 'R', 'd']) || long("--recursive") || long("--dereference-recursive") || {
                    arguments.iter().any(|w| w.text.starts_with("--dir"))
                }
            }
            _ => false,
        };
        if !deep {
            return Vec::new();
        }
        let folders: Vec<Target> = self.files_named(part).into_iter().filter(|t| t.real.is_dir()).collect();
        if folders.is_empty() && part.command() != "diff" {
            let here = part.dirs.as_deref().unwrap_or(std::slice::from_ref(&self.cwd));
            return here.iter().map(|dir| Target::new(dir, dir)).collect();
        }
        folders
    }
}

/// The files that `pattern` matches from `dir` on; none if they are too many. Names that begin with a
/// dot count as well, which a shell leaves out unless told otherwise.
fn matching(pattern: &str, dir: &Path) -> Option<Vec<PathBuf>> {
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { dir.to_path_buf() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        let matcher = matcher(part)?;
        for folder in found {
            match &matcher {
                Err(name) => next.push(folder.join(name)),
                Ok(glob) => {
                    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
                    next.extend(entries.filter(|e| glob.is_match(e.file_name())).map(|e| e.path()));
                }
            }
            if next.len() > MOST_MATCHES {
                return None;
            }
        }
        found = next;
    }
    Some(found)
}

/// A name as it is, or what matches it; none if it can't be used.
fn matcher(part: &str) -> Option<Result<GlobMatcher, String>> {
    let (mut name, mut plain) = (String::new(), true);
    let mut characters = part.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => name.extend(characters.next()),
            '*' | '?' => plain = false,
            c => name.push(c),
        }
    }
    if plain {
        return Some(Err(name));
    }
    // `**` is no more than `*` in a name.
    let glob = GlobBuilder::new(part).backslash_escape(true).build().ok()?;
    Some(Ok(glob.compile_matcher()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_a_shell_would_and_dot_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for file in ["a.rs", "b.rs", ".env", "s/key", "t/key", "w*d", "x[1]"] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let names = |pattern: &str| {
            let mut names: Vec<String> = matching(pattern, root)
                .unwrap()
                .iter()
                .map(|p| p.strip_prefix(root).unwrap().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("*.rs"), ["a.rs", "b.rs"]);
        assert_eq!(names("?/key"), ["s/key", "t/key"]);
        assert_eq!(names("*env"), [".env"]);
        assert_eq!(names("w\\**"), ["w*d"]);
        assert_eq!(names("x\\[?\\]"), ["x[1]"]);
        assert_eq!(names("s//*"), ["s/key"]);
        assert!(names("q*").is_empty());
        assert_eq!(matching(&format!("{}/*.rs", root.display()), Path::new("/")).unwrap().len(), 2);
        for i in 0..=MOST_MATCHES {
            std::fs::write(root.join(format!("m{i}")), "").unwrap();
        }
        assert!(matching("m*", root).is_none());
    }
}
