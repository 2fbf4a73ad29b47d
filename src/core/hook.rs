//! Hooks as values (spec 8.3): commands of the user's that are asked or told when something happens. Read from
//! settings by a lead, and handed to its teammates by the handshake.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What hooks can be run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookEvent {
    /// A card is about to be put on the task board.
    TaskCreated,
    /// A card is about to be marked completed.
    TaskCompleted,
    /// A teammate has nothing to do any more.
    TeammateIdle,
}

impl HookEvent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::TaskCreated, Self::TaskCompleted, Self::TeammateIdle];

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskCreated => "TaskCreated",
            Self::TaskCompleted => "TaskCompleted",
            Self::TeammateIdle => "TeammateIdle",
        }
    }
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// When it runs.
    pub event: HookEvent,
    /// Pattern of the teammate's whole name; none = all, and where there is no teammate.
    #[serde(default)]
    pub matcher: Option<String>,
    /// What `/bin/sh` runs.
    pub command: String,
    /// How long it may take, milliseconds; none = `deadlines().hook`.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// All hooks of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookSet {
    /// In the order of the settings' layers and lists.
    pub hooks: Vec<Hook>,
    /// The project's root, which hooks find in `CLAUDE_PROJECT_DIR`; none = the working folder.
    pub project: Option<PathBuf>,
}

impl HookSet {
    /// Whether anything runs at `event`.
    pub fn concerns(&self, event: HookEvent) -> bool {
        self.hooks.iter().any(|hook| hook.event == event)
    }
}

/// Who something happens to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Name of the teammate, or of the lead in its team; none outside of a team.
    pub teammate: Option<String>,
    /// The team.
    pub team: Option<String>,
}

/// The card that something happens to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub id: String,
    /// Its subject.
    pub subject: String,
    /// Its description.
    pub description: String,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// See [`HookEvent::TaskCreated`].
    TaskCreated(Task),
    /// See [`HookEvent::TaskCompleted`].
    TaskCompleted(Task),
    /// See [`HookEvent::TeammateIdle`].
    TeammateIdle,
}

impl Occasion {
    /// Which hooks run.
    pub fn event(&self) -> HookEvent {
        match self {
            Self::TaskCreated(_) => HookEvent::TaskCreated,
            Self::TaskCompleted(_) => HookEvent::TaskCompleted,
            Self::TeammateIdle => HookEvent::TeammateIdle,
        }
    }

    /// The card, if it is about one.
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::TaskCreated(task) | Self::TaskCompleted(task) => Some(task),
            Self::TeammateIdle => None,
        }
    }
}
