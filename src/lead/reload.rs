//! Permissions that change while a session runs (R075): a settings file that it uses was changed, so
//! its rules and its mode are read again, hold from the next call on, and are sent to its agents.
//!
//! Only `permissions` is taken anew: everything else of the settings holds for the whole run.

use std::path::Path;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::LeadError;
use super::knowledge::Known;
use super::options::SessionOptions;
use super::roles::definitions;
use super::session::Session;
use crate::core::agent::Meta;
use crate::core::frame::SetPermissions;
use crate::core::ids::AgentId;
use crate::core::paths::SessionFiles;
use crate::core::text::with_causes;
use crate::permission::{Mode, Policy, UnknownMode, child_mode};
use crate::settings::{Loaded, Settings, SettingsSources};
use crate::store::file_watch::FileWatch;
use crate::supervisor::Command;

/// Tells when a settings file was changed. It begins to watch when a rule can matter for the first
/// time: a session of one answer needs none, and the kernel takes milliseconds to end a watch.
pub(super) struct SettingsWatch(Watching);

enum Watching {
    NotYet,
    Files(AsyncFd<FileWatch>),
    /// It is not possible.
    Nothing,
}

impl SettingsWatch {
    /// One that has not begun.
    pub(super) fn new() -> Self {
        Self(Watching::NotYet)
    }

    /// Begins to watch the files of `sources`. True if that has not happened before: what was changed
    /// until now is to be looked for. Where watching is not possible, changes go unnoticed from here on,
    /// and that is said.
    #[expect(deprecated, reason = "its successor is unsafe for types that may not own the descriptor; a watch does")]
    fn begin(&mut self, sources: &SettingsSources) -> bool {
        if !matches!(self.0, Watching::NotYet) {
            return false;
        }
        let watched = FileWatch::open(sources.files()).map_err(LeadError::from).and_then(|watch| {
            let registered = AsyncFd::with_interest(watch, Interest::READABLE);
            registered.map_err(|source| LeadError::System { action: "can't watch settings files", source })
        });
        self.0 = watched.map_or_else(
            |error| {
                unwatched(&error);
                Watching::Nothing
            },
            Watching::Files,
        );
        true
    }

    /// Resolves when a file may have changed. Can be dropped and asked again.
    pub(super) async fn changed(&mut self) {
        while let Watching::Files(watch) = &mut self.0 {
            let taken = match watch.readable_mut().await {
                Ok(mut ready) => {
                    let taken = ready.get_inner_mut().take_changes();
                    // All events are taken: what happens from here on makes it readable again.
                    ready.clear_ready();
                    taken.map_err(LeadError::from)
                }
                Err(source) => Err(LeadError::System { action: "can't watch settings files", source }),
            };
            match taken {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    unwatched(&error);
                    self.0 = Watching::Nothing;
                }
            }
        }
        std::future::pending().await
    }
}

fn unwatched(error: &LeadError) {
    tracing::warn!(error = error as &dyn std::error::Error, "changes of settings files go unnoticed in this session");
}

/// The policy of the main conversation, and what is to be said about its rules.
pub(super) fn main_policy(
    options: &SessionOptions,
    scratchpad: Option<&Path>,
    files: &SessionFiles,
    known: &Known,
) -> (Policy, Vec<String>) {
    let (policy, warnings) =
        Policy::new(options.mode, &options.rules, &options.cwd, scratchpad, options.home.as_deref(), false);
    // What its tools and agents left in files is the session's own to read.
    let policy = policy.with_readable(&[files.folder()]).with_readable(&known.knowledge.skill_folders());
    (policy, warnings)
}

/// The mode of a running agent after its lead's has become `lead`. With a mode of its own it is only
/// narrowed.
fn later_mode(lead: Mode, own: Option<Mode>) -> Mode {
    child_mode(lead, own, None)
}

fn mode_of(loaded: &Loaded) -> Result<Mode, UnknownMode> {
    loaded.mode.as_ref().map_or(Ok(Mode::default()), |said| Mode::parse(&said.word))
}

impl Session {
    /// Sees to it that what is changed from here on is noticed, and takes over what was changed since
    /// the settings were read.
    pub(super) fn watch_settings(&mut self, watch: &mut SettingsWatch) {
        if watch.begin(&self.options.sources) {
            self.on_settings_changed();
        }
    }

    /// Takes rules and mode anew. What can't be used changes nothing.
    pub(super) fn on_settings_changed(&mut self) {
        let (loaded, mode) = match Settings::load(&self.options.sources) {
            Ok(loaded) => match mode_of(&loaded) {
                Ok(mode) => (loaded, mode),
                Err(error) => return kept(&error),
            },
            Err(error) => return kept(&error),
        };
        if loaded.rules == self.options.rules && mode == self.options.mode {
            return;
        }
        self.options.rules = loaded.rules;
        self.options.mode = mode;
        let (policy, warnings) = main_policy(&self.options, self.scratchpad.as_deref(), &self.files, &self.known);
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.policy.set(policy);
        self.say(&format!("settings were changed: new permission rules hold from here on, mode {mode}"));
        for id in self.supervisor.live() {
            self.send_permissions(&id);
        }
    }

    /// Tells an agent which rules and which mode hold now.
    pub(super) fn send_permissions(&self, id: &AgentId) {
        let Some(slot) = self.supervisor.get(id) else { return };
        let led = self.team.as_ref().filter(|_| id.as_member().is_some());
        let narrows = led.is_some_and(|led| led.taken_over.contains(id));
        let mode = match id.as_member() {
            // A plan of it may have been approved: it knows, and no file does that others can write.
            Some(_) if narrows => child_mode(self.options.mode, None, None),
            Some(_) => self.member_mode(id, &slot.meta),
            None => later_mode(self.options.mode, self.own_mode(&slot.meta)),
        };
        let mut rules = self.options.rules.clone();
        rules.allow.extend(led.into_iter().flat_map(|led| led.allowed.iter().cloned()));
        let said = SetPermissions { mode: Some(mode.as_str().to_owned()), narrows, rules };
        if !self.supervisor.command(id, Command::SetPermissions(Arc::new(said))) {
            tracing::warn!(%id, "the agent was not told of the new permission rules: too many requests wait");
        }
    }

    /// The mode an agent was given for itself, by its definition. Where that is gone nobody can say, and
    /// what it was started with stays the most it may have.
    fn own_mode(&self, meta: &Meta) -> Option<Mode> {
        let parse = |word: &Option<String>| word.as_deref().and_then(|word| Mode::parse(word).ok());
        match definitions(&self.options, self.coordinator).iter().find(|d| d.name == meta.agent_type) {
            Some(definition) => parse(&definition.permission_mode),
            None => parse(&meta.permission_mode),
        }
    }
}

fn kept(error: &dyn std::error::Error) {
    let why = with_causes(error);
    tracing::warn!("settings were changed and can't be used ({why}); the permission rules from before stay in force");
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{AcceptEdits, BypassPermissions, Default, DontAsk, Plan};

    #[test]
    fn r075_narrowing_reaches_every_agent_and_widening_those_without_a_mode_of_their_own() {
        // The lead's mode before and after, the agent's own, its mode before and after.
        let rows = [
            (Default, Plan, None, AcceptEdits, Plan),
            (Default, DontAsk, None, AcceptEdits, DontAsk),
            (Default, BypassPermissions, None, AcceptEdits, BypassPermissions),
            (Plan, AcceptEdits, None, Plan, AcceptEdits),
            (BypassPermissions, Default, None, BypassPermissions, AcceptEdits),
            (Default, Plan, Some(AcceptEdits), AcceptEdits, Plan),
            (BypassPermissions, Default, Some(BypassPermissions), BypassPermissions, AcceptEdits),
            (Default, BypassPermissions, Some(Plan), Plan, Plan),
            (Default, BypassPermissions, Some(AcceptEdits), AcceptEdits, AcceptEdits),
        ];
        for (before, after, own, was, is) in rows {
            assert_eq!((later_mode(before, own), later_mode(after, own)), (was, is), "{before} {after} {own:?}");
        }
    }
}
