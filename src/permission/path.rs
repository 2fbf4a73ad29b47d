//! Paths as the kernel sees them, and the places that matter for a decision.
//!
//! This is the one place of the permission layer that looks at the disk: it follows symlinks, also
//! in front of files that do not exist yet. A link that is changed between decision and use is not
//! noticed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;

/// Folders under `.claude/` that agents may write in.
const OPEN_IN_CLAUDE: [&str; 3] = ["worktrees", "agent-memory", "agent-memory-local"];

/// Files that a shell or git obeys when it starts.
const START_UP: [&str; 24] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    "config.fish",
    ".gitconfig",
    ".xprofile",
    ".xsession",
    ".xinitrc",
    ".pam_environment",
];

/// Folders of files like these, with the one they lie in.
const START_UP_FOLDERS: [(&str, &str); 3] = [(".config", "git"), (".config", "fish"), (".config", "autostart")];

/// A path as it was given and as it resolves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Absolute, `.` and `..` removed by name.
    pub(super) named: PathBuf,
    /// Absolute, all symlinks followed.
    pub(super) real: PathBuf,
}

impl Target {
    /// As this process would find it.
    pub(super) fn new(path: &Path, base: &Path) -> Self {
        let absolute = base.join(path);
        Self { named: normalise(&absolute), real: follow(&absolute, None) }
    }

    /// As a command would that is run in `dir`: what `/proc` tells of a process about itself is not
    /// what it tells this one.
    pub(super) fn of_command(path: &Path, dir: &Path) -> Self {
        let absolute = dir.join(path);
        Self { named: normalise(&absolute), real: follow(&absolute, Some(dir)) }
    }

    /// Both forms, once if they are the same.
    pub(super) fn forms(&self) -> impl Iterator<Item = &Path> {
        let real = (self.real != self.named).then_some(self.real.as_path());
        std::iter::once(self.named.as_path()).chain(real)
    }

    /// Something that would lie in this folder.
    pub(super) fn child(&self) -> Self {
        let inside = |p: &Path| p.join("any");
        Self { named: inside(&self.named), real: inside(&self.real) }
    }
}

/// Folders that are free to a degree.
#[derive(Clone, Debug, Default)]
pub(super) struct Areas(Vec<Target>);

impl Areas {
    pub(super) fn new<'a>(folders: impl Iterator<Item = &'a Path>, base: &Path) -> Self {
        Self(folders.map(|f| Target::new(f, base)).collect())
    }

    pub(super) fn add(&mut self, folder: &Path, base: &Path) {
        self.0.push(Target::new(folder, base));
    }

    /// Whether link and target both lie in here.
    pub(super) fn contain(&self, target: &Target) -> bool {
        self.0.iter().any(|root| target.real.starts_with(&root.real))
            && self.0.iter().any(|r| target.named.starts_with(&r.named) || target.named.starts_with(&r.real))
    }

    pub(super) fn describe(&self) -> String {
        self.0.iter().map(|root| root.named.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Removes `.` and `..` by name alone, as `cd` does.
pub(super) fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Follows every symlink on the way as the kernel would, `..` included; what does not exist is
/// kept by name. `dir` is the working folder of the process that will do it, if it is another one.
fn follow(path: &Path, dir: Option<&Path>) -> PathBuf {
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let mut out = PathBuf::from("/");
    let mut left: VecDeque<OsString> = path.components().map(|c| c.as_os_str().to_owned()).collect();
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        match name.to_str() {
            Some("/") => out = PathBuf::from("/"),
            Some(".") => {}
            Some("..") => {
                out.pop();
            }
            _ => {
                let next = out.join(&name);
                let theirs = dir.filter(|_| name == "cwd" && next.starts_with(&own)).map(Path::to_path_buf);
                match theirs.map_or_else(|| std::fs::read_link(&next), Ok) {
                    Ok(target) if links < MOST_LINKS => {
                        links += 1;
                        for part in target.components().rev() {
                            left.push_front(part.as_os_str().to_owned());
                        }
                    }
                    _ => out = next,
                }
            }
        }
    }
    out
}

/// Why edits of this path always ask; `None` = they need not.
pub(super) fn protected(target: &Target) -> Option<String> {
    target.forms().find_map(|path| {
        let names: Vec<String> = path.components().map(|c| c.as_os_str().to_string_lossy().to_lowercase()).collect();
        let secret = names.iter().enumerate().find_map(|(i, name)| match name.as_str() {
            ".git" => Some(".git"),
            ".claude" => {
                let open = names.len() > i + 2 && OPEN_IN_CLAUDE.contains(&names[i + 1].as_str());
                (!open).then_some(".claude")
            }
            _ => None,
        });
        match (secret, names.last()) {
            (Some(folder), _) => Some(format!("{} is under {folder}/", path.display())),
            (None, Some(last)) if START_UP.contains(&last.as_str()) || in_start_up_folder(&names) => {
                Some(format!("{} is read by shells or other programs when they start", path.display()))
            }
            _ => None,
        }
    })
}

fn in_start_up_folder(names: &[String]) -> bool {
    let pairs = names.windows(2).take(names.len().saturating_sub(2));
    pairs.into_iter().any(|pair| START_UP_FOLDERS.contains(&(pair[0].as_str(), pair[1].as_str())))
}

/// The folder whose `.git` git, run in `dir`, takes its configuration from, none outside of a
/// repository; an error where files in plain sight make a folder look like one: writing those needs
/// no permission for `.git/`, and a configuration can name programs to run.
pub(super) fn git_root(dir: &Path) -> Result<Option<PathBuf>, DressedUp> {
    let exists = |path: PathBuf| path.symlink_metadata().is_ok();
    for folder in dir.ancestors() {
        if exists(folder.join("HEAD")) && exists(folder.join("objects")) {
            return Err(DressedUp);
        }
        if exists(folder.join(".git")) {
            return Ok(Some(folder.to_path_buf()));
        }
    }
    Ok(None)
}

/// A folder that git may take for a repository and that no `.git` says is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DressedUp;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_also_before_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/b", root.join("link")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink(root.join("gone"), root.join("dangling")).unwrap();
        let real = |p: &str| Target::new(Path::new(p), &root).real;
        assert_eq!(real("link/new"), root.join("a/b/new"));
        assert_eq!(real("link/../x"), root.join("a/x"));
        assert_eq!(Target::new(Path::new("link/../x"), &root).named, root.join("x"));
        assert_eq!(real("dangling"), root.join("gone"));
        assert_eq!(real("../../../../../../../../etc/./hosts"), Path::new("/etc/hosts"));
        assert!(real("loop").starts_with(&root));
        assert_eq!(real("/proc/self/root/etc/hosts"), Path::new("/etc/hosts"));
    }

    #[test]
    fn areas_want_link_and_target_inside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["in", "out"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        symlink(root.join("out"), root.join("in/escape")).unwrap();
        symlink(root.join("in"), root.join("alias")).unwrap();
        let areas = Areas::new([root.join("alias").as_path()].into_iter(), &root);
        let contain = |p: &str| areas.contain(&Target::new(Path::new(p), &root));
        assert!(contain("in/x") && contain("alias/x") && contain("alias"));
        assert!(!contain("in/escape/x") && !contain("out/x") && !contain("alias/../out") && !contain("inside"));
    }

    #[test]
    fn protected_places() {
        let base = Path::new("/nowhere/p");
        let is = |p: &str| protected(&Target::new(Path::new(p), base)).is_some();
        for yes in [
            ".git",
            ".git/config",
            "a/.git/hooks/x",
            ".GIT/config",
            ".claude/settings.json",
            ".claude/worktrees",
            "/h/.bashrc",
            "/h/.config/git/config",
            "/h/.config/fish/functions/x",
        ] {
            assert!(is(yes), "{yes}");
        }
        for yes in [".claude/worktrees/../settings.json", ".claude/worktrees/w/.git", ".claude/worktrees/w/.claude/x"] {
            assert!(is(yes), "{yes}");
        }
        for no in [
            ".github/x",
            ".gitignore",
            ".claude/worktrees/w/a.rs",
            ".claude/agent-memory/t/MEMORY.md",
            ".claude/agent-memory-local/t/x/y",
            "bashrc",
            ".config/git",
            "x/.config/other/git",
        ] {
            assert!(!is(no), "{no}");
        }
    }

    #[test]
    fn the_repository_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path();
        std::fs::create_dir_all(repo.join(".git")).unwrap();
        std::fs::create_dir_all(repo.join("sub/objects")).unwrap();
        for folder in [repo.to_path_buf(), repo.join("sub"), repo.join("sub/gone")] {
            assert_eq!(git_root(&folder), Ok(Some(repo.to_path_buf())));
        }
        std::fs::write(repo.join("sub/HEAD"), "ref: refs/heads/x").unwrap();
        assert_eq!(git_root(&repo.join("sub")), Err(DressedUp));
        // An empty `.git` is none to git, which then looks at the folder itself.
        std::fs::create_dir(repo.join("sub/.git")).unwrap();
        assert_eq!(git_root(&repo.join("sub")), Err(DressedUp));
        std::fs::create_dir_all(repo.join("other/.git")).unwrap();
        assert_eq!(git_root(&repo.join("other/x")), Ok(Some(repo.join("other"))));
    }

    #[test]
    fn what_proc_tells_of_itself_is_told_to_the_process_that_asks() {
        let of_command = |p: &str| Target::of_command(Path::new(p), Path::new("/nowhere/p")).real;
        for own in ["/proc/self/cwd/a", "/proc/thread-self/cwd/a", "/proc/self/task/../cwd/a", "/proc/./self//cwd/a"] {
            assert_eq!(of_command(own), Path::new("/nowhere/p/a"), "{own}");
        }
        assert_eq!(of_command("/proc/self/cwd/../x"), Path::new("/nowhere/x"));
        assert_eq!(of_command("/proc/self/root/etc/hosts"), Path::new("/etc/hosts"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(Target::new(Path::new("/proc/self/cwd/a"), Path::new("/nowhere")).real, here.join("a"));
    }
}
