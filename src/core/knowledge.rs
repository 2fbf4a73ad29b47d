//! What people wrote down for agents: skills and files of instructions. A lead finds them when its
//! session starts; its agents are told by the handshake.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The field of `toolUseResult` that lists the files of instructions shown with a result.
pub const SHOWN_INSTRUCTIONS: &str = "instructions";

/// Instructions for one kind of task, in a folder of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// What it is called by.
    pub name: String,
    /// When to use it, on one line; may be empty.
    pub description: String,
    /// Its `SKILL.md`.
    pub file: PathBuf,
    /// Whether only the person may call for it (`disable-model-invocation`).
    #[serde(default)]
    pub only_by_person: bool,
}

impl Knowledge {
    /// The folders of the skills: what they name may be read.
    pub fn skill_folders(&self) -> Vec<PathBuf> {
        self.skills.iter().filter_map(|skill| skill.file.parent()).map(PathBuf::from).collect()
    }
}

/// What one conversation is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    /// The skills there are, each name once, sorted.
    pub skills: Vec<Skill>,
    /// The project's root, a real path: in it, `CLAUDE.md` files of folders that are read from are
    /// shown too. None = no such files are shown.
    pub project: Option<PathBuf>,
    /// Files of instructions that the system prompt holds already, real paths.
    pub told: Vec<PathBuf>,
}
