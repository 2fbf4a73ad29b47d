//! Handing an agent the rules that hold from now on.

use std::sync::Arc;

use crate::core::frame::{Frame, SetPermissions};
use crate::core::ids::AgentId;
use crate::core::limits::deadlines;
use crate::wire::Link;

/// Sends `said` and waits for the answer in a task of its own, so that a frozen agent holds nothing up.
/// It has no authority over the agent but by this link.
pub(super) fn set_permissions(id: &AgentId, link: &Link, said: &Arc<SetPermissions>) {
    let (id, link, frame) = (id.clone(), link.clone(), Frame::SetPermissions(Box::new(SetPermissions::clone(said))));
    tokio::spawn(async move {
        match link.request(frame, deadlines().reply).await {
            Ok(Frame::Done) => tracing::info!(%id, "the agent obeys the new permission rules"),
            Ok(Frame::Error { message, .. }) => {
                tracing::warn!(%id, "the agent goes on with its old permission rules: {message}");
            }
            Ok(_) => tracing::warn!(%id, "the agent answered its new permission rules with something else"),
            // Its run is over, so it makes no more calls.
            Err(crate::wire::WireError::Closed) => {}
            Err(error) => tracing::warn!(%id, %error, "the agent goes on with its old permission rules"),
        }
    });
}
