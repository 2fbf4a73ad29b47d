//! The first steps of an agent's process: greet the parent, open the transcript, bind a socket,
//! register, be ready. The order is that of spec 5.4 and R037: nothing is announced before it works.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tokio::sync::mpsc;

use super::error::EndpointError;
use super::visitors::{Visit, receive_visitors};
use crate::core::agent::{LiveState, Owner, Progress, RegistryEntry, RowState};
use crate::core::clock;
use crate::core::fault::{self, Fault};
use crate::core::frame::{AgentConfig, Frame, Hello, PROTOCOL, Welcome, build};
use crate::core::limits::{self, deadlines};
use crate::core::text::with_causes;
use crate::store::StoreError;
use crate::store::atomic::Durability;
use crate::store::history::{History, resume};
use crate::store::runtime::{Registration, RuntimeDir};
use crate::store::transcript::TranscriptWriter;
use crate::wire::{Connection, Inbox, Link, Listener, PeerStream, WireError, address};

/// An agent that is about to say `Ready`.
pub struct Booted {
    /// What the parent said.
    pub welcome: Welcome,
    /// Owner link.
    pub link: Link,
    /// What comes over it.
    pub inbox: Inbox,
    /// Runtime folder.
    pub runtime: RuntimeDir,
    /// Own socket.
    pub socket: PathBuf,
    /// Own entry in the registry.
    pub registration: Registration,
    /// Runtime name.
    pub name: String,
    /// The transcript, locked.
    pub transcript: TranscriptWriter,
    /// What it holds from earlier runs.
    pub history: History,
    /// The state to publish once it has said that it is ready.
    pub state: LiveState,
    /// Requests from the own socket.
    pub visits: mpsc::Receiver<Visit>,
}

/// Boots an agent of `role` from the link its parent gave it.
pub async fn boot(stream: UnixStream, role: &str, id: &str) -> Result<Booted, EndpointError> {
    fault::point(Fault::StartBeforeHello);
    let (link, mut inbox) = Connection::start(PeerStream::from_std(stream)?);
    let hello = Hello { protocol: PROTOCOL, build: build().to_owned(), role: role.to_owned(), id: id.to_owned() };
    link.send(Frame::Hello(hello)).map_err(EndpointError::Handshake)?;
    let welcome = match tokio::time::timeout(deadlines().handshake, inbox.recv()).await {
        Ok(Some(incoming)) => match incoming.frame {
            Frame::Welcome(welcome) => *welcome,
            Frame::Refused { reason } => return Err(EndpointError::Refused(reason)),
            _ => return Err(EndpointError::Refused("the parent spoke before its welcome".to_owned())),
        },
        Ok(None) => return Err(EndpointError::Handshake(WireError::Closed)),
        Err(_) => {
            let error = WireError::TimedOut { what: "the parent".to_owned(), waited: deadlines().handshake, pid: None };
            return Err(EndpointError::Handshake(error));
        }
    };
    match open(&welcome, role) {
        Ok(opened) => {
            let (visit_sender, visits) = mpsc::channel(limits::LOOP_EVENTS);
            tokio::spawn(receive_visitors(opened.listener, opened.entry, visit_sender));
            Ok(Booted {
                welcome,
                link,
                inbox,
                runtime: opened.runtime,
                socket: opened.socket,
                registration: opened.registration,
                name: opened.name,
                transcript: opened.transcript,
                history: opened.history,
                state: opened.state,
                visits,
            })
        }
        Err(error) => {
            // The parent turns this into the error of the spawn; without it there would be only an
            // exit code.
            let _ = link.send(Frame::Refused { reason: with_causes(&error) });
            let _ = link.flush(deadlines().reply).await;
            Err(error)
        }
    }
}

struct Opened {
    runtime: RuntimeDir,
    socket: PathBuf,
    listener: Listener,
    entry: RegistryEntry,
    registration: Registration,
    name: String,
    transcript: TranscriptWriter,
    history: History,
    state: LiveState,
}

fn open(welcome: &Welcome, role: &str) -> Result<Opened, EndpointError> {
    let config = &welcome.config;
    let durability = Durability::parse(&config.durability);
    let (transcript, history) = open_transcript(config, durability)?;
    let runtime = RuntimeDir::open(&config.runtime_dir)?;
    let name = runtime.reserve_name();
    let socket = runtime.socket_path(&name);
    let listener = Listener::bind(&socket)?;
    let now = clock::now_ms();
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let entry = RegistryEntry {
        address: address(&socket),
        pid,
        role: role.to_owned(),
        agent_id: config.id.as_str().to_owned(),
        name: config.name.clone(),
        team: config.membership.as_ref().map(|m| m.team.clone()),
        session: config.session.as_str().to_owned(),
        cwd: config.cwd.to_string_lossy().into_owned(),
        config_dir: config.config_dir.to_string_lossy().into_owned(),
        started: now,
        version: build().to_owned(),
    };
    let state = LiveState {
        state: RowState::Running,
        owner: if welcome.owner == Owner::None { Owner::None } else { Owner::Lead },
        run: config.run,
        agent_type: config.agent_type.clone(),
        description: config.description.clone(),
        model: Some(config.model.clone()),
        waiting_for: None,
        transcript: config.transcript.to_string_lossy().into_owned(),
        worktree: None,
        since_ms: now,
        last_event_ms: now,
        progress: Progress::default(),
        shells: Vec::new(),
    };
    let registration = Registration::publish(&runtime, &name, &entry)?;
    Ok(Opened { runtime, socket, listener, entry, registration, name, transcript, history, state })
}

/// The first run creates the transcript; a later one takes its lock and reads what it holds.
fn open_transcript(config: &AgentConfig, durability: Durability) -> Result<(TranscriptWriter, History), StoreError> {
    if config.run == 1 {
        let transcript = TranscriptWriter::create(&config.transcript, durability)?;
        return Ok((transcript, History::default()));
    }
    let transcript = TranscriptWriter::open(&config.transcript, durability)?;
    if let Some(torn) = transcript.torn() {
        tracing::warn!(torn, "a torn last line was cut off");
    }
    let history = resume(&config.transcript)?;
    if history.last_run >= config.run {
        return Err(StoreError::Exists { path: config.transcript.clone() });
    }
    Ok((transcript, history))
}
