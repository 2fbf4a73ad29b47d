use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;
use crate::core::agent::{Owner, Progress, RowState};

fn entry(id: &str) -> RegistryEntry {
    RegistryEntry {
        address: "uds:/x".into(),
        pid: 1,
        role: "worker".into(),
        agent_id: id.into(),
        name: None,
        team: None,
        session: "s".into(),
        cwd: "/".into(),
        config_dir: "/c".into(),
        started: 1,
        version: "0".into(),
    }
}

fn state(state: RowState) -> LiveState {
    LiveState {
        state,
        owner: Owner::Lead,
        run: 1,
        agent_type: "general-purpose".into(),
        description: "d".into(),
        model: None,
        waiting_for: None,
        transcript: "/t".into(),
        worktree: None,
        since_ms: 1,
        last_event_ms: 1,
        progress: Progress::default(),
        shells: Vec::new(),
    }
}

fn runtime() -> (tempfile::TempDir, RuntimeDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::open(&temp.path().join("r")).unwrap();
    (temp, dir)
}

fn register(dir: &RuntimeDir, id: &str) -> Registration {
    let name = dir.reserve_name();
    fs::write(dir.socket_path(&name), b"").unwrap();
    let registration = Registration::publish(dir, &name, &entry(id)).unwrap();
    registration.set_state(&state(RowState::Starting)).unwrap();
    registration
}

/// What a process leaves that is killed: its files, and no lock.
fn kill(registration: Registration) -> String {
    let name = registration.name.clone();
    let dir = registration.dir.clone();
    let files: Vec<_> = [dir.socket_path(&name), dir.state_path(&name), dir.entry_path(&name)]
        .into_iter()
        .map(|p| (fs::read(&p).unwrap(), p))
        .collect();
    drop(registration);
    for (bytes, path) in files {
        fs::write(path, bytes).unwrap();
    }
    name
}

fn files(dir: &RuntimeDir) -> usize {
    fs::read_dir(dir.path()).unwrap().count()
}

fn age(path: &Path) {
    let then = SystemTime::now() - ORPHAN_AGE - Duration::from_secs(1);
    File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
}

fn no_callback(_: &Registered) {}

#[test]
fn the_folder_is_private_and_refused_where_it_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a/r");
    RuntimeDir::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(RuntimeDir::open(&path).is_ok());
    let refused = |path: &Path| match RuntimeDir::open(path) {
        Err(StoreError::Unsafe { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(refused(&link).contains("symlink"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o710)).unwrap();
    assert!(refused(&path).contains("710"));
    let file = temp.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(refused(&file).contains("not a folder"));
    if nix::unistd::geteuid().is_root() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(refused(&path).contains("12345"));
    }
}

#[test]
fn r038_a_folder_too_deep_for_sockets_is_refused_with_the_limit() {
    let temp = tempfile::tempdir().unwrap();
    let room = limits::SOCKET_PATH_BYTES - "/0123456789ab.sock".len() - temp.path().as_os_str().len() - 1;
    let fits = RuntimeDir::open(&temp.path().join("x".repeat(room))).unwrap();
    assert_eq!(fits.socket_path("0123456789ab").as_os_str().len(), limits::SOCKET_PATH_BYTES);
    let over = temp.path().join("x".repeat(room + 1));
    let error = RuntimeDir::open(&over).unwrap_err();
    assert!(error.to_string().contains("90"), "{error}");
    assert!(!over.exists(), "nothing was made");
}

#[test]
fn the_folder_given_wins_unless_it_is_empty() {
    assert_eq!(RuntimeDir::default_path(None, 7), Path::new("/tmp/lead-7"));
    assert_eq!(RuntimeDir::default_path(Some(PathBuf::new()), 7), Path::new("/tmp/lead-7"));
    assert_eq!(RuntimeDir::default_path(Some("/r".into()), 7), Path::new("/r"));
}

#[test]
fn a_registered_process_is_shown_alive_with_its_state_until_it_leaves() {
    let (_temp, dir) = runtime();
    let mine = register(&dir, "a");
    mine.set_state(&state(RowState::Running)).unwrap();
    let seen = list(&dir).unwrap();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].alive);
    assert_eq!(seen[0].entry, entry("a"));
    assert_eq!(seen[0].state.as_ref().map(|s| s.state), Some(RowState::Running));
    assert_eq!(find_alive(&dir, |e| e.agent_id == "a").unwrap().map(|r| r.name), Some(mine.name().to_owned()));
    assert_eq!(find_alive(&dir, |e| e.agent_id == "b").unwrap(), None);
    mine.remove().unwrap();
    assert_eq!(files(&dir), 0);
    drop(register(&dir, "b"));
    assert_eq!(files(&dir), 0, "dropping removes too");
}

#[test]
fn a_name_is_given_once() {
    let (_temp, dir) = runtime();
    let mine = register(&dir, "a");
    let taken = Registration::publish(&dir, mine.name(), &entry("b"));
    assert!(matches!(taken, Err(StoreError::Exists { .. })));
    let seen = list(&dir).unwrap();
    assert_eq!((seen.len(), seen[0].entry.agent_id.as_str()), (1, "a"));
    assert_eq!(seen[0].state.as_ref().map(|s| s.state), Some(RowState::Starting), "its state stays its own");
    assert!(Registration::publish(&dir, "../../x", &entry("b")).is_err());
}

#[test]
fn r039_the_dead_are_swept_with_their_sockets_and_the_living_never() {
    let (_temp, dir) = runtime();
    let living = register(&dir, "living");
    let dead = kill(register(&dir, "dead"));
    let shown = list(&dir).unwrap();
    assert_eq!(shown.iter().filter(|r| r.alive).map(|r| r.entry.agent_id.as_str()).collect::<Vec<_>>(), ["living"]);
    let mut told = Vec::new();
    let swept = sweep(&dir, &mut |r| {
        assert!(!lock::is_held(&dir.entry_path(&r.name)).unwrap(), "shown as dead meanwhile");
        assert!(dir.socket_path(&r.name).exists());
        told.push(r.entry.agent_id.clone());
    })
    .unwrap();
    assert_eq!(told, ["dead"]);
    assert_eq!(swept.iter().map(|r| r.name.clone()).collect::<Vec<_>>(), [dead]);
    assert_eq!(files(&dir), 3);
    assert!(sweep(&dir, &mut no_callback).unwrap().is_empty());
    assert!(list(&dir).unwrap()[0].alive);
    drop(living);
}

#[test]
fn of_many_sweepers_one_is_told_of_each_dead() {
    let (_temp, dir) = runtime();
    for _ in 0..20 {
        kill(register(&dir, "dead"));
    }
    let living = register(&dir, "living");
    let told: usize = std::thread::scope(|s| {
        let all: Vec<_> = (0..8)
            .map(|_| {
                s.spawn(|| {
                    let mut told = 0;
                    sweep(&dir, &mut |_| told += 1).unwrap();
                    list(&dir).unwrap();
                    told
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).sum()
    });
    // One that was being probed by others is left to the next sweep.
    let left = sweep(&dir, &mut no_callback).unwrap().len();
    assert_eq!(told + left, 20);
    assert_eq!(files(&dir), 3);
    assert!(list(&dir).unwrap()[0].alive);
    drop(living);
}

#[test]
fn damaged_entries_hide_no_others_and_are_swept() {
    let (_temp, dir) = runtime();
    let living = register(&dir, "living");
    fs::write(dir.entry_path("0123456789ab"), b"{").unwrap();
    fs::write(dir.path().join("notes.json"), b"{}").unwrap();
    fs::write(dir.state_path(living.name()), b"{").unwrap();
    let seen = list(&dir).unwrap();
    assert_eq!((seen.len(), seen[0].alive, &seen[0].state), (1, true, &None));
    assert!(sweep(&dir, &mut no_callback).unwrap().is_empty());
    assert!(!dir.entry_path("0123456789ab").exists());
    assert!(dir.path().join("notes.json").exists(), "what is not ours stays");
}

#[test]
fn orphans_are_swept_when_old_unless_their_process_is_registering() {
    let (_temp, dir) = runtime();
    let make = |path: PathBuf, old: bool| {
        fs::write(&path, b"").unwrap();
        if old {
            age(&path);
        }
        path
    };
    let old_socket = make(dir.socket_path("00000000000a"), true);
    let old_state = make(dir.state_path("00000000000a"), true);
    let old_temp = make(dir.unregistered_path("00000000000b"), true);
    let young = make(dir.socket_path("00000000000c"), false);
    let young_temp = make(dir.unregistered_path("00000000000c"), false);
    let slow = make(dir.socket_path("00000000000d"), true);
    let slow_temp = make(dir.unregistered_path("00000000000d"), true);
    let _registering = lock::try_exclusive(&slow_temp, lock::OpenMode::Existing).unwrap();
    let living = register(&dir, "living");
    age(&dir.socket_path(living.name()));
    sweep(&dir, &mut no_callback).unwrap();
    for gone in [old_socket, old_state, old_temp] {
        assert!(!gone.exists(), "{}", gone.display());
    }
    for kept in [young, young_temp, slow, slow_temp, dir.socket_path(living.name())] {
        assert!(kept.exists(), "{}", kept.display());
    }
}

#[test]
fn r047_files_that_vanish_under_their_owner_do_no_harm() {
    let (_temp, dir) = runtime();
    let mine = register(&dir, "a");
    for path in [dir.entry_path(mine.name()), dir.state_path(mine.name()), dir.socket_path(mine.name())] {
        fs::remove_file(path).unwrap();
    }
    mine.set_state(&state(RowState::Running)).unwrap();
    assert!(list(&dir).unwrap().is_empty());
    mine.remove().unwrap();
    assert_eq!(files(&dir), 0);
}

#[test]
fn a_process_of_its_own_is_alive_until_it_is_killed() {
    let (_temp, dir) = runtime();
    let name = kill(register(&dir, "other"));
    let Ok(mut holder) = Command::new("flock")
        .args(["--exclusive", "--no-fork"])
        .arg(dir.entry_path(&name))
        .args(["sh", "-c", "echo locked; read _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        eprintln!("SKIPPED (no flock)");
        return;
    };
    let mut said = [0; 7];
    holder.stdout.take().unwrap().read_exact(&mut said).unwrap();
    assert!(list(&dir).unwrap()[0].alive);
    assert!(sweep(&dir, &mut no_callback).unwrap().is_empty());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(!list(&dir).unwrap()[0].alive);
    assert_eq!(sweep(&dir, &mut no_callback).unwrap().len(), 1);
    assert_eq!(files(&dir), 0);
}

#[test]
fn a_thousand_entries_are_listed() {
    let (_temp, dir) = runtime();
    let all: Vec<_> = (0..250).map(|i| register(&dir, &i.to_string())).collect();
    let dead: Vec<_> = (250..1000).map(|i| kill(register(&dir, &i.to_string()))).collect();
    let seen = list(&dir).unwrap();
    assert_eq!(seen.len(), 1000);
    assert_eq!(seen.iter().filter(|r| r.alive).count(), all.len());
    assert_eq!(sweep(&dir, &mut no_callback).unwrap().len(), dead.len());
}

#[test]
fn a_state_that_was_never_finished_goes_with_its_entry() {
    let (_temp, dir) = runtime();
    let name = kill(register(&dir, "a"));
    fs::write(dir.state_temp_path(&name), "{").unwrap();
    assert_eq!(sweep(&dir, &mut |_| {}).unwrap().len(), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
