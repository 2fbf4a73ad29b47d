//! The one way to start whatever is not an agent: shell commands, git, hooks. Such a process has a
//! session of its own and no terminal, so that it can neither stop an agent by reading from one nor
//! write over a screen; its stdin is empty or what it is given, and its output is captured up to a limit.
//!
//! A command ends when its main process ends. What that leaves running in the background lives on,
//! until the agent's sweep; one that is stopped, by its time limit or by being cancelled, takes
//! its whole session with it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::ProcError;
use super::kill::{Found, hold, kill_until_none};
use super::ladder::{Ladder, LadderAction, LadderEvent, Rung};
use super::output::{Capture, Spill, Spilled};
use super::pidfd::{PidFd, send};
use super::process::{Exit, signal_group_of};
use super::procfs::Snapshot;
use crate::core::env::withheld_from_tools;
use crate::core::limits::{TOOL_OUTPUT_BYTES, deadlines};

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct ToolCommand {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Variables added to those of this process. Of the latter, model credentials and what names
    /// an agent are withheld.
    pub env: Vec<(String, String)>,
    /// When it is stopped; `Duration::MAX` = never.
    pub time_limit: Duration,
    /// Most bytes of output kept in memory, its beginning; at most [`TOOL_OUTPUT_BYTES`].
    pub output_bytes_kept: usize,
    /// The file for long output.
    pub spill: Option<Spill>,
}

/// What came of it.
#[derive(Debug)]
pub struct Captured {
    /// The beginning of its output, stdout and stderr in the order they were written.
    pub output: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// Bytes of its output.
    pub total_bytes: u64,
    /// The file with all of it, if it was long enough for one.
    pub spilled: Option<Spilled>,
    /// How it ended.
    pub exit: Exit,
    /// Whether the time limit stopped it.
    pub timed_out: bool,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// How long it took.
    pub duration: Duration,
}

/// Runs a command to its end. If the future is dropped, the command and its session are killed.
///
/// # Errors
/// [`ProcError`] if it can't be started; whatever happens later is in [`Captured`].
pub async fn run_captured(command: ToolCommand, cancel: &CancellationToken) -> Result<Captured, ProcError> {
    Ok(start_tool(command)?.captured(cancel).await)
}

/// What came of a command that was given input.
#[derive(Debug)]
pub struct Answered {
    /// The beginning of what it wrote to stdout.
    pub stdout: Vec<u8>,
    /// The beginning of what it wrote to stderr.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub exit: Exit,
    /// Whether the time limit stopped it.
    pub timed_out: bool,
    /// Whether it was cancelled.
    pub cancelled: bool,
}

/// Runs a command that reads `input` to its end. If the future is dropped, the command and its session are
/// killed. `spill` is not for such commands.
///
/// # Errors
/// [`ProcError`] if it can't be started; whatever happens later is in [`Answered`].
pub async fn run_with_input(
    command: ToolCommand,
    input: &[u8],
    cancel: &CancellationToken,
) -> Result<Answered, ProcError> {
    let begun = Instant::now();
    let input = memory_file(input).map_err(|e| ProcError::io("keeping a command's input", e))?;
    let (errors, writer) = new_pipe()?;
    let (process, reader) = ToolProcess::start(&command, Stdio::from(input), Some(writer.into()))?;
    let stream = |reader| Stream { reader: Some(reader), capture: Capture::new(command.output_bytes_kept, None) };
    let output = Output { all: stream(reader), errors: Some(stream(errors)) };
    let started = StartedTool { process, output, time_limit: command.time_limit, begun };
    let (Captured { output: stdout, exit, timed_out, cancelled, .. }, stderr) = started.end(cancel).await;
    Ok(Answered { stdout, stderr, exit, timed_out, cancelled })
}

/// A file of nobody else that holds `content`: unlike a pipe it takes all of it at once, and it is no error if
/// the command does not read it.
fn memory_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

fn new_pipe() -> Result<(pipe::Receiver, io::PipeWriter), ProcError> {
    let made = io::pipe().and_then(|(r, w)| Ok((pipe::Receiver::from_owned_fd(OwnedFd::from(r))?, w)));
    made.map_err(|e| ProcError::io("making a pipe for output", e))
}

/// Starts a command, whose output waits until [`StartedTool::captured`] takes it in.
///
/// # Errors
/// [`ProcError`] if it can't be started.
pub fn start_tool(command: ToolCommand) -> Result<StartedTool, ProcError> {
    let begun = Instant::now();
    let (process, reader) = ToolProcess::start(&command, Stdio::null(), None)?;
    let capture = Capture::new(command.output_bytes_kept, command.spill);
    let output = Output { all: Stream { reader: Some(reader), capture }, errors: None };
    Ok(StartedTool { process, output, time_limit: command.time_limit, begun })
}

/// A command that runs. If it is dropped, the command and its session are killed.
#[must_use = "the command is killed when this is dropped"]
pub struct StartedTool {
    process: ToolProcess,
    output: Output,
    time_limit: Duration,
    begun: Instant,
}

impl StartedTool {
    /// The pid of its main process, which is its session's id too.
    pub fn pid(&self) -> i32 {
        self.process.session
    }

    /// Takes its output in until it ends, by itself, by its time limit or by `cancel`.
    pub async fn captured(self, cancel: &CancellationToken) -> Captured {
        self.end(cancel).await.0
    }

    /// With what it wrote to stderr, where that has a pipe of its own.
    async fn end(self, cancel: &CancellationToken) -> (Captured, Vec<u8>) {
        let Self { process, mut output, time_limit, begun } = self;
        let (timed_out, cancelled) = tokio::select! {
            biased;
            () = cancel.cancelled() => (false, true),
            end = timeout(time_limit, output.read_until(process.pidfd.exited())) => (end.is_err(), false),
        };
        if timed_out || cancelled {
            process.stop(&mut output).await;
        }
        // All that the main process wrote is in the pipe by now; what a pipe to another process held
        // back may still come.
        let _ = timeout(deadlines().drain, output.read_all()).await;
        output.leave_to_background();
        let Output { all: Stream { capture, .. }, errors } = output;
        let captured = Captured {
            truncated: capture.total > capture.head.len() as u64,
            total_bytes: capture.total,
            output: capture.head,
            spilled: capture.spilled,
            exit: process.reap(),
            timed_out,
            cancelled,
            duration: begun.elapsed(),
        };
        (captured, errors.map_or_else(Vec::new, |errors| errors.capture.head))
    }
}

/// A started tool, main process of its session. It is reaped only at the very end: until then
/// nothing else can get its number, which is the session's too.
struct ToolProcess {
    child: Option<Child>,
    pidfd: PidFd,
    session: i32,
}

impl ToolProcess {
    /// Starts `command` with this stdin; stderr goes where stdout goes unless it has a place of its own.
    fn start(command: &ToolCommand, input: Stdio, errors: Option<Stdio>) -> Result<(Self, pipe::Receiver), ProcError> {
        let (reader, writer) = new_pipe()?;
        let mut process = prepare(command);
        let errors = match errors {
            Some(errors) => errors,
            // One pipe for both streams keeps the order in which they were written.
            None => Stdio::from(writer.try_clone().map_err(|e| ProcError::io("making a pipe for output", e))?),
        };
        process.stdin(input).stdout(writer).stderr(errors);
        in_own_session(&mut process);
        let mut child = process.spawn().map_err(|e| ProcError::start(&command.program, &command.cwd, e))?;
        let session = child.id().cast_signed();
        match PidFd::open(session) {
            Ok(pidfd) => Ok((Self { child: Some(child), pidfd, session }, reader)),
            Err(e) => {
                kill_session(session);
                let _ = child.wait();
                Err(ProcError::io(format!("watching {:?}", command.program), e))
            }
        }
    }

    /// Ends the session: SIGTERM, some time, SIGKILL. Output is read on meanwhile, since a process
    /// that can't write can't end.
    async fn stop(&self, output: &mut Output) {
        let mut ladder = Ladder::new(Rung::Term, Instant::now());
        let mut event = LadderEvent::Started;
        loop {
            match ladder.next(event, Instant::now()) {
                LadderAction::TermGroup => self.terminate(),
                LadderAction::KillGroup => self.kill().await,
                LadderAction::Done | LadderAction::GiveUp => break,
                LadderAction::AskStop | LadderAction::Wait => {}
            }
            let left = ladder.deadline().map_or(Duration::ZERO, |d| d.saturating_duration_since(Instant::now()));
            event = match timeout(left, output.read_until(self.pidfd.exited())).await {
                Ok(()) => LadderEvent::Exited,
                Err(_) => LadderEvent::DeadlinePassed,
            };
        }
        self.kill().await;
    }

    /// SIGTERM to everything in the session; SIGCONT, since what is stopped does not act on it.
    fn terminate(&self) {
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            let _ = signal_group_of(self.session, signal);
        }
        for process in session_of(self.session).victims.iter().filter(|p| p.group != self.session) {
            if let Some(pidfd) = hold(process) {
                for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                    let _ = send(&pidfd, signal);
                }
            }
        }
    }

    /// SIGKILL to everything in the session, until nothing is left of it.
    async fn kill(&self) {
        let session = self.session;
        let _ = tokio::task::spawn_blocking(move || kill_session(session)).await;
    }

    /// The exit of the main process, which has ended; from here on its number is free.
    fn reap(mut self) -> Exit {
        if self.pidfd.is_alive() {
            return Exit::UNKNOWN;
        }
        self.child.take().and_then(|mut child| child.wait().ok()).map_or(Exit::UNKNOWN, Exit::from)
    }
}

impl Drop for ToolProcess {
    /// Nobody waits for it any more, or nothing could end it in time: it is killed, and reaped
    /// whenever it ends.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = signal_group_of(self.session, Signal::SIGKILL);
        let (session, pidfd) = (self.session, self.pidfd.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::task::spawn_blocking(move || kill_session(session)).await;
                pidfd.exited().await;
                let _ = child.wait();
            });
        }
    }
}

/// All but stdin and the output.
fn prepare(command: &ToolCommand) -> Command {
    let mut process = Command::new(&command.program);
    process.args(&command.args).current_dir(&command.cwd);
    for name in withheld_from_tools() {
        process.env_remove(name);
    }
    process.envs(command.env.iter().map(|(name, value)| (name, value)));
    process
}

/// Kills everything in the session of a process that is not reaped yet.
pub(super) fn kill_session(session: i32) {
    let _ = signal_group_of(session, Signal::SIGKILL);
    kill_until_none(deadlines().stop_kill, || session_of(session), |_| {});
}

fn session_of(session: i32) -> Found {
    Found::among(&Snapshot::take(|_| {}), |p| p.session == session)
}

#[expect(unsafe_code, reason = "a hook between fork and exec is the only way to start a child in its own session")]
pub(super) fn in_own_session(command: &mut Command) {
    // SAFETY: the hook makes one system call and allocates nothing, which is all that is allowed
    // in the child of a process with threads.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(|_| ()).map_err(io::Error::from));
    }
}

/// The reading side.
struct Output {
    /// Both streams, or stdout alone.
    all: Stream,
    /// Stderr, where it has a pipe of its own.
    errors: Option<Stream>,
}

/// The end of one pipe.
struct Stream {
    /// None once all writers are gone.
    reader: Option<pipe::Receiver>,
    capture: Capture,
}

impl Output {
    /// Takes output in until `end`, which may come before the writers are gone or after.
    async fn read_until(&mut self, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        tokio::select! {
            biased;
            () = &mut end => return,
            () = self.read_all() => {}
        }
        end.await;
    }

    /// Takes output in until all writers are gone. Can be dropped at any time without losing any.
    async fn read_all(&mut self) {
        match &mut self.errors {
            None => self.all.read_all().await,
            Some(errors) => drop(tokio::join!(self.all.read_all(), errors.read_all())),
        }
    }

    fn leave_to_background(&mut self) {
        self.all.leave_to_background();
        self.errors.iter_mut().for_each(Stream::leave_to_background);
    }
}

impl Stream {
    async fn read_all(&mut self) {
        let mut chunk = vec![0; CHUNK];
        while let Some(reader) = &mut self.reader {
            match reader.read(&mut chunk).await {
                Ok(0) | Err(_) => self.reader = None,
                Ok(n) => self.capture.push(&chunk[..n]),
            }
        }
    }

    /// A process left in the background may go on writing. If the pipe were closed, a server would
    /// die of its next line of log; so it is emptied, until it becomes a flood.
    fn leave_to_background(&mut self) {
        let Some(mut reader) = self.reader.take() else { return };
        tokio::spawn(async move {
            let mut chunk = vec![0; 4096];
            let mut left = TOOL_OUTPUT_BYTES;
            while left > 0
                && let Ok(n @ 1..) = reader.read(&mut chunk).await
            {
                left = left.saturating_sub(n);
            }
        });
    }
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
