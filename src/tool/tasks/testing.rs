//! What tests of the task board and of mail share: a team in a config folder of its own.

use std::sync::Arc;

use crate::core::limits::Durability;
use crate::core::paths::ConfigDir;
use crate::core::team::Member;
use crate::core::team::roster::HEADLESS;
use crate::store::team::{NewTeam, Team, create};

/// A config folder with the team `t`.
pub(in crate::tool) struct Place {
    pub dir: tempfile::TempDir,
    pub team: Team,
}

impl Place {
    /// With these members, and without a lead.
    pub(in crate::tool) fn with(members: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::new(dir.path().join("config"));
        let new = NewTeam { name: "t".to_owned(), description: None, lead: None, created_ms: 1 };
        let team = create(&config, &new, Durability::Process).unwrap().team;
        for name in members {
            let backend_type = Some(HEADLESS.to_owned());
            team.add_member(&Member { name: (*name).to_owned(), backend_type, ..Member::default() }).unwrap();
        }
        Self { dir, team }
    }

    /// Of whom nobody lives that is named here.
    pub(in crate::tool) fn alive_but(dead: &'static [&'static str]) -> super::AliveTest {
        Arc::new(move |member| !dead.contains(&member.name.as_str()))
    }
}
