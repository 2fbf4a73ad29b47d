//! The folder in which an agent's shell commands run. It belongs to one agent: no process changes its
//! own folder for it, so nobody else's moves along (R081). What file tools and permission rules are
//! relative to is the agent's working folder and stays; a shell command is judged by the folder it
//! really runs in, which is why the folder is settled before the decision and not again after it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where the next shell command of one agent runs.
#[derive(Debug)]
pub struct WorkingFolder {
    /// The agent's working folder, then that of its project: where to go when the present one is gone.
    homes: [PathBuf; 2],
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    folder: PathBuf,
    /// A folder that is gone and whose loss was not told yet.
    lost: Option<PathBuf>,
}

impl WorkingFolder {
    /// Of an agent that works in `cwd`, within a project in `project`; `last` is where its commands ran
    /// last in an earlier run.
    pub fn new(cwd: &Path, project: &Path, last: Option<PathBuf>) -> Self {
        let folder = last.unwrap_or_else(|| cwd.to_owned());
        let homes = [cwd.to_owned(), project.to_owned()];
        Self { homes, now: Mutex::new(Now { folder, lost: None }) }
    }

    /// The folder of the next command. One that is gone is replaced by the agent's working folder, or
    /// the project's where that is gone too; if there is none of them it stays, and nothing can be run.
    pub fn settle(&self) -> PathBuf {
        let mut now = self.lock();
        if !now.folder.is_dir()
            && let Some(home) = self.homes.iter().find(|home| home.is_dir())
        {
            let gone = std::mem::replace(&mut now.folder, home.clone());
            now.lost.get_or_insert(gone);
        }
        now.folder.clone()
    }

    /// The folder that was settled last.
    pub fn get(&self) -> PathBuf {
        self.lock().folder.clone()
    }

    /// A command ended in `folder`. True if the next one runs elsewhere than this one did.
    pub(in crate::tool) fn moved(&self, folder: PathBuf) -> bool {
        let mut now = self.lock();
        let is_other = folder != now.folder && folder.is_dir();
        if is_other {
            now.folder = folder;
        }
        is_other
    }

    /// The folder that was given up since the last call.
    pub(in crate::tool) fn take_lost(&self) -> Option<PathBuf> {
        self.lock().lost.take()
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn r081_a_folder_that_is_gone_is_replaced_by_the_nearest_that_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let [project, cwd, sub] = ["p", "p/cwd", "p/cwd/sub"].map(|name| dir.path().join(name));
        fs::create_dir_all(&sub).unwrap();
        let folder = WorkingFolder::new(&cwd, &project, None);
        assert_eq!((folder.settle(), folder.take_lost()), (cwd.clone(), None));
        assert!(folder.moved(sub.clone()) && !folder.moved(sub.clone()));
        assert_eq!((folder.settle(), folder.take_lost()), (sub.clone(), None));

        fs::remove_dir(&sub).unwrap();
        assert_eq!((folder.settle(), folder.take_lost()), (cwd.clone(), Some(sub.clone())));
        assert!(!folder.moved(sub.clone()), "a folder that does not exist is no folder to go to");
        assert_eq!((folder.settle(), folder.take_lost()), (cwd.clone(), None));

        fs::remove_dir(&cwd).unwrap();
        assert_eq!((folder.settle(), folder.take_lost()), (project.clone(), Some(cwd)));
        fs::remove_dir(&project).unwrap();
        assert_eq!((folder.settle(), folder.take_lost()), (project.clone(), None));
        assert_eq!(folder.get(), project);
    }

    #[test]
    fn r081_a_loss_is_told_with_the_folder_that_was_lost_first() {
        let dir = tempfile::tempdir().unwrap();
        let last = dir.path().join("of an earlier run");
        let folder = WorkingFolder::new(dir.path(), dir.path(), Some(last.clone()));
        folder.settle();
        assert!(folder.moved(std::env::temp_dir()));
        folder.settle();
        assert_eq!((folder.take_lost(), folder.take_lost()), (Some(last), None));
    }
}
