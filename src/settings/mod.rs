//! L1: settings files, the built-in agent definitions and the table of models.
//!
//! A lead loads its settings once at start ([`Settings::load`]); children get what concerns them
//! by their handshake and never read the files.

pub mod definitions;
mod error;
mod layers;
pub mod models;
pub mod prices;
mod reader;
mod schema;

pub use crate::core::limits::Durability;
pub use crate::core::provider::Retry;
pub use error::SettingsError;
pub use layers::{FileReport, Loaded, RuleKind, SettingsSources};
pub use schema::{AcceptCrossSession, ForkSubagent, LeadSettings, Settings};

#[cfg(test)]
mod tests;
