//! The background shells of one process: commands that `Bash` started and did not wait for. The table
//! is filled by the tool, watched over by the process's main loop, and everything in it ends with the
//! process (spec 2.2). The loop is told of each start and each end once, and hands each end on once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::core::agent::{Leftover, RunStatus};
use crate::core::clock;
use crate::core::ids::ShellId;
use crate::core::limits::BACKGROUND_SHELLS;
use crate::core::shell::{OpenShell, ShellState};
use crate::core::text;
use crate::proc::{Captured, Spill, StartedTool, ToolCommand, claim_output, start_tool};

/// Characters of a command or description in lists.
const SHORT: usize = 100;

/// What the loop is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellEvent {
    /// The shell.
    pub id: ShellId,
    /// What happened to it.
    pub news: ShellNews,
}

/// What happened to a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellNews {
    /// It was started.
    Started,
    /// It has ended.
    Ended,
}

/// A background shell.
#[derive(Clone, Debug)]
pub struct Shell {
    /// Its id.
    pub id: ShellId,
    /// The call that started it.
    pub tool_use_id: Option<String>,
    /// The command.
    pub command: String,
    /// What it does, on one line: as the call says, or the beginning of the command.
    pub description: String,
    /// The folder it was started in.
    pub cwd: PathBuf,
    /// The file with its output.
    pub output_file: PathBuf,
    /// Its process; 0 of a shell of an earlier life.
    pub pid: i32,
    /// Milliseconds since the epoch.
    pub started_ms: u64,
    /// How it ended; none while it runs.
    pub end: Option<ShellEnd>,
    /// Whether its end was read by `TaskOutput`.
    pub retrieved: bool,
    /// Fires when it has ended.
    pub over: CancellationToken,
}

/// How a shell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellEnd {
    /// `completed` = exit code 0, `killed` = we stopped it, `failed` = anything else.
    pub status: RunStatus,
    /// The status with its reason: `completed (exit code 0)`, `failed with exit code 3`, …
    pub how: String,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
}

/// Why a shell can't be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopRefused {
    /// There is none of this id.
    Unknown,
    /// It has ended.
    Ended(RunStatus),
}

struct Entry {
    shell: Shell,
    /// Fires when it is to end.
    stop: CancellationToken,
    /// Fires when it is to be killed at once.
    kill: CancellationToken,
    /// Why we ended it.
    reason: Option<String>,
    /// Its end was handed on.
    reported: bool,
}

/// The table; clones share it.
#[derive(Clone)]
pub struct Shells(Arc<Table>);

struct Table {
    /// Oldest first.
    entries: Mutex<Vec<Entry>>,
    events: mpsc::Sender<ShellEvent>,
}

impl Shells {
    /// An empty table. The receiver of `events` is the process's main loop; without one nobody is told.
    pub fn new(events: mpsc::Sender<ShellEvent>) -> Self {
        Self(Arc::new(Table { entries: Mutex::default(), events }))
    }

    /// Starts `command`, whose output goes to a file of its own in `results`. Its time limit and where
    /// its output goes are set here. The error is in words for the model.
    pub(in crate::tool) fn start(
        &self,
        mut command: ToolCommand,
        results: &Path,
        said: Said<'_>,
    ) -> Result<Shell, String> {
        let running = self.lock().iter().filter(|e| e.shell.end.is_none()).count();
        if running >= BACKGROUND_SHELLS {
            return Err(format!(
                "{running} background commands run already, which is the most at a time; wait until some have ended"
            ));
        }
        let (id, output_file) = claim(results)
            .map_err(|(file, e)| format!("not started: its output can't be kept in {}: {e}", file.display()))?;
        command.time_limit = Duration::MAX;
        command.output_bytes_kept = 0;
        command.spill = Some(Spill { path: output_file.clone(), over: 0 });
        let cwd = command.cwd.clone();
        let started = start_tool(command).map_err(|error| {
            let _ = std::fs::remove_file(&output_file);
            crate::tool::bash::explain(&error)
        })?;
        let shell = Shell {
            id: id.clone(),
            tool_use_id: Some(said.tool_use_id.to_owned()),
            command: said.command.to_owned(),
            description: text::one_line(said.description.unwrap_or(said.command), SHORT),
            cwd,
            output_file,
            pid: started.pid(),
            started_ms: clock::now_ms(),
            end: None,
            retrieved: false,
            over: CancellationToken::new(),
        };
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let entry =
            Entry { shell: shell.clone(), stop: stop.clone(), kill: kill.clone(), reason: None, reported: false };
        self.lock().push(entry);
        tokio::spawn(self.clone().watch(id, started, stop, kill));
        Ok(shell)
    }

    /// Lives as long as the shell.
    async fn watch(self, id: ShellId, started: StartedTool, stop: CancellationToken, kill: CancellationToken) {
        let _ = self.0.events.send(ShellEvent { id: id.clone(), news: ShellNews::Started }).await;
        let captured = tokio::select! {
            captured = started.captured(&stop) => Some(captured),
            // What is dropped is killed.
            () = kill.cancelled() => None,
        };
        if let Some(entry) = self.lock().iter_mut().find(|e| e.shell.id == id) {
            entry.shell.end = Some(end_of(captured.as_ref(), entry.reason.as_deref()));
            entry.shell.over.cancel();
        }
        let _ = self.0.events.send(ShellEvent { id, news: ShellNews::Ended }).await;
    }

    /// A shell.
    pub fn get(&self, id: &ShellId) -> Option<Shell> {
        self.lock().iter().find(|e| e.shell.id == *id).map(|e| e.shell.clone())
    }

    /// Those that run, oldest first.
    pub fn running(&self) -> Vec<ShellState> {
        let state = |shell: &Shell| ShellState {
            id: shell.id.clone(),
            description: shell.description.clone(),
            pid: shell.pid,
            started_ms: shell.started_ms,
            cwd: shell.cwd.to_string_lossy().into_owned(),
            output_file: shell.output_file.to_string_lossy().into_owned(),
        };
        self.lock().iter().filter(|e| e.shell.end.is_none()).map(|e| state(&e.shell)).collect()
    }

    /// Whether one runs, or has ended without its end being handed on.
    pub fn any_open(&self) -> bool {
        self.lock().iter().any(|e| !e.reported)
    }

    /// The end of a shell, to be handed on: once.
    pub fn take_end(&self, id: &ShellId) -> Option<(Shell, ShellEnd)> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|e| e.shell.id == *id && !e.reported)?;
        let end = entry.shell.end.clone()?;
        entry.reported = true;
        Some((entry.shell.clone(), end))
    }

    /// Its end was read by `TaskOutput`.
    pub fn mark_retrieved(&self, id: &ShellId) {
        if let Some(entry) = self.lock().iter_mut().find(|e| e.shell.id == *id) {
            entry.shell.retrieved = true;
        }
    }

    /// Ends a shell: SIGTERM, and SIGKILL if that does not help. Its end comes as an event; what is
    /// returned fires then too.
    ///
    /// # Errors
    /// [`StopRefused`] if there is nothing to end.
    pub fn stop(&self, id: &ShellId, reason: &str) -> Result<CancellationToken, StopRefused> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|e| e.shell.id == *id).ok_or(StopRefused::Unknown)?;
        match &entry.shell.end {
            Some(end) => Err(StopRefused::Ended(end.status)),
            None => {
                entry.end_for(reason);
                Ok(entry.shell.over.clone())
            }
        }
    }

    /// Ends all that run and nobody was ending; what they are.
    pub fn stop_all(&self, reason: &str) -> Vec<Leftover> {
        let mut entries = self.lock();
        let running = entries.iter_mut().filter(|e| e.shell.end.is_none() && e.reason.is_none());
        running
            .map(|entry| {
                entry.end_for(reason);
                Leftover { pid: entry.shell.pid, command: text::one_line(&entry.shell.command, SHORT) }
            })
            .collect()
    }

    /// Kills all that run.
    pub fn kill_all(&self) {
        for entry in self.lock().iter_mut().filter(|e| e.shell.end.is_none()) {
            entry.reason.get_or_insert_with(|| "killed".to_owned());
            entry.kill.cancel();
        }
    }

    /// Waits until none runs.
    pub async fn all_over(&self) {
        let over: Vec<CancellationToken> = self.lock().iter().map(|e| e.shell.over.clone()).collect();
        for over in over {
            over.cancelled().await;
        }
    }

    /// Knows of a shell of an earlier life, whose end is handed on by whoever calls this.
    pub fn insert_lost(&self, open: &OpenShell, end: ShellEnd) {
        let shell = Shell {
            id: open.id.clone(),
            tool_use_id: open.tool_use_id.clone(),
            command: open.command.clone(),
            description: open.description.clone(),
            cwd: PathBuf::new(),
            output_file: PathBuf::from(&open.output_file),
            pid: 0,
            started_ms: 0,
            end: Some(end),
            retrieved: false,
            over: CancellationToken::new(),
        };
        shell.over.cancel();
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        self.lock().push(Entry { shell, stop, kill, reason: None, reported: true });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call says of the command it starts.
pub(in crate::tool) struct Said<'a> {
    pub command: &'a str,
    pub description: Option<&'a str>,
    pub tool_use_id: &'a str,
}

impl Entry {
    fn end_for(&mut self, reason: &str) {
        self.reason.get_or_insert_with(|| reason.to_owned());
        self.stop.cancel();
    }
}

/// An id that nobody has, and the file that claims it.
fn claim(results: &Path) -> Result<(ShellId, PathBuf), (PathBuf, io::Error)> {
    loop {
        let id = ShellId::random();
        let file = results.join(format!("{id}.output"));
        match claim_output(&file) {
            Ok(true) => return Ok((id, file)),
            Ok(false) => {}
            Err(error) => return Err((file, error)),
        }
    }
}

fn end_of(captured: Option<&Captured>, reason: Option<&str>) -> ShellEnd {
    let stopped = captured.is_none_or(|c| c.cancelled);
    let (status, mut how, exit_code) = match (captured.map(|c| &c.exit), reason) {
        (_, Some(reason)) if stopped => (RunStatus::Killed, format!("killed: {reason}"), None),
        (Some(exit), _) => match exit.code {
            Some(0) => (RunStatus::Completed, "completed (exit code 0)".to_owned(), Some(0)),
            Some(code) => (RunStatus::Failed, format!("failed with exit code {code}"), Some(code)),
            None => (RunStatus::Failed, format!("failed: {exit}"), None),
        },
        (None, _) => (RunStatus::Killed, "killed".to_owned(), None),
    };
    if let Some(error) = captured.and_then(|c| c.spilled.as_ref()?.error.as_ref()) {
        how.push_str(&format!("; its output could not be written whole: {error}"));
    }
    ShellEnd { status, how, exit_code }
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
