//! The `lead` program from its first step to its exit code.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use super::args::{Cli, OutputFormat, Verb};
use super::error::{CliError, Exit};
use super::folders::{Folders, take_environment};
use super::output::{self, Output};
use super::serve::ModelVerb;
use super::stop::How;
use super::{
    agents, attach, background, demo, doctor, hand_over, inbox, log, logs, permissions, ps, reap, reference, result,
};
use super::{run, send, serve, sessions, spawn, stop, task, team, transcript, wait};
use crate::core::env;
use crate::core::frame::BUILD;

/// Runs the program. Everything that is said about its work goes through here.
pub fn main() -> ExitCode {
    let mut out = Output::stdout();
    // Asked by scripts all the time, so before anything is set up for it.
    let mut words = std::env::args_os().skip(1);
    let version = words.next().is_some_and(|a| a == "--version" || a == "-v" || a == "-V");
    let exit = if version && words.next().is_none() { print_version(&mut out) } else { whole(&mut out) };
    exit.into()
}

fn print_version(out: &mut Output) -> Exit {
    let printed = out.line(&format!("{BUILD} (lead)")).and_then(|()| out.flush());
    printed.map_or_else(|error| tell(&error), |()| Exit::Success)
}

fn whole(out: &mut Output) -> Exit {
    take_environment();
    let cli = match Cli::command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(error) => return told_by_clap(&error, out),
    };
    if cli.version {
        return print_version(out);
    }
    log::start(std::env::var(env::LOG).ok().as_deref());
    let json = wants_json(&cli);
    let done = dispatch(cli, out).and_then(|exit| out.flush().map(|()| exit));
    match done {
        Ok(exit) => exit,
        Err(error) if json && !matches!(error, CliError::Output(_)) => {
            let told = out.json(&error.for_script()).and_then(|()| out.flush());
            told.map_or_else(|error| tell(&error), |()| error.exit())
        }
        Err(error) => tell(&error),
    }
}

fn tell(error: &CliError) -> Exit {
    let exit = error.exit();
    if exit != Exit::ClosedPipe {
        output::tell(&error.for_person());
    }
    exit
}

/// Help that was asked for is a result; all else that clap says is an error.
fn told_by_clap(error: &clap::Error, out: &mut Output) -> Exit {
    let text = error.render();
    if error.use_stderr() {
        output::tell(text.to_string().trim_end());
        return Exit::Usage;
    }
    let printed = out.line(&text.to_string()).and_then(|()| out.flush());
    printed.map_or_else(|error| tell(&error), |()| Exit::Success)
}

/// Whether errors are wanted as JSON. A run's are told in its result line, by itself.
fn wants_json(cli: &Cli) -> bool {
    match &cli.verb {
        Some(Verb::Ps(args)) => args.json,
        Some(Verb::Wait(args)) => args.json,
        Some(Verb::Stop(args) | Verb::Kill(args)) => args.json,
        Some(Verb::Spawn(args)) => args.json,
        Some(Verb::Send(args)) => args.json,
        Some(Verb::Attach(args)) => args.json,
        Some(Verb::Permissions(args)) => args.json(),
        Some(Verb::Background(args)) => args.json,
        Some(Verb::Sessions(args)) => args.json(),
        Some(Verb::HandOver(args)) => args.json,
        Some(Verb::Team(args)) => args.json(),
        Some(Verb::Task(args)) => args.json(),
        Some(Verb::Inbox(args)) => args.json(),
        Some(Verb::Reap(args)) => args.json,
        Some(Verb::Result(args)) => args.json,
        Some(Verb::Logs(args)) => args.json,
        Some(Verb::Transcript(args)) => args.json,
        Some(Verb::Agents(args)) => args.json,
        Some(Verb::Doctor(args)) => args.json,
        Some(Verb::Model(serve::ModelArgs { verb: ModelVerb::Serve(args) })) => args.json,
        Some(Verb::Demo(_) | Verb::Completions(_) | Verb::Man(_)) | None => false,
    }
}

fn dispatch(cli: Cli, out: &mut Output) -> Result<Exit, CliError> {
    match cli.verb {
        Some(Verb::Ps(args)) => ps::run(&args, &Folders::of_process()?, out),
        Some(Verb::Wait(args)) => wait::run(&args, &Folders::of_process()?, out),
        Some(Verb::Stop(args)) => stop::run(&args, How::Stop, &Folders::of_process()?, out),
        Some(Verb::Kill(args)) => stop::run(&args, How::Kill, &Folders::of_process()?, out),
        Some(Verb::Spawn(args)) => spawn::run(*args, out),
        Some(Verb::Send(args)) => send::run(&args, &Folders::of_process()?, out),
        Some(Verb::Attach(args)) => attach::run(&args, &Folders::of_process()?, out),
        Some(Verb::Permissions(args)) => permissions::run(&args, &Folders::of_process()?, out),
        Some(Verb::Background(args)) => background::run(&args, &Folders::of_process()?, out),
        Some(Verb::Sessions(args)) => sessions::run(&args, &Folders::of_process()?, out),
        Some(Verb::HandOver(args)) => hand_over::run(&args, &Folders::of_process()?, out),
        Some(Verb::Team(args)) => team::run(&args, &Folders::of_process()?, out),
        Some(Verb::Task(args)) => task::run(&args, &Folders::of_process()?, out),
        Some(Verb::Inbox(args)) => inbox::run(&args, &Folders::of_process()?, out),
        Some(Verb::Reap(args)) => reap::run(&args, &Folders::of_process()?, out),
        Some(Verb::Completions(args)) => reference::completions(&args, out),
        Some(Verb::Man(args)) => reference::man(&args, out),
        Some(Verb::Result(args)) => result::run(&args, &Folders::of_process()?, out),
        Some(Verb::Logs(args)) => logs::run(&args, &Folders::of_process()?, out),
        Some(Verb::Transcript(args)) => transcript::run(&args, &Folders::of_process()?, out),
        Some(Verb::Agents(args)) => agents::run(&args, &Folders::of_process()?, out),
        Some(Verb::Doctor(args)) => doctor::run(&args, out),
        Some(Verb::Demo(args)) => demo::run(&args, out),
        Some(Verb::Model(serve::ModelArgs { verb: ModelVerb::Serve(args) })) => serve::run(&args, out),
        None if cli.run.print => run::run(run::Run::of_flags(cli.run), out),
        None if cli.run.output_format != OutputFormat::Text => {
            Err(CliError::usage("--output-format is for runs without a screen").with_hint("add -p"))
        }
        None => Err(no_screen(cli.run.prompt.as_deref())),
    }
}

fn no_screen(prompt: Option<&str>) -> CliError {
    let what = match prompt {
        Some(word) if !word.contains(char::is_whitespace) => {
            format!("there is no verb {word:?}, and no interactive screen yet")
        }
        _ => "there is no interactive screen yet".to_owned(),
    };
    let hint = "run without one: lead -p \"PROMPT\"; see it work: lead demo; everything else: lead --help";
    CliError::usage(what).with_hint(hint)
}
