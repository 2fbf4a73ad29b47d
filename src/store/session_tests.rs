use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;
use crate::store::transcript::TranscriptWriter;

struct Place {
    _dir: tempfile::TempDir,
    config: ConfigDir,
    session: SessionFiles,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let config = ConfigDir::new(dir.path());
    let session = SessionFiles::of(config.session(Path::new("/w"), &SessionId::random()));
    Place { _dir: dir, config, session }
}

fn meta(tool_use_id: &str, created_at: u64) -> Meta {
    let json = serde_json::json!({"agentType": "Explore", "toolUseId": tool_use_id, "createdAt": created_at});
    serde_json::from_value(json).unwrap()
}

fn spawn(place: &Place, tool_use_id: &str, created_at: u64) -> (AgentId, AgentFiles) {
    let id = AgentId::random();
    let files = place.session.agent(&id);
    record_spawn(&place.config, &files, &id, &meta(tool_use_id, created_at)).unwrap();
    (id, files)
}

fn file_count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_recorded_agent_is_found_by_id_prefix_session_and_tool_use() {
    let place = place();
    let (second, _) = spawn(&place, "t2", 20);
    let (first, files) = spawn(&place, "t1", 10);
    assert_eq!(resolve(&place.config, &first).unwrap(), files);
    assert_eq!(read_meta(&files).unwrap(), meta("t1", 10));
    assert_eq!(fs::metadata(files.meta()).unwrap().permissions().mode() & 0o777, 0o600);
    let all: Vec<_> = agents_of(&place.session).into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(all, [first.clone(), second.clone()], "oldest first");
    assert_eq!(find_by_tool_use(&place.session, "t2"), Some((second.clone(), meta("t2", 20))));
    assert_eq!(find_by_tool_use(&place.session, "t3"), None);
    for text in [&first.as_str()[..16], &first.undashed()[..15], first.as_str()] {
        assert_eq!(resolve_prefix(&place.config, text), std::slice::from_ref(&first), "{text}");
    }
    assert_eq!(resolve_prefix(&place.config, "a-").len(), 2);
    for unknown in ["", "b", "../", AgentId::random().as_str()] {
        assert!(resolve_prefix(&place.config, unknown).is_empty(), "{unknown}");
    }
    assert!(matches!(resolve(&place.config, &AgentId::random()), Err(StoreError::Missing { .. })));
}

#[test]
fn r054_of_many_spawns_under_one_id_one_is_recorded() {
    let place = place();
    let id = AgentId::random();
    let files = place.session.agent(&id);
    let recorded: usize = std::thread::scope(|s| {
        let all: Vec<_> = (0..8)
            .map(|n| {
                let (place, id, files) = (&place, &id, &files);
                s.spawn(move || match record_spawn(&place.config, files, id, &meta("t", n)) {
                    Ok(()) => 1,
                    Err(StoreError::Exists { .. }) => 0,
                    Err(e) => panic!("{e}"),
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(recorded, 1);
    assert!(read_meta(&files).is_ok());
}

#[test]
fn r021_a_spawn_is_undone_without_a_trace_unless_it_lives() {
    let place = place();
    let (id, files) = spawn(&place, "t", 1);
    fs::write(files.log(), b"died").unwrap();
    let writer = TranscriptWriter::create(files.transcript(), Durability::Process).unwrap();
    assert!(matches!(undo_spawn(&place.config, &files, &id), Err(StoreError::Locked { .. })));
    assert!(read_meta(&files).is_ok());
    drop(writer);
    undo_spawn(&place.config, &files, &id).unwrap();
    assert_eq!((file_count(&place.session.subagents()), file_count(&place.config.agent_links())), (0, 0));
    undo_spawn(&place.config, &files, &id).unwrap();
}

#[test]
fn a_spawn_that_cannot_be_recorded_leaves_no_link() {
    let place = place();
    let id = AgentId::random();
    let files = place.session.agent(&id);
    fs::create_dir_all(files.meta()).unwrap();
    assert!(record_spawn(&place.config, &files, &id, &meta("t", 1)).is_err());
    assert_eq!(file_count(&place.config.agent_links()), 0);
}

#[test]
fn damaged_metas_and_links_are_errors_for_their_agent_only() {
    let place = place();
    let (whole, _) = spawn(&place, "t1", 1);
    let (broken, files) = spawn(&place, "t2", 2);
    fs::write(files.meta(), b"{").unwrap();
    assert!(matches!(read_meta(&files), Err(StoreError::Damaged { .. })));
    assert_eq!(agents_of(&place.session).len(), 1);
    assert_eq!(find_by_tool_use(&place.session, "t1").map(|f| f.0), Some(whole));
    let link = place.config.agent_link(&broken);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(matches!(resolve(&place.config, &broken), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_stop_is_marked_once_and_for_its_run() {
    let place = place();
    let (_, files) = spawn(&place, "t", 1);
    assert!(!has_stop_marker(&files, 1));
    assert!(mark_stop(&files, 1, "by a test").unwrap());
    assert!(!mark_stop(&files, 1, "by a test").unwrap());
    assert!(has_stop_marker(&files, 1) && !has_stop_marker(&files, 2));
}

#[test]
fn sessions_are_found_by_id_anywhere_and_by_folder_latest_first() {
    let place = place();
    let config = &place.config;
    assert_eq!(latest_session(config, Path::new("/w")), None);
    let now = SystemTime::now();
    let make = |cwd: &str, age: u64| {
        let id = SessionId::random();
        let path = config.session(Path::new(cwd), &id);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"{}\n").unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(now - Duration::from_secs(age)).unwrap();
        id
    };
    let (old, new, elsewhere) = (make("/w", 30), make("/w", 20), make("/v", 10));
    let empty = config.session(Path::new("/w"), &SessionId::random());
    fs::write(&empty, b"").unwrap();
    fs::write(config.project(Path::new("/w")).join("agent-a1.jsonl"), b"{}\n").unwrap();
    assert_eq!(latest_session(config, Path::new("/w")).map(|f| f.0), Some(new));
    for (id, cwd) in [(old, "/w"), (elsewhere, "/v")] {
        let found = find_session(config, &id).unwrap();
        assert_eq!(found.transcript(), config.session(Path::new(cwd), &id));
    }
    assert_eq!(find_session(config, &SessionId::random()), None);
}
