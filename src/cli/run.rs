//! `lead -p`: one headless run, from its flags to its result and exit code (spec 7.1).

use std::time::Instant;

use super::args::{OutputFormat, RunArgs};
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::options;
use super::output::{self, Output};
use super::prompt;
use super::result_line::{ResultLine, exit_of, in_words};
use crate::core::ids::SessionId;
use crate::core::limits::deadlines;
use crate::core::text;
use crate::lead::{RunEnd, RunReport, SessionChoice, SessionOptions};

/// Whether agents' coming and going is told on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Only if somebody watches.
    OnTerminal,
    /// Always.
    Shown,
}

/// A run to be made.
pub(super) struct Run {
    pub flags: RunArgs,
    /// Coordinator mode, and what asked for it.
    pub coordinator: Option<&'static str>,
    pub progress: Progress,
    /// Whether standard input is part of the prompt.
    pub reads_input: bool,
}

impl Run {
    /// As the flags say.
    pub(super) fn of_flags(flags: RunArgs) -> Self {
        let coordinator = flags.coordinator.then_some("--coordinator");
        Self { flags, coordinator, progress: Progress::OnTerminal, reads_input: true }
    }
}

pub(super) fn run(run: Run, out: &mut Output) -> Result<Exit, CliError> {
    let began = Instant::now();
    let format = run.flags.output_format;
    let mut session = None;
    let report = prepare(&run, &mut session).and_then(|options| live(options, &mut session));
    match (report, format) {
        (Ok(report), OutputFormat::Json) => {
            out.json(&ResultLine::of_run(&report))?;
            Ok(exit_of(&report.end))
        }
        (Ok(report), OutputFormat::Text) => print_text(&report, out),
        (Err(error), OutputFormat::Json) => {
            out.json(&ResultLine::of_refusal(&error, session.as_ref(), began.elapsed()))?;
            Ok(error.exit())
        }
        (Err(error), OutputFormat::Text) => Err(error),
    }
}

/// Everything up to the start. `session` is set as soon as it is known.
fn prepare(run: &Run, session: &mut Option<SessionId>) -> Result<SessionOptions, CliError> {
    let choice = options::session_choice(&run.flags)?;
    *session = match &choice {
        SessionChoice::New(id) | SessionChoice::Resume(id) => Some(id.clone()),
        SessionChoice::Continue => None,
    };
    let folders = Folders::of_process()?;
    let is_new = matches!(choice, SessionChoice::New(_));
    let mut options = options::resolve(run, choice, &folders)?;
    options.prompt = if run.reads_input {
        prompt::read(run.flags.prompt.clone(), deadlines().stdin_silence, output::tell)?
    } else {
        run.flags.prompt.clone()
    };
    if is_new && options.prompt.is_none() {
        return Err(no_prompt(&run.flags));
    }
    Ok(options)
}

fn no_prompt(flags: &RunArgs) -> CliError {
    let swallowed = [flags.allowed_tools.len(), flags.disallowed_tools.len(), flags.add_dir.len()];
    let hint = if swallowed.iter().any(|n| *n > 1) {
        "a list takes every word behind it: put the prompt before the list, or behind `--`"
    } else {
        "give it as an argument, lead -p \"PROMPT\", or on standard input"
    };
    CliError::usage("there is no prompt").with_hint(hint)
}

fn live(options: SessionOptions, session: &mut Option<SessionId>) -> Result<RunReport, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::System { action: "start the runtime", source })?;
    let report = runtime.block_on(crate::lead::run(options));
    // What still blocks, such as a wait for a lock, must not hold the exit up.
    runtime.shutdown_background();
    let report = report?;
    *session = Some(report.session.clone());
    Ok(report)
}

fn print_text(report: &RunReport, out: &mut Output) -> Result<Exit, CliError> {
    let id = &report.session;
    for line in denied(report) {
        output::tell(&line);
    }
    match &report.end {
        RunEnd::Answer(answer) if answer.is_empty() => {}
        RunEnd::Answer(answer) => out.answer(answer)?,
        end => {
            let why = text::for_terminal(&in_words(end));
            output::tell(&format!("lead: the run failed: {why}\ngo on with it: lead -p --resume {id} \"PROMPT\""));
        }
    }
    Ok(exit_of(&report.end))
}

/// What was not permitted, by tool, in the order of the first call of each (R073).
fn denied(report: &RunReport) -> Vec<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for denial in &report.denials {
        match counts.iter_mut().find(|(tool, _)| *tool == denial.tool_name) {
            Some((_, count)) => *count += 1,
            None => counts.push((&denial.tool_name, 1)),
        }
    }
    let told = counts.into_iter().map(|(tool, count)| {
        let calls = if count == 1 { "1 call".to_owned() } else { format!("{count} calls") };
        format!("lead: not permitted: {}, {calls} (--allowed-tools permits it)", text::one_line(tool, 80))
    });
    told.collect()
}
