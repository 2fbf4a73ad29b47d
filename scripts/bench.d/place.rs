//! Where a measurement happens: folders of its own, that go with it, and what agents are told.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lead::core::agent::Owner;
use lead::core::entry::Place as LinePlace;
use lead::core::frame::{AgentConfig, BUILD, PermissionRules, Prompt, Telling, Welcome};
use lead::core::ids::{AgentId, SessionId};
use lead::core::paths::{AgentFiles, ConfigDir, SessionFiles, scratchpad};
use lead::store::atomic::create_private_dir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::Res;

/// A model that does not answer before the measurement is over.
const IDLE: &str = "agents:\n  - turns:\n      - {delay_ms: 300000, text: done}\n";

/// How long processes that are killed may take to be gone.
const LAST: Duration = Duration::from_secs(5);

/// Folders for one measurement. Dropped last, after the processes that use them.
pub struct Place {
    root: TempDir,
    session: SessionId,
}

impl Place {
    /// Makes the folders in `parent`, whose path is short: sockets' have little room.
    pub fn new(parent: &Path) -> Res<Self> {
        let root = tempfile::Builder::new().prefix("lead-bench-").tempdir_in(parent)?;
        let place = Self { root, session: SessionId::random() };
        for folder in [place.cwd(), place.config().root().to_owned(), place.path("home")] {
            create_private_dir(&folder)?;
        }
        fs::write(place.path("idle.yaml"), IDLE)?;
        Ok(place)
    }

    /// The sessions' scratchpads, which are in no folder of ours.
    fn scratchpads(&self) -> Option<PathBuf> {
        let uid = nix::unistd::getuid().as_raw();
        scratchpad(uid, &self.cwd(), &self.session).ancestors().nth(2).map(Path::to_path_buf)
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Working folder of everything that is started.
    pub fn cwd(&self) -> PathBuf {
        self.path("work")
    }

    /// The runtime folder.
    pub fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    /// The config folder.
    pub fn config(&self) -> ConfigDir {
        ConfigDir::new(self.path("config"))
    }

    /// Environment of everything that is started.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        vec![
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), text(&self.path("home"))),
            (lead::core::env::CONFIG_DIR.to_owned(), text(self.config().root())),
            (lead::core::env::RUNTIME_DIR.to_owned(), text(&self.runtime())),
        ]
    }

    /// A new agent of this place's session, whose model lets it wait: what it is told, and its files.
    pub fn agent(&self) -> Res<(Welcome, AgentFiles)> {
        let id = AgentId::random();
        let cwd = self.cwd();
        let files = SessionFiles::of(self.config().session(&cwd, &self.session)).agent(&id);
        create_private_dir(files.transcript().parent().ok_or("a transcript without a folder")?)?;
        let config = AgentConfig {
            id,
            run: 1,
            session: self.session.clone(),
            agent_type: "general-purpose".to_owned(),
            description: "Wait for nothing".to_owned(),
            name: None,
            model: format!("playbook:{}", self.path("idle.yaml").display()),
            max_tokens: 8192,
            context_window: 200_000,
            system_prompt: "You are an agent that is being measured. ".repeat(40),
            pool: ["Read", "Glob", "Grep", "Bash", "SendMessage"].map(str::to_owned).to_vec(),
            permission_mode: "default".to_owned(),
            permissions: PermissionRules::default(),
            read_only_bash: false,
            cwd: cwd.clone(),
            config_dir: self.config().root().to_owned(),
            runtime_dir: self.runtime(),
            transcript: files.transcript().to_owned(),
            place: LinePlace {
                user_type: "external".to_owned(),
                entrypoint: "cli".to_owned(),
                cwd: cwd.to_string_lossy().into_owned(),
                session_id: self.session.as_str().to_owned(),
                version: BUILD.to_owned(),
                git_branch: "HEAD".to_owned(),
                team_name: None,
                agent_name: None,
            },
            scratchpad: None,
            max_turns: None,
            background_shells: true,
            background_wait_ms: 600_000,
            accept_cross_session: true,
            detached: false,
            permission_timeout_ms: 60_000,
            durability: "process".to_owned(),
            knowledge: lead::core::knowledge::Knowledge::default(),
            hooks: Default::default(),
            membership: None,
        };
        let prompt = Prompt { text: "Wait.".to_owned(), msg_id: None, from: self.session.as_str().to_owned() };
        let access = lead::core::provider::ProviderAccess::default();
        Ok((
            Welcome { config, prompt, secrets: Vec::new(), owner: Owner::Lead, access, telling: Telling::Nothing },
            files,
        ))
    }
}

/// Kills all processes that have this variable, and waits until they are gone: whoever they belong to
/// may be gone already, and with it who would end them. Stops looking after [`LAST`].
fn end_all_with(variable: &[u8]) {
    let last = Instant::now() + LAST;
    loop {
        let mut found = 0;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            // The number belongs to the same process as long as what was opened before is not at its end.
            let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|&b| b == 0).any(|v| v == variable) {
                found += 1;
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                let soon = Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&soon));
            }
        }
        if found == 0 || Instant::now() >= last {
            return;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        end_all_with(format!("{}={}", lead::core::env::RUNTIME_DIR, self.runtime().display()).as_bytes());
        if let Some(folder) = self.scratchpads() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
