//! What public reports say that command lines and editors with agents got wrong. Each row notes what
//! kind of report it was; the commands are ours.

use super::*;

const REPORTS: &[Cases] = &[
    // Issue: an allow list looked at the first word of a chain, so what came behind `&&` ran unseen and
    // past a deny rule.
    cases(D, &["+Bash(git:*)", "-Bash(rm:*)"], "deny", "Bash(rm:*)", &["git status && rm -rf /x", "git status | rm x"]),
    // Issue: a read-only list compared beginnings of text, so a redirection behind `echo` or `cat` wrote
    // files without a question.
    cases(D, &[], "ask", "editing", &["echo payload > run.sh", "cat README.md > copy"]),
    // Issue (CVE): a newline was no separator to the check, but it was to the shell.
    cases(D, &[], "ask", "`curl x`", &["ls\ncurl x", "ls # harmless\ncurl x", "echo 'a\nb'\ncurl x"]),
    // Merged fix (CVE): `find` was taken for read-only with every action.
    cases(
        D,
        &[],
        "ask",
        "not read-only",
        &["find . -exec sh x \\;", "find . -name x -delete", "find / -fprint /tmp/x"],
    ),
    // Merged fix: ripgrep starts the program that `--pre` or `--hostname-bin` names.
    cases(D, &[], "ask", "not read-only", &["rg --pre=./x.sh y", "rg --hostname-bin ./x y", "rg -uuz y"]),
    // Issue: `git diff` and `git log` write any file with `--output`, also abbreviated.
    cases(D, &[], "ask", "not read-only", &["git diff --output=/x", "git log --outpu=/x", "git show --outp /x"]),
    // Advisory: git takes unambiguous beginnings of long options, which a list of exact ones misses.
    cases(D, &[], "ask", "not read-only", &["git diff --ext-di", "git log --ext"]),
    // Advisory (CVE): `sort` runs the program that compresses its temporary files.
    cases(
        D,
        &[],
        "ask",
        "not read-only",
        &["sort --compress-prog=./x y", "sort -S1 --comp ./x y", "sort -o ~/.bashrc y"],
    ),
    // Article, eight bypasses: a manual's `--html` starts a browser, `sed` has `e` and `w`, `xargs` runs
    // anything, history and variables are expanded behind the check.
    cases(
        D,
        &[],
        "ask",
        "not on the read-only list",
        &[
            "man --html='sh -c x' ls",
            "sed -n '1e touch x' f",
            "sed 's/x/y/w out' f",
            "awk 'BEGIN { system(\"x\") }'",
            "ls | xargs -I{} sh -c 'touch {}'",
            "ls | xargs rm",
        ],
    ),
    cases(D, &[], "ask", "can't be taken apart", &["rg$IFS--pre$IFS./x", "ls ${IFS@P}", "${x:-rm} y"]),
    // Issue: with `-c`, `-C` and other global options git reads a configuration that names programs, or
    // hides its subcommand from a deny rule.
    cases(
        D,
        &[],
        "ask",
        "not read-only",
        &[
            "git -c core.fsmonitor=./x status",
            "git -c alias.status='!x' status",
            "git --exec-path=. status",
            "git --config-env=core.pager=X log",
        ],
    ),
    cases(B, &["-Bash(git push:*)"], "deny", "Bash(git push:*)", &["git -C . push --force", "git -c a.b=c push"]),
    // Issue (CVE): `git status` in a folder somebody else prepared runs its `core.fsmonitor`; a bare
    // repository of plain files survives a clone.
    cases(
        D,
        &[],
        "ask",
        "not this repository's",
        &["cd nested && git status", "cd bare && git log", "cd @/other; git diff", "{ cd nested; }; git status"],
    ),
    // Issue: environment assignments were taken off before an allow rule was looked for.
    cases(D, &["+Bash(npm --version)"], "ask", "sets a variable", &["NODE_OPTIONS=--require=/tmp/x npm --version"]),
    cases(
        D,
        &["+Bash(git diff:*)"],
        "ask",
        "sets a variable",
        &[
            "GIT_EXTERNAL_DIFF=/tmp/x git diff",
            "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager git diff",
            "BASH_ENV=x git diff",
        ],
    ),
    // Issue: what runs inside a redirection's target or a here-document's body was not looked at.
    cases(
        B,
        &["-Bash(rm:*)"],
        "deny",
        "Bash(rm:*)",
        &["echo hi 2> `rm d`", "cat < <(rm c)", "cat <<EOF\n$(rm e)\nEOF", "echo hi > $(rm x)"],
    ),
    // Issue: a here-document as first argument kept the rest of the pipeline from being looked at.
    cases(
        D,
        &["+Bash(cat:*)", "?Bash(pandoc:*)"],
        "ask",
        "Bash(pandoc:*)",
        &["cat <<'EOF' | pandoc --to=plain\nx\nEOF"],
    ),
    // Issue, the other way round: text of a here-document is not a command.
    cases(B, &["-Bash(git switch:*)"], "allow", "", &["cat >> notes.md <<'EOF'\ngit switch -f\nEOF"]),
    // Issue, the other way round: operators inside quotes are none.
    cases(D, &["+Bash(git commit:*)"], "allow", "", &["git commit -m 'Fix a && b > c; d | e'", "grep -n 'a|b;c' f"]),
    // Merged fix: wrappers, a backslash and a path hid a denied command.
    cases(
        B,
        &["-Bash(rm:*)"],
        "deny",
        "Bash(rm:*)",
        &[
            "timeout 5 rm x",
            "nohup stdbuf -o0 rm x",
            "\\rm x",
            "find . -exec /usr/bin/rm -rf {} +",
            "A=1 nice env B=2 rm x",
        ],
    ),
    // Pull request: scripts in options of shells and of programs that start one.
    cases(B, &["-Bash(reboot:*)"], "deny", "Bash(reboot:*)", &["timeout 5 sh -c 'reboot'", "bash -lc 'ls; reboot'"]),
    cases(
        B,
        &["-Bash(reboot:*)"],
        "ask",
        "can't be taken apart",
        &[
            "sh -c -x 'reboot'",
            "su --command=reboot root",
            "env --split-string='reboot'",
            "eval \"reboot\"",
            "echo reboot | sh",
        ],
    ),
    // Issue: a denied command written with a variable or with quotes in between.
    cases(B, &["-Bash(curl:*)"], "deny", "Bash(curl:*)", &["c\"ur\"l x", "command curl x", "echo \"$(curl x)\""]),
    cases(B, &["-Bash(curl:*)"], "ask", "", &["CMD=curl; $CMD x", "c${z}url x", "cu?l x"]),
    // Issue: writing to a file by another program than an editor tool passed a rule about edits.
    cases(
        B,
        &["-Edit(/secrets/**)"],
        "deny",
        "Edit(/secrets/**)",
        &["echo x | tee secrets/a", "sed -i s/a/b/ secrets/key", "cp /dev/null secrets/key", "mv x secrets/"],
    ),
    // Merged fix: shell start-up files were written through a redirection or `tee`; later its siblings
    // (`.zshenv`, `.config/git`).
    cases(
        E,
        &["+Bash(tee:*)"],
        "ask",
        "always ask",
        &[
            "echo 'alias sudo=x' >> ~/.bashrc",
            "echo x | tee -a ~/.zshenv",
            "echo x > ~/.config/git/config",
            "echo x >> ~/.bash_aliases",
        ],
    ),
    // Issue: arguments of `uniq`, `tree`, `file` and `printf` that write a file or a variable.
    cases(D, &[], "ask", "not read-only", &["uniq in ~/.bashrc", "tree -o x", "file -C -m x", "printf -v PATH x"]),
    // Issue (CVE): a rule that denies reading a file held for its name and not for a link to it, or the
    // other way round.
    cases(D, &["-Read(/secrets/**)"], "deny", "Read(/secrets/**)", &["cat innocent", "head -1 ./src/../innocent"]),
    cases(D, &["-Read(/innocent)"], "deny", "Read(/innocent)", &["cat innocent"]),
    // Falco rule: `/proc/self/root` and `/proc/self/cwd` in front of a path.
    cases(
        D,
        &["-Read(//etc/**)"],
        "deny",
        "Read(//etc/**)",
        &["cat /proc/self/root/etc/shadow", "cat /proc/thread-self/root/etc/../etc/shadow", "cat /etc/./shadow"],
    ),
];

/// The same for the tools that take a path.
const PATHS: &[Cases] = &[
    // Merged fix (many projects): containment was a comparison of text, so `/w-other` was inside `/w`.
    cases(E, &[], "ask", "outside the folders", &["@/w-other/a", "../w-other/a", "@/w/../w-other/a"]),
    // Issue: a link in the working folder led out of it.
    cases(E, &[], "ask", "outside the folders", &["escape/new", "./src/../escape/a"]),
    // Advisory: the names of protected folders in other letters, on file systems that make no difference.
    cases(E, &[], "ask", "always ask", &[".GIT/config", ".Git/hooks/x", ".CLAUDE/settings.json", "src/.gIt/config"]),
];

#[test]
fn r075_what_others_got_wrong() {
    let place = Place::new();
    let count: usize = REPORTS.iter().chain(PATHS).map(|c| c.inputs.len()).sum();
    assert!(count >= 20 && REPORTS.len() >= 20, "only {count}");
    check(&place, REPORTS, |command| ("Bash", json!({ "command": command })));
    check(&place, PATHS, |path| ("Write", json!({ "file_path": path })));
}
