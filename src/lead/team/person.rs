//! What the person asks of the lead of a team, by the verbs of `lead team` over the session's socket:
//! to take a team over, to add or bring back a member, to end one, to hide its pane. Agents are refused
//! before it comes here ([`Session::on_call`]). The model is told by notes, which cost no turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::ask::Ask;
use super::super::person::{Declined, description};
use super::super::session::Session;
use super::super::told::Task;
use super::delete::shutdown_request;
use super::led::{News, report};
use super::member::{Entering, answer_start};
use super::seat::pane_in_roster;
use crate::core::agent::Outcome;
use crate::core::frame::Prompt;
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::AgentFiles;
use crate::core::team::Protocol;
use crate::core::team::name::{self, LEAD};
use crate::core::text::{one_line, with_causes};
use crate::store::lock::is_held;
use crate::supervisor::{Command, Panes, Slot};
use crate::tool::ToolOutput;
use crate::tool::agents::AgentInput;

/// Calls that may wait for the end of one member.
const ASKS: usize = 64;

/// What the person asks; as a call, its tool and its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tool", content = "input")]
pub enum TeamRequest {
    /// Take over a team that has no lead.
    TeamAdopt {
        /// The team.
        team: String,
    },
    /// Add a member, or bring one back. The answer comes when it is ready.
    TeamAdd(AddInput),
    /// Ask a member to end. The answer comes with its own, or with its end.
    TeamShutdown {
        /// The team.
        team: String,
        /// The member.
        name: String,
        /// Why.
        reason: Option<String>,
    },
    /// End a member by SIGKILL. The answer comes when it is gone.
    TeamKill {
        /// The team.
        team: String,
        /// The member.
        name: String,
    },
    /// Take a member's pane out of sight.
    TeamHide {
        /// The team.
        team: String,
        /// The member.
        name: String,
    },
    /// Bring a hidden pane back.
    TeamUnhide {
        /// The team.
        team: String,
        /// The member.
        name: String,
    },
    /// Remove the team, as the tool `TeamDelete` does.
    TeamRemove {
        /// The team.
        team: String,
        /// How long members are asked and waited for, milliseconds; none = living ones are in the way.
        wait_ms: Option<u64>,
    },
}

/// Input of `TeamAdd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddInput {
    /// The team.
    pub team: String,
    /// The name it is to have, or has.
    pub name: String,
    /// Type of agent; none = the default.
    pub agent_type: Option<String>,
    /// Model; none = that of its type, else the session's.
    pub model: Option<String>,
    /// Permission mode.
    pub mode: Option<String>,
    /// Working folder; none = the session's.
    pub cwd: Option<String>,
    /// Bring back the member of this name whose process is gone; it is what it was.
    pub resume: bool,
    /// What it is told; empty only if it is brought back.
    pub prompt: String,
}

const TOOLS: [&str; 7] = ["TeamAdopt", "TeamAdd", "TeamShutdown", "TeamKill", "TeamHide", "TeamUnhide", "TeamRemove"];

impl TeamRequest {
    /// Whether a call of this tool is one.
    pub fn is_one(tool: &str) -> bool {
        TOOLS.contains(&tool)
    }

    /// As a call: the tool and its input.
    pub fn to_call(&self) -> (String, Value) {
        let mut call = json!(self);
        let tool = call["tool"].as_str().unwrap_or_default().to_owned();
        (tool, call["input"].take())
    }

    fn team(&self) -> &str {
        match self {
            Self::TeamAdd(add) => &add.team,
            Self::TeamAdopt { team }
            | Self::TeamShutdown { team, .. }
            | Self::TeamKill { team, .. }
            | Self::TeamHide { team, .. }
            | Self::TeamUnhide { team, .. }
            | Self::TeamRemove { team, .. } => team,
        }
    }
}

fn refused(words: impl Into<String>) -> ToolOutput {
    Declined::Refused(words.into()).output()
}

/// What whoever asked is told when a member is gone.
pub(super) fn ended_answer(name: &str, outcome: &Outcome, has_left: bool) -> ToolOutput {
    let how = if has_left { "ended and left the team" } else { "ended; it stays in the roster, its cards are free" };
    let state = if has_left { "left" } else { "ended" };
    let (run, status, error) = (outcome.run, outcome.status, &outcome.error);
    ToolOutput::ok(format!("{name} {how}")).with(json!({
        "name": name, "state": state, "run": run, "status": status, "error": error,
    }))
}

/// What whoever asked is told when a member does not end.
pub(super) fn refused_answer(name: &str, reason: &str) -> ToolOutput {
    let why = if reason.trim().is_empty() { "no reason given" } else { reason };
    refused(format!("{name} does not end: {}", one_line(why, 2000)))
}

impl Session {
    /// Carries out what the person asks of this session as the lead of a team.
    pub(in super::super) fn on_team_request(&mut self, mut ask: Ask) {
        if self.quit.is_some() {
            return ask.answer(Declined::Ending.output());
        }
        let read = serde_json::from_value::<TeamRequest>(json!({"tool": ask.tool, "input": ask.input}));
        let request = match read {
            Ok(request) => request,
            Err(error) => {
                let words = format!("the input of {} can't be used: {error}", ask.tool);
                return ask.answer(Declined::Usage(words).output());
            }
        };
        if let TeamRequest::TeamAdopt { team } = &request {
            return self.adopt_team(ask, team);
        }
        let own = self.team.as_ref().map(|led| (led.team.name(), led.team.folder().to_owned()));
        match own {
            None if self.is_making_team => return ask.answer(refused("the team is just being made; try again")),
            None => return ask.answer(refused(format!("this session leads no team, also not {:?}", request.team()))),
            Some((name, folder)) if !name::same(&name, request.team()) && folder != request.team() => {
                return ask.answer(refused(format!("this session leads team {name:?}, not {:?}", request.team())));
            }
            Some(_) => {}
        }
        match request {
            TeamRequest::TeamAdopt { .. } => {}
            TeamRequest::TeamAdd(add) if add.resume => self.bring_back_for_person(ask, add),
            TeamRequest::TeamAdd(add) => self.add_for_person(ask, add),
            TeamRequest::TeamShutdown { name, reason, .. } => self.end_for_person(ask, &name, Some(reason)),
            TeamRequest::TeamKill { name, .. } => self.end_for_person(ask, &name, None),
            TeamRequest::TeamHide { name, .. } => self.show_pane(ask, &name, false),
            TeamRequest::TeamUnhide { name, .. } => self.show_pane(ask, &name, true),
            TeamRequest::TeamRemove { wait_ms, .. } => {
                ask.input = wait_ms.map_or_else(|| json!({}), |wait| json!({ "wait_ms": wait }));
                self.team_delete(ask);
            }
        }
    }

    /// Tells the model what the person did; what can't be written down is logged.
    pub(super) fn note_for_person(&mut self, text: String) {
        if let Err(error) = self.note(text) {
            tracing::warn!(%error, "what the user did with the team was not written down");
        }
    }

    fn add_for_person(&mut self, ask: Ask, add: AddInput) {
        if let Some(id) = self.supervisor.by_tool_use(&ask.tool_use_id) {
            return ask.answer(refused(format!("this request has started {id} already")));
        }
        if add.prompt.trim().is_empty() {
            return ask.answer(Declined::Usage("a new member needs a prompt".to_owned()).output());
        }
        let input = AgentInput {
            description: description(&add.prompt),
            prompt: add.prompt,
            subagent_type: add.agent_type,
            name: Some(add.name),
            model: add.model,
            mode: add.mode,
            cwd: add.cwd,
            ..AgentInput::default()
        };
        if let Err(full) = self.supervisor.check_room(true) {
            return ask.answer(refused(full));
        }
        if self.team.as_ref().is_some_and(|led| led.removal.is_some()) {
            return ask.answer(refused("the team is being removed, so nobody joins it any more"));
        }
        match self.plan_member(input) {
            Ok((plan, mode, wanted)) => self.enter_member(ask, plan, mode, wanted),
            Err(why) => ask.answer(Declined::Usage(why).output()),
        }
    }

    /// Begins to bring a member back whose process is gone (spec 3.2): same session, same conversation.
    fn bring_back_for_person(&mut self, ask: Ask, add: AddInput) {
        let given = [&add.agent_type, &add.model, &add.mode, &add.cwd];
        if given.iter().any(|given| given.is_some()) {
            let words = "one that is brought back has the type, model, mode and folder that it had";
            return ask.answer(Declined::Usage(words.to_owned()).output());
        }
        if let Some(id) = self.just_died(&add.name)
            && let Some(led) = &mut self.team
        {
            // Its end is on its way to this session.
            return led.dying.entry(id).or_default().push(ask);
        }
        let (name, id) = match self.member_to_bring_back(&add.name) {
            Ok(found) => found,
            Err(why) => return ask.answer(refused(why)),
        };
        let old_pane = self.pane_of(&id);
        let Some(led) = &mut self.team else { return ask.answer(refused("the team is gone")) };
        if !led.starting.insert(ask.tool_use_id.clone()) || !led.returning.insert(name.clone()) {
            led.starting.remove(&ask.tool_use_id);
            return ask.answer(refused(format!("{name} is being brought back already")));
        }
        let (seat, inner) = (Arc::clone(&self.seat), self.inner.clone());
        tokio::spawn(async move {
            let panes = seat.panes().await;
            if let Some(place) = old_pane {
                seat.close(&place, &id).await;
            }
            report(&inner, News::Seated { ask, name, prompt: add.prompt, panes }).await;
        });
    }

    /// The member of this name if its process is gone and this session was not told yet.
    fn just_died(&self, wanted: &str) -> Option<AgentId> {
        let (_, _, id) = self.member_in_roster(wanted)?;
        let slot = self.supervisor.get(&id).filter(|slot| slot.is_live())?;
        let path = slot.files.transcript();
        (self.agent_pid(&id).is_some() && path.exists() && !is_held(path).unwrap_or(true)).then_some(id)
    }

    /// The member of this name if its process is gone and it can come back; the error says what is so.
    fn member_to_bring_back(&mut self, wanted: &str) -> Result<(String, AgentId), String> {
        let led = self.team.as_ref().ok_or("the team is gone")?;
        if led.removal.is_some() {
            return Err("the team is being removed, so nobody joins it any more".to_owned());
        }
        let Some((team, member, id)) = self.member_in_roster(wanted) else {
            let names = led.team.roster().map(|roster| roster.names().join(", ")).unwrap_or_default();
            return Err(format!("there is no member {wanted:?} in the team; it has: {names}"));
        };
        if member.is_lead() {
            return Err(format!("{LEAD} is this session"));
        }
        if self.supervisor.get(&id).is_some_and(Slot::is_live) {
            return Err(match self.agent_pid(&id) {
                Some(pid) => format!("{} is still running (pid {pid})", member.name),
                None => format!("{} is being started already", member.name),
            });
        }
        let never =
            || format!("{} has no transcript of ours to go on from; add somebody else under another name", member.name);
        let (_, files, meta) = self.ours(&team, &member).ok_or_else(never)?;
        // One that is nobody's child, such as an orphan that could not be reached.
        if is_held(files.transcript()).unwrap_or(false) {
            return Err(format!("{} still runs: its transcript {} is held", member.name, files.transcript().display()));
        }
        if self.supervisor.get(&id).is_none() {
            self.supervisor.insert_ended(id.clone(), meta, files, 0);
        }
        self.supervisor.check_room(false)?;
        Ok((member.name, id))
    }

    /// It is known where a member is to run that is brought back.
    pub(super) fn on_seated(&mut self, ask: Ask, name: &str, prompt: String, panes: Result<Option<Panes>, String>) {
        if let Some(led) = &mut self.team {
            led.returning.remove(name);
        }
        match panes.and_then(|panes| self.start_again(name, &prompt, panes, &ask)) {
            Ok((entering, ready)) => {
                self.say(&format!("member {name} was started again"));
                tokio::spawn(answer_start(ask, entering, ready, self.inner.clone()));
            }
            Err(why) => {
                self.forget_start(&ask.tool_use_id);
                ask.answer(Declined::Failed(format!("{name} was not started: {why}")).output());
            }
        }
    }

    fn start_again(
        &mut self,
        name: &str,
        prompt: &str,
        panes: Option<Panes>,
        ask: &Ask,
    ) -> Result<(Entering, crate::supervisor::ReadyReceiver), String> {
        if self.quit.is_some() {
            return Err("the session is ending".to_owned());
        }
        let (team, member, id) = self.member_in_roster(name).ok_or("it is no member any more")?;
        let slot = self.supervisor.get(&id).filter(|slot| !slot.is_live());
        let (meta, files): (_, AgentFiles) =
            slot.map(|slot| (slot.meta.clone(), slot.files.clone())).ok_or("it is running by now")?;
        let run = self.supervisor.next_run(&id).map_err(|error| with_causes(&error))?;
        let config = self.member_config(&id, &meta, &files, run, &member, panes.is_some())?;
        let backend = self.backend(panes, member.color.as_deref().unwrap_or_default());
        let told = Prompt { text: prompt.to_owned(), msg_id: None, from: ask.asker.label(&self.id) };
        let ready = self.supervisor.resume_in(&id, config, told, backend).ok_or("it is not known any more")?;
        let led = self.team.as_mut().ok_or("the team is gone")?;
        led.unable.remove(name);
        let writes = Arc::clone(&led.writes);
        let shown = (!prompt.is_empty()).then_some(prompt);
        self.teller.started(Task { id: &id, meta: &meta, files: &files }, shown, true);
        let session = member.session_id.as_deref().and_then(SessionId::parse).unwrap_or_else(SessionId::random);
        let config_dir = self.options.config_dir.clone();
        Ok((Entering { id, meta, team, writes, name: member.name, session, config_dir, is_new: false }, ready))
    }

    /// Asks a member to end (with a reason, which may be none), or kills it.
    fn end_for_person(&mut self, ask: Ask, wanted: &str, polite: Option<Option<String>>) {
        let Some((_, member, id)) = self.member_in_roster(wanted) else {
            return ask.answer(refused(format!("there is no member {wanted:?} in the team")));
        };
        let is_live = self.supervisor.get(&id).is_some_and(Slot::is_live);
        let by_mail = self.living_other(&member.name).filter(|_| polite.is_some());
        if !is_live && by_mail.is_none() {
            return ask.answer(refused(format!("{} is not running", member.name)));
        }
        let Some(led) = &mut self.team else { return ask.answer(refused("the team is gone")) };
        let asked = led.asked.entry(id.clone()).or_default();
        // Who gave up waiting does not count.
        asked.retain(|ask| !ask.reply.is_closed());
        if asked.len() >= ASKS {
            return ask.answer(refused(format!("{ASKS} others wait for the end of {}", member.name)));
        }
        let sent = match polite {
            Some(reason) => {
                let reason = reason.unwrap_or_else(|| "the user asks you to end".to_owned());
                if let Some(other) = by_mail {
                    asked.push(ask);
                    let told = other.name.clone();
                    return self.ask_other_to_end(&other.name, Some(reason), move |asked| {
                        if let Err(why) = asked {
                            tracing::warn!("{told} was not asked to end: {why}");
                        }
                    });
                }
                let request = Protocol::ShutdownRequest(shutdown_request(&member.name, Some(reason)));
                self.supervisor.command(&id, Command::Protocol(Box::new(request)))
            }
            None => self.stop_agent(&id, "killed by lead team kill", true),
        };
        if !sent {
            return ask.answer(refused(format!("{} has too many requests waiting; try again", member.name)));
        }
        if let Some(led) = &mut self.team {
            led.asked.entry(id).or_default().push(ask);
        }
    }

    /// Hides a member's pane, or shows it again, and says so in the roster.
    fn show_pane(&mut self, ask: Ask, wanted: &str, is_shown: bool) {
        let Some((team, member, id)) = self.member_in_roster(wanted) else {
            return ask.answer(refused(format!("there is no member {wanted:?} in the team")));
        };
        let Some(place) = pane_in_roster(&member) else {
            return ask.answer(refused(format!("{} has no pane: it runs without one", member.name)));
        };
        let seat = Arc::clone(&self.seat);
        tokio::spawn(async move {
            if let Err(why) = seat.show(&place, &id, is_shown).await {
                return ask.answer(refused(why));
            }
            let pane = place.id.clone();
            let written = tokio::task::spawn_blocking(move || {
                team.change_roster(|roster| {
                    roster.edit_head(|head| {
                        head.hidden_pane_ids.retain(|hidden| *hidden != pane);
                        if !is_shown {
                            head.hidden_pane_ids.push(pane.clone());
                        }
                    });
                    Ok(())
                })
            });
            let done = if is_shown { "shown" } else { "hidden" };
            ask.answer(match written.await {
                Ok(Ok(())) => ToolOutput::ok(format!("the pane of {} is {done}", member.name))
                    .with(json!({"name": member.name, "state": done, "pane": place.id})),
                Ok(Err(error)) => {
                    let why = format!("its pane is {done}, but the roster does not say so: {}", with_causes(&error));
                    Declined::Failed(why).output()
                }
                Err(panic) => Declined::Failed(panic.to_string()).output(),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_call_and_comes_back_from_it() {
        let team = || "t".to_owned();
        let name = || "n".to_owned();
        let requests = [
            TeamRequest::TeamAdopt { team: team() },
            TeamRequest::TeamAdd(AddInput { team: team(), name: name(), resume: true, ..AddInput::default() }),
            TeamRequest::TeamShutdown { team: team(), name: name(), reason: None },
            TeamRequest::TeamKill { team: team(), name: name() },
            TeamRequest::TeamHide { team: team(), name: name() },
            TeamRequest::TeamUnhide { team: team(), name: name() },
            TeamRequest::TeamRemove { team: team(), wait_ms: Some(3) },
        ];
        let tools = requests.clone().map(|request| {
            let (tool, input) = request.to_call();
            assert_eq!(serde_json::from_value::<TeamRequest>(json!({"tool": tool, "input": input})).unwrap(), request);
            assert!(TeamRequest::is_one(&tool) && request.team() == "t");
            tool
        });
        assert_eq!(tools, TOOLS);
        assert!(!TeamRequest::is_one("Agent") && !TeamRequest::is_one("TeamCreate"));
    }
}
