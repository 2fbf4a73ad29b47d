use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// `home/.claude` is the config folder, `home/w/p` a project, `home/w/p/a/b` the working folder.
struct Tree {
    _dir: tempfile::TempDir,
    home: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("home");
        for folder in [".claude", "w/p/.git", "w/p/a/b"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        Self { _dir: dir, home }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn load(&self) -> Instructions {
        let (config, cwd) = (self.home.join(".claude"), self.home.join("w/p/a/b"));
        load(&Places { config: &config, cwd: &cwd, home: Some(&self.home) })
    }

    /// Paths below the home folder.
    fn names(&self, files: &[InstructionFile]) -> Vec<String> {
        files.iter().map(|f| f.path.strip_prefix(&self.home).unwrap_or(&f.path).display().to_string()).collect()
    }
}

#[test]
fn nearer_files_come_later() {
    let tree = Tree::new();
    for name in [
        "w/p/a/b/CLAUDE.md",
        "w/p/CLAUDE.local.md",
        "w/p/CLAUDE.md",
        "w/p/.claude/CLAUDE.md",
        "w/CLAUDE.md",
        ".claude/CLAUDE.md",
        "w/p/a/b/c/CLAUDE.md",
        "w/other/CLAUDE.md",
    ] {
        tree.write(name, &format!(" {name}\n"));
    }
    let Instructions { files, notes } = tree.load();
    assert_eq!(
        tree.names(&files),
        [
            ".claude/CLAUDE.md",
            "w/CLAUDE.md",
            "w/p/CLAUDE.md",
            "w/p/.claude/CLAUDE.md",
            "w/p/CLAUDE.local.md",
            "w/p/a/b/CLAUDE.md"
        ]
    );
    assert!(files.iter().all(|f| !f.is_cut) && notes.is_empty());
    assert_eq!((files[0].whose, files[4].whose, files[5].whose), (Whose::Person, Whose::PersonHere, Whose::Project));
    assert_eq!(files[5].text, "w/p/a/b/CLAUDE.md");
}

#[test]
fn imports_are_followed_once_and_not_for_ever() {
    let tree = Tree::new();
    tree.write("w/p/CLAUDE.md", "@docs/1.md, @docs/1.md @none.md @CLAUDE.md @team\n```\n@docs/code.md\n```");
    tree.write("w/p/docs/code.md", "x");
    for n in 1..=6 {
        tree.write(&format!("w/p/docs/{n}.md"), &format!("@{}.md @../CLAUDE.md", n + 1));
    }
    let Instructions { files, notes } = tree.load();
    let imported: Vec<String> = (1..=DEPTH).map(|n| format!("w/p/docs/{n}.md")).collect();
    assert_eq!(tree.names(&files), [vec!["w/p/CLAUDE.md".to_owned()], imported].concat());
    assert_eq!(notes, [""; 0]);
}

#[test]
fn a_project_reads_none_of_the_person_s_files() {
    let tree = Tree::new();
    let secret = tree.write(".ssh/key", "secret");
    tree.write(".claude/credentials.json", "secret");
    tree.write(".claude/style.md", "style");
    tree.write(
        "w/p/CLAUDE.md",
        &format!("@~/.ssh/key @{} @../../.ssh/key @~/.claude/credentials.json", secret.display()),
    );
    tree.write("w/p/CLAUDE.local.md", "@~/.claude/style.md");
    symlink(&secret, tree.home.join("w/p/link.md")).unwrap();
    symlink(&secret, tree.home.join("w/p/a/CLAUDE.md")).unwrap();
    tree.write("w/p/a/b/CLAUDE.md", "@../../link.md");
    let Instructions { files, notes } = tree.load();
    assert_eq!(tree.names(&files), ["w/p/CLAUDE.md", "w/p/CLAUDE.local.md", ".claude/style.md", "w/p/a/b/CLAUDE.md"]);
    assert!(files.iter().all(|f| !f.text.contains("secret")));
    assert_eq!(notes.len(), 6, "{notes:#?}");
    assert!(notes.iter().all(|note| note.contains("outside of the project")));
    // What the person says goes.
    tree.write(".claude/CLAUDE.md", "@../.ssh/key");
    assert_eq!(tree.names(&tree.load().files)[..2], [".claude/CLAUDE.md", ".claude/../.ssh/key"]);
}

#[test]
fn the_nearest_files_have_the_first_claim_to_the_room() {
    let tree = Tree::new();
    tree.write(".claude/CLAUDE.md", &"u".repeat(TOTAL_BYTES / 2));
    tree.write("w/p/CLAUDE.md", &"p".repeat(TOTAL_BYTES / 2));
    assert!(tree.load().files.iter().all(|f| !f.is_cut));
    tree.write("w/p/a/b/CLAUDE.md", "near");
    let files = tree.load().files;
    let shown: Vec<(usize, bool)> = files.iter().map(|f| (f.text.len(), f.is_cut)).collect();
    assert_eq!(shown, [(TOTAL_BYTES / 2 - 4, true), (TOTAL_BYTES / 2, false), (4, false)]);
    tree.write("w/p/a/b/CLAUDE.md", &"é".repeat(TOTAL_BYTES));
    let files = tree.load().files;
    assert_eq!(files.iter().map(|f| f.text.len()).sum::<usize>(), TOTAL_BYTES);
    assert!(files.iter().all(|f| f.is_cut));
}

#[test]
fn what_is_no_text_is_said_and_left_out() {
    let tree = Tree::new();
    tree.write("w/p/CLAUDE.md", "a\0b");
    fs::create_dir(tree.home.join("w/p/a/CLAUDE.md")).unwrap();
    tree.write("w/p/a/b/CLAUDE.md", "x");
    let Instructions { files, notes } = tree.load();
    assert_eq!(tree.names(&files), ["w/p/a/b/CLAUDE.md"]);
    assert!(notes.len() == 1 && notes[0].contains("w/p/CLAUDE.md") && notes[0].contains("text"), "{notes:?}");
}

#[test]
fn folders_of_the_project_have_their_own() {
    let tree = Tree::new();
    let project = tree.home.join("w/p");
    let top = tree.write("w/p/CLAUDE.md", "top");
    tree.write("w/p/x/CLAUDE.md", "x, see @more.md and @../../secret.md");
    tree.write("w/p/x/more.md", "more");
    tree.write("w/secret.md", "secret");
    let deep = tree.write("w/p/x/y/CLAUDE.md", &"d".repeat(FOLDER_BYTES + 1));
    let file = tree.write("w/p/x/y/z.rs", "");
    let of = |file: &Path, known: &[&Path]| of_folders(&project, file, |path| known.contains(&path));
    let files = of(&file, &[&top]);
    assert_eq!(tree.names(&files), ["w/p/x/CLAUDE.md", "w/p/x/more.md", "w/p/x/y/CLAUDE.md"]);
    assert_eq!(
        files.iter().map(|f| (f.text.len(), f.is_cut)).collect::<Vec<_>>(),
        [(0, true), (0, true), (FOLDER_BYTES, true)]
    );
    assert_eq!(tree.names(&of(&file, &[&top, &deep])), ["w/p/x/CLAUDE.md", "w/p/x/more.md"]);
    assert_eq!(
        tree.names(&of(&deep, &[&top])),
        ["w/p/x/CLAUDE.md", "w/p/x/more.md"],
        "a file is not shown with itself"
    );
    let outside = tree.write("w/other/sub/f", "");
    tree.write("w/other/CLAUDE.md", "no");
    assert_eq!(of(&outside, &[]), []);
}
