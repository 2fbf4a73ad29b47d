//! Members that can't be started, and where members run.

use std::fs;

use serde_json::{Value, json};

use crate::support::{World, add, bash, book, create_team, lead_rule, member_rule, no_team_left};

/// A lead that adds ann and looks at what is there of her.
fn adds(world: &World) -> crate::support::Book {
    let look = bash(
        "cat \"$CLAUDE_CONFIG_DIR\"/teams/t/config.json; cp \"$CLAUDE_CONFIG_DIR\"/teams/t/config.json .; \
                     ls -A \"$CLAUDE_CONFIG_DIR\"/lead/agents \"$CLAUDE_CONFIG_DIR\"/teams/t/inboxes > left",
    );
    book(
        world,
        &[
            lead_rule(&[
                json!({"tools": [create_team("t")]}),
                json!({"tools": [add("ann", "Begin.")]}),
                json!({"tools": [look]}),
            ]),
            member_rule("ann", &[]),
        ],
    )
}

/// The names in the roster when the lead looked, and the backends.
fn members(world: &World) -> Vec<(Value, Value)> {
    let roster: Value = serde_json::from_slice(&fs::read(world.cwd().join("config.json")).unwrap()).unwrap();
    let members = roster["members"].as_array().unwrap().iter();
    members.map(|m| (m["name"].clone(), m["backendType"].clone())).collect()
}

#[test]
fn r019_panes_that_were_asked_for_and_can_not_be_had_are_an_error_and_else_it_is_headless() {
    let world = World::new();
    let book = adds(&world);
    let done = world.headless(&book.model(), "go").args(&["--teammate-mode", "tmux"]).run();
    done.expect(0);
    let (said, is_error) = book.last().results()[1].clone();
    assert!(is_error && said.contains("tmux"), "{said}");
    assert_eq!(members(&world).len(), 1);
    no_team_left(&world);

    let world = World::new();
    let book = adds(&world);
    world.headless(&book.model(), "go").run().expect(0);
    assert_eq!(members(&world)[1], (json!("ann"), json!("in-process")));
    no_team_left(&world);
}

#[test]
fn r021_a_member_that_does_not_come_to_life_leaves_nothing() {
    let world = World::new();
    let book = adds(&world);
    // It would need longer than this to say hello.
    let done = world.headless(&book.model(), "go").env("LEAD_LIMITS", "ready=1ms").run();
    done.expect(0);
    let (said, is_error) = book.last().results()[1].clone();
    assert!(is_error && said.contains("the member was not started"), "{said}");
    assert_eq!(members(&world).len(), 1);
    let left = fs::read_to_string(world.cwd().join("left")).unwrap();
    assert!(!left.contains("ann"), "{left}");
    no_team_left(&world);
}
