//! Permission modes and how a child gets one (spec 8.2).

use std::fmt;

/// What happens to a call that no rule decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Reading in the working folders is free, the rest asks.
    #[default]
    Default,
    /// As [`Mode::Default`], and editing in the working folders is free.
    AcceptEdits,
    /// Nothing may be changed.
    Plan,
    /// As [`Mode::Default`], with every question answered by no.
    DontAsk,
    /// Everything but what rules deny or ask about.
    BypassPermissions,
}

/// A word that is no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown permission mode {0:?}; known: default, acceptEdits, plan, dontAsk, bypassPermissions")]
pub struct UnknownMode(pub String);

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 5] = [Self::Default, Self::AcceptEdits, Self::Plan, Self::DontAsk, Self::BypassPermissions];

    /// Reads the exact spelling.
    pub fn parse(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }

    /// The spelling in settings, flags and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::DontAsk => "dontAsk",
            Self::BypassPermissions => "bypassPermissions",
        }
    }

    /// The one of the two that permits less.
    pub fn narrower(self, other: Self) -> Self {
        if other.width() < self.width() { other } else { self }
    }

    /// From what permits least to what permits most.
    fn width(self) -> u8 {
        match self {
            Self::Plan => 0,
            Self::DontAsk => 1,
            Self::Default => 2,
            Self::AcceptEdits => 3,
            Self::BypassPermissions => 4,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The mode of a child: the call's, else its definition's, else what the lead's turns into
/// (`default` and `acceptEdits` become `acceptEdits`). Never wider than the last.
pub fn child_mode(lead: Mode, definition: Option<Mode>, call: Option<Mode>) -> Mode {
    let inherited = match lead {
        Mode::Plan | Mode::DontAsk | Mode::BypassPermissions => lead,
        Mode::Default | Mode::AcceptEdits => Mode::AcceptEdits,
    };
    call.or(definition).map_or(inherited, |asked| inherited.narrower(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{AcceptEdits, BypassPermissions, DontAsk, Plan};

    #[test]
    fn only_exact_spellings_are_modes() {
        for mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.as_str()), Ok(mode));
        }
        for bad in ["", "Default", "acceptedits", "bubble", " plan"] {
            let error = Mode::parse(bad).unwrap_err().to_string();
            for mode in Mode::ALL {
                assert!(error.contains(mode.as_str()), "{error}");
            }
        }
    }

    #[test]
    fn a_child_is_never_wider_than_what_its_lead_hands_down() {
        let rows = [
            (Mode::Default, None, None, AcceptEdits),
            (AcceptEdits, None, None, AcceptEdits),
            (Plan, None, None, Plan),
            (DontAsk, None, None, DontAsk),
            (BypassPermissions, None, None, BypassPermissions),
            (Mode::Default, Some(Plan), None, Plan),
            (Mode::Default, Some(Plan), Some(Mode::Default), Mode::Default),
            (Mode::Default, Some(BypassPermissions), None, AcceptEdits),
            (BypassPermissions, Some(Plan), Some(AcceptEdits), AcceptEdits),
            (BypassPermissions, Some(DontAsk), None, DontAsk),
            (Plan, Some(BypassPermissions), Some(BypassPermissions), Plan),
            (Plan, None, Some(DontAsk), Plan),
            (DontAsk, None, Some(AcceptEdits), DontAsk),
            (DontAsk, Some(Plan), None, Plan),
        ];
        for (lead, definition, call, expected) in rows {
            assert_eq!(child_mode(lead, definition, call), expected, "{lead} {definition:?} {call:?}");
        }
    }
}
