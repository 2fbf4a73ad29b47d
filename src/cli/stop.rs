//! `lead stop` and `lead kill`: ask the lead of an agent to stop it; where there is none that answers,
//! they climb the ladder themselves, `kill` from SIGKILL on. A background shell is stopped by whoever
//! runs it. Every request has its deadline, so nothing that is frozen holds them up. `lead reap` ends
//! orphans by the same way.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::timeout_at;

use super::caller::refuse_agents;
use super::ended::{Fate, Lead, fate};
use super::ended_row::EndedRow;
use super::error::{CliError, Exit, with_causes};
use super::folders::Folders;
use super::lookup::{Target, find_agent, ours};
use super::output::{self, Output};
use super::owner::{lead_of, tidy_team};
use super::stop_shell::{find_shell, stop_shell};
use crate::core::frame::{Frame, Hello, PROTOCOL, build};
use crate::core::limits::deadlines;
use crate::proc::{Ladder, LadderAction, LadderEvent, PidFd, Process, Rung};
use crate::store::lock::{is_held, wait_shared};
use crate::store::reader::tail;
use crate::store::runtime::{Registered, RuntimeDir, find_alive};
use crate::store::session::{mark_stop, read_meta};
use crate::wire::{Link, dial, dial_and_greet, parse_address};

/// Arguments of `lead stop` and `lead kill`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 ended, 3 not running or refused, 4 unknown, 5 still running when the time was over."
)]
pub(super) struct StopArgs {
    /// Agents or background commands to end: ids, beginnings of ids, or names of agents
    #[arg(required = true, value_name = "AGENT")]
    agents: Vec<String>,
    /// Wait this long for their end, such as 20s
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print JSON: an array with a row for each agent
    #[arg(long)]
    pub json: bool,
}

/// How an agent is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It is asked first.
    Stop,
    /// By SIGKILL.
    Kill,
    /// As an orphan: it is asked first.
    Reap,
}

impl How {
    /// As its outcome says it.
    fn reason(self) -> &'static str {
        match self {
            Self::Stop => "stopped by lead stop",
            Self::Kill => "killed by lead kill",
            Self::Reap => "stopped by lead reap: its lead was gone",
        }
    }

    fn rung(self) -> Rung {
        match self {
            Self::Stop | Self::Reap => Rung::Ask,
            Self::Kill => Rung::Kill,
        }
    }
}

pub(super) fn run(args: &StopArgs, how: How, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    refuse_agents(&dir, if how == How::Kill { "kill agents" } else { "stop agents" })?;
    let registered = ours(folders, &dir)?;
    let runtime = async_runtime()?;
    let deadline = Instant::now() + args.timeout;
    let ended = runtime.block_on(async {
        let mut stops = Vec::new();
        for text in &args.agents {
            stops.push((text, begin(text, how, folders, &registered, &dir, deadline, args.timeout)));
        }
        let mut ended = Vec::new();
        for (text, stop) in stops {
            ended.push(match stop {
                Ok((id, stop)) => (id, stop.await.unwrap_or_else(|panic| Err(panicked(panic)))),
                Err(error) => (text.clone(), Err(error)),
            });
        }
        ended
    });
    // Waits for locks that nobody needs any more must not hold the exit up.
    runtime.shutdown_background();
    print(ended, args.json, out)
}

type Begun = (String, tokio::task::JoinHandle<Result<EndedRow, CliError>>);

/// Begins to stop what `text` means, in a task.
fn begin(
    text: &str,
    how: How,
    folders: &Folders,
    registered: &[Registered],
    dir: &RuntimeDir,
    deadline: Instant,
    waited: Duration,
) -> Result<Begun, CliError> {
    match find_agent(text, folders, registered) {
        Ok(target) => {
            let id = target.id.to_string();
            let stop = Stop { target, how, dir: dir.clone(), deadline, waited };
            Ok((id, tokio::spawn(stop.run())))
        }
        // An agent may have such a name, so that is looked for first.
        Err(CliError::NoAgent(text)) => match find_shell(&text, registered)? {
            Some(target) => {
                let id = target.id.to_string();
                Ok((id, tokio::spawn(stop_shell(target, how.reason(), deadline, waited))))
            }
            None => Err(CliError::NoAgent(text)),
        },
        Err(error) => Err(error),
    }
}

fn panicked(panic: tokio::task::JoinError) -> CliError {
    CliError::System { action: "stop it", source: std::io::Error::other(panic) }
}

fn print(ended: Vec<(String, Result<EndedRow, CliError>)>, json: bool, out: &mut Output) -> Result<Exit, CliError> {
    // One that is asked for alone fails like any other command.
    let (rows, errors): (Vec<EndedRow>, Vec<CliError>) = match <[_; 1]>::try_from(ended) {
        Ok([(_, one)]) => (vec![one?], Vec::new()),
        Err(several) => {
            let (mut rows, mut errors) = (Vec::new(), Vec::new());
            for (id, one) in several {
                rows.push(one.unwrap_or_else(|error| {
                    let row = EndedRow::without_outcome(&id, status_of(&error), Some(with_causes(&error)));
                    errors.push(error);
                    row
                }));
            }
            (rows, errors)
        }
    };
    if json {
        out.json(&rows)?;
    } else {
        errors.iter().for_each(|error| output::tell(&error.for_person()));
        // Shells have no runs.
        rows.iter().filter(|r| r.run.is_some() || r.status == "killed").try_for_each(|row| out.line(&row.line()))?;
    }
    let worst = errors.iter().map(CliError::exit).max_by_key(|exit| match exit {
        Exit::TimedOut => 3,
        Exit::NotFound => 2,
        _ => 1,
    });
    Ok(worst.unwrap_or(Exit::Success))
}

fn status_of(error: &CliError) -> &'static str {
    match error {
        CliError::TimedOut { .. } => "running",
        CliError::NotRunning { .. } => "ended",
        _ => "unknown",
    }
}

/// A runtime for a verb's requests.
pub(super) fn async_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|source| CliError::System { action: "start the runtime", source })
}

/// One agent on its way to its end.
pub(super) struct Stop {
    pub target: Target,
    pub how: How,
    pub dir: RuntimeDir,
    /// When waiting for it is given up, and how long that is from the beginning.
    pub deadline: Instant,
    pub waited: Duration,
}

impl Stop {
    /// Ends it; how it ended.
    pub(super) async fn run(self) -> Result<EndedRow, CliError> {
        let path = self.target.files.transcript();
        if !path.exists() || !is_held(path)? {
            return self.not_running().await;
        }
        let lead = if self.ask_its_lead().await? { Lead::MayRecord } else { Lead::IsOut };
        if lead == Lead::IsOut {
            self.climb().await?;
        }
        loop {
            self.wait_until_gone().await?;
            match self.fate(lead).await? {
                Fate::Ended(outcome) => {
                    if lead == Lead::IsOut {
                        let (target, note) = (self.target.clone(), self.how.reason());
                        let tidied = tokio::task::spawn_blocking(move || tidy_team(&target.id, &target.files, note));
                        tidied.await.map_err(panicked)?;
                    }
                    return Ok(EndedRow::of(&outcome, read_meta(&self.target.files).ok().as_ref()));
                }
                Fate::NeverStarted => return Err(CliError::NeverStarted(self.target.id)),
                // Whoever records the end holds the transcript's lock for a moment, as an agent does.
                Fate::Running => {}
            }
        }
    }

    async fn not_running(self) -> Result<EndedRow, CliError> {
        match self.fate(Lead::MayRecord).await? {
            Fate::Ended(outcome) => Err(CliError::NotRunning { id: self.target.id, status: outcome.status }),
            Fate::NeverStarted | Fate::Running => Err(CliError::NeverStarted(self.target.id)),
        }
    }

    async fn fate(&self, lead: Lead) -> Result<Fate, CliError> {
        let (target, dir) = (self.target.clone(), self.dir.clone());
        let found = tokio::task::spawn_blocking(move || fate(&target, &dir, lead));
        found.await.map_err(panicked)?
    }

    fn timed_out(&self) -> CliError {
        CliError::TimedOut { what: format!("agent {} is still running", self.target.id), waited: self.waited }
    }

    /// True if its lead has taken the request. A lead that does not answer is as good as none.
    async fn ask_its_lead(&self) -> Result<bool, CliError> {
        let Some(lead) = lead_of(&self.target.id, &self.target.files, &self.dir)? else { return Ok(false) };
        let kill = self.how == How::Kill;
        let stop = Frame::Stop { id: Some(self.target.id.clone()), kill, reason: self.how.reason().to_owned() };
        let asked = async {
            let path = parse_address(&lead.entry.address)?;
            let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
            link.request(stop, deadlines().reply).await
        };
        match asked.await {
            Ok(Frame::Done) => Ok(true),
            Ok(Frame::Error { code, message }) if code == "refused" => Err(CliError::Refused(message)),
            // It does not know the agent (any more): then it is nobody's.
            Ok(_) => Ok(false),
            Err(error) => {
                let id = &self.target.id;
                output::tell(&format!("lead: the lead of {id} can't stop it: {error}; going on without its lead"));
                Ok(false)
            }
        }
    }

    /// Marker, request, SIGTERM, SIGKILL; returns when the process is gone or nothing helps.
    async fn climb(&self) -> Result<(), CliError> {
        let id = self.target.id.as_str();
        let Some(found) = find_alive(&self.dir, |e| e.agent_id == id)? else { return Ok(()) };
        self.mark(&found)?;
        let path = parse_address(&found.entry.address).map_err(crate::wire::WireError::from)?;
        // Connecting needs no help of the process, be it frozen; a greeting would.
        let (process, link) = match dial(&path, deadlines().status).await {
            Ok((link, _inbox)) => (hold(&found, Some(&link))?, Some(link)),
            Err(_) => (hold(&found, None)?, None),
        };
        let rung = if link.is_some() { self.how.rung() } else { self.how.rung().max(Rung::Term) };
        // Without its socket the hold is on whoever has its pid: which is it, as long as it lives.
        if find_alive(&self.dir, |e| e.agent_id == id && e.pid == found.entry.pid)?.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let mut ladder = Ladder::new(rung, now);
        let mut action = ladder.next(LadderEvent::Started, now);
        loop {
            match action {
                LadderAction::AskStop => {
                    if let Some(link) = link.clone() {
                        tokio::spawn(ask(link, self.how.reason()));
                    }
                }
                LadderAction::TermGroup => report(process.terminate()),
                LadderAction::KillGroup => report(process.kill()),
                LadderAction::Wait => {}
                LadderAction::Done | LadderAction::GiveUp => return Ok(()),
            }
            let Some(at) = ladder.deadline() else { return Ok(()) };
            let event = match timeout_at(at.into(), process.wait()).await {
                Ok(_) => LadderEvent::Exited,
                Err(_) => LadderEvent::DeadlinePassed,
            };
            action = ladder.next(event, Instant::now());
        }
    }

    /// Before the first signal, so that the end is told as a stop and not as a crash.
    fn mark(&self, found: &Registered) -> Result<(), CliError> {
        let run = match &found.state {
            Some(state) => state.run,
            None => tail(self.target.files.transcript())?.last_run,
        };
        mark_stop(&self.target.files, run, self.how.reason())?;
        crate::core::fault::point(crate::core::fault::Fault::MarkerBeforeSignal);
        Ok(())
    }

    async fn wait_until_gone(&self) -> Result<(), CliError> {
        let path = self.target.files.transcript().to_path_buf();
        let gone = tokio::task::spawn_blocking(move || wait_shared(&path));
        match timeout_at(self.deadline.into(), gone).await {
            Ok(gone) => Ok(gone.map_err(panicked)??),
            Err(_) => Err(self.timed_out()),
        }
    }
}

/// A hold on the process: through its socket if there is a connection, else by its pid.
fn hold(found: &Registered, link: Option<&Link>) -> Result<Process, CliError> {
    let failed = |source| CliError::System { action: "watch the agent's process", source };
    let pid = found.entry.pid;
    let of_peer = link.map(Link::peer).filter(|peer| peer.pid == pid).and_then(|peer| peer.pidfd.as_ref());
    let pidfd = match of_peer {
        Some(pidfd) => PidFd::from_peer(pidfd),
        None => PidFd::open(pid),
    };
    Ok(Process::adopt(pid, pidfd.map_err(failed)?))
}

async fn ask(link: Link, reason: &'static str) {
    let hello = Hello { protocol: PROTOCOL, build: build().to_owned(), role: "shell".to_owned(), id: String::new() };
    let stop = Frame::Stop { id: None, kill: false, reason: reason.to_owned() };
    // Whether it answers does not matter: the ladder goes on by the clock and by its end.
    if link.request(Frame::Hello(hello), deadlines().stop_ask).await.is_ok() {
        let _ = link.request(stop, deadlines().stop_ask).await;
    }
}

fn report(sent: std::io::Result<bool>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "a signal was not sent");
    }
}
