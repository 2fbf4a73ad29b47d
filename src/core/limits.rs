//! Every limit and deadline of the product in one place (spec 9.3).
//!
//! Sizes are constants. Deadlines are values so that debug builds can shorten them through
//! `LEAD_LIMITS` (`ready=500ms,reply=200ms`) and no test waits for a real one.

use std::sync::OnceLock;
use std::time::Duration;

/// Longest frame on a socket, bytes.
pub const FRAME_BYTES: usize = 16 << 20;
/// Longest prompt, bytes.
pub const PROMPT_BYTES: usize = 10 << 20;
/// Longest message to an agent or session, bytes.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Longest transcript line, bytes.
pub const ENTRY_BYTES: usize = 16 << 20;
/// Characters of a tool's output that a model sees.
pub const TOOL_OUTPUT_CHARS: usize = 30_000;
/// Bytes of a tool's output that are kept in a file.
pub const TOOL_OUTPUT_BYTES: usize = 64 << 20;
/// Characters of what a hook says that a model sees.
pub const HOOK_CHARS: usize = 10_000;
/// Background shells that one agent runs at a time.
pub const BACKGROUND_SHELLS: usize = 100;
/// Largest file that is changed by `Edit`, bytes; the content of larger ones is not remembered.
pub const EDIT_BYTES: usize = 16 << 20;
/// Characters of a result in a notification.
pub const NOTIFICATION_RESULT_CHARS: usize = 30_000;
/// Agent log, bytes; rotated once.
pub const LOG_BYTES: u64 = 1 << 20;
/// Connections one socket serves at a time.
pub const CONNECTIONS: usize = 256;
/// Requests in flight on one connection.
pub const REQUESTS_IN_FLIGHT: usize = 64;
/// Longest socket path, bytes.
pub const SOCKET_PATH_BYTES: usize = 90;
/// Read-only tools of one reply that run at a time.
pub const PARALLEL_TOOLS: usize = 10;
/// Events waiting in a process's main loop.
pub const LOOP_EVENTS: usize = 1024;
/// Longest event of a model's stream, bytes.
pub const STREAM_EVENT_BYTES: usize = 8 << 20;
/// Longest stream of one reply, bytes: a reply of the largest size, each token an event of its own.
pub const STREAM_BYTES: usize = 128 << 20;
/// Longest request to a model, bytes: what the Messages API takes.
pub const MODEL_REQUEST_BYTES: usize = 32 << 20;
/// Bytes of a web page that are read.
pub const WEB_BODY_BYTES: usize = 10 << 20;
/// Bytes of a web page's text that a model sees.
pub const WEB_TEXT_BYTES: usize = 100_000;
/// Messages waiting in one agent.
pub const PENDING_MESSAGES: usize = 1024;

/// Panes that wait to be opened.
pub const PANES_WAITING: usize = 256;

/// Messages of a mailbox that are taken in before they are marked read. A transcript that is compacted
/// in between still knows so many, also if the process dies.
pub const HAND_OVER: usize = 128;
/// Longest text of a mailbox message, bytes.
pub const MAIL_TEXT_BYTES: usize = 64 << 10;
/// A mailbox file, bytes.
pub const MAILBOX_BYTES: usize = 4 << 20;
/// A mailbox file that a member reads without the help of a thread, bytes.
pub const MAILBOX_AT_ONCE_BYTES: usize = 256 << 10;
/// A mailbox file after compaction, as far as read messages can be dropped, bytes.
pub const MAILBOX_COMPACT_BYTES: usize = 2 << 20;
/// Ordinary messages a mailbox keeps, as far as read ones can be dropped.
pub const MAILBOX_ORDINARY: usize = 1000;
/// Read messages a mailbox keeps.
pub const MAILBOX_READ: usize = 200;
/// Unread protocol messages in a mailbox.
pub const MAILBOX_UNREAD_PROTOCOL: usize = 2000;
/// A mailbox file whose messages a sender need not count, bytes: so many don't fit into it.
pub const MAILBOX_UNCOUNTED_BYTES: usize = 128 << 10;
/// The most that is read of a file several programs write, bytes; only a broken one is longer.
pub const SHARED_FILE_BYTES: usize = 64 << 20;
/// A card of the task board, bytes.
pub const CARD_BYTES: usize = 1 << 20;
/// Age from which the lock folder of another program counts as left behind.
pub const FOREIGN_LOCK_STALE: Duration = Duration::from_secs(10);

/// What "on disk" means (setting `lead.durability`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the kernel: survives the end of every process.
    #[default]
    Process,
    /// On the medium: survives a loss of power.
    Disk,
}

impl Durability {
    /// From the setting's value: `disk`, and anything else is `process`.
    pub fn parse(text: &str) -> Self {
        if text == "disk" { Self::Disk } else { Self::Process }
    }

    /// The setting's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Disk => "disk",
        }
    }
}

macro_rules! deadlines {
    ($($(#[doc = $doc:literal])* $name:ident = $ms:literal;)*) => {
        /// Deadlines, all with the defaults of spec 9.3.
        #[derive(Clone, Debug)]
        pub struct Deadlines {
            $($(#[doc = $doc])* pub $name: Duration,)*
        }
        impl Default for Deadlines {
            fn default() -> Self {
                Self { $($name: Duration::from_millis($ms),)* }
            }
        }
        impl Deadlines {
            /// Applies `name=duration,…`; unknown names and broken durations are errors.
            pub fn with_overrides(mut self, text: &str) -> Result<Self, String> {
                for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                    let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not name=duration"))?;
                    let duration = humantime::parse_duration(value).map_err(|e| format!("{part:?}: {e}"))?;
                    match name {
                        $(stringify!($name) => self.$name = duration,)*
                        _ => return Err(format!("no deadline is named {name:?}")),
                    }
                }
                Ok(self)
            }
        }
    };
}

deadlines! {
    /// `Hello` after a connection was made.
    handshake = 5000;
    /// A child's `Ready` after its start.
    ready = 10000;
    /// A lock another process holds.
    lock = 15000;
    /// A lock that a prober may hold for microseconds.
    probe = 2000;
    /// Between two looks at a team's files where the kernel can't tell of changes.
    poll = 1000;
    /// Reply to a `Status` or `Ping`.
    status = 1000;
    /// Reply to any other request.
    reply = 5000;
    /// Reply to a `Deliver` that may resume an agent.
    resume = 15000;
    /// One call of tmux, however many panes it opens.
    tmux = 10000;
    /// Stop ladder: from the request to SIGTERM.
    stop_ask = 2000;
    /// Stop ladder: from SIGTERM to SIGKILL.
    stop_term = 2000;
    /// Stop ladder: from SIGKILL to giving up.
    stop_kill = 2000;
    /// From the owner link's end to treating a living process as broken.
    link_end = 2000;
    /// The end of another program's member after it agreed to end.
    goodbye = 10000;
    /// A piped stdin that says nothing beside a prompt.
    stdin_silence = 3000;
    /// From the result to the process's end.
    exit = 5000;
    /// Shortest time between two writes of counters to a state file.
    state_write = 200;
    /// Between two messages of one sender, on average over a second.
    message_interval = 50;
    /// A hook that sets no limit of its own.
    hook = 60000;
    /// Draining a tool's output after its end.
    drain = 500;
    /// A connection to a model's provider or a web page's server, name look-up included.
    model_connect = 10000;
    /// Between a request and its answer, or two events of a reply; pings do not count.
    model_stall = 300000;
    /// A whole reply.
    model_reply = 3600000;
    /// A web page, redirects and body included.
    web_fetch = 60000;
}

/// The deadlines of this process. In debug builds `LEAD_LIMITS` changes them.
pub fn deadlines() -> &'static Deadlines {
    static CELL: OnceLock<Deadlines> = OnceLock::new();
    CELL.get_or_init(|| {
        let defaults = Deadlines::default();
        if !cfg!(debug_assertions) {
            return defaults;
        }
        match std::env::var(super::env::LIMITS) {
            Ok(text) => defaults.clone().with_overrides(&text).unwrap_or(defaults),
            Err(_) => defaults,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_name_what_is_wrong() {
        let d = Deadlines::default().with_overrides("ready=500ms, reply=2s").unwrap_or_default();
        assert_eq!(d.ready, Duration::from_millis(500));
        assert_eq!(d.reply, Duration::from_secs(2));
        assert_eq!(d.lock, Duration::from_secs(15));
        assert!(Deadlines::default().with_overrides("nope=1s").is_err_and(|e| e.contains("nope")));
        assert!(Deadlines::default().with_overrides("ready=soon").is_err());
    }
}
