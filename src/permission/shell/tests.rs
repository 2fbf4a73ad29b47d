use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;

use super::*;

fn parts(command: &str) -> Result<Vec<Part>, Unparsed> {
    split(command, Path::new("/w"), Some(Path::new("/home/me")))
}

fn commands(command: &str) -> Vec<String> {
    let mut all: Vec<String> =
        parts(command).unwrap_or_else(|e| panic!("{command}: {e}")).iter().map(|p| p.resolved(0)).collect();
    all.sort();
    all
}

fn dirs(command: &str) -> Option<Vec<PathBuf>> {
    parts(command).unwrap().into_iter().find(|p| p.command() == "here").unwrap().dirs
}

#[test]
fn every_command_that_would_run_is_a_part() {
    let rows: [(&str, &[&str]); 23] = [
        ("ls -la", &["ls -la"]),
        ("a && b || c; d | e & f\ng", &["a", "b", "c", "d", "e", "f", "g"]),
        ("a |& b", &["a", "b"]),
        ("echo \"$(rm x; ls `pwd`)\"", &["echo $(rm x; ls `pwd`)", "ls `pwd`", "pwd", "rm x"]),
        ("(a; (b)) && { c; d; }", &["a", "b", "c", "d"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("for f in x $(y); do z \"$f\"; done", &["y", "z $f"]),
        ("while a; do b; done; until c\ndo d\ndone", &["a", "b", "c", "d"]),
        ("! a", &["a"]),
        ("r'm' \"-r\"f \\x 'a b'", &["rm -rf x a b"]),
        ("ls # && rm x\npwd", &["ls", "pwd"]),
        ("ls a#b", &["ls a#b"]),
        ("ls \\\n -l", &["ls -l"]),
        ("cat <<EOF\nrm x\nEOF\nls", &["cat", "ls"]),
        ("cat <<'E' | wc\n$(rm x)\nE", &["cat", "wc"]),
        ("cat <<-E\n\tx\n\tE\nls", &["cat", "ls"]),
        ("cat <<A <<B\n1\nA\n2\nB\nls", &["cat", "ls"]),
        ("cat <<< \"$(a)\"", &["a", "cat"]),
        ("a > f 2>&1 < g", &["a"]),
        ("2>&-a b", &["a b"]),
        ("bash -c 'a; b' x", &["a", "b", "bash -c a; b x"]),
        ("echo ~ ~/x '~'", &["echo /home/me /home/me/x ~"]),
        ("git commit -m \"$(cat <<'E'\nit's\nE\n)\"", &["cat", "git commit -m $(cat <<'E'\nit's\nE\n)"]),
    ];
    for (command, expected) in rows {
        assert_eq!(commands(command), expected, "{command}");
    }
}

#[test]
fn what_is_not_understood_is_said_so() {
    for command in [
        "f() { ls; }",
        "f () { ls; }",
        "function f { ls; }",
        "case x in y) ls;; esac",
        "diff <(a) <(b)",
        "tee >(a)",
        "((x++))",
        "echo $((1+1))",
        "echo $[1+1]",
        "$cmd x",
        "\"$(which ls)\" x",
        "l* x",
        "eval ls",
        "'ev'al ls",
        "echo ${x:=y}",
        "echo ${x@P}",
        "echo ${!x}",
        "echo $'\\x72m'",
        "a=(1 2)",
        "[[ a ]]",
        "ls 'x",
        "ls \"x",
        "ls `x",
        "ls $(x",
        "(ls",
        "ls)",
        "{ ls",
        "{ ls }",
        "}",
        "ls; done",
        "&& ls",
        "ls ;;",
        "ls >",
        "(ls) x",
        "cat <<E\nx",
        "cat <<E\n$(rm x)\nE",
        "cat <<~\n~\nrm x\n/home/me",
        "cat <<\"E F\"\nx\nE F",
        "cat <<E \"\nE\n\"\nx\nE",
        "cat < /dev/tcp/h/1",
        "for PATH in /evil; do ls; done",
        "for ((;;)); do ls; done",
        "while a; do cd ..; done",
        "bash -c \"$x\"",
        "sh -c 'eval x'",
        "echo `a \\`b\\``",
        "ls \\",
        "i\\\nf ls; then pwd; fi",
        "echo \"$\\\n(rm x)\"",
        "(\\\n(x))",
        "a\0b",
    ] {
        assert!(parts(command).is_err(), "{command:?} gave {:?}", parts(command));
    }
    let deep = format!("{}ls{}", "(".repeat(2000), ")".repeat(2000));
    assert!(parts(&deep.replace("((", "( (")).is_err());
    assert!(parts(&"x".repeat(300_000)).is_err());
}

#[test]
fn words_know_what_may_become_of_them() {
    use Expansion::{Free, None, Tail};
    let rows = [
        ("x", None),
        ("'*'", None),
        ("\\*", None),
        ("*", Free),
        ("a*", Tail),
        ("[ab]", Free),
        ("a[b]", Tail),
        ("[", None),
        ("$x", Free),
        ("a$x", Free),
        ("\"$x\"", Free),
        ("\"a$x\"", Tail),
        ("a\"$@\"", Free),
        ("{}", None),
        ("{a,b}", Free),
        ("{1..3}", Free),
        ("~root", Free),
        ("\"a`b`\"", Tail),
        ("$", None),
        ("\"5 $\"", None),
    ];
    for (word, expansion) in rows {
        let parts = parts(&format!("echo {word}")).unwrap();
        let echo = parts.iter().find(|p| p.command() == "echo").unwrap();
        assert_eq!(echo.words[1].expansion, expansion, "{word}");
    }
}

#[test]
fn redirections_are_found_in_all_spellings() {
    let rows: [(&str, &[(&str, bool)]); 13] = [
        ("a > f", &[("f", true)]),
        ("a 2>>'f g'", &[("f g", true)]),
        ("a >|f", &[("f", true)]),
        ("a &>f", &[("f", true)]),
        ("a &>>f", &[("f", true)]),
        ("a >&f", &[("f", true)]),
        ("a <>f", &[("f", true)]),
        ("a <f", &[("f", false)]),
        ("a 2>&1 >&2 <&0 >&-", &[]),
        ("> f", &[("f", true)]),
        ("(a) > f", &[("f", true)]),
        ("for x in 1; do a; done > f", &[("f", true)]),
        ("a2>f", &[("f", true)]),
    ];
    for (command, expected) in rows {
        let parts = parts(command).unwrap();
        let found: Vec<(&str, bool)> =
            parts.iter().flat_map(|p| &p.redirects).map(|r| (r.target.text.as_str(), r.writes)).collect();
        assert_eq!(found, expected, "{command}");
    }
    assert_eq!(parts("a > /dev/null 2>/dev/null").unwrap()[0].writes().count(), 0);
}

#[test]
fn assignments_stand_before_the_command_only() {
    let part = &parts("A=1 B+='x y' c D=2").unwrap()[0];
    let names: Vec<&str> = part.assignments.iter().map(|a| a.name.as_str()).collect();
    assert_eq!((names, part.raw()), (vec!["A", "B"], "A=1 B+='x y' c D=2".to_owned()));
    assert_eq!(part.resolved(0), "c D=2");
    assert_eq!(parts("1A=x").unwrap()[0].command(), "1A=x");
}

#[test]
fn folders_are_followed() {
    let rows: [(&str, Option<&[&str]>); 22] = [
        ("here", Some(&["/w"])),
        ("cd x && here", Some(&["/w/x"])),
        ("cd x; here", Some(&["/w", "/w/x"])),
        ("cd x\nhere", Some(&["/w", "/w/x"])),
        ("cd x || here", Some(&["/w", "/w/x"])),
        ("cd /a && cd ../b && here", Some(&["/b"])),
        ("cd -- x && here", Some(&["/w/x"])),
        ("cd && here", Some(&["/home/me"])),
        ("cd ~/y && here", Some(&["/home/me/y"])),
        ("(cd x) && here", Some(&["/w"])),
        ("echo $(cd x) && here", Some(&["/w"])),
        ("cd x && (here)", Some(&["/w/x"])),
        ("! cd x && here", Some(&["/w", "/w/x"])),
        ("{ cd x; } && here", Some(&["/w", "/w/x"])),
        ("if cd x; then here; fi", Some(&["/w", "/w/x"])),
        ("cd - && here", None),
        ("cd $x && here", None),
        ("cd a* && here", None),
        ("cd -P x && here", None),
        ("pushd x && here", None),
        ("builtin cd x && here", None),
        ("CDPATH=/ cd x && here", None),
    ];
    for (command, expected) in rows {
        let expected = expected.map(|all| all.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(dirs(command), expected, "{command}");
    }
    let many: String = (0..20).map(|i| format!("cd d{i}; ")).collect();
    assert_eq!(dirs(&format!("{many} here")), None);
}

fn tokens() -> impl Strategy<Value = String> {
    let tokens = prop::sample::select(vec![
        "a", "b", "c1", "cd", "x", " ", " ", " ", " ", "\n", ";", "&&", "||", "|", "&", "(", ")", "{", "}", "'", "\"",
        "\\", "$", "$(", "`", "$x", "${x}", "#", "if", "then", "fi", "for", "in", "do", "done", "while", "!", "<<E",
        "\nE\n", "<<'E'", "=", "~", "*", "[", "]", ",", "é", "\t", "echo", "sh -c", "else", "elif", "until", "\r",
        "\\\n", "<<-E", ">&2", "<<<", "()", "2>", "&>", "-c", "bash", "case", "esac", "time", "coproc",
    ]);
    prop::collection::vec(tokens, 0..24).prop_map(|t| t.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn splitting_never_panics(command in prop_oneof![tokens(), any::<String>(), "[a-z $()`'\"\\\\;&|<>{}\n*#~=-]{0,60}"]) {
        let _ = split(&command, Path::new("/w"), None);
    }

    #[test]
    fn quoted_text_is_one_word(text in any::<String>().prop_filter("null", |t| !t.contains('\0'))) {
        let quoted = format!("echo '{}'", text.replace('\'', "'\\''"));
        let parts = split(&quoted, Path::new("/w"), None).unwrap();
        prop_assert_eq!(parts.len(), 1);
        prop_assert_eq!(&parts[0].words[1].text, &text);
        prop_assert_eq!(parts[0].words[1].expansion, Expansion::None);
    }
}

/// Runs a command in a bash that knows no program and reports what it would have run.
///
/// Each run has a trace of its own: what a background command writes late is lost, not mixed up.
fn run_by_bash(command: &str, dir: &Path, run: usize) -> Option<BTreeSet<String>> {
    let script = format!(
        "command_not_found_handle() {{ local IFS=$'\\037'; printf '%s\\036' \"$*\" >>\"$LEAD_TRACE\"; }}\n\
         enable -n echo\nPATH=/nonexistent\n{command}\nwait\n"
    );
    let trace = dir.join(format!("trace{run}"));
    std::fs::write(&trace, "").ok()?;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", &script])
        .env("LEAD_TRACE", &trace)
        .env("x", "")
        .env("HOME", dir)
        .current_dir(dir);
    bash.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    bash.status().ok()?;
    let text = std::fs::read_to_string(&trace).ok()?;
    Some(text.split('\u{1e}').filter(|l| !l.is_empty()).map(str::to_owned).collect())
}

/// Bash itself is the judge: whatever it runs must be among the parts.
#[test]
fn bash_runs_nothing_that_is_not_a_part() {
    if which::which("bash").is_err() {
        assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "bash is missing");
        eprintln!("SKIPPED (no bash)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = std::env::var("LEAD_SHELL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let (mut split_up, mut ran) = (0, 0);
    while split_up < cases {
        let tree = tokens().new_tree(&mut runner).unwrap();
        let command = proptest::strategy::ValueTree::current(&tree);
        // Loops may never end, and patterns see the traces.
        let safe = !["while", "until", "*", "["].iter().any(|token| command.contains(token));
        let Ok(parts) = split(&command, dir.path(), None) else { continue };
        if !safe || parts.is_empty() {
            continue;
        }
        split_up += 1;
        for line in run_by_bash(&command, dir.path(), split_up).unwrap() {
            ran += 1;
            // Where `time` is no keyword, it is a program that runs the rest.
            let words: Vec<&str> = line.split('\u{1f}').skip_while(|w| *w == "time").collect();
            let same = |part: &Part| {
                let certain = part.words.iter().all(|w| w.expansion == Expansion::None);
                let texts: Vec<&str> =
                    part.words.iter().map(|w| w.text.as_str()).skip_while(|w| *w == "time").collect();
                words.is_empty() || (texts.first() == words.first() && (!certain || texts == words))
            };
            assert!(parts.iter().any(same), "{command:?}: bash ran {words:?}, the parts are {parts:?}");
        }
    }
    assert!(ran > 50, "only {ran} commands ran");
}
