//! `lead-worker`: one answer, then exit.

use std::process::ExitCode;

use super::agent::Agent;
use super::boot::Booted;
use super::error::EndpointError;
use super::program::agent_main;
use crate::proc::Signals;

/// Runs the program.
pub fn worker_main() -> ExitCode {
    agent_main("lead-worker", "worker", |booted, signals| Box::pin(live(booted, signals)))
}

async fn live(booted: Booted, signals: Signals) -> Result<u8, EndpointError> {
    let mut agent = Box::new(Agent::new(booted, signals, None)?);
    agent.announce().await;
    loop {
        if let Some(end) = agent.ended.take().and_then(|end| agent.hold(end)) {
            return Ok(agent.finish(end).await);
        }
        let heard = agent.next().await;
        agent.handle(heard);
    }
}
