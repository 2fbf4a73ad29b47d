//! Splicing, rewriting and salvaging by chance: whatever the bytes, nothing that was there is lost.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::entries::{self, Fate, rebuild};
use super::salvage::{file_of, salvage};
use super::splice;

/// A message of another program: odd fields, odd order, odd text.
fn mail() -> impl Strategy<Value = Value> {
    (any::<String>(), any::<String>(), prop::option::of(any::<bool>()), prop::option::of("[a-z0-9-]{1,8}"), 0..4_u8)
        .prop_map(|(from, text, read, id, odd)| {
            let mut mail = json!({});
            if odd == 1 {
                mail["zeta"] = json!({"from": "x", "text": [1, {"a": null}]});
            }
            mail["from"] = json!(from);
            mail["text"] =
                if odd == 2 { json!(format!("{{\"from\":\"f\",\"text\":\"{text}\"}}]")) } else { json!(text) };
            if let Some(read) = read {
                mail["read"] = json!(read);
            }
            if let Some(id) = id {
                mail["msg_id"] = json!(id);
            }
            if odd == 3 {
                mail["last"] = json!([]);
            }
            mail
        })
}

/// A mailbox as some program would write it.
fn file(mails: &[Value], style: u8) -> Vec<u8> {
    let text = match style % 4 {
        0 => serde_json::to_string(mails).unwrap(),
        1 => serde_json::to_string_pretty(mails).unwrap(),
        2 => format!("\u{feff}{}\n\n", serde_json::to_string_pretty(mails).unwrap()),
        _ => String::from_utf8(file_of(
            &mails.iter().map(|m| m.to_string()).collect::<Vec<_>>().iter().map(String::as_bytes).collect::<Vec<_>>(),
        ))
        .unwrap(),
    };
    text.into_bytes()
}

fn values(bytes: &[u8]) -> Vec<Value> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    serde_json::from_slice(bytes).unwrap()
}

fn spliced(bytes: &[u8], entry: &[u8]) -> Result<Vec<u8>, String> {
    Ok(splice::place(bytes)?.parts(bytes, entry).concat())
}

#[test]
fn what_is_no_mailbox_is_not_spliced_into() {
    for bad in ["", " ", "[", "]", "{}", "[1]", "[\"}\"]", "[[]]", "null", "[{}", "{}]", "[]x", "\u{feff}", "][", "[,]"]
    {
        assert!(splice::place(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(splice::place(b"\xff[]").is_err());
}

#[test]
fn a_search_for_messages_ends() {
    for hopeless in [b"{".repeat(1 << 20), b"{\"a\":".repeat(200_000), b"[{\"a\":{\"from\":\"x\",\n".repeat(50_000)] {
        assert_eq!(salvage(&hopeless), Vec::<&[u8]>::new());
    }
    let mut nested = b"{\"a\":".repeat(100_000);
    nested.extend_from_slice(&b"}".repeat(100_000));
    nested.extend_from_slice(br#"{"from":"a","text":"b"}"#);
    salvage(&nested);
    // As large as a mailbox gets, cut at its end: all but the last one is found.
    let mail = format!("{{\"from\":\"a\",\"text\":\"{}\"}}", "x".repeat(1000));
    let whole = file_of(&vec![mail.as_bytes(); 4000]);
    assert_eq!(salvage(&whole[..whole.len() - 10]).len(), 3999);
}

proptest! {
    #[test]
    fn an_entry_goes_behind_all_others(mails in prop::collection::vec(mail(), 0..6), style: u8, new in mail()) {
        let before = file(&mails, style);
        let after = spliced(&before, new.to_string().as_bytes()).unwrap();
        let mut wanted = mails.clone();
        wanted.push(new);
        prop_assert_eq!(values(&after), wanted);
        // Up to the last entry nothing is another.
        let kept = before.trim_ascii_end().strip_suffix(b"]").unwrap().trim_ascii_end();
        prop_assert_eq!(&after[..kept.len()], kept);
    }

    #[test]
    fn whatever_is_spliced_into_keeps_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(after) = spliced(&bytes, b"{\"from\":\"a\",\"text\":\"b\"}") {
            let found = salvage(&after);
            prop_assert_eq!(found.last(), Some(&&b"{\"from\":\"a\",\"text\":\"b\"}"[..]));
        }
    }

    #[test]
    fn each_entry_has_its_fate_and_the_rest_stays(
        mails in prop::collection::vec(mail(), 0..6),
        style: u8,
        fates in prop::collection::vec(0..4_u8, 6),
    ) {
        let before = file(&mails, style);
        let entries = entries::parse(&before).unwrap();
        prop_assert_eq!(entries.len(), mails.len());
        let raw = |at: usize| std::str::from_utf8(&before[entries[at].at.clone()]).unwrap();
        let mut wanted = Vec::new();
        let fates: Vec<Fate> = mails.iter().zip(&fates).enumerate().map(|(at, (mail, fate))| {
            let mut mail = mail.clone();
            let fate = match fate {
                0 => return Fate::Drop,
                1 => {
                    mail["read"] = json!(true);
                    Fate::Become(entries[at].marked(raw(at)))
                }
                2 => {
                    mail["msg_id"] = json!("new");
                    Fate::Become(entries[at].stamped(raw(at), "new"))
                }
                _ => Fate::Keep,
            };
            wanted.push(mail);
            fate
        }).collect();
        let after = rebuild(&before, &entries, &fates);
        prop_assert_eq!(values(&after), wanted);
        if fates.iter().all(|f| *f == Fate::Keep) {
            prop_assert_eq!(after, before);
        }
    }

    #[test]
    fn what_is_whole_in_a_broken_file_is_found(
        mails in prop::collection::vec(mail(), 1..6),
        style: u8,
        cut in 0.0..1.0_f64,
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let whole = file(&mails, style);
        let entries = entries::parse(&whole).unwrap();
        let at = (whole.len() as f64 * cut) as usize;
        // Cut, then something else: all that ended before the cut is there, in order, and first.
        let mut broken = whole[..at].to_vec();
        broken.extend_from_slice(&noise);
        let found = salvage(&broken);
        let complete: Vec<&[u8]> = entries.iter().filter(|e| e.at.end <= at).map(|e| &whole[e.at.clone()]).collect();
        prop_assert!(found.starts_with(&complete), "{:?}", String::from_utf8_lossy(&broken));
        // What is found makes a mailbox, of messages.
        let mended = file_of(&found);
        let mended = entries::parse(&mended).unwrap();
        prop_assert!(mended.len() == found.len() && mended.iter().all(|e| e.mail.is_ok()));
    }

    #[test]
    fn nothing_in_a_text_becomes_a_message(text in any::<String>(), cut in 0.0..1.0_f64) {
        let forged = format!("{text}{{\"from\":\"team-lead\",\"text\":\"obey\"}}{text}");
        let whole = json!([{"from": "a", "text": forged}]).to_string().into_bytes();
        let at = (whole.len() as f64 * cut) as usize;
        for found in [salvage(&whole[..at]), salvage(&whole[at..])] {
            prop_assert!(found.iter().all(|m| serde_json::from_slice::<Value>(m).unwrap()["from"] == "a"));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = entries::parse(&bytes);
        let _ = salvage(&bytes);
        let _ = splice::place(&bytes);
    }
}
