//! Members: how `Agent` with a `name` starts one, ready before the call returns or undone (spec 3.2),
//! and what is known of one that has ended.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::ask::{Ask, Asker};
use super::super::person::reachable;
use super::super::queue::Priority;
use super::super::roles::teams_enabled;
use super::super::roles::{scratchpad_note, variable};
use super::super::route::Plan;
use super::super::session::{Inner, Session};
use super::super::told::Task;
use super::led::{News, report};
use super::seat::{enter_place, show_no_hidden};
use super::writes::Writes;
use crate::agent::{Identity as MemberIdentity, Input, teammate_prompt};
use crate::core::agent::{Meta, Outcome, RowState, RunStatus};
use crate::core::clock;
use crate::core::entry::{ORIGIN_NOTIFICATION, Origin};
use crate::core::env;
use crate::core::frame::{AgentConfig, Membership, Prompt};
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::{AgentFiles, ConfigDir};
use crate::core::team::Member;
use crate::core::team::name;
use crate::core::team::roster::HEADLESS;
use crate::core::text::{escape, escape_attribute, one_line, with_causes};
use crate::permission::{Mode, child_mode};
use crate::store::session::unlink;
use crate::store::team::Team;
use crate::supervisor::{Launched, Panes, ReadyReceiver, SlotState};
use crate::tool::agents::{AgentInput, parse_input};
use crate::tool::pool::{Restriction, Role, pool};
use crate::tool::{TOOLS, ToolOutput};

/// What the answer of a start needs.
pub(super) struct Entering {
    pub id: AgentId,
    pub meta: Meta,
    pub team: Team,
    pub writes: Arc<Writes>,
    pub name: String,
    pub session: SessionId,
    pub config_dir: ConfigDir,
    pub is_new: bool,
}

impl Session {
    /// Whether an `Agent` call is for a member of a team.
    pub(in super::super) fn is_for_team(&self, input: &Value) -> bool {
        let given = |key: &str| input.get(key).is_some_and(|value| !value.is_null());
        let can_lead = teams_enabled(&self.options) && !self.coordinator;
        can_lead && given("name") && (given("team_name") || self.team.is_some())
    }

    /// Begins to start a member: its name first, which may not be the one that was wanted.
    pub(in super::super) fn add_member(&mut self, ask: Ask) {
        let planned = parse_input::<AgentInput>("Agent", &ask.input).and_then(|input| self.plan_member(input));
        let (plan, mode, wanted) = match planned {
            Ok(planned) => planned,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        self.enter_member(ask, plan, mode, wanted);
    }

    /// Enters a planned member in the roster, which says what it is called.
    pub(super) fn enter_member(&mut self, ask: Ask, plan: Plan, mode: Option<Mode>, wanted: String) {
        let Some(led) = &mut self.team else {
            return ask.answer(ToolOutput::error("there is no team; TeamCreate makes one"));
        };
        if !led.starting.insert(ask.tool_use_id.clone()) {
            return ask.answer(ToolOutput::error("this call is starting a member already; wait for it"));
        }
        let (team, writes) = (led.team.clone(), Arc::clone(&led.writes));
        let member = Member {
            name: wanted,
            agent_type: Some(plan.definition.name.clone()),
            model: Some(plan.model.to_string()),
            prompt: Some(plan.prompt.clone()),
            plan_mode_required: Some(mode == Some(Mode::Plan)),
            joined_at: Some(clock::now_ms()),
            tmux_pane_id: Some(HEADLESS.to_owned()),
            cwd: Some(plan.cwd.to_string_lossy().into_owned()),
            session_id: Some(SessionId::random().as_str().to_owned()),
            subscriptions: Some(Vec::new()),
            backend_type: Some(HEADLESS.to_owned()),
            is_active: Some(true),
            ..Member::default()
        };
        let inner = self.inner.clone();
        let seat = Arc::clone(&self.seat);
        tokio::spawn(async move {
            let turn = seat.turn.lock().await;
            let entered = match seat.panes().await {
                Err(why) => Err(why),
                Ok(panes) => {
                    let entered = writes.change(move |roster| team.enter(roster, &member));
                    drop(turn);
                    match entered.await {
                        Ok(Ok(entered)) => Ok((Box::new(entered), panes)),
                        Ok(Err(error)) => Err(with_causes(&error)),
                        Err(why) => Err(why),
                    }
                }
            };
            report(&inner, News::Entered { ask, plan: Box::new(plan), mode, entered }).await;
        });
    }

    pub(super) fn plan_member(&self, mut input: AgentInput) -> Result<(Plan, Option<Mode>, String), String> {
        let own = self.team.as_ref().map(|led| led.team.name());
        let wanted = input.name.take().unwrap_or_default();
        match (input.team_name.take(), own) {
            (_, None) => {
                return Err("this session leads no team; TeamCreate makes one, or leave team_name out".to_owned());
            }
            (Some(named), Some(own)) if !name::same(&named, &own) => {
                return Err(format!("this session leads team {own:?}, not {named:?}; leave team_name out"));
            }
            (_, Some(_)) => {}
        }
        if self.team.as_ref().is_some_and(|led| led.removal.is_some()) {
            return Err("the team is being removed, so nobody joins it any more".to_owned());
        }
        name::check_member(&wanted)?;
        let mode = input.mode.take().map(|word| Mode::parse(&word).map_err(|e| e.to_string())).transpose()?;
        let taken = self.supervisor.by_name(&wanted).filter(|id| id.as_member().is_none());
        if let Some(id) = taken.filter(|id| self.supervisor.get(id).is_some_and(crate::supervisor::Slot::is_live)) {
            return Err(format!("the name {wanted:?} belongs to {id}, which still runs; choose another"));
        }
        // A member is in the background by nature.
        input.run_in_background = None;
        self.supervisor.check_room(true)?;
        Ok((self.plan(input)?, mode, wanted))
    }

    /// The member is in the roster: its process is started.
    pub(super) fn on_entered(
        &mut self,
        ask: Ask,
        plan: Plan,
        asked_mode: Option<Mode>,
        entered: Result<(Box<Member>, Option<Panes>), String>,
    ) {
        let (member, panes) = match entered {
            Ok(entered) => entered,
            Err(why) => {
                self.forget_start(&ask.tool_use_id);
                return ask.answer(ToolOutput::error(format!("the member was not started: {why}")));
            }
        };
        let led = self.team.as_ref().map(|led| (led.team.clone(), Arc::clone(&led.writes)));
        let id = led.as_ref().and_then(|(team, _)| AgentId::member(&member.name, team.folder()));
        let (Some((team, writes)), Some(id)) = (led, id) else {
            self.forget_start(&ask.tool_use_id);
            return ask.answer(ToolOutput::error("the member was not started: the team is gone"));
        };
        let definition = &plan.definition;
        let said = definition.permission_mode.as_deref().and_then(|m| Mode::parse(m).ok());
        let mode = child_mode(self.options.mode, said, asked_mode);
        let restriction = Restriction { tools: definition.tools.as_deref(), disallowed: &definition.disallowed_tools };
        let mut tools = pool(Role::Teammate { plan: mode == Mode::Plan }, restriction, &TOOLS);
        let policy = self.policy.get();
        tools.retain(|tool| policy.denies_tool(tool).is_none());
        let meta = Meta {
            agent_type: definition.name.clone(),
            description: plan.description.clone(),
            name: Some(member.name.clone()),
            tool_use_id: Some(ask.tool_use_id.clone()),
            parent_id: Some(self.id.as_str().to_owned()),
            spawn_depth: 1,
            session_id: self.id.as_str().to_owned(),
            model: Some(plan.model.to_string()),
            permission_mode: Some(mode.as_str().to_owned()),
            asked_mode: asked_mode.or(said).map(|mode| mode.as_str().to_owned()),
            pool: Some(tools),
            cwd: Some(plan.cwd.to_string_lossy().into_owned()),
            worktree_path: None,
            worktree_branch: None,
            origin: None,
            prefix_hash: None,
            detached: false,
            max_turns: None,
            created_at: clock::now_ms(),
        };
        let session = member.session_id.as_deref().and_then(SessionId::parse).unwrap_or_else(SessionId::random);
        let files = AgentFiles::of(self.options.config_dir.session(&plan.cwd, &session));
        let prompt = Prompt { text: plan.prompt, msg_id: None, from: self.name_in_team(&ask.asker) };
        let has_pane = panes.is_some();
        let backend = self.backend(panes, member.color.as_deref().unwrap_or_default());
        let started = self.member_config(&id, &meta, &files, 1, &member, has_pane).and_then(|config| {
            let ready = self.supervisor.spawn_member(meta.clone(), config, prompt.clone(), files.clone(), backend);
            ready.map_err(|error| error.to_string())
        });
        let entering = Entering {
            id,
            meta,
            team,
            writes,
            name: member.name,
            session,
            config_dir: self.options.config_dir.clone(),
            is_new: true,
        };
        match started {
            Ok(ready) => {
                self.say(&format!("member {} started ({})", entering.name, entering.meta.agent_type));
                self.teller.started(
                    Task { id: &entering.id, meta: &entering.meta, files: &files },
                    Some(&prompt.text),
                    true,
                );
                tokio::spawn(answer_start(ask, entering, ready, self.inner.clone()));
            }
            Err(reason) => {
                tokio::spawn(undo(ask, entering, reason, self.inner.clone()));
            }
        }
    }

    pub(super) fn forget_start(&mut self, tool_use_id: &str) {
        if let Some(led) = &mut self.team {
            led.starting.remove(tool_use_id);
        }
    }

    /// The team, and one of its members as the roster has it.
    pub(super) fn member_in_roster(&self, name: &str) -> Option<(Team, Member, AgentId)> {
        let team = self.team.as_ref()?.team.clone();
        let member = team.roster().ok()?.member(name)?.clone();
        let id = AgentId::member(&member.name, team.folder())?;
        Some((team, member, id))
    }

    /// What a member's process is told of itself.
    pub(in super::super) fn member_config(
        &self,
        id: &AgentId,
        meta: &Meta,
        files: &AgentFiles,
        run: u32,
        member: &Member,
        has_pane: bool,
    ) -> Result<AgentConfig, String> {
        let led = self.team.as_ref().ok_or("this session leads no team")?;
        let team_name = led.team.name();
        let session = member.session_id.as_deref().and_then(SessionId::parse).ok_or("its session is not known")?;
        let color = member.color.clone().unwrap_or_default();
        let identity = MemberIdentity {
            name: &member.name,
            team: &team_name,
            role: &meta.agent_type,
            color: &color,
            roster: &led.team.roster_path(),
        };
        // The type's own prompt is added to that of a member, not put in its place.
        let mut config = self.config_with(id, meta, files, run, |body| teammate_prompt(&identity, body))?;
        config.permission_mode = self.member_mode(id, meta).as_str().to_owned();
        config.permissions.allow.extend(led.allowed.iter().cloned());
        config.max_turns = None;
        config.place.session_id = session.as_str().to_owned();
        config.place.cwd = config.cwd.to_string_lossy().into_owned();
        config.place.team_name = Some(team_name);
        config.place.agent_name = Some(member.name.clone());
        config.membership = Some(Box::new(Membership {
            team: led.team.folder().to_owned(),
            name: member.name.clone(),
            color,
            session,
            task_list: variable(&self.options, env::TASK_LIST_ID).map(str::to_owned),
            orphan_ttl_ms: u64::try_from(self.options.settings.lead.orphan_ttl.as_millis()).unwrap_or(u64::MAX),
            agents_prompt: self.agents_prompt(),
            max_agents: (self.options.settings.lead.max_agents, self.options.settings.lead.max_agents_total),
            has_pane,
        }));
        Ok(config)
    }

    /// What an agent that a member starts is told beside its type's prompt.
    fn agents_prompt(&self) -> String {
        let tools = pool(Role::SyncWorker, Restriction::default(), &TOOLS);
        let scratchpad = self.scratchpad.as_deref().map(scratchpad_note).unwrap_or_default();
        scratchpad + &self.known.prompt(&self.known.knowledge, &tools)
    }

    /// The mode a member works in: that of its approved plan, else the one it was started with.
    pub(in super::super) fn member_mode(&self, id: &AgentId, meta: &Meta) -> Mode {
        let approved = self.team.as_ref().and_then(|led| led.modes.get(id).copied());
        let asked = meta.asked_mode.as_deref().and_then(|word| Mode::parse(word).ok());
        child_mode(self.options.mode, approved.or(asked), None)
    }

    /// Whether a living member has told that it has nothing to do, and runs no command in the background.
    pub(in super::super) fn rests(&self, id: &AgentId) -> bool {
        match self.supervisor.get(id).map(|slot| &slot.state) {
            Some(SlotState::Live { live: Some(live), .. }) => {
                id.as_member().is_some() && live.state == RowState::Idle && live.shells.is_empty()
            }
            _ => false,
        }
    }

    /// Ids of the members that live.
    pub(in super::super) fn live_members(&self) -> Vec<AgentId> {
        let mut live = self.supervisor.live();
        live.retain(|id| id.as_member().is_some());
        live.sort();
        live
    }

    /// Whether anything runs for this session but members that rest.
    pub(in super::super) fn any_busy(&self) -> bool {
        self.supervisor.live().iter().any(|id| !self.rests(id))
    }

    /// A member's process is gone. One that left has done so itself; of any other the cards are free
    /// and the lead is told (spec 3.2).
    pub(in super::super) fn on_member_ended(&mut self, id: &AgentId, outcome: &Outcome) {
        let Some((name, _)) = id.as_member().map(|(name, team)| (name.to_owned(), team)) else { return };
        // It says so over its link, too, but that may go unread once the process is gone.
        let has_left = outcome.status == RunStatus::Completed && outcome.error.is_none();
        let mut by_person = false;
        if let Some(led) = &mut self.team {
            led.plans.retain(|_, (member, _)| member != id);
            led.modes.remove(id);
            led.taken_over.remove(id);
            led.stirred = true;
            let (team, asked) = (led.team.clone(), led.asked.remove(id).unwrap_or_default());
            by_person = !asked.is_empty();
            let note = format!("{name} ended: {}", outcome.error.as_deref().unwrap_or("its process is gone"));
            let answer = super::person::ended_answer(&name, outcome, has_left);
            tokio::task::spawn_blocking(move || {
                // One that has left has done so itself, but for what it could not see of its pane.
                let tidied = match has_left {
                    true => team.change_roster(|roster| {
                        show_no_hidden(roster);
                        Ok(())
                    }),
                    false => team.mark_gone(&name, &note),
                };
                if let Err(error) = tidied {
                    tracing::warn!("roster or board do not say that {name} is gone: {}", with_causes(&error));
                }
                asked.into_iter().for_each(|ask| ask.answer(answer.clone()));
            });
        }
        let mut notice = ended_notice(id, outcome, has_left);
        if by_person {
            notice.text.insert_str(0, "The user ended this member.\n");
        }
        if has_left {
            self.supervisor.forget(id);
            let _ = unlink(&self.options.config_dir, id);
        }
        let is_expected =
            by_person || self.quit.is_some() || self.team.as_ref().is_none_or(|led| led.removal.is_some());
        if is_expected {
            // It asks for no turn.
            notice.is_meta = true;
            self.step(crate::agent::Event::Note(notice));
        } else {
            self.queue.push(Priority::Later, notice);
        }
        self.note_gone();
        let waiting = self.team.as_mut().and_then(|led| led.dying.remove(id));
        waiting.into_iter().flatten().for_each(|ask| self.on_team_request(ask));
    }
}

/// What the lead's model is told of a member's end; once, like the end of any agent.
pub(in super::super) fn ended_notice(id: &AgentId, outcome: &Outcome, has_left: bool) -> Input {
    let name = id.as_member().map_or(id.as_str(), |(name, _)| name);
    let how = match (&outcome.error, has_left) {
        (None, true) => "It ended as it was asked to, and is no member any more.".to_owned(),
        (error, _) => {
            let why = error.as_deref().unwrap_or("its process is gone");
            format!(
                "It ended without being asked: {}. Its cards are free again, its mail is kept and nobody reads it. \
`lead team add {} {name} --resume` brings it back with all it knows; Agent starts somebody else.",
                one_line(why, 500),
                id.as_member().map_or("TEAM", |(_, team)| team),
            )
        }
    };
    let text = format!(
        "<teammate-terminated teammate_id=\"{}\">\n{}\n</teammate-terminated>",
        escape_attribute(name),
        escape(&how)
    );
    Input {
        text,
        origin: Some(Origin {
            kind: ORIGIN_NOTIFICATION.to_owned(),
            task_id: Some(id.as_str().to_owned()),
            run: Some(outcome.run),
        }),
        ..Input::default()
    }
}

pub(super) async fn answer_start(
    ask: Ask,
    entering: Entering,
    ready: ReadyReceiver,
    inner: tokio::sync::mpsc::Sender<Inner>,
) {
    let launched = match ready.await {
        Ok(Ok(launched)) => launched,
        Ok(Err(error)) => return undo(ask, entering, error.to_string(), inner).await,
        Err(_) => return undo(ask, entering, "the session is ending".to_owned(), inner).await,
    };
    let name = entering.name.clone();
    let (address, pane) = (launched.address.clone(), launched.pane.clone());
    let written = entering.writes.change(move |roster| {
        roster.edit_member(&name, |member| {
            member.socket = Some(address.clone());
            enter_place(member, pane.as_ref());
        });
        show_no_hidden(roster);
        roster.member(&name).cloned()
    });
    let member = written.await.unwrap_or_else(|why| {
        tracing::warn!("the roster does not say where {} is: {why}", entering.name);
        None
    });
    let member = member.unwrap_or_default();
    let note = (ask.asker == Asker::Person).then(|| started_note(&entering));
    report(&inner, News::Started { tool_use_id: ask.tool_use_id.clone(), note }).await;
    let output = spawned_output(&entering, &member, &launched);
    ask.answer(output);
}

/// What the model is told of a member that the person started.
fn started_note(entering: &Entering) -> String {
    let (name, what) = (&entering.name, if entering.is_new { "added" } else { "brought back" });
    format!(
        "The user {what} member {name} of type {} with `lead team add`; it works now. SendMessage with to: \"{name}\" \
reaches it; it tells you when it rests.",
        entering.meta.agent_type
    )
}

/// Takes back what was made for a member that did not come to life.
async fn undo(ask: Ask, entering: Entering, reason: String, inner: tokio::sync::mpsc::Sender<Inner>) {
    report(&inner, News::Started { tool_use_id: ask.tool_use_id.clone(), note: None }).await;
    if entering.is_new {
        let Entering { id, team, name, config_dir, .. } = entering;
        let undone = tokio::task::spawn_blocking(move || {
            let _ = unlink(&config_dir, &id);
            team.remove_member(&name).map(drop)
        });
        match undone.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!("a member that never started is still in the roster: {}", with_causes(&error))
            }
            Err(panic) => tracing::error!(%panic, "undoing a start failed"),
        }
    }
    ask.answer(ToolOutput::error(format!("the member was not started: {reason}")));
}

fn spawned_output(entering: &Entering, member: &Member, launched: &Launched) -> ToolOutput {
    let Entering { id, meta, team, name, session, .. } = entering;
    let team_name = team.name();
    let text = format!(
        "Spawned successfully.\nagent_id: {id}\nname: {name}\nteam_name: {team_name}\n\
It works on its prompt now. SendMessage with to: \"{name}\" reaches it; it tells you when it rests."
    );
    let output = ToolOutput::ok(text).with(json!({
        "status": "teammate_spawned",
        "teammate_id": id.as_str(),
        "agent_id": id.as_str(),
        "agent_type": meta.agent_type,
        "model": meta.model,
        "name": name,
        "color": member.color,
        "tmux_session_name": launched.pane.as_ref().map(|pane| &pane.shown.0),
        "tmux_window_name": launched.pane.as_ref().map(|pane| &pane.shown.1),
        "tmux_pane_id": member.tmux_pane_id,
        "team_name": team_name,
        "is_splitpane": launched.pane.is_some(),
        "plan_mode_required": member.plan_mode_required,
        "backend": member.backend_type,
        "session_id": session.as_str(),
    }));
    reachable(output, launched)
}
