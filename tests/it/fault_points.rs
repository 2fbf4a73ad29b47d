//! A process killed at each fault point: afterwards a resume ends with every outcome consumed once
//! and every tool use answered.

use lead::core::fault::Fault;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Book, World, bash, book, lead_rule, paired, spawn, stop, tell, times, turn, worker_rule};

const ID: &str = "33333333-2222-4333-8444-555555555555";

/// Who passes a point.
fn roles(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::ReplyBeforeTools | Fault::ToolsBeforeResults | Fault::ResultsBeforeModel => &["lead", "worker"],
        Fault::DeliverBeforeEnqueue
        | Fault::EnqueueBeforeReply
        | Fault::FinalBeforeOutcome
        | Fault::OutcomeBeforeEvent
        | Fault::EventBeforeExit => &["worker"],
        Fault::MarkerBeforeSignal
        | Fault::OutcomeBeforeNotification
        | Fault::NotificationBeforeModel
        | Fault::MetaBeforeProcess
        | Fault::ProcessBeforeReady
        | Fault::ReadyBeforeLaunched => &["lead"],
        // Sessions without a team have no mail; a spawn that is not ready is undone (`team_crash`).
        Fault::MailBeforeEntry | Fault::EntryBeforeMark | Fault::StartBeforeHello => &[],
    }
}

/// A session that passes every point: two workers, a message to the one, a stop of the other. The
/// files `one` and `two` let the workers go on; the test makes them before it resumes.
fn session(world: &World) -> Book {
    let until = |file: &str| bash(&format!("until [ -e {file} ]; do sleep 0.02; done; echo passed"));
    let lead = lead_rule(&[
        turn("", &[spawn("one", "Do job one."), spawn("two", "Do job two.")]),
        json!({"when": {"latest": "agentId"}, "text": "Both run.", "tools": [
            tell("{{agent.1}}", "a message"),
            bash("touch one"),
            stop("{{agent.2}}"),
        ]}),
        json!({"when": {"notifications": ">=2"}, "text": "over"}),
    ]);
    let jobs = ["one", "two"].map(|n| {
        let turns = [turn("", &[until(n)]), json!({"repeat": true, "text": "done"})];
        worker_rule(&format!("job {n}"), &turns)
    });
    book(world, &[vec![lead], jobs.to_vec()].concat())
}

#[test]
fn a_process_killed_at_any_fault_point_loses_nothing_and_tells_nothing_twice() {
    for (fault, role) in Fault::ALL.into_iter().flat_map(|f| roles(f).iter().map(move |r| (f, *r))) {
        // Before its first model call a worker is not ready yet, and such a spawn is undone.
        let first = if role == "worker" && fault == Fault::ResultsBeforeModel { 2 } else { 1 };
        for time in 1..=times(first, 4) {
            killed_at(fault, role, time, time == first);
        }
    }
}

/// `is_reached` = every session of this kind passes the point that often.
fn killed_at(fault: Fault, role: &str, time: usize, is_reached: bool) {
    let point = format!("{role}/{}:{time}", fault.name());
    eprintln!("killed at {point}");
    let world = World::heavy().killed_anywhere();
    let book = session(&world);
    let killed = world.headless(&book.model(), "go").args(&["--session-id", ID]).env("LEAD_FAULT", &point).run();
    let was_killed = killed.signal == Some(Signal::SIGKILL as i32);
    assert!(!is_reached || role == "worker" || was_killed, "{point} was not reached: {killed:#?}");
    if !was_killed {
        killed.expect(0);
    }
    world.file("one", "");
    world.file("two", "");
    let resumed = world.headless(&book.model(), "carry on").args(&["--resume", ID]).run();
    resumed.expect(0);
    let session = world.session(ID);
    session.check();
    for request in book.of("lead") {
        paired(request.messages());
    }
    for agent in session.agents() {
        assert!(!agent.outcomes().is_empty(), "{point}: {agent:?} never ran and was not forgotten");
    }
    let outcomes: Vec<_> = session.agents().iter().flat_map(|a| a.outcomes()).collect();
    let crashed = outcomes.iter().filter(|o| o["signal"] == "SIGKILL" && o["status"] == "failed").count();
    let leaves_an_outcome = matches!(fault, Fault::OutcomeBeforeEvent | Fault::EventBeforeExit);
    if is_reached && role == "worker" && !leaves_an_outcome {
        assert!(crashed > 0, "{point} was not reached: {outcomes:#?}");
    }
    world.assert_nothing_left();
}
