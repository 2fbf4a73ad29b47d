//! One tmux server, by its socket, and the agents' panes on it. A pane is used only if its id is there
//! *and* it carries the agent's mark: ids begin anew with every server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::error::PaneError;
use super::program;
use super::quote::mark;
use super::script::{Answer, Script};
use super::window;
use crate::core::limits::deadlines;
use crate::proc::{PidFd, deadline, signal_name};

/// Between two looks at a pane whose process has just ended.
const LOOK: Duration = Duration::from_millis(20);

/// The user's option of a pane that holds the mark of its agent.
pub(super) const AGENT: &str = "@lead_agent";

/// A server. Clones are the same.
#[derive(Clone, Debug)]
pub struct TmuxServer {
    program: Arc<Path>,
    socket: Arc<Path>,
}

/// What has become of an agent's pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneState {
    /// Its program runs.
    Alive {
        /// The program's pid.
        pid: i32,
    },
    /// Its program failed; the pane shows its last words.
    Dead {
        /// Its exit code.
        status: Option<i32>,
        /// The name of the signal that ended it, such as `SIGKILL`; tmux 3.2 does not tell.
        signal: Option<String>,
    },
    /// There is no such pane (any more).
    Gone,
    /// The pane is somebody else's.
    Foreign,
}

/// A pane as it was found.
pub(super) struct Found {
    pub(super) state: PaneState,
    /// Pid of the server.
    server: i32,
    /// Id of its session.
    pub(super) session: String,
    /// Id of its window.
    pub(super) window: String,
    /// Panes in its window.
    pub(super) panes: u32,
    /// Windows of ours in which no agent is left.
    pub(super) abandoned: Vec<String>,
}

impl Found {
    /// Whether the pane is there and the agent's.
    pub(super) fn is_theirs(&self) -> bool {
        matches!(self.state, PaneState::Alive { .. } | PaneState::Dead { .. })
    }
}

impl TmuxServer {
    /// The server at a socket, such as a roster names it; `vars` has the `PATH` to find tmux on.
    ///
    /// # Errors
    /// [`PaneError::NoProgram`], [`PaneError::TooOld`]. Whether the server runs is not looked at.
    pub async fn at(socket: PathBuf, vars: &[(String, String)]) -> Result<Self, PaneError> {
        Ok(Self { program: program::find(vars).await?.into(), socket: socket.into() })
    }

    /// The socket, for a roster.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Looks at an agent's pane.
    ///
    /// # Errors
    /// [`PaneError::ServerGone`], [`PaneError::NoAnswer`].
    pub async fn check(&self, pane: &str, agent: &str) -> Result<PaneState, PaneError> {
        Ok(self.find(pane, agent).await?.state)
    }

    /// Looks at the pane of an agent whose process has ended for certain, until tmux knows it too and
    /// can tell how.
    ///
    /// # Errors
    /// Those of [`TmuxServer::check`].
    pub async fn check_ended(&self, pane: &str, agent: &str) -> Result<PaneState, PaneError> {
        let last = Instant::now() + deadlines().link_end;
        loop {
            let found = self.find(pane, agent).await?;
            let is_settled =
                !matches!(found.state, PaneState::Alive { .. } | PaneState::Dead { status: None, signal: None });
            if is_settled || Instant::now() >= last {
                return Ok(found.state);
            }
            // tmux 3.3 misses the end of a program in one case of twenty, if it is built to note logins:
            // while the helper for that runs, the signal that tells of children is not heard. It asks
            // for all of them whenever that comes again.
            if let Ok(server) = PidFd::open(found.server) {
                let _ = server.signal(Signal::SIGCHLD);
            }
            deadline(Some(Instant::now() + LOOK)).await;
        }
    }

    /// Closes an agent's pane, and gives back what windows looked like before there were agents in
    /// them. To be called too for one that has gone by itself. Returns how the pane was found; one
    /// that is not the agent's is not touched.
    ///
    /// # Errors
    /// Those of [`TmuxServer::check`].
    pub async fn close(&self, pane: &str, agent: &str) -> Result<PaneState, PaneError> {
        let found = self.find(pane, agent).await?;
        let mut script = Script::default();
        if found.is_theirs() {
            self.if_theirs(&mut script, pane, agent, &["kill-pane", "-t", pane]);
            window::settle(&mut script, &found.window);
        }
        for abandoned in &found.abandoned {
            window::settle(&mut script, abandoned);
        }
        if !script.is_empty() {
            match self.run(&script).await {
                // The last pane of a server takes it along.
                Ok(_) | Err(PaneError::ServerGone { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found.state)
    }

    /// Takes an agent's pane out of sight, into a window of its own.
    ///
    /// # Errors
    /// [`PaneError::NotTheirs`], and those of [`TmuxServer::check`].
    pub async fn hide(&self, pane: &str, agent: &str) -> Result<(), PaneError> {
        let found = self.found_theirs(pane, agent).await?;
        let mut script = Script::default();
        if found.panes > 1 {
            let session = format!("{}:", found.session);
            let name = window::name(agent);
            self.if_theirs(&mut script, pane, agent, &["break-pane", "-d", "-s", pane, "-t", &session, "-n", &name]);
            window::settle(&mut script, &found.window);
        } else {
            window::disown(&mut script, &found.window);
        }
        self.run(&script).await.map(|_| ())
    }

    /// The pane if it is the agent's.
    pub(super) async fn found_theirs(&self, pane: &str, agent: &str) -> Result<Found, PaneError> {
        let found = self.find(pane, agent).await?;
        if found.is_theirs() {
            return Ok(found);
        }
        Err(PaneError::NotTheirs { pane: pane.to_owned(), agent: agent.to_owned() })
    }

    /// A command on a pane only if it still is the agent's when the command is carried out.
    fn if_theirs(&self, script: &mut Script, pane: &str, agent: &str, command: &[&str]) {
        let mut then = Script::default();
        then.add(command.iter().copied());
        script.add_if(pane, &format!("#{{==:#{{{AGENT}}},{}}}", mark(agent)), &then);
    }

    async fn find(&self, pane: &str, agent: &str) -> Result<Found, PaneError> {
        let gone = Found {
            state: PaneState::Gone,
            server: 0,
            session: String::new(),
            window: String::new(),
            panes: 0,
            abandoned: Vec::new(),
        };
        // It may come from a file that anybody writes.
        if !pane.strip_prefix('%').is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())) {
            return Ok(gone);
        }
        let mut script = Script::default();
        let fields = "lead:pane #{pid} #{session_id} #{window_id} #{window_panes} #{pane_pid} #{pane_dead} \
                      #{pane_dead_status} #{pane_dead_signal} ";
        let filter = format!("#{{==:#{{pane_id}},{pane}}}");
        script.add(["list-panes", "-a", "-f", &filter, "-F", &format!("{fields}#{{{AGENT}}}")]);
        window::list_abandoned(&mut script);
        let answer = self.run(&script).await?;
        let abandoned = window::abandoned(&answer);
        // A window that is in two sessions is listed twice.
        let Some(fields) = answer.tagged("pane").next() else { return Ok(Found { abandoned, ..gone }) };
        let &[server, session, window, panes, pid, dead, status, signal, ref theirs @ ..] = &fields[..] else {
            return Ok(Found { abandoned, ..gone });
        };
        let state = match pid.parse() {
            _ if theirs != [mark(agent)] => PaneState::Foreign,
            _ if dead == "1" => PaneState::Dead { status: status.parse().ok(), signal: name_of(signal) },
            Ok(pid) => PaneState::Alive { pid },
            Err(_) => PaneState::Gone,
        };
        let (server, panes) = (server.parse().unwrap_or(0), panes.parse().unwrap_or(1));
        Ok(Found { state, server, session: session.to_owned(), window: window.to_owned(), panes, abandoned })
    }

    /// Has a script carried out. That commands of it failed is no error here.
    pub(super) async fn run(&self, script: &Script) -> Result<Answer, PaneError> {
        let socket = self.socket.to_string_lossy();
        // -u: else what is not ASCII is shown as underscores.
        let args = ["-u", "-S", &socket, "source-file", "-"];
        for command in script.shown() {
            tracing::debug!(?args, ?command, "tmux");
        }
        let captured = program::run(&self.program, &args, &[], &script.text()).await?;
        if captured.timed_out {
            return Err(PaneError::NoAnswer { socket: self.socket.to_path_buf(), waited: deadlines().tmux });
        }
        let answer = Answer::new(&captured.output);
        let said = answer.complaints();
        let is_gone = ["no server running", "error connecting", "lost server", "server exited"];
        if !captured.is_success && is_gone.iter().any(|gone| said.contains(gone)) {
            return Err(PaneError::ServerGone { socket: self.socket.to_path_buf(), said });
        }
        Ok(answer)
    }
}

/// tmux tells the signal by its number, or where the system knows names by the name without `SIG`.
fn name_of(signal: &str) -> Option<String> {
    match signal.parse::<i32>() {
        Ok(0) => None,
        Ok(number) => Some(signal_name(number)),
        Err(_) if signal.is_empty() => None,
        Err(_) => Some(format!("SIG{}", signal.to_ascii_uppercase())),
    }
}
