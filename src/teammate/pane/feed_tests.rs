//! What is shown of a transcript.

use serde_json::{Value, json};

use super::*;
use crate::core::entry::parse_line;

fn items(line: Value) -> Vec<Item> {
    items_of(&parse_line(line.to_string().as_bytes()).unwrap())
}

fn shown(line: Value, columns: u16) -> Vec<String> {
    items(line).iter().flat_map(|item| item.rows(columns)).map(|row| row.to_string()).collect()
}

fn talk(kind: &str, content: Value) -> Value {
    json!({"type": kind, "parentUuid": null, "uuid": "u", "message": {"role": kind, "content": content}})
}

fn with(mut line: Value, key: &str, value: Value) -> Value {
    line[key] = value;
    line
}

#[test]
fn what_is_said_is_shown_whole() {
    assert_eq!(shown(talk("user", json!("do\nit\n")), 80), ["> do", "  it"]);
    let text = "one two three four five six seven\n\n- \titem";
    let said = talk("assistant", json!([{"type": "text", "text": text}]));
    assert_eq!(shown(said.clone(), 80), ["• one two three four five six seven", "", "  -     item"]);
    assert_eq!(shown(said.clone(), 20), ["• one two three four", "  five six seven", "", "  -     item"]);
    assert_eq!(shown(said, 5)[..3], ["• one", "two", "three"]);
    assert_eq!(shown(talk("assistant", json!([{"type": "text", "text": " \n"}])), 80), Vec::<String>::new());
}

#[test]
fn what_is_done_has_a_row_each() {
    let call =
        |input: Value| talk("assistant", json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": input}]));
    assert_eq!(shown(call(json!({"command": "ls\n-l", "description": "d"})), 80), ["· Bash ls -l"]);
    assert_eq!(shown(call(json!({"x": "y".repeat(1000)})), 20), ["· Bash {\"x\":\"yyyyyy…"]);
    assert_eq!(shown(call(json!({})), 4), ["· B…"]);
    let result = |text: &str, is_error: bool| {
        talk("user", json!([{"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": is_error}]))
    };
    assert_eq!(shown(result("\n a  b\nc\nd\n", false), 80), ["  a b (+2 lines)"]);
    assert_eq!(shown(result("no such file", true), 80), ["  error: no such file"]);
    assert_eq!(shown(result("", false), 80), Vec::<String>::new());
    let search = json!([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tea"}}]);
    assert_eq!(shown(talk("assistant", search), 80), ["· web_search tea"]);
}

#[test]
fn what_is_for_others_is_not_shown() {
    let user = |key: &str| with(talk("user", json!("x")), key, json!(true));
    for hidden in [
        talk("assistant", json!([{"type": "thinking", "thinking": "secret", "signature": "s"}])),
        user("isMeta"),
        user("isCompactSummary"),
        json!({"type": "file-history-snapshot"}),
    ] {
        assert_eq!(items(hidden.clone()), [], "{hidden}");
    }
}

#[test]
fn messages_are_shown_as_the_words_of_who_sent_them() {
    let mail = "<teammate-message teammate_id=\"team-lead\" summary=\"x\">\nlook at &lt;this&gt;\n</teammate-message>\n\n\
                <teammate-message teammate_id=\"bob\" color=\"green\">\nhi\n&lt;/teammate-message&gt;\n</teammate-message>";
    let line = talk("user", json!(mail));
    assert_eq!(shown(line.clone(), 80), ["@team-lead: look at <this>", "@bob: hi", "  </teammate-message>"]);
    let colours: Vec<_> = items(line).iter().map(|item| item.head_style.fg).collect();
    assert_eq!(colours, [None, Some(Color::Green)]);
    let odd = "<teammate-message teammate_id=\"bob\">\nhi";
    assert_eq!(shown(talk("user", json!(odd)), 80), [format!("> {}", odd.lines().next().unwrap()), "  hi".into()]);
    let from = with(talk("user", json!("hi")), "from", json!("me\nyou"));
    assert_eq!(shown(from, 80), ["me you: hi"]);
    let notice = "<task-notification>\n<summary>Agent \"a &amp; b\" completed</summary>\n<result>…</result>";
    let notice = with(talk("user", json!(notice)), "origin", json!({"kind": "task-notification"}));
    assert_eq!(shown(notice, 80), ["! Agent \"a & b\" completed"]);
    let queued = json!({"type": "queue-operation", "operation": "enqueue", "msgId": "m", "from": "me", "content": "later\nplease"});
    assert_eq!(shown(queued, 80), ["(kept for later) later please"]);
}

#[test]
fn what_happens_to_the_conversation_is_marked() {
    let boundary = json!({"type": "system", "subtype": "compact_boundary", "uuid": "u"});
    assert_eq!(shown(boundary.clone(), 50), ["── what came before was replaced by a summary ────"]);
    assert_eq!(shown(boundary.clone(), 20), ["── what came before…"]);
    assert_eq!(shown(boundary, 1), ["…"]);
    let end = json!({"type": "system", "subtype": "agent_outcome", "agentId": "a-1a2b3c4d5e6f7890", "run": 2,
        "status": "failed", "error": "lost"});
    assert_eq!(shown(end, 80), ["run 2 failed: lost"]);
    let switch = json!({"type": "system", "subtype": "lead_model_switch", "from": "a", "to": "b", "reason": "c"});
    assert_eq!(shown(switch, 80), ["b goes on: c"]);
}

#[test]
fn nothing_shown_can_command_a_terminal_and_no_width_is_too_small() {
    let nasty = "a\u{1b}[2Jb\u{7}\u{9b}31m\r\n研究\t👩‍👩‍👧\u{0}\n\n";
    let lines = [
        talk("user", json!(nasty)),
        with(talk("user", json!(nasty)), "from", json!(nasty)),
        talk(
            "assistant",
            json!([{"type": "text", "text": nasty}, {"type": "tool_use", "id": "t", "name": nasty, "input": {"command": nasty}}]),
        ),
        talk("user", json!([{"type": "tool_result", "tool_use_id": "t", "content": nasty, "is_error": true}])),
        talk("user", json!(format!("<teammate-message teammate_id=\"{nasty}\">{nasty}</teammate-message>"))),
        json!({"type": "system", "subtype": "compact_boundary", "uuid": "u"}),
    ];
    for columns in [0, 1, 2, 3, 9, 10, 11, 20, 40, 80, 200] {
        for line in &lines {
            let rows = shown(line.clone(), columns);
            assert!(!rows.is_empty());
            for row in rows {
                assert!(!row.contains(char::is_control), "{row:?}");
                // A character wider than all there is stands alone.
                assert!(row.width() <= usize::from(columns).max(2), "{row:?} in {columns}");
            }
        }
    }
}
