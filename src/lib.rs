//! `lead`: a multi-agent system in which every agent is its own operating-system process.
//!
//! The programs in `bin/` only call `cli`, `endpoint` and `teammate`. Layers import downwards only
//! (`scripts/layers.txt` lists them); the idea that carries the design is that an agent's
//! transcript, held under its writer's lock, is the only truth about that agent.

pub mod agent;
pub mod cli;
pub mod core;
pub mod endpoint;
pub mod hook;
pub mod http;
pub mod lead;
pub mod model;
pub mod permission;
pub mod proc;
pub mod settings;
pub mod store;
pub mod supervisor;
pub mod teammate;
pub mod tool;
pub mod wire;
