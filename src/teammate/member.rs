//! The loop of a member: what its agent hears, what comes up in its mailbox and on its board, and what
//! became of its own looks at them, one at a time. Nothing here waits: files of the team are read and
//! written in tasks whose ends come back as [`Done`], but for a short mailbox.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::attention::{Attention, Next};
use super::delegate::{Agents, said};
use super::pane::PaneEvent;
use super::rest::Rest;
use super::watched::{Watched, no_more, typed};
use crate::agent::{Event as AgentEvent, Input, TurnEnd};
use crate::core::agent::{Owner, RowState};
use crate::core::frame::{Frame, Membership};
use crate::core::ids::AgentId;
use crate::core::limits::{self, Durability};
use crate::core::paths::{AgentFiles, ConfigDir};
use crate::core::team::{Card, Protocol};
use crate::endpoint::{Agent, Booted, Changes, EndpointError, Heard, Identity, TeamWatch, changes_of, identify};
use crate::proc::deadline;
use crate::store::runtime::RuntimeDir;
use crate::store::team::mailbox::{Mailbox, Seen};
use crate::store::team::{Team, TeamError};
use crate::wire::Incoming;

/// How long the disk is left alone that did not take in a message.
const RETRY: Duration = Duration::from_secs(1);

/// Where a member works.
pub(super) struct Place {
    team: Team,
    mailbox: Mailbox,
    me: Membership,
    watch: TeamWatch,
    runtime: RuntimeDir,
}

impl Place {
    /// Opens the member's pane, if it has one.
    pub(super) fn watched(&self, booted: &Booted) -> Option<Watched> {
        Watched::open(&self.me, &AgentFiles::of(&booted.welcome.config.transcript))
    }
}

/// What became of a look at files.
pub(super) enum Done {
    /// At the mailbox.
    Mail(Result<Seen, TeamError>),
    /// What was taken in of it is marked read, or not; whether there was more.
    Marked { marked: Result<(), TeamError>, more: bool },
    /// At the board: the card it got, if there was one.
    Card(Result<Option<Card>, TeamError>),
    /// It was asked whether it may rest.
    Rest(Option<String>),
    /// It sent a message to a peer.
    Sent { to: String, summary: String },
    /// It completed a card.
    Completed(String),
    /// The call that started this agent was cancelled.
    Unwanted(AgentId),
}

/// A member at work.
pub(super) struct Teammate {
    pub(super) agent: Box<Agent>,
    pub(super) team: Team,
    pub(super) mailbox: Mailbox,
    pub(super) me: Membership,
    pub(super) runtime: RuntimeDir,
    watch: Option<TeamWatch>,
    /// Its pane, if it has one.
    watched: Option<Watched>,
    /// Agents that it started, once it has started one.
    pub(super) agents: Option<Agents>,
    pub(super) attention: Attention,
    pub(super) done: mpsc::Sender<Done>,
    results: mpsc::Receiver<Done>,
    /// What it will say of itself when it rests.
    pub(super) rest: Rest,
    /// What the roster says of whether it is in a turn.
    pub(super) is_active: Arc<AtomicBool>,
    /// Questions whether it ends that it has not answered.
    pub(super) shutdown: Vec<String>,
    /// The question that it said yes to.
    pub(super) leaving: Option<String>,
    /// Questions of its lead what it does, which are answered when no look is under way: it may have
    /// taken a card, or mail, and not begun with it yet.
    asked: Vec<u64>,
    /// When it gives up waiting for another lead.
    orphaned_until: Option<Instant>,
    /// When the mailbox is looked at again that could not be taken in.
    pub(super) again_at: Option<Instant>,
}

impl Teammate {
    /// Finds the team. To be called before anybody is told that it is ready.
    pub(super) fn place(booted: &Booted) -> Result<Place, EndpointError> {
        let config = &booted.welcome.config;
        let me = config.membership.as_deref().cloned().ok_or(EndpointError::NoTeam)?;
        let durability = Durability::parse(&config.durability);
        let team = Team::open(&ConfigDir::new(&config.config_dir), &me.team, durability)?;
        let watch = TeamWatch::open(&team, &me.name)?;
        let mailbox = team.mailbox(&me.name)?;
        Ok(Place { team, mailbox, me, watch, runtime: booted.runtime.clone() })
    }

    pub(super) fn new(agent: Box<Agent>, place: Place, watched: Option<Watched>) -> Self {
        let Place { team, mailbox, me, watch, runtime } = place;
        let (done, results) = mpsc::channel(limits::LOOP_EVENTS);
        Self {
            agent,
            team,
            mailbox,
            me,
            runtime,
            watch: Some(watch),
            watched,
            agents: None,
            attention: Attention::new(),
            done,
            results,
            rest: Rest::default(),
            is_active: Arc::new(AtomicBool::new(true)),
            shutdown: Vec::new(),
            leaving: None,
            asked: Vec::new(),
            orphaned_until: None,
            again_at: None,
        }
    }

    /// Lives until it has left, was stopped, or waited in vain for a lead; the exit code.
    pub(super) async fn live(mut self) -> u8 {
        self.agent.announce().await;
        if self.agent.config.run > 1 {
            // The roster has it from before that it is gone.
            self.write_active(true);
        }
        loop {
            if let Some(end) = self.agent.ended.take() {
                self.on_turn_end(&end);
            }
            self.note_owner();
            self.attend();
            self.say_what_it_does();
            if let Some(watched) = &self.watched {
                watched.pane.status(&self.agent.current_state());
            }
            if let Some(ending) = self.ending() {
                let pane = self.watched.take();
                let code = self.leave(ending).await;
                if let Some(watched) = pane {
                    watched.pane.close();
                }
                return code;
            }
            let orphaned_until = self.orphaned_until.filter(|_| self.agent.driver.is_idle());
            tokio::select! {
                heard = self.agent.next() => self.on_heard(heard),
                changes = changes_of(&mut self.watch) => self.on_changes(changes),
                Some(done) = self.results.recv() => self.on_done(done),
                typed = typed(&mut self.watched) => self.on_typed(typed),
                event = said(&mut self.agents) => self.on_agents(event),
                () = due(orphaned_until) => {}
                () = due(self.again_at) => {
                    self.again_at = None;
                    self.attention.wake(true, false);
                }
            }
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Call(call) => self.on_call(call),
            Heard::Owner(Some(Incoming { seq, frame: Frame::Protocol { message } })) => {
                self.on_protocol(*message);
                let _ = self.agent.owner.link.reply(seq, Frame::Done);
            }
            Heard::Owner(Some(Incoming { seq, frame: Frame::Status })) => self.asked.push(seq),
            Heard::Owner(Some(Incoming { seq, frame: Frame::Interrupt })) => {
                self.interrupt();
                let _ = self.agent.owner.link.reply(seq, Frame::Done);
            }
            Heard::Visit(visit) if matches!(visit.frame, Frame::Interrupt) => {
                let answer = match identify(&self.runtime, visit.link.peer()) {
                    Identity::Agent(id) => {
                        let message = format!("{id} is an agent, and agents don't interrupt each other");
                        Frame::Error { code: "refused".to_owned(), message }
                    }
                    Identity::Person | Identity::Lead(_) => {
                        self.interrupt();
                        Frame::Done
                    }
                };
                let _ = visit.link.reply(visit.seq, answer);
            }
            Heard::Owner(Some(Incoming { seq, frame: Frame::SetPermissions(rules) })) => {
                let frame = Frame::SetPermissions(rules.clone());
                self.agent.handle(Heard::Owner(Some(Incoming { seq, frame })));
                self.hand_on(&rules);
            }
            heard => self.agent.handle(heard),
        }
        if !self.agent.driver.is_idle() {
            self.note_work();
        }
    }

    fn on_typed(&mut self, event: PaneEvent) {
        match event {
            PaneEvent::Said(text) => self.person_said(text),
            PaneEvent::Interrupt => self.interrupt(),
            PaneEvent::Closed => no_more(&mut self.watched),
        }
    }

    /// Ends the turn, not the member.
    pub(super) fn interrupt(&mut self) {
        self.agent.step(AgentEvent::Cancel);
    }

    /// What its lead's runtime says over the owner link; it has the lead's authority.
    fn on_protocol(&mut self, message: Protocol) {
        match message {
            Protocol::ShutdownRequest(request) => self.ask_to_end(&request),
            Protocol::TaskAssignment(_) => {
                self.attention.told();
                self.attention.wake(false, true);
            }
            other => tracing::warn!("a {} came over the owner link, which is nothing for a member", other.kind()),
        }
    }

    fn say_what_it_does(&mut self) {
        if self.attention.looks() {
            return;
        }
        for seq in std::mem::take(&mut self.asked) {
            self.agent.handle(Heard::Owner(Some(Incoming { seq, frame: Frame::Status })));
        }
    }

    fn on_changes(&mut self, changes: Changes) {
        if changes.gone && self.team.roster().is_err() {
            tracing::warn!("team {} is gone", self.me.team);
            self.agent.lose_team();
        }
        self.attention.wake(changes.mail, changes.board);
    }

    fn on_turn_end(&mut self, end: &TurnEnd) {
        let well = matches!(end, TurnEnd::Answer { .. });
        self.rest.turn_ended(end);
        self.attention.turn_ended(well);
    }

    /// Whether mail and cards are its business: not while it waits for a lead, nor on its way out.
    fn may_take(&self) -> bool {
        self.agent.state.owner != Owner::Lost && self.leaving.is_none() && !self.agent.is_stopping()
    }

    fn note_owner(&mut self) {
        match (self.agent.state.owner, self.orphaned_until) {
            (Owner::Lost, None) if self.agent.driver.is_idle() => {
                self.orphaned_until = Some(Instant::now() + Duration::from_millis(self.me.orphan_ttl_ms));
            }
            (Owner::Lost, _) => {}
            (_, Some(_)) => {
                self.orphaned_until = None;
                self.attention.wake(true, true);
            }
            (_, None) => {}
        }
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.orphaned_until.is_some_and(|until| Instant::now() >= until)
    }

    /// Turns to what is next, if it can.
    fn attend(&mut self) {
        let (is_idle, may_take) = (self.agent.driver.is_idle(), self.may_take());
        if self.agent.is_stopping() || self.leaving.is_some() {
            return;
        }
        match self.attention.next(is_idle, may_take) {
            Next::Nothing => {}
            Next::ReadMail => self.read_mail(),
            Next::TakeCard => self.take_card(),
            Next::Rest => self.ask_for_rest(),
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Mail(seen) => self.on_mail(seen),
            Done::Marked { marked, more } => {
                self.attention.looked();
                self.on_marked(marked, more);
            }
            Done::Card(card) => {
                self.attention.looked();
                self.on_card(card);
            }
            Done::Rest(objection) => {
                self.attention.looked();
                self.on_rest(objection);
            }
            Done::Sent { to, summary } => self.rest.sent(&to, &summary),
            Done::Completed(card) => self.rest.completed(card),
            Done::Unwanted(id) => self.stop_agent(&id, "the turn was cancelled"),
        }
    }

    /// Hands things to the conversation. They begin a turn, or come at the next boundary of the one
    /// that runs.
    pub(super) fn tell(&mut self, inputs: Vec<Input>) {
        self.attention.told();
        self.rest.told();
        self.agent.step(AgentEvent::Inputs(inputs));
        self.note_work();
    }

    fn note_work(&mut self) {
        self.attention.works();
        if self.agent.state.state == RowState::Idle {
            self.agent.set_state(RowState::Running);
            self.write_active(true);
        }
    }
}

/// Resolves at a time that may never come.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => deadline(Some(at)).await,
        None => pending().await,
    }
}

impl Teammate {
    /// Looks at the mailbox again after a while.
    pub(super) fn retry_mail(&mut self) {
        self.again_at = Some(Instant::now() + RETRY);
    }
}
