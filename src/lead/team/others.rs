//! Members that are no processes of this session (formats B.5): scripts, and those of other programs.
//! They are asked and answered by mail alone, where anybody can write. So an answer counts only if it is
//! one to a question of ours, and what is asked for by mail is decided like any other question.

use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use super::super::ask::Asker;
use super::super::queue::Priority;
use super::super::session::Session;
use super::delete::shutdown_request;
use super::led::{News, report};
use crate::agent::Input;
use crate::core::clock;
use crate::core::ids::{self, AgentId};
use crate::core::limits::deadlines;
use crate::core::question::{Question, Verdict};
use crate::core::team::name::LEAD;
use crate::core::team::payload::{
    Granted, PermissionRequest, PermissionResponse, PlanApprovalRequest, PlanApprovalResponse, Verdict as Word,
};
use crate::core::team::roster::Backend;
use crate::core::team::{Letter, Mail, Member, Protocol};
use crate::core::text::{escape_attribute, one_line, with_causes};
use crate::endpoint::{MemberState, alive_test, member_state};
use crate::permission::Decision;
use crate::proc::PidFd;
use crate::store::runtime::RuntimeDir;
use crate::store::team::{Team, TeamError};
use crate::tool::ToolOutput;

/// One that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Other {
    pub name: String,
    pub pid: i32,
}

/// Whether a member is reached by mail only: our own have a session, which is the lead's to run.
fn is_other(member: &Member) -> bool {
    !member.is_lead() && (member.backend() == Backend::External || member.session_id.is_none())
}

/// Those that work as far as can be told: of one that runs inside of another program, nothing can.
pub(super) fn working(runtime: &RuntimeDir, team: &Team) -> Result<Vec<(Member, i32)>, TeamError> {
    let roster = team.roster()?;
    let mut working = Vec::new();
    for member in roster.members().filter(|member| is_other(member)) {
        if let MemberState::Running(Some(pid)) | MemberState::External(Some(pid)) =
            member_state(runtime, team, &roster, member)?
        {
            working.push((member.clone(), pid));
        }
    }
    Ok(working)
}

/// Puts a message between runtimes into the mailbox of a member.
async fn post(team: Team, to: String, message: Protocol) -> Result<(), String> {
    let letter = Letter {
        to,
        from: LEAD.to_owned(),
        text: message.to_text(),
        summary: None,
        color: None,
        sent_ms: clock::now_ms(),
        msg_id: ids::random_uuid(),
    };
    match tokio::task::spawn_blocking(move || team.send(&letter)).await {
        Ok(sent) => sent.map(drop).map_err(|error| with_causes(&error)),
        Err(panic) => Err(panic.to_string()),
    }
}

impl Session {
    /// The member of this name, if it is one of these. One that this session runs is none, whatever the
    /// roster says, where members can write.
    pub(super) fn other(&self, name: &str) -> Option<Member> {
        let team = &self.team.as_ref()?.team;
        let is_known = AgentId::member(name, team.folder()).is_some_and(|id| self.supervisor.get(&id).is_some());
        team.roster().ok()?.member(name).filter(|member| is_other(member) && !is_known).cloned()
    }

    /// The same, if it is not known to be gone.
    pub(super) fn living_other(&self, name: &str) -> Option<Member> {
        let team = &self.team.as_ref()?.team;
        self.other(name).filter(|member| alive_test(&self.runtime, team)(member))
    }

    /// Those that work.
    pub(super) fn working_others(&self) -> Vec<Other> {
        let Some(led) = &self.team else { return Vec::new() };
        match working(&self.runtime, &led.team) {
            Ok(working) => working.into_iter().map(|(member, pid)| Other { name: member.name, pid }).collect(),
            Err(TeamError::Gone { .. }) => Vec::new(),
            Err(error) => {
                tracing::warn!("who else works in the team is not known: {}", with_causes(&error));
                Vec::new()
            }
        }
    }

    /// Tells the loop when one of them is gone, for as long as `patience`; until the answer is dropped.
    pub(super) fn await_gone(&self, others: &[Other], patience: Duration) -> tokio::task::JoinSet<()> {
        let mut waits = tokio::task::JoinSet::new();
        for Other { pid, .. } in others {
            let (pid, inner) = (*pid, self.inner.clone());
            waits.spawn(async move {
                // One that can't be opened is gone already.
                if let Ok(process) = PidFd::open(pid) {
                    let _ = tokio::time::timeout(patience, process.exited()).await;
                }
                report(&inner, News::OtherGone { left: None }).await;
            });
        }
        waits
    }

    /// Asks one of them to end; whoever waits is told what came of the request.
    pub(super) fn ask_other_to_end(
        &mut self,
        name: &str,
        reason: Option<String>,
        told: impl FnOnce(Result<String, String>) + Send + 'static,
    ) {
        let Some(led) = &mut self.team else { return told(Err("the team is gone".to_owned())) };
        let request = shutdown_request(name, reason);
        let id = request.request_id.clone();
        led.by_mail.insert(name.to_owned(), id.clone());
        let posted = post(led.team.clone(), name.to_owned(), Protocol::ShutdownRequest(request));
        tokio::spawn(async move { told(posted.await.map(|()| id)) });
    }

    /// What such a member says to this session's runtime.
    pub(super) fn on_other_said(&mut self, mail: &Mail, member: Member, message: Protocol) {
        let name = member.name.clone();
        match message {
            Protocol::ShutdownApproved(yes) if self.was_asked(&name, &yes.request_id) => self.on_goodbye(name),
            Protocol::ShutdownRejected(no) if self.was_asked(&name, &no.request_id) => {
                self.on_refusal(&name, &no.reason);
            }
            Protocol::PermissionRequest(asked) => self.on_other_question(name, asked),
            Protocol::PlanApprovalRequest(plan) => self.on_other_plan(name, plan),
            other => tracing::warn!(
                "a {} from {:?} came by mail and is ignored: it answers nothing that was asked",
                other.kind(),
                mail.from
            ),
        }
    }

    /// Whether this was the question, which has its answer now.
    fn was_asked(&mut self, name: &str, request: &str) -> bool {
        let Some(led) = &mut self.team else { return false };
        led.by_mail.get(name).is_some_and(|asked| asked == request) && led.by_mail.remove(name).is_some()
    }

    /// It leaves: its process ends by itself, and then its place is given up here.
    fn on_goodbye(&mut self, name: String) {
        let pid = self.working_others().into_iter().find(|other| other.name == name).map(|other| other.pid);
        let Some(led) = &self.team else { return };
        let (team, inner) = (led.team.clone(), self.inner.clone());
        tokio::spawn(async move {
            if let Some(pid) = pid
                && let Ok(process) = PidFd::open(pid)
                && tokio::time::timeout(deadlines().goodbye, process.exited()).await.is_err()
            {
                return report(&inner, News::OtherStays { name, pid }).await;
            }
            let who = name.clone();
            let left = tokio::task::spawn_blocking(move || {
                team.board().release(&who, &format!("{who} left the team"))?;
                match team.remove_member(&who) {
                    // A script has done so itself; or all of it is gone.
                    Err(TeamError::NoMember { .. } | TeamError::Gone { .. }) => Ok(()),
                    removed => removed.map(drop),
                }
            });
            match left.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("{name} left and is still in the roster: {}", with_causes(&error)),
                Err(panic) => tracing::error!(%panic, "taking a member out failed"),
            }
            report(&inner, News::OtherGone { left: Some(name) }).await;
        });
    }

    /// One has agreed to end and works on: that is a no, since nothing of it may be taken away (R032).
    pub(super) fn on_other_stays(&mut self, name: &str, pid: i32) {
        let waited = humantime::format_duration(deadlines().goodbye);
        self.on_refusal(name, &format!("it agreed, and its process {pid} still runs {waited} later"));
    }

    /// One is gone, or has left in order.
    pub(super) fn on_other_gone(&mut self, left: Option<String>) {
        let Some(led) = &mut self.team else { return };
        led.stirred = true;
        if let Some(name) = left {
            let id = AgentId::member(&name, led.team.folder());
            let asked = id.and_then(|id| led.asked.remove(&id)).unwrap_or_default();
            if asked.is_empty() && led.removal.is_none() {
                let text = format!(
                    "<teammate-terminated teammate_id=\"{}\">\n{}\n</teammate-terminated>",
                    escape_attribute(&name),
                    "It ended as it was asked to, and is no member any more."
                );
                self.queue.push(Priority::Later, Input { text, is_meta: true, ..Input::default() });
            }
            for ask in asked {
                let text = format!("{name} ended and left the team");
                ask.answer(ToolOutput::ok(text).with(json!({"name": name, "state": "left"})));
            }
        }
        self.note_gone();
    }

    /// It asks whether it may call a tool. What rules and mode of this session decide is decided (R072).
    fn on_other_question(&mut self, name: String, asked: PermissionRequest) {
        let PermissionRequest { request_id, tool_name: tool, input, description, .. } = asked;
        let (reply, verdict) = oneshot::channel();
        let input_back = input.clone();
        self.answer_by_mail(name.clone(), verdict, {
            let request_id = request_id.clone();
            move |verdict| {
                let (subtype, response, error) = match verdict {
                    Verdict::Allow | Verdict::AllowIn { .. } => {
                        let granted = Granted { updated_input: Some(input_back), permission_updates: Vec::new() };
                        (Word::Success, Some(granted), None)
                    }
                    Verdict::Deny { reason } => (Word::Error, None, Some(reason)),
                };
                Protocol::PermissionResponse(PermissionResponse { request_id, subtype, response, error })
            }
        });
        let reason = match self.policy.get().decide(&tool, &input) {
            Decision::Allow { .. } => return drop(reply.send(Verdict::Allow)),
            Decision::Deny { reason } => return drop(reply.send(Verdict::Deny { reason })),
            Decision::Ask { reason } => reason,
        };
        let shown = if description.trim().is_empty() { input.to_string() } else { description };
        let question = Question { tool_use_id: request_id, tool, input, description: one_line(&shown, 200), reason };
        match self.team.as_ref().and_then(|led| AgentId::member(&name, led.team.folder())) {
            Some(id) => self.on_question(Asker::Agent(id), question, reply),
            None => drop(reply.send(Verdict::Deny { reason: no_id(&name) })),
        }
    }

    /// It hands in a plan.
    fn on_other_plan(&mut self, name: String, plan: PlanApprovalRequest) {
        let (reply, verdict) = oneshot::channel();
        let request_id = plan.request_id.clone();
        self.answer_by_mail(name.clone(), verdict, move |verdict| {
            let (approved, permission_mode, feedback) = match verdict {
                Verdict::Allow => (true, None, None),
                Verdict::AllowIn { mode } => (true, Some(mode), None),
                Verdict::Deny { reason } => (false, None, Some(reason)),
            };
            let timestamp = clock::iso(clock::now_ms());
            Protocol::PlanApprovalResponse(PlanApprovalResponse {
                request_id,
                approved,
                timestamp,
                permission_mode,
                feedback,
            })
        });
        match self.team.as_ref().and_then(|led| AgentId::member(&name, led.team.folder())) {
            Some(id) => self.put_plan(&id, plan.request_id, &plan.plan_content, reply),
            None => drop(reply.send(Verdict::Deny { reason: no_id(&name) })),
        }
    }

    /// Mails the answer to a question, once there is one. A question that is put again is answered then.
    fn answer_by_mail(
        &self,
        name: String,
        verdict: oneshot::Receiver<Verdict>,
        in_words: impl FnOnce(Verdict) -> Protocol + Send + 'static,
    ) {
        let Some(led) = &self.team else { return };
        let team = led.team.clone();
        tokio::spawn(async move {
            let Ok(verdict) = verdict.await else { return };
            if let Err(why) = post(team, name.clone(), in_words(verdict)).await {
                tracing::warn!("{name} was not told the answer to its question: {why}");
            }
        });
    }
}

/// Why there is nobody of this name to ask for.
fn no_id(name: &str) -> String {
    format!("{name:?} is no name that a question can be shown under")
}
