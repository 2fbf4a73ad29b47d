//! A real lead with a team: its members are real processes, without panes or in those of a tmux server
//! of the measurement's own. Their model is played by a playbook.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lead::core::agent::{LiveState, RegistryEntry, RowState};
use lead::store::team::Team;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::json;

use crate::Res;
use crate::held::{Held, Programs, SOON};
use crate::place::Place;

/// Name of the team.
pub const TEAM: &str = "bench";
/// Between two looks at what nobody times.
const LOOK: Duration = Duration::from_millis(2);

/// What members do with what they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// They say a word and have nothing to do.
    Rest,
    /// Their model does not answer before the measurement is over.
    Wait,
}

/// A lead and its members. They end with their [`Place`].
pub struct Crew {
    /// The lead.
    pub lead: Held,
    /// From the call of the model's tools to the end of the last: all members are ready.
    pub took: Duration,
    said: Tail,
    /// Its end is the end of the lead's work.
    _input: ChildStdin,
}

/// A member's process.
pub struct Mate {
    /// Its pid.
    pub pid: i32,
    /// What it does.
    pub state: LiveState,
}

impl Crew {
    /// Starts a lead, which starts so many members by one answer of its model; ready when it has been
    /// told that they are.
    pub fn start(programs: &Programs, place: &Place, members: usize, what: Members, tmux: Option<&Tmux>) -> Res<Self> {
        fs::write(place.path("team.yaml"), book(members, what).to_string())?;
        let said = place.path("said");
        let model = format!("playbook:{}", place.path("team.yaml").display());
        let mode = if tmux.is_some() { "tmux" } else { "headless" };
        let stream = "stream-json";
        let mut child = Command::new(&programs.lead)
            .args(["-p", "--input-format", stream, "--output-format", stream])
            .args(["--model", &model, "--teammate-mode", mode])
            .current_dir(place.cwd())
            .env_clear()
            .envs(place.environment())
            .envs(tmux.map(Tmux::vars).unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(File::create(&said)?)
            .stderr(File::create(place.path("log"))?)
            .process_group(0)
            .spawn()?;
        let input = child.stdin.take();
        let lead = Held::of_child(child)?;
        let mut input = input.ok_or("no way to tell the lead anything")?;
        let mut said = Tail::of(&said)?;
        writeln!(input, "{}", json!({"type": "user", "message": {"role": "user", "content": "Go."}}))?;
        let log = |e| format!("{e}: {}", fs::read_to_string(place.path("log")).unwrap_or_default());
        let has = |line: &[u8], text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
        said.until(&lead, |line| has(line, r#""name":"Agent""#)).map_err(log)?;
        let begun = Instant::now();
        let mut ready = 0;
        let mut refused = None;
        let is_last = |line: &[u8]| {
            match (has(line, r#""tool_result""#), has(line, "Spawned successfully")) {
                (true, true) => ready += 1,
                (true, false) => refused = Some(String::from_utf8_lossy(line).into_owned()),
                (false, _) => {}
            }
            ready == members || refused.is_some()
        };
        said.until(&lead, is_last).map_err(log)?;
        let took = begun.elapsed();
        if let Some(answer) = refused {
            return Err(format!("only {ready} of {members} members are ready: {answer}").into());
        }
        Ok(Self { lead, took, said, _input: input })
    }

    /// Its members, as they are registered.
    pub fn mates(&self, place: &Place) -> Res<Vec<Mate>> {
        let mut mates = Vec::new();
        for file in fs::read_dir(place.runtime())? {
            let path = file?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let entry: RegistryEntry = serde_json::from_slice(&fs::read(&path)?)?;
            // It has none before its first turn.
            let Ok(state) = fs::read(path.with_extension("state")) else { continue };
            if entry.role == "teammate" {
                mates.push(Mate { pid: entry.pid, state: serde_json::from_slice(&state)? });
            }
        }
        Ok(mates)
    }

    /// Waits until so many members have had their first turn and have nothing to do.
    pub fn rest(&self, place: &Place, members: usize) -> Res<Vec<Mate>> {
        let mut all = Vec::new();
        self.until(|| {
            all = self.mates(place)?;
            let rests = |mate: &Mate| mate.state.state == RowState::Idle && mate.state.progress.turns > 0;
            Ok(all.len() == members && all.iter().all(rests))
        })?;
        Ok(all)
    }

    /// Waits until all that follows a message to this member is over: it has told its lead that it has
    /// nothing to do, the mailbox says that the message is read, and the roster that nobody works.
    pub fn rest_again(&mut self, team: &Team, member: &str) -> Res<()> {
        self.said.until(&self.lead, |line| memchr::memmem::find(line, b"<teammate-idle").is_some())?;
        self.until(|| {
            let is_active = team.roster()?.member(member).is_none_or(|m| m.is_active != Some(false));
            Ok(!is_active && team.mailbox(member)?.look()?.unread().next().is_none())
        })
    }

    /// How long it takes from a member's kill -9 until the model of its lead is told.
    pub fn kill(&mut self, mate: &Mate) -> Res<Duration> {
        let kill =
            || Ok(nix::sys::signal::kill(nix::unistd::Pid::from_raw(mate.pid), nix::sys::signal::Signal::SIGKILL)?);
        self.said.after(kill, &self.lead, |line| memchr::memmem::find(line, b"<teammate-terminated").is_some())
    }

    fn until(&self, mut is_so: impl FnMut() -> Res<bool>) -> Res<()> {
        let last = Instant::now() + SOON;
        while !is_so()? {
            if Instant::now() >= last {
                return Err("members did not come to rest".into());
            }
            self.lead.watch(LOOK)?;
        }
        // Whoever did the last of it goes to sleep.
        self.lead.watch(LOOK)
    }
}

/// What the models say. JSON is YAML.
fn book(members: usize, what: Members) -> serde_json::Value {
    let add = |n: usize| {
        let input = json!({"description": "Be measured", "prompt": "Rest.", "name": format!("m{n}")});
        json!({"name": "Agent", "input": input})
    };
    let rest = match what {
        Members::Rest => json!({"text": "resting"}),
        Members::Wait => json!({"text": "late", "delay_ms": 300_000}),
    };
    let turns = json!([
        {"tools": [{"name": "TeamCreate", "input": {"team_name": TEAM}}]},
        {"tools": (0..members).map(add).collect::<Vec<_>>()},
    ]);
    json!({"agents": [
        {"match": {"role": "^lead$"}, "turns": turns, "otherwise": {"text": "all are there"}},
        {"match": {"role": "^teammate$"}, "turns": [], "otherwise": rest},
    ]})
}

/// A tmux server. It ends with its [`Place`], if not before.
pub struct Tmux {
    socket: PathBuf,
    pid: String,
    seat: String,
}

impl Tmux {
    /// One with room for a team in its one window, in which nothing happens.
    pub fn start(place: &Place) -> Res<Self> {
        let mut tmux = Self { socket: place.path("tmux"), pid: String::new(), seat: String::new() };
        let new = ["-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", "-P", "-F", "#{pid} #{pane_id}"];
        let mut command = tmux.command(place, &new);
        let output = command.args(["--", "cat", "-"]).output().map_err(|e| format!("tmux can't be run: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let (pid, seat) = said
            .trim()
            .split_once(' ')
            .ok_or_else(|| format!("tmux did not start: {}", String::from_utf8_lossy(&output.stderr)))?;
        (tmux.pid, tmux.seat) = (pid.to_owned(), seat.to_owned());
        Ok(tmux)
    }

    fn command(&self, place: &Place, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-u", "-S"]).arg(&self.socket).args(args);
        command.env_clear().envs(place.environment()).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Opens so many panes that do nothing, by one call.
    pub fn split(&self, place: &Place, panes: usize) -> Res<()> {
        let script = place.path("split.conf");
        let seat = &self.seat;
        // Between tiles, else there is no room soon.
        let split = format!("split-window -d -t {seat} -- cat -\nselect-layout -t {seat} tiled\n");
        fs::write(&script, split.repeat(panes))?;
        self.call(place, &["source-file", &script.to_string_lossy()])?;
        let there = self.call(place, &["list-panes", "-t", seat])?.lines().count();
        if there == panes + 1 { Ok(()) } else { Err(format!("{there} panes of {}", panes + 1).into()) }
    }

    fn call(&self, place: &Place, args: &[&str]) -> Res<String> {
        let output = self.command(place, args).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// The variables of a program in its pane.
    fn vars(&self) -> Vec<(String, String)> {
        let tmux = format!("{},{},0", self.socket.display(), self.pid);
        vec![("TMUX".to_owned(), tmux), ("TMUX_PANE".to_owned(), self.seat.clone())]
    }
}

/// The lines that are added to a file.
pub struct Tail {
    inotify: Inotify,
    file: File,
    rest: Vec<u8>,
}

impl Tail {
    /// From the end of a file that is there.
    pub fn of(path: &Path) -> Res<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        inotify.add_watch(path, AddWatchFlags::IN_MODIFY)?;
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { inotify, file, rest: Vec::new() })
    }

    /// How long it takes from the beginning of `act` until there is a line. Blocks.
    pub fn after(
        &mut self,
        act: impl FnOnce() -> Res<()>,
        alive: &Held,
        is_it: impl FnMut(&[u8]) -> bool + Send,
    ) -> Res<Duration> {
        thread::scope(|scope| {
            let watcher =
                scope.spawn(|| self.until(alive, is_it).map(|()| Instant::now()).map_err(|error| error.to_string()));
            // So that it waits by now.
            alive.watch(LOOK)?;
            let begun = Instant::now();
            act()?;
            let noticed = watcher.join().map_err(|_| "the thread that watched failed")?;
            Ok(noticed?.saturating_duration_since(begun))
        })
    }

    /// Waits for a line, while `alive` lives. Blocks.
    pub fn until(&mut self, alive: &Held, mut is_it: impl FnMut(&[u8]) -> bool) -> Res<()> {
        let last = Instant::now() + SOON;
        loop {
            match self.inotify.read_events() {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            self.file.read_to_end(&mut self.rest)?;
            while let Some(end) = memchr::memchr(b'\n', &self.rest) {
                let found = is_it(&self.rest[..end]);
                self.rest.drain(..=end);
                if found {
                    return Ok(());
                }
            }
            alive.watch_for(self.inotify.as_fd(), last.saturating_duration_since(Instant::now()))?;
        }
    }
}
