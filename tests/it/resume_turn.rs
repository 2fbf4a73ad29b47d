//! A lead that dies in the middle of a turn, and is resumed by somebody who says nothing to it.

use serde_json::json;

use crate::support::{
    Book, Running, World, add, ask, bash, book, create_team, eventually, lead_rule, member_rule, turn, wait_member,
    worker_rule,
};

const ID: &str = "22222222-2222-4333-8444-666666666666";
/// What it is told then.
const GO_ON: &str = "Your process had ended in the middle of a turn";

fn start(world: &World, book: &Book) -> Running {
    world.headless(&book.model(), "go").args(&["--session-id", ID]).start()
}

fn resume(world: &World, book: &Book) -> Running {
    let args = ["-p", "--resume", ID, "--model", &book.model(), "--output-format", "json"];
    world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).start()
}

#[test]
fn a_turn_that_its_lead_did_not_live_to_end_goes_on_when_it_is_resumed() {
    let world = World::new();
    let gate = world.gate("gate");
    let told = |times: usize| format!("(?s)\\A.*(?:{GO_ON}.*){{{times}}}\\z");
    // A call that was never answered is dropped: what is said comes one behind the other.
    let lead = lead_rule(&[
        json!({"when": {"latest": told(2)}, "text": "over"}),
        json!({"when": {"latest": told(1)}, "tools": [bash(&gate.arrive("there"))]}),
        json!({"when": {"latest": r"\Ago\z"}, "tools": [bash(&gate.arrive("here"))]}),
    ]);
    let book = book(&world, &[lead]);
    let first = start(&world, &book);
    world.wait_file("here");
    first.kill().expect_killed();
    let second = resume(&world, &book);
    world.wait_file("there");
    second.kill().expect_killed();
    assert_eq!(resume(&world, &book).wait().expect(0).result(), "over");
    assert_eq!(book.of("lead").len(), 3);
    let done = resume(&world, &book).wait();
    assert!(done.expect(2).stdout.contains("there is nothing to do"), "{done:#?}");
    assert_eq!(book.of("lead").len(), 3, "what is over is over");
    world.assert_nothing_left();
}

#[test]
fn a_lead_whose_worker_still_runs_is_told_of_its_end_and_not_to_go_on() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        json!({"when": {"latest": r"\Ago\z"}, "tools": [ask("job", "Do the job.")]}),
        json!({"when": {"notifications": ">=1"}, "text": "heard"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])]);
    let book = book(&world, &[lead, worker]);
    let first = start(&world, &book);
    world.wait_file("here");
    first.kill().expect_killed();
    let second = resume(&world, &book);
    eventually("the worker has an owner again", || match world.workers() {
        rows if rows.len() == 1 && rows[0]["orphaned"] == false => Ok(()),
        rows => Err(rows),
    });
    gate.open(1);
    assert_eq!(second.wait().expect(0).result(), "heard");
    assert_eq!(book.of("lead").len(), 2);
    assert!(!book.last().all().contains(GO_ON));
    world.assert_nothing_left();
}

#[test]
fn a_turn_goes_on_although_members_rest_that_were_never_gone() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut lead = lead_rule(&[
        json!({"when": {"latest": GO_ON}, "text": "gone on"}),
        json!({"when": {"latest": r"\Ago\z"}, "tools": [create_team("t")]}),
        turn("", &[add("ann", "You are ann; work")]),
        turn("", &[bash(&gate.arrive("here"))]),
    ]);
    lead["otherwise"] = json!({"text": "heard"});
    let book = book(&world, &[lead, member_rule("ann", &[])]);
    let first = start(&world, &book);
    world.wait_file("here");
    wait_member(&world, "ann", "idle");
    first.kill().expect_killed();
    resume(&world, &book).wait().expect(0);
    assert!(book.of("lead").iter().any(|request| request.latest().contains(GO_ON)), "{:#?}", book.of("lead"));
    assert!(!world.config().join("teams/t").exists());
    world.assert_nothing_left();
}
