//! Log lines of this process on its standard error, which an agent's parent made its log file. One
//! line per event and one write per line. Programs decide what a line begins with.
//!
//! A general subscriber would keep tables for spans, which nobody opens here and every agent would
//! pay for: about 40 KiB of each process and a tenth of its start.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::core::text;

/// Starts logging at the level named (`error`, `warn`, `info`, `debug`, `trace`), or at `warn`.
/// `head` makes the beginning of a line. Without effect in a process that logs already.
pub fn log_to_stderr(level: Option<&str>, head: fn(&Metadata<'_>) -> String) {
    let level = level.and_then(|level| level.parse().ok()).unwrap_or(Level::WARN);
    // Fails only if somebody logs already, which is as good.
    let _ = tracing::subscriber::set_global_default(Log { level, head });
}

struct Log {
    level: Level,
    head: fn(&Metadata<'_>) -> String,
}

impl Log {
    fn line(&self, event: &Event<'_>) -> String {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // What agents and providers wrote is part of it.
        let text = text::for_terminal(&format!("{}{}{}", (self.head)(event.metadata()), fields.message, fields.others));
        format!("{}\n", text.trim_end())
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        // A log that nobody can read any more stops nothing.
        let _ = io::stderr().write_all(self.line(event).as_bytes());
    }

    // Spans are not shown, so they are all the same one.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message first, then ` name=value` of each other field.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
    }

    /// With its causes.
    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let _ = write!(self.others, " {}={error}", field.name());
        let mut next = error.source();
        while let Some(cause) = next {
            let _ = write!(self.others, ": {cause}");
            next = cause.source();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps the lines instead of writing them.
    struct Kept(Log, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }
        fn event(&self, event: &Event<'_>) {
            self.1.lock().unwrap().push(self.0.line(event));
        }
        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            self.0.new_span(attributes)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn lines_say_what_happened_with_fields_and_causes_and_nothing_for_terminals() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Log { level: Level::WARN, head: |metadata| format!("{}: ", metadata.level()) };
        let error = "x".parse::<i32>().unwrap_err();
        let wrapped = io::Error::other(error);
        tracing::subscriber::with_default(Kept(log, Arc::clone(&lines)), || {
            tracing::warn!("only words");
            tracing::warn!(pid = 7, name = "a\u{1b}[31mb", %wrapped, "in {} parts", 2);
            tracing::error!(error = &wrapped as &dyn Error, "ends");
            tracing::info!("too low");
            let _span = tracing::error_span!("span").entered();
            tracing::error!("within");
        });
        let expected = [
            "WARN: only words\n",
            "WARN: in 2 parts pid=7 name=\"a\\u{1b}[31mb\" wrapped=invalid digit found in string\n",
            "ERROR: ends error=invalid digit found in string\n",
            "ERROR: within\n",
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
    }
}
