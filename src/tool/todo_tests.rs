use std::sync::Arc;

use super::super::file_tests::Place;
use super::*;

fn item(content: &str, status: &str) -> Value {
    json!({"content": content, "status": status, "activeForm": format!("Doing {content}")})
}

#[test]
fn each_call_tells_what_is_different() {
    let place = Place::new();
    let write = |items: &[Value]| place.ok(&TodoWrite, json!({"todos": items}));
    assert_eq!(
        write(&[item("a", "in_progress"), item("b", "pending")]),
        "2 todos: 0 completed, 1 in progress, 1 pending.\n- added (in progress): a\n- added (pending): b"
    );
    let output = place.run(&TodoWrite, json!({"todos": [item("a", "completed"), item("c", "pending")]}));
    assert_eq!(
        output.text,
        "2 todos: 1 completed, 0 in progress, 1 pending.\n- in progress -> completed: a\n- added (pending): c\n- removed \
         (pending): b"
    );
    let structured = output.structured.unwrap();
    assert_eq!(structured["oldTodos"][1], item("b", "pending"));
    assert_eq!(structured["newTodos"], json!([item("a", "completed"), item("c", "pending")]));
    let same = write(&[item("a", "completed"), item("c", "pending")]);
    assert!(same.ends_with("\n- nothing is different from before"), "{same}");
    let two = write(&[item("a", "in_progress"), item("a", "in_progress")]);
    assert!(two.contains("[2 are in progress at a time"), "{two}");
    assert!(write(&[]).starts_with("0 todos"));
    // A list in a string is a list.
    let text = json!([item("x", "pending")]).to_string();
    assert!(place.ok(&TodoWrite, json!({"todos": text})).contains("added (pending): x"));
    assert_eq!(place.context.state().todos.len(), 1);
    let mut other = place.context.clone();
    other.tool_state = Arc::default();
    assert!(other.state().todos.is_empty(), "each agent has its own");
}

#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let place = Place::new();
    place.ok(&TodoWrite, json!({"todos": [item("a", "pending")]}));
    let many = vec![item("a", "pending"); ITEMS + 1];
    for (todos, expected) in [
        (json!(null), "`todos` is missing"),
        (json!({}), "`todos` is no list"),
        (json!("text"), "`todos` is no list"),
        (json!(["a"]), "todos[0] is \"a\", expected an object"),
        (json!([item("a", "pending"), {"content": "b", "status": "pending"}]), "todos[1].activeForm is missing"),
        (json!([item(" ", "pending")]), "todos[0].content is \" \", expected a string that is not empty"),
        (json!([item("a", "done")]), "todos[0].status is \"done\"; one of pending, in_progress, completed"),
        (json!([{"content": 3, "status": "pending", "activeForm": "x"}]), "todos[0].content is 3"),
        (json!(many), "the most are 1000"),
    ] {
        let error = place.error(&TodoWrite, json!({"todos": todos}));
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(place.context.state().todos.len(), 1);
    place.ok(&TodoWrite, json!({"todos": many[1..]}));
}

#[test]
fn lists_of_agents_say_what_is_in_progress() {
    let described = |input: Value| TodoWrite.describe(&input).description;
    assert_eq!(described(json!({"todos": [item("a", "pending"), item("b", "in_progress")]})), "Doing b");
    assert_eq!(described(json!({"todos": [item("a", "pending")]})), "Plan");
    assert_eq!(described(json!({"todos": 3})), "Plan");
}

#[test]
fn the_schema_has_the_known_fields() {
    let spec = TodoWrite.spec();
    let items = &spec.input_schema["properties"]["todos"]["items"];
    assert_eq!(items["required"], json!(["content", "status", "activeForm"]));
    assert_eq!(items["properties"]["status"]["enum"], json!(["pending", "in_progress", "completed"]));
    assert!(!TodoWrite.is_read_only());
}
