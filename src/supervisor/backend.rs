//! What runs an agent's process: nothing but the system, or a tmux pane (spec 3.6). From the hello on
//! there is no difference.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use super::error::LaunchError;
use super::launch::Launcher;
use super::panes::{OpenPane, PaneRequest, PaneState, Panes, TmuxServer};
use crate::core::env::Vars;
use crate::core::frame::Hello;
use crate::core::ids::AgentId;
use crate::core::limits::deadlines;
use crate::core::paths::AgentFiles;
use crate::core::text::with_causes;
use crate::model::BoxFuture;
use crate::proc::{Exit, PidFd, Process, deadline, spawn_agent};
use crate::wire::{Connection, Inbox, Link, PeerStream};

/// A process that is wanted.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whose.
    pub id: AgentId,
    /// The program, by its full path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Its environment.
    pub environment: Vars,
    /// Where its log is.
    pub files: AgentFiles,
    /// When it must have said hello.
    pub until: Instant,
}

/// A process that was started, and the link to it.
pub struct Begun {
    /// The process.
    pub process: Process,
    /// To it.
    pub link: Link,
    /// What it says.
    pub inbox: Inbox,
    /// Its hello, if it has said it already.
    pub hello: Option<Hello>,
    /// Its pane.
    pub pane: Option<PanePlace>,
}

/// Where an agent's pane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanePlace {
    /// The server's socket.
    pub socket: PathBuf,
    /// Its id, such as `%7`.
    pub id: String,
    /// Names of its session and window when it was opened; empty if that is not known any more.
    pub shown: (String, String),
}

/// Starts agents' processes.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Starts one. On error nothing of it is left running.
    fn start(&self, order: Order) -> BoxFuture<'_, Result<Begun, LaunchError>>;
}

/// Without a terminal: the link is the child's fd 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headless;

impl Backend for Headless {
    fn start(&self, order: Order) -> BoxFuture<'_, Result<Begun, LaunchError>> {
        Box::pin(async move {
            let Order { program, arguments, cwd, environment, files, .. } = order;
            let spawned = spawn_agent(&program, &arguments, &cwd, &environment, &files.log())
                .map_err(|e| LaunchError::Start { program, reason: with_causes(&e) })?;
            let process = spawned.process;
            let (link, inbox) = Connection::start(PeerStream::of_child(spawned.link, process.pid(), None));
            Ok(Begun { process, link, inbox, hello: None, pane: None })
        })
    }
}

/// An agent that connected to its parent.
#[derive(Debug)]
pub struct Newborn {
    /// To it.
    pub link: Link,
    /// What it says.
    pub inbox: Inbox,
    /// What it said first.
    pub hello: Hello,
}

/// Agents whose processes somebody else starts, until they say hello. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Nursery(Arc<Mutex<HashMap<AgentId, oneshot::Sender<Newborn>>>>);

impl Nursery {
    fn waiting(&self) -> MutexGuard<'_, HashMap<AgentId, oneshot::Sender<Newborn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, id: &AgentId) -> oneshot::Receiver<Newborn> {
        let (sender, receiver) = oneshot::channel();
        self.waiting().insert(id.clone(), sender);
        receiver
    }

    /// Takes in who says hello; false if nobody waits for it. Whether it is the process that was started
    /// is for who waits.
    pub fn arrive(&self, newborn: Newborn) -> bool {
        let id = AgentId::parse(&newborn.hello.id);
        let waiting = id.and_then(|id| self.waiting().remove(&id));
        waiting.is_some_and(|waiting| waiting.send(newborn).is_ok())
    }
}

/// In panes of tmux: the process connects to the lead's own socket.
#[derive(Clone, Debug)]
pub struct InPanes {
    /// Where they open.
    pub panes: Panes,
    /// Who takes in what says hello.
    pub nursery: Nursery,
    /// The lead's address.
    pub parent: String,
    /// The colour of its border.
    pub colour: String,
}

impl Backend for InPanes {
    fn start(&self, order: Order) -> BoxFuture<'_, Result<Begun, LaunchError>> {
        Box::pin(async move {
            let arrival = self.nursery.expect(&order.id);
            let begun = self.open(&order, arrival).await;
            self.nursery.waiting().remove(&order.id);
            begun
        })
    }
}

impl InPanes {
    async fn open(&self, order: &Order, arrival: oneshot::Receiver<Newborn>) -> Result<Begun, LaunchError> {
        let mut arguments = vec!["--parent".to_owned(), self.parent.clone()];
        arguments.extend(order.arguments.iter().cloned());
        let opened = self
            .panes
            .open(PaneRequest {
                agent: order.id.as_str().to_owned(),
                title: order.id.as_member().map_or(order.id.as_str(), |(name, _)| name).to_owned(),
                colour: self.colour.clone(),
                cwd: order.cwd.clone(),
                environment: order.environment.clone(),
                program: order.program.clone(),
                arguments,
            })
            .await?;
        let OpenPane { id, pid, session, window, socket } = opened;
        let place = PanePlace { socket, id, shown: (session, window) };
        let mut guard = CloseOnDrop { server: self.panes.server().clone(), place: Some(place), id: order.id.clone() };
        let newborn = self.hello_of(pid, order, &mut guard, arrival).await?;
        let process = PidFd::open(pid).map(|pidfd| Process::adopt(pid, pidfd));
        let process =
            process.map_err(|e| LaunchError::Start { program: order.program.clone(), reason: e.to_string() })?;
        let Newborn { link, inbox, hello } = newborn;
        Ok(Begun { process, link, inbox, hello: Some(hello), pane: guard.place.take() })
    }

    /// Waits for the hello of the pane's own process. One of another process, whoever that is, does not
    /// count.
    async fn hello_of(
        &self,
        pid: i32,
        order: &Order,
        guard: &mut CloseOnDrop,
        arrival: oneshot::Receiver<Newborn>,
    ) -> Result<Newborn, LaunchError> {
        let log = || Launcher::log_tail(&order.files);
        let process = match PidFd::open(pid) {
            Ok(pidfd) => Process::adopt(pid, pidfd),
            Err(_) => return Err(LaunchError::Died { pid, exit: guard.exit().await, log: log() }),
        };
        tokio::select! {
            newborn = arrival => match newborn {
                Ok(newborn) if newborn.link.peer().pid == pid => Ok(newborn),
                Ok(stranger) => {
                    let reason = format!("process {} said hello in the name of its pane", stranger.link.peer().pid);
                    Err(LaunchError::Start { program: order.program.clone(), reason })
                }
                Err(_) => Err(LaunchError::Stopped),
            },
            _ = process.wait() => Err(LaunchError::Died { pid, exit: guard.exit().await, log: log() }),
            () = deadline(Some(order.until)) => {
                Err(LaunchError::NotReady { pid, waited: deadlines().ready, log: log() })
            }
        }
    }
}

/// A pane that nobody has been given yet.
struct CloseOnDrop {
    server: TmuxServer,
    place: Option<PanePlace>,
    id: AgentId,
}

impl CloseOnDrop {
    /// How the pane's program ended, in words.
    async fn exit(&self) -> String {
        let Some(place) = &self.place else { return "unknown".to_owned() };
        match self.server.check_ended(&place.id, self.id.as_str()).await {
            Ok(PaneState::Dead { status, signal }) => Exit { code: status, signal, known: true }.to_string(),
            Ok(PaneState::Gone) => "its pane is gone".to_owned(),
            _ => "unknown".to_owned(),
        }
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let (server, id) = (self.server.clone(), self.id.clone());
        tokio::spawn(async move {
            if let Err(error) = server.close(&place.id, id.as_str()).await {
                tracing::warn!(%id, "its pane is still there: {error}");
            }
        });
    }
}

/// Whether the pane of an agent that has ended stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It can be read what came before its end.
    IfItFailed,
    /// Its end was wanted.
    No,
}

/// How the program of a pane ended, once its process is gone, as far as tmux knows; closes the pane
/// unless it is to be kept.
pub(super) async fn pane_ended(id: &AgentId, place: &PanePlace, env: &[(String, String)], keep: Keep) -> Option<Exit> {
    let server = match TmuxServer::at(place.socket.clone(), env).await {
        Ok(server) => server,
        Err(error) => {
            tracing::warn!(%id, "its pane can't be looked at: {error}");
            return None;
        }
    };
    let exit = match server.check_ended(&place.id, id.as_str()).await {
        Ok(PaneState::Dead { status, signal }) => Some(Exit { code: status, signal, known: true }),
        Ok(PaneState::Alive { .. } | PaneState::Gone | PaneState::Foreign) => None,
        Err(error) => {
            tracing::info!(%id, "its pane can't be looked at: {error}");
            return None;
        }
    };
    if keep == Keep::IfItFailed && exit.as_ref().is_some_and(|exit| !exit.is_success()) {
        return exit;
    }
    if let Err(error) = server.close(&place.id, id.as_str()).await {
        tracing::warn!(%id, "its pane is still there: {error}");
    }
    exit
}
