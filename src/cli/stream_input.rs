//! `--input-format stream-json`: a message of the person per line of standard input, each a turn.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::error::CliError;
use super::output;
use super::prompt::Waiting;
use crate::core::limits;
use crate::core::message::{Block, Known, Message, text_of};
use crate::core::text::one_line;
use crate::lead::{InputKind, Inputs, SessionInput};

/// What may be shown to a model beside text; it goes there as it is.
const SHOWN: [&str; 2] = ["image", "document"];

/// Messages that were read and whose turn has not come; more stay in the pipe.
const AHEAD: usize = 16;

/// The messages on standard input, read by a thread of their own. `refuse` is told of each request
/// that controls the session: its id, and why it is not carried out.
pub(super) fn messages(refuse: impl Fn(&Value, &str) + Send + 'static) -> Result<Inputs, CliError> {
    let cant = |source| CliError::System { action: "read standard input", source };
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(cant)?);
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read = move || {
        let say = |said| sender.blocking_send(said).is_ok();
        read_all(BufReader::new(Waiting(stdin)), output::tell, refuse, say);
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read).map_err(cant)?;
    Ok(Inputs { receiver, kind: InputKind::Messages })
}

/// What a line says.
#[derive(Debug, PartialEq)]
enum Line {
    /// A message, or that there was one that can't be taken.
    Said(SessionInput),
    /// A request to control the session, and its id.
    Control(Value),
    /// Something to be left out; why, in words.
    Left(String),
    /// No line that could be understood; why.
    Broken(String),
}

/// Why no request of that kind is carried out.
const NO_CONTROL: &str = "control requests are not supported; a signal (SIGINT, SIGTERM) ends the session";

/// Reads until the end, a line that is none, or until nobody wants more.
fn read_all(
    mut input: impl BufRead,
    tell: impl Fn(&str),
    refuse: impl Fn(&Value, &str),
    mut say: impl FnMut(SessionInput) -> bool,
) {
    let mut bytes = Vec::new();
    for number in 1u64.. {
        bytes.clear();
        let broken = match (&mut input).take(limits::ENTRY_BYTES as u64 + 1).read_until(b'\n', &mut bytes) {
            Ok(0) => return,
            Ok(_) if bytes.len() > limits::ENTRY_BYTES => format!("it has more than {} bytes", limits::ENTRY_BYTES),
            Ok(_) if bytes.trim_ascii().is_empty() => continue,
            Ok(_) => match parse(&bytes) {
                Line::Said(said) => {
                    if say(said) {
                        continue;
                    }
                    return;
                }
                Line::Control(id) => {
                    refuse(&id, NO_CONTROL);
                    continue;
                }
                Line::Left(why) => {
                    tell(&format!("lead: line {number} of standard input is left out: {why}"));
                    continue;
                }
                Line::Broken(why) => why,
            },
            Err(error) => format!("it can't be read: {error}"),
        };
        say(SessionInput::Unusable(format!("line {number} of standard input is no message: {broken}")));
        return;
    }
}

fn parse(bytes: &[u8]) -> Line {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        message: Value,
        #[serde(default)]
        uuid: Option<String>,
        #[serde(default)]
        request_id: Value,
    }
    let typed: Typed = match serde_json::from_slice(bytes) {
        Ok(typed) => typed,
        Err(error) => return Line::Broken(error.to_string()),
    };
    match typed.kind.as_str() {
        "user" => {}
        "control_request" => return Line::Control(typed.request_id),
        other => return Line::Left(format!("lines of type {:?} are not supported here", one_line(other, 40))),
    }
    let message: Message = match serde_json::from_value(typed.message) {
        Ok(message) => message,
        Err(error) => return Line::Broken(format!("its message is none: {error}")),
    };
    Line::Said(match content(message.content) {
        Ok((text, blocks)) => SessionInput::Message { text, blocks, id: typed.uuid },
        Err(why) => SessionInput::Refused(format!("the message can't be taken: {why}")),
    })
}

/// The text of a message, and all of its blocks if some are no text.
fn content(mut blocks: Vec<Block>) -> Result<(String, Vec<Block>), String> {
    for block in &mut blocks {
        let Block::Other(value) = block else { continue };
        let kind = value["type"].as_str().unwrap_or("unknown");
        if !SHOWN.contains(&kind) || !value["source"].is_object() {
            let kind = one_line(kind, 40);
            return Err(format!("content of type {kind:?} is not supported here, only text and {}", SHOWN.join(", ")));
        }
        // The marks are ours to set: a request may have four.
        if let Some(fields) = value.as_object_mut() {
            fields.shift_remove("cache_control");
        }
    }
    if blocks.iter().any(|block| matches!(block, Block::Known(known) if !matches!(known, Known::Text { .. }))) {
        return Err("tool calls and their results are not supported here".to_owned());
    }
    let text = text_of(&blocks);
    let has_more = blocks.iter().any(|block| block.as_text().is_none());
    if text.trim().is_empty() && !has_more {
        return Err("it is empty".to_owned());
    }
    let size = serde_json::to_vec(&blocks).map_or(usize::MAX, |json| json.len());
    if text.len() > limits::PROMPT_BYTES || (has_more && size > limits::PROMPT_BYTES) {
        return Err(format!("it may have {} bytes", limits::PROMPT_BYTES));
    }
    Ok((text, if has_more { blocks } else { Vec::new() }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn read(input: &str) -> (Vec<SessionInput>, Vec<String>) {
        let (said, told) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        read_all(
            input.as_bytes(),
            |text| told.borrow_mut().push(text.to_owned()),
            |id, why| told.borrow_mut().push(format!("refused {id}: {why}")),
            |what| {
                said.borrow_mut().push(what);
                true
            },
        );
        (said.into_inner(), told.into_inner())
    }

    fn message(text: &str) -> SessionInput {
        SessionInput::Message { text: text.to_owned(), blocks: vec![], id: None }
    }

    #[test]
    fn text_and_blocks_are_messages_and_the_last_line_needs_no_newline() {
        let (said, told) = read(concat!(
            r#"{"type":"user","message":{"role":"user","content":"one"},"session_id":"default","parent_tool_use_id":null}"#,
            "\n\n",
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"two"},{"type":"text","text":"2"}]},"uuid":"u"}"#,
        ));
        let with_id = SessionInput::Message { text: "two\n2".to_owned(), blocks: vec![], id: Some("u".to_owned()) };
        assert_eq!(said, [message("one"), with_id]);
        assert!(told.is_empty());
    }

    #[test]
    fn lines_of_other_types_are_told_of_and_left_out_and_control_requests_are_refused() {
        let (said, told) = read(concat!(
            r#"{"type":"control_request","request_id":"r-1","request":{"subtype":"interrupt"}}"#,
            "\n",
            r#"{"type":"keep_alive"}"#,
            "\n",
            r#"{"type":"control_request"}"#,
            "\n",
            r#"{"type":"user","message":{"role":"user","content":"go"}}"#,
            "\n"
        ));
        assert_eq!(said, [message("go")]);
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("refused \"r-1\": control requests are not supported"), "{told:?}");
        assert!(told[1].contains("line 2") && told[1].contains("keep_alive"), "{told:?}");
        assert!(told[2].starts_with("refused null"), "{told:?}");
    }

    fn said(content: &Value) -> SessionInput {
        let line = serde_json::json!({"type": "user", "message": {"role": "user", "content": content}});
        match parse(line.to_string().as_bytes()) {
            Line::Said(said) => said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn images_are_kept_as_they_are_and_what_is_not_known_is_refused() {
        let source = serde_json::json!({"type": "base64", "media_type": "image/png", "data": "aGk=", "x": [1.5]});
        let image = serde_json::json!({"type": "image", "source": source});
        let text = serde_json::json!({"type": "text", "text": "what is it?"});
        let mut marked = image.clone();
        marked["cache_control"] = serde_json::json!({"type": "ephemeral"});
        let SessionInput::Message { text: said_text, blocks, .. } = said(&serde_json::json!([marked, text])) else {
            panic!("no message")
        };
        assert_eq!(
            (said_text.as_str(), &blocks[..]),
            ("what is it?", &[Block::Other(image), Block::text("what is it?")][..])
        );

        for (content, part) in [
            (serde_json::json!([{"type": "image"}]), "image"),
            (serde_json::json!([{"type": "video", "source": {}}]), "video"),
            (serde_json::json!([text, 7]), "unknown"),
            (serde_json::json!([{"type": "tool_result", "tool_use_id": "t", "content": "x"}]), "tool calls"),
            (serde_json::json!(" "), "empty"),
            (serde_json::json!([]), "empty"),
            (serde_json::json!("x".repeat(limits::PROMPT_BYTES + 1)), "10485760"),
        ] {
            let SessionInput::Refused(why) = said(&content) else { panic!("{content}") };
            assert!(why.contains(part), "{why}");
        }
        assert!(matches!(said(&serde_json::json!("x".repeat(limits::PROMPT_BYTES))), SessionInput::Message { .. }));
        assert!(matches!(said(&serde_json::json!([{"type": "document", "source": {}}])), SessionInput::Message { .. }));
    }

    #[test]
    fn a_broken_line_is_named_and_ends_the_input() {
        for broken in ["{\"type\":\"user\"", "[]", "{\"type\":\"user\",\"message\":3}", "{}"] {
            let input =
                format!("{}\n{broken}\n{}\n", r#"{"type":"user","message":{"role":"user","content":"a"}}"#, "{}");
            let (said, _) = read(&input);
            assert_eq!(said.len(), 2, "{said:?}");
            let SessionInput::Unusable(why) = &said[1] else { panic!("{said:?}") };
            assert!(why.contains("line 2"), "{why}");
        }
    }

    #[test]
    fn a_line_is_read_up_to_its_limit_and_no_further() {
        let long = |len: usize| {
            let empty = r#"{"type":"x","pad":""}"#;
            format!(r#"{{"type":"x","pad":"{}"}}"#, "p".repeat(len - empty.len() - 1)) + "\n"
        };
        let (said, told) = read(&long(limits::ENTRY_BYTES));
        assert_eq!((said.len(), told.len()), (0, 1));
        let (said, _) = read(&long(limits::ENTRY_BYTES + 1));
        assert!(matches!(&said[..], [SessionInput::Unusable(why)] if why.contains("line 1")));
    }
}
