//! The task board of the main conversation (spec 3.7): its own list, or that of the team it leads. And the
//! mode it works in once its plan is approved.

use std::sync::Arc;

use super::ask::{Ask, Asker};
use super::reload::main_policy;
use super::roles::variable;
use super::session::Session;
use crate::core::env;
use crate::core::team::list::{ListSource, list_id};
use crate::core::team::name::LEAD;
use crate::endpoint::{alive_test, tool_environment};
use crate::hook::{HookPlace, Hooks};
use crate::permission::Mode;
use crate::store::team::{Board, Team, TeamError};
use crate::tool::ToolOutput;
use crate::tool::tasks::{TaskDesk, carry_out};
use crate::wire::address;

impl Session {
    /// Carries out one call of a tool of the task board.
    pub(super) fn task_board(&self, ask: Ask) {
        if ask.asker != Asker::Main {
            let text = format!("{} is for the main conversation and for members of its team", ask.tool);
            return ask.answer(ToolOutput::error(text));
        }
        match self.task_desk() {
            Err(error) => ask.answer(ToolOutput::error(error.to_string())),
            // Locks and hooks may take their time.
            Ok(desk) => drop(tokio::spawn(async move {
                let output = carry_out(&desk, &ask.tool, &ask.input, &ask.cancel).await;
                ask.answer(output);
            })),
        }
    }

    /// The team this session leads.
    fn led_team(&self) -> Option<Team> {
        Some(self.team.as_ref()?.team.clone())
    }

    /// The board it works at.
    fn task_desk(&self) -> Result<TaskDesk, TeamError> {
        let team = self.led_team();
        let led = team.as_ref().map(Team::folder);
        let (list, source) = list_id(variable(&self.options, env::TASK_LIST_ID), None, led, self.id.as_str());
        let lead = &self.options.settings.lead;
        let board = match (&team, source) {
            (Some(team), ListSource::Lead) => team.board(),
            _ => Board::open(&self.options.config_dir, list, lead.durability)?,
        };
        Ok(TaskDesk {
            board,
            me: if team.is_some() { LEAD } else { self.id.as_str() }.to_owned(),
            colour: None,
            is_lead: true,
            hooks: self.hooks(),
            nudge: lead.verification_nudge,
            is_alive: team.as_ref().map_or_else(|| Arc::new(|_: &_| true) as _, |team| alive_test(&self.runtime, team)),
            team,
        })
    }

    /// The user's hooks, for what happens in this session.
    pub(super) fn hooks(&self) -> Hooks {
        let place = HookPlace {
            session: self.id.as_str().to_owned(),
            transcript: self.files.transcript().to_owned(),
            cwd: self.options.cwd.clone(),
            permission_mode: self.options.mode.as_str().to_owned(),
        };
        let (environment, secrets) = env::split_for_agent(self.options.environment.iter().cloned());
        let (id, socket) = (self.id.as_str(), address(&self.runtime.socket_path(&self.runtime_name)));
        let vars = tool_environment(&[environment, secrets].concat(), id, id, &self.runtime_name, &socket);
        Hooks::new(self.options.settings.hooks.clone(), place, vars)
    }

    /// The person has approved the plan: what it says may be done, with the usual questions. Agents that were
    /// started meanwhile and have no mode of their own may as well.
    pub(super) fn leave_plan_mode(&mut self) {
        if self.options.mode != Mode::Plan {
            return;
        }
        self.options.mode = Mode::Default;
        // As if it had been started so: settings that are read again do not bring the plan back.
        Arc::make_mut(&mut self.options.sources).flags.mode = Some(Mode::Default.as_str().to_owned());
        let (policy, _) = main_policy(&self.options, self.scratchpad.as_deref(), &self.files, &self.known);
        self.policy.set(policy);
        self.say("the plan is approved: permission mode default from here on");
        for id in self.supervisor.live() {
            self.send_permissions(&id);
        }
    }
}
