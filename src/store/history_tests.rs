use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::entry::{Boundary, Mode, ORIGIN_SPAWN, Origin, parse_line};
use crate::core::message::{Block, Known, Role};
use crate::store::conversation::{SYNTHETIC, result_id, says_something, use_id};

/// A line as JSON: `{parent, uuid, …}` filled up.
fn line(value: Value) -> Line {
    parse_line(value.to_string().as_bytes()).unwrap()
}

fn user(parent: Option<&str>, uuid: &str, content: Value) -> Line {
    line(json!({"parentUuid": parent, "type": "user", "uuid": uuid, "message": {"role": "user", "content": content}}))
}

fn reply(parent: Option<&str>, uuid: &str, id: &str, block: Value) -> Line {
    line(json!({
        "parentUuid": parent, "type": "assistant", "uuid": uuid,
        "message": {"id": id, "role": "assistant", "model": "m", "content": [block]},
    }))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thinking() -> Value {
    json!({"type": "thinking", "thinking": "hm", "signature": "s"})
}

fn tool(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Read", "input": {}})
}

fn result(id: &str) -> Value {
    json!([{"type": "tool_result", "tool_use_id": id, "content": format!("of {id}")}])
}

/// The messages in short: `u:hi a:+t1 u:=t1`.
fn shape(lines: &[Line]) -> String {
    shape_of(&conversation(lines).messages)
}

fn shape_of(messages: &[Message]) -> String {
    let block = |b: &Block| match b {
        Block::Known(Known::Text { text }) => text.clone(),
        Block::Known(Known::ToolUse { id, .. }) => format!("+{id}"),
        Block::Known(Known::ToolResult { tool_use_id, .. }) => format!("={tool_use_id}"),
        Block::Other(_) => "~".to_owned(),
    };
    let message = |m: &Message| {
        let role = if m.role == Role::User { 'u' } else { 'a' };
        format!("{role}:{}", m.content.iter().map(block).collect::<Vec<_>>().join(","))
    };
    messages.iter().map(message).collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_of_a_reply_and_user_lines_in_a_row_are_one_message_each() {
    let lines = [
        user(None, "1", json!("one")),
        user(Some("1"), "2", json!("two")),
        reply(Some("2"), "3", "m1", thinking()),
        reply(Some("3"), "4", "m1", text("a")),
        reply(Some("4"), "5", "m1", tool("t1")),
        user(Some("5"), "6", json!([text("seen"), result("t1")[0]])),
        reply(Some("6"), "7", "m2", text("b")),
    ];
    assert_eq!(shape(&lines), "u:one,two a:~,a,+t1 u:=t1,seen a:b");
    assert_eq!(conversation(&lines).last_uuid.as_deref(), Some("7"));
}

#[test]
fn r085_results_of_parallel_calls_written_as_branches_are_all_found() {
    // Each result's parent is its own use, so the last line's ancestors hold one result only.
    let mut lines = vec![user(None, "u", json!("go"))];
    let mut parent = "u".to_owned();
    for i in 0..50 {
        lines.push(reply(Some(&parent), &format!("a{i}"), "m1", tool(&format!("t{i}"))));
        parent = format!("a{i}");
    }
    for i in (0..50).rev() {
        lines.push(user(Some(&format!("a{i}")), &format!("r{i}"), result(&format!("t{i}"))));
    }
    lines.push(reply(Some("r0"), "end", "m2", text("done")));
    let messages = conversation(&lines).messages;
    assert_eq!(messages.len(), 4);
    assert_eq!((messages[1].content.len(), messages[2].content.len()), (50, 50));
    let answered: Vec<_> = messages[2].content.iter().filter_map(result_id).collect();
    let asked: Vec<_> = messages[1].content.iter().filter_map(use_id).collect();
    assert_eq!(asked, answered, "in the order of the calls");
}

#[test]
fn r085_blocks_of_a_reply_between_results_belong_to_it() {
    let lines = [
        user(None, "u", json!("go")),
        reply(Some("u"), "a1", "m1", tool("t1")),
        user(Some("a1"), "r1", result("t1")),
        reply(Some("a1"), "a2", "m1", tool("t2")),
        user(Some("a2"), "r2", result("t2")),
        reply(Some("r2"), "b", "m2", text("done")),
    ];
    assert_eq!(shape(&lines), "u:go a:+t1,+t2 u:=t1,=t2 a:done");
}

#[test]
fn uses_and_results_without_counterpart_are_dropped() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", text("trying")),
        reply(Some("2"), "3", "m1", tool("lost")),
        user(Some("3"), "4", result("unknown")),
        user(Some("4"), "5", json!("again")),
        reply(Some("5"), "6", "m2", thinking()),
        reply(Some("6"), "7", "m2", tool("lost2")),
    ];
    assert_eq!(shape(&lines), "u:go a:trying u:again");
}

#[test]
fn searches_of_the_provider_are_kept_with_their_results_alone() {
    let search = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
    let found = |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
    let mut lines = vec![
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", search("s1")),
        // What went on after a pause.
        reply(Some("2"), "3", "m2", found("s1")),
        reply(Some("3"), "4", "m2", search("s2")),
        reply(Some("4"), "5", "m2", tool("t1")),
        user(Some("5"), "6", result("t1")),
        reply(Some("6"), "7", "m3", found("s2")),
        reply(Some("7"), "8", "m3", text("so")),
    ];
    assert_eq!(shape(&lines), "u:go a:~,~,~,+t1 u:=t1 a:~,so");
    lines.truncate(6);
    assert_eq!(shape(&lines), "u:go a:~,~,+t1 u:=t1", "the second one was not finished");
    lines.truncate(2);
    assert!(shape(&lines).starts_with("u:go a:("), "{}", shape(&lines));
}

#[test]
fn instructions_that_were_shown_are_known_until_a_boundary() {
    let read = |path: &str| {
        let block = json!({"role": "user", "content": result("t1")});
        line(
            json!({"type": "user", "uuid": path, "message": block, "toolUseResult": {"type": "text", "instructions": [path, 1]}}),
        )
    };
    let shown =
        conversation(&[read("/p/a/CLAUDE.md"), read("/p/b/CLAUDE.md"), read("/p/a/CLAUDE.md")]).shown_instructions;
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), ["/p/a/CLAUDE.md", "/p/b/CLAUDE.md"].map(PathBuf::from));
}

#[test]
fn an_id_used_again_is_paired_by_place() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", tool("call_0")),
        user(Some("2"), "3", json!("stop")),
        reply(Some("3"), "4", "m2", tool("call_0")),
        user(Some("4"), "5", result("call_0")),
        reply(Some("5"), "6", "m3", tool("call_0")),
        user(Some("6"), "7", result("call_0")),
        user(Some("7"), "8", result("call_0")),
    ];
    assert_eq!(shape(&lines), "u:go,stop a:+call_0 u:=call_0 a:+call_0 u:=call_0");
}

#[test]
fn what_says_nothing_is_dropped_and_its_neighbours_join() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", thinking()),
        user(Some("2"), "3", json!("more")),
        reply(Some("3"), "4", "m2", text(" \n")),
        user(Some("4"), "5", json!("  ")),
        user(Some("5"), "6", json!("last")),
        reply(Some("6"), "7", "m3", text("x")),
        reply(Some("7"), "8", "m3", thinking()),
    ];
    assert_eq!(shape(&lines), "u:go,more,last a:x");
}

#[test]
fn replies_of_two_turns_in_a_row_join() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", text("part one")),
        reply(Some("2"), "3", "m2", text("part two")),
    ];
    assert_eq!(shape(&lines), "u:go a:part one,part two");
}

#[test]
fn a_conversation_begins_with_the_user() {
    let lines = [
        reply(Some("gone"), "1", "m1", tool("t1")),
        user(Some("1"), "2", result("t1")),
        reply(Some("2"), "3", "m2", text("x")),
        user(Some("3"), "4", json!("go")),
        reply(Some("4"), "5", "m3", text("y")),
    ];
    assert_eq!(shape(&lines), "u:go a:y");
    assert_eq!(shape(&[]), "");
}

#[test]
fn the_branch_of_the_last_line_is_followed() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", text("first answer")),
        user(Some("2"), "3", json!("abandoned")),
        reply(Some("3"), "4", "m2", text("abandoned too")),
        user(Some("2"), "5", json!("instead")),
    ];
    assert_eq!(shape(&lines), "u:go a:first answer u:instead");
    assert_eq!(conversation(&lines).last_uuid.as_deref(), Some("5"));
}

#[test]
fn a_missing_parent_and_a_circle_do_not_end_the_conversation() {
    let lines = [
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "m1", text("x")),
        user(Some("an attachment"), "3", json!("more")),
        reply(Some("5"), "4", "m2", text("y")),
        user(Some("4"), "5", json!("end")),
    ];
    assert_eq!(shape(&lines), "u:go a:x u:more a:y u:end");
}

#[test]
fn a_boundary_ends_the_way_back() {
    let lines = [
        user(None, "1", json!("old")),
        Line::Boundary(Box::new(Boundary { uuid: "b".into(), ..Boundary::default() })),
        user(Some("b"), "2", json!("summary")),
        reply(Some("2"), "3", "m1", text("x")),
    ];
    assert_eq!(shape(&lines), "u:summary a:x");
}

#[test]
fn lines_of_agents_in_a_sessions_own_file_are_left_out() {
    let mut side = user(None, "s", json!("for the agent"));
    if let Line::Talk(talk) = &mut side {
        talk.is_sidechain = true;
    }
    let lines = [user(None, "1", json!("go")), side.clone()];
    assert_eq!(shape(&lines), "u:go");
    assert_eq!(shape(&[side]), "u:for the agent");
}

#[test]
fn errors_written_in_the_models_place_are_not_its_words() {
    let mut lines = vec![
        user(None, "1", json!("go")),
        reply(Some("1"), "2", "e", text("API error")),
        user(Some("2"), "3", json!("again")),
    ];
    if let Line::Talk(talk) = &mut lines[1] {
        talk.message.model = Some(SYNTHETIC.into());
    }
    assert_eq!(shape(&lines), "u:go,again");
}

fn with(line: Line, change: impl FnOnce(&mut Talk)) -> Line {
    match line {
        Line::Talk(mut talk) => {
            change(&mut talk);
            Line::Talk(talk)
        }
        other => other,
    }
}

#[test]
fn taken_in_messages_wait_until_a_user_line_shows_them() {
    let enqueue = |id: &str| {
        line(
            json!({"type": "queue-operation", "operation": "enqueue", "msgId": id, "content": format!("text of {id}")}),
        )
    };
    let lines = [
        enqueue("m1"),
        enqueue("m2"),
        enqueue("m3"),
        enqueue("m2"),
        with(user(None, "1", json!("text of m1")), |t| t.msg_id = Some("m1".into())),
        with(user(Some("1"), "2", json!("direct")), |t| t.msg_id = Some("m0".into())),
        Line::Mode(Mode { session_id: "s".into(), mode: "coordinator".into() }),
        Line::Mode(Mode { session_id: "s".into(), mode: "normal".into() }),
    ];
    let history = conversation(&lines);
    assert_eq!(history.enqueued.iter().map(|e| e.msg_id.as_str()).collect::<Vec<_>>(), ["m2", "m3"]);
    for id in ["m0", "m1", "m2", "m3"] {
        assert!(history.seen_msg_ids.iter().any(|seen| seen == id), "{id}");
    }
    assert_eq!(history.mode.as_deref(), Some("normal"));
}

#[test]
fn a_turn_that_did_not_come_to_its_end_is_told_from_one_that_did() {
    let said = user(None, "1", json!("go"));
    let called = reply(Some("1"), "2", "m1", tool("t1"));
    let answered = user(Some("2"), "3", result("t1"));
    let over = reply(Some("3"), "4", "m2", text("over"));
    let meta = with(user(Some("4"), "5", json!("ann rests")), |talk| talk.is_meta = Some(true));
    let spawned = with(user(Some("5"), "6", json!("the user started x")), |talk| {
        talk.origin = Some(Origin { kind: ORIGIN_SPAWN.to_owned(), task_id: None, run: None });
    });
    let failed = line(json!({"parentUuid": "6", "type": "assistant", "uuid": "7", "message":
        {"id": "m3", "role": "assistant", "model": SYNTHETIC, "content": [text("API error")]}}));
    let more = user(Some("7"), "8", json!("and now"));
    let lines = [said, called, answered, over, meta, spawned, failed, more];
    let in_turn: Vec<bool> = (0..=lines.len()).map(|n| conversation(&lines[..n]).is_in_turn).collect();
    assert_eq!(in_turn, [false, true, true, true, false, false, false, false, true]);
}

#[test]
fn a_notice_is_consumed_for_its_run_alone_and_a_boundary_up_to_its_run() {
    let told = |agent: &str, run: u32| {
        line(json!({
            "parentUuid": null, "type": "user", "uuid": "n", "message": {"role": "user", "content": "x"},
            "origin": {"kind": "task-notification", "taskId": agent, "run": run},
        }))
    };
    let tool_result = |value: Value| with(user(None, "t", json!("x")), |t| t.tool_use_result = Some(value));
    let (a, b, c) = ("a-00000000000000aa", "a-00000000000000bb", "a-00000000000000cc");
    let lines = [
        Line::Boundary(Box::new(Boundary {
            consumed: [(a.to_owned(), 2)].into(),
            uuid: "x".into(),
            ..Boundary::default()
        })),
        told(a, 4),
        tool_result(json!({"agentId": b, "run": 1, "status": "completed"})),
        tool_result(json!({"agentId": c, "run": 1, "status": "async_launched"})),
        tool_result(json!({"agentId": c, "run": 1, "isAsync": true})),
        tool_result(json!({"agentId": c})),
        tool_result(json!("Error: x")),
    ];
    let history = conversation(&lines);
    let is = |agent, run| history.is_consumed(agent, run);
    assert_eq!([is(a, 1), is(a, 2), is(a, 3), is(a, 4), is(a, 5)], [true, true, false, true, false]);
    assert!(is("a00000000000000aa", 4), "both spellings");
    assert!(is(b, 1) && !is(b, 2));
    assert!(!is(c, 1), "a launch is no end");
    assert_eq!(history.consumed.latest(), [(a.to_owned(), 4), (b.to_owned(), 1)].into());
}

#[test]
fn of_more_than_can_be_sent_the_first_message_and_the_latest_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let consumed = json!({"agentId": "a-00000000000000aa", "run": 1});
    let lines = [
        json!({"type": "queue-operation", "operation": "enqueue", "msgId": "m1", "content": "waits"}),
        json!({"parentUuid": null, "type": "user", "uuid": "1", "message": {"role": "user", "content": "go"}}),
        json!({"parentUuid": "1", "type": "assistant", "uuid": "2", "message":
            {"id": "r1", "role": "assistant", "content": [text("long ago"), tool("t1")]}}),
        json!({"parentUuid": "2", "type": "user", "uuid": "3", "message": {"role": "user", "content": result("t1")},
            "toolUseResult": consumed, "msgId": "m0"}),
        json!({"parentUuid": "3", "type": "assistant", "uuid": "4", "message":
            {"id": "r2", "role": "assistant", "content": [text("lately"), tool("t2")]}}),
        json!({"parentUuid": "4", "type": "user", "uuid": "5", "message": {"role": "user", "content": result("t2")}}),
    ];
    let all: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, all.concat()).unwrap();
    let last_two = (all[4].len() + all[5].len()) as u64;
    let within = |most| resume_within(&path, most).unwrap();
    let whole = within(u64::MAX);
    assert_eq!(shape_of(&whole.messages), "u:go a:long ago,+t1 u:=t1 a:lately,+t2 u:=t2");
    assert_eq!(whole, resume(&path).unwrap());
    for (most, expected) in [
        (last_two + 1, "a:lately,+t2 u:=t2"),
        // A result without its use says nothing.
        (last_two, ""),
        (0, ""),
    ] {
        let cut = within(most);
        let notice = "[What came next is left out here, since it is too long.]";
        assert_eq!(shape_of(&cut.messages), format!("u:go,{notice} {expected}").trim_end(), "{most}");
        // What counts besides the words is all there.
        assert_eq!((&cut.consumed, &cut.seen_msg_ids), (&whole.consumed, &whole.seen_msg_ids));
        assert_eq!((cut.enqueued.len(), cut.last_uuid.as_deref()), (1, Some("5")));
    }
}

/// One line of a random transcript: who, which reply, which blocks, how far back its parent is.
fn any_line() -> impl Strategy<Value = (bool, u8, Vec<(u8, u8)>, usize)> {
    (any::<bool>(), 0..4u8, prop::collection::vec((0..4u8, 0..5u8), 0..4), 0..4usize)
}

proptest! {
    #[test]
    fn r085_whatever_was_written_the_conversation_can_be_sent(
        written in prop::collection::vec(any_line(), 0..30)
    ) {
        let mut lines: Vec<Line> = Vec::new();
        for (n, (is_user, reply, blocks, back)) in written.into_iter().enumerate() {
            let content: Vec<Value> = blocks
                .into_iter()
                .map(|(kind, id)| match (kind, is_user) {
                    (0, _) => text("x"),
                    (1, _) => text(" "),
                    (2, true) | (3, true) => result(&id.to_string())[0].clone(),
                    (2, false) => thinking(),
                    _ => tool(&id.to_string()),
                })
                .collect();
            let parent = n.checked_sub(back).map(|p| p.to_string());
            let role = if is_user { "user" } else { "assistant" };
            lines.push(line(json!({
                "parentUuid": parent, "type": role, "uuid": n.to_string(),
                "message": {"role": role, "id": (!is_user).then(|| reply.to_string()), "content": content},
            })));
        }
        let messages = conversation(&lines).messages;
        let shape = shape_of(&messages);
        for (i, message) in messages.iter().enumerate() {
            let expected = if i % 2 == 0 { Role::User } else { Role::Assistant };
            prop_assert_eq!(message.role, expected, "{}", shape);
            prop_assert!(!message.content.is_empty());
            prop_assert!(message.content.iter().all(says_something));
            let uses: Vec<_> = message.content.iter().filter_map(use_id).collect();
            let next = messages.get(i + 1).map_or(&[][..], |m| &m.content);
            let results: Vec<_> = next.iter().filter_map(result_id).collect();
            if expected == Role::Assistant {
                prop_assert_eq!(&uses, &results, "{}", shape);
                prop_assert!(next.iter().take(uses.len()).all(|b| result_id(b).is_some()), "results first: {}", shape);
                prop_assert!(!message.content.last().is_some_and(Block::is_thinking));
            } else {
                prop_assert!(uses.is_empty());
            }
        }
        prop_assert!(messages.first().is_none_or(|m| m.content.iter().all(|b| result_id(b).is_none())));
    }
}
