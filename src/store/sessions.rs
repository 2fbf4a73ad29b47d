//! Sessions as wholes: which there are, how one began, what of it was not told yet, and its removal.
//! Called by verbs that list, address and remove sessions.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::StoreError;
use super::atomic::remove;
use super::history::resume;
use super::lock::{self, Patience, is_held};
use super::reader::outcomes_since;
use super::session::{agents_of, names_in};
use crate::core::clock;
use crate::core::entry::{Line, ORIGIN_PEER, Place, SPAWN_PROMPT, parse_line};
use crate::core::ids::{AgentId, SessionId};
use crate::core::limits::deadlines;
use crate::core::message::{Role, text_of};
use crate::core::paths::{AgentFiles, ConfigDir, SessionFiles};
use crate::core::team::name::{self, LEAD};
use crate::core::text;

/// How much of a transcript is looked through for its beginning, bytes.
const BEGINNING_BYTES: u64 = 1 << 20;

/// All sessions whose id begins with `text` (all for an empty one), sorted by id. Asks no process.
pub fn sessions(config: &ConfigDir, text: &str) -> Vec<(SessionId, SessionFiles)> {
    let projects = config.projects();
    let mut found: Vec<_> = names_in(&projects)
        .flat_map(|project| {
            let folder = projects.join(project);
            names_in(&folder).map(move |name| folder.join(name))
        })
        .filter_map(|path| {
            let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.to_owned();
            // A spelling of ours only: the file is found again by its id.
            let id = SessionId::parse(&stem).filter(|id| id.as_str() == stem && stem.starts_with(text))?;
            Some((id, SessionFiles::of(path)))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

/// How a session began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Its working folder.
    pub cwd: Option<String>,
    /// What it was told first.
    pub prompt: Option<String>,
    /// The member of a team whose session it is.
    pub member: Option<AgentId>,
}

/// Reads how a session began; what its first lines do not tell is none.
pub fn beginning(path: &Path) -> Result<Beginning, StoreError> {
    let file = File::open(path).map_err(StoreError::at(path, "open"))?;
    let mut found = Beginning::default();
    let mut fallback = None;
    for line in BufReader::new(file.take(BEGINNING_BYTES)).split(b'\n') {
        let line = line.map_err(StoreError::at(path, "read"))?;
        let Ok(Line::Talk(talk)) = parse_line(&line) else { continue };
        if found.cwd.is_none() {
            found.cwd = Some(talk.place.cwd.clone()).filter(|cwd| !cwd.is_empty());
        }
        if found.member.is_none() {
            let names = talk.place.agent_name.as_deref().zip(talk.place.team_name.as_deref());
            found.member = names.and_then(|(name, team)| AgentId::member(name, team)).filter(|_| !is_lead(&talk.place));
        }
        let said = text_of(&talk.message.message.content);
        if talk.kind == Role::User && talk.is_meta != Some(true) && !said.trim().is_empty() {
            let typed = talk.origin.as_ref().is_none_or(|origin| origin.kind == ORIGIN_PEER);
            if typed {
                found.prompt = Some(said);
                break;
            }
            let of_agent = said.split_once(SPAWN_PROMPT.0).and_then(|(_, rest)| rest.rsplit_once(SPAWN_PROMPT.1));
            fallback.get_or_insert_with(|| of_agent.map_or_else(|| said.clone(), |(prompt, _)| text::unescape(prompt)));
        }
    }
    found.prompt = found.prompt.or(fallback);
    Ok(found)
}

/// How many ends of its agents' runs a session's conversation was not told of.
pub fn undelivered(session: &SessionFiles) -> Result<usize, StoreError> {
    let agents = agents_of(session);
    if agents.is_empty() {
        return Ok(0);
    }
    let history = resume(session.transcript())?;
    let mut count = 0;
    for (id, files, _) in agents {
        match outcomes_since(files.transcript(), history.consumed.up_to(id.as_str())) {
            Ok(outcomes) => count += outcomes.iter().filter(|o| !history.is_consumed(id.as_str(), o.run)).count(),
            Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Removes a session: links and files of its agents, what tools left, the folder of `scratchpad`, and
/// the transcript last, so that what is interrupted can be done again. [`StoreError::Locked`] names
/// what lives, and then nothing was removed. Blocks.
pub fn remove_session(config: &ConfigDir, session: &SessionFiles, scratchpad: Option<&Path>) -> Result<(), StoreError> {
    let path = session.transcript();
    // Held until the end: nobody starts or resumes anything of it meanwhile.
    let _lock = lock::exclusive_unless_held(path, Patience::with_holder(Duration::ZERO))?;
    let agents = agent_files(session);
    for (_, files) in &agents {
        let lives = match is_held(files.transcript()) {
            Err(StoreError::Missing { .. }) => is_being_started(files),
            held => held?,
        };
        if lives {
            return Err(StoreError::Locked { path: files.transcript().to_owned(), holder_pid: None });
        }
    }
    for (id, files) in &agents {
        let link = config.agent_link(id);
        if fs::read_link(&link).is_ok_and(|target| target == files.transcript()) {
            remove(&link)?;
        }
    }
    remove_folder(&session.folder())?;
    remove_companions(config, session)?;
    if let Some(folder) = scratchpad.filter(|folder| is_own(folder)) {
        remove_folder(folder)?;
    }
    remove(path)
}

/// The agents of which anything lies in a session's folder.
fn agent_files(session: &SessionFiles) -> Vec<(AgentId, AgentFiles)> {
    let mut ids: Vec<AgentId> = names_in(&session.subagents())
        .filter_map(|name| AgentId::parse(name.split('.').next()?.strip_prefix("agent-")?))
        .collect();
    ids.sort();
    ids.dedup();
    ids.into_iter().map(|id| (id.clone(), session.agent(&id))).collect()
}

fn is_lead(place: &Place) -> bool {
    place.agent_name.as_deref().is_some_and(|name| name::same(name, LEAD))
}

/// What lies beside the session of a team's member: launch facts, log, markers and its link.
fn remove_companions(config: &ConfigDir, session: &SessionFiles) -> Result<(), StoreError> {
    let path = session.transcript();
    let is_here = |id: &AgentId| fs::read_link(config.agent_link(id)).is_ok_and(|target| target == path);
    if let Some(id) = beginning(path)?.member.filter(is_here) {
        remove(&config.agent_link(&id))?;
    }
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem().and_then(|stem| stem.to_str())) else {
        return Ok(());
    };
    let is_one = |name: &String| {
        let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| {
            let run = rest.strip_suffix(".stop");
            rest == "meta.json" || rest == "log" || run.is_some_and(|run| run.parse::<u32>().is_ok())
        })
    };
    names_in(folder).filter(is_one).try_for_each(|name| remove(&folder.join(name)))
}

/// Whether its process may be about to make its transcript.
fn is_being_started(files: &AgentFiles) -> bool {
    let grace = u64::try_from(deadlines().ready.as_millis()).unwrap_or(u64::MAX);
    super::session::read_meta(files).is_ok_and(|meta| clock::now_ms().saturating_sub(meta.created_at) <= grace)
}

fn remove_folder(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder).map_err(StoreError::at(folder, "remove")) {
        Err(StoreError::Missing { .. }) => Ok(()),
        done => done,
    }
}

/// Whether a folder below the machine's temporary one is where we would have made it: none of its
/// parents there is a link, or somebody else's.
fn is_own(folder: &Path) -> bool {
    let uid = nix::unistd::geteuid().as_raw();
    let ours = |path: &Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    folder.ancestors().take(3).all(ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::agent::Meta;
    use crate::store::lock::{OpenMode, try_exclusive};
    use crate::store::session::record_spawn;

    const ID: &str = "11111111-2222-4333-8444-555555555555";
    const END: &str =
        r#"{"type":"system","subtype":"agent_outcome","agentId":"a-1a2b3c4d5e6f7890","run":1,"status":"completed"}"#;

    struct Place {
        dir: tempfile::TempDir,
        config: ConfigDir,
        session: SessionFiles,
    }

    fn place(lines: &[serde_json::Value]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigDir::new(dir.path());
        let session = SessionFiles::of(config.session(Path::new("/w"), &SessionId::parse(ID).unwrap()));
        fs::create_dir_all(session.folder()).unwrap();
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        fs::write(session.transcript(), text).unwrap();
        Place { dir, config, session }
    }

    fn said(text: &str, origin: Option<&str>) -> serde_json::Value {
        let mut line = json!({"type": "user", "parentUuid": null, "uuid": text, "cwd": "/w",
            "message": {"role": "user", "content": text}});
        if let Some(kind) = origin {
            line["origin"] = json!({"kind": kind, "taskId": "a-1a2b3c4d5e6f7890", "run": 1});
        }
        line
    }

    fn agent(place: &Place, created_at: u64, transcript: Option<&str>) -> (AgentId, AgentFiles) {
        let id = AgentId::parse("a-1a2b3c4d5e6f7890").unwrap();
        let files = place.session.agent(&id);
        let meta: Meta = serde_json::from_value(json!({"agentType": "x", "createdAt": created_at})).unwrap();
        record_spawn(&place.config, &files, &id, &meta).unwrap();
        if let Some(text) = transcript {
            fs::write(files.transcript(), text).unwrap();
        }
        (id, files)
    }

    #[test]
    fn sessions_are_found_by_the_beginning_of_their_id() {
        let place = place(&[]);
        let other = place.session.transcript().with_file_name("11ff1111-2222-4333-8444-555555555555.jsonl");
        fs::write(&other, "").unwrap();
        fs::write(other.with_file_name("notes.jsonl"), "").unwrap();
        let found = |text: &str| sessions(&place.config, text).len();
        assert_eq!((found(""), found("11"), found("111"), found("2"), found(ID)), (2, 2, 1, 0, 1));
        assert_eq!(sessions(&ConfigDir::new(place.dir.path().join("none")), "").len(), 0);
    }

    #[test]
    fn a_beginning_is_what_was_typed_first_else_what_came_first() {
        let note = format!("Started.\n{}count &lt;all&gt;{}", SPAWN_PROMPT.0, SPAWN_PROMPT.1);
        let spawned = place(&[said(&note, Some("agent-spawn")), said("done", Some("task-notification"))]);
        let found = beginning(spawned.session.transcript()).unwrap();
        let told = Some("count <all>".to_owned());
        assert_eq!(found, Beginning { cwd: Some("/w".to_owned()), prompt: told, member: None });
        let typed = place(&[json!({"type": "summary"}), said("started", Some("agent-spawn")), said("go", None)]);
        assert_eq!(beginning(typed.session.transcript()).unwrap().prompt.as_deref(), Some("go"));
        assert_eq!(beginning(place(&[]).session.transcript()).unwrap(), Beginning::default());
    }

    #[test]
    fn an_end_is_undelivered_until_the_conversation_has_its_notification() {
        let fresh = place(&[said("go", None)]);
        assert_eq!(undelivered(&fresh.session).unwrap(), 0);
        agent(&fresh, 0, Some(&format!("{END}\n")));
        assert_eq!(undelivered(&fresh.session).unwrap(), 1);
        let told = place(&[said("go", None), said("n", Some("task-notification"))]);
        agent(&told, 0, Some(&format!("{END}\n")));
        assert_eq!(undelivered(&told.session).unwrap(), 0);
    }

    #[test]
    fn nothing_is_removed_while_anything_lives_and_all_of_it_after_that() {
        let place = place(&[said("go", None)]);
        let (id, files) = agent(&place, 0, Some(&format!("{END}\n")));
        let scratch = place.dir.path().join("claude/w/session/scratchpad");
        fs::create_dir_all(&scratch).unwrap();
        let scratch = scratch.parent().unwrap();
        let remove = || remove_session(&place.config, &place.session, Some(scratch));
        let is_all_there = || files.transcript().exists() && scratch.exists() && place.session.transcript().exists();
        for held in [files.transcript(), place.session.transcript()] {
            let _lock = try_exclusive(held, OpenMode::Existing).unwrap();
            assert!(matches!(remove(), Err(StoreError::Locked { path, .. }) if path == held));
            assert!(is_all_there() && place.config.agent_link(&id).symlink_metadata().is_ok());
        }
        remove().unwrap();
        assert!(!place.session.transcript().exists() && !place.session.folder().exists() && !scratch.exists());
        assert!(place.config.agent_link(&id).symlink_metadata().is_err());
        assert!(matches!(remove(), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn a_member_s_session_goes_with_what_lies_beside_it_and_its_link() {
        let mut line = said("go", None);
        line["teamName"] = json!("t");
        line["agentName"] = json!("ann");
        let place = place(&[line.clone()]);
        let id = AgentId::member("ann", "t").unwrap();
        let files = AgentFiles::of(place.session.transcript());
        assert_eq!(beginning(files.transcript()).unwrap().member, Some(id.clone()));
        let meta: Meta = serde_json::from_value(json!({"agentType": "x", "createdAt": 1})).unwrap();
        record_spawn(&place.config, &files, &id, &meta).unwrap();
        fs::write(files.log(), "").unwrap();
        fs::write(files.stop_marker(2), "").unwrap();
        let other = files.transcript().with_file_name("notes.log");
        fs::write(&other, "").unwrap();
        remove_session(&place.config, &place.session, None).unwrap();
        let left: Vec<String> = names_in(files.transcript().parent().unwrap()).collect();
        assert_eq!(left, ["notes.log"]);
        assert!(place.config.agent_link(&id).symlink_metadata().is_err());
        // The lead's own is nobody's.
        line["agentName"] = json!("team-lead");
        fs::write(&other, format!("{line}\n")).unwrap();
        assert_eq!(beginning(&other).unwrap().member, None);
    }

    #[test]
    fn an_agent_that_is_being_started_lives_and_one_that_never_was_does_not() {
        let place = place(&[said("go", None)]);
        let (_, files) = agent(&place, clock::now_ms(), None);
        assert!(matches!(remove_session(&place.config, &place.session, None), Err(StoreError::Locked { .. })));
        fs::write(files.meta(), r#"{"agentType":"x","createdAt":1}"#).unwrap();
        remove_session(&place.config, &place.session, None).unwrap();
    }

    #[test]
    fn a_scratchpad_behind_a_link_is_left_alone() {
        let place = place(&[]);
        let (real, link) = (place.dir.path().join("real"), place.dir.path().join("link"));
        fs::create_dir_all(real.join("w/session")).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        remove_session(&place.config, &place.session, Some(&link.join("w/session"))).unwrap();
        assert!(real.join("w/session").exists());
    }
}
