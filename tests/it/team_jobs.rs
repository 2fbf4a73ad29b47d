//! Processes that work on one team at the same time: copies of this program, each told its job by a
//! variable, as leads, teammates and scripts would do it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lead::core::ids::random_uuid;
use lead::core::limits::Durability;
use lead::core::paths::ConfigDir;
use lead::core::team::board::{Actor, Patch};
use lead::core::team::claim::Wanted;
use lead::core::team::{Letter, Refusal, Status};
use lead::store::team::board::Owners;
use lead::store::team::{Holder, NewTeam, Team, TeamError, Watch, create};
use serde::{Deserialize, Serialize};

use crate::support::{Lead, Running, World};

/// The variable that makes a copy of this program do a job.
const JOB: &str = "LEAD_TEST_JOB";

/// What a copy does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Sends so many messages of up to so many bytes; the id of each that was sent goes into `log`.
    Send { to: String, from: String, count: usize, longest: usize, log: PathBuf },
    /// Reads its mail into a transcript (an id per line), until there is the file `until` and no
    /// mail.
    Read { who: String, transcript: PathBuf, until: PathBuf },
    /// Claims and completes cards as a script that holds its place, until all are completed; each step
    /// goes into `log`, with its pid.
    Work { who: String, log: PathBuf },
    /// Sends one message, where writing fails: with the file size limited to so many bytes.
    SendLimited { to: String, bytes: u64 },
    /// Sends one message.
    SendOne { to: String },
}

/// A team `t` of these members in a world.
pub fn team(world: &World, members: &[&str]) -> Team {
    let config = ConfigDir::new(world.config());
    let new = NewTeam { name: "t".into(), description: None, lead: None, created_ms: 1 };
    let team = create(&config, &new, Durability::Process).unwrap().team;
    for name in members {
        let member = lead::core::team::Member { name: (*name).to_owned(), ..Default::default() };
        team.add_member(&member).unwrap();
    }
    team
}

/// A copy of this program that will do a job for the team `t`, with so much patience for locks.
pub fn worker<'w>(world: &'w World, job: &Job, patience: Duration) -> Lead<'w> {
    let me = std::env::current_exe().unwrap();
    let spec = serde_json::to_string(&(job, u64::try_from(patience.as_millis()).unwrap())).unwrap();
    Lead::program(world, &me).args(&["--exact", "team_jobs::a_copy_does_its_job", "--nocapture"]).env(JOB, spec)
}

/// Starts one.
pub fn start(world: &World, job: &Job, patience: Duration) -> Running {
    worker(world, job, patience).start()
}

#[test]
fn a_copy_does_its_job() {
    let Ok(spec) = std::env::var(JOB) else { return };
    let (job, patience): (Job, u64) = serde_json::from_str(&spec).unwrap();
    let config = ConfigDir::new(std::env::var("CLAUDE_CONFIG_DIR").unwrap());
    let team = Team::open(&config, "t", Durability::Process).unwrap().with_patience(Duration::from_millis(patience));
    match job {
        Job::Send { to, from, count, longest, log } => send(&team, &to, &from, count, longest, &log),
        Job::Read { who, transcript, until } => read(&team, &who, &transcript, &until),
        Job::Work { who, log } => work(&team, &who, &log),
        Job::SendOne { to } => show(team.send(&letter(&to, "me", "x")).map(drop)),
        Job::SendLimited { to, bytes } => {
            use nix::sys::resource::{Resource, setrlimit};
            use nix::sys::signal::{SigSet, Signal};
            // Held back, so that writing fails instead of killing.
            SigSet::from(Signal::SIGXFSZ).thread_block().unwrap();
            setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes).unwrap();
            show(team.send(&letter(&to, "me", "x")).map(drop));
        }
    }
}

/// The outcome, where a test can read it: stdout may be limited like any file.
fn show(result: Result<(), TeamError>) {
    match result {
        Ok(()) => std::process::exit(0),
        Err(TeamError::Store(lead::store::StoreError::Io { source, .. })) => {
            std::process::exit(source.raw_os_error().unwrap_or(1))
        }
        Err(error) => panic!("{error:?}"),
    }
}

pub fn letter(to: &str, from: &str, text: &str) -> Letter {
    Letter {
        to: to.into(),
        from: from.into(),
        text: text.into(),
        summary: None,
        color: None,
        sent_ms: 1,
        msg_id: random_uuid(),
    }
}

/// One line in one write, so that a kill leaves it whole or not there.
fn note(file: &mut File, line: &str) {
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn appending(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn send(team: &Team, to: &str, from: &str, count: usize, longest: usize, log: &Path) {
    let mut log = appending(log);
    for number in 0..count {
        let letter = letter(to, from, &"x".repeat(number * 997 % longest));
        let _ = team.send(&letter).unwrap();
        note(&mut log, &letter.msg_id);
    }
}

fn read(team: &Team, who: &str, transcript: &Path, until: &Path) {
    let mut watch = Watch::open(&[&team.inboxes()]).unwrap();
    let mailbox = team.mailbox(who).unwrap();
    let mut recorded: HashSet<String> =
        fs::read_to_string(transcript).unwrap_or_default().lines().map(str::to_owned).collect();
    let mut transcript = appending(transcript);
    loop {
        let is_last = until.exists();
        let seen = mailbox.unread().unwrap();
        assert_eq!((&seen.bad, &seen.rescue), (&vec![], &None));
        let ids: Vec<&str> = seen.mail.iter().map(|mail| mail.msg_id.as_deref().unwrap()).collect();
        for id in &ids {
            // A reader that died before it marked this one.
            if recorded.insert((*id).to_owned()) {
                note(&mut transcript, id);
            }
        }
        if !ids.is_empty() {
            mailbox.mark(&ids).unwrap();
        } else if is_last {
            return;
        }
        watch.wait(Some(Instant::now() + Duration::from_millis(50))).unwrap();
    }
}

fn work(team: &Team, who: &str, log: &Path) {
    let was = team.holder(who).unwrap();
    let _hold = team.hold(who).unwrap();
    let board = team.board();
    if was == Holder::Dead {
        board.release(who, "it was killed").unwrap();
    }
    let mut watch = Watch::open(&[board.path()]).unwrap();
    let (mut log, me) = (appending(log), std::process::id());
    let life = |owner: &str| team.life(owner, &|_| true);
    let owners = Owners { life: &life, note: &|owner| format!("{owner} was killed") };
    loop {
        match board.claim(Wanted::Next, who, owners) {
            Ok(claimed) => {
                let id = claimed.card.id.unwrap();
                note(&mut log, &format!("claim {id} {me}"));
                for blocker in &claimed.card.blocked_by {
                    let status = board.get(*blocker).unwrap().status;
                    assert_eq!(status, Status::Completed, "#{id} was begun before #{blocker} was done");
                }
                // It takes a moment, in which somebody may be killed.
                watch.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap();
                let patch = Patch { status: Some(Status::Completed), ..Patch::default() };
                board.update(id, &patch, Actor::Member(who), None).unwrap();
                note(&mut log, &format!("done {id} {me}"));
            }
            Err(TeamError::Refused(Refusal::NothingToClaim { blocked: 0, in_progress: 0, .. })) => return,
            Err(TeamError::Refused(Refusal::NothingToClaim { .. })) => {
                watch.wait(Some(Instant::now() + Duration::from_secs(1))).unwrap();
            }
            // Lost to another.
            Err(TeamError::Refused(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
