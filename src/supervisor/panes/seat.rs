//! The lead's place among panes: the pane it runs in, or one that stands for it on a server of its own.
//! One task opens panes, so that no two are placed at the same time; what waits meanwhile is opened
//! together.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::error::PaneError;
use super::open::{OpenPane, PaneRequest, look_around, open};
use super::place::place;
use super::program;
use super::script::{Answer, Script};
use super::server::TmuxServer;
use super::window;
use crate::core::limits::PANES_WAITING;

/// Most panes that are opened by one call of tmux.
const TOGETHER: usize = 64;

/// Names that are tried for a server of its own: one may be taken by that of an earlier process.
const NAMES: u32 = 20;

/// What the pane that stands for the lead runs: it shows what the lead writes, and ends with it.
const STAND_IN: &str = "trap '' INT QUIT TSTP; exec cat \"$0\"";

/// The one session of a server of its own, and its size until somebody looks.
const SESSION: [&str; 6] = ["-s", "lead", "-x", "200", "-y", "50"];

/// Opens panes for a lead. Clones are the same.
#[derive(Clone, Debug)]
pub struct Panes {
    server: TmuxServer,
    seat: Arc<str>,
    requests: mpsc::Sender<Waiting>,
    own: Option<Arc<Own>>,
}

/// A server of the lead's own.
#[derive(Debug)]
struct Own {
    attach: String,
    /// Both ends of what the lead's stand-in reads; it opens the one through `/proc`, and ends when the
    /// other is gone.
    _shown: (PipeReader, PipeWriter),
}

#[derive(Debug)]
struct Waiting {
    request: PaneRequest,
    reply: oneshot::Sender<Result<OpenPane, PaneError>>,
}

impl Panes {
    /// Panes beside the one that this lead runs in, as its environment `vars` says.
    ///
    /// # Errors
    /// [`PaneError::NotInside`], [`PaneError::NoProgram`], [`PaneError::TooOld`],
    /// [`PaneError::ServerGone`], [`PaneError::NoAnswer`], [`PaneError::SeatGone`].
    pub async fn inside(vars: &[(String, String)]) -> Result<Self, PaneError> {
        let (Some(tmux), Some(pane)) = (program::value(vars, "TMUX"), program::value(vars, "TMUX_PANE")) else {
            return Err(PaneError::NotInside);
        };
        // Socket, pid of the server, number of the session: the first may have commas itself.
        let socket = tmux.rsplitn(3, ',').nth(2).ok_or(PaneError::NotInside)?;
        let server = TmuxServer::at(PathBuf::from(socket), vars).await?;
        look_around(&server, pane).await?;
        Ok(Self::new(server, pane, None))
    }

    /// Panes on a server of this lead's own, which takes no configuration file. `vars` is the lead's
    /// environment.
    ///
    /// # Errors
    /// [`PaneError::NoProgram`], [`PaneError::TooOld`], [`PaneError::Refused`], [`PaneError::Start`].
    pub async fn private(vars: &[(String, String)]) -> Result<Self, PaneError> {
        let program = program::find(vars).await?;
        let pid = std::process::id();
        let shown = std::io::pipe()
            .and_then(|(reader, mut writer)| {
                writeln!(writer, "Agents of lead (pid {pid}) open here.")?;
                Ok((reader, writer))
            })
            .map_err(|e| PaneError::Refused { said: e.to_string() })?;
        let source = format!("/proc/{pid}/fd/{}", shown.0.as_raw_fd());
        let mut said = String::new();
        for number in 1..=NAMES {
            let name = if number == 1 { format!("lead-{pid}") } else { format!("lead-{pid}-{number}") };
            let mut args = vec!["-u", "-L", &name, "-f", "/dev/null", "new-session", "-d"];
            args.extend(SESSION);
            args.extend(["-P", "-F", "lead:own #{pane_id} #{socket_path}", "--", "sh", "-c", STAND_IN, &source]);
            tracing::debug!(?args, "tmux");
            let captured = program::run(&program, &args, vars, "").await?;
            let answer = Answer::new(&captured.output);
            let own = answer.tagged("own").next().unwrap_or_default();
            if let [seat, socket @ ..] = &own[..]
                && !socket.is_empty()
            {
                let socket = PathBuf::from(socket.join(" "));
                let attach = attach(&name, &socket);
                let server = TmuxServer::at(socket, vars).await?;
                return Ok(Self::new(server, seat, Some(Own { attach, _shown: shown })));
            }
            said = answer.complaints();
            if !said.contains("duplicate session") {
                break;
            }
        }
        Err(PaneError::Refused { said })
    }

    fn new(server: TmuxServer, seat: &str, own: Option<Own>) -> Self {
        let (requests, waiting) = mpsc::channel(PANES_WAITING);
        tokio::spawn(serve(server.clone(), seat.to_owned(), waiting));
        Self { server, seat: seat.into(), requests, own: own.map(Arc::new) }
    }

    /// The server that the panes are on.
    pub fn server(&self) -> &TmuxServer {
        &self.server
    }

    /// The id of the lead's pane, or of the one that stands for it.
    pub fn seat(&self) -> &str {
        &self.seat
    }

    /// The command by which a person sees the panes, if they are on a server of their own.
    pub fn attach(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.attach.as_str())
    }

    /// Opens a pane, out of the way of whoever looks at another window or pane. If this future is
    /// dropped, the pane is closed again.
    ///
    /// # Errors
    /// [`PaneError`]; nothing is left open then, unless tmux did not answer in time.
    pub async fn open(&self, request: PaneRequest) -> Result<OpenPane, PaneError> {
        request.check()?;
        let (reply, answer) = oneshot::channel();
        let ending = || PaneError::Refused { said: "this lead is ending".to_owned() };
        self.requests.send(Waiting { request, reply }).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    }

    /// Brings a hidden pane back beside the others, or leaves it where it is if there is no room.
    ///
    /// # Errors
    /// [`PaneError::NotTheirs`], [`PaneError::ServerGone`], [`PaneError::NoAnswer`],
    /// [`PaneError::SeatGone`].
    pub async fn unhide(&self, pane: &str, agent: &str) -> Result<(), PaneError> {
        let found = self.server.found_theirs(pane, agent).await?;
        let mut around = look_around(&self.server, &self.seat).await?;
        if around.windows.iter().any(|w| w.target == found.window) {
            return Ok(());
        }
        let at = place(&mut around.windows, std::slice::from_ref(&found.window))[0];
        let taker = &around.windows[at].target;
        let mut script = Script::default();
        window::prepare(&mut script, taker, &self.seat);
        if *taker != found.window {
            window::tile(&mut script, taker);
            script.add(["join-pane", "-d", "-s", pane, "-t", &format!("{taker}.{{bottom-right}}")]);
            window::tile(&mut script, taker);
        }
        self.server.run(&script).await.map(|_| ())
    }

    /// Removes the server if it is this lead's own, with all that is on it.
    ///
    /// # Errors
    /// [`PaneError::NoAnswer`], [`PaneError::Start`].
    pub async fn end(&self) -> Result<(), PaneError> {
        if self.own.is_none() {
            return Ok(());
        }
        let mut script = Script::default();
        script.add(["kill-server"]);
        match self.server.run(&script).await {
            Ok(_) | Err(PaneError::ServerGone { .. }) => {}
            Err(e) => return Err(e),
        }
        // tmux leaves it behind.
        let _ = std::fs::remove_file(self.server.socket());
        Ok(())
    }
}

/// By the name if that leads to the socket from any terminal of this user.
fn attach(name: &str, socket: &std::path::Path) -> String {
    let usual = PathBuf::from(format!("/tmp/tmux-{}", nix::unistd::getuid())).join(name);
    if socket == usual { format!("tmux -L {name} attach") } else { format!("tmux -S {} attach", socket.display()) }
}

/// Opens what waits until nobody can ask for more.
async fn serve(server: TmuxServer, seat: String, mut waiting: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, TOGETHER).await > 0 {
        batch.retain(|w| !w.reply.is_closed());
        let requests: Vec<&PaneRequest> = batch.iter().map(|w| &w.request).collect();
        let mut results = match requests.len() {
            0 => continue,
            count => open(&server, &seat, &requests).await.unwrap_or_else(|e| vec![Err(e); count]),
        };
        let is_alone = requests.len() == 1;
        for (request, result) in requests.iter().zip(&mut results) {
            // Alone, so that what tmux says is of this one.
            if !is_alone && matches!(result, Err(PaneError::Refused { .. } | PaneError::Unfit { .. })) {
                *result = open(&server, &seat, &[request]).await.and_then(|mut one| one.swap_remove(0));
            }
        }
        for (Waiting { request, reply }, result) in batch.drain(..).zip(results) {
            // Nobody knows of a pane whose asker has gone.
            if let Err(Ok(unwanted)) = reply.send(result) {
                let _ = server.close(&unwanted.id, &request.agent).await;
            }
        }
    }
}
