//! Why a session could not be run. What went wrong *in* a session is a [`super::RunReport`].

use std::path::PathBuf;

use crate::core::ids::SessionId;
use crate::store::StoreError;
use crate::supervisor::LaunchError;
use crate::wire::WireError;

/// A session that did not start.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    /// Another process runs it.
    #[error("session {session} is running already{}", owner.as_ref().map(|(pid, address)| format!(": pid {pid} at {address}")).unwrap_or_default())]
    Running {
        /// The session.
        session: SessionId,
        /// Pid and address of the process, where it is registered.
        owner: Option<(i32, String)>,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// A session of this id exists.
    #[error("session {0} exists already; resume it with --resume {0}")]
    SessionExists(SessionId),
    /// The options contradict each other or lack something.
    #[error("{0}")]
    Usage(String),
    /// A file can't be used.
    #[error("can't use the session's files")]
    Store(#[from] StoreError),
    /// The session's socket can't be made.
    #[error("can't open the session's socket")]
    Wire(#[from] WireError),
    /// Agents can't be started at all.
    #[error("agents can't be started")]
    Launch(#[from] LaunchError),
    /// The model can't be used.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// The folder to work in can't be used.
    #[error("can't work in {path}")]
    WorkingFolder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The operating system refused something basic.
    #[error("{action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}
