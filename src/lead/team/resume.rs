//! A resumed session takes up the team it led (spec 4.4), and a living one a team that has no lead.

use std::fmt::Write as _;

use super::super::ask::Ask;
use super::super::person::Declined;
use super::super::roles::teams_enabled;
use super::super::session::Session;
use super::led::{News, report};
use crate::core::agent::{Meta, Outcome};
use crate::core::clock;
use crate::core::env;
use crate::core::frame::ScopedRule;
use crate::core::ids::{AgentId, SessionId};
use crate::core::paths::AgentFiles;
use crate::core::team::Member;
use crate::core::team::name::LEAD;
use crate::core::team::roster::AllowedPath;
use crate::core::text::with_causes;
use crate::endpoint::{TeamWatch, alive_test};
use crate::store::history::History;
use crate::store::lock::is_held;
use crate::store::session::{find_session, read_meta, unlink};
use crate::store::team::{LeadLock, Team, TeamError, all};
use crate::tool::ToolOutput;
use serde_json::json;

impl Session {
    /// Takes up the team that an earlier life of this session led; ends of its members that were not
    /// told.
    pub(in super::super) fn bring_back_team(&mut self, history: &History) -> Vec<(Outcome, Meta, AgentFiles)> {
        let teams = match all(&self.options.config_dir, self.options.settings.lead.durability) {
            Ok(teams) => teams,
            Err(error) => {
                tracing::warn!("teams can't be listed: {}", with_causes(&error));
                return Vec::new();
            }
        };
        let own =
            |team: &Team| team.roster().is_ok_and(|r| r.head().lead_session_id.as_deref() == Some(self.id.as_str()));
        let Some(team) = teams.into_iter().find(own) else { return Vec::new() };
        let leader = self.as_leader();
        let me = self.as_member(LEAD);
        let taken = team.take_lead(&leader, &me, clock::now_ms()).and_then(|lock| {
            let watch = TeamWatch::open(&team, LEAD)?;
            Ok((lock, watch))
        });
        match taken {
            Ok((lock, watch)) => {
                self.lead_team(team, lock, watch);
                self.bring_back_members(history)
            }
            Err(error) => {
                tracing::warn!("team {} is not taken up again: {}", team.name(), with_causes(&error));
                Vec::new()
            }
        }
    }

    fn bring_back_members(&mut self, history: &History) -> Vec<(Outcome, Meta, AgentFiles)> {
        let Some(led) = &self.team else { return Vec::new() };
        let (team, members) = match led.team.roster() {
            Ok(roster) => (led.team.clone(), roster.members().cloned().collect::<Vec<Member>>()),
            Err(error) => {
                tracing::warn!("the roster can't be read: {}", with_causes(&error));
                return Vec::new();
            }
        };
        let mut untold = Vec::new();
        for member in members {
            let Some((id, files, meta)) = self.ours(&team, &member) else {
                self.forget_if_never_started(&team, &member);
                continue;
            };
            match self.bring_back_agent(&id, &files, &meta, history.consumed.up_to(id.as_str())) {
                Ok(outcomes) => {
                    self.told.extend(outcomes.iter().map(|o| (id.clone(), o.run)));
                    let fresh = outcomes.into_iter().filter(|o| !history.is_consumed(id.as_str(), o.run));
                    untold.extend(fresh.map(|o| (o, meta.clone(), files.clone())));
                    if is_held(files.transcript()).unwrap_or(true) {
                        self.team.iter_mut().for_each(|led| led.taken_over.extend([id.clone()]));
                    } else {
                        let note = format!("{} ended: its process is gone", member.name);
                        let gone = team.mark_gone(&member.name, &note);
                        if let Err(error) = gone {
                            tracing::warn!(%id, "roster or board do not say that it is gone: {}", with_causes(&error));
                        }
                    }
                }
                Err(error) => tracing::warn!(%id, %error, "a member of the team can't be brought back"),
            }
        }
        untold
    }

    /// Takes out a member whose process never came to life, because the lead died while it started it.
    fn forget_if_never_started(&self, team: &Team, member: &Member) {
        let session = member.session_id.as_deref().and_then(SessionId::parse);
        let (Some(session), false) = (session, member.is_lead()) else { return };
        let has_transcript = find_session(&self.options.config_dir, &session).is_some();
        if has_transcript || alive_test(&self.runtime, team)(member) {
            return;
        }
        if let Err(error) = team.remove_member(&member.name) {
            tracing::warn!("{} never started and is still in the roster: {}", member.name, with_causes(&error));
        }
        if let Some(id) = AgentId::member(&member.name, team.folder()) {
            let _ = unlink(&self.options.config_dir, &id);
        }
    }

    /// A member of the roster that is a process of ours, with its files.
    pub(super) fn ours(&self, team: &Team, member: &Member) -> Option<(AgentId, AgentFiles, Meta)> {
        let id = AgentId::member(&member.name, team.folder()).filter(|_| !member.is_lead())?;
        let session = SessionId::parse(member.session_id.as_deref()?)?;
        let files = AgentFiles::of(find_session(&self.options.config_dir, &session)?.transcript());
        let meta = read_meta(&files).ok()?;
        Some((id, files, meta))
    }

    /// Takes over a team that has no lead, for the person.
    pub(in super::super) fn adopt_team(&mut self, ask: Ask, name: &str) {
        if let Some(led) = &self.team {
            let text =
                format!("this session leads team {:?} already, and a session leads one at a time", led.team.name());
            return ask.answer(Declined::Refused(text).output());
        }
        if self.coordinator {
            return ask.answer(Declined::Refused("a coordinator leads no team".to_owned()).output());
        }
        if !teams_enabled(&self.options) {
            let text = format!("teams are turned off in this session: {} is set", env::TEAMS_DISABLED);
            return ask.answer(Declined::Refused(text).output());
        }
        let (config, durability) = (self.options.config_dir.clone(), self.options.settings.lead.durability);
        let (leader, me) = (self.as_leader(), self.as_member(LEAD));
        let (name, inner) = (name.to_owned(), self.inner.clone());
        tokio::spawn(async move {
            let taken = tokio::task::spawn_blocking(move || -> Result<(Team, LeadLock), TeamError> {
                let team = Team::open(&config, &name, durability)?;
                let lock = team.take_lead(&leader, &me, clock::now_ms())?;
                Ok((team, lock))
            })
            .await;
            let team = match taken {
                Ok(taken) => taken.and_then(|(team, lock)| {
                    let watch = TeamWatch::open(&team, LEAD)?;
                    Ok((team, lock, watch))
                }),
                Err(panic) => return ask.answer(ToolOutput::error(format!("the team was not taken over: {panic}"))),
            };
            report(&inner, News::Adopted { ask, team }).await;
        });
    }

    pub(super) fn on_adopted(&mut self, ask: Ask, team: Result<(Team, LeadLock, TeamWatch), TeamError>) {
        match team {
            Ok((team, lock, watch)) if self.team.is_none() => {
                let (name, allowed) = (team.name(), allowed_paths(&team));
                let rules = team_rules(&team, &allowed);
                self.lead_team(team, lock, watch);
                if let Some(led) = &mut self.team {
                    led.allowed = rules;
                }
                let untold = self.bring_back_members(&History::default());
                for (outcome, ..) in untold {
                    tracing::info!("member {} had ended before ({})", outcome.agent_id, outcome.status);
                }
                let members = self.live_members();
                self.say(&format!("team {name} was taken over"));
                let mut text = format!("Team {name:?} is led by this session now; {} members live", members.len());
                // Whoever wrote that into the roster: it holds because the person took the team over, who is told.
                for path in allowed {
                    let _ = write!(text, "; all may use {:?} in {:?} unasked", path.tool_name, path.path);
                }
                text.push('.');
                ask.answer(ToolOutput::ok(text).with(json!({
                    "success": true,
                    "team_name": name,
                    "members": members.iter().map(AgentId::as_str).collect::<Vec<_>>(),
                })));
            }
            Ok(_) => ask.answer(Declined::Refused("this session leads another team by now".to_owned()).output()),
            Err(error) => {
                let why = format!("the team was not taken over: {}", with_causes(&error));
                ask.answer(Declined::Refused(why).output());
            }
        }
    }
}

/// Folders in which all members may use a tool, as the roster says.
fn allowed_paths(team: &Team) -> Vec<AllowedPath> {
    team.roster().map(|roster| roster.head().team_allowed_paths.clone()).unwrap_or_default()
}

/// The same, as rules.
fn team_rules(team: &Team, allowed: &[AllowedPath]) -> Vec<ScopedRule> {
    let root = team.path();
    allowed
        .iter()
        .map(|path| ScopedRule {
            rule: format!("{}(/{}/**)", path.tool_name, path.path.trim_end_matches('/')),
            root: root.clone(),
            source: team.roster_path().to_string_lossy().into_owned(),
        })
        .collect()
}
