//! Log lines of this program on standard error, in a form for people: what happened, and nothing
//! of when and where unless it was asked for.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Target of lines that tell of agents' coming and going; they are shown without a level.
const PROGRESS: &str = "lead";

/// Starts logging at `level`, or at `warn`.
pub(super) fn start(level: Option<&str>) {
    let level = level.and_then(|l| l.parse().ok()).unwrap_or(Level::WARN);
    // Fails only if somebody logs already, which is as good.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(io::stderr)
        .event_format(ForPeople)
        .try_init();
}

struct ForPeople;

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        match *metadata.level() {
            Level::ERROR => out.write_str("lead: error: ")?,
            Level::WARN if metadata.target() == PROGRESS => {}
            Level::WARN => out.write_str("lead: warning: ")?,
            level => write!(out, "{level} {}: ", metadata.target())?,
        }
        context.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}
