//! The program `lead-teammate`.

use std::process::ExitCode;

use super::member::Teammate;
use super::watched::Watched;
use crate::core::frame::Frame;
use crate::core::limits::deadlines;
use crate::core::text::with_causes;
use crate::endpoint::{Agent, Booted, EndpointError, agent_main};
use crate::proc::Signals;

/// Runs the program.
pub fn teammate_main() -> ExitCode {
    agent_main("lead-teammate", "teammate", |booted, signals| Box::pin(live(booted, signals)))
}

/// A process that does not find its team fails before it is ready (R024): none is made up for it.
async fn live(booted: Booted, signals: Signals) -> Result<u8, EndpointError> {
    match Teammate::place(&booted) {
        Ok(place) => {
            let watched = place.watched(&booted);
            let witness = watched.as_ref().map(Watched::witness);
            let agent = Box::new(Agent::new(booted, signals, witness)?);
            Ok(Box::pin(Teammate::new(agent, place, watched).live()).await)
        }
        Err(error) => {
            let _ = booted.link.send(Frame::Refused { reason: with_causes(&error) });
            let _ = booted.link.flush(deadlines().reply).await;
            Err(error)
        }
    }
}
