//! A team that this session leads, and how it comes to lead one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::super::ask::{Ask, Asker};
use super::super::route::Plan;
use super::super::session::{Inner, Session};
use super::delete::Removal;
use super::others::Other;
use super::writes::Writes;
use crate::core::clock;
use crate::core::frame::ScopedRule;
use crate::core::ids::AgentId;
use crate::core::question::Verdict;
use crate::core::team::Member;
use crate::core::team::name::{self, LEAD};
use crate::core::team::payload::IdleNotification;
use crate::core::text::with_causes;
use crate::endpoint::{Changes, TeamWatch};
use crate::permission::Mode;
use crate::store::team::mailbox::Seen;
use crate::store::team::{Created, LeadLock, Leader, NewTeam, Team, TeamError, create};
use crate::supervisor::Panes;
use crate::tool::ToolOutput;
use crate::tool::team::TeamCreateInput;

/// A team that this session leads.
pub(in super::super) struct Led {
    pub team: Team,
    /// Changes of its roster.
    pub writes: Arc<Writes>,
    /// The team is led as long as this lives.
    _lock: LeadLock,
    /// Calls that are starting a member, by their ids.
    pub starting: HashSet<String>,
    /// Names of members that are being brought back, until their processes are started.
    pub returning: HashSet<String>,
    /// Plans that wait for the model's answer, by request.
    pub plans: HashMap<String, (AgentId, oneshot::Sender<Verdict>)>,
    /// Modes that members work in since their plans were approved.
    pub modes: HashMap<AgentId, Mode>,
    /// Living members that were taken over: what modes they work in is known to them alone.
    pub taken_over: HashSet<AgentId>,
    /// Folders in which all members may use a tool. From the roster as it was when the person had the team
    /// adopted: members can write there later.
    pub allowed: Vec<ScopedRule>,
    /// Requests to end that went out by mail and have no answer yet, by member.
    pub by_mail: HashMap<String, String>,
    /// Calls of the person's that wait for members to end.
    pub asked: HashMap<AgentId, Vec<Ask>>,
    /// Calls that bring members back whose end was not told yet.
    pub dying: HashMap<AgentId, Vec<Ask>>,
    /// Names of members whose last turn failed or was cut short: they take no cards until they are told
    /// something.
    pub unable: HashSet<String>,
    /// What members said when they came to rest, until the mail of before was read.
    pub rested: Vec<IdleNotification>,
    /// Whether mail may have come since it was read last.
    pub has_mail: bool,
    /// Whether it is being read.
    pub reads: bool,
    /// Whether it is being found out if all is done.
    pub looks: bool,
    /// Whether something happened since that was found out last.
    pub stirred: bool,
    /// Members that are no processes of this session, work, and keep its run from ending.
    pub kept_by: Vec<Other>,
    /// Tells when one of those is gone.
    pub vigil: JoinSet<()>,
    /// They have worked for too long: nobody waits for them any more.
    pub is_impatient: bool,
    /// The session was resumed without a prompt, and the team has nothing to do either: it is left as it
    /// is, and so is the session.
    pub is_needless: bool,
    /// How it is being removed, if it is.
    pub removal: Option<Removal>,
}

/// What tasks on the team's files report.
pub(in super::super) enum News {
    /// A team was made, or not.
    Created { ask: Ask, created: Result<(Created, TeamWatch), TeamError> },
    /// A team without a lead was taken over, or not.
    Adopted { ask: Ask, team: Result<(Team, LeadLock, TeamWatch), TeamError> },
    /// A new member is in the roster under this name, or not.
    Entered { ask: Ask, plan: Box<Plan>, mode: Option<Mode>, entered: Result<(Box<Member>, Option<Panes>), String> },
    /// It is known where a member is to run that is brought back, or why it can't.
    Seated { ask: Ask, name: String, prompt: String, panes: Result<Option<Panes>, String> },
    /// A start is over, well or not; what the model is told of one that was the person's.
    Started { tool_use_id: String, note: Option<String> },
    /// The mailbox was read.
    Mail(Result<Seen, TeamError>),
    /// What was taken in of it is marked read, as far as that was possible; whether there was more.
    Marked { more: bool },
    /// Whether any member has something to do; those who are no processes of this session and do.
    Rest { all_done: bool, others: Vec<Other> },
    /// A member that is no process of this session is gone, or has left the team in order.
    OtherGone { left: Option<String> },
    /// A member that is no process of this session agreed to end, and has not.
    OtherStays { name: String, pid: i32 },
    /// The time that members had to end is over.
    GraceOver { of: Instant },
    /// Its files are gone, or not.
    Removed(Result<(), String>),
}

impl Led {
    pub(super) fn new(team: Team, lock: LeadLock) -> Self {
        Self {
            writes: Writes::of(team.clone()),
            team,
            _lock: lock,
            starting: HashSet::new(),
            returning: HashSet::new(),
            plans: HashMap::new(),
            modes: HashMap::new(),
            taken_over: HashSet::new(),
            allowed: Vec::new(),
            by_mail: HashMap::new(),
            asked: HashMap::new(),
            dying: HashMap::new(),
            unable: HashSet::new(),
            rested: Vec::new(),
            has_mail: true,
            reads: false,
            looks: false,
            stirred: true,
            kept_by: Vec::new(),
            vigil: JoinSet::new(),
            is_impatient: false,
            is_needless: false,
            removal: None,
        }
    }
}

impl Session {
    /// Carries out `TeamCreate`.
    pub(in super::super) fn team_create(&mut self, ask: Ask) {
        if let Asker::Agent(id) = &ask.asker {
            let text = format!("{id} is an agent, and agents don't make teams");
            return ask.answer(ToolOutput::error(text));
        }
        let input = TeamCreateInput::parse(&ask.input).and_then(|input| {
            name::check_team(&input.team_name)?;
            match &self.team {
                Some(led) => Err(format!(
                    "this session leads team {:?} already, and a session leads one at a time; TeamDelete ends it",
                    led.team.name()
                )),
                None if self.is_making_team => Err("a team is being made already".to_owned()),
                None => Ok(input),
            }
        });
        let input = match input {
            Ok(input) => input,
            Err(refusal) => return ask.answer(ToolOutput::error(refusal)),
        };
        self.is_making_team = true;
        let agent_type = input.agent_type.unwrap_or_else(|| LEAD.to_owned());
        let new = NewTeam {
            name: input.team_name,
            description: input.description,
            lead: Some((self.as_leader(), self.as_member(&agent_type))),
            created_ms: clock::now_ms(),
        };
        let (config, durability) = (self.options.config_dir.clone(), self.options.settings.lead.durability);
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let made = tokio::task::spawn_blocking(move || create(&config, &new, durability)).await;
            let created = match made {
                Ok(created) => created.and_then(|created| {
                    let watch = TeamWatch::open(&created.team, LEAD)?;
                    Ok((created, watch))
                }),
                Err(panic) => return ask.answer(ToolOutput::error(format!("the team was not made: {panic}"))),
            };
            report(&inner, News::Created { ask, created }).await;
        });
    }

    /// How this process is known as a lead.
    pub(super) fn as_leader(&self) -> Leader {
        Leader {
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            address: crate::wire::address(&self.runtime.socket_path(&self.runtime_name)),
            session: self.id.as_str().to_owned(),
        }
    }

    /// The lead as it stands in the roster.
    pub(super) fn as_member(&self, agent_type: &str) -> Member {
        Member {
            name: LEAD.to_owned(),
            agent_type: Some(agent_type.to_owned()),
            model: Some(self.options.model.to_string()),
            joined_at: Some(clock::now_ms()),
            tmux_pane_id: Some(String::new()),
            cwd: Some(self.options.cwd.to_string_lossy().into_owned()),
            subscriptions: Some(Vec::new()),
            ..Member::default()
        }
    }

    /// Something that a task of the team did is over.
    pub(in super::super) fn on_news(&mut self, news: News) {
        match news {
            News::Created { ask, created } => {
                self.is_making_team = false;
                match created {
                    Ok((Created { team, lead: Some(lock) }, watch)) => self.lead_created(ask, team, lock, watch),
                    Ok((Created { team, lead: None }, _)) => {
                        let text = format!("team {:?} was made without a lead", team.name());
                        ask.answer(ToolOutput::error(text));
                    }
                    Err(error) => {
                        ask.answer(ToolOutput::error(format!("the team was not made: {}", with_causes(&error))));
                    }
                }
            }
            News::Adopted { ask, team } => self.on_adopted(ask, team),
            News::Entered { ask, plan, mode, entered } => self.on_entered(ask, *plan, mode, entered),
            News::Seated { ask, name, prompt, panes } => self.on_seated(ask, &name, prompt, panes),
            News::Started { tool_use_id, note } => {
                if let Some(led) = &mut self.team {
                    led.starting.remove(&tool_use_id);
                }
                if let Some(note) = note {
                    self.note_for_person(note);
                }
            }
            News::Mail(seen) => self.on_team_mail(seen),
            News::Marked { more } => self.on_team_marked(more),
            News::Rest { all_done, others } => self.on_team_rest(all_done, others),
            News::OtherGone { left } => self.on_other_gone(left),
            News::OtherStays { name, pid } => self.on_other_stays(&name, pid),
            News::GraceOver { of } => self.on_grace_over(of),
            News::Removed(removed) => self.on_removed(removed),
        }
    }

    fn lead_created(&mut self, ask: Ask, team: Team, lock: LeadLock, watch: TeamWatch) {
        let (name, roster) = (team.name(), team.roster_path());
        let shown = json!({
            "team_name": name,
            "team_file_path": roster.to_string_lossy(),
            "lead_agent_id": name::agent_id(LEAD, &name),
        });
        self.lead_team(team, lock, watch);
        self.say(&format!("team {name} was made"));
        let text = format!(
            "Team {name:?} is there and you lead it; its board is empty.\nroster: {}\nAdd members with Agent and a `name`.",
            roster.display()
        );
        ask.answer(ToolOutput::ok(text).with(shown));
    }

    /// Leads a team from here on.
    pub(super) fn lead_team(&mut self, team: Team, lock: LeadLock, watch: TeamWatch) {
        self.team = Some(Led::new(team, lock));
        self.next_watch = Some(Some(watch));
        self.attend_team();
    }

    /// Mail or cards may have changed.
    pub(in super::super) fn on_team_changes(&mut self, changes: Changes) {
        let Some(led) = &mut self.team else { return };
        led.has_mail |= changes.mail;
        led.stirred = true;
        self.last_event = Instant::now();
        self.attend_team();
    }
}

/// Hands news to the session's loop.
pub(super) async fn report(inner: &mpsc::Sender<Inner>, news: News) {
    let _ = inner.send(Inner::Team(Box::new(news))).await;
}
