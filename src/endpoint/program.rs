//! The program around an agent: arguments, log, runtime, exit code.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::boot::{Booted, boot};
use super::error::EndpointError;
use crate::core::clock;
use crate::core::env;
use crate::core::frame::BUILD;
use crate::model::BoxFuture;
use crate::proc::{Signals, log_to_stderr};
use crate::wire::{parse_address, take_parent_link};

/// The argument with the address of the parent, of an agent that it did not start itself: a pane's.
pub const PARENT: &str = "--parent";

/// What an agent does once it knows who it is; its exit code.
pub type AgentLife = BoxFuture<'static, Result<u8, EndpointError>>;

/// Runs the program `name`, an agent of `role` that lives as `live` says; its exit code. Other
/// arguments than the parent's address are for `ps` only; what counts comes by the handshake.
pub fn agent_main(name: &'static str, role: &str, live: impl FnOnce(Booted, Signals) -> AgentLife) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--version" || a == "-v") {
        let _ = writeln!(std::io::stdout(), "{BUILD} ({name})");
        return ExitCode::SUCCESS;
    }
    start_log();
    match run(name, role, &args, live) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "ends");
            ExitCode::from(match error {
                EndpointError::NotStartedByLead(_) => 2,
                _ => 1,
            })
        }
    }
}

/// Log lines go to stderr, which is the agent's log file.
fn start_log() {
    log_to_stderr(std::env::var(env::LOG).ok().as_deref(), |metadata| {
        format!("{} {} {}: ", clock::iso(clock::now_ms()), metadata.level(), metadata.target())
    });
}

fn run(
    name: &'static str,
    role: &str,
    args: &[String],
    live: impl FnOnce(Booted, Signals) -> AgentLife,
) -> Result<u8, EndpointError> {
    let said = |flag: &str| args.iter().skip_while(|a| *a != flag).nth(1).map(String::as_str);
    let stream = match said(PARENT) {
        Some(address) => parse_address(address).ok().and_then(|path| UnixStream::connect(path).ok()),
        None => take_parent_link().ok(),
    };
    let stream = stream.ok_or(EndpointError::NotStartedByLead(name))?;
    let id = said("--id").unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| EndpointError::System { action: "can't start the runtime", source })?;
    // What is large is on the heap: a runtime hands its future down by value, and each page of stack
    // that this touches stays with the process for as long as it lives.
    let code = runtime.block_on(async {
        let signals =
            Signals::listen().map_err(|source| EndpointError::System { action: "can't listen to signals", source })?;
        let booted = Box::pin(boot(stream, role, id)).await?;
        live(booted, signals).await
    });
    // A tool that ignores its cancellation must not hold the process up.
    runtime.shutdown_background();
    code
}
