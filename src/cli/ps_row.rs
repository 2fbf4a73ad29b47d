//! A row of `lead ps` (formats A): from a registry entry and its state, or from what an agent that
//! has ended left. Pure.

use serde::Serialize;

use super::cost::Cost;
use crate::core::agent::{Activity, Meta, Outcome, Owner, RowState};
use crate::core::clock;
use crate::core::shell::ShellState;
use crate::core::team::Member;
use crate::core::team::name::agent_id;
use crate::endpoint::MemberState;
use crate::store::runtime::Registered;

/// One process, or one agent that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct PsRow {
    pub id: String,
    pub role: String,
    pub r#type: Option<String>,
    pub name: Option<String>,
    pub team: Option<String>,
    pub session: String,
    pub description: Option<String>,
    pub state: &'static str,
    pub run: Option<u32>,
    pub pid: Option<i32>,
    pub address: Option<String>,
    pub cwd: Option<String>,
    pub worktree: Option<String>,
    pub model: Option<String>,
    pub started_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    pub since_ms: Option<u64>,
    pub last_event_ms: Option<u64>,
    pub turns: Option<u64>,
    pub tool_uses: Option<u64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cache_read_tokens: Option<u64>,
    pub activity: Vec<Doing>,
    pub waiting_for: Option<String>,
    pub pss_bytes: Option<u64>,
    pub cpu_ms: Option<u64>,
    pub transcript: Option<String>,
    pub orphaned: bool,
    pub stalled: bool,
    pub detached: bool,
    pub leak: bool,
    /// Of a background shell: the agent or session that runs it.
    pub agent: Option<String>,
    /// Of an agent that ended: its tokens, which are not told apart.
    pub total_tokens: Option<u64>,
}

/// One of the latest activities, latest last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Doing {
    pub tool: String,
    pub description: String,
}

impl From<&Activity> for Doing {
    fn from(activity: &Activity) -> Self {
        Self { tool: activity.tool.clone(), description: activity.description.clone() }
    }
}

impl PsRow {
    /// Of a process in the registry. One that is not alive any more is `lost`, and what it left
    /// there does not work: it has no pid and no address.
    pub(super) fn of_process(registered: &Registered, cost: Cost, stall_after_ms: u64, now_ms: u64) -> Self {
        let Registered { entry, state, alive, .. } = registered;
        let mut row = Self {
            id: entry.agent_id.clone(),
            role: entry.role.clone(),
            name: entry.name.clone(),
            team: entry.team.clone(),
            session: entry.session.clone(),
            state: RowState::Starting.as_str(),
            pid: Some(entry.pid),
            address: Some(entry.address.clone()),
            cwd: Some(entry.cwd.clone()),
            started_ms: Some(entry.started),
            pss_bytes: cost.pss_bytes,
            cpu_ms: cost.cpu_ms,
            ..Self::default()
        };
        if let Some(state) = state {
            let progress = &state.progress;
            let is_agent = entry.role != "lead";
            row.r#type = Some(state.agent_type.clone());
            row.description = Some(state.description.clone()).filter(|d| !d.is_empty());
            row.state = state.state.as_str();
            row.run = Some(state.run);
            row.worktree.clone_from(&state.worktree);
            row.model.clone_from(&state.model);
            row.since_ms = Some(state.since_ms);
            row.last_event_ms = Some(state.last_event_ms);
            row.turns = Some(progress.turns);
            row.tool_uses = Some(progress.tool_uses);
            row.input_tokens = Some(progress.input_tokens);
            row.output_tokens = Some(progress.output_tokens);
            row.cache_read_tokens = Some(progress.cache_read_tokens);
            row.activity = progress.activity.iter().map(Doing::from).collect();
            row.waiting_for.clone_from(&state.waiting_for);
            row.transcript = Some(state.transcript.clone());
            row.orphaned = is_agent && state.owner == Owner::Lost;
            row.detached = is_agent && state.owner == Owner::None;
            // An idle one has nothing to say; one that waits says for what.
            row.stalled =
                state.state == RowState::Running && now_ms.saturating_sub(state.last_event_ms) > stall_after_ms;
        }
        if !alive {
            row.state = RowState::Lost.as_str();
            row.pid = None;
            row.address = None;
            row.stalled = false;
            row.orphaned = false;
            row.waiting_for = None;
        }
        row
    }

    /// Of the background shells that a process runs. They end with it, so one that is not alive has none.
    pub(super) fn of_shells(registered: &Registered) -> Vec<Self> {
        let Registered { entry, state, alive, .. } = registered;
        let shells = state.iter().filter(|_| *alive).flat_map(|state| &state.shells);
        let row = |shell: &ShellState| Self {
            id: shell.id.to_string(),
            role: "shell".to_owned(),
            session: entry.session.clone(),
            description: Some(shell.description.clone()),
            state: RowState::Running.as_str(),
            pid: Some(shell.pid),
            cwd: Some(shell.cwd.clone()),
            started_ms: Some(shell.started_ms),
            since_ms: Some(shell.started_ms),
            activity: vec![Doing { tool: "Bash".to_owned(), description: shell.description.clone() }],
            transcript: Some(shell.output_file.clone()),
            agent: Some(entry.agent_id.clone()),
            ..Self::default()
        };
        shells.map(row).collect()
    }

    /// Of a script that is a member of a team; nobody but itself knows more of it.
    pub(super) fn of_script(member: &Member, team: &str, state: MemberState) -> Self {
        Self {
            id: member.agent_id.clone().unwrap_or_else(|| agent_id(&member.name, team)),
            role: "external".to_owned(),
            r#type: member.agent_type.clone(),
            name: Some(member.name.clone()),
            team: Some(team.to_owned()),
            state: state.as_str(),
            pid: state.pid(),
            cwd: member.cwd.clone(),
            started_ms: member.joined_at,
            ..Self::default()
        }
    }

    /// Of an agent that has no process. `outcome` is its latest run's; without one it is `lost`, or
    /// still being started.
    pub(super) fn of_files(id: &str, meta: &Meta, transcript: &str, outcome: Option<&Outcome>, starts: bool) -> Self {
        let state = match (outcome, starts) {
            (Some(outcome), _) => RowState::from(outcome.status),
            (None, true) => RowState::Starting,
            (None, false) => RowState::Lost,
        };
        let ended_ms = outcome.and_then(|o| clock::parse_iso(&o.timestamp));
        let team = id.split_once('@').map(|(_, team)| team.to_owned());
        Self {
            id: id.to_owned(),
            role: if team.is_some() { "teammate" } else { "worker" }.to_owned(),
            team,
            r#type: Some(meta.agent_type.clone()),
            name: meta.name.clone(),
            session: meta.session_id.clone(),
            description: Some(meta.description.clone()).filter(|d| !d.is_empty()),
            state: state.as_str(),
            run: outcome.map(|o| o.run),
            cwd: meta.cwd.clone(),
            worktree: meta.worktree_path.clone(),
            model: meta.model.clone(),
            started_ms: Some(meta.created_at).filter(|t| *t > 0),
            ended_ms,
            since_ms: ended_ms,
            tool_uses: outcome.map(|o| o.usage.tool_uses),
            total_tokens: outcome.map(|o| o.usage.total_tokens),
            transcript: Some(transcript.to_owned()),
            detached: meta.detached,
            leak: outcome.is_some_and(|o| !o.leftovers.is_empty()),
            ..Self::default()
        }
    }

    /// Tokens as spec 1.7 counts them.
    pub(super) fn tokens(&self) -> u64 {
        self.total_tokens.unwrap_or(self.input_tokens.unwrap_or(0) + self.output_tokens.unwrap_or(0))
    }

    /// What it does, for people.
    pub(super) fn activity_text(&self) -> String {
        if let Some(waiting) = &self.waiting_for {
            return format!("waits for {waiting}");
        }
        match self.activity.last() {
            Some(doing) if self.ended_ms.is_none() => format!("{} {}", doing.tool, doing.description),
            _ => self.description.clone().unwrap_or_default(),
        }
    }

    /// Its state with what is wrong with it, for people.
    pub(super) fn state_text(&self) -> String {
        let mut text = self.state.to_owned();
        let notes =
            [(self.orphaned, "orphaned"), (self.stalled, "stalled"), (self.detached, "detached"), (self.leak, "leak")];
        for (_, note) in notes.iter().filter(|(applies, _)| *applies) {
            text.push_str(", ");
            text.push_str(note);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registered(role: &str, owner: &str, alive: bool) -> Registered {
        Registered {
            name: "0123456789ab".to_owned(),
            entry: serde_json::from_value(json!({
                "address": "uds:/r/0123456789ab.sock", "pid": 42, "role": role, "agentId": "a-1a2b3c4d5e6f7890",
                "session": "s", "cwd": "/w", "configDir": "/c", "started": 1000, "version": "0.1.0",
            }))
            .unwrap(),
            state: Some(
                serde_json::from_value(json!({
                    "state": "running", "owner": owner, "run": 1, "type": "worker", "description": "Look",
                    "model": null, "waiting_for": null, "transcript": "/t", "worktree": null, "since_ms": 2000,
                    "last_event_ms": 3000, "progress": {"input_tokens": 10, "output_tokens": 5,
                        "activity": [{"tool": "Read", "description": "a.rs"}, {"tool": "Bash", "description": "wc"}]},
                }))
                .unwrap(),
            ),
            alive,
        }
    }

    #[test]
    fn r035_a_row_tells_what_it_does_and_since_when() {
        let row = PsRow::of_process(&registered("worker", "lead", true), Cost::default(), 1000, 4000);
        assert_eq!((row.state, row.since_ms, row.tokens()), ("running", Some(2000), 15));
        assert_eq!((row.activity_text().as_str(), row.state_text().as_str()), ("Bash wc", "running"));
        assert!(!row.stalled && !row.orphaned && !row.detached);
        let json = serde_json::to_value(&row).unwrap();
        for key in "id role type name team session state run pid address cwd worktree model started_ms ended_ms turns \
            tool_uses input_tokens output_tokens cache_read_tokens activity waiting_for pss_bytes cpu_ms transcript \
            orphaned detached leak"
            .split_whitespace()
        {
            assert!(json.get(key).is_some(), "{key} is missing");
        }
        assert_eq!(json["activity"][1], json!({"tool": "Bash", "description": "wc"}));
    }

    #[test]
    fn r031_r039_what_is_dead_has_no_address() {
        let row = PsRow::of_process(&registered("worker", "lead", false), Cost::default(), 1000, 9999);
        assert_eq!((row.state, row.address, row.pid, row.stalled), ("lost", None, None, false));
    }

    #[test]
    fn orphans_detached_and_stalled_ones_are_marked_and_leads_are_neither() {
        let row = |role, owner| PsRow::of_process(&registered(role, owner, true), Cost::default(), 1000, 4001);
        assert_eq!(row("worker", "lost").state_text(), "running, orphaned, stalled");
        assert_eq!(row("worker", "none").state_text(), "running, stalled, detached");
        assert_eq!(row("lead", "none").state_text(), "running, stalled");
    }

    #[test]
    fn what_ended_is_told_from_its_files() {
        let meta: Meta = serde_json::from_value(json!({
            "agentType": "worker", "description": "Look", "sessionId": "s", "createdAt": 1000,
        }))
        .unwrap();
        let outcome: Outcome = serde_json::from_value(json!({
            "agentId": "a-1a2b3c4d5e6f7890", "run": 2, "status": "killed", "timestamp": "1970-01-01T00:00:05.000Z",
            "usage": {"total_tokens": 9}, "leftovers": [{"pid": 1, "command": "x"}],
        }))
        .unwrap();
        let row = PsRow::of_files("a-1a2b3c4d5e6f7890", &meta, "/t", Some(&outcome), false);
        assert_eq!(
            (row.state, row.run, row.ended_ms, row.tokens(), row.leak),
            ("killed", Some(2), Some(5000), 9, true)
        );
        assert_eq!(row.activity_text(), "Look");
        let state = |starts| PsRow::of_files("a", &meta, "/t", None, starts).state;
        assert_eq!((state(true), state(false)), ("starting", "lost"));
    }
}
