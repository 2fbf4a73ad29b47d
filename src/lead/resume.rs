//! Resume of a session (spec 4.4): takes living agents over, settles dead ones, and queues every
//! notification that the transcript has not consumed, oldest first.

use std::collections::HashSet;

use super::error::LeadError;
use super::notify::notification;
use super::queue::Priority;
use super::session::Session;
use super::team::member_ended;
use super::told::{Task, Told, Who};
use crate::agent::Input;
use crate::core::agent::{Meta, Outcome, Owner};
use crate::core::clock;
use crate::core::entry::{Line, ORIGIN_PEER, Origin};
use crate::core::ids::AgentId;
use crate::core::limits::deadlines;
use crate::core::paths::AgentFiles;
use crate::store::StoreError;
use crate::store::history::History;
use crate::store::lock::is_held;
use crate::store::reader::{outcomes_since, read_back};
use crate::store::runtime::list;
use crate::store::session::{agents_of, undo_spawn};
use crate::store::settle::{Settled, settle};
use crate::supervisor::{Remains, Start, each_line_of_run, outcome_of_dead};

impl Session {
    /// Brings the session's agents and queue back. `history` is what its transcript holds.
    pub(super) fn bring_back(&mut self, history: &History) -> Result<(), LeadError> {
        for enqueued in &history.enqueued {
            let input = Input {
                text: enqueued.content.clone(),
                origin: Some(Origin { kind: ORIGIN_PEER.to_owned(), task_id: None, run: None }),
                msg_id: Some(enqueued.msg_id.clone()),
                from: Some(enqueued.from.clone()),
                ..Input::default()
            };
            self.queue.push(Priority::Next, input);
        }
        self.bring_back_shells(history.open_shells.as_slice());
        let mut undelivered: Vec<(Outcome, Meta, AgentFiles)> = Vec::new();
        for (id, files, meta) in agents_of(&self.files) {
            match self.bring_back_agent(&id, &files, &meta, history.consumed.up_to(id.as_str())) {
                Ok(outcomes) => {
                    self.told.extend(outcomes.iter().map(|o| (id.clone(), o.run)));
                    let fresh = outcomes.into_iter().filter(|o| !history.is_consumed(id.as_str(), o.run));
                    undelivered.extend(fresh.map(|o| (o, meta.clone(), files.clone())));
                }
                Err(error) => {
                    // One broken agent must not keep the session from coming back.
                    tracing::warn!(%id, %error, "an agent of this session can't be brought back");
                }
            }
        }
        undelivered.extend(self.bring_back_team(history));
        undelivered.sort_by(|a, b| a.0.timestamp.cmp(&b.0.timestamp));
        for (outcome, meta, files) in undelivered {
            self.tell_of_ended(&outcome, &meta, &files);
            let id = &outcome.agent_id;
            self.queue.push(
                Priority::Later,
                match id.as_member() {
                    Some(_) => member_ended(id, &outcome, false),
                    None => notification(&meta, &files, &outcome),
                },
            );
        }
        self.go_on(history);
        Ok(())
    }

    /// Has the turn go on that an earlier life of this session began and did not end, if nothing is said to
    /// this one and nothing comes by itself: what a worker does is told when it is done.
    fn go_on(&mut self, history: &History) {
        let is_said = self.options.prompt.is_some() || self.inputs.is_some() || !self.queue.is_empty();
        let any_worker = self.supervisor.live().iter().any(|id| id.as_member().is_none());
        if history.is_in_turn && !is_said && !any_worker {
            let text = "Your process had ended in the middle of a turn and was started again, with all you knew. A \
call that ran then may or may not have done its work; look before you repeat it, and go on from where you were.";
            self.queue.push(Priority::Next, Input { text: text.to_owned(), is_meta: true, ..Input::default() });
        }
    }

    /// What an agent said in a run of which this session was told nothing.
    fn tell_of_ended(&mut self, outcome: &Outcome, meta: &Meta, files: &AgentFiles) {
        if !self.teller.is_heard() {
            return;
        }
        let task = Task { id: &outcome.agent_id, meta, files };
        let tell = |line, _| {
            self.teller.tell(Told::Line(Who::Agent(task), &line));
            true
        };
        if let Err(error) = each_line_of_run(files, outcome.run, &HashSet::new(), tell) {
            tracing::warn!(id = %outcome.agent_id, %error, "what the agent said can't be read");
        }
        self.teller.ended(task, outcome);
    }

    /// Outcomes of one agent's runs, but for those up to run `known`, which nobody needs any more; a
    /// living one is taken over.
    pub(super) fn bring_back_agent(
        &mut self,
        id: &AgentId,
        files: &AgentFiles,
        meta: &Meta,
        known: u32,
    ) -> Result<Vec<Outcome>, StoreError> {
        if !files.transcript().exists() {
            // It never started; but one that is being started this moment is not given up.
            let grace = u64::try_from(deadlines().ready.as_millis()).unwrap_or(u64::MAX);
            if clock::now_ms().saturating_sub(meta.created_at) > grace {
                self.forget(files, id, meta);
                return Ok(Vec::new());
            }
            self.take_over(id, files, meta, 1);
            return Ok(Vec::new());
        }
        let (mut outcomes, mut has_boundary) = (Vec::new(), false);
        let tail = read_back(files.transcript(), |line| match line {
            Line::Outcome(outcome) => outcomes.push(*outcome),
            line => has_boundary |= matches!(line, Line::Boundary(_)),
        })?;
        outcomes.reverse();
        // A run that ended before the agent's own conversation was compacted may be untold as well.
        if has_boundary {
            outcomes = outcomes_since(files.transcript(), known)?;
        }
        if is_held(files.transcript())? {
            self.take_over(id, files, meta, tail.last_run.max(1));
            return Ok(outcomes);
        }
        let settled = settle(files, id, &self.id, |run, _, _| {
            let remains = Remains { run, exit: None, leftovers: Vec::new() };
            outcome_of_dead(id, &self.id, files, remains)
        });
        match settled {
            Ok(Settled::Existing(outcome) | Settled::Written(outcome)) => {
                let run = outcome.run;
                if !outcomes.iter().any(|o| o.run == run) {
                    outcomes.push(outcome);
                }
                self.supervisor.insert_ended(id.clone(), meta.clone(), files.clone(), run);
            }
            Ok(Settled::NeverStarted) => self.forget(files, id, meta),
            // It came to life between the two looks.
            Err(StoreError::Locked { .. } | StoreError::LockTimeout { .. }) => {
                self.take_over(id, files, meta, tail.last_run.max(1));
            }
            Err(error) => return Err(error),
        }
        Ok(outcomes)
    }

    /// Link and meta of an agent that never started.
    fn forget(&mut self, files: &AgentFiles, id: &AgentId, meta: &Meta) {
        self.note_not_started(id, meta);
        if let Err(error) = undo_spawn(&self.options.config_dir, files, id) {
            tracing::warn!(%id, %error, "what was made for an agent that never started is still there");
        }
    }

    fn take_over(&mut self, id: &AgentId, files: &AgentFiles, meta: &Meta, run: u32) {
        let found = list(&self.runtime).unwrap_or_default().into_iter().find(|r| {
            // A member may be of another session, which led its team before.
            let is_ours = r.entry.session == self.id.as_str() || id.as_member().is_some();
            r.alive && r.entry.agent_id == id.as_str() && is_ours
        });
        // Let go on purpose, it goes on after this session too.
        let is_free = found.as_ref().and_then(|r| r.state.as_ref()).is_some_and(|s| s.owner == Owner::None);
        let meta = &Meta { detached: meta.detached || is_free, ..meta.clone() };
        let entry = found.map(|r| Box::new(r.entry));
        let pane = self.pane_of(id);
        let start = Start::Adopt { entry, session: self.id.clone(), run, pane };
        // Whether it could be reached shows in the events that follow.
        drop(self.supervisor.adopt(id.clone(), meta.clone(), files.clone(), run, start));
        // It goes by the rules of its earlier lead until it is told others.
        self.send_permissions(id);
        self.teller.started(Task { id, meta, files }, None, true);
    }
}
