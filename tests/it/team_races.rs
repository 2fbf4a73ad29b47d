//! Many processes at the files of one team: nothing is lost, nothing comes twice, nobody sees half
//! of anything, whoever is killed and whenever.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lead::core::team::board::NewCard;
use lead::core::team::{CardId, Member, Status};
use lead::store::team::Team;
use nix::errno::Errno;
use serde_json::Value;

use crate::support::{Running, World, times};
use crate::team_jobs::{Job, letter, start, team, worker};

const PATIENT: Duration = Duration::from_secs(60);

/// The lines of a file, none if it is not there.
pub fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Fails unless each of `sent` is in the transcript, and nothing twice.
pub fn assert_each_once(sent: &[String], transcript: &[String]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in transcript {
        *counts.entry(id).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "in the transcript more than once: {twice:?}");
    let lost: Vec<_> = sent.iter().filter(|id| !counts.contains_key(id.as_str())).collect();
    assert!(lost.is_empty(), "{} of {} were lost: {lost:?}", lost.len(), sent.len());
}

/// Ends those who look on, also when the test fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a mailbox as any program might, all the time, until it is over; how often it was there.
pub fn look_on(path: &Path, is_over: &AtomicBool) -> usize {
    let mut seen = 0;
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(bytes) = fs::read(path) {
            let whole: Result<Vec<Value>, _> = serde_json::from_slice(&bytes);
            assert!(whole.is_ok(), "half a file: {:?}", String::from_utf8_lossy(&bytes));
            seen += 1;
        }
    }
    seen
}

/// What is left of locks and temporary files.
pub fn litter(team: &Team) -> Vec<String> {
    let folders = [team.path(), team.inboxes(), team.board().path().to_owned()];
    let names = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| n.ends_with(".tmp") || n.contains(".json.lock") || n.contains(".lock.")).collect()
}

#[test]
fn r022_of_many_who_send_to_one_while_it_reads_nothing_is_lost_or_comes_twice() {
    let world = World::heavy();
    let team = team(&world, &["inbox"]);
    let count = times(25, 250);
    let logs: Vec<PathBuf> = (0..16).map(|n| world.root().join(format!("sent-{n}"))).collect();
    let (transcript, until) = (world.root().join("transcript"), world.root().join("until"));
    let job = Job::Read { who: "inbox".into(), transcript: transcript.clone(), until: until.clone() };
    let reader = start(&world, &job, PATIENT);
    let path = team.mailbox("inbox").unwrap().path().to_owned();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let over = Over(&is_over);
        let looking = s.spawn(|| look_on(&path, &is_over));
        let senders: Vec<Running> = logs
            .iter()
            .map(|log| Job::Send { to: "inbox".into(), from: "s".into(), count, longest: 9000, log: log.clone() })
            .map(|job| start(&world, &job, PATIENT))
            .collect();
        for sender in senders {
            sender.wait().expect(0);
        }
        fs::write(&until, "").unwrap();
        reader.wait().expect(0);
        drop(over);
        assert!(looking.join().unwrap() > 0);
    });
    let sent: Vec<String> = logs.iter().flat_map(|log| lines(log)).collect();
    let transcript = lines(&transcript);
    assert_eq!((sent.len(), transcript.len()), (16 * count, 16 * count));
    assert_each_once(&sent, &transcript);
    let seen = team.mailbox("inbox").unwrap().look().unwrap();
    assert_eq!(seen.unread().count(), 0);
    assert!(seen.mail.len() <= 200, "r023: {} read messages are kept", seen.mail.len());
    assert_eq!(litter(&team), [""; 0]);
}

#[test]
fn r033_processes_killed_at_any_moment_lose_nothing_and_their_locks_are_taken_over_at_once() {
    let world = World::heavy();
    let team = team(&world, &["inbox"]);
    // Shorter than what a lock needs to go stale: who waited for that would fail.
    let patience = Duration::from_secs(8);
    let (transcript, until) = (world.root().join("transcript"), world.root().join("until"));
    let read = Job::Read { who: "inbox".into(), transcript: transcript.clone(), until: until.clone() };
    let log = world.root().join("sent");
    let send = Job::Send { to: "inbox".into(), from: "s".into(), count: 100_000, longest: 9000, log: log.clone() };
    let mut running: Vec<Running> = (0..4).map(|_| start(&world, &send, patience)).collect();
    running.push(start(&world, &read, patience));
    let (hasty, mut sent_next) = (team.clone().with_patience(patience), Vec::new());
    let path = team.mailbox("inbox").unwrap().path().to_owned();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let over = Over(&is_over);
        let looking = s.spawn(|| look_on(&path, &is_over));
        for round in 0..times(60, 1000) {
            // The reader is killed as often as all senders together.
            let victim = if round % 2 == 0 { 4 } else { round / 2 % 4 };
            let moment = u64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 3;
            let job = if victim == 4 { &read } else { &send };
            // Gone before there is another: a transcript has one writer.
            match running.swap_remove(victim).wait_for(Duration::from_millis(moment)) {
                Ok(done) => panic!("it ended by itself: {done:#?}"),
                Err(process) => drop(process.kill().expect_killed()),
            }
            // Whatever it held, the next one goes on.
            let next = letter("inbox", "next", "x");
            let _ = hasty.send(&next).unwrap();
            sent_next.push(next.msg_id);
            running.push(start(&world, job, patience));
            let last = running.len() - 1;
            running.swap(victim, last);
        }
        for process in running.drain(..) {
            process.kill().expect_killed();
        }
        fs::write(&until, "").unwrap();
        start(&world, &read, patience).wait().expect(0);
        drop(over);
        looking.join().unwrap();
    });
    let sent = [lines(&log), sent_next].concat();
    assert_each_once(&sent, &lines(&transcript));
    // The reader takes no lock if all was marked already.
    let _ = team.mailbox("inbox").unwrap().compact().unwrap();
    assert_eq!(litter(&team), [""; 0], "r046: the last one has cleared up after all");
}

#[test]
fn r041_of_many_who_claim_each_card_is_done_once_in_its_order_though_they_are_killed() {
    let world = World::heavy();
    let team = team(&world, &[]);
    let board = team.board();
    let (processes, cards, kills) = (times(10, 50), times(40, 200), times(20, 100));
    let name = |n: usize| format!("w{n}");
    for n in 0..processes {
        let backend_type = Some("external".to_owned());
        team.add_member(&Member { name: name(n), backend_type, ..Member::default() }).unwrap();
    }
    // Each card waits for two of those before it.
    let mut ids: Vec<CardId> = Vec::new();
    for number in 0..cards {
        let blocked_by = if number < 10 { Vec::new() } else { vec![ids[number - 10], ids[number * 7 / 10 - 1]] };
        let new = NewCard { subject: format!("card {number}"), blocked_by, ..NewCard::default() };
        ids.push(board.create(&new).unwrap().id.unwrap());
    }
    let log = world.root().join("log");
    let begin = |n: usize| start(&world, &Job::Work { who: name(n), log: log.clone() }, PATIENT);
    let mut workers: Vec<(usize, Running)> = (0..processes).map(|n| (n, begin(n))).collect();
    let mut killed: BTreeSet<String> = BTreeSet::new();
    for _ in 0..kills {
        let random = uuid::Uuid::new_v4();
        let Some(victim) = usize::from(random.as_bytes()[1]).checked_rem(workers.len()) else { break };
        let (n, worker) = workers.swap_remove(victim);
        match worker.wait_for(Duration::from_millis(u64::from(random.as_bytes()[0]) / 2)) {
            Ok(done) => {
                done.expect(0);
            }
            Err(worker) => {
                killed.insert(worker.pid().to_string());
                worker.kill().expect_killed();
                workers.push((n, begin(n)));
            }
        }
    }
    assert!(!killed.is_empty());
    for (_, worker) in workers {
        worker.wait().expect(0);
    }
    // By card: who had it, one after the other, and who completed it.
    let (mut claims, mut done) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::<String, String>::new());
    for line in lines(&log) {
        let [what, card, pid] = line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        if what == "claim" {
            assert!(!done.contains_key(&card), "#{card} was begun again by {pid} when it was done");
            claims.entry(card).or_default().push(pid);
        } else {
            assert_eq!(claims[&card].last(), Some(&pid), "#{card} was another's by then");
            assert_eq!(done.insert(card, pid), None, "done twice");
        }
    }
    for (card, mut had) in claims {
        let last = had.pop().unwrap();
        assert!(had.iter().all(|pid| killed.contains(pid)), "#{card} was taken from {had:?}, of whom one lived");
        assert!(done.get(&card) == Some(&last) || killed.contains(&last), "#{card} was not done by {last}");
    }
    assert!(ids.iter().all(|id| board.get(*id).unwrap().status == Status::Completed), "none is lost");
    assert_eq!(litter(&team), [""; 0]);
}

#[test]
fn r022_a_disk_that_is_full_fails_the_send_and_keeps_the_mailbox() {
    let world = World::new();
    let team = team(&world, &["inbox"]);
    let _ = team.send(&letter("inbox", "me", &"x".repeat(3000))).unwrap();
    let path = team.mailbox("inbox").unwrap().path().to_owned();
    let before = fs::read(&path).unwrap();
    let limited = Job::SendLimited { to: "inbox".into(), bytes: 3100 };
    let done = worker(&world, &limited, PATIENT).run();
    assert_eq!(done.code, Some(Errno::EFBIG as i32), "{done:#?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(litter(&team), [""; 0]);
    let enough = Job::SendLimited { to: "inbox".into(), bytes: 8000 };
    worker(&world, &enough, PATIENT).run().expect(0);
    assert_eq!(team.mailbox("inbox").unwrap().look().unwrap().mail.len(), 2);
}

#[test]
fn r022_a_real_full_disk_is_no_success() {
    // A file system of 64 KiB in a mount namespace of its own, where the kernel lets us make one.
    let world = World::new();
    let team = team(&world, &["inbox"]);
    let job = Job::SendOne { to: "inbox".into() };
    let me = std::env::current_exe().unwrap();
    let inboxes = team.inboxes();
    let script = format!(
        "mount -t tmpfs -o size=64k none '{0}' && head -c 60000 /dev/zero | tr '\\0' ' ' >'{0}/inbox.json' && \
         echo '[]' >>'{0}/inbox.json' && head -c 70000 /dev/zero >'{0}/rest' 2>/dev/null; \
         \"$@\"; code=$?; tail -c 3 '{0}/inbox.json'; exit $code",
        inboxes.display()
    );
    let can = std::process::Command::new("unshare").args(["-rm", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED (no mount namespaces for this user)");
        return;
    }
    let copy = ["--exact", "team_jobs::a_copy_does_its_job"];
    let spec = serde_json::to_string(&(&job, 5000_u64)).unwrap();
    let done = crate::support::Lead::program(&world, Path::new("unshare"))
        .args(&["-rm", "sh", "-c", &script, "sh", me.to_str().unwrap()])
        .args(&copy)
        .env("LEAD_TEST_JOB", spec)
        .run();
    assert_eq!(done.code, Some(Errno::ENOSPC as i32), "{done:#?}");
    assert!(done.stdout.ends_with("[]\n"), "{done:#?}");
}

#[test]
fn r022_a_folder_that_may_not_be_written_fails_the_send_and_keeps_the_mailbox() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    let world = World::new();
    let team = team(&world, &["inbox"]);
    let _ = team.send(&letter("inbox", "me", "one")).unwrap();
    let path = team.mailbox("inbox").unwrap().path().to_owned();
    let before = fs::read(&path).unwrap();
    // Root may write everywhere, so somebody else sends.
    let is_root = nix::unistd::geteuid().is_root();
    let listed = std::process::Command::new("find").arg(world.root()).output().unwrap();
    for file in String::from_utf8(listed.stdout).unwrap().lines().filter(|_| is_root) {
        chown(file, Some(NOBODY), None).unwrap();
    }
    let permit = |mode| fs::set_permissions(team.inboxes(), fs::Permissions::from_mode(mode)).unwrap();
    permit(0o500);
    let send = || {
        let lead = worker(&world, &Job::SendOne { to: "inbox".into() }, PATIENT);
        if is_root { lead.uid(NOBODY) } else { lead }.run()
    };
    let done = send();
    assert_eq!(done.code, Some(Errno::EACCES as i32), "{done:#?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    permit(0o700);
    assert_eq!(litter(&team), [""; 0]);
    send().expect(0);
    assert_eq!(team.mailbox("inbox").unwrap().look().unwrap().mail.len(), 2);
}
