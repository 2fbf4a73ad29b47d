//! What a verb opens a session with that has no lead, to act in its place: the session's own folder
//! and what is configured there; where no model is, that of the session's latest agent.

use std::path::PathBuf;

use super::args::RunArgs;
use super::error::CliError;
use super::folders::Folders;
use super::options;
use super::run::Run;
use crate::core::ids::SessionId;
use crate::core::paths::SessionFiles;
use crate::lead::{SessionChoice, SessionOptions};
use crate::store::session::agents_of;
use crate::store::sessions::beginning;

/// What is done in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// An agent is started.
    Spawn,
    /// One goes on.
    Resume,
}

/// Options for one act in an existing session. `flags` are what the verb was called with.
pub(super) fn options_of(
    act: Act,
    session: &SessionId,
    files: &SessionFiles,
    flags: RunArgs,
    folders: &Folders,
) -> Result<SessionOptions, CliError> {
    let cwd = beginning(files.transcript())?.cwd.map_or_else(|| folders.cwd.clone(), PathBuf::from);
    let goes_on = act == Act::Resume;
    let mut run = Run { goes_on, ..Run::of_flags(RunArgs { cwd: Some(cwd), ..flags }) };
    let choice = SessionChoice::Resume(session.clone());
    match options::resolve(&run, choice.clone(), folders) {
        Err(CliError::NoModel) => {
            run.flags.model = agents_of(files).into_iter().rev().find_map(|(_, _, meta)| meta.model);
            options::resolve(&run, choice, folders)
        }
        resolved => resolved,
    }
}
