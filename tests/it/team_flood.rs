//! Many processes that send to one living member at once, while it works, rests, reads and compacts:
//! what was sent is in its transcript, once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lead::core::limits::Durability;
use lead::core::paths::ConfigDir;
use lead::store::team::Team;
use serde_json::json;

use crate::support::{
    Running, SHUTDOWN, World, add, agent, bash, book, create_team, eventually, lead_rule, lines_of, say, times,
    wait_member, whenever,
};
use crate::team_jobs::{Job, start};
use crate::team_members::lead_with;
use crate::team_peers::{has_proper_lockfile, script};
use crate::team_races::{Over, assert_each_once, lines, litter, look_on};

const PATIENT: Duration = Duration::from_secs(60);
/// Many times what sixteen who send a thousand messages each need on a machine that has other things to do.
const LONGEST: Duration = Duration::from_secs(1200);

/// Floods a member with what these send, `count` each; who they are is for `sender` to say.
fn flood(world: &World, senders: usize, count: usize, sender: impl Fn(usize, usize, &Path, &Team) -> Running) {
    let gate = world.gate("gate");
    let yes = json!({"type": "shutdown_response", "request_id": "{{capture.id}}", "approve": true});
    // Each fourth reply says that the window is full, so that it compacts again and again.
    let first = json!({"when": {"latest": "^You are ann"}, "tools": [bash(&gate.arrive("here"))]});
    let noted = json!({"text": "noted", "repeat": 3});
    let mut ann = agent(json!({"role": "^teammate$"}), &[first, whenever(SHUTDOWN, &[say("team-lead", yes)]), noted]);
    ann["otherwise"] = json!({"text": "noted", "usage": {"input_tokens": 180_000}});
    let lead =
        lead_rule(&[json!({"tools": [create_team("t")]}), json!({"tools": [add("ann", "You are ann; begin.")]})]);
    let led = lead_with(world, &book(world, &[lead, ann]), &[], "go");
    world.wait_file("here");
    let row = wait_member(world, "ann", "running");
    let team = Team::open(&ConfigDir::new(world.config()), "t", Durability::Process).unwrap();
    let path = team.mailbox("ann").unwrap().path().to_owned();
    let logs: Vec<PathBuf> = (0..senders).map(|n| world.root().join(format!("sent-{n}"))).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let over = Over(&is_over);
        let looking = s.spawn(|| look_on(&path, &is_over));
        let running: Vec<Running> = logs.iter().enumerate().map(|(n, log)| sender(n, count, log, &team)).collect();
        // Busy with a tool until some have sent, and between work and rest from there on.
        eventually("some have sent", || if lines(&logs[0]).len() >= 5 { Ok(()) } else { Err(()) });
        gate.open(1);
        for sender in running {
            let Ok(done) = sender.wait_for(LONGEST) else { panic!("a sender does not come to its end") };
            done.expect(0);
        }
        eventually("all is read", || {
            let unread = team.mailbox("ann").unwrap().look().unwrap().unread().count();
            if unread == 0 { Ok(()) } else { Err(unread) }
        });
        drop(over);
        assert!(looking.join().unwrap() > 0);
    });
    wait_member(world, "ann", "idle");
    let sent: Vec<String> = logs.iter().flat_map(|log| lines(log)).collect();
    assert_eq!(sent.len(), senders * count);
    let lines = lines_of(row["transcript"].as_str().unwrap().as_ref());
    let shown = lines.iter().filter(|line| line["type"] == "user");
    let shown: Vec<String> = shown.filter_map(|line| line["msgId"].as_str().map(str::to_owned)).collect();
    assert_each_once(&sent, &shown);
    assert_eq!(shown.iter().collect::<HashSet<_>>().len(), sent.len(), "nobody else wrote");
    assert!(lines.iter().any(|line| line["subtype"] == "compact_boundary"), "it has compacted");
    let kept = team.mailbox("ann").unwrap().look().unwrap().mail.len();
    assert!(kept <= 200, "r023: {kept} read messages are kept");
    assert_eq!(litter(&team), [""; 0]);
    led.end().expect(0);
    world.assert_nothing_left();
}

fn ours(world: &World, count: usize, log: &Path) -> Running {
    let job = Job::Send { to: "ann".into(), from: "s".into(), count, longest: 100, log: log.to_path_buf() };
    start(world, &job, PATIENT)
}

#[test]
fn r022_r033_of_many_who_send_to_a_member_at_work_each_message_comes_once() {
    let world = World::heavy();
    flood(&world, 16, times(40, 1000), |_, count, log, _| ours(&world, count, log));
}

#[test]
fn r022_r033_scripts_and_agents_that_send_to_a_member_at_work_lose_nothing() {
    if !has_proper_lockfile() {
        return;
    }
    let world = World::heavy();
    flood(&world, 16, times(20, 1000), |n, count, log, team| {
        let path = team.mailbox("ann").unwrap().path().to_owned();
        if n % 8 == 0 { script(&world, &path, count, "rename", log) } else { ours(&world, count, log) }
    });
}
