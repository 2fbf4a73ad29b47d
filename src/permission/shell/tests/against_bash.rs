//! What the splitter finds, held against what bash runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::permission::shell::runs::is_wrapper;

/// Scripts that are mostly nonsense: they find out whether anything panics, and what is joined wrongly.
fn tokens() -> impl Strategy<Value = String> {
    let tokens = prop::sample::select(vec![
        "a", "b", "c1", "cd", "x", " ", " ", " ", " ", "\n", ";", "&&", "||", "|", "&", "(", ")", "{", "}", "'", "\"",
        "\\", "$", "$(", "`", "$x", "${x}", "#", "if", "then", "fi", "for", "in", "do", "done", "while", "!", "<<E",
        "\nE\n", "<<'E'", "=", "~", "*", "[", "]", ",", "é", "\t", "echo", "sh -c", "else", "elif", "until", "\r",
        "\\\n", "<<-E", ">&2", "<<<", "()", "2>", "&>", "-c", "bash", "case", "esac", "time", "coproc", "<(", ">(",
        "time -p", "command", "exec", "${x%", "${#x}", "\u{a0}", "env", "{fd}>", "a[0]=", "-S",
    ]);
    prop::collection::vec(tokens, 0..24).prop_map(|t| t.concat())
}

/// Names of commands: those with an even number succeed.
fn name() -> impl Strategy<Value = String> {
    (0..8u8).prop_map(|n| format!("k{n}"))
}

/// Scripts that bash understands, and that end.
fn scripts() -> impl Strategy<Value = String> {
    let leaf = name().prop_map(|name| format!("{name} x")).boxed();
    leaf.prop_recursive(5, 40, 4, |inner| {
        let word = words(inner.clone());
        let words = prop::collection::vec(word, 0..3).prop_map(|words| words.join(" "));
        let simple = (prefixes(), name(), words, redirects(inner.clone()))
            .prop_map(|(prefix, name, words, redirect)| format!("{prefix}{name} {words} {redirect}"));
        let two =
            |join: &'static str| (inner.clone(), inner.clone()).prop_map(move |(a, b)| format!("{a}{join}{b}")).boxed();
        let lists = [" && ", " || ", "; ", "\n", " | ", " |& ", " & ", " && \\\n", " # k9\n"].map(two).to_vec();
        let wrap = |form: &'static str| inner.clone().prop_map(move |list| form.replace('@', &list)).boxed();
        let groups = [
            "(@)",
            "{ @\n}",
            "! { @\n}",
            "if @\nthen @\nelif k1; then @\nelse @\nfi",
            "while @\ndo @\nbreak; done",
            "until @\ndo @\nbreak; done",
            "for v in 1 $(@); do @\ndone",
            "case x in x) @\n;; *) k7;; esac",
            "f() { @\n}; f",
            "coproc { @\n}",
            "time -p { @\n}",
            "bash -c '@'",
            "sh -ec '@'",
            "eval '@'",
            "command bash -c '@'",
            "[[ -n $(@) ]]",
            "(( $(@) + 1 ))",
            "a=(1 $(@))",
            "trap '@' EXIT",
            "{ @\n} > out 2>&1",
            "for v in 1; do @\ndone < <(@)",
            "cat <<< $(@)",
        ]
        .map(wrap)
        .to_vec();
        prop_oneof![4 => simple, 4 => prop::strategy::Union::new(lists), 4 => prop::strategy::Union::new(groups)]
    })
}

fn prefixes() -> impl Strategy<Value = &'static str> {
    let prefixes =
        ["", "", "", "A=1 ", "A='x y' B=$A ", "command ", "! ", "time ", "> out ", "exec ", "\\\n", "A=$(k2) "];
    prop::sample::select(prefixes.to_vec())
}

fn words(list: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    let plain = [
        "y",
        "'a b'",
        "\"$v\"",
        "$v",
        "*",
        "a*",
        "{p,q}",
        "~",
        "\\;",
        "'k9'",
        "#k9",
        "a#b",
        "$((1+1))",
        "-c",
        "\"\\\"\"",
        "${v%x}",
        "${v:-k9}",
        "$'k9'",
        "<(k4)",
        "\"a\\\nb\"",
        "a\\\nb",
        "[ab]",
        "=",
        "if",
        "}",
        "$",
        "\"`k6`\"",
    ];
    let plain = prop::sample::select(plain.to_vec()).prop_map(str::to_owned);
    let around = [
        "$(@)",
        "\"$(@)\"",
        "a$(@)b",
        "<(@)",
        "\"${v:-$(@)}\"",
        "$(@\n)",
        "\"a $(@) $v\"",
        "$( (@) )",
        "$({ @\n})",
        "\"$(cat <<E\n$(@)\nE\n)\"",
        "${v+$(@)}",
        "`@`",
    ];
    let around = (prop::sample::select(around.to_vec()), list).prop_map(|(form, list)| match form {
        // Inside backticks a backslash or another backtick means something else.
        "`@`" if list.contains(['`', '\\']) => "``".to_owned(),
        form => form.replace('@', &list),
    });
    prop_oneof![3 => plain, 2 => around]
}

fn redirects(list: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    let forms = [
        "",
        "",
        "",
        "",
        "> out",
        "2>&1",
        ">| out",
        "&> out",
        "< /dev/null",
        "> >(@)",
        "<<E\n$(@) `k2` \\$(k9)\nE\n",
        "<<'E'\n$(k9)\nE\n",
        "<<-E\n\t@\n\tE\n",
        "<<A <<B\n1 $(@)\nA\n$(k0)\nB\n",
        "<<< \"$(@)\"",
        "2> $(k0; echo out)",
    ];
    (prop::sample::select(forms.to_vec()), list).prop_map(|(form, list)| form.replace('@', &list))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn splitting_never_panics_and_is_the_same_on_what_it_gave(
        command in prop_oneof![tokens(), scripts(), any::<String>(), "[a-z $()`'\"\\\\;&|<>{}\n*#~=-]{0,60}"]
    ) {
        let home = Path::new("/home/me");
        let Ok(parts) = split(&command, Path::new("/w"), Some(home)) else { return Ok(()) };
        for part in parts {
            let certain = part.words.iter().all(|w| w.expansion == Expansion::None);
            if !certain || part.words.is_empty() || part.dirs.is_none() {
                continue;
            }
            let again: Vec<String> = part.words.iter().map(|w| quoted(&w.text)).collect();
            let again = split(&again.join(" "), Path::new("/w"), Some(home)).unwrap();
            let texts = |part: &Part| part.words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
            prop_assert!(again.iter().any(|a| texts(a) == texts(&part)), "{:?} became {:?}", part, again);
        }
    }

    #[test]
    fn quoted_text_is_one_word(text in any::<String>().prop_filter("null", |t| !t.contains('\0'))) {
        let parts = split(&format!("echo {}", quoted(&text)), Path::new("/w"), None).unwrap();
        prop_assert_eq!(parts.len(), 1);
        prop_assert_eq!(&parts[0].words[1].text, &text);
        prop_assert_eq!(parts[0].words[1].expansion, Expansion::None);
    }
}

/// A bash that knows no program but itself, and writes down what it would have run.
struct Judge {
    _dir: tempfile::TempDir,
    root: PathBuf,
    runs: usize,
}

impl Judge {
    fn new() -> Option<Self> {
        let Ok(bash) = which::which("bash") else {
            assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "bash is missing");
            eprintln!("SKIPPED (no bash)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        for folder in ["bin", "work", "traces"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        for name in ["bash", "sh"] {
            std::os::unix::fs::symlink(&bash, root.join("bin").join(name)).unwrap();
        }
        Some(Self { _dir: dir, root, runs: 0 })
    }

    /// What bash runs. Each run has a trace of its own: what a background command writes late is
    /// lost, not mixed up.
    fn run(&mut self, command: &str) -> BTreeSet<Vec<String>> {
        self.runs += 1;
        let trace = self.root.join(format!("traces/{}", self.runs));
        let handler = "command_not_found_handle() { local IFS=$'\\037'; printf '%s\\036' \"$*\" >>\"$LEAD_TRACE\"; \
                       [[ $1 != *[13579] ]]; }\nexport -f command_not_found_handle\n";
        let script = format!("{handler}enable -n echo\n{command}\nwait\n");
        std::fs::write(&trace, "").unwrap();
        let path = self.root.join("bin/bash");
        // Scripts end by themselves; should one not, its trace up to then is what is looked at.
        let mut bash = match which::which("timeout") {
            Ok(timeout) => {
                let mut limited = Command::new(timeout);
                limited.args(["-s", "KILL", "20"]).arg(path);
                limited
            }
            Err(_) => Command::new(path),
        };
        bash.args(["--norc", "--noprofile", "-c", &script])
            .env_clear()
            .env("LEAD_TRACE", &trace)
            .env("PATH", self.root.join("bin"))
            .env("x", "")
            .env("HOME", self.root.join("work"))
            .current_dir(self.root.join("work"));
        bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let text = String::from_utf8_lossy(&std::fs::read(&trace).unwrap()).into_owned();
        let lines = text.split('\u{1e}').filter(|l| !l.is_empty());
        lines.map(|l| l.split('\u{1f}').map(str::to_owned).collect()).collect()
    }

    /// Whether the script could be split; if so every command that bash ran is a part.
    fn agrees(&mut self, command: &str, ran: &mut usize) -> bool {
        let Ok(parts) = split(command, &self.root, None) else { return false };
        for words in self.run(command) {
            *ran += 1;
            assert!(
                parts.iter().any(|part| is_same(part, &words)),
                "{command:?}: bash ran {words:?}, the parts are {parts:?}"
            );
        }
        true
    }
}

/// Whether `part` is what bash ran, directly or behind a wrapper.
fn is_same(part: &Part, ran: &[String]) -> bool {
    // Where `time` is no keyword, it is a program that runs the rest, and there are no keywords in that.
    let is_keyword = |w: &&str| ["time", "-p", "--", "{", "!", "if", "while", "until"].contains(w);
    let is_timed = ran.first().is_some_and(|w| w == "time");
    let ran: Vec<&str> = ran.iter().map(String::as_str).skip_while(|w| is_timed && is_keyword(w)).collect();
    let from = |at: usize| {
        let words = &part.words[at..];
        let certain = words.iter().all(|w| w.expansion == Expansion::None);
        let texts: Vec<&str> =
            words.iter().map(|w| w.text.as_str()).skip_while(|w| is_timed && is_keyword(w)).collect();
        // A process substitution's file has another number in every run.
        let piped = texts.iter().any(|t| t.starts_with("/dev/fd/"));
        let unknown = words.first().is_some_and(|w| w.expansion != Expansion::None);
        ran.is_empty() || unknown || (texts.first() == ran.first() && (!certain || piped || texts == ran))
    };
    let last = if is_wrapper(part.command()) { part.words.len() } else { part.words.len().min(1) };
    (0..last).any(from)
}

/// How many scripts are tried: more on demand.
fn cases(usual: usize) -> usize {
    std::env::var("LEAD_SHELL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn bash_runs_nothing_of_a_script_that_is_not_a_part() {
    let Some(mut judge) = Judge::new() else { return };
    let mut runner = TestRunner::deterministic();
    let (mut split_up, mut ran, mut tried) = (0, 0, 0);
    while split_up < cases(150) {
        tried += 1;
        let script = scripts().new_tree(&mut runner).unwrap().current();
        split_up += usize::from(judge.agrees(&script, &mut ran));
    }
    assert!(ran > split_up, "only {ran} commands ran in {split_up} of {tried} scripts");
}

#[test]
fn bash_runs_nothing_of_nonsense_that_is_not_a_part() {
    let Some(mut judge) = Judge::new() else { return };
    let mut runner = TestRunner::deterministic();
    let (mut split_up, mut ran) = (0, 0);
    while split_up < cases(100) {
        let script = tokens().new_tree(&mut runner).unwrap().current();
        // Loops may never end.
        let safe = !["while", "until"].iter().any(|token| script.contains(token));
        if safe && !script.trim().is_empty() {
            split_up += usize::from(judge.agrees(&script, &mut ran));
        }
    }
    assert!(ran > 30, "only {ran} commands ran");
}
