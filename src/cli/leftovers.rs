//! What processes and agents left behind that ended badly: findings of `lead doctor`.

use super::doctor::Finding;
use super::ended::time_to_start;
use super::folders::Folders;
use super::ps::last_outcome;
use crate::core::agent::Owner;
use crate::core::clock;
use crate::core::ids::AgentId;
use crate::store::StoreError;
use crate::store::lock::is_held;
use crate::store::runtime::Registered;
use crate::store::session::{read_meta, resolve, resolve_prefix};

/// Dead entries and orphans.
pub(super) fn of_registry(registered: &[Registered]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in registered {
        let entry = &one.entry;
        if !one.alive {
            findings.push(Finding::new(
                format!(
                    "the {} {} (pid {}) died without taking itself out of the registry",
                    entry.role, entry.agent_id, entry.pid
                ),
                "lead reap; the next start of a session sweeps it, too",
            ));
        } else if entry.role != "lead" && one.state.as_ref().is_some_and(|s| s.owner == Owner::Lost) {
            findings.push(Finding::new(
                format!("agent {} (pid {}) goes on without its lead", entry.agent_id, entry.pid),
                format!("take it over with lead -p --resume {}, or end it with lead reap", entry.session),
            ));
        }
    }
    findings
}

/// Agents of this config folder whose files are not as they should be.
pub(super) fn of_agents(folders: &Folders) -> Vec<Finding> {
    let ids = resolve_prefix(&folders.config, "a");
    ids.iter().filter_map(|id| of_agent(id, folders)).collect()
}

fn of_agent(id: &AgentId, folders: &Folders) -> Option<Finding> {
    let link = folders.config.agent_link(id);
    let remove = |what: &str| Finding::new(format!("{what}: {}", link.display()), format!("rm '{}'", link.display()));
    let Ok(files) = resolve(&folders.config, id) else {
        return Some(remove("a link leads to no transcript of its agent"));
    };
    let path = files.transcript();
    match read_meta(&files) {
        Err(StoreError::Missing { .. }) if !path.exists() => {
            return Some(Finding::new(format!("a link leads nowhere: {}", link.display()), "lead reap"));
        }
        Err(StoreError::Missing { path }) => {
            let what = format!("the launch facts of agent {id} are gone ({}), so it can't be resumed", path.display());
            return Some(Finding::new(what, format!("its conversation is kept: lead transcript {id}")));
        }
        Err(error) => return Some(Finding::new(error.to_string(), "put it back from a backup, or remove it")),
        Ok(meta) if !path.exists() && time_to_start(&meta, clock::now_ms()).is_zero() => {
            return Some(Finding::new(format!("agent {id} never started"), "lead reap"));
        }
        Ok(_) => {}
    }
    let is_dead = path.exists() && !is_held(path).unwrap_or(true);
    if is_dead && matches!(last_outcome(&files), Ok(None)) {
        return Some(Finding::new(format!("agent {id} died, and nobody recorded it"), "lead reap"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::core::agent::Meta;
    use crate::core::paths::{ConfigDir, SessionFiles};
    use crate::store::session::record_spawn;

    #[test]
    fn each_kind_of_broken_agent_is_found_with_its_mend() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            config: ConfigDir::new(dir.path()),
            runtime: dir.path().join("r"),
            home: None,
            cwd: dir.path().to_path_buf(),
            environment: Vec::new(),
        };
        let session = SessionFiles::of(dir.path().join("projects/p/s.jsonl"));
        let meta: Meta = serde_json::from_value(json!({"agentType": "worker", "sessionId": "s"})).unwrap();
        let talk = r#"{"type":"user","isSidechain":true,"parentUuid":null,"message":{"role":"user","content":"x"},"uuid":"u","run":1}"#;
        let end = r#"{"type":"system","subtype":"agent_outcome","agentId":"a-1a2b3c4d5e6f7890","run":1,"status":"completed"}"#;
        let agent = |transcript: Option<&str>| {
            let id = AgentId::random();
            let files = session.agent(&id);
            record_spawn(&folders.config, &files, &id, &meta).unwrap();
            if let Some(text) = transcript {
                fs::write(files.transcript(), text).unwrap();
            }
            (id, files)
        };
        let found = |id: &AgentId| of_agent(id, &folders).map(|f| f.what).unwrap_or_default();
        let (fine, _) = agent(Some(&format!("{talk}\n{end}\n")));
        assert_eq!(found(&fine), "");
        let (dead, _) = agent(Some(&format!("{talk}\n")));
        assert!(found(&dead).contains("died, and nobody recorded it"));
        let (never, files) = agent(None);
        assert!(found(&never).contains("never started"));
        fs::remove_file(files.meta()).unwrap();
        assert!(found(&never).contains("leads nowhere"));
        let (damaged, files) = agent(Some(&format!("{talk}\n{end}\n")));
        fs::write(files.meta(), "{").unwrap();
        assert!(found(&damaged).contains("is damaged"));
        fs::remove_file(files.meta()).unwrap();
        assert!(found(&damaged).contains("launch facts"));
        assert_eq!(of_agents(&folders).len(), 3);
    }
}
