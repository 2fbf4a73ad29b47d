//! Why an agent's process could not start or go on.

use crate::store::StoreError;
use crate::wire::WireError;

/// Ends an agent's process with a message on its log.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Started by hand instead of by a lead.
    #[error("{0} is started by a lead, which talks to it over file descriptor 0; run `lead --help` instead")]
    NotStartedByLead(&'static str),
    /// The parent did not say what to do.
    #[error("no welcome from the parent")]
    Handshake(#[source] WireError),
    /// The parent refused this build.
    #[error("refused by the parent: {0}")]
    Refused(String),
    /// A file of this agent can't be used.
    #[error("can't use the agent's files")]
    Store(#[from] StoreError),
    /// Its team can't be used.
    #[error("can't join the team")]
    Team(#[from] crate::store::team::TeamError),
    /// A member was not told which team it is of.
    #[error("a teammate needs a team, and its lead named none")]
    NoTeam,
    /// A socket can't be made.
    #[error("can't open the agent's socket")]
    Wire(#[from] WireError),
    /// The model can't be opened.
    #[error("{0}")]
    Model(#[from] crate::model::ModelError),
    /// The operating system refused something basic.
    #[error("{action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}
