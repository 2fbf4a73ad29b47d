//! Skills: `<name>/SKILL.md` in `.claude/skills/` of the working folder and the folders above it
//! (nearest first), then of the config folder. Of equal names the first counts. Found when a session
//! starts; the body of one is read when it is called for.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::front_matter::{self, Flaw};
use super::project::{Places, read_text};
use crate::core::knowledge::Skill;
use crate::core::text::one_line;

/// Longest file of a skill that is read, bytes.
const FILE_BYTES: usize = 1 << 20;
/// Characters of a description.
const DESCRIPTION_CHARS: usize = 1000;
/// Characters of a name.
const NAME_CHARS: usize = 64;
/// Folders of one place that are looked into.
const FOLDERS: usize = 1000;

/// A file that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenFile {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub flaw: Flaw,
}

impl fmt::Display for BrokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flaw { line, reason } = &self.flaw;
        match line {
            0 => write!(f, "{}: {reason}", self.path.display()),
            line => write!(f, "{}, line {line}: {reason}", self.path.display()),
        }
    }
}

/// The skills there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// Each name once, sorted.
    pub found: Vec<Skill>,
    /// Files that could not be used.
    pub broken: Vec<BrokenFile>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Head {
    name: Option<String>,
    description: Option<String>,
    disable_model_invocation: bool,
}

/// Finds the skills of a session.
pub fn find(places: &Places<'_>) -> Skills {
    let mut skills = Skills::default();
    let project = places.project();
    for claude in places.claude_folders() {
        // What a project brings along must not point at files of the person that lie elsewhere.
        let within = [project.as_path(), claude.parent().unwrap_or(&project), places.config];
        skills.look_into(&claude.join("skills"), Some(&within));
    }
    skills.look_into(&places.config.join("skills"), None);
    skills.found.sort_by(|a, b| a.name.cmp(&b.name));
    skills
}

/// The body of a skill, as it is now.
pub fn body(skill: &Skill) -> Result<String, BrokenFile> {
    let broken = |flaw| BrokenFile { path: skill.file.clone(), flaw };
    let text = whole(&skill.file).map_err(broken)?;
    let (_, body) = front_matter::read::<Head>(&text).map_err(broken)?;
    Ok(body.trim().to_owned())
}

impl Skills {
    fn look_into(&mut self, folder: &Path, within: Option<&[&Path]>) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut files: Vec<PathBuf> =
            entries.flatten().take(FOLDERS).map(|entry| entry.path().join("SKILL.md")).filter(|f| f.exists()).collect();
        files.sort_unstable();
        for file in files {
            match skill(&file, within) {
                Ok(skill) if self.found.iter().any(|known| known.name == skill.name) => {}
                Ok(skill) => self.found.push(skill),
                Err(flaw) => self.broken.push(BrokenFile { path: file, flaw }),
            }
        }
    }
}

fn skill(file: &Path, within: Option<&[&Path]>) -> Result<Skill, Flaw> {
    let flaw = |line, reason: String| Flaw { line, reason };
    let real = file.canonicalize().map_err(|e| flaw(0, e.to_string()))?;
    if within.is_some_and(|within| !within.iter().any(|folder| real.starts_with(folder))) {
        return Err(flaw(0, format!("it is a link out of the project, to {}", real.display())));
    }
    let text = whole(file)?;
    let (head, body) = front_matter::read::<Head>(&text)?;
    let folder = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = head.name.or(folder).unwrap_or_default().trim().to_owned();
    let is_named = |c: char| !c.is_whitespace() && !c.is_control() && !"/\\\"'`<>,".contains(c);
    if name.is_empty() || name.chars().count() > NAME_CHARS || !name.chars().all(is_named) {
        let shown = one_line(&name, 80);
        let reason = format!("{shown:?} is no name for a skill: give up to {NAME_CHARS} letters, digits, - and _");
        return Err(flaw(line_of(&text, "name:"), reason));
    }
    let described = head.description.unwrap_or_else(|| first_words(body).to_owned());
    let description = one_line(&described, DESCRIPTION_CHARS);
    Ok(Skill { name, description, file: file.to_path_buf(), only_by_person: head.disable_model_invocation })
}

fn whole(file: &Path) -> Result<String, Flaw> {
    let read = read_text(file, FILE_BYTES).map_err(|e| Flaw { line: 0, reason: e.to_string() })?;
    match read.is_cut {
        false => Ok(read.text),
        true => Err(Flaw { line: 0, reason: format!("it is longer than {FILE_BYTES} bytes") }),
    }
}

/// The first line that is no heading, for a file that does not describe itself.
fn first_words(body: &str) -> &str {
    body.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}

fn line_of(text: &str, begin: &str) -> u64 {
    let at = text.lines().position(|line| line.starts_with(begin));
    at.and_then(|at| u64::try_from(at + 1).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Tree {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            for folder in ["home/p/.git", "home/p/sub", "home/.claude"] {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            Self { _dir: dir, root }
        }

        fn skill(&self, place: &str, folder: &str, text: &str) -> PathBuf {
            let folder = self.root.join(place).join("skills").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("SKILL.md"), text).unwrap();
            folder.join("SKILL.md")
        }

        fn find(&self) -> Skills {
            let (config, cwd, home) =
                (self.root.join("home/.claude"), self.root.join("home/p/sub"), self.root.join("home"));
            find(&Places { config: &config, cwd: &cwd, home: Some(&home) })
        }
    }

    #[test]
    fn the_nearest_skill_of_a_name_counts() {
        let tree = Tree::new();
        tree.skill("home/.claude", "deploy", "---\ndescription: the user's\n---\nx");
        tree.skill(
            "home/.claude",
            "mine",
            "---\nname: own\ndescription: >\n  two\n  lines\nallowed-tools: Read, Bash(git:*)\n---\nx",
        );
        tree.skill("home/p/.claude", "deploy", "---\ndescription: the project's\n---\nx");
        let near = tree.skill("home/p/sub/.claude", "deploy", "# Deploy\n\nFirst words.\nMore.");
        tree.skill("home/p/.claude", "secret", "---\ndescription: d\ndisable-model-invocation: true\n---\nx");
        fs::create_dir_all(tree.root.join("home/p/.claude/skills/empty")).unwrap();
        let Skills { found, broken } = tree.find();
        assert_eq!(broken, []);
        let shown: Vec<_> = found.iter().map(|s| (s.name.as_str(), s.description.as_str(), s.only_by_person)).collect();
        assert_eq!(shown, [("deploy", "First words.", false), ("own", "two lines", false), ("secret", "d", true)]);
        assert_eq!(found[0].file, near);
        assert_eq!(body(&found[0]).unwrap(), "# Deploy\n\nFirst words.\nMore.");
        assert_eq!(body(&found[1]).unwrap(), "x");
    }

    #[test]
    fn a_broken_file_is_named_with_its_line_and_the_others_stay() {
        let tree = Tree::new();
        tree.skill("home/p/.claude", "good", "---\ndescription: d\n---\nx");
        tree.skill("home/p/.claude", "yaml", "---\nname: yaml\ndescription: a: b\n---\nx");
        tree.skill("home/p/.claude", "path", "---\nname: ../../etc\n---\nx");
        tree.skill("home/p/.claude", "open", "---\nname: open\n");
        tree.skill("home/p/.claude", "long", &format!("---\nname: {}\n---\n", "n".repeat(NAME_CHARS + 1)));
        tree.skill("home/p/.claude", "just", &format!("---\nname: {}\n---\n", "n".repeat(NAME_CHARS)));
        tree.skill("home/p/.claude", "huge", &"x".repeat(FILE_BYTES + 1));
        let Skills { found, broken } = tree.find();
        assert_eq!(found.len(), 2);
        let shown: Vec<String> = broken.iter().map(ToString::to_string).collect();
        let parts = [
            ("huge", "longer than"),
            ("long", "line 2"),
            ("open", "line 1"),
            ("path", "line 2: \"../../etc\" is no name"),
            ("yaml", "line 3"),
        ];
        assert_eq!(shown.len(), parts.len());
        for (line, (name, part)) in shown.iter().zip(parts) {
            assert!(line.contains(&format!("{name}/SKILL.md")) && line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_project_can_t_link_to_the_person_s_files() {
        let tree = Tree::new();
        fs::write(tree.root.join("home/key"), "secret").unwrap();
        for (place, name) in [("home/p/.claude", "theirs"), ("home/.claude", "mine")] {
            let folder = tree.root.join(place).join("skills").join(name);
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(tree.root.join("home/key"), folder.join("SKILL.md")).unwrap();
        }
        let Skills { found, broken } = tree.find();
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["mine"]);
        assert!(broken.len() == 1 && broken[0].flaw.reason.contains("out of the project"), "{broken:?}");
    }
}
