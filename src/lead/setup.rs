//! Opens a session: transcript and its lock, socket, registry entry, tools. The order is that of
//! R037 and spec 4.4: nothing is announced before it works.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::cost::Ledger;
use super::desk::Desk;
use super::error::LeadError;
use super::knowledge::Known;
use super::message::Underway;
use super::options::{SessionChoice, SessionOptions, Standing};
use super::owed::Owed;
use super::queue::Queue;
use super::reload::{SettingsWatch, main_policy};
use super::report::Reported;
use super::roles::{background_disabled, definitions, main_role, variable};
use super::session::{Inner, Session, Sources};
use super::structured::{Given as GivenAnswer, StructuredOutput};
use super::team::Seat;
use super::told::{MainWitness, Setting, Streams, Teller};
use crate::agent::{Carried, Driver, Nobody, Parts, Toolbox};
use crate::core::agent::{LiveState, Owner, Progress, RegistryEntry, RowState};
use crate::core::clock;
use crate::core::entry::{Line, Mode as ModeLine, Place};
use crate::core::env;
use crate::core::frame::{Telling, build};
use crate::core::ids::SessionId;
use crate::core::knowledge::Knowledge;
use crate::core::limits::{self, deadlines};
use crate::core::paths::{SessionFiles, scratchpad};
use crate::core::provider::{Credentials, ProviderAccess};
use crate::endpoint::{Arrivals, Equipment, QueueDesk, QueuePort, hidden, receive_visitors, tool_environment};
use crate::model::{self, MeteredModel, Model, Named, ReadAt};
use crate::permission::{Policy, SharedPolicy};
use crate::proc::{Signals, sweep};
use crate::settings::models::ResolvedModel;
use crate::store::StoreError;
use crate::store::atomic::{Durability, create_private_dir};
use crate::store::fork::fork;
use crate::store::history::{History, resume};
use crate::store::runtime::{self, Registration, RuntimeDir, find_alive};
use crate::store::session::{find_session, latest_session};
use crate::store::transcript::TranscriptWriter;
use crate::supervisor::{Given, Launcher, Nursery, Supervisor, SupervisorParts};
use crate::tool::folder_instructions::FolderInstructions;
use crate::tool::shell::{Shells, WorkingFolder};
use crate::tool::{Background, ToolContext};
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
    let telling = streams.listener.as_ref().map_or(Telling::Nothing, |listener| listener.telling());
    let owner = options.standing.owner();
    let given = Given { environment, secrets, access: access.clone(), telling, owner };
    let launcher = Launcher::find(given)?;
    let model = open_model(&options, &access)?;
    let given = GivenAnswer::default();
    let structured = options.json_schema.as_ref().map(|s| StructuredOutput::new(s, Arc::clone(&given))).transpose()?;
    let durability = options.settings.lead.durability;
    let (id, files, beginning) = choose(&options)?;
    let resumed = beginning != Beginning::New;
    let (mut transcript, mut history) = open_transcript(&id, &files, &beginning, durability, &runtime)?;
    let coordinator = resolve_mode(&mut options, &id, &mut transcript, &history, resumed)?;
    let scratchpad = make_scratchpad(&options, &id);
    let known = Known::find(&options);
    let settings = SettingsWatch::new();
    let (policy, warnings) = main_policy(&options, scratchpad.as_deref(), &files, &known);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let policy = SharedPolicy::new(policy);
    let place = Place {
        user_type: "external".to_owned(),
        entrypoint: "sdk-cli".to_owned(),
        cwd: options.cwd.to_string_lossy().into_owned(),
        session_id: id.as_str().to_owned(),
        version: build().to_owned(),
        git_branch: git_branch(&options.cwd),
        team_name: None,
        agent_name: None,
    };

    let name = runtime.reserve_name();
    let socket = runtime.socket_path(&name);
    let spec = options.model.to_string();
    let equipment = Equipment {
        policy: &policy,
        background: if background_disabled(&options) { Background::Disabled } else { Background::Offered },
        proxy: &access.proxy,
        skills: &known.knowledge.skills,
        model: &spec,
    };
    let role = main_role(&options, &equipment, &known, coordinator, scratchpad.as_deref(), structured);
    let (entry, state) = announcement(&options, &id, &files, &socket, &role.caller.agent_type);
    let (visit_sender, visits) = mpsc::channel(limits::LOOP_EVENTS);
    let registration = match options.standing {
        Standing::Lead => {
            let listener = Listener::bind(&socket)?;
            let registration = Registration::publish(&runtime, &name, &entry)?;
            registration.set_state(&state)?;
            tokio::spawn(receive_visitors(listener, entry, visit_sender));
            Some(registration)
        }
        // Nobody could be answered: what is asked for meanwhile waits for the session's lock.
        Standing::StandIn => None,
    };

    let (event_sender, events) = mpsc::channel(limits::LOOP_EVENTS);
    let (call_sender, calls) = mpsc::channel(limits::LOOP_EVENTS);
    let (question_sender, asked) = mpsc::channel(limits::LOOP_EVENTS);
    let (supervisor_sender, supervised) = mpsc::channel(limits::LOOP_EVENTS);
    let (inner_sender, inner) = mpsc::channel::<Inner>(limits::LOOP_EVENTS);
    let (shell_sender, shell_events) = mpsc::channel(limits::LOOP_EVENTS);
    let shells = Shells::new(shell_sender);
    let last_folder = history.shell_cwd.clone().map(PathBuf::from);

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
    let setting = setting(&options, coordinator, &role.toolbox, &policy.get(), &access.credentials, &known.knowledge);
    let instructions =
        FolderInstructions::new(&known.knowledge, hidden(&policy), history.shown_instructions.iter().cloned());
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
        desk: Arc::new(QueueDesk(question_sender)),
        context: ToolContext {
            cwd: options.cwd.clone(),
            folder: Arc::new(WorkingFolder::new(&options.cwd, &options.cwd, last_folder)),
            shells: shells.clone(),
            results: files.tool_results(),
            env: Arc::new(tools_env),
            cancel: tokio_util::sync::CancellationToken::new(),
            tool_use_id: String::new(),
            agents: Arc::new(QueuePort(call_sender)),
            tool_state: Arc::new(std::mem::take(&mut history.tool_state).into()),
            instructions: Arc::new(instructions),
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
        shells,
        leftovers: Vec::new(),
        desk: Desk::default(),
        permitted: HashSet::new(),
        denied: Vec::new(),
        arrivals: Arrivals::default(),
        underway: Underway::default(),
        handing_over: false,
        partings: Vec::new(),
        idle_watchers: Vec::new(),
        team: None,
        is_making_team: false,
        seat: Seat::new(options.teammates, options.environment.clone()),
        nursery: Nursery::default(),
        next_watch: None,
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
        registration,
        state,
        policy,
        scratchpad,
        known,
        coordinator,
        driver,
        queue: Queue::default(),
        supervisor,
        foreground: HashMap::new(),
        watchers: HashMap::new(),
        seen: history.seen_msg_ids.iter().cloned().collect(),
        told: HashSet::new(),
        inner: inner_sender,
        quit: None,
        last_end: None,
        last_event: Instant::now(),
        published: Instant::now(),
        dirty: false,
    };
    let unheard = streams.unheard;
    let (shells, team) = (shell_events, None);
    let sources = Sources { events, calls, asked, supervised, inner, visits, shells, settings, team, signals, unheard };
    Ok(Opened { session, sources, history, resumed })
}

fn setting(
    options: &SessionOptions,
    coordinator: bool,
    toolbox: &Toolbox,
    policy: &Policy,
    credentials: &Credentials,
    knowledge: &Knowledge,
) -> Setting {
    Setting {
        cwd: options.cwd.clone(),
        tools: toolbox.names(policy),
        model: options.model.id.clone(),
        mode: options.mode.as_str(),
        credentials: match credentials {
            Credentials { api_key: Some(_), .. } => env::API_KEY,
            Credentials { auth_token: Some(_), .. } => env::AUTH_TOKEN,
            _ => "none",
        },
        agents: definitions(options, coordinator).into_iter().map(|d| d.name).collect(),
        skills: knowledge.skills.iter().map(|skill| skill.name.clone()).collect(),
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

/// How a session begins.
#[derive(Debug, PartialEq)]
enum Beginning {
    New,
    Resumed,
    /// As a copy of this session.
    Forked(SessionFiles),
}

/// Which session, and how it begins.
fn choose(options: &SessionOptions) -> Result<(SessionId, SessionFiles, Beginning), LeadError> {
    let (id, files, beginning) = choose_existing(options)?;
    let Some(fork) = &options.fork else { return Ok((id, files, beginning)) };
    if find_session(&options.config_dir, fork).is_some() {
        return Err(LeadError::SessionExists(fork.clone()));
    }
    let copy = SessionFiles::of(options.config_dir.session(&options.cwd, fork));
    Ok((fork.clone(), copy, Beginning::Forked(files)))
}

fn choose_existing(options: &SessionOptions) -> Result<(SessionId, SessionFiles, Beginning), LeadError> {
    match &options.session {
        SessionChoice::New(id) => {
            if find_session(&options.config_dir, id).is_some() {
                return Err(LeadError::SessionExists(id.clone()));
            }
            Ok((id.clone(), SessionFiles::of(options.config_dir.session(&options.cwd, id)), Beginning::New))
        }
        SessionChoice::Resume(id) => match find_session(&options.config_dir, id) {
            Some(files) => Ok((id.clone(), files, Beginning::Resumed)),
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
            Ok((id, files, Beginning::Resumed))
        }
    }
}

fn open_transcript(
    id: &SessionId,
    files: &SessionFiles,
    beginning: &Beginning,
    durability: Durability,
    runtime: &RuntimeDir,
) -> Result<(TranscriptWriter, History), LeadError> {
    let made = match beginning {
        Beginning::New => Some(TranscriptWriter::create(files.transcript(), durability)),
        Beginning::Forked(from) => Some(fork(from.transcript(), files.transcript(), id, durability)),
        Beginning::Resumed => None,
    };
    match made {
        Some(Ok(transcript)) if *beginning == Beginning::New => return Ok((transcript, History::default())),
        Some(Ok(transcript)) => return Ok((transcript, resume(files.transcript())?)),
        Some(Err(StoreError::Exists { .. })) => return Err(LeadError::SessionExists(id.clone())),
        Some(Err(error)) => return Err(error.into()),
        None => {}
    }
    let transcript = take_transcript(id, files, durability, runtime)?;
    if let Some(torn) = transcript.torn() {
        tracing::warn!(torn, "a torn last line of the session's transcript was cut off");
    }
    Ok((transcript, resume(files.transcript())?))
}

/// A holder that is not in the registry holds it for moments only (it stands in for a lead, is about
/// to register or has just ended) and is waited for; a registered one is the session's lead.
fn take_transcript(
    id: &SessionId,
    files: &SessionFiles,
    durability: Durability,
    runtime: &RuntimeDir,
) -> Result<TranscriptWriter, LeadError> {
    let patience = Instant::now() + deadlines().lock;
    loop {
        match TranscriptWriter::open(files.transcript(), durability) {
            Err(StoreError::Locked { .. }) => {}
            opened => return Ok(opened?),
        }
        let owner = find_alive(runtime, |e| e.role == "lead" && e.session == id.as_str())?;
        if owner.is_some() || Instant::now() >= patience {
            let owner = owner.map(|r| (r.entry.pid, r.entry.address));
            return Err(LeadError::Running { session: id.clone(), owner });
        }
    }
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
        if recorded != asked.is_some() && options.standing == Standing::Lead {
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
        version: build().to_owned(),
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
        shells: Vec::new(),
    };
    (entry, state)
}
