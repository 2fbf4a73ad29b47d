//! Running `lead`, with a deadline that kills and tells what was there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::process::signal;
use super::world::World;

/// The longest a command may take, however busy the machine is.
const DEADLINE: Duration = Duration::from_secs(120);

/// A command to be run.
pub struct Lead<'w> {
    world: &'w World,
    command: Command,
    stdin: Option<Vec<u8>>,
}

impl<'w> Lead<'w> {
    pub(super) fn new(world: &'w World, args: &[&str]) -> Self {
        Self::program(world, Path::new(env!("CARGO_BIN_EXE_lead"))).args(args)
    }

    /// Another program in this world.
    pub fn program(world: &'w World, program: &Path) -> Self {
        let mut command = Command::new(program);
        command.env_clear().envs(world.environment()).current_dir(world.cwd()).process_group(0);
        Self { world, command, stdin: None }
    }

    /// More arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: &[S]) -> Self {
        self.command.args(args);
        self
    }

    /// One more variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// One variable less.
    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// As another user, which root can do.
    pub fn uid(mut self, uid: u32) -> Self {
        self.command.uid(uid);
        self
    }

    /// A file with this content as stdin instead of /dev/null.
    pub fn stdin(mut self, content: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(content.into());
        self
    }

    /// Starts it with stdin and stdout as pipes that the test holds.
    pub fn piped(self) -> Piped {
        let (running, child) = self.spawn(true);
        Piped { running, stdin: child.0, stdout: child.1.unwrap() }
    }

    /// Starts it.
    pub fn start(self) -> Running {
        self.spawn(false).0
    }

    fn spawn(mut self, pipes: bool) -> (Running, (Option<ChildStdin>, Option<ChildStdout>)) {
        let stem = self.world.output_stem();
        // Files, not pipes: whoever inherits them can't hold the test up.
        let (stdout, stderr) = (stem.with_extension("out"), stem.with_extension("err"));
        self.command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        if pipes {
            self.command.stdout(Stdio::piped());
        }
        match &self.stdin {
            None if pipes => self.command.stdin(Stdio::piped()),
            None => self.command.stdin(Stdio::null()),
            Some(content) => {
                let input = stem.with_extension("in");
                fs::write(&input, content).unwrap();
                self.command.stdin(File::open(&input).unwrap())
            }
        };
        let shown: Vec<_> = self.command.get_args().map(|a| a.to_string_lossy()).collect();
        let shown = lead::core::text::one_line(&shown.join(" "), 300);
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
        let pid = i32::try_from(child.id()).unwrap();
        let ends = (child.stdin.take(), child.stdout.take());
        let (sender, status) = mpsc::channel();
        std::thread::spawn(move || drop(sender.send(child.wait())));
        (Running { shown, pid, stdout, stderr, status, world: self.world.describe_later() }, ends)
    }

    /// Runs it to its end.
    pub fn run(self) -> Done {
        self.start().wait()
    }
}

/// A command that runs, and the test's ends of its pipes.
pub struct Piped {
    /// The command.
    pub running: Running,
    /// What it reads; none once the test has ended it.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: ChildStdout,
}

/// A command that runs.
pub struct Running {
    shown: String,
    pid: i32,
    stdout: PathBuf,
    stderr: PathBuf,
    status: Receiver<std::io::Result<ExitStatus>>,
    world: Box<dyn Fn() -> String + Send>,
}

impl Running {
    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends it a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.pid, which);
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for its end.
    pub fn wait(self) -> Done {
        match self.status.recv_timeout(DEADLINE) {
            Ok(status) => self.done(status.unwrap()),
            Err(_) => {
                let seen = (self.world)();
                let (out, err) = (fs::read_to_string(&self.stdout).unwrap_or_default(), self.stderr());
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), Signal::SIGKILL);
                panic!("{} did not end within {DEADLINE:?}\nstdout: {out}\nstderr: {err}\n{seen}", self.shown);
            }
        }
    }

    /// Its end, if that comes within `length`.
    pub fn wait_for(self, length: Duration) -> Result<Done, Self> {
        match self.status.recv_timeout(length) {
            Ok(status) => {
                let status = status.unwrap();
                Ok(self.done(status))
            }
            Err(_) => Err(self),
        }
    }

    /// Kills it and waits until it is gone.
    pub fn kill(self) -> Done {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), Signal::SIGKILL);
        self.wait()
    }

    fn done(&self, status: ExitStatus) -> Done {
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Done {
            command: self.shown.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    command: String,
    /// Its exit code, if no signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Done {
    /// Fails unless it ended with this exit code.
    pub fn expect(&self, code: i32) -> &Self {
        let Self { command, stdout, stderr, signal, .. } = self;
        let ended = (self.code, self.signal);
        assert_eq!(
            self.code,
            Some(code),
            "{command}\nended with {ended:?} {signal:?}\nstdout: {stdout}\nstderr: {stderr}"
        );
        self
    }

    /// Fails unless a signal killed it.
    pub fn expect_killed(&self) -> &Self {
        assert_eq!(self.signal, Some(9), "{self:#?}");
        self
    }

    /// stdout as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("stdout is no JSON ({e}): {self:#?}"))
    }

    /// The text of the result of a headless run.
    pub fn result(&self) -> String {
        let json = self.json();
        json["result"].as_str().unwrap_or_else(|| panic!("no result: {self:#?}")).to_owned()
    }

    /// The id of the session of a headless run.
    pub fn session(&self) -> String {
        let json = self.json();
        json["session_id"].as_str().unwrap_or_else(|| panic!("no session id: {self:#?}")).to_owned()
    }

    /// Fails unless stderr holds all of these.
    pub fn says(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.stderr.contains(part), "stderr does not say {part:?}: {self:#?}");
        }
        self
    }
}
