//! What the disk and other programs may do in the middle of a change.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use super::super::file_tests::Place;
use super::super::target::Target;

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_changes_between_look_and_change_is_noticed() {
    let place = Place::new();
    let file = place.root.join("f");
    let refused = |target: &Target<'_>| target.replace(b"ours").unwrap_err();
    place.write("f", "old");
    let target = Target::find(&place.context, "f").unwrap();
    fs::write(&file, "new").unwrap();
    assert!(refused(&target).contains("changed since you read it"));
    assert_eq!(fs::read(&file).unwrap(), b"new");
    fs::remove_file(&file).unwrap();
    assert!(refused(&target).contains("can't be written") || refused(&target).contains("removed meanwhile"));
    let target = Target::find(&place.context, "f").unwrap();
    fs::write(&file, "theirs").unwrap();
    assert!(refused(&target).contains("made by somebody else"));
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
    let target = Target::find(&place.context, "f").unwrap();
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused(&target).contains("named pipe"));
    assert_eq!(names(&place.root), ["f"], "no temporary file is left");
    assert!(place.context.state().files().is_empty());
}

#[test]
fn a_cancelled_change_is_none() {
    let place = Place::new();
    let target = Target::find(&place.context, "new/deep/f").unwrap();
    place.context.cancel.cancel();
    assert_eq!(target.replace(b"x").unwrap_err(), "cancelled; nothing was changed");
    assert!(names(&place.root).is_empty(), "folders made for it are gone too");
}

#[test]
fn a_folder_that_somebody_uses_stays() {
    let place = Place::new();
    let target = Target::find(&place.context, &format!("new/{}", "n".repeat(255))).unwrap();
    target.replace(b"x").unwrap();
    place.context.cancel.cancel();
    let target = Target::find(&place.context, "new/other").unwrap();
    assert!(target.replace(b"x").is_err());
    assert_eq!(names(&place.root), ["new"]);
}

/// A small file system of its own, if this user may mount one.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(place: &Place, options: &str) -> Option<Self> {
        let folder = place.root.join("small");
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&folder).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Self(folder));
        }
        println!("SKIPPED (no mount)");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let place = Place::new();
    let Some(small) = Small::mount(&place, "size=64k") else { return };
    fs::write(small.0.join("f"), "old").unwrap();
    let target = Target::find(&place.context, "small/f").unwrap();
    let error = target.replace(&vec![b'x'; 1 << 20]).unwrap_err();
    assert!(
        error.contains("small/f can't be written: No space left") && error.ends_with("nothing was changed"),
        "{error}"
    );
    let target = Target::find(&place.context, "small/new/deep/f").unwrap();
    assert!(target.replace(&vec![b'x'; 1 << 20]).unwrap_err().contains("No space left"));
    assert_eq!((names(&small.0), fs::read(small.0.join("f")).unwrap()), (vec!["f".to_owned()], b"old".to_vec()));
    Target::find(&place.context, "small/f").unwrap().replace(b"fits").unwrap();
}

#[test]
fn a_read_only_file_system_is_told() {
    let place = Place::new();
    let Some(small) = Small::mount(&place, "size=64k") else { return };
    fs::write(small.0.join("f"), "old").unwrap();
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&small.0).status();
    assert!(remounted.is_ok_and(|status| status.success()));
    for name in ["small/f", "small/new", "small/new/deep"] {
        let error = Target::find(&place.context, name).unwrap().replace(b"x").unwrap_err();
        assert!(error.contains("Read-only file system") && error.contains("small/"), "{error}");
    }
}

/// Runs `work` as a user who is not root; none if this user is not root itself.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    if !nix::unistd::getuid().is_root() {
        println!("SKIPPED (not root)");
        return None;
    }
    let id = |raw| Some(rustix::process::Uid::from_raw(raw));
    std::thread::scope(|s| {
        // Only that thread's: the ids of a thread are its own until the library is asked to change all.
        let thread = s.spawn(move || {
            rustix::thread::set_thread_res_uid(id(65534), id(65534), id(65534)).unwrap();
            work()
        });
        Some(thread.join().unwrap())
    })
}

#[test]
fn without_permission_nothing_is_changed() {
    let place = Place::new();
    let open = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    open(place.root.parent().unwrap());
    open(&place.root);
    place.write("f", "old").write("closed/f", "old");
    fs::set_permissions(place.root.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    open(&place.root.join("closed/f"));
    let replace =
        |name: &str| Target::find(&place.context, name).and_then(|target| target.replace(b"new")).unwrap_err();
    let errors = as_nobody(|| ["f", "closed/f", "closed/new", "closed/new/deep"].map(replace));
    for error in errors.into_iter().flatten() {
        assert!(error.contains("Permission denied") && error.contains("nothing was changed"), "{error}");
    }
    assert_eq!(
        (names(&place.root.join("closed")), place.root.join("f").metadata().unwrap().len()),
        (vec!["f".into()], 3)
    );
}

#[test]
fn the_owner_stays_where_the_system_lets_us() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    let file = place.root.join("f");
    place.write("f", "old");
    if chown(&file, Some(65534), Some(65533)).is_err() {
        println!("SKIPPED (not root)");
        return;
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6754)).unwrap();
    let notes = Target::find(&place.context, "f").unwrap().replace(b"new").unwrap().notes;
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (65534, 65533, 0o6754));
    assert!(notes.is_empty());
    // Another user may change it where folder and group let them, and can't keep its owner.
    chown(&file, Some(1), Some(1)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4777)).unwrap();
    for folder in [place.root.parent().unwrap(), &place.root] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let done = as_nobody(|| Target::find(&place.context, "f").and_then(|target| target.replace(b"newer")));
    let notes = done.unwrap().unwrap().notes;
    assert!(notes[0].contains("owner 1:1 could not be kept"), "{notes:?}");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o777, "without the bits that lend rights");
}
