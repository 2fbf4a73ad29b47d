//! Where things are (spec 4.1, 5.2, 1.9): pure functions from roots to paths. Nothing is created.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ids::{AgentId, SessionId};

/// The config folder and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDir(PathBuf);

impl ConfigDir {
    /// `root` is `CLAUDE_CONFIG_DIR`, or `~/.claude`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// `settings.json` of the user.
    pub fn settings(&self) -> PathBuf {
        self.0.join("settings.json")
    }

    /// `projects/`.
    pub fn projects(&self) -> PathBuf {
        self.0.join("projects")
    }

    /// The folder of the sessions started in `cwd` (a real path).
    pub fn project(&self, cwd: &Path) -> PathBuf {
        self.projects().join(sanitise_cwd(cwd))
    }

    /// A session's transcript.
    pub fn session(&self, cwd: &Path, session: &SessionId) -> PathBuf {
        self.project(cwd).join(format!("{session}.jsonl"))
    }

    /// `teams/`.
    pub fn teams(&self) -> PathBuf {
        self.0.join("teams")
    }

    /// `tasks/`.
    pub fn tasks(&self) -> PathBuf {
        self.0.join("tasks")
    }

    /// `lead/locks/`.
    pub fn locks(&self) -> PathBuf {
        self.0.join("lead").join("locks")
    }

    /// `lead/agents/`: a symlink per agent to its transcript.
    pub fn agent_links(&self) -> PathBuf {
        self.0.join("lead").join("agents")
    }

    /// The symlink of one agent.
    pub fn agent_link(&self, id: &AgentId) -> PathBuf {
        self.agent_links().join(id.as_str())
    }
}

/// The folder of a session in which its agents' transcripts are.
const SUBAGENTS: &str = "subagents";

/// Files that belong to one session, beside its transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFiles {
    transcript: PathBuf,
}

impl SessionFiles {
    /// From the path of the session's transcript (`…/<session>.jsonl`).
    pub fn of(transcript: impl Into<PathBuf>) -> Self {
        Self { transcript: transcript.into() }
    }

    /// The transcript.
    pub fn transcript(&self) -> &Path {
        &self.transcript
    }

    /// `<session>/`.
    pub fn folder(&self) -> PathBuf {
        self.transcript.with_extension("")
    }

    /// `<session>/subagents/`.
    pub fn subagents(&self) -> PathBuf {
        self.folder().join(SUBAGENTS)
    }

    /// `<session>/tool-results/`.
    pub fn tool_results(&self) -> PathBuf {
        self.folder().join("tool-results")
    }

    /// The files of one agent of this session.
    pub fn agent(&self, id: &AgentId) -> AgentFiles {
        AgentFiles::of(self.subagents().join(format!("{}.jsonl", id.file_stem())))
    }
}

/// A transcript of an agent and its companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFiles {
    transcript: PathBuf,
}

impl AgentFiles {
    /// From the path of the transcript.
    pub fn of(transcript: impl Into<PathBuf>) -> Self {
        Self { transcript: transcript.into() }
    }

    /// `agent-a….jsonl`.
    pub fn transcript(&self) -> &Path {
        &self.transcript
    }

    /// `agent-a….meta.json`.
    pub fn meta(&self) -> PathBuf {
        self.transcript.with_extension("meta.json")
    }

    /// `agent-a….log`: the process's stderr.
    pub fn log(&self) -> PathBuf {
        self.transcript.with_extension("log")
    }

    /// `agent-a….<run>.stop`: somebody is stopping this run.
    pub fn stop_marker(&self, run: u32) -> PathBuf {
        self.transcript.with_extension(format!("{run}.stop"))
    }

    /// The transcript of the session it belongs to: `…/<session>/subagents/x.jsonl` → `…/<session>.jsonl`.
    /// A member's is a session of its own.
    pub fn session_transcript(&self) -> Option<PathBuf> {
        let folder = self.transcript.parent()?;
        if folder.file_name().is_some_and(|name| name == SUBAGENTS) {
            return Some(folder.parent()?.with_extension("jsonl"));
        }
        Some(self.transcript.clone())
    }

    /// The id in the file name.
    pub fn agent_id(&self) -> Option<AgentId> {
        AgentId::parse(self.transcript.file_stem()?.to_str()?.strip_prefix("agent-")?)
    }
}

/// Folder name of a working folder: every character outside `[A-Za-z0-9]` → `-`; over 200
/// characters cut and hashed, so that two long ones never share a folder.
pub fn sanitise_cwd(cwd: &Path) -> String {
    let text = cwd.to_string_lossy();
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if plain.len() <= 200 {
        return plain;
    }
    let digest = Sha256::digest(text.as_bytes());
    let hash: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("{}-{hash}", &plain[..183])
}

/// `/tmp/claude-<uid>/<sanitised cwd>/<session>/scratchpad`.
pub fn scratchpad(uid: u32, cwd: &Path, session: &SessionId) -> PathBuf {
    PathBuf::from(format!("/tmp/claude-{uid}")).join(sanitise_cwd(cwd)).join(session.as_str()).join("scratchpad")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_folders_are_cut_and_stay_different() {
        assert_eq!(sanitise_cwd(Path::new("/home/me/my proj.x")), "-home-me-my-proj-x");
        let a = sanitise_cwd(Path::new(&format!("/{}/a", "x".repeat(300))));
        let b = sanitise_cwd(Path::new(&format!("/{}/b", "x".repeat(300))));
        assert_eq!(a.len(), 200);
        assert_ne!(a, b);
    }

    #[test]
    fn companions_lie_beside_the_transcript() {
        let Some(id) = AgentId::parse("a-1a2b3c4d5e6f7890") else { panic!("valid id") };
        let session = SessionFiles::of("/c/projects/p/s.jsonl");
        let files = session.agent(&id);
        assert_eq!(files.transcript(), Path::new("/c/projects/p/s/subagents/agent-a1a2b3c4d5e6f7890.jsonl"));
        assert_eq!(files.meta(), Path::new("/c/projects/p/s/subagents/agent-a1a2b3c4d5e6f7890.meta.json"));
        assert_eq!(files.stop_marker(2), Path::new("/c/projects/p/s/subagents/agent-a1a2b3c4d5e6f7890.2.stop"));
        assert_eq!(files.session_transcript(), Some(PathBuf::from("/c/projects/p/s.jsonl")));
        assert_eq!(files.agent_id(), Some(id));
        let member = AgentFiles::of("/c/projects/p/m.jsonl");
        assert_eq!(member.session_transcript(), Some(PathBuf::from("/c/projects/p/m.jsonl")));
        assert_eq!(member.stop_marker(1), Path::new("/c/projects/p/m.1.stop"));
    }
}
