//! `lead -p`: one headless run, from its flags to its result and exit code (spec 7.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::args::{InputFormat, OutputFormat, RunArgs};
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::options;
use super::output::{self, Output};
use super::prompt::{self, Prompt};
use super::result_line::{ResultLine, exit_of, in_words};
use super::sink::{Sink, Written};
use super::stop::async_runtime;
use super::stream::{Partial, Stream};
use super::stream_input;
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::text;
use crate::lead::{Inputs, Listener, RunEnd, RunReport, SessionChoice, SessionOptions, Streams};
use crate::proc::Signals;

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
    /// Whether it goes on with what was warned of when it began.
    pub goes_on: bool,
}

impl Run {
    /// As the flags say.
    pub(super) fn of_flags(flags: RunArgs) -> Self {
        let coordinator = flags.coordinator.then_some("--coordinator");
        Self { flags, coordinator, progress: Progress::OnTerminal, reads_input: true, goes_on: false }
    }
}

pub(super) fn run(run: Run, out: &mut Output) -> Result<Exit, CliError> {
    let began = Instant::now();
    check_forms(&run.flags)?;
    let mut session = None;
    let refused = |error: &CliError, session: &Option<SessionId>| {
        ResultLine::of_refusal(error, session.as_ref(), began.elapsed())
    };
    match (run.flags.output_format, run.flags.verbose) {
        (OutputFormat::Text, _) => {
            let report = whole(&run, &mut session, Streams::default())?;
            print_text(&report, out)
        }
        (OutputFormat::Json, false) => match whole(&run, &mut session, Streams::default()) {
            Ok(report) => {
                out.json(&ResultLine::of_run(&report))?;
                Ok(exit_of(&report.end))
            }
            Err(error) => {
                out.json(&refused(&error, &session))?;
                Ok(error.exit())
            }
        },
        (OutputFormat::Json, true) => {
            let stream = Arc::new(Stream::new(Sink::kept(), Partial::Left));
            let report = whole(&run, &mut session, heard_by(&stream, CancellationToken::new()));
            let exit = ended(&stream, &report, |error| refused(error, &session));
            stream.sink().print(out)?;
            Ok(exit)
        }
        (OutputFormat::StreamJson, _) => {
            let unheard = CancellationToken::new();
            let (sink, written) = Sink::written(Output::stdout, unheard.clone())
                .map_err(|source| CliError::System { action: "write the output", source })?;
            let partial = if run.flags.include_partial_messages { Partial::Shown } else { Partial::Left };
            let stream = Arc::new(Stream::new(sink, partial));
            let mut streams = heard_by(&stream, unheard);
            let report = listen(&run, &stream)
                .map(|inputs| streams.inputs = inputs)
                .and_then(|()| whole(&run, &mut session, streams));
            let exit = ended(&stream, &report, |error| refused(error, &session));
            stream.sink().end();
            all_read(written, exit)
        }
    }
}

/// The messages on standard input, if that is where they come from.
fn listen(run: &Run, stream: &Arc<Stream>) -> Result<Option<Inputs>, CliError> {
    if run.flags.input_format != InputFormat::StreamJson {
        return Ok(None);
    }
    let answers = Arc::clone(stream);
    stream_input::messages(move |id, why| answers.control_error(id, why)).map(Some)
}

fn heard_by(stream: &Arc<Stream>, unheard: CancellationToken) -> Streams {
    Streams { listener: Some(Arc::clone(stream) as Arc<dyn Listener>), unheard, inputs: None }
}

/// How the run ended; one that did not begin gets its result line here.
fn ended(stream: &Stream, report: &Result<RunReport, CliError>, refused: impl FnOnce(&CliError) -> ResultLine) -> Exit {
    match report {
        Ok(report) => exit_of(&report.end),
        Err(error) => {
            stream.result(&refused(error));
            error.exit()
        }
    }
}

/// The forms of input and output that go together.
fn check_forms(flags: &RunArgs) -> Result<(), CliError> {
    let streams = flags.output_format == OutputFormat::StreamJson;
    let needs = |flag: &str| {
        let hint = "add --output-format stream-json";
        Err(CliError::usage(format!("{flag} needs --output-format stream-json")).with_hint(hint))
    };
    if flags.include_partial_messages && !streams {
        return needs("--include-partial-messages");
    }
    if flags.input_format == InputFormat::StreamJson {
        if !streams {
            return needs("--input-format stream-json");
        }
        if flags.prompt.is_some() {
            let hint = r#"leave the argument out and send {"type":"user","message":{"role":"user","content":"…"}}"#;
            return Err(
                CliError::usage("with --input-format stream-json prompts come on standard input only").with_hint(hint)
            );
        }
    }
    Ok(())
}

/// How long what is not yet read is waited for once a signal has ended the run.
const UNREAD_GRACE: Duration = Duration::from_millis(400);

/// Waits until everything is written, as long as the reader takes. A signal ends that wait: from
/// here on nothing else of this process would react to one.
fn all_read(written: Written, exit: Exit) -> Result<Exit, CliError> {
    let hurry = matches!(exit, Exit::Signal(_));
    let runtime = async_runtime()?;
    let done = runtime.block_on(async {
        let mut signals =
            Signals::listen().map_err(|source| CliError::System { action: "listen to signals", source })?;
        tokio::select! {
            // A thread that is gone without a word has panicked, and that is on standard error.
            done = written => done.unwrap_or(Ok(())).map(|()| exit),
            signal = signals.recv() => Ok(Exit::Signal(signal)),
            () = crate::proc::deadline(Some(Instant::now() + UNREAD_GRACE)), if hurry => Ok(exit),
        }
    });
    runtime.shutdown_background();
    done
}

/// Everything up to the start. `session` is set as soon as it is known.
fn prepare(run: &Run, session: &mut Option<SessionId>) -> Result<Prepared, CliError> {
    let choice = options::session_choice(&run.flags)?;
    *session = match &choice {
        SessionChoice::New(id) | SessionChoice::Resume(id) => Some(id.clone()),
        SessionChoice::Continue => None,
    };
    let folders = Folders::of_process()?;
    // A copy in which nothing is said is none.
    let is_new = matches!(choice, SessionChoice::New(_)) || run.flags.fork_session;
    let mut options = options::resolve(run, choice, &folders)?;
    if let Some(copy) = &options.fork {
        *session = Some(copy.clone());
    }
    if run.flags.input_format == InputFormat::StreamJson {
        return Ok(Prepared { options, inputs: None });
    }
    let prompt = if run.reads_input {
        prompt::read(run.flags.prompt.clone(), deadlines().stdin_silence, output::tell)?
    } else {
        Prompt::Known(run.flags.prompt.clone())
    };
    match prompt {
        Prompt::Known(None) if is_new => Err(no_prompt(&run.flags)),
        Prompt::Known(prompt) => {
            options.prompt = prompt;
            Ok(Prepared { options, inputs: None })
        }
        Prompt::Coming(inputs) => Ok(Prepared { options, inputs: Some(inputs) }),
    }
}

/// A session about to start, and what is said to it after that.
struct Prepared {
    options: SessionOptions,
    inputs: Option<Inputs>,
}

fn no_prompt(flags: &RunArgs) -> CliError {
    prompt_missing(flags, "give it as an argument, lead -p \"PROMPT\", or on standard input")
}

/// There is no prompt; `hint` says how to give one, unless a list has swallowed it.
pub(super) fn prompt_missing(flags: &RunArgs, hint: &str) -> CliError {
    let swallowed = [flags.allowed_tools.len(), flags.disallowed_tools.len(), flags.tools.len(), flags.add_dir.len()];
    let hint = if swallowed.iter().any(|n| *n > 1) {
        "a list takes every word behind it: put the prompt before the list, or behind `--`"
    } else {
        hint
    };
    CliError::usage("there is no prompt").with_hint(hint)
}

/// The whole run.
fn whole(run: &Run, session: &mut Option<SessionId>, mut streams: Streams) -> Result<RunReport, CliError> {
    let prepared = prepare(run, session)?;
    let runtime = async_runtime()?;
    streams.inputs = streams.inputs.or(prepared.inputs);
    let report = runtime.block_on(crate::lead::run_with(prepared.options, streams));
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
    if !report.detached.is_empty() {
        let ids: Vec<&str> = report.detached.iter().map(AgentId::as_str).collect();
        output::tell(&format!("lead: left running: {} (`lead ps` shows them)", ids.join(", ")));
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
