//! A member that a person can watch: its conversation goes to its pane as it is recorded, and what the
//! person types comes from there.

use std::fs::OpenOptions;
use std::future::pending;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use serde_json::Value;

use super::pane::{Pane, PaneEvent, PaneIdentity, PaneInput};
use crate::agent::Witness;
use crate::core::entry::Line;
use crate::core::frame::Membership;
use crate::core::paths::AgentFiles;
use crate::core::text::with_causes;
use crate::model::CallEvent;

/// The pane of a member.
pub(super) struct Watched {
    pub(super) pane: Pane,
    input: Option<PaneInput>,
}

impl Watched {
    /// Opens the pane of a member that has one. Log lines go to its log from here on: they would spoil
    /// what is drawn. A member whose pane can't be drawn on works all the same.
    pub(super) fn open(me: &Membership, files: &AgentFiles) -> Option<Self> {
        if !me.has_pane {
            return None;
        }
        if let Err(error) = log_to(files) {
            tracing::warn!("log lines stay in the pane: {error}");
            return None;
        }
        let colour = Some(me.color.clone()).filter(|colour| !colour.is_empty());
        match Pane::open(PaneIdentity { name: me.name.clone(), team: me.team.clone(), colour }) {
            Ok((pane, input)) => Some(Self { pane, input: Some(input) }),
            Err(error) => {
                tracing::warn!("nothing is shown in the pane: {}", with_causes(&error));
                None
            }
        }
    }

    /// Who shows what the conversation does.
    pub(super) fn witness(&self) -> Arc<dyn Witness> {
        Arc::new(Shown(self.pane.clone()))
    }
}

/// What the person does next at a pane that may not be there. Can be dropped and asked again.
pub(super) async fn typed(watched: &mut Option<Watched>) -> PaneEvent {
    match watched.as_mut().and_then(|watched| watched.input.as_mut()) {
        Some(input) => input.next().await,
        None => pending().await,
    }
}

/// The terminal is gone: nothing more comes from it.
pub(super) fn no_more(watched: &mut Option<Watched>) {
    if let Some(watched) = watched {
        watched.input = None;
    }
}

fn log_to(files: &AgentFiles) -> io::Result<()> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(files.log())?;
    nix::unistd::dup2_stderr(&log)?;
    Ok(())
}

/// Shows a conversation.
struct Shown(Pane);

impl Witness for Shown {
    fn line(&self, line: &Line) {
        self.0.show(line);
    }

    fn call(&self, event: CallEvent<'_>) {
        match event {
            CallEvent::Sent { .. } => {}
            CallEvent::Part { event, .. } => {
                if let Some(text) = text_in(event) {
                    self.0.part(&text);
                }
            }
            CallEvent::Waiting(_) => self.0.no_part(),
        }
    }

    fn compacting(&self) {
        self.0.note("the conversation is being summarised");
    }
}

/// The text that an event of a reply adds.
fn text_in(event: &str) -> Option<String> {
    let event: Value = serde_json::from_str(event).ok()?;
    Some(event.get("delta")?.get("text")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_reply_is_streamed() {
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi\n"}}"#;
        assert_eq!(text_in(delta).as_deref(), Some("hi\n"));
        let input = r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#;
        for other in [input, r#"{"type":"message_stop"}"#, "x"] {
            assert_eq!(text_in(other), None, "{other}");
        }
    }
}
