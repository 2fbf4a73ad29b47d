//! What all tests share: a [`World`] of its own per test, ways to run `lead` in it with a deadline,
//! playbooks, and eyes for transcripts, recorded requests and processes.

mod fake;
mod playbook;
mod process;
mod run;
mod server;
mod session;
mod wait;
mod world;

pub use fake::{Fake, framed_hello};
pub use playbook::{Book, Request, agent, ask, bash, book, call, lead_rule, spawn, stop, tell, turn, worker_rule};
pub use process::{children_of, exists, processes_with, signal};
pub use run::{Done, Lead, Piped, Running};
pub use server::{KEY, Server, against, free_port};
pub use session::{Session, paired, text_of};
pub use wait::eventually;
pub use world::{Gate, World, long, times};
