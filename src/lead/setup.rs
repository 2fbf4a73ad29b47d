//! Opens a session: transcript and its lock, socket, registry entry, tools. The order is that of
//! R037 and spec 4.4: nothing is announced before it works.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::cost::Ledger;
use super::error::LeadError;
use super::options::{SessionChoice, SessionOptions};
use super::owed::Owed;
use super::queue::Queue;
use super::report::Reported;
use super::roles::{background_disabled, definitions, main_role, variable};
use super::session::{Inner, Session, Sources};
use super::structured::{Given as GivenAnswer, StructuredOutput};
use super::told::{MainWitness, Setting, Streams, Teller};
use crate::agent::{Carried, Driver, Nobody, Parts, Toolbox};
use crate::core::agent::{LiveState, Owner, Progress, RegistryEntry, RowState};
use crate::core::clock;
use crate::core::entry::{Line, Mode as ModeLine, Place};
use crate::core::env;
use crate::core::frame::BUILD;
use crate::core::ids::SessionId;
use crate::core::limits;
use crate::core::paths::{SessionFiles, scratchpad};
use crate::core::provider::{Credentials, ProviderAccess};
use crate::endpoint::{QueuePort, receive_visitors, tool_environment};
use crate::model::{self, MeteredModel, Model, Named, ReadAt};
use crate::permission::Policy;
use crate::proc::{Signals, sweep};
use crate::settings::models::ResolvedModel;
use crate::store::StoreError;
use crate::store::atomic::{Durability, create_private_dir};
use crate::store::history::{History, conversation};
use crate::store::reader::tail;
use crate::store::runtime::{self, Registration, RuntimeDir, list};
use crate::store::session::{find_session, latest_session};
use crate::store::transcript::TranscriptWriter;
use crate::supervisor::{Given, Launcher, Supervisor, SupervisorParts};
use crate::tool::ToolContext;
use crate::wire::{Listener, address};

/// A session about to run.
pub(super) struct Opened {
    pub session: Session,
    pub sources: Sources,
    /// What the transcript holds; its messages were moved into the driver.
    pub history: History,
    /// Lines since the last boundary: outcomes and consumption are read from them.
    pub resumed: bool,
}

/// Opens the session that `options` names.
pub(super) fn open(mut options: SessionOptions, streams: Streams) -> Result<Opened, LeadError> {
    let signals =
        Signals::listen().map_err(|source| LeadError::System { action: "can't listen to signals", source })?;
    let runtime = RuntimeDir::open(&options.runtime_dir)?;
    // Tools of the dead go with their registry files: nobody else knows of them any more.
    runtime::sweep(&runtime, &mut |dead| drop(sweep(&dead.name, &[])))?;
    // What can't be used is found before anything of the session is made.
    let (environment, secrets) = env::split_for_agent(options.environment.iter().cloned());
    // The lead's own tools have all of it too: the settings' variables are not in its environment.
    let tools_vars = [environment.clone(), secrets.clone()].concat();
    let mut access = ProviderAccess::from_vars(|name| variable(&options, name).map(str::to_owned));
    access.retry = options.settings.lead.retry;
    let tell_lines = streams.listener.is_some();
    let launcher = Launcher::find("lead-worker", Given { environment, secrets, access: access.clone(), tell_lines })?;
    let model = open_model(&options, &access)?;
    let given = GivenAnswer::default();
    let structured = options.json_schema.as_ref().map(|s| StructuredOutput::new(s, Arc::clone(&given))).transpose()?;
    let durability = options.settings.lead.durability;
    let (id, files, resumed) = choose(&options)?;
    let (mut transcript, mut history) = open_transcript(&id, &files, resumed, durability, &runtime)?;
    let coordinator = resolve_mode(&mut options, &id, &mut transcript, &history, resumed)?;
    let scratchpad = make_scratchpad(&options, &id);
    let (policy, warnings) =
        Policy::new(options.mode, &options.rules, &options.cwd, scratchpad.as_deref(), options.home.as_deref(), false);
    // What its tools and agents left in files is the session's own to read.
    let policy = policy.with_readable(&[files.folder()]);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let place = Place {
        user_type: "external".to_owned(),
        entrypoint: "sdk-cli".to_owned(),
        cwd: options.cwd.to_string_lossy().into_owned(),
        session_id: id.as_str().to_owned(),
        version: BUILD.to_owned(),
        git_branch: git_branch(&options.cwd),
    };

    let name = runtime.reserve_name();
    let socket = runtime.socket_path(&name);
    let listener = Listener::bind(&socket)?;
    let role = main_role(&options, &policy, coordinator, scratchpad.as_deref(), structured);
    let (entry, state) = announcement(&options, &id, &files, &socket, &role.caller.agent_type);
    let registration = Registration::publish(&runtime, &name, &entry)?;
    registration.set_state(&state)?;
    let (visit_sender, visits) = mpsc::channel(limits::LOOP_EVENTS);
    tokio::spawn(receive_visitors(listener, entry, visit_sender));

    let (event_sender, events) = mpsc::channel(limits::LOOP_EVENTS);
    let (call_sender, calls) = mpsc::channel(limits::LOOP_EVENTS);
    let (supervisor_sender, supervised) = mpsc::channel(limits::LOOP_EVENTS);
    let (inner_sender, inner) = mpsc::channel::<Inner>(limits::LOOP_EVENTS);

    let tools_env = tool_environment(&tools_vars, id.as_str(), id.as_str(), &name, &address(&socket));
    let supervisor = Supervisor::new(SupervisorParts {
        launcher,
        config_dir: options.config_dir.clone(),
        session: id.clone(),
        session_files: files.clone(),
        runtime: runtime.clone(),
        stall_after: options.settings.lead.stall_after,
        max_alive: options.settings.lead.max_agents,
        max_total: options.settings.lead.max_agents_total,
        events: supervisor_sender,
    });
    let setting = setting(&options, coordinator, &role.toolbox, &access.credentials);
    let mut carried = Carried::of(&history);
    if coordinator {
        carried.note(&mode_line(&id));
    }
    let driver = Driver::new(Parts {
        place: place.clone(),
        agent: None,
        model: Arc::clone(&model) as Arc<dyn Model>,
        model_id: options.model.id.clone(),
        max_tokens: options.model.max_tokens,
        caller: role.caller,
        system: role.system,
        toolbox: role.toolbox,
        policy: policy.clone(),
        context: ToolContext {
            cwd: options.cwd.clone(),
            results: files.tool_results(),
            env: Arc::new(tools_env),
            cancel: tokio_util::sync::CancellationToken::new(),
            tool_use_id: String::new(),
            agents: Arc::new(QueuePort(call_sender)),
        },
        transcript,
        history: std::mem::take(&mut history.messages),
        last_uuid: history.last_uuid.clone(),
        carried,
        context_window: options.model.window,
        context_tokens: history.context_tokens,
        max_turns: options.max_turns,
        witness: match &streams.listener {
            Some(listener) => Arc::new(MainWitness { session: id.clone(), listener: Arc::clone(listener) }),
            None => Arc::new(Nobody),
        },
        events: event_sender,
    });
    let ledger = Ledger::new(options.settings.prices(), options.models.clone(), options.max_budget_usd);
    let session = Session {
        teller: Teller::new(id.clone(), setting, streams.listener),
        input_kind: streams.inputs.as_ref().map(|i| i.kind),
        inputs: streams.inputs,
        unusable: None,
        owed: Owed::default(),
        reported: Reported::nothing(),
        options,
        model,
        ledger,
        given,
        reminders: 0,
        switched: false,
        verdict: None,
        detached: None,
        id,
        files,
        place,
        runtime,
        runtime_name: name,
        registration: Some(registration),
        state,
        policy,
        scratchpad,
        coordinator,
        driver,
        queue: Queue::default(),
        supervisor,
        foreground: HashMap::new(),
        watchers: HashMap::new(),
        seen: history.seen_msg_ids.clone(),
        told: HashSet::new(),
        inner: inner_sender,
        quit: None,
        last_end: None,
        last_event: Instant::now(),
        published: Instant::now(),
        dirty: false,
    };
    let sources = Sources { events, calls, supervised, inner, visits, signals, unheard: streams.unheard };
    Ok(Opened { session, sources, history, resumed })
}

fn setting(options: &SessionOptions, coordinator: bool, toolbox: &Toolbox, credentials: &Credentials) -> Setting {
    Setting {
        cwd: options.cwd.clone(),
        tools: toolbox.specs().into_iter().map(|tool| tool.name).collect(),
        model: options.model.id.clone(),
        mode: options.mode.as_str(),
        credentials: match credentials {
            Credentials { api_key: Some(_), .. } => env::API_KEY,
            Credentials { auth_token: Some(_), .. } => env::AUTH_TOKEN,
            _ => "none",
        },
        agents: definitions(options, coordinator).into_iter().map(|d| d.name).collect(),
    }
}

/// The model of the main conversation, with its fallback. Both must be usable before a run begins.
fn open_model(options: &SessionOptions, access: &ProviderAccess) -> Result<Arc<MeteredModel>, LeadError> {
    let named = |model: &ResolvedModel| -> Result<Named, LeadError> {
        let spec = model.to_string();
        let opened = model::open_with(&spec, ReadAt::Open, access)?;
        Ok(Named { spec, id: model.id.clone(), max_tokens: model.max_tokens, model: opened })
    };
    let fallback = options.fallback.as_ref().map(named).transpose()?;
    Ok(Arc::new(MeteredModel::new(named(&options.model)?, fallback)))
}

/// Which session, and whether it exists.
fn choose(options: &SessionOptions) -> Result<(SessionId, SessionFiles, bool), LeadError> {
    match &options.session {
        SessionChoice::New(id) => {
            if find_session(&options.config_dir, id).is_some() {
                return Err(LeadError::SessionExists(id.clone()));
            }
            Ok((id.clone(), SessionFiles::of(options.config_dir.session(&options.cwd, id)), false))
        }
        SessionChoice::Resume(id) => match find_session(&options.config_dir, id) {
            Some(files) => Ok((id.clone(), files, true)),
            None => Err(LeadError::NoSession(id.clone())),
        },
        SessionChoice::Continue => {
            let latest = latest_session(&options.config_dir, &options.cwd);
            let (id, files) = latest.ok_or_else(|| {
                LeadError::Usage(format!(
                    "no session was started in {} yet; leave --continue out",
                    options.cwd.display()
                ))
            })?;
            Ok((id, files, true))
        }
    }
}

fn open_transcript(
    id: &SessionId,
    files: &SessionFiles,
    resumed: bool,
    durability: Durability,
    runtime: &RuntimeDir,
) -> Result<(TranscriptWriter, History), LeadError> {
    if !resumed {
        return match TranscriptWriter::create(files.transcript(), durability) {
            Ok(transcript) => Ok((transcript, conversation(&[]))),
            Err(StoreError::Exists { .. }) => Err(LeadError::SessionExists(id.clone())),
            Err(error) => Err(error.into()),
        };
    }
    let transcript = match TranscriptWriter::open(files.transcript(), durability) {
        Ok(transcript) => transcript,
        Err(StoreError::Locked { .. }) => {
            let owner = list(runtime)
                .unwrap_or_default()
                .into_iter()
                .find(|r| r.alive && r.entry.role == "lead" && r.entry.session == id.as_str())
                .map(|r| (r.entry.pid, r.entry.address));
            return Err(LeadError::Running { session: id.clone(), owner });
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(torn) = transcript.torn() {
        tracing::warn!(torn, "a torn last line of the session's transcript was cut off");
    }
    let tail = tail(files.transcript())?;
    Ok((transcript, conversation(&tail.lines)))
}

/// Coordinator mode (spec 2.6): the transcript's last word wins on a resume; a change is written.
fn resolve_mode(
    options: &mut SessionOptions,
    id: &SessionId,
    transcript: &mut TranscriptWriter,
    history: &History,
    resumed: bool,
) -> Result<bool, LeadError> {
    let asked = options
        .coordinator
        .or_else(|| variable(options, env::COORDINATOR_MODE).is_some_and(env::truthy).then_some(env::COORDINATOR_MODE));
    let coordinator = if resumed {
        let recorded = history.mode.as_deref() == Some("coordinator");
        if recorded != asked.is_some() {
            let (is, said) = if recorded {
                ("coordinator", "this start did not ask for it")
            } else {
                ("normal", "this start asked for coordinator mode")
            };
            tracing::warn!("session {id} is in {is} mode, which goes on although {said}");
        }
        recorded
    } else {
        asked.is_some()
    };
    if !coordinator {
        return Ok(false);
    }
    let source = asked.unwrap_or("the session's record");
    let refuse = |why: String| Err(LeadError::Usage(format!("coordinator mode ({source}) is not possible: {why}")));
    if !options.settings.lead.coordinator_mode {
        return refuse("the setting lead.coordinatorMode is false".to_owned());
    }
    if background_disabled(options) {
        return refuse(format!(
            "{} is set, and a coordinator's workers all run in the background",
            env::DISABLE_BACKGROUND
        ));
    }
    if variable(options, env::DISABLE_BUILTIN_AGENTS).is_some_and(env::truthy) {
        return refuse(format!("{} is set, so there is no agent of type worker", env::DISABLE_BUILTIN_AGENTS));
    }
    if let Some(agent) = &options.settings.agent {
        return refuse(format!("the setting agent names the main-thread agent {agent:?}; use one or the other"));
    }
    if !resumed {
        transcript.append(&mode_line(id))?;
    }
    Ok(true)
}

fn mode_line(id: &SessionId) -> Line {
    Line::Mode(ModeLine { session_id: id.as_str().to_owned(), mode: "coordinator".to_owned() })
}

fn make_scratchpad(options: &SessionOptions, id: &SessionId) -> Option<PathBuf> {
    if !options.settings.lead.scratchpad {
        return None;
    }
    let folder = scratchpad(nix::unistd::getuid().as_raw(), &options.cwd, id);
    match create_private_dir(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            tracing::warn!(%error, "there is no scratchpad in this session");
            None
        }
    }
}

/// The branch of a checkout, `HEAD` where it is none: read from `.git`, no process is started.
fn git_branch(cwd: &Path) -> String {
    let head = cwd.ancestors().map(|dir| dir.join(".git").join("HEAD")).find_map(|p| std::fs::read_to_string(p).ok());
    head.and_then(|text| text.trim().strip_prefix("ref: refs/heads/").map(str::to_owned))
        .unwrap_or_else(|| "HEAD".to_owned())
}

fn announcement(
    options: &SessionOptions,
    id: &SessionId,
    files: &SessionFiles,
    socket: &Path,
    agent_type: &str,
) -> (RegistryEntry, LiveState) {
    let now = clock::now_ms();
    let entry = RegistryEntry {
        address: address(socket),
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        role: "lead".to_owned(),
        agent_id: id.as_str().to_owned(),
        name: None,
        team: None,
        session: id.as_str().to_owned(),
        cwd: options.cwd.to_string_lossy().into_owned(),
        config_dir: options.config_dir.root().to_string_lossy().into_owned(),
        started: now,
        version: BUILD.to_owned(),
    };
    let state = LiveState {
        state: RowState::Running,
        owner: Owner::None,
        run: 1,
        agent_type: agent_type.to_owned(),
        description: String::new(),
        model: Some(options.model.to_string()),
        waiting_for: None,
        transcript: files.transcript().to_string_lossy().into_owned(),
        worktree: None,
        since_ms: now,
        last_event_ms: now,
        progress: Progress::default(),
    };
    (entry, state)
}

/// How long a session that quits may take for its agents before it kills them.
pub(super) const QUIT_GRACE: Duration = Duration::from_millis(4500);
