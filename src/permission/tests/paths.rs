//! Decisions about paths, for reading and for writing.

use super::*;

const READING: &[Cases] = &[
    cases(
        D,
        &[],
        "allow",
        "is free",
        &[
            "src/a",
            "./src//a/",
            "src/../src/a",
            "@/w/src/a",
            "@/added/x",
            "@/scratch/x",
            "not/yet/there",
            "innocent",
            ".git/config",
            "~/literally",
            "~root/literally",
        ],
    ),
    cases(
        D,
        &[],
        "ask",
        "outside the folders that may be read freely",
        &[
            "@/other/a",
            "../other/a",
            "@/w-other/a",
            "@/w/../other/a",
            "escape/a",
            "escape/not/yet",
            "src/../../other/a",
            // A link from outside is outside, wherever it leads.
            "@/entrance/a",
            "@/W/src/a",
            "/proc/self/root/etc/passwd",
            "/proc/self/environ",
            "/proc/1/cwd/x",
            "/dev/fd/0",
            "/etc/passwd",
            "/",
            "rc",
        ],
    ),
    cases(N, &[], "deny", "dontAsk", &["@/other/a", "escape/a"]),
    cases(B, &[], "allow", "is free", &["@/other/a", "/etc/passwd"]),
    cases(
        B,
        &["-Read(/secrets/**)"],
        "deny",
        "Read(/secrets/**)",
        &[
            "secrets/key",
            "./secrets/./key",
            "src/../secrets/key",
            "@/w/secrets/key",
            "innocent",
            "secrets/new",
            "secrets/deep/er",
            "/proc/self/root@/w/secrets/key",
        ],
    ),
    cases(
        B,
        &["-Read(/secrets/**)"],
        "allow",
        "",
        &["Secrets/key", "src/secrets/key", "secretsx/key", "@/other/secrets/key"],
    ),
    cases(B, &["-Read(secrets/)"], "deny", "Read(secrets/)", &["secrets/key", "src/secrets/key", "innocent"]),
    cases(B, &["-Read(*.pem)"], "deny", "Read(*.pem)", &["a.pem", "deep/down/a.pem"]),
    cases(B, &["-Read(*.pem)"], "allow", "", &["a.PEM", "a.pem.txt"]),
    cases(B, &["-Read(escape)"], "deny", "Read(escape)", &["escape", "escape/a"]),
    cases(
        B,
        &["-Read(//etc/**)"],
        "deny",
        "Read(//etc/**)",
        &["/etc/passwd", "/proc/self/root/etc/passwd", "/etc//x/../passwd"],
    ),
    cases(B, &["-Read(~/.ssh/**)"], "deny", "", &["@/home/.ssh/id", "../home/.ssh/id"]),
    cases(D, &["+Read(escape/**)"], "ask", "outside the folders", &["escape/a"]),
    cases(D, &["+Read(escape/**)", "+Read(//**/other/**)"], "ask", "outside the folders", &["escape/a"]),
    cases(D, &["+Read(//**)"], "allow", "allowed by rule", &["escape/a", "/etc/passwd", "@/entrance/a"]),
    cases(D, &["?Read(src/**)"], "ask", "asked about by rule", &["src/a"]),
];

const WRITING: &[Cases] = &[
    cases(D, &[], "ask", "editing @/w/src/a asks", &["src/a", "./src/../src/a"]),
    cases(
        E,
        &[],
        "allow",
        "is in a working folder",
        &[
            "src/a",
            "new/file",
            "@/added/x",
            "@/scratch/x",
            "innocent",
            ".claude/worktrees/w/a",
            ".claude/agent-memory/t/MEMORY.md",
            ".claude/agent-memory-local/t/x",
            ".gitignore",
            ".github/workflows/x",
        ],
    ),
    cases(
        E,
        &[],
        "ask",
        "outside the folders that may be edited",
        &["@/other/a", "escape/new", "escape/a/b/c", "@/w-other/a", "../x", "@/entrance/a", "/proc/self/root/tmp/x"],
    ),
    cases(
        E,
        &[],
        "ask",
        "always ask",
        &[
            ".git/config",
            ".git",
            "src/tig/hooks/x",
            "src/.git/x",
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".claude/agents/x.md",
            ".claude/worktrees",
            ".claude/worktrees/../settings.json",
            ".claude/worktrees/w/.claude/settings.json",
            ".claude/worktrees/w/.git",
            ".bashrc",
            "sub/.zshenv",
            "rc",
            ".config/git/config",
        ],
    ),
    cases(E, &["+Edit"], "ask", "always ask", &[".git/config", ".claude/settings.json", "rc"]),
    cases(D, &["+Edit(/src/**)"], "allow", "allowed by rule", &["src/a", "src/new"]),
    cases(D, &["+Edit(/src/**)"], "ask", "always ask", &["src/tig/config"]),
    cases(D, &["+Edit(/**)"], "ask", "editing", &["escape/a"]),
    cases(P, &[], "deny", "mode plan", &["src/a", ".git/config", "@/other/a"]),
    cases(N, &[], "deny", "dontAsk", &["src/a", ".git/config"]),
    cases(B, &[], "allow", "bypassPermissions", &["src/a", ".git/config", "rc", "@/other/a"]),
    cases(B, &["-Edit(/secrets/**)"], "deny", "Edit(/secrets/**)", &["secrets/key", "innocent", "secrets/x/y"]),
    cases(B, &["-Edit(//**/.bashrc)"], "deny", ".bashrc", &["rc", "@/home/.bashrc"]),
];

#[test]
fn r075_paths() {
    let place = Place::new();
    check(&place, READING, |path| ("Read", json!({ "file_path": path })));
    check(&place, WRITING, |path| ("Write", json!({ "file_path": path })));
    check(&place, WRITING, |path| ("NotebookEdit", json!({ "notebook_path": path })));
}

/// The scratchpad may be behind a link, such as a `/tmp` that is one.
#[test]
fn working_folders_may_be_links() {
    let place = Place::new();
    let rules = PermissionRules::default();
    let cwd = place.root.join("entrance");
    let (policy, _) = Policy::new(E, &rules, &cwd, None, None, false);
    for (path, expected) in [("a", "allow"), ("@/w/src/a", "allow"), ("@/entrance/a", "allow"), ("../w/.env", "ask")] {
        let decision = policy.decide("Write", &json!({ "file_path": place.fill(path) }));
        assert_eq!(word(&decision), expected, "{path}: {decision:?}");
    }
}
