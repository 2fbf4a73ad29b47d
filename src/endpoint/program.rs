//! The program around a worker: arguments, log, runtime, exit code.

use std::io::Write as _;
use std::process::ExitCode;

use super::boot::boot;
use super::error::EndpointError;
use super::worker::Worker;
use crate::core::clock;
use crate::core::env;
use crate::core::frame::BUILD;
use crate::proc::{Signals, log_to_stderr};
use crate::wire::take_parent_link;

/// Runs the program. Arguments are for `ps` only; what counts comes by the handshake.
pub fn worker_main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--version" || a == "-v") {
        let _ = writeln!(std::io::stdout(), "{BUILD} (lead-worker)");
        return ExitCode::SUCCESS;
    }
    start_log();
    let id = args.iter().skip_while(|a| *a != "--id").nth(1).cloned().unwrap_or_default();
    match run(&id) {
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

/// Log lines go to stderr, which the parent made the agent's log file.
fn start_log() {
    log_to_stderr(std::env::var(env::LOG).ok().as_deref(), |metadata| {
        format!("{} {} {}: ", clock::iso(clock::now_ms()), metadata.level(), metadata.target())
    });
}

fn run(id: &str) -> Result<u8, EndpointError> {
    let stream = take_parent_link().map_err(|_| EndpointError::NotStartedByLead("lead-worker"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| EndpointError::System { action: "can't start the runtime", source })?;
    // What is large is on the heap: a runtime hands its future down by value, and each page of stack
    // that this touches stays with the process for as long as it lives.
    let code = runtime.block_on(async {
        let signals =
            Signals::listen().map_err(|source| EndpointError::System { action: "can't listen to signals", source })?;
        let booted = Box::pin(boot(stream, "worker", id)).await?;
        let worker = Box::new(Worker::new(booted)?);
        Box::pin(worker.live(signals)).await
    });
    // A tool that ignores its cancellation must not hold the process up.
    runtime.shutdown_background();
    code
}
