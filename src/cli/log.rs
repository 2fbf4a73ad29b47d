//! Log lines of this program on standard error, in a form for people: what happened, and nothing
//! of when and where unless it was asked for.

use tracing::{Level, Metadata};

use crate::proc::log_to_stderr;

/// Target of lines that tell of agents' coming and going; they are shown without a level.
const PROGRESS: &str = "lead";

/// Starts logging at `level`, or at `warn`.
pub(super) fn start(level: Option<&str>) {
    log_to_stderr(level, head);
}

fn head(metadata: &Metadata<'_>) -> String {
    match *metadata.level() {
        Level::ERROR => "lead: error: ".to_owned(),
        Level::WARN if metadata.target() == PROGRESS => String::new(),
        Level::WARN => "lead: warning: ".to_owned(),
        level => format!("{level} {}: ", metadata.target()),
    }
}
