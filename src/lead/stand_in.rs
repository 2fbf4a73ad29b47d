//! One act in place of a lead (spec 7.2): a shell verb starts an agent in a session that has no lead,
//! or resumes one there. It holds the session's transcript lock meanwhile, so that no lead and no
//! other verb acts at the same time; what it starts goes on without an owner. No model is called.

use serde_json::json;
use tokio::sync::oneshot;

use super::ask::{Ask, Asker};
use super::error::LeadError;
use super::options::{SessionOptions, Standing};
use super::person::{Declined, SpawnInput, Started};
use super::session::{Session, Sources};
use super::setup::open;
use super::told::Streams;
use crate::core::frame::{Delivered, Prompt};
use crate::core::ids::AgentId;
use crate::core::paths::AgentFiles;
use crate::proc::StopSignal;
use crate::store::lock::is_held;
use crate::store::session::agents_of;
use crate::store::settle::settle;
use crate::supervisor::{Remains, Slot, outcome_of_dead};

struct StandIn {
    session: Session,
    sources: Sources,
    /// The signal that ended it.
    signal: Option<StopSignal>,
}

/// Starts an agent of the person's, in a new session or in an existing one that has no lead. `key`
/// is the request's: made again, with this or with a lead, it starts nothing. An error of the session
/// is the outer one; [`LeadError::Running`] names its lead, which is to be asked instead.
pub async fn spawn(
    options: SessionOptions,
    key: &str,
    input: &SpawnInput,
) -> Result<Result<Started, Declined>, LeadError> {
    let (mut act, is_new) = StandIn::begin(options)?;
    let (mut ask, answer) = Ask::of_visitor(Asker::Person, "Agent", json!(input));
    key.clone_into(&mut ask.tool_use_id);
    act.session.spawn_for_person(ask);
    let output = act.wait_for(answer).await;
    let started = match (output, act.signal) {
        (Some(output), None) => Started::read(&output),
        (Some(output), Some(signal)) => Started::read(&output).map_err(|_| Declined::Interrupted(signal)),
        (None, _) => Err(Declined::Ending),
    };
    if started.is_err() && is_new {
        act.undo();
    }
    Ok(started)
}

/// Resumes an agent that has ended, with a message as its next prompt. None = it runs: the message is
/// to be delivered.
pub async fn resume(options: SessionOptions, id: &AgentId, prompt: Prompt) -> Result<Option<Delivered>, LeadError> {
    let (mut act, _) = StandIn::begin(options)?;
    if act.session.supervisor.get(id).is_some_and(Slot::is_live) {
        return Ok(None);
    }
    if let Some(slot) = act.session.supervisor.get(id) {
        // A run that died without an end gets one before the next begins.
        let (session, files) = (&act.session.id, &slot.files);
        settle(files, id, session, |run, _, _| {
            outcome_of_dead(id, session, files, Remains { run, exit: None, leftovers: Vec::new() })
        })?;
    }
    let refused = |message: String| Some(Delivered { outcome: "refused".to_owned(), message });
    let ready = match act.session.resume_agent(id, prompt) {
        Ok(ready) => ready,
        Err(why) => return Ok(refused(why)),
    };
    Ok(match act.wait_for(ready).await {
        Some(Ok(_)) => Some(Delivered {
            outcome: "resumed".to_owned(),
            message: "it had ended and goes on with this message, without an owner".to_owned(),
        }),
        Some(Err(error)) => refused(format!("it could not be continued: {error}")),
        None => refused("the start was given up".to_owned()),
    })
}

impl StandIn {
    /// Opens the session; true if it is new. What its agents are is read from disk.
    fn begin(options: SessionOptions) -> Result<(Self, bool), LeadError> {
        let opened = open(SessionOptions { standing: Standing::StandIn, ..options }, Streams::default())?;
        let mut session = opened.session;
        for (id, files, meta) in agents_of(&session.files) {
            // Their runs count for nobody here.
            if lives(&files) {
                session.supervisor.insert_elsewhere(id, meta, files, 0);
            } else {
                session.supervisor.insert_ended(id, meta, files, 0);
            }
        }
        Ok((Self { session, sources: opened.sources, signal: None }, !opened.resumed))
    }

    /// Carries on until there is an answer, and takes in what happened up to then. A signal stops what
    /// was started.
    async fn wait_for<T>(&mut self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        let answered = loop {
            tokio::select! {
                answered = &mut answer => break answered.ok(),
                Some(event) = self.sources.supervised.recv() => self.session.note_event(&event),
                signal = self.sources.signals.recv() => {
                    for id in self.session.supervisor.live() {
                        self.session.stop_agent(&id, signal.name(), self.signal.is_some());
                    }
                    self.signal = Some(signal);
                }
            }
        };
        while let Ok(event) = self.sources.supervised.try_recv() {
            self.session.note_event(&event);
        }
        answered
    }

    /// Takes back a session that was made for an agent which did not come to life.
    fn undo(self) {
        let files = &self.session.files;
        let mut folders = vec![files.subagents(), files.folder()];
        if let Some(scratchpad) = &self.session.scratchpad {
            folders.push(scratchpad.clone());
            folders.extend(scratchpad.parent().map(Into::into));
        }
        // Under the session's lock, and only what is empty.
        for folder in folders {
            let _ = std::fs::remove_dir(folder);
        }
        if let Err(error) = std::fs::remove_file(files.transcript()) {
            tracing::warn!(%error, "the transcript of a session without a beginning is still there");
        }
    }
}

/// Whether an agent's process holds its transcript; one that can't be looked at is taken to live.
fn lives(files: &AgentFiles) -> bool {
    files.transcript().exists() && is_held(files.transcript()).unwrap_or(true)
}
