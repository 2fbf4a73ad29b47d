//! What an agent may do: its policy as the handshake says, and as its owner changes it later.

use std::path::PathBuf;

use crate::core::frame::{AgentConfig, Frame, PermissionRules, SetPermissions};
use crate::permission::{Mode, Policy, SharedPolicy, UnknownMode};

/// The policy of an agent, and what does not change in it.
pub(super) struct Permissions {
    policy: SharedPolicy,
    cwd: PathBuf,
    scratchpad: Option<PathBuf>,
    home: Option<PathBuf>,
    read_only_bash: bool,
    readable: Vec<PathBuf>,
    rules: PermissionRules,
}

impl Permissions {
    /// As the handshake says. `readable` are folders of the session's own files. An unknown mode is the
    /// one that permits no question.
    pub(super) fn of(config: &AgentConfig, readable: Vec<PathBuf>) -> Self {
        let mut permissions = Self {
            policy: SharedPolicy::new(
                Policy::new(Mode::DontAsk, &config.permissions, &config.cwd, None, None, false).0,
            ),
            cwd: config.cwd.clone(),
            scratchpad: config.scratchpad.clone(),
            home: std::env::var_os("HOME").map(PathBuf::from),
            read_only_bash: config.read_only_bash,
            readable,
            rules: config.permissions.clone(),
        };
        let mode = Mode::parse(&config.permission_mode).unwrap_or(Mode::DontAsk);
        permissions.set(mode, &config.permissions);
        permissions
    }

    /// Where tools and driver find it.
    pub(super) fn policy(&self) -> SharedPolicy {
        self.policy.clone()
    }

    /// The rules of its lead.
    pub(super) fn rules(&self) -> &PermissionRules {
        &self.rules
    }

    /// The mode it works in.
    pub(super) fn mode(&self) -> Mode {
        self.policy.get().mode()
    }

    /// Obeys the owner; the answer for it.
    pub(super) fn answer(&mut self, said: &SetPermissions) -> Frame {
        match self.change(said) {
            Ok(()) => Frame::Done,
            Err(error) => Frame::Error { code: "refused".to_owned(), message: error.to_string() },
        }
    }

    /// With an unknown mode nothing is changed.
    fn change(&mut self, said: &SetPermissions) -> Result<(), UnknownMode> {
        let present = self.policy.get().mode();
        let mode = match &said.mode {
            Some(word) if said.narrows => present.narrower(Mode::parse(word)?),
            Some(word) => Mode::parse(word)?,
            None => present,
        };
        self.rules = said.rules.clone();
        self.set(mode, &said.rules);
        Ok(())
    }

    /// With the rules as they are. An unknown mode changes nothing.
    pub(super) fn set_mode(&mut self, word: &str) {
        match Mode::parse(word) {
            Ok(mode) => self.set(mode, &self.rules.clone()),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn set(&mut self, mode: Mode, rules: &PermissionRules) {
        let (scratchpad, home) = (self.scratchpad.as_deref(), self.home.as_deref());
        let (policy, warnings) = Policy::new(mode, rules, &self.cwd, scratchpad, home, self.read_only_bash);
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.policy.set(policy.with_readable(&self.readable));
    }
}
