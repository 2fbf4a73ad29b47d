//! Named points at which a test can kill a process: the arrows of spec 4.2 and the steps of a
//! spawn. In release builds [`point`] is empty.
//!
//! `LEAD_FAULT=outcome_before_event` kills the process with SIGKILL when it first reaches that
//! point; `outcome_before_event:3` at the third time, and `worker/…` or `lead/…` in that role only.

/// Where a process can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The assistant entry is written, its tools do not run yet.
    ReplyBeforeTools,
    /// Tools have run, their results are not written yet.
    ToolsBeforeResults,
    /// The results are written, the model is not called yet.
    ResultsBeforeModel,
    /// A delivered message is not written yet.
    DeliverBeforeEnqueue,
    /// A delivered message is written, its sender is not told yet.
    EnqueueBeforeReply,
    /// The final entry is written, the outcome line is not.
    FinalBeforeOutcome,
    /// The outcome line is written, the lead is not told yet.
    OutcomeBeforeEvent,
    /// The lead is told, the agent has not exited yet.
    EventBeforeExit,
    /// The stop marker is written, no signal is sent yet.
    MarkerBeforeSignal,
    /// The lead knows an outcome, its notification is not written yet.
    OutcomeBeforeNotification,
    /// The notification is written, the model is not called yet.
    NotificationBeforeModel,
    /// Link and meta are written, the process is not started yet.
    MetaBeforeProcess,
    /// The process is started, it is not ready yet.
    ProcessBeforeReady,
    /// The process runs, and has not greeted its parent yet.
    StartBeforeHello,
    /// The agent is ready, `async_launched` is not recorded yet.
    ReadyBeforeLaunched,
    /// Mail is read and has its ids, it is not written into the transcript yet.
    MailBeforeEntry,
    /// Mail is in the transcript, it is not marked read yet.
    EntryBeforeMark,
}

impl Fault {
    /// All points.
    pub const ALL: [Fault; 17] = [
        Self::ReplyBeforeTools,
        Self::ToolsBeforeResults,
        Self::ResultsBeforeModel,
        Self::DeliverBeforeEnqueue,
        Self::EnqueueBeforeReply,
        Self::FinalBeforeOutcome,
        Self::OutcomeBeforeEvent,
        Self::EventBeforeExit,
        Self::MarkerBeforeSignal,
        Self::OutcomeBeforeNotification,
        Self::NotificationBeforeModel,
        Self::MetaBeforeProcess,
        Self::ProcessBeforeReady,
        Self::StartBeforeHello,
        Self::ReadyBeforeLaunched,
        Self::MailBeforeEntry,
        Self::EntryBeforeMark,
    ];

    /// Its name in `LEAD_FAULT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplyBeforeTools => "reply_before_tools",
            Self::ToolsBeforeResults => "tools_before_results",
            Self::ResultsBeforeModel => "results_before_model",
            Self::DeliverBeforeEnqueue => "deliver_before_enqueue",
            Self::EnqueueBeforeReply => "enqueue_before_reply",
            Self::FinalBeforeOutcome => "final_before_outcome",
            Self::OutcomeBeforeEvent => "outcome_before_event",
            Self::EventBeforeExit => "event_before_exit",
            Self::MarkerBeforeSignal => "marker_before_signal",
            Self::OutcomeBeforeNotification => "outcome_before_notification",
            Self::NotificationBeforeModel => "notification_before_model",
            Self::MetaBeforeProcess => "meta_before_process",
            Self::ProcessBeforeReady => "process_before_ready",
            Self::StartBeforeHello => "start_before_hello",
            Self::ReadyBeforeLaunched => "ready_before_launched",
            Self::MailBeforeEntry => "mail_before_entry",
            Self::EntryBeforeMark => "entry_before_mark",
        }
    }
}

/// Passes a fault point. Kills this process if the point is armed for it (debug builds only).
#[cfg(debug_assertions)]
pub fn point(fault: Fault) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    struct Armed {
        name: String,
        left: AtomicU32,
    }
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var(super::env::FAULT).ok()?;
        let (role, rest) = text.split_once('/').unwrap_or(("", &text));
        let program = std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned();
        let here = program.strip_prefix("lead-").unwrap_or(&program);
        if !role.is_empty() && role != here {
            return None;
        }
        let (name, count) = rest.split_once(':').unwrap_or((rest, "1"));
        Some(Armed { name: name.to_owned(), left: AtomicU32::new(count.parse().unwrap_or(1)) })
    });
    if let Some(armed) = armed
        && armed.name == fault.name()
        && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Passes a fault point: empty in release builds.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_fault: Fault) {}
