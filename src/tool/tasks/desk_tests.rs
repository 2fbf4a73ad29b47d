use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::testing::Place;
use super::*;
use crate::core::hook::{Hook, HookSet};
use crate::core::team::protocol::Content;
use crate::hook::HookPlace;
use crate::tool::ToolOutput;
use crate::tool::tasks::carry_out;

fn hooks(dir: &Path, hooks: &[(HookEvent, &str)]) -> Hooks {
    let hook = |(event, command): &(HookEvent, &str)| Hook {
        event: *event,
        matcher: None,
        command: (*command).to_owned(),
        timeout_ms: None,
    };
    let set = HookSet { hooks: hooks.iter().map(hook).collect(), project: None };
    Hooks::new(set, HookPlace { cwd: dir.to_owned(), ..HookPlace::default() }, Vec::new())
}

fn desk(place: &Place, me: &str) -> TaskDesk {
    TaskDesk {
        board: place.team.board(),
        team: Some(place.team.clone()),
        me: me.to_owned(),
        colour: None,
        is_lead: me == "team-lead",
        hooks: Hooks::default(),
        nudge: true,
        is_alive: Place::alive_but(&["ghost"]),
    }
}

async fn call(desk: &TaskDesk, tool: &str, input: Value) -> ToolOutput {
    carry_out(desk, tool, &input, &CancellationToken::new()).await
}

async fn ok(desk: &TaskDesk, tool: &str, input: Value) -> String {
    let output = call(desk, tool, input).await;
    assert!(!output.is_error, "{tool}: {output:?}");
    output.text
}

async fn refused(desk: &TaskDesk, tool: &str, input: Value) -> String {
    let output = call(desk, tool, input).await;
    assert!(output.is_error, "{tool}: {output:?}");
    output.text
}

async fn make(desk: &TaskDesk, subject: &str) -> String {
    ok(desk, "TaskCreate", json!({"subject": subject, "description": "d"})).await
}

fn mail(place: &Place, member: &str) -> Vec<(String, Content)> {
    let seen = place.team.mailbox(member).unwrap().look().unwrap();
    seen.mail.into_iter().map(|mail| (mail.from, Content::of(&mail.text))).collect()
}

#[tokio::test]
async fn cards_go_from_their_making_to_their_end() {
    let place = Place::with(&["bob"]);
    let lead = desk(&place, "team-lead");
    let made = call(&lead, "TaskCreate", json!({"subject": "First", "description": "d", "activeForm": "f"})).await;
    assert_eq!(made.text, "Task #1 created successfully: First");
    assert_eq!(made.structured, Some(json!({"task": {"id": "1", "subject": "First"}})));
    make(&lead, "Second").await;
    let update = |input: Value| ok(&lead, "TaskUpdate", input);
    assert_eq!(update(json!({"taskId": "2", "addBlockedBy": ["1"]})).await, "Updated task #2 blockedBy");
    assert_eq!(ok(&lead, "TaskList", json!({})).await, "#1 [pending] First\n#2 [pending] Second [blocked by #1]");
    assert_eq!(update(json!({"taskId": "1", "status": "completed"})).await, "Updated task #1 status");
    assert_eq!(ok(&lead, "TaskList", json!({})).await, "#1 [completed] First\n#2 [pending] Second");
    assert!(ok(&lead, "TaskGet", json!({"taskId": "#2"})).await.starts_with("Task #2: Second\n"));
    assert_eq!(update(json!({"taskId": "1", "status": "deleted"})).await, "Updated task #1 deleted");
    assert_eq!(refused(&lead, "TaskGet", json!({"taskId": 1})).await, "there is no task #1; there are #2");
    let circle = refused(&lead, "TaskUpdate", json!({"taskId": "2", "addBlocks": ["2"]})).await;
    assert_eq!(circle, "task #2 can't block itself");
    assert!(refused(&lead, "TaskStop", json!({})).await.contains("no tool of the task board"));
}

#[tokio::test]
async fn a_new_owner_is_told_unless_that_is_oneself_and_has_to_be_a_member() {
    let place = Place::with(&["bob", "eve"]);
    let (lead, bob) = (desk(&place, "team-lead"), desk(&place, "bob"));
    make(&lead, "First").await;
    let input = json!({"taskId": "1", "owner": "bob"});
    assert_eq!(ok(&lead, "TaskUpdate", input.clone()).await, "Updated task #1 owner");
    ok(&lead, "TaskUpdate", input).await;
    let told = mail(&place, "bob");
    let [(from, Content::Protocol(protocol))] = told.as_slice() else { panic!("{told:?}") };
    let Protocol::TaskAssignment(told) = &**protocol else { panic!("{protocol:?}") };
    assert_eq!(
        (from.as_str(), told.task_id.as_str(), told.subject.as_str(), told.assigned_by.as_str()),
        ("team-lead", "1", "First", "team-lead")
    );
    ok(&bob, "TaskUpdate", json!({"taskId": "1", "owner": "eve"})).await;
    ok(&bob, "TaskUpdate", json!({"taskId": "1", "owner": "bob"})).await;
    assert_eq!((mail(&place, "eve").len(), mail(&place, "bob").len()), (1, 1), "bob knows what he took");
    let nobody = refused(&lead, "TaskUpdate", json!({"taskId": "1", "owner": "Bob"})).await;
    assert_eq!(nobody, "\"Bob\" is not a member of the team; the members are bob, eve");
}

#[tokio::test]
async fn a_member_owns_what_it_begins_and_is_sent_to_the_next_card_when_it_is_done() {
    let place = Place::with(&["bob", "eve", "ghost"]);
    let (lead, bob, eve) = (desk(&place, "team-lead"), desk(&place, "bob"), desk(&place, "eve"));
    make(&lead, "First").await;
    let begin = |number: u64| json!({"taskId": number, "status": "in_progress"});
    assert_eq!(ok(&bob, "TaskUpdate", begin(1)).await, "Updated task #1 status, owner");
    assert_eq!(refused(&eve, "TaskUpdate", begin(1)).await, "task #1 belongs to \"bob\"");
    assert_eq!(ok(&eve, "TaskList", json!({})).await, "#1 [in_progress] First (bob)");
    let done = ok(&bob, "TaskUpdate", json!({"taskId": "1", "status": "completed"})).await;
    assert!(done.starts_with("Updated task #1 status\n\nLook at TaskList now"), "{done}");
    // The lead touches without owning.
    make(&lead, "Second").await;
    assert_eq!(ok(&lead, "TaskUpdate", begin(2)).await, "Updated task #2 status");
    // What a dead member had is anybody's.
    make(&lead, "Third").await;
    ok(&desk(&place, "ghost"), "TaskUpdate", begin(3)).await;
    assert_eq!(ok(&eve, "TaskUpdate", begin(3)).await, "Updated task #3 status, owner");
}

#[tokio::test]
async fn r045_cards_of_the_dead_are_free_for_whoever_looks() {
    let place = Place::with(&["bob", "ghost"]);
    make(&desk(&place, "team-lead"), "First").await;
    ok(&desk(&place, "ghost"), "TaskUpdate", json!({"taskId": "1", "status": "in_progress"})).await;
    let list = ok(&desk(&place, "bob"), "TaskList", json!({})).await;
    assert_eq!(list, "#1 [pending] First [note: ghost is gone]");
}

#[tokio::test]
async fn a_hook_that_refuses_a_new_card_leaves_none() {
    let place = Place::with(&["bob"]);
    let script = "cat > told.json; echo 'say how it is checked' >&2; exit 2";
    let strict =
        TaskDesk { hooks: hooks(place.dir.path(), &[(HookEvent::TaskCreated, script)]), ..desk(&place, "bob") };
    let no = refused(&strict, "TaskCreate", json!({"subject": "First", "description": "vague"})).await;
    assert_eq!(no, "a TaskCreated hook refused it: say how it is checked");
    let told: Value = serde_json::from_str(&fs::read_to_string(place.dir.path().join("told.json")).unwrap()).unwrap();
    let picked = ["task_id", "task_subject", "task_description", "teammate_name", "team_name"].map(|key| &told[key]);
    assert_eq!(picked, ["1", "First", "vague", "bob", "t"]);
    let bob = desk(&place, "bob");
    assert_eq!(ok(&bob, "TaskList", json!({})).await, "There are no tasks.");
    assert_eq!(make(&bob, "Second").await, "Task #2 created successfully: Second", "the number is spent");
    // While a hook thinks, others make cards; nothing is lost, and the numbers are those that were told.
    let gate = place.dir.path().join("gate");
    let slow = TaskDesk {
        hooks: hooks(place.dir.path(), &[(HookEvent::TaskCreated, "echo > began; until [ -e gate ]; do :; done")]),
        ..desk(&place, "team-lead")
    };
    let waits = tokio::spawn(async move { make(&slow, "Third").await });
    let began = place.dir.path().join("began");
    while !began.exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(make(&bob, "Fourth").await, "Task #4 created successfully: Fourth");
    fs::write(gate, "").unwrap();
    assert_eq!(waits.await.unwrap(), "Task #3 created successfully: Third");
    assert_eq!(make(&bob, "Fifth").await, "Task #5 created successfully: Fifth");
}

#[tokio::test]
async fn a_hook_that_refuses_an_end_leaves_the_card_as_it_is() {
    let place = Place::with(&["bob"]);
    let dir = place.dir.path();
    let strict = TaskDesk {
        hooks: hooks(
            dir,
            &[(HookEvent::TaskCompleted, "echo x >> asked; [ -e tested ] || { echo 'run the tests' >&2; exit 2; }")],
        ),
        ..desk(&place, "bob")
    };
    make(&strict, "First").await;
    ok(&strict, "TaskUpdate", json!({"taskId": "1", "status": "in_progress"})).await;
    let finish = json!({"taskId": "1", "status": "completed", "subject": "Renamed"});
    assert_eq!(refused(&strict, "TaskUpdate", finish.clone()).await, "a TaskCompleted hook refused it: run the tests");
    assert_eq!(ok(&strict, "TaskList", json!({})).await, "#1 [in_progress] First (bob)");
    fs::write(dir.join("tested"), "").unwrap();
    ok(&strict, "TaskUpdate", finish.clone()).await;
    ok(&strict, "TaskUpdate", finish).await;
    assert_eq!(fs::read_to_string(dir.join("asked")).unwrap(), "x\nx\n", "what is completed is not asked about again");
    assert!(refused(&strict, "TaskUpdate", json!({"taskId": "9", "status": "completed"})).await.contains("no task #9"));
}

#[tokio::test]
async fn whoever_is_cancelled_while_a_hook_runs_has_done_nothing() {
    let place = Place::with(&["bob"]);
    let desk = TaskDesk {
        hooks: hooks(place.dir.path(), &[(HookEvent::TaskCreated, "exec sleep 1000")]),
        ..desk(&place, "bob")
    };
    let cancel = CancellationToken::new();
    cancel.cancel();
    let output = carry_out(&desk, "TaskCreate", &json!({"subject": "s", "description": "d"}), &cancel).await;
    assert!(output.is_error && output.text.contains("cancelled"), "{output:?}");
    assert_eq!(ok(&desk, "TaskList", json!({})).await, "There are no tasks.");
}

#[tokio::test]
async fn a_lead_is_reminded_to_verify_unless_it_does_not_want_to_be() {
    let place = Place::with(&["bob"]);
    let lead = desk(&place, "team-lead");
    let quiet = TaskDesk { nudge: false, ..lead.clone() };
    for number in 1..=4 {
        make(&lead, "Do it").await;
        let done = json!({"taskId": number, "status": "completed"});
        let said = ok(if number == 4 { &quiet } else { &lead }, "TaskUpdate", done).await;
        assert_eq!(said.contains("none is about verification"), number == 3, "{number}: {said}");
    }
}
