//! L5: a member of a team, a process that lives long: it works on what it is told and on cards of the
//! board, is idle in between, and ends when it is asked to and agrees (spec 3.5). [`pane`] is what a person sees of it where it
//! runs as the command of a tmux pane.

mod attention;
mod calls;
mod delegate;
mod leave;
mod mail;
mod member;
pub mod pane;
mod program;
mod rest;
mod watched;

pub use program::teammate_main;
