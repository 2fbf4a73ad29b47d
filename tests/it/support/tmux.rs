//! A tmux server as a person has one, in a world of its own, with the lead's pane on it; every call of
//! tmux from there is written down. Programs for panes that tell how they were started.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lead::supervisor::{OpenPane, PaneRequest, Panes};

use super::wait::eventually;
use super::world::World;

/// A person's tmux server.
pub struct Tmux<'w> {
    world: &'w World,
    socket: PathBuf,
    /// The lead's pane.
    pub seat: String,
}

/// How a program in a pane was started.
#[derive(Debug)]
pub struct Started {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its working folder.
    pub cwd: String,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
}

/// The tmux on this machine; none if there is none and a test may do without.
fn real() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("tmux")).find(|p| p.is_file());
    if found.is_none() {
        assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "tmux is missing");
        println!("SKIPPED (no tmux)");
    }
    found
}

/// A program on this machine that a test may do without.
pub fn optional(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file());
    if found.is_none() {
        assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "{name} is missing");
        println!("SKIPPED (no {name})");
    }
    found
}

/// Makes a program of a world.
pub fn program(world: &World, name: &str, script: &str) -> PathBuf {
    let path = world.root().join("bin").join(name);
    if !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = path.with_extension("text");
        fs::write(&text, script).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // A file that this process wrote may be open for writing still in what another test has just
        // forked, and can't be executed so long.
        assert!(Command::new("cp").arg(&text).arg(&path).status().unwrap().success());
    }
    path
}

/// Puts a tmux that writes its calls down in front of the real one; none if there is none.
pub fn recorded(world: &World) -> Option<()> {
    recorded_with(world, "cat")
}

/// The same, with a command that scripts for tmux go through on their way.
pub fn recorded_with(world: &World, filter: &str) -> Option<()> {
    let real = real()?;
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >> {0}/calls\nfor last; do :; done\n[ \"$last\" = - ] || exec {1} \"$@\"\n\
         tee -a {0}/scripts | {filter} | {1} \"$@\"\n",
        world.root().display(),
        real.display()
    );
    program(world, "tmux", &script);
    Some(())
}

impl<'w> Tmux<'w> {
    /// A server with this configuration whose one window has this size; none if there is no tmux.
    pub fn start(world: &'w World, config: &str, columns: u32, rows: u32) -> Option<Self> {
        recorded(world)?;
        Some(Self::at(world, "s", config, columns, rows, &["sh", "-c", "exec cat"]))
    }

    /// One more server in the same world, with another program in its pane.
    pub fn at(world: &'w World, socket: &str, config: &str, columns: u32, rows: u32, program: &[&str]) -> Self {
        let (socket, file) = (world.root().join(socket), world.root().join(format!("{socket}.conf")));
        fs::write(&file, config).unwrap();
        let mut tmux = Self { world, socket, seat: String::new() };
        let size = [columns.to_string(), rows.to_string()];
        let mut args = vec!["-f", file.to_str().unwrap(), "new-session", "-d", "-s", "user", "-P", "-F", "#{pane_id}"];
        args.extend(["-x", &size[0], "-y", &size[1], "--"]);
        args.extend(program);
        tmux.seat = tmux.call(&args);
        tmux
    }

    /// The server's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Has tmux do something; what it printed, without the end of the last line.
    pub fn call(&self, args: &[&str]) -> String {
        let (done, said) = self.try_call(args);
        assert!(done, "tmux {args:?}: {said}");
        said
    }

    /// The same for what may fail.
    pub fn try_call(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.arg("60").arg(real().unwrap());
        command.env_clear().envs(self.world.environment()).env("SSH_TTY", "/dev/pts/99").current_dir("/");
        let output = command.args(["-u", "-S"]).arg(&self.socket).args(args).output().unwrap();
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap()).concat();
        (output.status.success(), text.trim_end_matches('\n').to_owned())
    }

    /// A format, of a pane or a window.
    pub fn tell(&self, target: &str, format: &str) -> String {
        self.call(&["display-message", "-p", "-t", target, format])
    }

    /// A format of all panes, in order.
    pub fn panes(&self, format: &str) -> Vec<String> {
        self.call(&["list-panes", "-a", "-F", format]).lines().map(str::to_owned).collect()
    }

    /// The pid of the server.
    pub fn pid(&self) -> i32 {
        self.tell(&self.seat, "#{pid}").parse().unwrap()
    }

    /// The environment of a lead in the seat.
    pub fn vars(&self) -> Vec<(String, String)> {
        let mut vars = self.world.environment();
        vars.retain(|(name, _)| name != "PATH");
        vars.extend([("PATH".to_owned(), path_of(self.world))]);
        let tmux = format!("{},{},0", self.socket.display(), self.pid());
        vars.extend([("TMUX".to_owned(), tmux), ("TMUX_PANE".to_owned(), self.seat.clone())]);
        vars
    }

    /// Panes of a lead in the seat.
    pub async fn lead(&self) -> Panes {
        Panes::inside(&self.vars()).await.unwrap()
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.try_call(&["kill-server"]);
    }
}

/// PATH with the recorded tmux first.
pub fn path_of(world: &World) -> String {
    format!("{}:{}", world.root().join("bin").display(), std::env::var("PATH").unwrap())
}

/// What was called: arguments, and scripts.
pub fn calls(world: &World) -> (Vec<String>, String) {
    let read = |name: &str| fs::read_to_string(world.root().join(name)).unwrap_or_default();
    (read("calls").lines().map(str::to_owned).collect(), read("scripts"))
}

/// A request whose program tells how it was started, in a file named after the agent, and stays.
pub fn probe(world: &World, agent: &str, arguments: &[&str]) -> PaneRequest {
    let script = "#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done > \"$OUT.argv\"\n\
                  cat /proc/$$/environ > \"$OUT.environ\"\nreadlink -n /proc/$$/cwd > \"$OUT.part\"\n\
                  mv \"$OUT.part\" \"$OUT.cwd\"\nexec cat\n";
    let mut environment = world.environment();
    environment.push(("OUT".to_owned(), world.root().join("out").join(agent).to_str().unwrap().to_owned()));
    PaneRequest {
        agent: agent.to_owned(),
        title: agent.to_owned(),
        colour: "blue".to_owned(),
        cwd: world.cwd().to_owned(),
        environment,
        program: program(world, "probe", script),
        arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
    }
}

/// A request that runs a line of shell.
pub fn shell(world: &World, agent: &str, line: &str) -> PaneRequest {
    let arguments = vec!["-c".to_owned(), line.to_owned()];
    PaneRequest { program: "/bin/sh".into(), arguments, ..probe(world, agent, &[]) }
}

/// How the probe of an agent was started, once it was.
pub fn started(world: &World, agent: &str) -> Started {
    let file = |end: &str| world.root().join("out").join(format!("{agent}.{end}"));
    let cwd = eventually("the pane's program runs", || {
        fs::read_to_string(file("cwd")).map_err(|e| (e, fs::read_to_string(file("part"))))
    });
    let words = |end: &str| -> Vec<String> {
        let text = fs::read_to_string(file(end)).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    };
    let environ = words("environ");
    let environment = environ.iter().filter_map(|v| v.split_once('=')).map(|(n, v)| (n.into(), v.into()));
    Started { arguments: words("argv"), cwd, environment: environment.collect() }
}

/// The ids of panes.
pub fn ids(panes: &[OpenPane]) -> Vec<&str> {
    panes.iter().map(|p| p.id.as_str()).collect()
}
