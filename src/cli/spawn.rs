//! `lead spawn`: starts an agent that is the person's own and lives on without anybody (spec 7.2). In
//! a session that runs its lead starts it; else this process stands in for one, in a new session or
//! in one that has no lead. Whoever holds the session's transcript lock decides.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tokio::time::timeout_at;

use super::args::{InputFormat, OutputFormat, RunArgs};
use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::{Folders, real_folder};
use super::lookup::find_session;
use super::options::{self, playbook_path};
use super::output::{self, Output};
use super::prompt::{self, Prompt};
use super::run::{Run, prompt_missing};
use super::stand_in::{Act, options_of};
use super::stop::async_runtime;
use crate::core::frame::Frame;
use crate::core::ids::{self, SessionId};
use crate::core::limits::{self, deadlines};
use crate::core::paths::SessionFiles;
use crate::lead::{Declined, LeadError, SessionChoice, SpawnInput, Started, stand_in};
use crate::store::lock::wait_shared;
use crate::store::runtime::{RuntimeDir, find_alive};
use crate::tool::ToolOutput;
use crate::wire::{WireError, dial_and_greet, parse_address};

/// Arguments of `lead spawn`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the agent's id. It lives on by itself: `lead wait`, `lead send`, `lead stop` reach it from anywhere, and \
`lead -p --resume SESSION` goes on with what it reports.\nExit codes: 0 it runs, 1 it did not start, 2 called wrongly, 3 refused, 4 no such session.",
    mut_arg("prompt", |a| a.help("The whole task; without it, or with `-`, it is read from standard input")),
    mut_arg("cwd", |a| a.help("Let it work in this folder instead of the current one, or the session's")),
    mut_arg("tools", |a| a.help("Let it have these of its tools only, such as Read,Grep; \"\" is none (can be repeated)")),
    mut_arg("max_turns", |a| a.help("End its run after N replies of the model")),
    mut_arg("coordinator", |a| a.help("Start it as a worker of a session in coordinator mode")),
    mut_arg("print", |a| a.hide(true)),
    mut_arg("output_format", |a| a.hide(true)),
    mut_arg("input_format", |a| a.hide(true)),
    mut_arg("include_partial_messages", |a| a.hide(true)),
    mut_arg("verbose", |a| a.hide(true)),
    mut_arg("max_budget_usd", |a| a.hide(true)),
    mut_arg("json_schema", |a| a.hide(true)),
    mut_arg("detach", |a| a.hide(true)),
    mut_arg("resume", |a| a.hide(true)),
    mut_arg("continue_latest", |a| a.hide(true)),
    mut_arg("fallback_model", |a| a.hide(true)),
    mut_arg("system_prompt", |a| a.hide(true)),
    mut_arg("append_system_prompt", |a| a.hide(true)),
)]
pub(super) struct SpawnArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Give it a name to be reached by while it runs
    #[arg(long, value_name = "NAME", help_heading = "Agent")]
    name: Option<String>,
    /// Start an agent of this type
    #[arg(long = "type", value_name = "TYPE", help_heading = "Agent")]
    agent_type: Option<String>,
    /// Give it a checkout of its own
    #[arg(long, value_name = "KIND", help_heading = "Agent")]
    isolation: Option<String>,
    /// Start it in this session instead of a new one: its id, or the beginning of it
    #[arg(long, value_name = "ID", conflicts_with_all = ["session_id", "coordinator"], help_heading = "Session")]
    session: Option<String>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(mut args: SpawnArgs, out: &mut Output) -> Result<Exit, CliError> {
    check(&args)?;
    let folders = Folders::of_process()?;
    let dir = folders.open_runtime()?;
    refuse_agents(&dir, "start agents")?;
    let session = args.session.as_deref().map(|text| find_session(text, &folders)).transpose()?;
    let cwd = args.run.cwd.as_deref().map(real_folder).transpose()?;
    let model = args.run.model.as_deref().map(|name| playbook_path(name.trim(), &folders.cwd));
    args.run.model.clone_from(&model);
    let input = SpawnInput {
        prompt: task(args.run.prompt.take(), &args.run)?,
        agent_type: args.agent_type.take(),
        name: args.name.take(),
        model,
        // A new session works where its agent does.
        cwd: cwd.filter(|_| session.is_some()).map(|c| c.to_string_lossy().into_owned()),
        tools: options::tools(&args.run.tools)?,
        max_turns: args.run.max_turns,
    };
    let spawn = Spawn { key: format!("spawn_{}", ids::random_uuid()), input, flags: args.run, folders, dir };
    let runtime = async_runtime()?;
    let started = runtime.block_on(spawn.start(session));
    // What still blocks, such as a wait for a lock, must not hold the exit up.
    runtime.shutdown_background();
    let (id, files, started) = started?;
    let transcript = files.agent(&started.id).transcript().to_string_lossy().into_owned();
    let (address, pid) = started.reachable.unzip();
    if args.json {
        let row = json!({
            "id": started.id, "address": address, "pid": pid, "session": id, "transcript": transcript,
        });
        out.json(&row)?;
    } else {
        out.line(started.id.as_str())?;
        if output::is_watched() {
            output::tell(&format!("lead: it belongs to session {id}; `lead attach {}` shows what it does", started.id));
        }
    }
    Ok(Exit::Success)
}

/// Refuses what has no meaning for an agent without a conversation that waits for it.
fn check(args: &SpawnArgs) -> Result<(), CliError> {
    let run = &args.run;
    let given = [
        ("--print", run.print),
        ("--output-format", run.output_format != OutputFormat::Text),
        ("--input-format", run.input_format != InputFormat::Text),
        ("--include-partial-messages", run.include_partial_messages),
        ("--verbose", run.verbose),
        ("--max-budget-usd", run.max_budget_usd.is_some()),
        ("--json-schema", run.json_schema.is_some()),
        ("--detach", run.detach),
        ("--resume", run.resume.is_some()),
        ("--continue", run.continue_latest),
        ("--fallback-model", run.fallback_model.is_some()),
        ("--system-prompt", run.system_prompt.is_some()),
        ("--append-system-prompt", run.append_system_prompt.is_some()),
    ];
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
        let hint = match *flag {
            "--resume" | "--continue" => "--session starts the agent in an existing session",
            "--output-format" => "--json prints an object",
            _ => "it is for the main conversation of a run, and `lead spawn` starts none",
        };
        return Err(CliError::usage(format!("{flag} is not for lead spawn")).with_hint(hint));
    }
    match args.isolation.as_deref() {
        None => Ok(()),
        Some(kind) => Err(CliError::usage(format!("--isolation {kind} is not possible: agents have no worktrees yet"))
            .with_hint("make a worktree by hand and name its folder with --cwd")),
    }
}

/// The prompt, from where it is.
fn task(argument: Option<String>, flags: &RunArgs) -> Result<String, CliError> {
    let said = match argument {
        Some(dash) if dash == "-" => Some(prompt::promised(limits::PROMPT_BYTES)?.ok_or_else(prompt::too_long)?),
        Some(said) if said.len() > limits::PROMPT_BYTES => return Err(prompt::too_long()),
        Some(said) => Some(said),
        None => match prompt::read(None, deadlines().stdin_silence, output::tell)? {
            Prompt::Known(said) => said,
            Prompt::Coming(_) => None,
        },
    };
    let hint = "give it as an argument, lead spawn \"PROMPT\", or on standard input";
    said.filter(|s| !s.trim().is_empty()).ok_or_else(|| prompt_missing(flags, hint))
}

/// An agent to be started.
struct Spawn {
    /// The request's, so that it is one however often it is made (R054).
    key: String,
    input: SpawnInput,
    flags: RunArgs,
    folders: Folders,
    dir: RuntimeDir,
}

type Found = (SessionId, SessionFiles);

impl Spawn {
    async fn start(&self, session: Option<Found>) -> Result<(SessionId, SessionFiles, Started), CliError> {
        let Some((id, files)) = session else { return self.in_new_session().await };
        let give_up = Instant::now() + deadlines().lock;
        loop {
            let lead = find_alive(&self.dir, |e| e.role == "lead" && e.session == id.as_str())?;
            let tried = match lead {
                Some(lead) => {
                    self.refuse_own_rules(&id, lead.entry.pid)?;
                    let tried = self.ask(&lead.entry.address).await;
                    match tried {
                        Ok(Err(Declined::Ending)) | Err(WireError::Closed | WireError::Unreachable { .. }) => {
                            // Whoever has the session after it is asked.
                            is_free(files.transcript(), give_up).await;
                            None
                        }
                        other => Some(other?),
                    }
                }
                None => {
                    let options = options_of(Act::Spawn, &id, &files, self.flags.clone(), &self.folders)?;
                    match stand_in::spawn(options, &self.key, &self.input).await {
                        // A lead has come meanwhile.
                        Err(LeadError::Running { owner: Some(_), .. }) => None,
                        other => Some(other?),
                    }
                }
            };
            match tried {
                Some(started) => return Ok((id, files, started?)),
                None if Instant::now() >= give_up => {
                    let what = format!("session {id} is still ending");
                    return Err(CliError::TimedOut { what, waited: deadlines().lock });
                }
                None => {}
            }
        }
    }

    async fn in_new_session(&self) -> Result<(SessionId, SessionFiles, Started), CliError> {
        let choice = options::session_choice(&self.flags)?;
        let options = options::resolve(&Run::of_flags(self.flags.clone()), choice.clone(), &self.folders)?;
        let SessionChoice::New(id) = choice else { return Err(CliError::usage("lead spawn makes a new session")) };
        let files = SessionFiles::of(options.config_dir.session(&options.cwd, &id));
        let started = stand_in::spawn(options, &self.key, &self.input).await??;
        Ok((id, files, started))
    }

    /// A lead has rules of its own, and what else was said would be silently left out.
    fn refuse_own_rules(&self, session: &SessionId, pid: i32) -> Result<(), CliError> {
        let flags = &self.flags;
        let given = [
            ("--permission-mode", flags.permission_mode.is_some()),
            ("--dangerously-skip-permissions", flags.dangerously_skip_permissions),
            ("--allowed-tools", !flags.allowed_tools.is_empty()),
            ("--disallowed-tools", !flags.disallowed_tools.is_empty()),
            ("--add-dir", !flags.add_dir.is_empty()),
            ("--settings", flags.settings.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(CliError::usage(format!(
                "session {session} has a lead (pid {pid}), whose rules its agents have: {flag} can't change them"
            ))
            .with_hint(format!("leave {flag} out, or leave --session out"))),
            None => Ok(()),
        }
    }

    /// Asks a lead for it.
    async fn ask(&self, address: &str) -> Result<Result<Started, Declined>, WireError> {
        let path = parse_address(address)?;
        let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
        let call = Frame::Call { tool: "Agent".to_owned(), tool_use_id: self.key.clone(), input: json!(self.input) };
        match link.request(call, deadlines().ready + deadlines().reply).await? {
            Frame::CallResult { text, is_error, structured } => {
                Ok(Started::read(&ToolOutput { text, is_error, structured }))
            }
            Frame::Error { code, message } if code == "refused" => Err(WireError::Refused { reason: message }),
            Frame::Error { message, .. } => Err(WireError::Malformed(message)),
            _ => Err(WireError::Malformed("the lead answered something else".to_owned())),
        }
    }
}

/// Waits until nobody holds `path`, or it is time to give up.
async fn is_free(path: &Path, give_up: Instant) {
    let path = path.to_owned();
    let _ = timeout_at(give_up.into(), tokio::task::spawn_blocking(move || wait_shared(&path))).await;
}
