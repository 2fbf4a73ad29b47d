//! Integration tests: real processes, sockets and files. A file per area; `support` holds what they
//! share. Playbooks play the model, gates (pipes that tools wait at) decide the order of things, so
//! no test depends on how long anything takes. `LEAD_LONG=1` repeats the races more often and makes
//! the large things larger.

#[cfg(test)]
mod api;
#[cfg(test)]
mod api_flags;
#[cfg(test)]
mod background;
#[cfg(test)]
mod background_races;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod cross_session;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod desk;
#[cfg(test)]
mod detached;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod fault_points;
#[cfg(test)]
mod files;
#[cfg(test)]
mod guards;
#[cfg(test)]
mod headless;
#[cfg(test)]
mod knowledge;
#[cfg(test)]
mod many;
#[cfg(test)]
mod old_sessions;
#[cfg(test)]
mod overflow;
#[cfg(test)]
mod panes;
#[cfg(test)]
mod panes_life;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod prefix;
#[cfg(test)]
mod races;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod resume_turn;
#[cfg(test)]
mod rules_run;
#[cfg(test)]
mod rules_sockets;
#[cfg(test)]
mod rules_spawn;
#[cfg(test)]
mod rules_text;
#[cfg(test)]
mod send;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod shell_folder;
#[cfg(test)]
mod slow_reader;
#[cfg(test)]
mod spawn;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod stream_agents;
#[cfg(test)]
mod stream_input;
#[cfg(test)]
mod support;
#[cfg(test)]
mod survey_team;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod task_output;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod team_agents;
#[cfg(test)]
mod team_crash;
#[cfg(test)]
mod team_end;
#[cfg(test)]
mod team_five;
#[cfg(test)]
mod team_flood;
#[cfg(test)]
mod team_foreign;
#[cfg(test)]
mod team_forged;
#[cfg(test)]
mod team_guard;
#[cfg(test)]
mod team_idle;
#[cfg(test)]
mod team_ids;
#[cfg(test)]
mod team_jobs;
#[cfg(test)]
mod team_mail_crash;
#[cfg(test)]
mod team_members;
#[cfg(test)]
mod team_names;
#[cfg(test)]
mod team_panes;
#[cfg(test)]
mod team_panes_lost;
#[cfg(test)]
mod team_panes_many;
#[cfg(test)]
mod team_peers;
#[cfg(test)]
mod team_races;
#[cfg(test)]
mod team_rules;
#[cfg(test)]
mod team_spawn;
#[cfg(test)]
mod team_switches;
#[cfg(test)]
mod team_talk;
#[cfg(test)]
mod team_verbs;
#[cfg(test)]
mod team_whole;
#[cfg(test)]
mod team_whole_tmux;
#[cfg(test)]
mod verbs;
#[cfg(test)]
mod workers;
