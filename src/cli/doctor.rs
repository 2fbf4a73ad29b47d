//! `lead doctor`: looks at the installation and at what was left behind, changes nothing, and says
//! of each finding how it is mended.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use clap::Args;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use super::doctor_settings::{self, SettingsFile};
use super::error::{CliError, Exit, with_causes};
use super::folders::{Folders, shows_secrets};
use super::leftovers;
use super::options;
use super::output::Output;
use super::provider::ProviderCheck;
use crate::core::frame::BUILD;
use crate::core::limits::deadlines;
use crate::core::text;
use crate::settings::{Places, instructions, skills};
use crate::store::runtime::list;
use crate::supervisor::{AGENT_PROGRAMS, locate};

/// Arguments of `lead doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 all well, 1 something was found.")]
pub(super) struct DoctorArgs {
    /// Print findings only
    #[arg(long)]
    check: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub what: String,
    pub mend: String,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }
}

/// All that was looked at.
#[derive(Debug, Default, Serialize)]
struct Report {
    version: &'static str,
    program: Option<PathBuf>,
    worker: Option<PathBuf>,
    teammate: Option<PathBuf>,
    config_dir: PathBuf,
    runtime_dir: PathBuf,
    /// Files of settings that exist, lowest layer first.
    settings: Vec<SettingsFile>,
    /// The provider, if anything says that one is to be used.
    provider: Option<ProviderCheck>,
    /// What is worth knowing and no fault.
    notes: Vec<String>,
    findings: Vec<Finding>,
}

pub(super) fn run(args: &DoctorArgs, out: &mut Output) -> Result<Exit, CliError> {
    let folders = Folders::of_process()?;
    let mut report = Report {
        version: BUILD,
        program: std::env::current_exe().ok(),
        config_dir: folders.config.root().to_path_buf(),
        runtime_dir: folders.runtime.clone(),
        ..Report::default()
    };
    report.look_at_programs();
    report.look_at_config(&folders);
    report.look_at_settings(&folders);
    report.look_at_knowledge(&folders);
    report.look_at_runtime(&folders);
    report.look_at_provider(&folders);
    report.findings.extend(leftovers::of_agents(&folders));
    if args.json {
        out.json(&report)?;
    } else {
        out.text(&text::for_terminal(&report.for_person(args.check)))?;
    }
    Ok(if report.findings.is_empty() { Exit::Success } else { Exit::Failed })
}

impl Report {
    fn found(&mut self, what: impl Into<String>, mend: impl Into<String>) {
        self.findings.push(Finding::new(what, mend));
    }

    fn look_at_programs(&mut self) {
        for name in AGENT_PROGRAMS {
            let program = match locate(name) {
                Ok(program) => program,
                Err(error) => {
                    self.found(with_causes(&error), format!("put {name} into the folder of lead"));
                    continue;
                }
            };
            let shown = program.display().to_string();
            let rebuild = "build all programs together and install them side by side";
            match version_of(&program) {
                Ok(version) if version == format!("{BUILD} ({name})") => {}
                Ok(version) => self.found(format!("{shown} is {version:?}, this is {BUILD}"), rebuild),
                Err(why) => self.found(format!("{shown} can't be run: {why}"), rebuild),
            }
            match name {
                "lead-worker" => self.worker = Some(program),
                _ => self.teammate = Some(program),
            }
        }
        for (program, use_of) in [("git", "worktrees"), ("tmux", "panes")] {
            if which::which(program).is_err() {
                self.notes.push(format!("{program} is not on PATH; it is needed for {use_of} only"));
            }
        }
        if shows_secrets() {
            self.notes
                .push("secrets in the environment of this program can be seen in /proc by your processes".to_owned());
        }
        if !knows_peer_pidfd() {
            self.notes.push("this kernel does not hand over the pidfd of a socket's peer (Linux 6.5 does)".to_owned());
        }
    }

    fn look_at_config(&mut self, folders: &Folders) {
        let root = folders.config.root();
        // A folder that is not there yet is made at the first start, if its nearest parent permits.
        let nearest = root.ancestors().find(|dir| dir.exists()).unwrap_or(root);
        let can_write = nearest.is_dir() && access(nearest, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
        if !can_write {
            let what = format!("can't write to {}, so no session can be recorded", nearest.display());
            self.found(what, "make it a folder of yours, or set CLAUDE_CONFIG_DIR to one");
        }
    }

    fn look_at_settings(&mut self, folders: &Folders) {
        let check = doctor_settings::check(folders);
        self.settings = check.files;
        self.notes.extend(check.notes);
        self.findings.extend(check.findings);
    }

    fn look_at_knowledge(&mut self, folders: &Folders) {
        let places = Places { config: folders.config.root(), cwd: &folders.cwd, home: folders.home.as_deref() };
        for broken in skills::find(&places).broken {
            self.found(format!("a skill is left out: {broken}"), "correct the file");
        }
        let notes = instructions::load(&places).notes;
        self.notes.extend(notes.into_iter().map(|note| format!("instructions are left out: {note}")));
    }

    fn look_at_runtime(&mut self, folders: &Folders) {
        let registered = folders.open_runtime().and_then(|dir| list(&dir));
        match registered {
            Ok(registered) => self.findings.extend(leftovers::of_registry(&registered)),
            Err(error) => {
                let mend = "remove what is there, or set LEAD_RUNTIME_DIR to a short path in a folder of yours";
                self.found(format!("the runtime folder can't be used: {}", with_causes(&error)), mend);
            }
        }
    }

    fn look_at_provider(&mut self, folders: &Folders) {
        // What is wrong with the settings is found elsewhere.
        let Ok(loaded) = options::load(&folders.cwd, None, folders) else { return };
        match ProviderCheck::of(&loaded.settings, folders) {
            None => {}
            Some((check, finding)) => {
                self.provider = Some(check);
                self.findings.extend(finding);
            }
        }
    }

    fn for_person(&self, findings_only: bool) -> String {
        let mut lines = Vec::new();
        if !findings_only {
            let path =
                |p: &Option<PathBuf>| p.as_ref().map_or_else(|| "not found".to_owned(), |p| p.display().to_string());
            lines.push(format!("version         {}", self.version));
            lines.push(format!("lead            {}", path(&self.program)));
            lines.push(format!("lead-worker     {}", path(&self.worker)));
            lines.push(format!("lead-teammate   {}", path(&self.teammate)));
            lines.push(format!("config folder   {}", self.config_dir.display()));
            lines.push(format!("runtime folder  {}", self.runtime_dir.display()));
            lines.extend(self.settings.iter().map(|file| format!("settings        {}", file.for_person())));
            if let Some(provider) = &self.provider {
                lines.push(format!("provider        {}", provider.for_person()));
            }
            lines.extend(self.notes.iter().map(|note| format!("note            {note}")));
        }
        for finding in &self.findings {
            lines.push(format!("found: {}\n  mend: {}", finding.what, finding.mend));
        }
        if self.findings.is_empty() && !findings_only {
            lines.push("all well".to_owned());
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// What a program says of its version, within a deadline.
fn version_of(program: &std::path::Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|e| e.to_string())?;
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (said, answer) = mpsc::channel();
    std::thread::spawn(move || said.send(child.wait_with_output()));
    match answer.recv_timeout(deadlines().status) {
        Ok(Ok(output)) => Ok(text::one_line(&String::from_utf8_lossy(&output.stdout), 100)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            // Ours and not waited for yet, so the number is still its own.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            Err("it does not answer".to_owned())
        }
    }
}

fn knows_peer_pidfd() -> bool {
    let pair = std::os::unix::net::UnixStream::pair();
    pair.is_ok_and(|(end, _)| getsockopt(&end, sockopt::PeerPidfd).is_ok())
}
