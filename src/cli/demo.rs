//! `lead demo`: a coordinator and its workers survey a folder, played from the built-in playbook
//! `survey`. The model is played, everything else is real: processes, tools, what is found.

use std::path::PathBuf;

use clap::Args;

use super::args::{OutputFormat, RunArgs};
use super::error::{CliError, Exit};
use super::output::Output;
use super::run::{self, Progress, Run};

/// Arguments of `lead demo`.
#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    /// Survey this folder; nothing in it is changed
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DemoArgs, out: &mut Output) -> Result<Exit, CliError> {
    let flags = RunArgs {
        prompt: Some(format!("Survey the folder {}", args.folder.display())),
        output_format: if args.json { OutputFormat::Json } else { OutputFormat::Text },
        model: Some("playbook:survey".to_owned()),
        cwd: Some(args.folder.clone()),
        ..RunArgs::default()
    };
    let demo =
        Run { coordinator: Some("lead demo"), progress: Progress::Shown, reads_input: false, ..Run::of_flags(flags) };
    run::run(demo, out)
}
