//! `SendMessage` to members (spec 2.3, 3.4): text by mail, what is structured over the owner link.

use serde_json::json;

use super::super::ask::{Ask, Asker};
use super::super::queue::Priority;
use super::super::session::Session;
use super::delete::shutdown_request;
use crate::agent::Input;
use crate::core::ids::AgentId;
use crate::core::question::Verdict;
use crate::core::team::Protocol;
use crate::core::team::name::{self, LEAD};
use crate::core::text::{escape, escape_attribute};
use crate::endpoint::alive_test;
use crate::permission::child_mode;
use crate::supervisor::Command;
use crate::tool::ToolOutput;
use crate::tool::message::{Message, Said, is_address};
use crate::tool::team_mail::{MailDesk, PlainMail, send_mail};

impl Session {
    /// Whether a message is for the team: what is neither for an address nor for a plain agent, if there
    /// is a team.
    pub(in super::super) fn is_for_member(&self, message: &Message) -> bool {
        let is_agent = |to: &str| {
            let found = self.supervisor.by_name(to).cloned().or_else(|| AgentId::parse(to));
            found.is_some_and(|id| id.as_member().is_none() && self.supervisor.get(&id).is_some())
        };
        let is_plain = matches!(message.said, Said::Plain(_));
        self.team.is_some() && !is_address(&message.to) && !(is_plain && is_agent(&message.to))
    }

    /// Carries out a `SendMessage` to members.
    pub(in super::super) fn send_in_team(&mut self, ask: Ask, message: Message) {
        let Some(team) = self.team.as_ref().map(|led| led.team.clone()) else {
            return ask.answer(ToolOutput::error("this session leads no team"));
        };
        let from = self.name_in_team(&ask.asker);
        match message.said {
            Said::Plain(text) => {
                let is_alive = alive_test(&self.runtime, &team);
                let desk = MailDesk { team, me: from, colour: None, is_alive };
                let mail = PlainMail { to: message.to, text, summary: message.summary };
                tokio::spawn(async move { ask.answer(send_mail(&desk, mail).await) });
            }
            said => {
                let member = team.roster().ok().and_then(|roster| Some(roster.member(&message.to)?.name.clone()));
                match member {
                    Some(name) if name::same(&name, LEAD) => ask.answer(ToolOutput::error("that is yourself")),
                    Some(name) => self.send_structured(ask, &name, said),
                    None => {
                        let names = team.roster().map(|roster| roster.names().join(", ")).unwrap_or_default();
                        let text = format!("there is no member {:?} in the team; it has: {names}", message.to);
                        ask.answer(ToolOutput::error(text));
                    }
                }
            }
        }
    }

    /// Sends something structured to the member `name`.
    pub(in super::super) fn send_structured(&mut self, ask: Ask, name: &str, said: Said) {
        if ask.asker != Asker::Main && ask.asker != Asker::Person {
            return ask.answer(ToolOutput::error("only the lead of the team says that to its members"));
        }
        if let (Some(other), Said::ShutdownRequest { reason }) = (self.living_other(name), &said) {
            let target = other.name.clone();
            return self.ask_other_to_end(&other.name, reason.clone(), move |asked| {
                ask.answer(match asked {
                    Ok(request_id) => asked_to_end(&target, &request_id),
                    Err(why) => ToolOutput::error(format!("{target} was not asked: {why}")),
                });
            });
        }
        let Some(id) = self.team.as_ref().and_then(|led| AgentId::member(name, led.team.folder())) else {
            return ask.answer(ToolOutput::error(format!("{name:?} is no member that this session could ask")));
        };
        let is_live = self.supervisor.get(&id).is_some_and(crate::supervisor::Slot::is_live);
        if !is_live && self.living_other(name).is_none() {
            let text = format!("{name} has no process that could answer: it has ended");
            return ask.answer(ToolOutput::error(text));
        }
        match said {
            Said::ShutdownRequest { reason } => {
                let request = shutdown_request(name, reason);
                let request_id = request.request_id.clone();
                let command = Command::Protocol(Box::new(Protocol::ShutdownRequest(request)));
                if !self.supervisor.command(&id, command) {
                    return ask.answer(ToolOutput::error(format!("{name} has too many requests waiting; try again")));
                }
                ask.answer(asked_to_end(name, &request_id));
            }
            Said::PlanApprovalResponse { request_id, approve, feedback } => {
                let answer = self.answer_plan(&id, &request_id, approve, feedback);
                ask.answer(match answer {
                    Ok(message) => ToolOutput::ok(message.clone())
                        .with(json!({"success": true, "message": message, "request_id": request_id, "target": name})),
                    Err(refusal) => ToolOutput::error(refusal),
                });
            }
            Said::Plain(_) | Said::ShutdownResponse { .. } => {
                ask.answer(ToolOutput::error("a lead asks for a shutdown, and members answer"));
            }
        }
    }

    fn answer_plan(
        &mut self,
        id: &AgentId,
        request_id: &str,
        approve: bool,
        feedback: Option<String>,
    ) -> Result<String, String> {
        let mode = child_mode(self.options.mode, None, None);
        let led = self.team.as_mut().ok_or("this session leads no team")?;
        let open: Vec<String> = led.plans.keys().cloned().collect();
        if led.plans.get(request_id).is_none_or(|(member, _)| member != id) {
            let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            return Err(format!("there is no plan {request_id:?} of that member that waits; waiting: {open}"));
        }
        let Some((_, reply)) = led.plans.remove(request_id) else { return Err("it is answered already".to_owned()) };
        let verdict = if approve {
            led.modes.insert(id.clone(), mode);
            led.taken_over.remove(id);
            let (team, name, word) = (led.team.clone(), id.as_member().map(|(name, _)| name.to_owned()), mode.as_str());
            tokio::task::spawn_blocking(move || {
                let written = team.change_roster(|roster| {
                    roster.edit_member(name.as_deref().unwrap_or_default(), |m| m.mode = Some(word.to_owned()));
                    Ok(())
                });
                if let Err(error) = written {
                    tracing::warn!(%error, "the roster does not say the member's new mode");
                }
            });
            Verdict::AllowIn { mode: word.to_owned() }
        } else {
            let feedback = feedback.unwrap_or_default();
            let reason = format!("the plan was not approved: {feedback}. Revise it and call ExitPlanMode again");
            Verdict::Deny { reason }
        };
        if reply.send(verdict).is_err() {
            return Err("the member does not wait for it any more".to_owned());
        }
        Ok(if approve {
            format!("The plan is approved; it goes on in mode {mode}.")
        } else {
            "It is told what to change.".to_owned()
        })
    }

    /// A member said that it does not end.
    pub(super) fn tell_refusal(&mut self, name: &str, reason: &str) {
        let text = format!(
            "<shutdown-rejected teammate_id=\"{}\">\n{}\n</shutdown-rejected>",
            escape_attribute(name),
            escape(reason)
        );
        self.queue.push(Priority::Next, Input { text, is_meta: true, ..Input::default() });
    }

    /// What this session is called in its team.
    pub(in super::super) fn name_in_team(&self, asker: &Asker) -> String {
        match asker {
            Asker::Main => LEAD.to_owned(),
            other => other.label(&self.id),
        }
    }
}

fn asked_to_end(name: &str, request_id: &str) -> ToolOutput {
    let message = format!("Shutdown request sent to {name}. Its answer comes by itself.");
    let structured = json!({"success": true, "message": message, "request_id": request_id, "target": name});
    ToolOutput::ok(format!("{message}\nrequest_id: {request_id}")).with(structured)
}
