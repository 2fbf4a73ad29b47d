use serde_json::json;

use super::super::payload::{IdleReason, Verdict};
use super::*;

fn read(value: Value) -> Protocol {
    match Content::of(&value.to_string()) {
        Content::Protocol(protocol) => *protocol,
        other => panic!("{value}: {other:?}"),
    }
}

/// One of each type, as other programs write them (formats B.5) or as we do.
fn one_of_each() -> Vec<Value> {
    vec![
        json!({"type": "idle_notification", "from": "w", "timestamp": "t", "idleReason": "available", "result": "r"}),
        json!({"type": "teammate_terminated", "name": "w", "reason": "killed", "timestamp": "t"}),
        json!({"type": "task_assignment", "taskId": "1", "subject": "s", "description": "d", "assignedBy": "x",
               "timestamp": "t"}),
        json!({"type": "permission_request", "request_id": "perm-1", "agent_id": "w", "tool_name": "Bash",
               "tool_use_id": "u", "description": "d", "input": {"command": "ls"}, "permission_suggestions": []}),
        json!({"type": "permission_response", "request_id": "perm-1", "subtype": "success",
               "response": {"updated_input": {"command": "ls"}, "permission_updates": []}}),
        json!({"type": "sandbox_permission_request", "request_id": "r", "agent_id": "w", "host": "example.org"}),
        json!({"type": "sandbox_permission_response", "request_id": "r", "subtype": "error", "error": "no"}),
        json!({"type": "plan_approval_request", "from": "w", "timestamp": "t", "planFilePath": "/p",
               "planContent": "c", "requestId": "plan_approval-1@w@t"}),
        json!({"type": "plan_approval_response", "requestId": "r", "approved": true, "timestamp": "t",
               "permissionMode": "default"}),
        json!({"type": "shutdown_request", "requestId": "shutdown-1@w", "from": "team-lead", "reason": "done",
               "timestamp": "t"}),
        json!({"type": "shutdown_approved", "requestId": "r", "from": "w", "timestamp": "t", "paneId": "%1",
               "backendType": "tmux"}),
        json!({"type": "shutdown_rejected", "requestId": "r", "from": "w", "reason": "busy", "timestamp": "t"}),
        json!({"type": "mode_set_request", "mode": "plan", "from": "team-lead"}),
        json!({"type": "team_permission_update", "rules": ["Bash(ls)"], "mode": "default"}),
    ]
}

#[test]
fn each_type_is_read_and_written_as_others_do() {
    let all = one_of_each();
    assert_eq!(all.iter().map(|v| v["type"].as_str().unwrap()).collect::<Vec<_>>(), Protocol::TYPES);
    for value in all {
        let protocol = read(value.clone());
        assert_eq!(protocol.kind(), value["type"]);
        assert_eq!(serde_json::from_str::<Value>(&protocol.to_text()).unwrap(), value);
        assert!(Content::is_protocol(&format!(" \n{value}")));
    }
}

#[test]
fn both_spellings_are_read() {
    for value in one_of_each() {
        let object = value.as_object().unwrap();
        let respelt: Map<String, Value> = object.iter().map(|(name, v)| (respell(name), v.clone())).collect();
        assert_eq!(respelt.len(), object.len());
        assert_eq!(read(Value::Object(respelt)), read(value));
    }
    let answer = |approve: Value| {
        read(json!({"type": "plan_approval_response", "request_id": "r", "approve": approve, "feedback": "more"}))
    };
    assert_eq!(answer(json!("true")), answer(json!(true)));
    assert_eq!(answer(json!(" False ")), answer(json!(false)));
    assert_ne!(answer(json!(true)), answer(json!(false)));
}

/// `requestId` ↔ `request_id`.
fn respell(name: &str) -> String {
    if name.contains('_') {
        let mut words = name.split('_');
        let first = words.next().unwrap().to_owned();
        return words.fold(first, |all, w| all + &w[..1].to_uppercase() + &w[1..]);
    }
    name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase())).collect()
}

#[test]
fn text_is_no_protocol_message_and_a_broken_one_is_no_text() {
    for text in ["hello", "", "{", "[1]", r#"{"type":1}"#, r#"{"kind":"x"}"#, r#""shutdown_request""#] {
        assert_eq!(Content::of(text), Content::Plain, "{text}");
    }
    let later = r#"{"type":"from_the_future","a":[1,{"b":2}]}"#;
    let Content::Unknown(kept) = Content::of(later) else { panic!("{later}") };
    assert_eq!(Value::Object(kept).to_string(), later);
    assert!(!Content::is_protocol(later));
    for broken in [
        json!({"type": "shutdown_request"}),
        json!({"type": "plan_approval_response", "requestId": "r", "approved": "maybe"}),
        json!({"type": "permission_response", "request_id": 7, "subtype": "success"}),
    ] {
        let Content::Broken { kind, reason } = Content::of(&broken.to_string()) else { panic!("{broken}") };
        assert!(broken["type"] == kind.as_str() && !reason.is_empty());
        assert!(Content::is_protocol(&broken.to_string()));
    }
}

#[test]
fn what_is_not_known_to_be_a_yes_is_a_no() {
    let response = read(json!({"type": "permission_response", "request_id": "r", "subtype": "sure"}));
    assert!(matches!(response, Protocol::PermissionResponse(r) if r.subtype == Verdict::Error));
    let idle = read(json!({"type": "idle_notification", "from": "w", "idleReason": "bored"}));
    assert!(matches!(idle, Protocol::IdleNotification(i) if i.idle_reason == Some(IdleReason::Other)));
}

#[test]
fn who_may_send_what_to_whom() {
    let all: Vec<Protocol> = one_of_each().into_iter().map(read).collect();
    let allowed = |from, to| {
        let may = |p: &&Protocol| p.may_send(from, to, false).is_ok();
        all.iter().filter(may).map(Protocol::kind).collect::<Vec<_>>()
    };
    let to_lead = [
        "idle_notification",
        "teammate_terminated",
        "task_assignment",
        "permission_request",
        "sandbox_permission_request",
        "plan_approval_request",
        "shutdown_approved",
        "shutdown_rejected",
    ];
    let to_member = [
        "task_assignment",
        "permission_response",
        "sandbox_permission_response",
        "plan_approval_response",
        "shutdown_request",
        "mode_set_request",
        "team_permission_update",
    ];
    assert_eq!(allowed(Role::Member, Role::Lead), to_lead);
    assert_eq!(allowed(Role::Lead, Role::Member), to_member);
    assert_eq!(allowed(Role::Member, Role::Member), ["task_assignment"]);
    assert_eq!(allowed(Role::Lead, Role::Lead), ["task_assignment"]);
    assert!(all[2].may_send(Role::Member, Role::Member, true).is_err());
    let refusal = all[9].may_send(Role::Member, Role::Member, false).unwrap_err();
    assert_eq!(refusal, "a shutdown_request goes from the lead to a member");
}
