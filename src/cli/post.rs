//! How a message gets to an agent, a session or an address (spec 2.3, 7.2): by the agent's lead if
//! there is one, else to the agent itself; an agent that has ended and has no lead is resumed with it.
//! Used by `lead send` and `lead attach`. Every request has its deadline.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::timeout;

use super::args::RunArgs;
use super::caller::refuse_silent_agents;
use super::ended::{Fate, Lead, appears, fate, session_of};
use super::error::CliError;
use super::folders::Folders;
use super::lookup::{Subject, Target, find_subject};
use super::owner::lead_of;
use super::stand_in::{Act, options_of};
use crate::core::frame::{Delivered, Delivery, Frame, Prompt};
use crate::core::ids::SessionId;
use crate::core::limits::deadlines;
use crate::core::paths::SessionFiles;
use crate::lead::{LeadError, stand_in};
use crate::store::lock::wait_shared;
use crate::store::runtime::{Registered, RuntimeDir, find_alive};
use crate::store::session::read_meta;
use crate::store::watch::Watch;
use crate::wire::{WireError, dial_and_greet, parse_address};

/// How long it is tried to deliver (it just ended) and to resume (it just came back). Not so many times,
/// as a lead does it: verbs contend with each other for the session, and one may lose again and again.
const TRIES_TIME: Duration = Duration::from_secs(5);

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Duplicate guard: the same however often it is tried.
    pub id: String,
    pub text: String,
    pub summary: Option<String>,
    /// A lead takes it in at the next step of its running turn.
    pub now: bool,
}

/// For whom it is.
#[derive(Clone, Debug)]
pub(super) enum Recipient {
    /// Whoever listens at this address.
    Address(String),
    Known(Subject),
}

/// What became of a message (formats A).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SendRow {
    /// `delivered`, `queued`, `resumed`, `refused`.
    pub outcome: String,
    /// As the recipient was named.
    pub to: String,
    /// The agent or session it is.
    pub id: String,
    pub message: String,
}

/// Finds whom `text` means.
pub(super) fn recipient(text: &str, folders: &Folders, registered: &[Registered]) -> Result<Recipient, CliError> {
    let text = text.trim();
    if text.contains(':') {
        // What is wrong with it is told before anything is sent.
        parse_address(text).map_err(|e| CliError::usage(e.to_string()))?;
        return Ok(Recipient::Address(text.to_owned()));
    }
    find_subject(text, folders, registered).map(Recipient::Known)
}

/// Sends `message`; `named` is how the recipient was named. Refusals are rows, too.
pub(super) async fn post(
    message: &Message,
    named: &str,
    to: &Recipient,
    folders: &Folders,
    dir: &RuntimeDir,
) -> Result<SendRow, CliError> {
    refuse_silent_agents(dir)?;
    let row = |id: &str, delivered: Delivered| SendRow {
        // One that is ending takes nothing in any more.
        outcome: if delivered.outcome == ENDED { "refused".to_owned() } else { delivered.outcome },
        to: named.to_owned(),
        id: id.to_owned(),
        message: delivered.message,
    };
    match to {
        Recipient::Address(address) => {
            let (id, delivered) = hand_over(address, message, None, deadlines().reply).await?;
            Ok(row(&id, delivered))
        }
        Recipient::Known(Subject::Session(id, _)) => {
            let lead = find_alive(dir, |e| e.role == "lead" && e.session == id.as_str())?;
            let lead = lead.ok_or_else(|| CliError::NoLead(id.clone()))?;
            let (id, delivered) = hand_over(&lead.entry.address, message, None, deadlines().reply).await?;
            Ok(row(&id, delivered))
        }
        Recipient::Known(Subject::Agent(target)) => {
            let delivered = to_agent(message, target, folders, dir).await?;
            Ok(row(target.id.as_str(), delivered))
        }
    }
}

/// What a process answers whose run is over.
const ENDED: &str = "ended";

/// Who listens at an address, and what it says to the message.
async fn hand_over(
    address: &str,
    message: &Message,
    to: Option<&Target>,
    patience: Duration,
) -> Result<(String, Delivered), CliError> {
    let path = parse_address(address).map_err(WireError::from)?;
    let (link, _inbox, entry) = dial_and_greet(&path, "shell", "").await?;
    let delivery = Delivery {
        notify_idle: false,
        msg_id: message.id.clone(),
        to: to.map(|target| target.id.to_string()),
        text: message.text.clone(),
        summary: message.summary.clone(),
        from: None,
        now: message.now,
    };
    match link.request(Frame::Deliver(delivery), patience).await? {
        Frame::Delivered(delivered) => Ok((entry.agent_id, delivered)),
        Frame::Error { message, .. } => Err(CliError::Refused(message)),
        _ => Err(WireError::Malformed(format!("{address} answered something else")).into()),
    }
}

/// What one try came to.
enum Tried {
    Done(Delivered),
    /// It was ending, or coming back: the next try finds it so.
    Again,
}

async fn to_agent(
    message: &Message,
    target: &Target,
    folders: &Folders,
    dir: &RuntimeDir,
) -> Result<Delivered, CliError> {
    let files = target.files.clone();
    if !blocking(move || appears(&files)).await? {
        return Err(CliError::NeverStarted(target.id.clone()));
    }
    let begun = Instant::now();
    while begun.elapsed() < TRIES_TIME {
        if let Tried::Done(delivered) = try_once(message, target, folders, dir).await? {
            return Ok(delivered);
        }
    }
    let message = format!("{} ends and comes back all the time; try again", target.id);
    Ok(Delivered { outcome: "refused".to_owned(), message })
}

async fn try_once(message: &Message, target: &Target, folders: &Folders, dir: &RuntimeDir) -> Result<Tried, CliError> {
    let watch = Watch::open(dir)?;
    let session = session_of(&target.files);
    if let Some(lead) = lead_of(&target.id, &target.files, dir)? {
        // It may have to start a process for it.
        return match hand_over(&lead.entry.address, message, Some(target), deadlines().resume).await {
            Ok((_, delivered)) => Ok(Tried::Done(delivered)),
            // It is just going: whoever has the session then is asked.
            Err(error) if is_gone(&error) => changed(watch).await,
            Err(error) => Err(error),
        };
    }
    if let Some(found) = find_alive(dir, |e| e.agent_id == target.id.as_str())? {
        return match hand_over(&found.entry.address, message, None, deadlines().reply).await {
            Ok((_, delivered)) if delivered.outcome != ENDED => Ok(Tried::Done(delivered)),
            Err(error) if !is_gone(&error) => Err(error),
            // The run is over but for its last steps.
            _ => {
                let path = target.files.transcript().to_owned();
                let gone = timeout(deadlines().reply, blocking(move || Ok(wait_shared(&path)?))).await;
                gone.map_or(Ok(Tried::Again), |gone| gone.map(|()| Tried::Again))
            }
        };
    }
    if let Some((name, team)) = target.id.as_member() {
        let message = format!("{name} has ended; `lead team add {team} {name} --resume` brings it back");
        return Ok(Tried::Done(Delivered { outcome: "refused".to_owned(), message }));
    }
    let Some(session) = session else { return Err(CliError::NeverStarted(target.id.clone())) };
    // Whose run died without an end gets one first, with what its tools had left.
    let (dead, runtime) = (target.clone(), dir.clone());
    if blocking(move || fate(&dead, &runtime, Lead::IsOut)).await? == Fate::NeverStarted {
        return Err(CliError::NeverStarted(target.id.clone()));
    }
    match resume(message, target, &session, folders).await? {
        Some(delivered) => Ok(Tried::Done(delivered)),
        None => {
            // It holds its transcript and is about to register, or to exit.
            changed(watch).await
        }
    }
}

/// Waits until somebody came, went or said something; a while at the most.
async fn changed(watch: Watch) -> Result<Tried, CliError> {
    blocking(move || Ok(watch.wait(deadlines().status)?)).await?;
    Ok(Tried::Again)
}

fn is_gone(error: &CliError) -> bool {
    matches!(error, CliError::Wire(WireError::Closed | WireError::Unreachable { .. }))
}

/// Continues an agent that has ended, in place of a lead. None = it runs, or it has a lead by now.
async fn resume(
    message: &Message,
    target: &Target,
    session: &SessionId,
    folders: &Folders,
) -> Result<Option<Delivered>, CliError> {
    let meta = read_meta(&target.files)?;
    let path = target.files.session_transcript().filter(|path| path.is_file());
    let path = path.ok_or_else(|| CliError::NoSession(session.to_string()))?;
    // As it was started, and never with more than that.
    let flags = RunArgs { model: meta.model, permission_mode: meta.permission_mode, ..RunArgs::default() };
    let options = options_of(Act::Resume, session, &SessionFiles::of(path), flags, folders)?;
    let prompt = Prompt { text: message.text.clone(), msg_id: Some(message.id.clone()), from: "user".to_owned() };
    match stand_in::resume(options, &target.id, prompt).await {
        Ok(delivered) => Ok(delivered),
        Err(LeadError::Running { owner: Some(_), .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| {
        Err(CliError::System { action: "wait for the agent", source: std::io::Error::other(panic) })
    })
}
