//! The end of an agent's life as its owner sees it: tools swept, outcome read or written, registry
//! tidied.

use super::life::Life;
use super::outcome::{Remains, outcome_of_dead};
use crate::core::agent::Outcome;
use crate::proc::{Exit, sweep};
use crate::store::StoreError;
use crate::store::runtime;
use crate::store::settle::{Settled, settle};

impl Life {
    /// The process is gone (or past help): its tools are swept and its outcome is read or written.
    pub(super) async fn settle(
        &mut self,
        run: u32,
        exit: Option<Exit>,
        runtime_name: Option<String>,
    ) -> Option<Outcome> {
        // One that ended by itself has removed its registry files; one that was killed can't have.
        let crashed = exit.as_ref().is_none_or(|e| e.signal.is_some() || e.code.is_none());
        let (id, session, files) = (self.id.clone(), self.session.clone(), self.files.clone());
        let settled = tokio::task::spawn_blocking(move || {
            settle(&files, &id, &session, |run, _, _| {
                let leftovers = runtime_name.map(|name| sweep(&name, &[])).unwrap_or_default();
                outcome_of_dead(&id, &session, &files, Remains { run, exit, leftovers })
            })
        })
        .await;
        if crashed {
            self.sweep_registry().await;
        }
        let _ = std::fs::remove_file(self.files.stop_marker(run));
        self.tell_untold(run).await;
        match settled {
            Ok(Ok(Settled::Existing(outcome) | Settled::Written(outcome))) => Some(outcome),
            Ok(Ok(Settled::NeverStarted)) => None,
            Ok(Err(error)) => Some(self.unsettled(run, &error)),
            Err(panic) => {
                tracing::error!(id = %self.id, %panic, "settling failed");
                None
            }
        }
    }

    /// The outcome could not be written (disk full, a process that survives SIGKILL): it is told all
    /// the same, and since nothing is on disk a later resume tells it again rather than never.
    fn unsettled(&self, run: u32, error: &StoreError) -> Outcome {
        tracing::error!(id = %self.id, %error, "the outcome can't be written");
        let remains = Remains { run, exit: None, leftovers: Vec::new() };
        let mut outcome = outcome_of_dead(&self.id, &self.session, &self.files, remains);
        outcome.error = Some(format!("its outcome can't be written: {error}"));
        outcome
    }

    /// A process that crashed leaves its registry files behind.
    pub(super) async fn sweep_registry(&self) {
        let runtime = self.runtime.clone();
        let _ = tokio::task::spawn_blocking(move || runtime::sweep(&runtime, &mut |dead| drop(sweep(&dead.name, &[]))))
            .await;
    }
}
