use super::super::tasks::testing::Place;
use super::*;
use crate::core::limits::MAIL_TEXT_BYTES;

fn desk(place: &Place, me: &str) -> MailDesk {
    let colour = place.team.roster().unwrap().member(me).and_then(|m| m.color.clone());
    MailDesk { team: place.team.clone(), me: me.to_owned(), colour, is_alive: Place::alive_but(&["ghost"]) }
}

fn mail(to: &str, text: &str) -> PlainMail {
    PlainMail { to: to.to_owned(), text: text.to_owned(), summary: "in short".to_owned() }
}

fn inboxes(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.team.inboxes()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_message_lies_in_the_inbox_and_the_answer_is_what_others_read() {
    let place = Place::with(&["alice", "bob"]);
    let output = send_mail(&desk(&place, "alice"), mail("BOB", "hello")).await;
    assert_eq!((output.text.as_str(), output.is_error), ("delivered to inbox of bob", false));
    let wanted = json!({
        "success": true,
        "message": "Message sent to bob's inbox",
        "routing": {
            "sender": "alice", "senderColor": "blue", "target": "@bob", "summary": "in short", "content": "hello",
            "targetColor": "green",
        },
    });
    assert_eq!(output.structured, Some(wanted));
    let seen = place.team.mailbox("bob").unwrap().look().unwrap();
    let lies = &seen.mail[0];
    assert_eq!((lies.from.as_str(), lies.text.as_str(), lies.color.as_deref()), ("alice", "hello", Some("blue")));
    assert_eq!((lies.summary.as_deref(), lies.read, lies.msg_id.is_some()), (Some("in short"), false, true));
    let from_lead = send_mail(&desk(&place, "team-lead"), mail("bob", "x")).await.structured.unwrap();
    assert!(from_lead["routing"].get("senderColor").is_none(), "{from_lead}");
}

#[tokio::test]
async fn r029_a_name_nobody_has_lists_the_valid_ones_and_makes_no_file_and_mail_of_the_gone_is_kept() {
    let place = Place::with(&["alice", "ghost"]);
    let unknown = send_mail(&desk(&place, "alice"), mail("nobody", "hello")).await;
    assert!(unknown.is_error, "{unknown:?}");
    assert!(unknown.text.contains("the members are team-lead, alice, ghost"), "{unknown:?}");
    for odd in ["../alice", "alice@t", ""] {
        assert!(send_mail(&desk(&place, "alice"), mail(odd, "x")).await.is_error, "{odd}");
    }
    assert_eq!(inboxes(&place), Vec::<String>::new());
    let kept = send_mail(&desk(&place, "alice"), mail("ghost", "hello")).await;
    assert_eq!(
        kept.text,
        "delivered to inbox of ghost, but nobody reads it now: its process is gone. The message is kept"
    );
    let to_lead = send_mail(&desk(&place, "alice"), mail("team-lead", "hello")).await;
    assert!(!to_lead.is_error && to_lead.text.contains("nobody reads it now: the team has no lead"), "{to_lead:?}");
    assert_eq!(inboxes(&place), ["ghost.json", "team-lead.json"]);
}

#[tokio::test]
async fn mail_to_all_says_what_became_of_each() {
    let place = Place::with(&["alice", "bob", "eve", "ghost"]);
    let all = send_mail(&desk(&place, "team-lead"), mail("*", "hello")).await;
    let text = "delivered to 4 of 4 members\nnobody reads it now, but it is kept, for: ghost";
    assert_eq!((all.text.as_str(), all.is_error), (text, false));
    let result = all.structured.unwrap();
    assert_eq!((&result["success"], &result["routing"]["target"]), (&json!(true), &json!("@t")));
    assert_eq!(result["routing"]["recipients"], json!(["alice", "bob", "eve", "ghost"]));
    // The sender gets none, and one whose inbox can't be written does not keep it from the others.
    std::fs::remove_file(place.team.inboxes().join("eve.json")).unwrap();
    std::fs::create_dir(place.team.inboxes().join("eve.json")).unwrap();
    let most = send_mail(&desk(&place, "alice"), mail("*", "again")).await;
    assert!(!most.is_error && most.text.starts_with("delivered to 2 of 3 members\nnot to eve: "), "{most:?}");
    let result = most.structured.unwrap();
    assert_eq!((&result["success"], &result["failed"][0]["name"]), (&json!(false), &json!("eve")));
    let count = |name: &str| place.team.mailbox(name).unwrap().look().unwrap().mail.len();
    assert_eq!((count("alice"), count("bob"), count("ghost")), (1, 2, 2));
    let alone = Place::with(&["alice"]);
    assert!(send_mail(&desk(&alone, "alice"), mail("*", "x")).await.text.contains("nobody else"));
}

#[tokio::test]
async fn what_is_no_plain_mail_to_somebody_else_is_refused() {
    let place = Place::with(&["alice", "bob"]);
    let send = async |to: &str, text: &str| send_mail(&desk(&place, "alice"), mail(to, text)).await;
    let approved = r#"{"type":"shutdown_approved","requestId":"r","from":"bob"}"#;
    for (to, text, said) in [
        ("alice", "x", "that is yourself"),
        ("Alice", "x", "that is yourself"),
        ("bob", approved, "a message between runtimes (shutdown_approved)"),
        ("*", approved, "a message between runtimes (shutdown_approved)"),
        ("bob", r#"{"type":"permission_response"}"#, "a message between runtimes (permission_response)"),
    ] {
        let refused = send(to, text).await;
        assert!(refused.is_error && refused.text.contains(said), "{to} {text}: {refused:?}");
    }
    assert_eq!(inboxes(&place), Vec::<String>::new());
    assert!(!send("bob", r#"{"type": "anything else"}"#).await.is_error);
    assert!(!send("bob", &"x".repeat(MAIL_TEXT_BYTES)).await.is_error);
    let long = send("bob", &"x".repeat(MAIL_TEXT_BYTES + 1)).await;
    assert!(long.is_error && long.text.contains("65537 bytes") && long.text.contains("write it to a file"), "{long:?}");
}
