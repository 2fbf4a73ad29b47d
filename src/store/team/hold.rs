//! A script's place in a team for as long as its command runs (spec 3.7): a lock that the command
//! inherits, so that the place is held until the last of them is gone, however that happens. Whose
//! cards are free again is asked here.
//!
//! A script that joined without a command has no lock, and never dies by itself.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};

use super::{Team, TeamError};
use crate::core::team::Member;
use crate::core::team::claim::{Life, life_of};
use crate::core::team::roster::Backend;
use crate::store::StoreError;
use crate::store::atomic::{create_private_dir, folder_of};
use crate::store::lock::{self, FileLock, Patience};

/// The right to work as a member.
#[derive(Debug)]
#[must_use = "the place is held only as long as this lives"]
pub struct Hold {
    lock: FileLock,
    path: PathBuf,
}

/// Who holds a script's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It joined without a command.
    Nobody,
    /// A living process, as far as it said which.
    Alive(Option<i32>),
    /// One that is gone.
    Dead,
}

impl Hold {
    /// Lets processes that are started from here on hold the place, too: should this one be killed,
    /// the command it started still works on its cards.
    pub fn bequeath(&self) -> Result<(), StoreError> {
        fcntl_setfd(self.lock.file(), FdFlags::empty()).map_err(|e| StoreError::at(&self.path, "hand on")(e.into()))
    }

    /// Gives the place up; nothing is left of it.
    pub fn end(self) {
        // Under the lock, so it is ours. One that stays counts as held by somebody dead.
        let _ = fs::remove_file(&self.path);
    }
}

impl Team {
    /// The file that is locked while a command works as this member.
    pub fn hold_path(&self, member: &str) -> PathBuf {
        let name = format!("{}.{}.member", self.folder(), member.to_ascii_lowercase());
        self.config().locks().join(name)
    }

    /// Takes the place of a member of a name of ours, in the roster or not;
    /// [`TeamError::Held`] if a living process has it.
    pub fn hold(&self, member: &str) -> Result<Hold, TeamError> {
        let path = self.hold_path(member);
        create_private_dir(folder_of(&path))?;
        let lock = loop {
            let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
            made.map_err(StoreError::at(&path, "create"))?;
            match lock::exclusive_unless_held(&path, Patience::with_holder(Duration::ZERO)) {
                Err(StoreError::Locked { .. }) => {
                    return Err(TeamError::Held { name: member.to_owned(), team: self.name(), pid: pid_in(&path) });
                }
                // Its last holder removed it just now.
                Err(StoreError::Missing { .. }) => {}
                lock => break lock?,
            }
        };
        let said = lock.file().set_len(0).and_then(|()| writeln!(lock.file(), "{}", std::process::id()));
        said.map_err(StoreError::at(&path, "write"))?;
        Ok(Hold { lock, path })
    }

    /// Who holds the place of a script. Never waits.
    pub fn holder(&self, member: &str) -> Result<Holder, TeamError> {
        let path = self.hold_path(member);
        match lock::is_held(&path) {
            Ok(true) => Ok(Holder::Alive(pid_in(&path))),
            Ok(false) => Ok(Holder::Dead),
            Err(StoreError::Missing { .. }) => Ok(Holder::Nobody),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the owner of a card can still work on it, by the roster as it is now: one who joined
    /// a moment ago is no stranger. `is_alive` is asked about members that are processes. What can't
    /// be told is no reason to take a card away.
    pub fn life(&self, owner: &str, is_alive: &dyn Fn(&Member) -> bool) -> Life {
        let Ok(roster) = self.roster() else { return Life::Alive };
        let is_script = roster.members().any(|m| m.name == owner && m.backend() == Backend::External);
        match self.holder(owner) {
            Ok(Holder::Dead) if is_script => Life::Gone,
            _ => life_of(owner, Some(&roster), is_alive),
        }
    }
}

fn pid_in(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Place;
    use super::*;

    fn script(name: &str) -> Member {
        Member { name: name.to_owned(), backend_type: Some("external".to_owned()), ..Member::default() }
    }

    #[test]
    fn a_place_has_one_holder_and_leaves_nothing() {
        let place = Place::new();
        let team = place.team("t", &[]);
        assert_eq!(team.holder("a").unwrap(), Holder::Nobody);
        let hold = team.hold("a").unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(team.holder("A").unwrap(), Holder::Alive(Some(me)), "case does not count");
        assert!(matches!(team.hold("a"), Err(TeamError::Held { pid: Some(pid), .. }) if pid == me));
        assert!(team.hold("b").is_ok());
        hold.end();
        assert_eq!(team.holder("a").unwrap(), Holder::Nobody);
        assert!(team.hold("a").is_ok());
    }

    #[test]
    fn cards_are_free_when_the_holder_is_dead_and_not_when_there_never_was_one() {
        let place = Place::new();
        let team = place.team("t", &["process"]);
        team.add_member(&script("held")).unwrap();
        team.add_member(&script("free")).unwrap();
        let hold = team.hold("held").unwrap();
        let life = |name: &str| team.life(name, &|_| false);
        assert_eq!(
            ["held", "free", "process", "stranger"].map(life),
            [Life::Alive, Life::Alive, Life::Gone, Life::Gone]
        );
        drop(hold);
        assert_eq!(["held", "free"].map(life), [Life::Gone, Life::Alive]);
        let late = place.open("t").unwrap();
        late.add_member(&script("late")).unwrap();
        assert_eq!(life("late"), Life::Alive, "the roster is read anew");
    }
}
