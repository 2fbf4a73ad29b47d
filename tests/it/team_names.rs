//! Names that models give to teams, members and those they write to.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{
    World, add, bash, book, call, create_team, lead_rule, member_rule, no_team_left, of_member, once_told, say, tell,
};

/// The names of what is in a folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All that is below a folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let paths = names_in(folder).into_iter().map(|name| folder.join(name));
    paths.flat_map(|path| tree(&path).into_iter().chain([path])).collect()
}

#[test]
fn r107_names_that_models_give_are_refused_with_a_suggestion_and_nothing_is_made() {
    let long = "x".repeat(300);
    let bad = [
        "../../x",
        "..",
        "a/b",
        "/etc/x",
        "a\\b",
        "研究員",
        "Caf\u{e9}",
        "Cafe\u{301}",
        "a b",
        "-x",
        "--as",
        "a\nb",
        "a\u{0}b",
        &long,
    ];
    let reserved = ["team-lead", "Team-Lead", "user", "main"];
    let world = World::new();
    let gate = world.gate("gate");
    let named = || bad.iter().chain(&reserved);
    let to_each = || bad.iter().map(|name| tell(name, "hello"));
    let ask_each = bad.iter().map(|name| say(name, json!({"type": "shutdown_request"})));
    let owners = bad.iter().map(|name| call("TaskUpdate", json!({"taskId": "1", "owner": name})));
    let agents = || named().map(|name| add(name, "You are nobody"));
    let card = call("TaskCreate", json!({"subject": "look", "description": "look at it"}));
    let turn = |calls: Vec<Value>| json!({"tools": calls});
    let book = book(
        &world,
        &[
            lead_rule(&[
                turn(named().map(|name| create_team(name)).chain(agents()).collect()),
                turn(vec![create_team("t"), card]),
                turn(agents().chain(to_each()).chain(ask_each).chain(owners).collect()),
                turn(vec![add("ann", "You are ann; wait")]),
                turn(vec![tell("ann", "begin")]),
                json!({"text": "they work"}),
            ]),
            member_rule(
                "ann",
                &[
                    once_told("begin", &to_each().collect::<Vec<_>>()),
                    json!({"when": {"results": ">=1"}, "tools": [bash(&gate.arrive("here"))]}),
                ],
            ),
        ],
    );
    let before = tree(world.root());
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    let (teams, tasks) = (world.config().join("teams"), world.config().join("tasks"));
    assert_eq!((names_in(&teams), names_in(&tasks)), (vec!["t".to_owned()], vec!["t".to_owned()]));
    assert_eq!(names_in(&teams.join("t/inboxes")), ["ann.json"]);
    let roster: Value = serde_json::from_slice(&fs::read(teams.join("t/config.json")).unwrap()).unwrap();
    let members = roster["members"].as_array().unwrap().iter().map(|member| &member["name"]);
    assert_eq!(members.collect::<Vec<_>>(), ["team-lead", "ann"]);
    let homes =
        ["config/teams/t", "config/tasks/t", "config/projects", "config/lead", "out", "r", "books", "tree/here"];
    let homes = homes.map(|home| world.root().join(home));
    let is_known = |path: &PathBuf| {
        before.contains(path) || homes.iter().any(|home| path.starts_with(home) || home.starts_with(path))
    };
    let strange: Vec<PathBuf> = tree(world.root()).into_iter().filter(|path| !is_known(path)).collect();
    assert!(strange.is_empty(), "{strange:#?}");
    gate.open(1);
    run.wait().expect(0);

    let refused = |results: &[(String, bool)], says: &str| {
        for (text, is_error) in results {
            assert!(*is_error && text.contains(says), "{says:?} in {text:?}");
        }
    };
    let results = book.of("lead").pop().unwrap().results();
    let (first, rest) = results.split_at(2 * named().count());
    refused(first, "; try \"");
    let (made, rest) = rest.split_at(2);
    assert!(made.iter().all(|(_, is_error)| !is_error), "{made:?}");
    let (added, rest) = rest.split_at(named().count());
    refused(added, "; try \"");
    refused(&rest[..3 * bad.len()], "team-lead");
    assert_eq!(rest.len(), 3 * bad.len() + 2);
    let ann = of_member(&book.requests(), "ann").into_iter().find(|r| r.results().len() > bad.len()).unwrap().results();
    refused(&ann[..bad.len()], "the members are team-lead, ann");
    no_team_left(&world);
}
