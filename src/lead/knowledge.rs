//! What people wrote down for the agents of a session: found once, when it opens, and told to the
//! main conversation and to its agents by their system prompts, which thus stay the same bytes for as
//! long as the session's process lives.

use super::options::SessionOptions;
use crate::agent::{instructions_context, skills_context};
use crate::core::knowledge::Knowledge;
use crate::settings::{Places, instructions, skills};

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// For agents that are told all of it.
    pub knowledge: Knowledge,
    /// The instructions, as a part of a system prompt.
    instructions: String,
}

impl Known {
    /// Looks for skills and instructions. What can't be used is said on the log and left out.
    pub(super) fn find(options: &SessionOptions) -> Self {
        let places = Places { config: options.config_dir.root(), cwd: &options.cwd, home: options.home.as_deref() };
        let skills = skills::find(&places);
        for broken in &skills.broken {
            tracing::warn!("a skill was left out: {broken}");
        }
        let found = instructions::load(&places);
        for note in &found.notes {
            tracing::warn!("instructions were left out: {note}");
        }
        let knowledge = Knowledge {
            skills: skills.found,
            project: Some(places.project()),
            told: found.files.iter().map(|file| file.real.clone()).collect(),
        };
        Self { knowledge, instructions: instructions_context(&found.files) }
    }

    /// What an agent is told of. Types that only look things up for others (one-shot) work by their
    /// own prompt alone: their callers know the instructions.
    pub(super) fn of_agent(&self, one_shot: bool) -> Knowledge {
        if one_shot { Knowledge::default() } else { self.knowledge.clone() }
    }

    /// The part of the system prompt of whoever has this `knowledge` and these `tools`.
    pub(super) fn prompt(&self, knowledge: &Knowledge, tools: &[String]) -> String {
        let has_skills = tools.iter().any(|tool| tool == "Skill");
        let skills = if has_skills { skills_context(&knowledge.skills) } else { String::new() };
        let instructions = if knowledge.project.is_some() { self.instructions.as_str() } else { "" };
        format!("{skills}{instructions}")
    }
}
