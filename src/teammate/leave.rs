//! How a member ends: asked and willing, stopped from outside, or left alone for too long. Its cards
//! are free and the roster is right before its outcome is written (spec 3.2, 3.5).

use std::time::Duration;

use super::member::Teammate;
use crate::agent::Input;
use crate::core::agent::{Owner, RunStatus};
use crate::core::clock;
use crate::core::frame::Frame;
use crate::core::ids;
use crate::core::limits::deadlines;
use crate::core::team::payload::{ShutdownApproved, ShutdownRejected, ShutdownRequest};
use crate::core::team::{Letter, Protocol, name};
use crate::core::text::{escape, escape_attribute, with_causes};
use crate::endpoint::RunEnding;
use crate::tool::ToolOutput;

/// How long locks are waited for on the way out: whoever stops it has little patience.
const PATIENCE: Duration = Duration::from_secs(1);

impl Teammate {
    /// Puts the question whether it ends to its model.
    pub(super) fn ask_to_end(&mut self, request: &ShutdownRequest) {
        let id = &request.request_id;
        if self.shutdown.contains(id) || self.leaving.is_some() {
            return;
        }
        self.shutdown.push(id.clone());
        let reason = request.reason.as_deref().unwrap_or("no reason given");
        let text = format!(
            "<shutdown-request request_id=\"{}\" from=\"{}\">\n{}\n</shutdown-request>\nYou are asked to end. Answer with \
SendMessage, to: \"{}\", message: {{\"type\": \"shutdown_response\", \"request_id\": \"{}\", \"approve\": true}}; your \
process ends with this turn. If work would be lost, approve: false with a reason.",
            escape_attribute(id),
            escape_attribute(if request.from.is_empty() { name::LEAD } else { &request.from }),
            escape(reason),
            name::LEAD,
            escape(id),
        );
        self.tell(vec![Input { text, is_meta: true, ..Input::default() }]);
    }

    /// Its model's answer to one of those questions. A busy member may have been asked twice before it
    /// hears of it; it then answers whichever it read, and yes to one is yes to all.
    pub(super) fn answer_shutdown(&mut self, request_id: &str, approve: bool, reason: Option<String>) -> ToolOutput {
        let Some(at) = self.shutdown.iter().position(|asked| asked == request_id) else {
            let open = match self.shutdown.as_slice() {
                [] => "none is open, so there is nothing to answer".to_owned(),
                open => format!("open: {}", open.join(", ")),
            };
            return ToolOutput::error(format!("there is no shutdown request {request_id:?}; {open}"));
        };
        let (request_id, from) = (self.shutdown.remove(at), self.me.name.clone());
        let timestamp = clock::iso(clock::now_ms());
        if approve {
            self.leaving = Some(request_id.clone());
            let structured = serde_json::json!({"success": true, "request_id": request_id, "target": name::LEAD});
            return ToolOutput::ok("You end when this turn is over. Finish it now.").with(structured);
        }
        let reason = reason.unwrap_or_default();
        self.tell_lead(Protocol::ShutdownRejected(ShutdownRejected {
            request_id: request_id.clone(),
            from,
            reason,
            timestamp,
        }));
        let structured = serde_json::json!({"success": true, "request_id": request_id, "target": name::LEAD});
        ToolOutput::ok("The lead is told that you go on, and why.").with(structured)
    }

    /// A message for its lead's runtime: over the owner link, or into the mailbox of a lead that is gone.
    pub(super) fn tell_lead(&self, message: Protocol) {
        if self.agent.state.owner == Owner::Lead {
            let _ = self.agent.owner.link.send(Frame::Protocol { message: Box::new(message) });
            return;
        }
        let letter = Letter {
            to: name::LEAD.to_owned(),
            from: self.me.name.clone(),
            text: message.to_text(),
            summary: None,
            color: Some(self.me.color.clone()),
            sent_ms: clock::now_ms(),
            msg_id: ids::random_uuid(),
        };
        let team = self.team.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = team.send(&letter) {
                tracing::warn!("the lead was not told: {}", with_causes(&error));
            }
        });
    }

    /// Whether it is over, and how.
    pub(super) fn ending(&self) -> Option<RunEnding> {
        if !self.agent.driver.is_idle() {
            return None;
        }
        if let Some(stopped) = self.agent.stopped() {
            return Some(stopped);
        }
        let error = if self.leaving.is_some() {
            None
        } else if self.is_overdue() {
            Some("its lead was gone and no other took it over (lead.orphanTtl)".to_owned())
        } else {
            return None;
        };
        Some(RunEnding { status: RunStatus::Completed, result: self.agent.partial(), error })
    }

    /// Leaves things in order, and the process.
    pub(super) async fn leave(mut self, ending: RunEnding) -> u8 {
        self.end_agents().await;
        let leaving = self.leaving.clone();
        let (team, me) = (self.team.clone().with_patience(PATIENCE), self.me.name.clone());
        let board = self.board().map(|board| board.with_patience(PATIENCE));
        let (has_left, note) = (leaving.is_some(), leave_note(&me, &ending));
        let tidied = tokio::task::spawn_blocking(move || {
            board.and_then(|board| board.release(&me, &note))?;
            if has_left {
                let (_, unread) = team.remove_member(&me)?;
                if unread > 0 {
                    tracing::warn!("{unread} unread messages went with {me}");
                }
                return Ok(());
            }
            team.change_roster(|roster| {
                roster.edit_member(&me, |member| member.is_active = Some(false));
                Ok(())
            })
        });
        // Locks have a limit of their own; what hangs all the same must not keep the process.
        match tokio::time::timeout(deadlines().stop_term + PATIENCE, tidied).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("roster or board are not in order: {}", with_causes(&error)),
            Ok(Err(panic)) => tracing::error!(%panic, "leaving the team failed"),
            Err(_) => tracing::warn!("roster or board are not in order: their files can't be reached"),
        }
        if let Some(request_id) = leaving {
            self.tell_lead(Protocol::ShutdownApproved(ShutdownApproved {
                request_id,
                from: self.me.name.clone(),
                timestamp: clock::iso(clock::now_ms()),
                pane_id: None,
                backend_type: None,
            }));
        }
        self.agent.finish_as(ending).await
    }
}

fn leave_note(me: &str, ending: &RunEnding) -> String {
    match &ending.error {
        Some(error) => format!("{me} ended: {error}"),
        None => format!("{me} left the team"),
    }
}
