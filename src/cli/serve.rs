//! `lead model serve`: a playbook as a Messages API on this machine, for tests without tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::error::{CliError, Exit};
use super::output::Output;
use crate::model::serve::{Check, ServeOptions, run as serve_playbook};
use crate::proc::Signals;

/// Arguments of `lead model`.
#[derive(Args, Debug)]
pub(super) struct ModelArgs {
    #[command(subcommand)]
    pub verb: ModelVerb,
}

/// What can be done with models.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(super) enum ModelVerb {
    /// Serve a playbook as a Messages API on this machine, until a signal ends it
    Serve(ServeArgs),
}

/// Arguments of `lead model serve`.
#[derive(Args, Debug)]
#[command(
    after_help = "The first line of output is the base URL: set ANTHROPIC_BASE_URL to it. Exit codes: 2 the playbook \
                  can't be used, 3 the port is taken, else that of the signal."
)]
pub(super) struct ServeArgs {
    /// Play this file, or a built-in playbook: survey, survey-team
    #[arg(long, value_name = "FILE")]
    playbook: PathBuf,
    /// Listen on this port of 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Refuse what a strict provider refuses: broken pairs, wrong order, unknown tools, no key
    #[arg(long)]
    strict: bool,
    /// Print the base URL as JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// Serves until a signal comes; what is open then is cut.
pub(super) fn run(args: &ServeArgs, out: &mut Output) -> Result<Exit, CliError> {
    let system = |action| move |source| CliError::System { action, source };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system("start the runtime"))?;
    let options = ServeOptions {
        playbook: args.playbook.to_string_lossy().into_owned(),
        port: args.port,
        check: if args.strict { Check::Strict } else { Check::Lenient },
    };
    runtime.block_on(async {
        let mut signals = Signals::listen().map_err(system("listen to signals"))?;
        let cancel = CancellationToken::new();
        let mut told = Ok(());
        let serving = serve_playbook(options, &cancel, |url| {
            told = tell(url, args.json, out);
            if told.is_err() {
                // Nobody knows the address, and nobody will.
                cancel.cancel();
            }
        });
        tokio::select! {
            served = serving => {
                served?;
                told.map(|()| Exit::Success)
            }
            signal = signals.recv() => Ok(Exit::Signal(signal)),
        }
    })
}

fn tell(url: &str, as_json: bool, out: &mut Output) -> Result<(), CliError> {
    if as_json {
        out.json(&json!({"base_url": url}))?
    } else {
        out.line(url)?
    }
    out.flush()
}
