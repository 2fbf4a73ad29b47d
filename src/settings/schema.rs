//! The keys of settings files (spec 9.1) with their types and defaults. Unknown keys are ignored
//! here and kept in [`Settings::raw`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::models::{ModelEntry, ModelTable};
use super::prices::{Price, PriceTable};
use super::reader::{Reader, Wrong};
use crate::core::hook::HookSet;
use crate::core::limits::Durability;
use crate::core::provider::Retry;

/// All layers merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Model of the session.
    pub model: Option<String>,
    /// Agent of the main conversation.
    pub agent: Option<String>,
    /// Variables set for the session and its agents.
    pub env: BTreeMap<String, String>,
    /// Permission mode of the session, as it was written.
    pub default_mode: Option<String>,
    /// How teammates are shown.
    pub teammate_mode: Option<String>,
    /// Days after which ended sessions are removed.
    pub cleanup_period_days: u32,
    /// Hooks of all layers, those that can be used.
    pub hooks: HookSet,
    /// Keys under `lead`.
    pub lead: LeadSettings,
    /// Everything, also what this build does not know.
    pub raw: Value,
}

/// Keys under `lead`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeadSettings {
    /// Aliases and sizes of models.
    pub models: BTreeMap<String, ModelEntry>,
    /// Window of every model, tokens; none = the model's own.
    pub context_window: Option<u64>,
    /// Most agents alive at a time.
    pub max_agents: usize,
    /// Most agents started in a session tree.
    pub max_agents_total: usize,
    /// When a foreground agent goes to the background; zero = never; none = the front end's own
    /// default (interactive 120 s, headless never).
    pub auto_background: Option<Duration>,
    /// Whether forks exist.
    pub fork_subagent: ForkSubagent,
    /// The first fork's response begins before the others are sent.
    pub fork_stagger: bool,
    /// Sessions may be started by agents' tools.
    pub nested_sessions: bool,
    /// Coordinator mode can be turned on.
    pub coordinator_mode: bool,
    /// Sessions have a scratchpad.
    pub scratchpad: bool,
    /// Reminders to verify.
    pub verification_nudge: bool,
    /// How long a headless run waits for background agents that say nothing.
    pub background_wait: Duration,
    /// How long a permission question waits.
    pub permission_timeout: Duration,
    /// How long a teammate has to shut down.
    pub shutdown_grace: Duration,
    /// How long an idle teammate without a lead lives.
    pub orphan_ttl: Duration,
    /// Silence after which an agent is reported as stalled.
    pub stall_after: Duration,
    /// Whether messages of other sessions are taken.
    pub accept_cross_session: AcceptCrossSession,
    /// When a line counts as written.
    pub durability: Durability,
    /// Repeated model calls.
    pub retry: Retry,
    /// Prices of models, by id.
    pub prices: BTreeMap<String, Price>,
}

/// `lead.forkSubagent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkSubagent {
    /// `off`.
    Off,
    /// `interactive`: interactive sessions only.
    #[default]
    Interactive,
    /// `always`.
    Always,
}

/// `lead.acceptCrossSession`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptCrossSession {
    /// `off`.
    Off,
    /// `sameUser`: processes of the same user and of root.
    #[default]
    SameUser,
}

impl Default for LeadSettings {
    fn default() -> Self {
        Self {
            models: BTreeMap::new(),
            context_window: None,
            max_agents: 64,
            max_agents_total: 1000,
            auto_background: None,
            fork_subagent: ForkSubagent::default(),
            fork_stagger: true,
            nested_sessions: false,
            coordinator_mode: true,
            scratchpad: true,
            verification_nudge: true,
            background_wait: Duration::from_secs(600),
            permission_timeout: Duration::from_secs(600),
            shutdown_grace: Duration::from_secs(10),
            orphan_ttl: Duration::from_secs(900),
            stall_after: Duration::from_secs(300),
            accept_cross_session: AcceptCrossSession::default(),
            durability: Durability::default(),
            retry: Retry::default(),
            prices: BTreeMap::new(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            agent: None,
            env: BTreeMap::new(),
            default_mode: None,
            teammate_mode: None,
            cleanup_period_days: 30,
            hooks: HookSet::default(),
            lead: LeadSettings::default(),
            raw: Value::Object(serde_json::Map::new()),
        }
    }
}

impl Settings {
    /// The table of models these settings make.
    pub fn models(&self) -> ModelTable {
        ModelTable::new(self.lead.models.clone(), self.lead.context_window)
    }

    /// The prices of models that these settings make.
    pub fn prices(&self) -> PriceTable {
        PriceTable::new(self.lead.prices.clone())
    }

    /// Reads the known keys; what is not there has its default.
    pub(super) fn read(value: &Value) -> Result<Self, Wrong> {
        let top = Reader::top(value)?;
        let permissions = top.object("permissions")?;
        for list in ["allow", "ask", "deny", "additionalDirectories"] {
            permissions.strings(list)?;
        }
        Ok(Self {
            model: top.string("model")?,
            agent: top.string("agent")?,
            env: environment(&top.object("env")?)?,
            default_mode: permissions.string("defaultMode")?,
            teammate_mode: top.string("teammateMode")?,
            cleanup_period_days: top.count("cleanupPeriodDays")?.unwrap_or(30),
            // Read layer by layer, where their places are known.
            hooks: HookSet::default(),
            lead: LeadSettings::read(&top.object("lead")?)?,
            raw: value.clone(),
        })
    }
}

impl LeadSettings {
    fn read(lead: &Reader<'_>) -> Result<Self, Wrong> {
        let default = Self::default();
        let flag = |key, default| lead.flag(key).map(|v| v.unwrap_or(default));
        let duration = |key, default| lead.duration(key).map(|v| v.unwrap_or(default));
        let forks =
            [("off", ForkSubagent::Off), ("interactive", ForkSubagent::Interactive), ("always", ForkSubagent::Always)];
        let crossing = [("off", AcceptCrossSession::Off), ("sameUser", AcceptCrossSession::SameUser)];
        let durabilities = [("process", Durability::Process), ("disk", Durability::Disk)];
        Ok(Self {
            models: models(&lead.object("models")?)?,
            context_window: lead.count("contextWindow")?,
            max_agents: lead.count("maxAgents")?.unwrap_or(default.max_agents),
            max_agents_total: lead.count("maxAgentsTotal")?.unwrap_or(default.max_agents_total),
            auto_background: lead.duration("autoBackgroundMs")?,
            fork_subagent: lead
                .word("forkSubagent", "\"off\", \"interactive\" or \"always\"", &forks)?
                .unwrap_or_default(),
            fork_stagger: flag("forkStagger", default.fork_stagger)?,
            nested_sessions: flag("nestedSessions", default.nested_sessions)?,
            coordinator_mode: flag("coordinatorMode", default.coordinator_mode)?,
            scratchpad: flag("scratchpad", default.scratchpad)?,
            verification_nudge: flag("verificationNudge", default.verification_nudge)?,
            background_wait: duration("backgroundWait", default.background_wait)?,
            permission_timeout: duration("permissionTimeout", default.permission_timeout)?,
            shutdown_grace: duration("shutdownGrace", default.shutdown_grace)?,
            orphan_ttl: duration("orphanTtl", default.orphan_ttl)?,
            stall_after: duration("stallAfter", default.stall_after)?,
            accept_cross_session: lead
                .word("acceptCrossSession", "\"off\" or \"sameUser\"", &crossing)?
                .unwrap_or_default(),
            durability: lead.word("durability", "\"process\" or \"disk\"", &durabilities)?.unwrap_or_default(),
            retry: retry(&lead.object("retry")?)?,
            prices: prices(&lead.object("prices")?)?,
        })
    }
}

fn retry(reader: &Reader<'_>) -> Result<Retry, Wrong> {
    let default = Retry::default();
    Ok(Retry {
        attempts: reader.count("attempts")?.unwrap_or(default.attempts),
        base: reader.duration("base")?.unwrap_or(default.base),
        cap: reader.duration("cap")?.unwrap_or(default.cap),
    })
}

/// `"alias": "id"`, or `"name": {"id", "window", "maxTokens"}`.
fn models(reader: &Reader<'_>) -> Result<BTreeMap<String, ModelEntry>, Wrong> {
    let mut out = BTreeMap::new();
    for name in reader.keys() {
        let entry = if reader.is_string(name) {
            ModelEntry { id: reader.string(name)?, ..ModelEntry::default() }
        } else {
            let object = reader.object(name)?;
            ModelEntry {
                id: object.string("id")?,
                window: object.count("window")?,
                max_tokens: object.count("maxTokens")?,
            }
        };
        out.insert(name.to_owned(), entry);
    }
    Ok(out)
}

/// `"id": {"input", "output", "cacheWrite", "cacheRead"}`, in USD per million tokens.
fn prices(reader: &Reader<'_>) -> Result<BTreeMap<String, Price>, Wrong> {
    let mut out = BTreeMap::new();
    for name in reader.keys() {
        let price = reader.object(name)?;
        let needed = |key| price.price(key)?.ok_or_else(|| price.wrong(key, "a price in USD per million tokens"));
        let usual = Price::usual(needed("input")?, needed("output")?);
        out.insert(
            name.to_owned(),
            Price {
                cache_write: price.price("cacheWrite")?.unwrap_or(usual.cache_write),
                cache_read: price.price("cacheRead")?.unwrap_or(usual.cache_read),
                ..usual
            },
        );
    }
    Ok(out)
}

fn environment(reader: &Reader<'_>) -> Result<BTreeMap<String, String>, Wrong> {
    let mut out = BTreeMap::new();
    for name in reader.keys() {
        // Setting such a variable would panic or be cut off.
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(reader.wrong(name, "a variable whose name has no `=` and is not empty"));
        }
        if let Some(value) = reader.scalar(name)? {
            if value.contains('\0') {
                return Err(reader.wrong(name, "a string without null characters"));
            }
            out.insert(name.to_owned(), value);
        }
    }
    Ok(out)
}
