//! The commands that change nothing (spec 8.2) and the options with which they do after all.

use super::shell::{Expansion, HARMLESS_VARIABLES, Part, Word};

/// What a simple command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It only reads, whatever its operands become.
    ReadOnly,
    /// It only reads if it runs in a folder whose git configuration can be trusted.
    Git,
    /// It is not on the list, or an option makes it change something; the reason.
    Other(&'static str),
}

/// Those that only read whatever they are given. `cd` is among them because it changes nothing that
/// outlives the command; where it leads to is followed by the splitter.
const ANY_ARGUMENTS: [&str; 16] = [
    "cd", "ls", "cat", "head", "tail", "wc", "pwd", "echo", "grep", "cut", "diff", "stat", "du", "which", "true",
    "false",
];

/// Judges one simple command by its name and arguments; redirections are judged elsewhere.
pub(super) fn judge(part: &Part) -> Verdict {
    if part.assignments.iter().any(|a| !HARMLESS_VARIABLES.contains(&a.name.as_str())) {
        return Verdict::Other("it sets a variable");
    }
    let arguments = part.arguments();
    let command = part.command();
    if ANY_ARGUMENTS.contains(&command) || (part.words.is_empty() && part.assignments.is_empty()) {
        return Verdict::ReadOnly;
    }
    let harmful = match command {
        "find" => find_acts,
        "sort" => sort_writes,
        "uniq" => uniq_writes,
        "tree" => tree_writes,
        "file" => file_acts,
        "rg" => rg_acts,
        "printf" => printf_assigns,
        "git" => git_acts,
        _ => return Verdict::Other("it is not on the read-only list"),
    };
    if command != "printf" && !arguments.iter().all(is_certain) {
        return Verdict::Other("an argument may become an option that writes");
    }
    match (harmful(arguments), command) {
        (true, _) => Verdict::Other("with these arguments it is not read-only"),
        (false, "git") => Verdict::Git,
        (false, _) => Verdict::ReadOnly,
    }
}

/// Whether the word can't turn into an option that isn't written there.
fn is_certain(word: &Word) -> bool {
    match word.expansion {
        Expansion::None => true,
        Expansion::Tail => !word.text.starts_with('-'),
        Expansion::Free => false,
    }
}

fn texts(words: &[Word]) -> impl Iterator<Item = &str> {
    words.iter().map(|w| w.text.as_str())
}

/// `-abc` with one of `letters` in it. Letters may belong to an option's value: then a harmless
/// command asks, which is the better mistake.
fn has_short(words: &[Word], letters: &[char]) -> bool {
    texts(words).any(|t| t.starts_with('-') && !t.starts_with("--") && t.contains(letters))
}

/// `--name`, `--name=value`, or a beginning of it, which GNU programs and git accept too.
fn has_long(words: &[Word], name: &str) -> bool {
    texts(words).any(|t| {
        let given = t.split('=').next().unwrap_or(t);
        given.len() > 2 && name.starts_with(given)
    })
}

fn find_acts(words: &[Word]) -> bool {
    let acts = ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls"];
    texts(words).any(|t| acts.contains(&t) || t.starts_with("-fprint"))
}

fn sort_writes(words: &[Word]) -> bool {
    has_short(words, &['o']) || has_long(words, "--output") || has_long(words, "--compress-program")
}

/// A second operand is the file that is written.
fn uniq_writes(words: &[Word]) -> bool {
    let (mut operands, mut options) = (0, true);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.text.as_str() {
            "-f" | "-s" | "-w" if options => {
                words.next();
            }
            "--" if options => options = false,
            option if options && option.len() > 1 && option.starts_with('-') => {}
            // A pattern can become two operands.
            _ => operands += if word.expansion == Expansion::None { 1 } else { 2 },
        }
    }
    operands > 1
}

fn tree_writes(words: &[Word]) -> bool {
    has_short(words, &['o', 'R']) || has_long(words, "--output")
}

fn file_acts(words: &[Word]) -> bool {
    has_short(words, &['C', 'z', 'Z']) || has_long(words, "--compile") || has_long(words, "--uncompress")
}

fn rg_acts(words: &[Word]) -> bool {
    let named = |t: &str| ["--pre", "--hostname-bin", "--search-zip"].contains(&t.split('=').next().unwrap_or(t));
    texts(words).any(named) || has_short(words, &['z'])
}

/// `printf -v NAME` and `printf %n NAME` set a variable, also `PATH`.
fn printf_assigns(words: &[Word]) -> bool {
    let format = match words {
        [first, second, ..] if first.text == "--" => second,
        [first, ..] => first,
        [] => return false,
    };
    !is_certain(format) || format.text.starts_with("-v") || format.expansion != Expansion::None || counts(&format.text)
}

/// Whether the format has a conversion that ends in `n`.
fn counts(format: &str) -> bool {
    format.replace("%%", "").split('%').skip(1).any(|conversion| {
        let end = conversion.trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #'0*.hlLjzt".contains(c));
        end.starts_with('n')
    })
}

fn git_acts(words: &[Word]) -> bool {
    let globals = ["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"];
    let start = words.iter().position(|w| !globals.contains(&w.text.as_str())).unwrap_or(words.len());
    let Some((subcommand, rest)) = words[start..].split_first() else { return true };
    match subcommand.text.as_str() {
        "status" | "rev-parse" => false,
        "log" | "diff" | "show" => has_long(rest, "--output") || has_long(rest, "--ext-diff"),
        "branch" => branch_acts(rest),
        _ => true,
    }
}

fn branch_acts(rest: &[Word]) -> bool {
    let harmless = ["-a", "-r", "-v", "-vv", "--all", "--remotes", "--verbose", "--no-color", "--no-column"];
    let Some((first, rest)) = rest.split_first() else { return true };
    first.text != "--list"
        || texts(rest).any(|t| {
            t.starts_with('-') && !harmless.contains(&t) && !t.starts_with("--sort=") && !t.starts_with("--format=")
        })
}
