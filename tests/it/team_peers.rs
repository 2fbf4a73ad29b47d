//! JavaScript programs at the files of a team, with the lock folders they really use: the package
//! `proper-lockfile`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Lead, Running, World, times};
use crate::team_jobs::{Job, letter, start, team};
use crate::team_races::{assert_each_once, lines, litter};

const PATIENT: Duration = Duration::from_secs(60);

/// Where `scripts/check` installs the package.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/node/node_modules")
}

/// Whether there are node and the package; says so if not.
pub fn has_proper_lockfile() -> bool {
    let node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    if node && modules().join("proper-lockfile").is_dir() {
        return true;
    }
    let is_required = std::env::var_os("LEAD_REQUIRE_ALL").is_some();
    assert!(!is_required, "node or proper-lockfile is missing: scripts/check installs them");
    println!("SKIPPED (no node with proper-lockfile)");
    false
}

/// A script that sends so many messages; the id of each that was sent goes into `log`.
pub fn script(world: &World, mailbox: &Path, count: usize, how: &str, log: &Path) -> Running {
    let node = which::which("node").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mail_writer.js");
    let count = count.to_string();
    let args = [script.as_os_str(), mailbox.as_os_str(), count.as_ref(), how.as_ref(), log.as_os_str()];
    Lead::program(world, &node).args(&args).env("NODE_PATH", modules()).start()
}

#[test]
fn r022_scripts_and_agents_that_write_to_one_mailbox_lose_nothing() {
    if !has_proper_lockfile() {
        return;
    }
    for how in ["in-place", "rename"] {
        let world = World::heavy();
        let team = team(&world, &["inbox"]);
        let count = times(20, 200);
        let path = team.mailbox("inbox").unwrap().path().to_owned();
        let log = |name: String| world.root().join(name);
        let (transcript, until) = (log("transcript".into()), log("until".into()));
        let job = Job::Read { who: "inbox".into(), transcript: transcript.clone(), until: until.clone() };
        let reader = start(&world, &job, PATIENT);
        let logs: Vec<PathBuf> = (0..8).map(|n| log(format!("sent-{n}"))).collect();
        let writers: Vec<Running> = logs
            .iter()
            .enumerate()
            .map(|(n, log)| match n {
                0..4 => script(&world, &path, count, how, log),
                _ => {
                    let job =
                        Job::Send { to: "inbox".into(), from: "s".into(), count, longest: 9000, log: log.clone() };
                    start(&world, &job, PATIENT)
                }
            })
            .collect();
        for writer in writers {
            writer.wait().expect(0);
        }
        fs::write(&until, "").unwrap();
        reader.wait().expect(0);
        let sent: Vec<String> = logs.iter().flat_map(|log| lines(log)).collect();
        assert_eq!(sent.len(), 8 * count);
        assert_each_once(&sent, &lines(&transcript));
        assert_eq!(litter(&team), [""; 0], "{how}");
    }
}

#[test]
fn r046_the_lock_of_a_script_that_was_killed_is_waited_for_until_it_is_stale() {
    if !has_proper_lockfile() {
        return;
    }
    let world = World::new();
    let team = team(&world, &["inbox"]);
    let path = team.mailbox("inbox").unwrap().path().to_owned();
    let lock = path.with_extension("json.lock");
    // It holds the lock of a mailbox that it can't write, and dies there.
    let hold = "const l = require('proper-lockfile'); l.lock(process.argv[1], {realpath: false}).then(() => {\
                console.log('held'); setInterval(() => {}, 1000); });";
    let holder = Lead::program(&world, &which::which("node").unwrap())
        .args(&["-e", hold, path.to_str().unwrap()])
        .env("NODE_PATH", modules())
        .start();
    crate::support::eventually("the lock", || {
        if holder.stdout().contains("held") { Ok(()) } else { Err(holder.stderr()) }
    });
    let refused = team.clone().with_patience(Duration::from_millis(100)).send(&letter("inbox", "me", "early"));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("inbox.json is locked by another program"), "{refused}");
    holder.kill().expect_killed();
    assert!(lock.exists());
    // As if it had been dead for a while.
    let then = std::time::SystemTime::now() - Duration::from_secs(11);
    fs::File::open(&lock).unwrap().set_modified(then).unwrap();
    let _ = team.clone().with_patience(Duration::from_millis(100)).send(&letter("inbox", "me", "late")).unwrap();
    assert_eq!(team.mailbox("inbox").unwrap().look().unwrap().mail.len(), 1);
    // And a script can go on.
    script(&world, &path, 1, "rename", &world.root().join("log")).wait().expect(0);
    assert_eq!(team.mailbox("inbox").unwrap().look().unwrap().mail.len(), 2);
    assert_eq!(litter(&team), [""; 0]);
}
