//! What an agent's shell commands have in common from call to call: the folder they run in, and those
//! of them that go on in the background. Used by `Bash`; the loops of leads and agents watch over it.

mod background;
mod folder;
mod script;

pub(super) use background::Said;
pub use background::{Shell, ShellEnd, ShellEvent, ShellNews, Shells, StopRefused};
pub use folder::WorkingFolder;
pub(super) use script::{recorded, remembering};
