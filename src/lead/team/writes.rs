//! Changes of the roster by its lead. Those that come while one is being written go into the next
//! write together: a crowd of members that starts at once would else have it written anew for each.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::core::team::Roster;
use crate::core::text::with_causes;
use crate::store::team::Team;

/// Called again if another program has changed the roster meanwhile.
type Change = Box<dyn FnMut(&mut Roster) + Send>;

/// Whom to tell whether it is written.
type Tell = oneshot::Sender<Result<(), String>>;

/// The changes of one team that wait for their write.
pub(in super::super) struct Writes {
    team: Team,
    waiting: Mutex<Vec<(Change, Tell)>>,
    /// Held by who writes.
    turn: tokio::sync::Mutex<()>,
}

impl Writes {
    pub(super) fn of(team: Team) -> Arc<Self> {
        Arc::new(Self { team, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// Changes the roster; what `change` returned, once that is written, or why it is not. The order is
    /// that of the calls, not of when the futures are awaited. Of those that are dropped, `change` may
    /// still be carried out.
    pub(super) fn change<T: Send + 'static>(
        self: &Arc<Self>,
        mut change: impl FnMut(&mut Roster) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send + 'static {
        let done = Arc::new(Mutex::new(None));
        let (tell, told) = oneshot::channel();
        let kept = Arc::clone(&done);
        let change = move |roster: &mut Roster| *lock(&kept) = Some(change(roster));
        lock(&self.waiting).push((Box::new(change), tell));
        let writes = Arc::clone(self);
        async move {
            {
                let _turn = writes.turn.lock().await;
                let all = std::mem::take(&mut *lock(&writes.waiting));
                if !all.is_empty() {
                    write(writes.team.clone(), all).await;
                }
            }
            let unwritten = || "writing the roster failed".to_owned();
            told.await.map_err(|_| unwritten())??;
            lock(&done).take().ok_or_else(unwritten)
        }
    }
}

async fn write(team: Team, all: Vec<(Change, Tell)>) {
    let (mut changes, tells): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let written = tokio::task::spawn_blocking(move || {
        team.change_roster(|roster| {
            changes.iter_mut().for_each(|change| change(roster));
            Ok(())
        })
    });
    let written = match written.await {
        Ok(written) => written.map_err(|error| with_causes(&error)),
        Err(panic) => Err(panic.to_string()),
    };
    for tell in tells {
        let _ = tell.send(written.clone());
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::team::Member;
    use crate::store::team::testing::Place;

    #[tokio::test]
    async fn changes_that_wait_are_written_together_in_the_order_of_the_calls() {
        let place = Place::new();
        let team = place.team("t", &[]);
        let writes = Writes::of(team.clone());
        let enter = |name: &str| {
            let member = Member { name: name.to_owned(), ..Member::default() };
            writes.change(move |roster| roster.add(member.clone()).name)
        };
        let all: Vec<_> = ["c", "a", "b"].into_iter().map(enter).collect();
        // The last one writes them all.
        for (change, name) in all.into_iter().zip(["c", "a", "b"]).rev() {
            assert_eq!(change.await.unwrap(), name);
            assert_eq!(team.roster().unwrap().names(), ["c", "a", "b"]);
        }
        drop(enter("d"));
        assert_eq!(writes.change(|roster| roster.names().len()).await.unwrap(), 4, "it is dropped and was asked for");
        std::fs::remove_dir_all(team.path()).unwrap();
        let refused = writes.change(|roster| roster.names().len()).await.unwrap_err();
        assert!(refused.contains("is gone"), "{refused}");
    }
}
