//! `Skill`: the instructions of a skill, read when they are called for. Which skills there are is
//! known from the session's start; a name that is not among them reads nothing.

use std::path::Path;

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{NOTICE_ROOM, blocking, shown};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::knowledge::Skill;
use crate::core::limits::TOOL_OUTPUT_CHARS;
use crate::core::message::ToolSpec;
use crate::core::text::{cap, one_line};
use crate::settings::skills::body;

/// Where the arguments go in a skill's text.
const ARGUMENTS: &str = "$ARGUMENTS";
/// Stands in a skill's text for its folder.
const FOLDER: &str = "${CLAUDE_SKILL_DIR}";

/// The tool.
#[derive(Clone, Debug)]
pub struct SkillTool {
    skills: Vec<Skill>,
}

impl SkillTool {
    /// With these skills; none if none of them is for a model to call.
    pub fn new(skills: &[Skill]) -> Option<Self> {
        skills.iter().any(|skill| !skill.only_by_person).then(|| Self { skills: skills.to_vec() })
    }

    fn find(&self, name: &str) -> Result<&Skill, String> {
        let name = name.strip_prefix('/').unwrap_or(name);
        match self.skills.iter().find(|skill| skill.name == name) {
            Some(skill) if skill.only_by_person => Err(format!(
                "the skill {name} is for the user to call for (disable-model-invocation); ask for it in your answer"
            )),
            Some(skill) => Ok(skill),
            None => {
                let known = self.skills.iter().filter(|skill| !skill.only_by_person).map(|skill| skill.name.as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                Err(format!("there is no skill {:?}; the skills are: {known}", one_line(name, 80)))
            }
        }
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Skill".to_owned(),
            description: "Returns the instructions of a skill, by the name under which your system prompt lists it. \
                          Call it before you begin a task that one of them is for, then do what it says."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "skill": {"type": "string", "description": "The skill's name"},
                    "args": {"type": "string", "description": "What the skill is to work on, if it takes anything"}
                },
                "required": ["skill"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn describe(&self, input: &Value) -> Activity {
        let name = input.get("skill").and_then(Value::as_str).unwrap_or_default();
        Activity {
            tool: "Skill".to_owned(),
            description: format!("Skill {}", one_line(name, 80)),
            is_search: false,
            is_read: true,
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let called = Arguments::new(input, &["skill", "args"]).and_then(|arguments| {
                let skill = self.find(arguments.required("skill")?)?.clone();
                Ok((skill, arguments.text("args")?.unwrap_or_default().to_owned()))
            });
            match called {
                Ok((skill, args)) => blocking(context, move |_| told(&skill, &args)).await,
                Err(what) => ToolOutput::error(what),
            }
        })
    }
}

fn told(skill: &Skill, args: &str) -> ToolOutput {
    let Skill { name, file, .. } = skill;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let text = match body(skill) {
        Ok(text) => filled(&text, args, folder),
        Err(broken) => return ToolOutput::error(format!("the skill {name} can't be used: {broken}")),
    };
    let text = cap(&text, TOOL_OUTPUT_CHARS - NOTICE_ROOM, |all| {
        format!("[cut: {all} characters in all; Read shows the rest of {}]", shown(file))
    });
    ToolOutput::ok(format!("Skill {name}. Paths in it are relative to its folder, {}.\n\n{text}", shown(folder)))
        .with(json!({"success": true, "commandName": name}))
}

/// The text with its arguments, which follow it if it has no place for them.
fn filled(text: &str, args: &str, folder: &Path) -> String {
    let text = text.replace(FOLDER, &folder.to_string_lossy());
    match text.contains(ARGUMENTS) {
        true => text.replace(ARGUMENTS, args),
        false if args.trim().is_empty() => text,
        false => format!("{text}\n\nARGUMENTS: {args}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn skill(folder: &Path, name: &str, text: &str) -> Skill {
        let file = folder.join(name).join("SKILL.md");
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(&file, text).unwrap();
        Skill { name: name.to_owned(), description: "d".to_owned(), file, only_by_person: false }
    }

    #[test]
    fn a_skill_is_its_text_with_folder_and_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("s").display().to_string();
        let said = |text: &str, args: &str| told(&skill(dir.path(), "s", text), args).text;
        let head = format!("Skill s. Paths in it are relative to its folder, {at}.\n\n");
        assert_eq!(
            said("---\nname: s\n---\nDo $ARGUMENTS, then $ARGUMENTS.", "x y"),
            format!("{head}Do x y, then x y.")
        );
        assert_eq!(said("Do it.", ""), format!("{head}Do it."));
        assert_eq!(said("Do it.", "$ARGUMENTS"), format!("{head}Do it.\n\nARGUMENTS: $ARGUMENTS"));
        assert_eq!(said("Run ${CLAUDE_SKILL_DIR}/a.sh", ""), format!("{head}Run {at}/a.sh"));
        let long = "é".repeat(TOOL_OUTPUT_CHARS);
        let output = said(&long, "");
        assert!(output.chars().count() <= TOOL_OUTPUT_CHARS && output.contains("[cut: 30000"), "{}", output.len());
    }

    #[test]
    fn only_listed_names_read_anything() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = vec![skill(dir.path(), "b", "B"), skill(dir.path(), "a", "A")];
        all[1].only_by_person = true;
        assert!(SkillTool::new(&all[1..]).is_none() && SkillTool::new(&[]).is_none());
        let tool = SkillTool::new(&all).unwrap();
        assert_eq!(tool.find("/b").map(|s| s.name.as_str()), Ok("b"));
        assert!(tool.find("a").unwrap_err().contains("for the user"));
        for unknown in ["../b", "b/SKILL.md", "", "B", "/etc/passwd"] {
            let error = tool.find(unknown).unwrap_err();
            assert!(error.ends_with("the skills are: b"), "{error}");
        }
        fs::remove_file(&all[0].file).unwrap();
        let gone = told(&all[0], "");
        assert!(gone.is_error && gone.text.contains("b/SKILL.md"), "{}", gone.text);
    }
}
