//! What all tests share: a [`World`] of its own per test, ways to run `lead` in it with a deadline,
//! playbooks, and eyes for transcripts, recorded requests and processes.

mod detached;
mod fake;
mod playbook;
mod process;
mod run;
mod server;
mod session;
mod shells;
mod stream;
mod team;
mod tmux;
mod wait;
mod world;

pub use detached::{error_of, pid_of, resuming, spawned, spawning, text};
pub use fake::{Fake, framed_hello};
pub use playbook::{Book, Request, agent, ask, bash, book, call, lead_rule, spawn, stop, tell, turn, worker_rule};
pub use process::{Proc, children_of, exists, processes_with, signal};
pub use run::{Done, Lead, Piped, Running};
pub use server::{KEY, MODEL, Server, against, free_port};
pub use session::{AgentFiles, Session, lines_of, paired, text_of};
pub use shells::{
    SHELL, each_told_once, ends, output_of, shells, start, started, told, wait_shells, wait_taskoutput, wait_waiting,
};
pub use stream::{check_ends, check_whole, is, lines, streaming};
pub use team::{
    SHUTDOWN, add, create_team, member_rule, no_team_left, of_member, once_told, say, wait_member, wait_question,
    whenever,
};
pub use tmux::{
    Tmux, calls, ids, optional, path_of, probe, program, recorded, recorded_with, shell, started as started_in_pane,
};
pub use wait::eventually;
pub use world::{Gate, World, long, times};
