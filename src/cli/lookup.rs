//! From what a person types to an agent or session: a whole id, the beginning of one that fits no
//! other, or the name of an agent that lives.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::folders::Folders;
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::{AgentFiles, SessionFiles};
use crate::store::StoreError;
use crate::store::runtime::{Registered, RuntimeDir, list};
use crate::store::session::{resolve, resolve_prefix};
use crate::store::sessions::sessions;

/// An agent and where its files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub id: AgentId,
    pub files: AgentFiles,
}

/// A transcript of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Agent(Target),
    /// A session and its transcript.
    Session(SessionId, PathBuf),
}

impl Subject {
    /// Its id.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Agent(target) => target.id.as_str(),
            Self::Session(id, _) => id.as_str(),
        }
    }

    pub(super) fn transcript(&self) -> &Path {
        match self {
            Self::Agent(target) => target.files.transcript(),
            Self::Session(_, path) => path,
        }
    }
}

/// Those of the registry that belong to this config folder.
pub(super) fn ours(folders: &Folders, runtime: &RuntimeDir) -> Result<Vec<Registered>, StoreError> {
    let mut registered = list(runtime)?;
    registered.retain(|r| folders.is_ours(&r.entry.config_dir));
    Ok(registered)
}

/// Finds the agent that `text` means. `registered` are those of this config folder.
pub(super) fn find_agent(text: &str, folders: &Folders, registered: &[Registered]) -> Result<Target, CliError> {
    let text = text.trim();
    let (named, begins) = candidates(text, folders, registered);
    locate(pick(text, named, begins)?, folders, registered)
}

fn living(registered: &[Registered]) -> impl Iterator<Item = (&Registered, AgentId)> {
    registered.iter().filter(|r| r.alive).filter_map(|r| Some((r, AgentId::parse(&r.entry.agent_id)?)))
}

/// The living agents of the name `text`, and the agents whose id begins with it.
fn candidates(text: &str, folders: &Folders, registered: &[Registered]) -> (Vec<AgentId>, Vec<AgentId>) {
    let named = living(registered).filter(|(r, _)| r.entry.name.as_deref() == Some(text)).map(|(_, id)| id);
    let mut begins = resolve_prefix(&folders.config, text);
    // One whose link somebody removed can still be talked to.
    begins.extend(living(registered).map(|(_, id)| id).filter(|id| is_prefix(text, id)));
    (named.collect(), begins)
}

fn locate(id: AgentId, folders: &Folders, registered: &[Registered]) -> Result<Target, CliError> {
    match resolve(&folders.config, &id) {
        Ok(files) => Ok(Target { id, files }),
        Err(error) => {
            let state = living(registered).find(|(_, a)| *a == id).and_then(|(r, _)| r.state.as_ref());
            let files = state.map(|s| AgentFiles::of(&s.transcript)).ok_or(error)?;
            Ok(Target { id, files })
        }
    }
}

fn is_prefix(text: &str, id: &AgentId) -> bool {
    !text.is_empty() && (id.as_str().starts_with(text) || id.undashed().starts_with(text))
}

/// A name comes before the beginning of an id, so that no agent can be hidden by another's id.
fn pick(text: &str, named: Vec<AgentId>, begins: Vec<AgentId>) -> Result<AgentId, CliError> {
    let mut candidates = if named.is_empty() { begins } else { named };
    candidates.sort();
    candidates.dedup();
    match candidates.len() {
        0 => Err(CliError::NoAgent(text.to_owned())),
        1 => Ok(candidates.remove(0)),
        _ => Err(ambiguous(text, candidates.into_iter().map(String::from).collect())),
    }
}

/// The most that an error lists.
const LISTED: usize = 20;

fn ambiguous(text: &str, mut candidates: Vec<String>) -> CliError {
    let more = candidates.len().saturating_sub(LISTED);
    candidates.truncate(LISTED);
    if more > 0 {
        candidates.push(format!("or {more} others"));
    }
    CliError::Ambiguous { text: text.to_owned(), candidates }
}

/// Finds the session that `text` means: its id, or the beginning of it.
pub(super) fn find_session(text: &str, folders: &Folders) -> Result<(SessionId, SessionFiles), CliError> {
    let text = text.trim();
    let whole = SessionId::parse(text);
    let wanted = whole.as_ref().map_or(text, SessionId::as_str);
    let mut found = if wanted.is_empty() { Vec::new() } else { sessions(&folders.config, wanted) };
    match found.len() {
        0 => Err(CliError::NoSession(text.to_owned())),
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous(text, found.into_iter().map(|(id, _)| id.to_string()).collect())),
    }
}

/// Finds the agent or session that `text` means.
pub(super) fn find_subject(text: &str, folders: &Folders, registered: &[Registered]) -> Result<Subject, CliError> {
    let text = text.trim();
    let of_session = |(id, files): (SessionId, SessionFiles)| Subject::Session(id, files.transcript().to_path_buf());
    if SessionId::parse(text).is_some() {
        return find_session(text, folders).map(of_session);
    }
    let (named, begins) = candidates(text, folders, registered);
    let mut begun = if named.is_empty() && !text.is_empty() { sessions(&folders.config, text) } else { Vec::new() };
    match (begins.is_empty(), begun.len()) {
        (_, 0) => locate(pick(text, named, begins)?, folders, registered).map(Subject::Agent),
        (true, 1) => Ok(of_session(begun.remove(0))),
        _ => {
            let agents: BTreeSet<String> = begins.into_iter().map(String::from).collect();
            Err(ambiguous(text, agents.into_iter().chain(begun.into_iter().map(|(id, _)| id.to_string())).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AgentId {
        AgentId::parse(text).unwrap()
    }

    #[test]
    fn names_come_before_prefixes_and_several_are_listed() {
        let (one, two) = (id("a-1111111111111111"), id("a-1122222222222222"));
        assert_eq!(pick("a-111", vec![], vec![one.clone(), one.clone()]).unwrap(), one);
        assert_eq!(pick("a", vec![two.clone()], vec![one.clone(), two.clone()]).unwrap(), two);
        assert!(matches!(pick("x", vec![], vec![]), Err(CliError::NoAgent(text)) if text == "x"));
        for (named, begins) in [(vec![], vec![two.clone(), one.clone()]), (vec![two.clone(), one.clone()], vec![])] {
            let error = pick("a-11", named, begins).unwrap_err().to_string();
            assert!(error.contains("a-1111111111111111, a-1122222222222222"), "{error}");
        }
    }

    #[test]
    fn both_spellings_of_an_id_can_be_shortened() {
        let id = id("a-1a2b3c4d5e6f7890");
        for good in ["a", "a-", "a-1a", "a1a", "a-1a2b3c4d5e6f7890", "a1a2b3c4d5e6f7890"] {
            assert!(is_prefix(good, &id), "{good}");
        }
        for bad in ["", "1a", "a-2", "b", "a-1a2b3c4d5e6f78900"] {
            assert!(!is_prefix(bad, &id), "{bad}");
        }
    }
}
