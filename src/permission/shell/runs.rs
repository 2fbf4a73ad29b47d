//! Commands that run other commands, or change what later words mean.

use super::part::{Expansion, Part, Unparsed, Word};

/// Programs whose `-c` argument is a command again.
const SHELLS: [&str; 8] = ["sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh"];

/// Commands that run the command behind them.
const WRAPPERS: [&str; 40] = [
    "sudo",
    "doas",
    "pkexec",
    "runuser",
    "su",
    "env",
    "nohup",
    "timeout",
    "time",
    "xargs",
    "parallel",
    "command",
    "builtin",
    "exec",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "stdbuf",
    "unbuffer",
    "setsid",
    "setpriv",
    "prlimit",
    "numactl",
    "busybox",
    "toybox",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "script",
    "watch",
    "strace",
    "ltrace",
    "fakeroot",
    "systemd-run",
    "systemd-inhibit",
    "dbus-run-session",
    "find",
    "entr",
];

/// Of the wrappers those that take a whole command line in one argument.
const CARRIERS: [&str; 7] = ["su", "runuser", "parallel", "flock", "script", "watch", "entr"];

/// Builtins that run text, or make later words mean something else than they say.
const OPAQUE: [&str; 7] = ["eval", "trap", "alias", "enable", "hash", "compgen", "complete"];

/// Builtins that assign variables, whose subscripts run commands.
const ASSIGNERS: [&str; 15] = [
    "test",
    "[",
    "let",
    "declare",
    "typeset",
    "local",
    "readonly",
    "export",
    "read",
    "unset",
    "printf",
    "mapfile",
    "readarray",
    "getopts",
    "wait",
];

/// Variables that change how text looks and nothing else.
pub(in crate::permission) const HARMLESS_VARIABLES: [&str; 5] = ["LC_ALL", "LANG", "TZ", "NO_COLOR", "COLUMNS"];

/// The file name of a command.
pub(super) fn bare(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Whether the command `name` runs the command behind it.
pub(in crate::permission) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.contains(&bare(name))
}

/// Scripts that the part hands to shells; an error if it runs something that can't be seen.
pub(super) fn scripts(part: &Part) -> Result<Vec<String>, Unparsed> {
    let name = bare(part.command());
    let words = &part.words;
    let runs = |text: &str| is_wrapper(name) && words.iter().skip(1).any(|w| w.text == text);
    if OPAQUE.contains(&name) || OPAQUE.iter().any(|opaque| runs(opaque)) {
        return Err(Unparsed("a builtin that runs text or gives words another meaning"));
    }
    let carries =
        |w: &Word| w.text.contains(char::is_whitespace) || ["-c", "--c", "--s"].iter().any(|o| w.text.starts_with(o));
    if CARRIERS.contains(&name) && words.iter().skip(1).any(carries) {
        return Err(Unparsed("a command inside an argument"));
    }
    let splits = |w: &Word| w.text.starts_with("-S") || w.text.starts_with("--split");
    if name == "env" && words.iter().skip(1).any(splits) {
        return Err(Unparsed("a command inside an argument"));
    }
    let calls_back = matches!(name, "mapfile" | "readarray") && words.iter().any(|w| w.text.starts_with("-C"));
    if calls_back || assigns_by_command(name, part) {
        return Err(Unparsed("a builtin that runs a command by the way"));
    }
    let mut scripts = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if SHELLS.contains(&bare(&word.text)) && is_run(at, words) {
            scripts.extend(script(&words[at + 1..])?);
        }
    }
    Ok(scripts)
}

/// Whether the word at `at` is a command that is run.
fn is_run(at: usize, words: &[Word]) -> bool {
    let name = bare(words.first().map_or("", |w| w.text.as_str()));
    match at {
        0 => true,
        _ if name == "find" => words[at - 1].text.starts_with("-exec") || words[at - 1].text.starts_with("-ok"),
        _ => is_wrapper(name),
    }
}

/// The text that the arguments of a shell make it run; none = a file.
fn script(arguments: &[Word]) -> Result<Option<String>, Unparsed> {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let text = word.text.as_str();
        if word.expansion != Expansion::None {
            return Err(Unparsed("a shell that is handed something unknown"));
        }
        match text {
            "--version" | "--help" => return Ok(None),
            "--rcfile" | "--init-file" => drop(arguments.next()),
            _ if text.starts_with("--") => {}
            _ if text.starts_with('-') && text.contains('c') => {
                let script = arguments.next().filter(|w| w.expansion == Expansion::None);
                let script = script.filter(|w| !w.text.starts_with(['-', '+']));
                return match script {
                    Some(script) => Ok(Some(script.text.clone())),
                    None => Err(Unparsed("a shell that is handed an unknown script")),
                };
            }
            _ if text.starts_with(['-', '+']) => {
                if text.contains('s') && text.starts_with('-') {
                    break;
                }
                if text.ends_with(['o', 'O']) {
                    arguments.next();
                }
            }
            _ => return Ok(None),
        }
    }
    Err(Unparsed("a shell that reads its commands from its input"))
}

/// Subscripts are expanded once more when they are assigned: `read 'a[$(x)]'` runs x.
fn assigns_by_command(name: &str, part: &Part) -> bool {
    let name_and_text = |w: &Word| w.text.contains('[') && w.text.contains(['$', '`']);
    let is_printf = name == "printf" && !part.arguments().first().is_some_and(|w| w.text.starts_with("-v"));
    ASSIGNERS.contains(&name) && !is_printf && part.arguments().iter().any(name_and_text)
}

/// Whether the part gives `HOME` or `CDPATH` another value, on which `cd` and `~` depend.
pub(super) fn moves_home(part: &Part) -> bool {
    let named = |text: &str| {
        let name = text.split(['=', '+']).next().unwrap_or(text);
        matches!(name, "HOME" | "CDPATH")
    };
    let assigns = part.words.is_empty() && part.assignments.iter().any(|a| named(&a.name));
    assigns || (ASSIGNERS.contains(&bare(part.command())) && part.arguments().iter().any(|w| named(&w.text)))
}
