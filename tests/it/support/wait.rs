//! Waiting for a condition that no event tells of.

use std::fmt::Debug;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The longest a condition may take, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` gives a value; panics with `what` and the last thing that was seen instead
/// when that takes too long.
pub fn eventually<T, S: Debug>(what: &str, mut look: impl FnMut() -> Result<T, S>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if begun.elapsed() > PATIENCE => panic!("{what}: not after {PATIENCE:?}; last seen: {seen:#?}"),
            Err(_) => pause(Duration::from_millis(15)),
        }
    }
}

/// Lets others run: the rest between two looks, and the random moments of the tests that kill.
pub fn pause(length: Duration) {
    let (_open, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(length);
}
