use std::fs;

use super::super::testing::{LONG, Place, letter};
use super::*;
use crate::core::team::board::NewCard;
use crate::store::team::TeamError;

fn soon() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

/// All changes until these files are among them.
fn wait_for(watch: &mut Watch, wanted: &[PathBuf]) {
    let mut seen = BTreeSet::new();
    while !wanted.iter().all(|file| seen.contains(file)) {
        match watch.wait(soon()).unwrap() {
            Some(Changed::Files(files)) => seen.extend(files),
            other => panic!("{other:?} while waiting for {wanted:?}"),
        }
    }
}

#[test]
fn mail_and_cards_are_told_by_the_kernel_and_locks_are_not() {
    let place = Place::new();
    let team = place.team("t", &["a"]);
    let board = team.board();
    let mut watch = team.watch().unwrap();
    assert_eq!(watch.polls(), None);
    assert_eq!(watch.try_changes().unwrap(), None);
    let _ = team.send(&letter("a", "x")).unwrap();
    let mailbox = team.mailbox("a").unwrap();
    assert_eq!(watch.wait(soon()).unwrap(), Some(Changed::Files([mailbox.path().to_owned()].into())));
    let card = board.create(&NewCard::default()).unwrap().id.unwrap();
    let card_path = board.path().join(card.file());
    wait_for(&mut watch, std::slice::from_ref(&card_path));
    board.delete(card).unwrap();
    // In place, as other programs do.
    fs::write(mailbox.path(), "[]").unwrap();
    wait_for(&mut watch, &[card_path, mailbox.path().to_owned()]);
    fs::create_dir(team.inboxes().join("a.json.lock")).unwrap();
    fs::write(team.inboxes().join(".a.json.tmp"), "").unwrap();
    fs::create_dir(team.inboxes().join("folder.json")).unwrap();
    assert_eq!(watch.wait(Some(Instant::now() + Duration::from_millis(30))).unwrap(), None);
}

#[test]
fn a_folder_that_goes_is_told() {
    let place = Place::new();
    let team = place.team("t", &[]);
    let mut watch = team.watch().unwrap();
    crate::store::team::delete(&team).unwrap();
    assert_eq!(watch.wait(soon()).unwrap(), Some(Changed::Gone));
    let missing = team.watch();
    assert!(matches!(missing, Err(TeamError::Store(StoreError::Missing { .. }))), "{missing:?}");
    assert!(!team.path().exists());
}

#[test]
fn more_events_than_the_kernel_keeps_mean_that_anything_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = Watch::open(&[dir.path()]).unwrap();
    let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let (a, b) = (dir.path().join("a.json"), dir.path().join("b.json"));
    fs::write(&a, "").unwrap();
    // Two names in turn, since the same event twice in a row is one.
    for _ in 0..=most / 2 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    assert_eq!(watch.try_changes().unwrap(), Some(Changed::All));
    assert_eq!(watch.try_changes().unwrap(), None);
    fs::write(&a, "x").unwrap();
    assert_eq!(watch.wait(soon()).unwrap(), Some(Changed::Files([a].into())));
}

#[test]
fn where_the_kernel_can_not_tell_a_timer_does() {
    let mut watch = Watch::polling("none left".into(), Duration::from_millis(5)).unwrap();
    assert_eq!(watch.polls(), Some("none left"));
    for _ in 0..3 {
        assert_eq!(watch.wait(soon()).unwrap(), Some(Changed::All));
    }
    let mut slow = Watch::polling("none left".into(), LONG).unwrap();
    assert_eq!(slow.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap(), None);
    for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOSPC, Errno::ENOMEM] {
        assert!(is_out_of_watches(errno));
    }
    assert!(!is_out_of_watches(Errno::ENOENT) && !is_out_of_watches(Errno::EACCES));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(network_file_system(dir.path()).unwrap(), None);
    assert!(Watch::open(&[&dir.path().join("none")]).is_err());
}

#[test]
fn what_is_worse_wins() {
    let files = |name: &str| Changed::Files([PathBuf::from(name)].into());
    assert_eq!(files("a").and(files("b")), Changed::Files(["a".into(), "b".into()].into()));
    assert_eq!(files("a").and(Changed::All), Changed::All);
    assert_eq!(Changed::Gone.and(Changed::All), Changed::Gone);
    assert_eq!(Changed::All.and(Changed::Gone), Changed::Gone);
}
