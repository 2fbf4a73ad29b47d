use serde_json::json;

use super::*;
use crate::core::entry::parse_line;
use crate::core::message::Block;
use crate::store::history::conversation;

fn line(value: serde_json::Value) -> Line {
    parse_line(value.to_string().as_bytes()).unwrap()
}

fn enqueued(id: &str) -> Line {
    line(json!({"type": "queue-operation", "operation": "enqueue", "msgId": id, "content": format!("text of {id}")}))
}

fn user(uuid: &str, more: serde_json::Value) -> Line {
    let mut value =
        json!({"parentUuid": null, "type": "user", "uuid": uuid, "message": {"role": "user", "content": "x"}});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line(value)
}

/// The lines of a compaction after `lines`, as a reader gets them back.
fn compacted(carried: &Carried) -> Vec<Line> {
    compacted_with(carried, &ToolState::default())
}

fn compacted_with(carried: &Carried, tools: &ToolState) -> Vec<Line> {
    let Line::Talk(mut summary) = user("s", json!({"sessionId": "session"})) else { panic!("no talk") };
    summary.message.message.content = vec![Block::text("the summary")];
    let what = Compacted { content: vec![], trigger: Trigger::Window, pre_tokens: 9, summary_tokens: 3 };
    let lines = carried.lines(&what, *summary, Some("last".into()), tools);
    lines.iter().map(|l| parse_line(&l.to_bytes().unwrap()).unwrap()).collect()
}

#[test]
fn a_reader_of_the_new_part_knows_all_that_counts() {
    let (a, b) = ("a-00000000000000aa", "a-00000000000000bb");
    let mut carried = Carried::default();
    for line in [
        line(json!({"type": "mode", "sessionId": "session", "mode": "coordinator"})),
        enqueued("m1"),
        enqueued("m2"),
        user("1", json!({"msgId": "m1"})),
        user("2", json!({"msgId": "direct"})),
        user("3", json!({"origin": {"kind": "task-notification", "taskId": a, "run": 2}})),
        user("4", json!({"toolUseResult": {"agentId": b, "run": 1, "status": "completed"}})),
        user("5", json!({"toolUseResult": {"agentId": "a-00000000000000cc", "run": 1, "isAsync": true}})),
    ] {
        carried.note(&line);
    }
    let history = conversation(&compacted(&carried));
    assert_eq!(history.messages.len(), 1);
    assert_eq!(history.messages[0].text(), "the summary");
    assert_eq!(history.mode.as_deref(), Some("coordinator"));
    assert_eq!(history.enqueued.iter().map(|e| e.content.as_str()).collect::<Vec<_>>(), ["text of m2"]);
    assert!(["m1", "m2", "direct"].iter().all(|id| history.seen_msg_ids.iter().any(|seen| seen == id)));
    assert!(history.is_consumed(a, 2) && history.is_consumed(b, 1) && !history.is_consumed("a-00000000000000cc", 1));
    // And the one after that still does.
    let again = conversation(&compacted(&Carried::of(&history)));
    assert_eq!((&again.enqueued, &again.mode), (&history.enqueued, &history.mode));
    assert_eq!(again.seen_msg_ids, history.seen_msg_ids);
    assert!(again.is_consumed(a, 2) && again.is_consumed(b, 1));
}

#[test]
fn other_readers_find_their_fields_and_the_summary_is_last() {
    let lines = Carried::default();
    let lines = compacted(&lines);
    let Some(Line::Boundary(boundary)) = lines.first() else { panic!("{lines:?}") };
    assert_eq!(boundary.logical_parent_uuid.as_deref(), Some("last"));
    let json: serde_json::Value = serde_json::from_slice(&lines[0].to_bytes().unwrap()).unwrap();
    assert_eq!(json["parentUuid"], serde_json::Value::Null);
    assert_eq!((&json["subtype"], &json["sessionId"]), (&json!("compact_boundary"), &json!("session")));
    assert_eq!(json["compactMetadata"], json!({"trigger": "auto", "preTokens": 9, "summaryTokens": 3}));
    assert_eq!(json["consumed"], json!({}));
    let Some(Line::Talk(summary)) = lines.last() else { panic!("{lines:?}") };
    assert_eq!(summary.parent_uuid.as_deref(), Some(boundary.uuid.as_str()));
    assert_eq!((summary.is_compact_summary, summary.is_visible_in_transcript_only), (Some(true), Some(true)));
}

fn ids(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

#[test]
fn r033_the_latest_ids_are_kept_also_by_who_has_resumed() {
    let mut carried = Carried::default();
    (0..=SEEN).for_each(|i| carried.note(&user("u", json!({"msgId": i.to_string()}))));
    let history = conversation(&compacted(&carried));
    assert_eq!(history.seen_msg_ids, ids(1..=SEEN));
    // Also by who has resumed, and knows of more by then.
    let mut lines = compacted(&carried);
    lines.extend((SEEN + 1..2 * SEEN).map(|i| user("u", json!({"msgId": i.to_string()}))));
    let resumed = conversation(&lines);
    assert_eq!(resumed.seen_msg_ids, ids(1..2 * SEEN));
    let again = conversation(&compacted(&Carried::of(&resumed)));
    assert_eq!(again.seen_msg_ids, ids(SEEN..2 * SEEN));
}

#[test]
fn files_seen_and_todos_outlive_a_compaction() {
    let file = |path: &str, size: u64| json!({"path": path, "size": size, "mtimeNs": 7, "sha256": "ab"});
    let todos = json!([{"content": "x", "status": "pending", "activeForm": "Doing x"}]);
    let before = conversation(&[
        user("1", json!({"toolUseResult": {"fileState": file("/b", 1)}})),
        user("2", json!({"toolUseResult": {"fileState": file("/a", 1)}})),
        user("3", json!({"toolUseResult": {"oldTodos": [], "newTodos": todos}})),
    ]);
    let mut lines = compacted_with(&Carried::of(&before), &before.tool_state);
    let after = conversation(&lines).tool_state;
    assert_eq!((after.files(), &after.todos), (before.tool_state.files(), &before.tool_state.todos));
    assert_eq!((after.files().len(), after.todos.len()), (2, 1));
    // What comes later counts more.
    lines.push(user("4", json!({"toolUseResult": {"fileState": file("/b", 2), "newTodos": []}})));
    let later = conversation(&lines).tool_state;
    assert_eq!(later.file("/b").map(|f| f.size), Some(2));
    assert!(later.todos.is_empty());
}

#[test]
fn shells_whose_end_was_not_told_and_their_folder_stay_known() {
    let started = |id: &str| json!({"toolUseResult": {"backgroundTaskId": id, "description": "d", "command": "c", "outputFile": "/o"}});
    let mut carried = Carried::default();
    for line in [
        user("1", started("b-00000001")),
        user("2", started("b-00000002")),
        user("3", json!({"toolUseResult": {"stdout": "", "shellCwd": "/w/one"}})),
        user("4", json!({"origin": {"kind": "task-notification", "taskId": "b-00000001"}})),
        user("5", json!({"toolUseResult": {"stdout": "", "shellCwd": "/w/two"}})),
        user("6", json!({"toolUseResult": {"stdout": ""}})),
    ] {
        carried.note(&line);
    }
    let lines = compacted(&carried);
    let history = conversation(&lines);
    let open = |history: &History| history.open_shells.as_slice().iter().map(|s| s.id.to_string()).collect::<Vec<_>>();
    assert_eq!((open(&history), history.shell_cwd.as_deref()), (vec!["b-00000002".to_owned()], Some("/w/two")));
    let again = compacted(&Carried::of(&history));
    assert_eq!(open(&conversation(&again)), open(&history));
    // What is told after the boundary is told.
    let told = user("7", json!({"origin": {"kind": "task-notification", "taskId": "b-00000002"}}));
    let later = conversation(&[lines, vec![told]].concat());
    assert!(open(&later).is_empty() && later.shell_cwd.as_deref() == Some("/w/two"));
}
