//! L0: the vocabulary every other layer shares. Plain values, their serde shapes and the
//! arithmetic on them; no file, socket, process or clock is touched here.

pub mod agent;
mod block;
pub mod clock;
pub mod entry;
pub mod env;
pub mod fault;
mod flat;
pub mod frame;
pub mod hook;
pub mod ids;
pub mod knowledge;
pub mod limits;
pub mod message;
pub mod paths;
pub mod provider;
pub mod question;
pub mod server_tool;
pub mod shell;
pub mod team;
pub mod text;
pub mod tool_state;
