//! L4: whatever owns agents. One task per agent lives through launch (or adoption), running,
//! stopping and the settling of its outcome; the owner's loop holds [`Supervisor`], a table of
//! them, and is told what happened by [`SupervisorEvent`]s.

mod answer;
mod backend;
mod ending;
mod error;
mod event;
mod handshake;
mod launch;
mod life;
mod lines;
mod outcome;
mod panes;
mod permissions;
mod table;

pub use answer::{Continued, foreground_answer, limited_result};
pub use backend::{Backend, Headless, InPanes, Newborn, Nursery, PanePlace};
pub use error::LaunchError;
pub use event::{Command, Deliver, Doing, Launched, SupervisorEvent};
pub use launch::{AGENT_PROGRAMS, Given, Launcher, Start, locate};
pub use lines::each_line_of_run;
pub use outcome::{Remains, outcome_of_dead};
pub use panes::{OpenPane, PaneError, PaneRequest, PaneState, Panes, TmuxServer};
pub use table::{ReadyReceiver, Slot, SlotState, Supervisor, SupervisorParts};
