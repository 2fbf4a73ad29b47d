use std::sync::mpsc;
use std::time::SystemTime;

use super::super::testing::{LONG, Place};
use super::*;

/// A file in a place of its own, and the locks over it.
struct Site {
    _place: Place,
    locks: Locks,
    file: PathBuf,
}

fn site() -> Site {
    let place = Place::new();
    let folder = place.config.teams().join("t");
    fs::create_dir_all(&folder).unwrap();
    let locks = Locks::new(&place.config, "t", Durability::Process).with_patience(LONG);
    Site { file: folder.join("x.json"), locks, _place: place }
}

impl Site {
    fn lock(&self) -> PathBuf {
        lock_of(&self.file)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.file.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(&self, text: &str) -> Result<(), TeamError> {
        self.locks.run(|held| {
            held.lock(&self.file)?;
            held.replace(&self.file, &self.file, &[text.as_bytes()])
        })
    }

    /// What a process leaves that is killed while it holds the file's lock.
    fn die_holding(&self) {
        let died = self.locks.run(|held| {
            held.lock(&self.file)?;
            fs::write(temp_of(&self.file), "half").unwrap();
            // So that nothing is undone.
            held.note.held.clear();
            held.is_noted = false;
            Ok(())
        });
        died.unwrap();
        assert!(self.lock().exists());
    }
}

fn age(path: &Path, by: Duration) {
    let then = SystemTime::now() - by;
    File::open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn a_file_is_replaced_and_nothing_is_left_of_the_locks() {
    let site = site();
    site.write("one").unwrap();
    site.write("two").unwrap();
    assert_eq!(fs::read_to_string(&site.file).unwrap(), "two");
    assert_eq!(site.names(), ["x.json"]);
    assert_eq!(fs::read(&site.locks.flock).unwrap().split(|b| *b == b'\n').next(), Some(&b""[..]));
    assert_eq!(fs::metadata(&site.file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&site.locks.flock).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn while_a_file_is_locked_other_programs_see_their_kind_of_lock() {
    let site = site();
    let seen = site.locks.run(|held| {
        held.lock(&site.file)?;
        held.lock(&site.file)?;
        let note = Note::parse(&fs::read(&site.locks.flock).unwrap()).unwrap();
        Ok((site.names(), note.pid, note.held.len(), note.held[0].file.clone()))
    });
    let wanted = (vec!["x.json.lock".to_owned()], std::process::id(), 1, PathBuf::from("teams/t/x.json"));
    assert_eq!(seen.unwrap(), wanted);
    assert_eq!(site.names(), [""; 0]);
}

#[test]
fn r046_what_a_killed_holder_left_is_taken_over_at_once() {
    let site = site();
    let no_time = site.locks.clone().with_patience(Duration::ZERO);
    for _ in 0..3 {
        site.die_holding();
        fs::create_dir(coming_lock_of(&site.file)).unwrap();
        no_time.run(|held| held.lock(&site.file)).unwrap();
        assert_eq!(site.names(), [""; 0]);
    }
    // It died while it took away what another had left.
    site.die_holding();
    fs::rename(site.lock(), going_lock_of(&site.file)).unwrap();
    no_time.run(|held| held.lock(&site.file)).unwrap();
    assert_eq!(site.names(), [""; 0]);
    // It died after it had noted the folder and before that had its name, or with a name never noted.
    fs::create_dir(coming_lock_of(&site.file)).unwrap();
    no_time.run(|held| held.lock(&site.file)).unwrap();
    assert_eq!(site.names(), [""; 0]);
}

#[test]
fn r046_only_the_very_folder_that_was_noted_counts_as_dead() {
    let site = site();
    site.die_holding();
    // Another program took it: the same name and perhaps the same inode, but another time.
    fs::remove_dir(site.lock()).unwrap();
    fs::create_dir(site.lock()).unwrap();
    let refused = site.locks.clone().with_patience(Duration::ZERO).run(|held| held.lock(&site.file));
    assert!(matches!(refused, Err(TeamError::Foreign { .. })), "{refused:?}");
    assert!(site.lock().exists());
}

#[test]
fn r040_a_fresh_lock_of_another_program_is_waited_for() {
    let site = site();
    fs::create_dir(site.lock()).unwrap();
    let error = site.locks.clone().with_patience(Duration::from_millis(30)).run(|held| held.lock(&site.file));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("x.json is locked by another program") && text.contains("x.json.lock"), "{text}");
    assert_eq!(site.names(), ["x.json.lock"], "nothing of ours is left");
    let (tried, has_tried) = mpsc::channel();
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            site.locks.run(|held| {
                let _ = tried.send(());
                held.lock(&site.file)?;
                held.replace(&site.file, &site.file, &[b"mine"])
            })
        });
        for _ in 0..3 {
            has_tried.recv_timeout(LONG).unwrap();
        }
        assert!(!site.file.exists());
        fs::remove_dir(site.lock()).unwrap();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(site.names(), ["x.json"]);
}

#[test]
fn while_another_program_is_waited_for_the_rest_of_the_team_goes_on() {
    let site = site();
    fs::create_dir(site.lock()).unwrap();
    let (tried, has_tried) = mpsc::channel();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            site.locks.run(|held| {
                let _ = tried.send(());
                held.lock(&site.file)
            })
        });
        has_tried.recv_timeout(LONG).unwrap();
        let other = site.file.with_file_name("y.json");
        site.locks.run(|held| held.lock(&other)).unwrap();
        fs::remove_dir(site.lock()).unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn r046_a_stale_lock_of_another_program_is_taken_over() {
    let no_time = |site: &Site| site.locks.clone().with_patience(Duration::ZERO);
    for (age_of_it, is_taken) in [(9, false), (11, true)] {
        let site = site();
        fs::create_dir(site.lock()).unwrap();
        age(&site.lock(), Duration::from_secs(age_of_it));
        let taken = no_time(&site).run(|held| held.lock(&site.file));
        assert_eq!(taken.is_ok(), is_taken, "{age_of_it} s: {taken:?}");
        assert_eq!(site.lock().exists(), !is_taken);
    }
    // Out of a backup: as a file, or with something in it; or the clock was set.
    let site = site();
    fs::write(site.lock(), "").unwrap();
    age(&site.lock(), Duration::from_secs(100));
    no_time(&site).run(|held| held.lock(&site.file)).unwrap();
    fs::create_dir(site.lock()).unwrap();
    fs::write(site.lock().join("x"), "").unwrap();
    fs::write(going_lock_of(&site.file), "").unwrap();
    age(&site.lock(), Duration::from_secs(100));
    no_time(&site).run(|held| held.lock(&site.file)).unwrap();
    fs::create_dir(site.lock()).unwrap();
    File::open(site.lock()).unwrap().set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    no_time(&site).run(|held| held.lock(&site.file)).unwrap();
    assert_eq!(site.names(), [""; 0]);
}

#[test]
fn r047_a_lock_that_changed_hands_before_it_could_be_taken_away_is_put_back() {
    let site = site();
    fs::create_dir(site.lock()).unwrap();
    age(&site.lock(), Duration::from_secs(20));
    let judged = Identity::of(&site.lock()).unwrap();
    age(&site.lock(), Duration::from_secs(1));
    let theirs = Identity::of(&site.lock()).unwrap();
    site.locks.take_away(&site.file, judged).unwrap();
    assert_eq!(Identity::of(&site.lock()).unwrap(), theirs);
    assert_eq!(site.names(), ["x.json.lock"]);
    site.locks.take_away(&site.file, theirs).unwrap();
    site.locks.take_away(&site.file, theirs).unwrap();
    assert_eq!(site.names(), [""; 0]);
}

#[test]
fn r047_a_lock_that_is_taken_from_us_makes_us_start_over() {
    let site = site();
    fs::write(&site.file, "old").unwrap();
    let mut rounds = 0;
    let done = site.locks.run(|held| {
        rounds += 1;
        held.lock(&site.file)?;
        if rounds == 1 {
            // Another program found it stale, wrote, and is gone.
            fs::remove_dir(site.lock()).unwrap();
            fs::write(&site.file, "theirs").unwrap();
        }
        let before = fs::read_to_string(&site.file).unwrap();
        held.replace(&site.file, &site.file, &[before.as_bytes(), b" and mine"])
    });
    done.unwrap();
    assert_eq!((rounds, fs::read_to_string(&site.file).unwrap()), (2, "theirs and mine".to_owned()));
    assert_eq!(site.names(), ["x.json"]);
}

#[test]
fn r047_a_lock_another_program_has_now_is_not_released_by_us() {
    let site = site();
    let lost = site.locks.clone().with_patience(Duration::ZERO).run(|held| {
        held.lock(&site.file)?;
        fs::remove_dir(site.lock()).unwrap();
        fs::create_dir(site.lock()).unwrap();
        age(&site.lock(), Duration::from_secs(1));
        held.replace(&site.file, &site.file, &[b"mine"])
    });
    assert!(matches!(lost, Err(TeamError::Lost { .. })), "{lost:?}");
    assert_eq!(site.names(), ["x.json.lock"]);
}

#[test]
fn where_a_name_can_not_be_taken_by_renaming_the_locks_hold_all_the_same() {
    let mut site = site();
    site.locks.rename_new = |_, _| Err(Errno::INVAL.into());
    site.write("one").unwrap();
    assert_eq!(site.names(), ["x.json"]);
    fs::create_dir(site.lock()).unwrap();
    let no_time = site.locks.clone().with_patience(Duration::ZERO);
    assert!(matches!(no_time.run(|held| held.lock(&site.file)), Err(TeamError::Foreign { .. })));
    age(&site.lock(), Duration::from_secs(20));
    let judged = Identity::of(&site.lock()).unwrap();
    age(&site.lock(), Duration::from_secs(1));
    site.locks.take_away(&site.file, judged).unwrap();
    assert_eq!(site.names(), ["x.json", "x.json.lock"], "put back");
    age(&site.lock(), Duration::from_secs(20));
    site.write("two").unwrap();
    site.die_holding();
    no_time.run(|held| held.lock(&site.file)).unwrap();
    assert_eq!((site.names(), fs::read_to_string(&site.file).unwrap()), (vec!["x.json".to_owned()], "two".to_owned()));
}

#[test]
fn r046_a_note_never_outlives_what_it_notes() {
    let site = site();
    fs::create_dir(site.lock()).unwrap();
    let other = site.file.with_file_name("a.json");
    let refused = site.locks.clone().with_patience(Duration::ZERO).run(|held| {
        held.lock(&other)?;
        held.lock(&site.file)
    });
    assert!(matches!(refused, Err(TeamError::Foreign { .. })), "{refused:?}");
    assert_eq!(fs::read(&site.locks.flock).unwrap()[0], b'\n');
    let refused = site.locks.clone().with_patience(Duration::ZERO).run(|held| held.lock(&site.file));
    assert!(matches!(refused, Err(TeamError::Foreign { .. })), "{refused:?}");
    assert_eq!(fs::read(&site.locks.flock).unwrap()[0], b'\n');
    assert_eq!(site.names(), ["x.json.lock"]);
}

#[test]
fn r046_a_holder_of_ours_that_does_not_let_go_is_named() {
    let site = site();
    let (held_now, is_held) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let site = &site;
        let holder = s.spawn(move || {
            site.locks.run(|held| {
                held.lock(&site.file)?;
                held_now.send(()).unwrap();
                let _ = wait.recv_timeout(LONG);
                Ok(())
            })
        });
        is_held.recv_timeout(LONG).unwrap();
        let other = site.locks.clone().with_patience(Duration::from_millis(50));
        let error = other.run(|_| Ok(())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("locked by process {} for", std::process::id())), "{text}");
        let_go.send(()).unwrap();
        holder.join().unwrap().unwrap();
    });
}

#[test]
fn a_note_out_of_another_folder_or_full_of_nonsense_harms_nothing() {
    let site = site();
    site.write("x").unwrap();
    let outside = site.locks.config.root().parent().unwrap().join("outside.json");
    fs::create_dir(lock_of(&outside)).unwrap();
    let identity = Identity::of(&lock_of(&outside)).unwrap();
    for file in ["../outside.json", outside.to_str().unwrap(), "teams/../../outside.json", ""] {
        let note = Note { pid: 1, held: vec![Noted { file: file.into(), identity }] };
        fs::write(&site.locks.flock, serde_json::to_vec(&note).unwrap()).unwrap();
        site.write(file).unwrap();
    }
    assert!(lock_of(&outside).exists());
    for nonsense in [&b"\0\xff"[..], b"{", b"[]\n", &[b'x'; 5000]] {
        fs::write(&site.locks.flock, nonsense).unwrap();
        site.write("y").unwrap();
    }
    assert_eq!(site.names(), ["x.json"]);
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
    let site = site();
    site.write("old").unwrap();
    let taken = site.file.with_file_name("folder");
    fs::create_dir_all(taken.join("in it")).unwrap();
    let failed = site.locks.run(|held| {
        held.lock(&taken)?;
        held.replace(&taken, &taken, &[b"x"])
    });
    assert!(matches!(failed, Err(TeamError::Store(_))), "{failed:?}");
    assert_eq!(site.names(), ["folder", "x.json"]);
    let nowhere = site.file.with_file_name("none").join("x.json");
    let missing = site.locks.run(|held| held.lock(&nowhere));
    assert!(matches!(missing, Err(TeamError::Store(StoreError::Missing { .. }))), "{missing:?}");
}
