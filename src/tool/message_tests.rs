use serde_json::json;

use super::*;
use crate::core::limits::MESSAGE_BYTES;

fn parse(input: Value) -> Result<Message, String> {
    Message::parse(&input)
}

fn object(message: Value) -> Result<Said, String> {
    parse(json!({"to": "bob", "message": message})).map(|m| m.said)
}

#[test]
fn texts_and_objects_become_what_is_said() {
    let message = parse(json!({"to": " bob ", "message": "hello", "summary": "s"})).unwrap();
    assert_eq!(
        (message.to.as_str(), message.said, message.summary.as_str()),
        ("bob", Said::Plain("hello".into()), "s")
    );
    assert_eq!(object(json!({"type": "shutdown_request"})), Ok(Said::ShutdownRequest { reason: None }));
    let asked = object(json!({"type": "shutdown_request", "reason": "done"}));
    assert_eq!(asked, Ok(Said::ShutdownRequest { reason: Some("done".into()) }));
    for (approve, yes) in [(json!(true), true), (json!("true"), true), (json!("False"), false), (json!(false), false)] {
        let said = object(json!({"type": "shutdown_response", "request_id": " r ", "approve": approve, "reason": "w"}));
        let wanted = Said::ShutdownResponse { request_id: "r".into(), approve: yes, reason: Some("w".into()) };
        assert_eq!(said, Ok(wanted));
        let said =
            object(json!({"type": "plan_approval_response", "request_id": "r", "approve": approve, "feedback": "w"}));
        let wanted = Said::PlanApprovalResponse { request_id: "r".into(), approve: yes, feedback: Some("w".into()) };
        assert_eq!(said, Ok(wanted));
    }
    let idle = parse(json!({"to": "uds:/x.sock", "message": "m", "summary": "s", "notify_when_idle": true}));
    assert!(idle.is_ok_and(|m| m.notify_when_idle));
}

#[test]
fn what_cant_be_sent_is_refused_in_words() {
    let yes = json!({"type": "shutdown_request"});
    let answer = |kind: &str, approve: Value| json!({"type": kind, "request_id": "r", "approve": approve});
    for (input, said) in [
        (json!({"to": "bob", "message": "m"}), "summary is missing"),
        (json!({"to": "bob", "message": "m", "summary": " "}), "summary is missing"),
        (json!({"to": " ", "message": "m", "summary": "s"}), "`to` is empty"),
        (json!({"to": "bob@team", "message": "m", "summary": "s"}), "use the bare name"),
        (json!({"to": "bob@team", "message": yes}), "use the bare name"),
        (json!({"to": "*", "message": yes}), "to one member, not to `*`"),
        (json!({"to": "uds:/x", "message": yes}), "can't go to another session"),
        (json!({"to": "bob", "message": "m", "summary": "s", "notify_when_idle": true}), "for other sessions"),
        (json!({"to": "bob", "summary": "s"}), "missing field `message`"),
        (json!({"to": "bob", "message": "m", "summary": "s", "colour": 1}), "colour"),
        (json!({"to": "bob", "message": 3}), "`message` can't be used"),
        (json!({"to": "bob", "message": {}}), "missing field `type`"),
        (json!({"to": "bob", "message": {"type": "task_assignment"}}), "task_assignment"),
        (json!({"to": "bob", "message": {"type": "permission_response", "request_id": "r"}}), "permission_response"),
        (json!({"to": "bob", "message": {"type": "shutdown_request", "x": 1}}), "x"),
        (json!({"to": "bob", "message": {"type": "shutdown_response", "approve": true}}), "request_id"),
        (
            json!({"to": "bob", "message": {"type": "shutdown_response", "request_id": " ", "approve": true}}),
            "is empty",
        ),
        (json!({"to": "bob", "message": answer("shutdown_response", json!("yes"))}), "neither true nor false"),
        (json!({"to": "bob", "message": answer("shutdown_response", json!(1))}), "neither true nor false"),
        (json!({"to": "bob", "message": answer("shutdown_response", json!("false"))}), "needs a `reason`"),
        (json!({"to": "bob", "message": answer("plan_approval_response", json!(false))}), "needs `feedback`"),
    ] {
        let why = parse(input.clone()).unwrap_err();
        assert!(why.contains(said), "{input}: {why}");
    }
}

#[test]
fn a_text_may_have_a_mebibyte() {
    let text = |bytes: usize| parse(json!({"to": "bob", "message": "x".repeat(bytes), "summary": "s"}));
    assert!(text(MESSAGE_BYTES).is_ok());
    assert!(text(MESSAGE_BYTES + 1).is_err_and(|why| why.contains("1048577 bytes, the limit is 1048576")));
}

/// What becomes of a message of `me` (none = in no team) to `to`.
fn routed(me: Option<&str>, to: &str, said: Value) -> Result<Receiver, String> {
    let message = parse(json!({"to": to, "message": said, "summary": "s"})).unwrap();
    let agents = ["plain (a-1)".to_owned()];
    route(
        &message,
        &Around {
            is_agent: &|name| name == "plain" || name == "both",
            me,
            role: if me == Some("team-lead") { Role::Lead } else { Role::Member },
            members: &["team-lead", "Bob", "both", "eve"],
            agents: &agents,
        },
    )
}

#[test]
fn the_first_rule_that_fits_decides_who_gets_a_message() {
    let (text, ask) = (json!("m"), json!({"type": "shutdown_request"}));
    let answer = json!({"type": "shutdown_response", "request_id": "r", "approve": true});
    let plan = json!({"type": "plan_approval_response", "request_id": "r", "approve": true});
    let lead = Some("team-lead");
    for (me, to, said, wanted) in [
        (None, "uds:/x", &text, Ok(Receiver::Address("uds:/x".into()))),
        (None, "tcp:host", &text, Ok(Receiver::Address("tcp:host".into()))),
        (None, "plain", &text, Ok(Receiver::Agent("plain".into()))),
        (lead, "both", &text, Ok(Receiver::Agent("both".into()))),
        (lead, "both", &ask, Ok(Receiver::Member("both".into()))),
        (lead, "*", &text, Ok(Receiver::Everyone)),
        (lead, "bob", &text, Ok(Receiver::Member("Bob".into()))),
        (lead, "bob", &ask, Ok(Receiver::Member("Bob".into()))),
        (lead, "bob", &plan, Ok(Receiver::Member("Bob".into()))),
        (Some("Bob"), "team-lead", &answer, Ok(Receiver::Member("team-lead".into()))),
        (Some("Bob"), "eve", &text, Ok(Receiver::Member("eve".into()))),
        (None, "bob", &text, Err("there is no agent \"bob\" in this session; it has: plain (a-1)")),
        (None, "*", &text, Err("there is no team")),
        (None, "bob", &ask, Err("you are in none")),
        (lead, "team-lead", &text, Err("that is yourself")),
        (Some("Bob"), "bob", &text, Err("that is yourself")),
        (
            lead,
            "nobody",
            &text,
            Err("nobody called \"nobody\"; members of the team: Bob, both, eve; agents: plain (a-1)"),
        ),
        (lead, "plain", &ask, Err("is a plain agent")),
        (lead, "nobody", &ask, Err("there is nobody called")),
        (Some("Bob"), "eve", &ask, Err("a shutdown_request goes from the lead to a member")),
        (Some("Bob"), "eve", &answer, Err("a shutdown_response goes from a member to the lead")),
        (Some("Bob"), "eve", &plan, Err("a plan_approval_response goes from the lead to a member")),
        (lead, "bob", &answer, Err("a shutdown_response goes from a member to the lead")),
    ] {
        match (routed(me, to, said.clone()), wanted) {
            (Err(why), Err(said)) => assert!(why.contains(said), "{to}: {why}"),
            (got, wanted) => assert_eq!(got, wanted.map_err(str::to_owned), "{me:?} {to} {said}"),
        }
    }
}

#[test]
fn what_is_said_lies_in_a_mailbox_as_others_write_it() {
    let mail = |said: Said| said.to_protocol("a", "b", 1_767_225_600_000).map(|p| p.to_text());
    assert_eq!(mail(Said::Plain("x".into())), None);
    let time = "2026-01-01T00:00:00.000Z";
    let id = || "r".to_owned();
    for (said, wanted) in [
        (
            Said::ShutdownRequest { reason: Some("w".into()) },
            json!({"type": "shutdown_request", "requestId": "shutdown-1767225600000@b", "from": "a", "reason": "w", "timestamp": time}),
        ),
        (
            Said::ShutdownResponse { request_id: id(), approve: true, reason: None },
            json!({"type": "shutdown_approved", "requestId": "r", "from": "a", "timestamp": time}),
        ),
        (
            Said::ShutdownResponse { request_id: id(), approve: false, reason: Some("w".into()) },
            json!({"type": "shutdown_rejected", "requestId": "r", "from": "a", "reason": "w", "timestamp": time}),
        ),
        (
            Said::PlanApprovalResponse { request_id: id(), approve: false, feedback: Some("w".into()) },
            json!({"type": "plan_approval_response", "requestId": "r", "approved": false, "timestamp": time, "feedback": "w"}),
        ),
    ] {
        let text = mail(said).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), wanted);
    }
}
