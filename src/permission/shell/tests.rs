use std::path::{Path, PathBuf};

use super::*;

mod against_bash;

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
    let rows: [(&str, &[&str]); 38] = [
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
        ("bash -o errexit -xc 'a; b'", &["a", "b", "bash -o errexit -xc a; b"]),
        ("sudo -u x bash -c 'a; b'", &["a", "b", "sudo -u x bash -c a; b"]),
        ("find . -exec sh -c 'a' \\;", &["a", "find . -exec sh -c a ;"]),
        ("find . -name sh", &["find . -name sh"]),
        ("bash script.sh -c x", &["bash script.sh -c x"]),
        ("time -p -- a", &["a"]),
        ("diff <(a) <(b; c)", &["a", "b", "c", "diff /dev/fd/63 /dev/fd/63"]),
        ("a > >(b)", &["a", "b"]),
        ("while a; do b; done < <(c)", &["a", "b", "c"]),
        ("cat <<E\n$x $(a) `b` \\$(c) it's \"\nE\nls", &["a", "b", "cat", "ls"]),
        ("cat <<'E'\n$(a)\nE\nls", &["cat", "ls"]),
        ("cat <<A <<'B'\n$(a)\nA\n$(b)\nB\nls", &["a", "cat", "ls"]),
        ("a \"${x%.rs}\" ${#x} ${x:-y z} ${x##*/}", &["a ${x%.rs} ${#x} ${x:-y z} ${x##*/}"]),
        ("a\u{a0}b c", &["a\u{a0}b c"]),
        ("a\rb c\r", &["a\rb c\r"]),
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
        "a<(b)",
        "a <((b))",
        "a <()",
        "a <(b)c",
        "a > <(b)c",
        "<(b) rm x",
        ">() rm x",
        "a <<<(b)",
        "(a) <(b)",
        "cat <<E\n$((1))\nE",
        "cat <<E\nx\\\nE\nE",
        "{fd}>f rm x",
        "a[0]=1 rm x",
        "a['$(x)']=1",
        "read 'a[$(x)]'",
        "printf -v 'a[$(x)]' 1",
        "mapfile -C 'rm x' a",
        "trap 'rm x' EXIT",
        "alias x=rm",
        "hash -p ./evil ls",
        "command eval 'rm x'",
        "su -c 'rm x'",
        "env -S 'rm x'",
        "watch 'ls; rm x'",
        "echo rm x | bash",
        "bash -s x",
        "bash <<E\nrm x\nE",
        "bash $x",
        "bash -c -x 'rm x'",
        "HOME=/x",
        "export CDPATH=/x",
        "unset HOME",
        "${x:1}",
        "echo ${x:1:$y}",
        "echo ${x/a/b}",
        "echo ${x:-$(y)}",
        "echo ${x:?y}",
        "echo ${#}",
        "coproc ls",
        "select x in y; do z; done",
    ] {
        assert!(parts(command).is_err(), "{command:?} gave {:?}", parts(command));
    }
    let deep = format!("{}ls{}", "(".repeat(2000), ")".repeat(2000));
    assert!(parts(&deep.replace("((", "( (")).is_err());
    assert!(parts(&"x".repeat(300_000)).is_err());
    for costly in ["(", "$(", "`", "{ ", "$((", "<(", "a[", "<<E ", "sudo a ", "if ", "\\\n", "\"$(", "'", "${x:-"] {
        let _ = parts(&costly.repeat(100_000 / costly.len()));
    }
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

#[test]
fn patterns_of_names_are_kept_apart_from_other_expansions() {
    let rows = [
        ("*.rs", Some("*.rs")),
        ("a'*'*", Some("a\\**")),
        ("\"[x]\"?", Some("\\[x\\]?")),
        ("{a}*", Some("\\{a\\}*")),
        ("~/*", Some("/home/me/*")),
        ("a", None),
        ("'*'", None),
        ("$x*", None),
        ("[ab]*", None),
        ("{a,b}*", None),
    ];
    for (word, pattern) in rows {
        let echo = &parts(&format!("echo {word}")).unwrap()[0];
        assert_eq!(echo.words[1].pattern.as_deref(), pattern, "{word}");
    }
}
