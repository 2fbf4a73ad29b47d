//! What members' runtimes say over their owner links (spec 3.4), and their plans, which come as
//! questions of permission and are for the lead's model to decide.

use tokio::sync::oneshot;

use super::super::queue::Priority;
use super::super::session::Session;
use crate::agent::{Event as AgentEvent, Input};
use crate::core::clock;
use crate::core::ids::AgentId;
use crate::core::question::{Question, Verdict};
use crate::core::team::Protocol;
use crate::core::team::payload::{IdleNotification, IdleReason};
use crate::core::text::{escape, escape_attribute};

impl Session {
    /// Something that a member's runtime says, with the authority of its link.
    pub(in super::super) fn on_protocol(&mut self, id: &AgentId, message: Protocol) {
        let Some(led) = &mut self.team else { return };
        led.stirred = true;
        match message {
            Protocol::IdleNotification(notice) => {
                match notice.idle_reason {
                    None | Some(IdleReason::Available) => led.unable.remove(&notice.from),
                    Some(_) => led.unable.insert(notice.from.clone()),
                };
                // What it sent before comes first.
                led.rested.push(notice);
                led.has_mail = true;
                self.attend_team();
            }
            // Its outcome tells the same, and is never lost.
            Protocol::ShutdownApproved(_) => {}
            Protocol::ShutdownRejected(no) => {
                let name = id.as_member().map(|(name, _)| name.to_owned());
                name.iter().for_each(|name| self.on_refusal(name, &no.reason));
            }
            other => tracing::warn!(%id, "a member sent a {}, which is nothing for a lead", other.kind()),
        }
    }

    /// Tells the model who rests, once it has been shown what they sent before (R025). It costs no turn
    /// (R034), but where it is all that a resumed session has to begin with.
    pub(in super::super) fn tell_rested(&mut self) {
        if !self.driver.is_idle() || !self.queue.is_empty() {
            return;
        }
        let rested = self.take_rested();
        if self.has_not_begun() && !rested.is_empty() {
            rested.into_iter().for_each(|notice| self.queue.push(Priority::Later, notice));
            return self.next_turn();
        }
        for notice in rested {
            self.step(AgentEvent::Note(notice));
        }
    }

    /// What is to be told of those who rest, behind all mail: nothing while some may wait to be read.
    pub(in super::super) fn take_rested(&mut self) -> Vec<Input> {
        match self.team.as_mut().filter(|led| !led.reads && !led.has_mail) {
            Some(led) => std::mem::take(&mut led.rested).iter().map(rest_notice).collect(),
            None => Vec::new(),
        }
    }

    /// Puts a member's plan to the model.
    pub(in super::super) fn on_plan(&mut self, id: &AgentId, question: &Question, reply: oneshot::Sender<Verdict>) {
        let Some((name, team)) = id.as_member() else { return };
        let request = format!("plan_approval-{}@{name}@{team}", clock::now_ms());
        let plan = question.input.get("plan").and_then(serde_json::Value::as_str).unwrap_or_default();
        self.put_plan(id, request, plan, reply);
    }

    /// The same under the id that the answer is to repeat.
    pub(super) fn put_plan(&mut self, id: &AgentId, request: String, plan: &str, reply: oneshot::Sender<Verdict>) {
        let Some((name, _)) = id.as_member() else { return };
        let text = format!(
            "<plan-approval-request request_id=\"{}\" teammate_id=\"{}\">\n{}\n</plan-approval-request>\nThe member waits \
for your answer and changes nothing until it has it: SendMessage to \"{name}\" with message {{\"type\": \
\"plan_approval_response\", \"request_id\": \"{}\", \"approve\": true}}, or false with feedback.",
            escape_attribute(&request),
            escape_attribute(name),
            escape(plan),
            escape(&request),
        );
        let Some(led) = &mut self.team else { return };
        // One that is put again by a member that was taken over takes the place of the first.
        led.plans.retain(|_, (member, _)| member != id);
        if led.plans.contains_key(&request) {
            tracing::warn!(%id, "its plan is ignored: it has the id of another member's");
            return;
        }
        led.plans.insert(request, (id.clone(), reply));
        self.queue.push(Priority::Next, Input { text, is_meta: true, ..Input::default() });
    }
}

/// What the model is told of a member that rests.
fn rest_notice(notice: &IdleNotification) -> Input {
    let reason = match notice.idle_reason {
        None | Some(IdleReason::Available) => "available",
        Some(IdleReason::Interrupted) => "interrupted",
        Some(IdleReason::Failed) => "failed",
        Some(IdleReason::Other) => "other",
    };
    let mut text = format!("<teammate-idle teammate_id=\"{}\" reason=\"{reason}\">\n", escape_attribute(&notice.from));
    let card = notice.completed_task_id.as_ref().map(|id| format!("It completed card #{id}."));
    let error = notice.error.as_ref().map(|error| match notice.idle_reason {
        Some(IdleReason::Failed) => format!("Its turn failed: {error}"),
        _ => error.clone(),
    });
    let words = notice.result.as_ref().map(|words| format!("Its last words: {words}"));
    for part in [card, error, notice.summary.clone(), words].into_iter().flatten() {
        text.push_str(&escape(&part));
        text.push('\n');
    }
    text.push_str("</teammate-idle>");
    Input { text, is_meta: true, ..Input::default() }
}
