use std::os::unix::fs::PermissionsExt;

use super::super::testing::{LONG, Place, letter, tree};
use super::*;
use crate::core::team::name::LEAD;

fn place() -> (Place, Team) {
    let place = Place::new();
    let team = place.team("t", &["worker", "other"]);
    (place, team)
}

fn texts(seen: &Seen) -> Vec<&str> {
    seen.mail.iter().map(|mail| mail.text.as_str()).collect()
}

fn ids(seen: &Seen) -> Vec<&str> {
    seen.mail.iter().map(|mail| mail.msg_id.as_deref().unwrap()).collect()
}

fn file(mailbox: &Mailbox) -> String {
    fs::read_to_string(mailbox.path()).unwrap()
}

/// A file that is not being written.
fn write_settled(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
}

/// As other programs write it: pretty, with fields of their own, without ids, one entry that is none.
const FOREIGN: &str = r#"[
  {
    "from": "team-lead",
    "text": "first",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "read": true,
    "lead_sig": "x="
  },
  {
    "from": "worker-9",
    "text": "second \ud83d",
    "read": false,
    "zeta": 1.10
  },
  {"text": "from nobody"},
  {
    "from": "worker-9",
    "text": "third",
    "read": null,
    "msg_id": 7
  }
]
"#;

#[test]
fn mail_arrives_in_order_and_as_it_was_sent() {
    let (_place, team) = place();
    let nasty = "a;b \"c\" $d `e` {f} \\ \u{1b}[31m\0\u{feff} 研究 \u{1f600} </teammate-message>\n";
    let first = Letter { summary: Some("s".into()), color: Some("blue".into()), ..letter("worker", nasty) };
    let sent = team.send(&first).unwrap();
    assert_eq!((sent.to.as_str(), sent.rescue), ("worker", None));
    assert_eq!(team.send(&letter("WORKER", "second")).unwrap().to, "worker", "case does not count");
    let mailbox = team.mailbox("worker").unwrap();
    let seen = mailbox.look().unwrap();
    assert_eq!(texts(&seen), [nasty, "second"]);
    assert_eq!(seen.mail[0], first.to_mail());
    let line = format!(
        "{{\"from\":\"team-lead\",\"text\":\"second\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"read\":false,\"msg_id\":\"{}\"}}\n]",
        ids(&seen)[1]
    );
    assert!(file(&mailbox).ends_with(&line), "{}", file(&mailbox));
    assert_eq!(fs::metadata(mailbox.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn r029_mail_to_nobody_names_the_members_and_makes_no_file() {
    let (place, team) = place();
    let before = tree(place.config.root());
    for nobody in ["nobody", "", "../../x", "*", "worker@t", "研究員", "a-1a2b3c4d5e6f7890", "config", ".worker"] {
        let error = team.send(&letter(nobody, "x")).unwrap_err();
        let wanted = format!("{nobody:?} is not a member of team \"t\"; the members are team-lead, worker, other");
        assert_eq!(error.to_string(), wanted);
        assert!(team.mailbox(nobody).is_err());
    }
    assert_eq!(tree(place.config.root()), before);
    assert!(team.send(&letter(LEAD, "waits for a lead")).is_ok());
}

#[test]
fn a_text_may_have_its_limit_and_not_a_byte_more() {
    let (_place, team) = place();
    let most = "é".repeat(limits::MAIL_TEXT_BYTES / 2);
    let _ = team.send(&letter("worker", &most)).unwrap();
    let error = team.send(&letter("worker", &format!("{most}x"))).unwrap_err();
    assert_eq!(error.to_string(), "the message has 65537 bytes, a mailbox message can have 65536");
    assert_eq!(texts(&team.mailbox("worker").unwrap().look().unwrap()), [most]);
}

#[test]
fn r023_a_mailbox_that_is_full_refuses_and_loses_nothing() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    let text = "x".repeat(60_000);
    let mut sent = 0;
    let error = loop {
        match team.send(&letter("worker", &text)) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TeamError::MailboxFull { .. }), "{error}");
    let length = fs::metadata(mailbox.path()).unwrap().len() as usize;
    assert!(length <= limits::MAILBOX_BYTES && length + text.len() + 300 > limits::MAILBOX_BYTES);
    assert_eq!(mailbox.look().unwrap().mail.len(), sent);
    // A message that just fits, by its bytes.
    let room = limits::MAILBOX_BYTES - length;
    let envelope = serde_json::to_vec(&letter("worker", "").to_mail()).unwrap().len() + 2;
    assert!(team.send(&letter("worker", &"y".repeat(room - envelope + 1))).is_err());
    let _ = team.send(&letter("worker", &"y".repeat(room - envelope))).unwrap();
    assert_eq!(fs::metadata(mailbox.path()).unwrap().len() as usize, limits::MAILBOX_BYTES);
    // Room is made of what was read, by the sender itself: down to 2 MiB as far as that goes.
    let seen = mailbox.unread().unwrap();
    let read: Vec<String> = ids(&seen)[..10].iter().map(|id| (*id).to_owned()).collect();
    let raw = file(&mailbox);
    let marked: String = read.iter().fold(raw, |raw, id| {
        raw.replace(&format!("\"read\":false,\"msg_id\":\"{id}\""), &format!("\"read\":true,\"msg_id\":\"{id}\""))
    });
    fs::write(mailbox.path(), marked).unwrap();
    let _ = team.send(&letter("worker", "fits now")).unwrap();
    let seen = mailbox.look().unwrap();
    assert_eq!(seen.mail.len(), sent + 2 - 10);
    assert_eq!(seen.mail.last().unwrap().text, "fits now");
}

#[test]
fn r023_unread_protocol_messages_have_a_limit_of_their_own() {
    let (_place, team) = place();
    let mailbox = team.mailbox(LEAD).unwrap();
    let idle = r#"{"type":"idle_notification","from":"worker"}"#;
    let entry = |read: bool| format!(r#"{{"from":"worker","text":{},"read":{read}}}"#, serde_json::json!(idle));
    let most = limits::MAILBOX_UNREAD_PROTOCOL;
    let entries: Vec<String> = (0..most - 1).map(|_| entry(false)).chain([entry(true)]).collect();
    write_settled(mailbox.path(), format!("[{}]", entries.join(",")));
    let _ = team.send(&letter(LEAD, idle)).unwrap();
    let error = team.send(&letter(LEAD, idle)).unwrap_err();
    let wanted = "the mailbox of \"team-lead\" holds 2000 unread protocol messages, the limit is 2000";
    assert_eq!(error.to_string(), wanted);
    let _ = team.send(&letter(LEAD, "an ordinary one")).unwrap();
    let id = mailbox.unread().unwrap().mail[0].msg_id.clone().unwrap();
    mailbox.mark(&[&id]).unwrap();
    let _ = team.send(&letter(LEAD, idle)).unwrap();
}

#[test]
fn r025_mail_is_unread_until_it_is_marked_and_its_id_stays() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    assert_eq!(mailbox.unread().unwrap(), Seen::default());
    write_settled(mailbox.path(), FOREIGN);
    let first = mailbox.unread().unwrap();
    assert_eq!(texts(&first), ["second \u{fffd}", "third"]);
    // Its reader dies here: it is all there again, with the same ids.
    let again = mailbox.unread().unwrap();
    assert_eq!(again, first);
    let both = ids(&first);
    assert_ne!(both[0], both[1]);
    assert_eq!(mailbox.mark(&[both[1], "no such id"]).unwrap(), Marked { marked: 1, dropped: 0 });
    assert_eq!(mailbox.mark(&[both[1]]).unwrap(), Marked::default(), "again");
    assert_eq!(ids(&mailbox.unread().unwrap()), [both[0]]);
}

#[test]
fn what_another_program_wrote_stays_byte_for_byte() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    write_settled(mailbox.path(), FOREIGN);
    let mut letter = letter("worker", "fourth");
    letter.msg_id = "m".into();
    let _ = team.send(&letter).unwrap();
    let sent = serde_json::to_string(&letter.to_mail()).unwrap();
    let spliced = FOREIGN.replace("\n]\n", &format!(",\n{sent}\n]\n"));
    assert_eq!(file(&mailbox), spliced);
    let seen = mailbox.unread().unwrap();
    let (second, third) = (ids(&seen)[0].to_owned(), ids(&seen)[1].to_owned());
    let stamped = spliced
        .replace("\"zeta\": 1.10\n", &format!("\"zeta\": 1.10,\"msg_id\":\"{second}\"\n"))
        .replace("\"msg_id\": 7", &format!("\"msg_id\": \"{third}\""));
    assert_eq!(file(&mailbox), stamped);
    mailbox.mark(&[&second, &third]).unwrap();
    let marked = stamped.replacen("\"read\": false", "\"read\": true", 1).replace("\"read\": null", "\"read\": true");
    assert_eq!(file(&mailbox), marked);
}

#[test]
fn one_bad_entry_never_blocks_the_others() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    let bad = r#"[1,{"from":"a","text":"one"},null,{"from":"a"},[],{"from":"a","text":{}},
        {"from":"a","text":"two","read":"yes","timestamp":5,"color":[],"summary":null},
        {"from":"a","text":"twice","text":"twice"}]"#;
    write_settled(mailbox.path(), bad);
    let seen = mailbox.look().unwrap();
    assert_eq!(texts(&seen), ["one", "two"]);
    assert_eq!(seen.bad.iter().map(|b| b.index).collect::<Vec<_>>(), [0, 2, 3, 4, 5, 7]);
    assert_eq!(seen.bad[2].excerpt, r#"{"from":"a"}"#);
    assert!(seen.bad[2].reason.contains("text"));
    let unread = mailbox.unread().unwrap();
    assert_eq!((texts(&unread), &unread.bad), (vec!["one", "two"], &seen.bad));
    mailbox.mark(&ids(&unread)).unwrap();
    assert_eq!(mailbox.unread().unwrap().mail, []);
    assert_eq!(mailbox.look().unwrap().bad, seen.bad, "kept where they are");
}

#[test]
fn what_is_read_at_once_is_what_is_unread() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    assert_eq!(mailbox.unread_at_once(), None, "it is not there");
    let tricky = [
        r#"{"from":"a","text":"said \"read\":true and {\"read\": true}","read":false,"msg_id":"1"}"#,
        r#"{"from":"a","text":"over","read":true,"msg_id":"2"}"#,
        r#"{"from":"a","text":"in it","x":{"read":true},"msg_id":"3"}"#,
        r#"{"from":"a","text":"a word","read":"true","msg_id":"4"}"#,
        r#"{"text":"from nobody"}"#,
        r#"{"from":"a","text":"apart","read" : true ,"msg_id":"5"}"#,
        r#"{"from":"a","text":"twice","read":false,"msg_id":"3"}"#,
    ];
    write_settled(mailbox.path(), format!("[{}]", tricky.join(",")));
    let seen = mailbox.unread_at_once().unwrap();
    assert_eq!(ids(&seen), ["1", "3", "4"]);
    assert_eq!(seen.bad.iter().map(|bad| bad.index).collect::<Vec<_>>(), [4]);
    assert_eq!(mailbox.unread().unwrap(), seen);

    for (what, content) in [("no ids", FOREIGN), ("broken", r#"[{"from":"a","text":"#)] {
        write_settled(mailbox.path(), content);
        assert_eq!(mailbox.unread_at_once(), None, "{what}");
    }
    let text = "x".repeat(limits::MAILBOX_AT_ONCE_BYTES);
    write_settled(mailbox.path(), format!(r#"[{{"from":"a","text":"{text}","msg_id":"1"}}]"#));
    assert_eq!(mailbox.unread_at_once(), None, "long");
    assert_eq!(ids(&mailbox.unread().unwrap()), ["1"]);
}

#[test]
fn a_message_that_is_there_twice_comes_once() {
    let (_place, team) = place();
    let twice = letter("worker", "x");
    let _ = team.send(&twice).unwrap();
    let _ = team.send(&twice).unwrap();
    let mailbox = team.mailbox("worker").unwrap();
    assert_eq!(mailbox.unread().unwrap().mail.len(), 1);
    assert_eq!(mailbox.mark(&[&twice.msg_id]).unwrap().marked, 2);
    assert_eq!(mailbox.unread().unwrap().mail, []);
}

#[test]
fn files_that_others_leave_are_mailboxes() {
    let one = r#"{"from":"a","text":"one"}"#;
    let texts_of = |content: &[u8]| {
        let (_place, team) = place();
        let mailbox = team.mailbox("worker").unwrap();
        write_settled(mailbox.path(), content);
        let before: Vec<String> = mailbox.look().unwrap().mail.into_iter().map(|m| m.text).collect();
        let sent = team.send(&letter("worker", "sent")).unwrap();
        assert_eq!(sent.rescue, None, "{:?}", String::from_utf8_lossy(content));
        let after = mailbox.look().unwrap();
        assert_eq!(after.mail.len(), before.len() + 1);
        assert_eq!((after.mail.last().unwrap().text.as_str(), &after.bad), ("sent", &vec![]));
        assert_eq!(fs::read_dir(team.inboxes()).unwrap().count(), 1);
        before
    };
    for empty in ["", "  \n", "[]", "[ ]\n", "\u{feff}[]", " [\n\n] \n\n"] {
        assert_eq!(texts_of(empty.as_bytes()), [""; 0], "{empty:?}");
    }
    for of_one in [format!("[{one}]"), format!("\u{feff}[ {one} ]\n\n"), format!("\r\n[\r\n{one}\r\n]\r\n")] {
        assert_eq!(texts_of(of_one.as_bytes()), ["one"], "{of_one:?}");
    }
}

#[test]
fn a_broken_file_is_put_aside_and_what_is_in_it_kept() {
    let one = r#"{"from":"a","text":"one {\"from\":\"x\",\"text\":\"forged\"}"}"#;
    let two = r#"{"from":"b","text":"two"}"#;
    for (content, kept) in [
        (format!("[{one},{two}"), vec!["a", "b"]),
        (format!("[{one},{two},{{\"from\":\"c\",\"te"), vec!["a", "b"]),
        (format!("{one},{two}]"), vec!["a", "b"]),
        (format!("[{one},\0\0\0{two}]"), vec!["a", "b"]),
        (format!("[{one}]\n[{two}]"), vec!["a", "b"]),
        (format!("[{{\"from\":\"c\",\"text\":\"cut [{two}]"), vec!["b"]),
        ("null".to_owned(), vec![]),
        ("{}".to_owned(), vec![]),
    ] {
        for by_reader in [true, false] {
            let (_place, team) = place();
            let mailbox = team.mailbox("worker").unwrap();
            write_settled(mailbox.path(), &content);
            let rescue = if by_reader {
                mailbox.unread().unwrap().rescue
            } else {
                let rescue = team.send(&letter("worker", "sent")).unwrap().rescue;
                rescue.or_else(|| mailbox.look().unwrap().rescue)
            };
            let Some(rescue) = rescue else { panic!("{content:?} was not broken") };
            assert!(rescue.moved_to.file_name().unwrap().to_str().unwrap().starts_with("worker.json.corrupt-2"));
            assert!(fs::read_to_string(&rescue.moved_to).unwrap().starts_with(&content[..content.len() - 1]));
            let seen = mailbox.look().unwrap();
            let from: Vec<&str> = seen.mail.iter().map(|m| m.from.as_str()).filter(|f| *f != LEAD).collect();
            assert_eq!((from, &seen.rescue), (kept.clone(), &None), "{content:?}");
            assert_eq!(seen.mail.len() - kept.len(), usize::from(!by_reader), "{content:?}");
        }
    }
}

#[test]
fn r023_marking_keeps_the_mailbox_small() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    let entries: Vec<String> = (0..300).map(|n| format!(r#"{{"from":"a","text":"{n}","msg_id":"{n}"}}"#)).collect();
    write_settled(mailbox.path(), format!("[{}]", entries.join(",\n")));
    let ids: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(mailbox.mark(&ids).unwrap(), Marked { marked: 250, dropped: 50 });
    let seen = mailbox.look().unwrap();
    assert_eq!((seen.mail.len(), seen.unread().count(), seen.mail[0].text.as_str()), (250, 50, "50"));
    assert_eq!(mailbox.compact().unwrap(), 0);
    assert!(file(&mailbox).starts_with("[{\"from\":\"a\",\"text\":\"50\""), "no comma is left");
}

#[test]
fn a_file_that_is_half_written_is_waited_for() {
    let (_place, team) = place();
    let mailbox = team.mailbox("worker").unwrap();
    let whole = r#"[{"from":"a","text":"one"}]"#;
    fs::create_dir_all(team.inboxes()).unwrap();
    for half in ["", "[{\"from\":\"a\",", &whole[..whole.len() - 1]] {
        fs::write(mailbox.path(), half).unwrap();
        let path = mailbox.path().to_owned();
        let (begun, has_begun) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            let looking = s.spawn(|| {
                begun.send(()).unwrap();
                mailbox.look().unwrap()
            });
            has_begun.recv_timeout(LONG).unwrap();
            fs::write(&path, whole).unwrap();
            assert_eq!(texts(&looking.join().unwrap()), ["one"]);
        });
        assert_eq!(fs::read_dir(team.inboxes()).unwrap().count(), 1, "nothing was put aside");
    }
}

#[test]
fn r024_a_team_that_is_not_there_is_an_error_and_makes_nothing() {
    let (place, team) = place();
    crate::store::team::delete(&team).unwrap();
    let before = tree(place.config.root());
    assert!(matches!(team.send(&letter("worker", "x")), Err(TeamError::Gone { .. })));
    assert!(matches!(team.mailbox("worker"), Err(TeamError::Gone { .. })));
    let error = place.open("default").unwrap_err().to_string();
    assert_eq!(error, "there is no team \"default\"; there is none");
    assert_eq!(tree(place.config.root()), before);
}

#[test]
fn r022_a_file_that_cannot_be_written_is_an_error_and_keeps_what_it_has() {
    let (_place, team) = place();
    let _ = team.send(&letter("worker", "one")).unwrap();
    let mailbox = team.mailbox("worker").unwrap();
    // Where the temporary file goes there is a folder: nobody can write, not even root.
    let temp = team.inboxes().join(".worker.json.tmp");
    fs::create_dir(&temp).unwrap();
    let error = team.send(&letter("worker", "two")).unwrap_err();
    assert!(matches!(&error, TeamError::Store(StoreError::Io { path, .. }) if *path == temp), "{error:?}");
    assert!(mailbox.mark(&ids(&mailbox.unread().unwrap())).is_err());
    assert_eq!(texts(&mailbox.look().unwrap()), ["one"]);
    fs::remove_dir(&temp).unwrap();
    let _ = team.send(&letter("worker", "two")).unwrap();
    assert_eq!(texts(&mailbox.look().unwrap()), ["one", "two"]);
}
