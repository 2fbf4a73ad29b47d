//! Tools that the main loop of a member carries out: messages and cards itself, on the files of the
//! team, and the rest by its lead.

use super::member::{Done, Teammate};
use crate::core::env::Vars;
use crate::core::ids::AgentId;
use crate::core::limits::Durability;
use crate::core::paths::ConfigDir;
use crate::core::team::name::{LEAD, same};
use crate::core::text::with_causes;
use crate::endpoint::{Heard, PortCall, alive_test};
use crate::hook::{HookPlace, Hooks};
use crate::store::team::{Board, TeamError};
use crate::tool::ToolOutput;
use crate::tool::message::{Message, Said, is_address};
use crate::tool::tasks::{TaskDesk, TaskTool, carry_out};
use crate::tool::team_mail::{MailDesk, PlainMail, send_mail};

impl Teammate {
    pub(super) fn on_call(&mut self, call: PortCall) {
        match call.tool.as_str() {
            "SendMessage" => self.send_message(call),
            "Agent" | "Task" => self.delegate(call),
            tool if TaskTool::named(tool).is_some() => self.work_at_board(call),
            _ => self.agent.handle(Heard::Call(call)),
        }
    }

    /// The task list it works on: its team's, unless another was named.
    pub(super) fn board(&self) -> Result<Board, TeamError> {
        let config = &self.agent.config;
        match &self.me.task_list {
            Some(list) => Board::open(&ConfigDir::new(&config.config_dir), list, Durability::parse(&config.durability)),
            None => Ok(self.team.board()),
        }
    }

    /// To members by mail, to anybody else by its lead, who knows the agents and other sessions.
    fn send_message(&mut self, call: PortCall) {
        let message = match Message::parse(&call.input) {
            Ok(message) => message,
            Err(refusal) => return answer(call, ToolOutput::error(refusal)),
        };
        match message.said {
            Said::Plain(_) if is_address(&message.to) || self.is_agent(&message.to) => {
                self.agent.handle(Heard::Call(call));
            }
            Said::Plain(text) => {
                let Message { to, summary, .. } = message;
                let desk = MailDesk {
                    team: self.team.clone(),
                    me: self.me.name.clone(),
                    colour: Some(self.me.color.clone()),
                    is_alive: alive_test(&self.runtime, &self.team),
                };
                let done = self.done.clone();
                tokio::spawn(async move {
                    let sent = send_mail(&desk, PlainMail { to: to.clone(), text, summary: summary.clone() }).await;
                    if !sent.is_error && !same(&to, LEAD) {
                        let _ = done.send(Done::Sent { to, summary }).await;
                    }
                    answer(call, sent);
                });
            }
            Said::ShutdownResponse { request_id, approve, reason } => {
                let output = if same(&message.to, LEAD) {
                    self.answer_shutdown(&request_id, approve, reason)
                } else {
                    ToolOutput::error(format!("a shutdown_response goes to {LEAD}, who asked"))
                };
                answer(call, output);
            }
            Said::ShutdownRequest { .. } | Said::PlanApprovalResponse { .. } => {
                answer(call, ToolOutput::error("only the lead of the team says that to its members"));
            }
        }
    }

    /// Carries out a tool of the board in a task of its own.
    fn work_at_board(&self, call: PortCall) {
        let board = match self.board() {
            Ok(board) => board,
            Err(error) => return answer(call, ToolOutput::error(with_causes(&error))),
        };
        let desk = TaskDesk {
            board,
            team: Some(self.team.clone()),
            me: self.me.name.clone(),
            colour: Some(self.me.color.clone()),
            is_lead: false,
            hooks: self.hooks(),
            nudge: false,
            is_alive: alive_test(&self.runtime, &self.team),
        };
        let done = self.done.clone();
        tokio::spawn(async move {
            let output = carry_out(&desk, &call.tool, &call.input, &call.cancel).await;
            if let Some(card) = completed(&output) {
                let _ = done.send(Done::Completed(card)).await;
            }
            answer(call, output);
        });
    }

    /// The user's hooks, as they run for this member.
    pub(super) fn hooks(&self) -> Hooks {
        let config = &self.agent.config;
        let place = HookPlace {
            session: self.me.session.as_str().to_owned(),
            transcript: config.transcript.clone(),
            cwd: config.cwd.clone(),
            permission_mode: self.agent.mode().as_str().to_owned(),
        };
        Hooks::new(config.hooks.clone(), place, Vars::clone(&self.agent.tool_env))
    }

    /// Whether this is the id of an agent that is no member.
    fn is_agent(&self, to: &str) -> bool {
        AgentId::parse(to).is_some_and(|id| id.as_member().is_none())
    }
}

/// The card that a call has completed.
fn completed(output: &ToolOutput) -> Option<String> {
    let said = output.structured.as_ref().filter(|_| !output.is_error)?;
    let to = said.get("statusChange")?.get("to")?.as_str()?;
    (to == "completed").then(|| said.get("taskId")?.as_str().map(str::to_owned))?
}

fn answer(call: PortCall, output: ToolOutput) {
    let _ = call.reply.send(output);
}
