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
use crate::core::message::{Block, Message};
use crate::core::text::one_line;
use crate::lead::{InputKind, Inputs, SessionInput};

/// Messages that were read and whose turn has not come; more stay in the pipe.
const AHEAD: usize = 16;

/// The messages on standard input, read by a thread of their own.
pub(super) fn messages() -> Result<Inputs, CliError> {
    let cant = |source| CliError::System { action: "read standard input", source };
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(cant)?);
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read =
        move || read_all(BufReader::new(Waiting(stdin)), output::tell, |said| sender.blocking_send(said).is_ok());
    std::thread::Builder::new().name("input".to_owned()).spawn(read).map_err(cant)?;
    Ok(Inputs { receiver, kind: InputKind::Messages })
}

/// What a line says.
#[derive(Debug, PartialEq)]
enum Line {
    /// A message.
    Message(SessionInput),
    /// Something to be left out; why, in words.
    Left(String),
    /// No line that could be understood; why.
    Broken(String),
}

/// Reads until the end, a line that is none, or until nobody wants more.
fn read_all(mut input: impl BufRead, tell: impl Fn(&str), mut say: impl FnMut(SessionInput) -> bool) {
    let mut bytes = Vec::new();
    for number in 1u64.. {
        bytes.clear();
        let broken = match (&mut input).take(limits::ENTRY_BYTES as u64 + 1).read_until(b'\n', &mut bytes) {
            Ok(0) => return,
            Ok(_) if bytes.len() > limits::ENTRY_BYTES => format!("it has more than {} bytes", limits::ENTRY_BYTES),
            Ok(_) if bytes.trim_ascii().is_empty() => continue,
            Ok(_) => match parse(&bytes) {
                Line::Message(said) => {
                    if say(said) {
                        continue;
                    }
                    return;
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
    }
    let typed: Typed = match serde_json::from_slice(bytes) {
        Ok(typed) => typed,
        Err(error) => return Line::Broken(error.to_string()),
    };
    if typed.kind != "user" {
        return Line::Left(format!("lines of type {:?} are not supported here", one_line(&typed.kind, 40)));
    }
    let message: Message = match serde_json::from_value(typed.message) {
        Ok(message) => message,
        Err(error) => return Line::Broken(format!("its message is none: {error}")),
    };
    let strange = message.content.iter().find(|block| block.as_text().is_none());
    if let Some(block) = strange {
        let kind = match block {
            Block::Other(value) => value["type"].as_str().unwrap_or("unknown").to_owned(),
            Block::Known(_) => "tool".to_owned(),
        };
        return Line::Left(format!("content of type {:?} is not supported here, only text", one_line(&kind, 40)));
    }
    let text = message.text();
    if text.trim().is_empty() {
        return Line::Left("its message is empty".to_owned());
    }
    if text.len() > limits::PROMPT_BYTES {
        return Line::Broken(format!("a message may have {} bytes", limits::PROMPT_BYTES));
    }
    Line::Message(SessionInput::Message { text, id: typed.uuid })
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
            |what| {
                said.borrow_mut().push(what);
                true
            },
        );
        (said.into_inner(), told.into_inner())
    }

    fn message(text: &str) -> SessionInput {
        SessionInput::Message { text: text.to_owned(), id: None }
    }

    #[test]
    fn text_and_blocks_are_messages_and_the_last_line_needs_no_newline() {
        let (said, told) = read(concat!(
            r#"{"type":"user","message":{"role":"user","content":"one"},"session_id":"default","parent_tool_use_id":null}"#,
            "\n\n",
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"two"},{"type":"text","text":"2"}]},"uuid":"u"}"#,
        ));
        let with_id = SessionInput::Message { text: "two\n2".to_owned(), id: Some("u".to_owned()) };
        assert_eq!(said, [message("one"), with_id]);
        assert!(told.is_empty());
    }

    #[test]
    fn lines_of_other_types_are_told_of_and_left_out() {
        let (said, told) = read(concat!(
            r#"{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}"#,
            "\n",
            r#"{"type":"user","message":{"role":"user","content":[{"type":"image","source":{}}]}}"#,
            "\n",
            r#"{"type":"user","message":{"role":"user","content":"go"}}"#,
            "\n"
        ));
        assert_eq!(said, [message("go")]);
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("line 1") && told[0].contains("control_request"), "{told:?}");
        assert!(told[1].contains("line 2") && told[1].contains("image"), "{told:?}");
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
