//! What tests of teams share.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::core::limits::Durability;
use crate::core::paths::ConfigDir;
use crate::core::team::claim::Life;
use crate::core::team::roster::HEADLESS;
use crate::core::team::{Letter, Member};

/// A config folder of one test.
pub(crate) struct Place {
    _dir: tempfile::TempDir,
    pub config: ConfigDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::new(dir.path().join("config"));
        Self { _dir: dir, config }
    }

    /// A team without a lead, with these members.
    pub fn team(&self, name: &str, members: &[&str]) -> Team {
        let new = NewTeam { name: name.to_owned(), description: None, lead: None, created_ms: 1 };
        let team = create(&self.config, &new, Durability::Process).unwrap().team;
        for member in members {
            let member = member_named(member);
            team.add_member(&member).unwrap();
        }
        team
    }

    /// A team folder as another program left it.
    pub fn foreign(&self, folder: &str, roster: &str) -> Team {
        let path = self.config.teams().join(folder);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.json"), roster).unwrap();
        Team::open(&self.config, folder, Durability::Process).unwrap()
    }

    pub fn open(&self, name: &str) -> Result<Team, TeamError> {
        Team::open(&self.config, name, Durability::Process)
    }
}

pub(super) fn member_named(name: &str) -> Member {
    Member { name: name.to_owned(), backend_type: Some(HEADLESS.to_owned()), ..Member::default() }
}

pub(super) fn letter(to: &str, text: &str) -> Letter {
    Letter {
        to: to.to_owned(),
        from: "team-lead".to_owned(),
        text: text.to_owned(),
        summary: None,
        color: None,
        sent_ms: 1_767_225_600_000,
        msg_id: crate::core::ids::random_uuid(),
    }
}

/// Nobody dies.
pub(super) const ALL_LIVE: board::Owners<'static> = board::Owners { life: &|_| Life::Alive, note: &|_| String::new() };

pub(super) const LONG: Duration = Duration::from_secs(30);

/// All files below a folder, with what is in them; lock folders and the like too.
pub(super) fn tree(folder: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                files.push((entry.path(), Vec::new()));
                folders.push(entry.path());
            } else {
                files.push((entry.path(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    files.sort();
    files
}
