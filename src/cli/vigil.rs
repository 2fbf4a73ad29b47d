//! Waiting for a change of a team's files, woken by events: the folder changes, a script that works
//! on a card is gone, nobody reads the output any more.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ended::end_of;
use super::error::CliError;
use crate::store::team::watch::Changed;
use crate::store::team::{Holder, Team, Watch};

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Something may be another now.
    Changed,
    /// The folder is gone: the team was deleted.
    Gone,
    TimedOut,
}

/// A folder that is watched, and the scripts whose ends matter.
pub(super) struct Vigil {
    watch: Watch,
    /// By name; each stream ends with the script.
    scripts: BTreeMap<String, UnixStream>,
}

impl Vigil {
    /// What changes from here on is not missed.
    pub(super) fn over(folder: &Path) -> Result<Self, CliError> {
        let watch = Watch::open(&[folder])?;
        if let Some(reason) = watch.polls() {
            super::output::tell(&format!("lead: looks every second: {}", crate::core::text::for_terminal(reason)));
        }
        Ok(Self { watch, scripts: BTreeMap::new() })
    }

    /// Wakes at the ends of those of `names` that are commands which hold their places, too.
    pub(super) fn mind<'n>(&mut self, team: &Team, names: impl Iterator<Item = &'n str>) -> Result<(), CliError> {
        for name in names {
            if !self.scripts.contains_key(name) && matches!(team.holder(name)?, Holder::Alive(_)) {
                self.scripts.insert(name.to_owned(), end_of(&team.hold_path(name))?);
            }
        }
        Ok(())
    }

    /// Waits for whatever comes first. Blocks.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<Woken, CliError> {
        loop {
            match self.watch.try_changes()? {
                Some(Changed::Gone) => return Ok(Woken::Gone),
                Some(_) => return Ok(Woken::Changed),
                None => {}
            }
            let timeout = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => PollTimeout::NONE,
                Some(Duration::ZERO) => return Ok(Woken::TimedOut),
                Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
            };
            let stdout = io::stdout();
            // Of the output only that its reader has gone, which is always told.
            let mut polled = vec![
                PollFd::new(stdout.as_fd(), PollFlags::empty()),
                PollFd::new(self.watch.as_fd(), PollFlags::POLLIN),
            ];
            polled.extend(self.scripts.values().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
            match poll(&mut polled, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(CliError::System { action: "wait for a change", source: e.into() }),
            }
            let happened: Vec<bool> = polled.iter().map(|fd| fd.any() == Some(true)).collect();
            if polled[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR)) {
                return Err(CliError::Output(io::ErrorKind::BrokenPipe.into()));
            }
            let before = self.scripts.len();
            let mut ended = happened[2..].iter();
            self.scripts.retain(|_, _| ended.next() != Some(&true));
            if self.scripts.len() < before {
                return Ok(Woken::Changed);
            }
        }
    }
}

/// The moment after which a wait of this length is given up.
pub(super) fn deadline_in(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| Instant::now().checked_add(t))
}
