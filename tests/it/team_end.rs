//! How teams end: with the run, or refused.

use serde_json::{Value, json};

use crate::support::{
    SHUTDOWN, World, add, agent, bash, book, call, create_team, lead_rule, member_rule, no_team_left, of_member,
    once_told, say,
};

#[test]
fn r091_a_run_ends_though_a_member_does_not_answer_or_says_no() {
    let world = World::new();
    let no = json!({
        "type": "shutdown_response", "request_id": "{{capture.id}}", "approve": false, "reason": "not yet",
    });
    let is = |name: &str| json!({"role": "^teammate$", "name": name});
    let book = book(
        &world,
        &[
            lead_rule(&[
                json!({"tools": [create_team("t")]}),
                json!({"tools": [add("ann", "Begin."), add("bob", "Begin."), add("cat", "Begin.")]}),
            ]),
            // Answers the request with words, refuses it, agrees.
            agent(is("ann"), &[]),
            agent(is("bob"), &[json!({"when": {"latest": SHUTDOWN}, "tools": [say("team-lead", no)]})]),
            member_rule("cat", &[]),
        ],
    );
    let settings = json!({"lead": {"shutdownGrace": "300ms"}}).to_string();
    let done = world.headless(&book.model(), "go").args(&["--settings", &settings]).run();
    done.expect(0);
    let session = std::fs::read_to_string(world.session(&done.session()).path).unwrap();
    let stopped = session.matches("it did not end within lead.shutdownGrace").count();
    assert_eq!((stopped, session.matches("It ended as it was asked to").count()), (2, 1), "{session}");
    no_team_left(&world);
}

#[test]
fn r032_a_team_is_removed_when_all_are_gone_and_else_those_in_the_way_are_named() {
    let world = World::new();
    let gate = world.gate("gate");
    let no = json!({
        "type": "shutdown_response", "request_id": "{{capture.id}}", "approve": false, "reason": "the build runs",
    });
    let delete = |input: Value| call("TeamDelete", input);
    let at_gate = bash(&gate.arrive("here"));
    let wait = bash("until [ -e here ]; do read -t 0.05 _ < idle || :; done");
    let _idle = world.gate("idle");
    let book = book(
        &world,
        &[
            lead_rule(&[
                json!({"tools": [create_team("t")]}),
                json!({"tools": [add("ann", "Begin."), add("bob", "Begin.")]}),
                json!({"tools": [wait, delete(json!({}))]}),
                json!({"tools": [delete(json!({"wait_ms": 3000}))]}),
                json!({"tools": [bash("ls \"$CLAUDE_CONFIG_DIR\"/teams/t; touch open; printf '\\n' > gate")]}),
                json!({"tools": [delete(json!({"wait_ms": 60_000}))]}),
            ]),
            // Refuses once, agrees afterwards.
            member_rule("ann", &[json!({"when": {"latest": SHUTDOWN}, "tools": [say("team-lead", no)]})]),
            member_rule("bob", &[json!({"tools": [at_gate]}), once_told("nothing", &[])]),
        ],
    );
    world.headless(&book.model(), "go").run().expect(0);
    let results = book.last().results();
    let refused = |text: &str| {
        results
            .iter()
            .find(|(said, is_error)| *is_error && said.contains(text))
            .unwrap_or_else(|| panic!("{results:#?}"))
    };
    let named = &refused("members are active").0;
    assert!(named.contains("ann") && named.contains("bob"), "{named}");
    let left = &refused("nothing was removed. ").0;
    assert!(left.contains("refused: ann (the build runs)") && left.contains("did not answer in time: bob"), "{left}");
    assert!(results.iter().any(|(said, _)| said.contains("config.json")), "{results:#?}");
    assert!(!results.last().unwrap().1 && results.last().unwrap().0.contains("is removed"), "{results:#?}");
    no_team_left(&world);
}

#[test]
fn a_busy_member_that_is_asked_to_end_twice_may_answer_the_first_request() {
    let world = World::new();
    let gate = world.gate("gate");
    let wait = bash("until [ -e here ]; do read -t 0.05 _ < idle || :; done");
    let _idle = world.gate("idle");
    let asks = |reason: &str| say("bob", json!({"type": "shutdown_request", "reason": reason}));
    let book = book(
        &world,
        &[
            lead_rule(&[
                json!({"tools": [create_team("t")]}),
                json!({"tools": [add("bob", "Begin.")]}),
                json!({"tools": [wait]}),
                json!({"tools": [asks("one")]}),
                json!({"tools": [asks("two")]}),
                json!({"tools": [bash("printf '\\n' > gate")]}),
            ]),
            member_rule("bob", &[json!({"tools": [bash(&gate.arrive("here"))]})]),
        ],
    );
    world.headless(&book.model(), "go").run().expect(0);
    let answered = of_member(&book.requests(), "bob").pop().unwrap().results();
    assert!(answered.len() == 2 && answered.iter().all(|(_, is_error)| !is_error), "{answered:#?}");
    no_team_left(&world);
}
