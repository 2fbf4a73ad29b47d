//! A world: home, config, runtime folder and work tree that belong to one test, and the check that
//! nothing outlives it.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use serde_json::Value;

use super::process::{Proc, processes_with};
use super::run::Lead;
use super::session::Session;
use super::wait::eventually;

/// Held by tests that start many processes, so that two such never run at once.
static HEAVY: Mutex<()> = Mutex::new(());

/// Whether the long repetitions are asked for.
pub fn long() -> bool {
    std::env::var_os("LEAD_LONG").is_some_and(|v| !v.is_empty())
}

/// How often a race is repeated.
pub fn times(usual: usize, in_long: usize) -> usize {
    if long() { in_long } else { usual }
}

/// One test's world. Dropping it fails the test if a process, socket or registry file is left.
pub struct World {
    root: PathBuf,
    cwd: PathBuf,
    limits: String,
    killed_anywhere: bool,
    outputs: AtomicU32,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl World {
    /// A world beside others.
    pub fn new() -> Self {
        Self::make("tree", None)
    }

    /// A world that has the machine for itself.
    pub fn heavy() -> Self {
        Self::make("tree", Some(HEAVY.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A world whose work tree has this name.
    pub fn with_tree(name: &str) -> Self {
        Self::make(name, None)
    }

    fn make(tree: &str, alone: Option<MutexGuard<'static, ()>>) -> Self {
        // Short, so that sockets fit whatever the temporary folder of the machine is.
        let root = tempfile::Builder::new().prefix("lt-").rand_bytes(8).tempdir_in("/tmp").unwrap().keep();
        let root = root.canonicalize().unwrap();
        let cwd = root.join(tree);
        for folder in [&cwd, &root.join("home"), &root.join("config"), &root.join("out"), &root.join("books")] {
            fs::create_dir_all(folder).unwrap();
        }
        Self { root, cwd, limits: String::new(), killed_anywhere: false, outputs: AtomicU32::new(0), _alone: alone }
    }

    /// Shortens deadlines of everything started from here on: `ready=500ms,reply=200ms`.
    pub fn with_limits(mut self, limits: &str) -> Self {
        limits.clone_into(&mut self.limits);
        self
    }

    /// Processes are killed at moments at which nobody can know of their files yet: a socket without
    /// an entry is left alone by others for a minute, since its process may be about to register.
    pub fn killed_anywhere(mut self) -> Self {
        self.killed_anywhere = true;
        self
    }

    /// The folder that everything is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The work tree.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The config folder.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// The runtime folder.
    pub fn runtime(&self) -> PathBuf {
        self.root.join("r")
    }

    /// A file in the work tree.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.cwd.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Waits for a file of the work tree that a tool makes; its content, without white space around it.
    pub fn wait_file(&self, name: &str) -> String {
        let path = self.cwd.join(name);
        eventually(&format!("the file {name}"), || match fs::read_to_string(&path) {
            Ok(text) if text.ends_with('\n') => Ok(text.trim().to_owned()),
            Ok(text) => Err(text),
            Err(error) => Err(error.to_string()),
        })
    }

    /// A gate that tools can wait at.
    pub fn gate(&self, name: &str) -> Gate {
        Gate::make(self.cwd.join(name))
    }

    /// The variables every process of this world gets: nothing of ours but PATH.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        let text = |p: PathBuf| p.to_str().unwrap().to_owned();
        let mut vars = vec![
            ("PATH".to_owned(), path),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("HOME".to_owned(), text(self.root.join("home"))),
            ("CLAUDE_CONFIG_DIR".to_owned(), text(self.config())),
            ("LEAD_RUNTIME_DIR".to_owned(), text(self.runtime())),
        ];
        if !self.limits.is_empty() {
            vars.push(("LEAD_LIMITS".to_owned(), self.limits.clone()));
        }
        vars
    }

    /// A place for the output of one more command.
    pub(super) fn output_stem(&self) -> PathBuf {
        self.root.join("out").join(self.outputs.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// `lead` with these arguments.
    pub fn lead(&self, args: &[&str]) -> Lead<'_> {
        Lead::new(self, args)
    }

    /// A headless run with a playbook; everything is permitted, the result comes as JSON.
    pub fn headless(&self, model: &str, prompt: &str) -> Lead<'_> {
        let lead = self.lead(&["-p", prompt, "--model", model, "--output-format", "json"]);
        lead.args(&["--permission-mode", "bypassPermissions"])
    }

    /// `lead ps --json` with more arguments: the rows.
    pub fn ps(&self, args: &[&str]) -> Vec<Value> {
        let done = self.lead(&["ps", "--json"]).args(args).run();
        done.expect(0).json().as_array().unwrap_or_else(|| panic!("no rows: {done:?}")).clone()
    }

    /// The rows of the living workers.
    pub fn workers(&self) -> Vec<Value> {
        let alive = |row: &Value| !matches!(row["state"].as_str(), Some("completed" | "failed" | "killed" | "lost"));
        self.ps(&[]).into_iter().filter(|row| row["role"] == "worker" && alive(row)).collect()
    }

    /// Waits for so many living workers; their rows.
    pub fn wait_workers(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} workers"), || {
            let rows = self.workers();
            if rows.len() == count { Ok(rows) } else { Err(rows) }
        })
    }

    /// The processes of this world, tools included.
    pub fn processes(&self) -> Vec<Proc> {
        processes_with(&format!("LEAD_RUNTIME_DIR={}", self.runtime().display()))
    }

    /// Waits until no process of this world is left.
    pub fn wait_quiet(&self) {
        eventually("no process", || {
            let left = self.processes();
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }

    /// The session of this id.
    pub fn session(&self, id: &str) -> Session {
        self.find_session(id).unwrap_or_else(|| panic!("there is no session {id}"))
    }

    /// The session of this id, if there is one yet.
    pub fn find_session(&self, id: &str) -> Option<Session> {
        Session::find(&self.config(), id)
    }

    /// The files of the runtime folder. Temporary ones don't count: a process that is killed while it
    /// writes leaves one, which is swept when it is a minute old.
    pub fn runtime_files(&self) -> Vec<String> {
        let files = fs::read_dir(self.runtime()).into_iter().flatten().flatten();
        let files = files.map(|e| e.file_name().to_string_lossy().into_owned());
        let files: Vec<String> = files.filter(|f| !f.starts_with('.')).collect();
        let is_registered =
            |f: &String| f.split_once('.').is_some_and(|(name, _)| files.contains(&format!("{name}.json")));
        files.iter().filter(|f| !self.killed_anywhere || is_registered(f)).cloned().collect()
    }

    /// Fails if anything of this world lives or is registered, without waiting for it to go.
    pub fn assert_nothing_left(&self) {
        let (processes, files) = (self.processes(), self.runtime_files());
        assert!(processes.is_empty(), "processes are left: {processes:#?}");
        assert!(files.is_empty(), "the runtime folder is not empty: {files:?}");
    }

    fn kill_all(&self) {
        for process in self.processes() {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
    }

    /// What a failed test leaves to look at.
    pub fn describe(&self) -> String {
        describe(&self.root)
    }

    /// The same for somebody who outlives this borrow.
    pub(super) fn describe_later(&self) -> Box<dyn Fn() -> String + Send> {
        let root = self.root.clone();
        Box::new(move || describe(&root))
    }
}

fn describe(root: &Path) -> String {
    let runtime = root.join("r");
    let processes = processes_with(&format!("LEAD_RUNTIME_DIR={}", runtime.display()));
    let mut text = format!("processes: {processes:#?}\n");
    let wanted = ["-name", "*.jsonl", "-o", "-name", "*.log", "-o", "-name", "*.err", "-o", "-path", "*/r/*"];
    let listed = Command::new("find").arg(root).args(wanted).output();
    for file in listed.iter().flat_map(|o| std::str::from_utf8(&o.stdout).unwrap_or_default().lines()) {
        let content = fs::read_to_string(file).unwrap_or_default();
        text.push_str(&format!("== {file}\n"));
        for line in content.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev() {
            text.extend(line.chars().take(600).chain(['\n']));
        }
    }
    text
}

impl Drop for World {
    fn drop(&mut self) {
        let failing = std::thread::panicking();
        let left = || (self.processes(), self.runtime_files());
        let is_clean = |(processes, files): &(Vec<Proc>, Vec<String>)| processes.is_empty() && files.is_empty();
        let mut found = left();
        if failing {
            eprintln!("{}", self.describe());
        } else if !is_clean(&found) {
            // What was killed from outside may need a moment to be gone.
            let begun = std::time::Instant::now();
            while !is_clean(&found) && begun.elapsed().as_secs() < 5 {
                super::wait::pause(std::time::Duration::from_millis(20));
                found = left();
            }
        }
        let clean = is_clean(&found);
        let seen = if clean { String::new() } else { self.describe() };
        self.kill_all();
        // Scratchpads lie outside, one folder per working folder.
        let scratch = PathBuf::from(format!("/tmp/claude-{}", nix::unistd::getuid()));
        let ours = lead::core::paths::sanitise_cwd(&self.root);
        for folder in fs::read_dir(scratch).into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().starts_with(&ours) {
                let _ = fs::remove_dir_all(folder.path());
            }
        }
        if std::env::var_os("LEAD_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.root);
        }
        assert!(failing || clean, "something outlived the test: {found:#?}\n{seen}");
    }
}

/// A place where tools wait (`read _ < gate`) until the test lets them pass. It is a pipe that the
/// test holds open at both ends: nobody who comes late misses the opening.
pub struct Gate {
    path: PathBuf,
    pipe: File,
}

impl Gate {
    fn make(path: PathBuf) -> Self {
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    /// The shell command that waits here.
    pub fn wait(&self) -> String {
        format!("read _ < '{}'", self.path.display())
    }

    /// The shell command that says it is here (by a file of the work tree), then waits.
    pub fn arrive(&self, file: &str) -> String {
        format!("echo $$ > {file}.new; mv {file}.new {file}; {}", self.wait())
    }

    /// Lets this many pass.
    pub fn open(&self, count: usize) {
        (&self.pipe).write_all(&vec![b'\n'; count]).unwrap();
    }
}
