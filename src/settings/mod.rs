//! L1: settings files, the built-in agent definitions, the table of models, and what people wrote
//! down for agents: skills and instructions.
//!
//! A lead loads its settings at start ([`Settings::load`]), and once more when a file changes: then
//! only rules, added folders and the permission mode are taken anew. Children get what concerns them
//! from their lead and never read the files. [`add_rule`] is the one way in which files are written.

pub mod definitions;
mod edit;
mod error;
pub mod front_matter;
mod hooks;
mod imports;
pub mod instructions;
mod layers;
pub mod models;
mod place;
pub mod prices;
mod project;
mod reader;
mod schema;
pub mod skills;

pub use crate::core::limits::Durability;
pub use crate::core::provider::Retry;
pub use edit::{Added, add_rule};
pub use error::SettingsError;
pub use layers::{FileReport, Loaded, PermissionFlags, RuleKind, SaidMode, SettingsSources};
pub use project::{Places, TextFile, read_text};
pub use schema::{AcceptCrossSession, ForkSubagent, LeadSettings, Settings};

#[cfg(test)]
mod tests;
