//! Agents that a member of a team starts itself: plain ones, whose answer is the result of its call.

use serde_json::json;

use crate::support::{World, agent, ask, bash, book, call, lead_rule, turn, worker_rule};

const YES: &str = r#"shutdown-request request_id="(?P<id>[^"]+)""#;

fn ends() -> serde_json::Value {
    let yes = json!({"type": "shutdown_response", "request_id": "{{capture.id}}", "approve": true});
    json!({"when": {"latest": YES}, "tools": [call("SendMessage", json!({"to": "team-lead", "message": yes}))]})
}

#[test]
fn a_member_starts_an_agent_of_its_own_and_is_refused_everything_but_a_plain_one() {
    let world = World::heavy();
    let lead = lead_rule(&[
        turn("", &[call("TeamCreate", json!({"team_name": "t"}))]),
        turn("", &[call("Agent", json!({"description": "a member", "prompt": "Be ann.", "name": "ann"}))]),
        turn("started", &[]),
    ]);
    let refused = [
        json!({"name": "x"}),
        json!({"run_in_background": true}),
        json!({"subagent_type": "fork"}),
        json!({"team_name": "t"}),
        json!({"subagent_type": "nobody"}),
    ];
    let wrong: Vec<_> = refused
        .iter()
        .map(|more| {
            let mut input = json!({"description": "a job", "prompt": "Do it."});
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            call("Agent", input)
        })
        .collect();
    let member = agent(
        json!({"role": "teammate"}),
        &[turn("", &wrong), turn("", &[ask("a look", "Look at it.")]), ends(), turn("resting", &[])],
    );
    let worker =
        worker_rule("Look at it", &[turn("", &[bash("echo found-$LEAD_AGENT_ID")]), turn("It is {{result.1}}", &[])]);
    let book = book(&world, &[lead, member, worker]);
    world.headless(&book.model(), "go").run().expect(0);

    let asked = book.of("teammate");
    let results = asked.last().unwrap().results();
    let texts: Vec<&str> = results.iter().map(|(text, _)| text.as_str()).collect();
    for (at, words) in ["names", "background", "fork", "members to the team", "nobody"].iter().enumerate() {
        assert!(results[at].1 && texts[at].contains(words), "{words}: {texts:#?}");
    }
    assert!(!results[5].1 && texts[5].contains("It is found-a-") && texts[5].contains("<usage>"), "{texts:#?}");
    assert!(!texts[5].contains("continues this agent"), "{texts:#?}");
    let worker = book.of("worker").pop().unwrap();
    assert!(!worker.tools().contains(&"Agent"), "{:?}", worker.tools());
    world.assert_nothing_left();
}

#[test]
fn an_agent_of_a_member_ends_with_it() {
    let world = World::heavy();
    let lead = lead_rule(&[
        turn("", &[call("TeamCreate", json!({"team_name": "t"}))]),
        turn("", &[call("Agent", json!({"description": "a member", "prompt": "Be ann.", "name": "ann"}))]),
        turn("", &[bash("until [ -e busy ]; do sleep 0.02; done")]),
        turn("", &[call("TaskStop", json!({"task_id": "ann"}))]),
        turn("over", &[]),
    ]);
    let member = agent(json!({"role": "teammate"}), &[turn("", &[ask("a look", "Look at it.")])]);
    let worker = worker_rule("Look at it", &[turn("", &[bash("touch busy; sleep 600")])]);
    let book = book(&world, &[lead, member, worker]);
    world.headless(&book.model(), "go").run().expect(0);
    world.wait_quiet();
    world.assert_nothing_left();
}
