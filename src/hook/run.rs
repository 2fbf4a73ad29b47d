//! Runs the hooks of an occasion, one after the other in the order of the settings, until one refuses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ruling::{Heard, Ruling, heard};
use crate::core::env::{PROJECT_DIR, Vars};
use crate::core::hook::{Hook, HookEvent, HookSet, Occasion, Who};
use crate::core::limits::deadlines;
use crate::core::text;
use crate::proc::{ToolCommand, run_with_input};

/// Bytes of each of a hook's streams that are looked at.
const OUTPUT_BYTES: usize = 256 << 10;

/// What every hook is told of where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookPlace {
    /// The session; empty if there is none.
    pub session: String,
    /// Its transcript.
    pub transcript: PathBuf,
    /// The working folder, also of the hook.
    pub cwd: PathBuf,
    /// The permission mode.
    pub permission_mode: String,
}

/// The hooks of a session, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    set: Arc<HookSet>,
    place: HookPlace,
    env: Arc<Vars>,
}

impl Hooks {
    /// These hooks, run at this place with these variables (those of the agent's tools).
    pub fn new(set: HookSet, place: HookPlace, env: Vars) -> Self {
        Self { set: Arc::new(set), place, env: Arc::new(env) }
    }

    /// Whether anything runs at `event`.
    pub fn concern(&self, event: HookEvent) -> bool {
        self.set.concerns(event)
    }

    /// Asks the hooks about what happens to `who`. What they fail at is logged as a warning.
    pub async fn run(&self, occasion: &Occasion, who: &Who, cancel: &CancellationToken) -> Ruling {
        let event = occasion.event();
        let input = self.payload(occasion, who).to_string();
        let name = who.teammate.as_deref().unwrap_or_default();
        for hook in self.set.hooks.iter().filter(|hook| hook.event == event && is_about(hook, name)) {
            match self.ask(hook, input.as_bytes(), cancel).await {
                Heard::Fine => {}
                Heard::No(words) => return Ruling::Blocked(words),
                Heard::Cancelled => return Ruling::Cancelled,
                Heard::Useless(why) => {
                    let command = text::for_terminal(&text::one_line(&hook.command, 120));
                    let why = text::for_terminal(&why);
                    tracing::warn!("the {} hook {command:?} is passed over: {why}", event.as_str());
                }
            }
        }
        Ruling::Proceed
    }

    async fn ask(&self, hook: &Hook, input: &[u8], cancel: &CancellationToken) -> Heard {
        let limit = hook.timeout_ms.map_or(deadlines().hook, Duration::from_millis);
        let project = self.set.project.as_ref().unwrap_or(&self.place.cwd);
        let mut env = self.env.to_vec();
        env.push((PROJECT_DIR.to_owned(), project.to_string_lossy().into_owned()));
        let command = ToolCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), hook.command.clone()],
            cwd: self.place.cwd.clone(),
            env,
            time_limit: limit,
            output_bytes_kept: OUTPUT_BYTES,
            spill: None,
        };
        match run_with_input(command, input, cancel).await {
            Ok(answered) => heard(&answered, limit),
            Err(error) => Heard::Useless(text::with_causes(&error)),
        }
    }

    fn payload(&self, occasion: &Occasion, who: &Who) -> Value {
        let mut payload = json!({
            "session_id": self.place.session,
            "transcript_path": self.place.transcript,
            "cwd": self.place.cwd,
            "permission_mode": self.place.permission_mode,
            "hook_event_name": occasion.event().as_str(),
        });
        if let Some(task) = occasion.task() {
            payload["task_id"] = json!(task.id);
            payload["task_subject"] = json!(task.subject);
            payload["task_description"] = json!(task.description);
        }
        for (key, name) in [("teammate_name", &who.teammate), ("team_name", &who.team)] {
            if let Some(name) = name {
                payload[key] = json!(name);
            }
        }
        payload
    }
}

/// A matcher is about the whole name. One that can't be read was told of when it was read from settings.
fn is_about(hook: &Hook, name: &str) -> bool {
    let matches = |pattern: &String| Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(name));
    hook.matcher.as_ref().is_none_or(matches)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
