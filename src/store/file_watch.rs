//! Noticing that one of a few small files was changed, made or removed, by whatever means: written in
//! place, replaced, or with the folder it lies in. Woken by the kernel (inotify), never by a clock.
//!
//! A lead watches its settings files with it. Folders are watched, not files: a file that is replaced
//! is another file. Of a file that is a link the folder of its target is watched too; a link in the
//! middle of a path that is turned elsewhere is not noticed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::StoreError;
use super::atomic::folder_of;

/// How often folders that come and go are followed at a time.
const TRIES: u32 = 10;

/// Watches some files.
#[derive(Debug)]
pub struct FileWatch {
    inotify: Inotify,
    files: Vec<PathBuf>,
    /// What is waited for in each folder that is watched: a file, or the next folder on the way to one.
    names: HashMap<WatchDescriptor, HashSet<OsString>>,
}

impl FileWatch {
    /// Begins to watch `files` (absolute). Neither they nor their folders need to be there.
    pub fn open(files: Vec<PathBuf>) -> Result<Self, StoreError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|e| StoreError::at(Path::new("inotify"), "open")(e.into()))?;
        let mut watch = Self { inotify, files, names: HashMap::new() };
        watch.arm()?;
        Ok(watch)
    }

    /// Whether one of the files may have changed since the last call. Never waits; the descriptor of
    /// [`AsFd`] becomes readable when it is worth asking again.
    pub fn take_changes(&mut self) -> Result<bool, StoreError> {
        let mut changed = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => changed |= events.iter().any(|event| self.concerns(event)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(e) => return Err(StoreError::at(Path::new("inotify"), "read")(e.into())),
            }
        }
        if changed {
            // Folders may have come and gone, links may lead elsewhere.
            self.arm()?;
        }
        Ok(changed)
    }

    fn concerns(&self, event: &InotifyEvent) -> bool {
        let lost = AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF;
        if event.mask.intersects(lost) {
            return true;
        }
        let (Some(name), Some(names)) = (&event.name, self.names.get(&event.wd)) else { return false };
        if !names.contains(name) {
            return false;
        }
        // A new file is looked at when it is written; a new folder or link is all there at once.
        let is_link = |file: &PathBuf| file.symlink_metadata().is_ok_and(|m| m.is_symlink());
        let here = |file: &&PathBuf| file.file_name() == Some(name.as_os_str());
        event.mask != AddWatchFlags::IN_CREATE || self.files.iter().filter(here).any(is_link)
    }

    /// Watches the folder of each file, or the nearest one above it that exists. Whoever calls this looks
    /// at the files after it: what happens from here on is told.
    fn arm(&mut self) -> Result<(), StoreError> {
        let mut plan = self.plan();
        for _ in 0..TRIES {
            let mut names = HashMap::new();
            for (folder, wanted) in &plan {
                match self.inotify.add_watch(folder, wanted.mask) {
                    Ok(watch) => drop(names.insert(watch, wanted.names.clone())),
                    Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                    Err(e) => return Err(StoreError::at(folder, "watch")(e.into())),
                }
            }
            for old in self.names.keys().filter(|watch| !names.contains_key(watch)) {
                // It is gone already where its folder is.
                let _ = self.inotify.rm_watch(*old);
            }
            self.names = names;
            // A folder that came or went before it was watched is told of by nobody.
            let now = self.plan();
            if self.names.len() == now.len() && now.keys().all(|folder| plan.contains_key(folder)) {
                break;
            }
            plan = now;
        }
        Ok(())
    }

    /// Which folders are to be watched now, and for what.
    fn plan(&self) -> HashMap<PathBuf, Wanted> {
        let for_folders = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let for_files = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE;
        let targets = self.files.iter().filter_map(|file| file.canonicalize().ok());
        let files: HashSet<PathBuf> = self.files.iter().cloned().chain(targets).collect();
        let mut plan: HashMap<PathBuf, Wanted> = HashMap::new();
        for file in &files {
            let mut path = file.as_path();
            while !folder_of(path).is_dir() && folder_of(path) != path {
                path = folder_of(path);
            }
            // By its real path, so that no folder is watched twice for different things.
            let folder = folder_of(path).canonicalize().unwrap_or_else(|_| folder_of(path).to_owned());
            let wanted = plan.entry(folder).or_insert_with(|| Wanted { mask: for_folders, names: HashSet::new() });
            wanted.names.insert(path.file_name().unwrap_or_default().to_owned());
            // Where only a folder is waited for, files that are written are nobody's concern.
            if path == file {
                wanted.mask |= for_files;
            }
        }
        plan
    }
}

/// What is waited for in a folder.
struct Wanted {
    mask: AddWatchFlags,
    names: HashSet<OsString>,
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for FileWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// Waits until a change is told of. What `then` does is one.
    fn told(watch: &mut FileWatch, then: impl FnOnce()) {
        assert!(!watch.take_changes().unwrap(), "nothing happened yet");
        then();
        for _ in 0..100 {
            if watch.take_changes().unwrap() {
                return;
            }
            let ready =
                poll(&mut [PollFd::new(watch.as_fd(), PollFlags::POLLIN)], PollTimeout::from(30_000u16)).unwrap();
            assert_eq!(ready, 1, "no event in 30 s");
        }
        panic!("events, but no change");
    }

    #[test]
    fn every_way_to_change_a_file_is_noticed_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let file = root.join("a/b/settings.json");
        let mut watch = FileWatch::open(vec![file.clone(), root.join("other.json")]).unwrap();
        fs::write(root.join("a-file"), "x").unwrap();
        fs::create_dir(root.join("z")).unwrap();
        told(&mut watch, || fs::create_dir(root.join("a")).unwrap());
        told(&mut watch, || fs::create_dir(root.join("a/b")).unwrap());
        fs::write(root.join("a/b/x.json"), "x").unwrap();
        told(&mut watch, || fs::write(&file, "1").unwrap());
        told(&mut watch, || fs::write(&file, "2").unwrap());
        told(&mut watch, || {
            fs::write(root.join("a/b/.tmp"), "3").unwrap();
            fs::rename(root.join("a/b/.tmp"), &file).unwrap();
        });
        told(&mut watch, || fs::remove_file(&file).unwrap());
        told(&mut watch, || fs::rename(root.join("a/b"), root.join("a/c")).unwrap());
        told(&mut watch, || fs::rename(root.join("a/c"), root.join("a/b")).unwrap());
        told(&mut watch, || fs::write(&file, "4").unwrap());
        told(&mut watch, || fs::remove_dir_all(root.join("a")).unwrap());
        while watch.take_changes().unwrap() {}
        told(&mut watch, || {
            fs::create_dir_all(root.join("a/b")).unwrap();
            fs::write(&file, "5").unwrap();
        });
        told(&mut watch, || fs::write(root.join("other.json"), "x").unwrap());
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_both_watched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["here", "there"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        fs::write(root.join("there/real.json"), "1").unwrap();
        let link = root.join("here/settings.json");
        let mut watch = FileWatch::open(vec![link.clone()]).unwrap();
        told(&mut watch, || std::os::unix::fs::symlink(root.join("there/real.json"), &link).unwrap());
        told(&mut watch, || fs::write(root.join("there/real.json"), "2").unwrap());
        told(&mut watch, || fs::remove_file(&link).unwrap());
        fs::write(root.join("there/real.json"), "3").unwrap();
        assert!(!watch.take_changes().unwrap(), "it is not what the file is any more");
    }
}
