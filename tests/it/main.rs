//! Integration tests: real processes, sockets and files. A file per area; `support` holds what they
//! share. Playbooks play the model, gates (pipes that tools wait at) decide the order of things, so
//! no test depends on how long anything takes. `LEAD_LONG=1` repeats the races more often and makes
//! the large things larger.

#[cfg(test)]
mod support;

#[cfg(test)]
mod api;
#[cfg(test)]
mod api_flags;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod fault_points;
#[cfg(test)]
mod headless;
#[cfg(test)]
mod many;
#[cfg(test)]
mod old_sessions;
#[cfg(test)]
mod races;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod rules_run;
#[cfg(test)]
mod rules_sockets;
#[cfg(test)]
mod rules_spawn;
#[cfg(test)]
mod rules_text;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod stream_input;
#[cfg(test)]
mod verbs;
#[cfg(test)]
mod workers;
