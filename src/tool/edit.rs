//! `Edit`: replaces a piece of a text file, once or everywhere.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::blocking;
use super::lines::name_lines;
use super::nearest::nearest;
use super::patch::{excerpt, structured};
use super::replace::Replaced;
use super::splice::{NoSplice, Spliced, Which, splice};
use super::target::Target;
use super::text_file::{Encoding, is_crlf};
use super::{BoxFuture, Tool, ToolContext, ToolOutput, notebook};
use crate::core::agent::Activity;
use crate::core::limits::EDIT_BYTES;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edit;

impl Tool for Edit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Edit".to_owned(),
            description: "Replaces old_string in a file by new_string. The file must have been read before in this \
                          conversation, and not have changed since. old_string is the file's text exactly as it is, \
                          with its indentation and without the line numbers that Read shows; it must occur only \
                          once: add lines around it until it does, or set replace_all to change every place. Line \
                          ends, encoding and permissions of the file stay as they are. An empty old_string makes a \
                          new file. For a notebook use NotebookEdit."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "file_path": {"type": "string", "description": "The file; a relative path starts at the working folder"},
                    "old_string": {"type": "string", "description": "The text to replace"},
                    "new_string": {"type": "string", "description": "The text to put in its place; empty removes it"},
                    "replace_all": {"type": "boolean", "default": false, "description": "Replace every place (default false)"}
                },
                "required": ["file_path", "old_string", "new_string"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("Edit", "Edit", input.get("file_path"))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let input = input.clone();
        Box::pin(blocking(context, move |context| edit(&input, context).unwrap_or_else(ToolOutput::error)))
    }
}

/// What a call that changes a file does, for lists.
pub(super) fn activity(tool: &str, verb: &str, path: Option<&Value>) -> Activity {
    let path = path.and_then(Value::as_str).unwrap_or_default();
    Activity {
        tool: tool.to_owned(),
        description: format!("{verb} {}", one_line(path, 80)),
        is_search: false,
        is_read: false,
    }
}

fn edit(input: &Value, context: &ToolContext) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &["file_path", "old_string", "new_string", "replace_all"])?;
    let path = arguments.required("file_path")?;
    let (old, new) = (arguments.given("old_string")?, arguments.given("new_string")?);
    let which = if arguments.flag("replace_all")?.unwrap_or(false) { Which::All } else { Which::Only };
    if old == new {
        return Err("old_string and new_string are the same: nothing would change".to_owned());
    }
    let target = Target::find(context, path)?;
    if target.existing.is_none() && old.is_empty() {
        let done = target.replace(new.as_bytes())?;
        let text = told(format!("{} was made", target.name()), &done.notes, "");
        return Ok(answer(&target, text, old, new, which, (json!([]), &done)));
    }
    // What can't be edited at all is said before the advice to read it.
    let (text, encoding) = target.text()?;
    if notebook::is_named_so(&target.path) && notebook::Notebook::parse(&text).is_ok() {
        return Err(format!("{} is a notebook: use NotebookEdit", target.name()));
    }
    target.check_seen()?;
    let spliced = match (old.is_empty(), text.is_empty()) {
        (true, false) => {
            return Err(format!(
                "old_string is empty, and {} exists and is not: give the text to replace, or use Write to replace all \
                 of it",
                target.name()
            ));
        }
        (true, true) => Spliced { text: new.to_owned(), changes: super::patch::difference("", new) },
        (false, _) => splice(&text, old, new, which).map_err(|why| refusal(&target, &text, old, &why))?,
    };
    let done = target.replace(&encoding.encode(&spliced.text))?;
    let places = match spliced.changes.len() {
        1 => String::new(),
        places => format!(" in {places} places"),
    };
    let shown = excerpt(&text, &spliced.text, &spliced.changes);
    let notes = [kept(&text, encoding), done.notes.clone()].concat();
    let told = told(format!("{} was changed{places}", target.name()), &notes, &shown);
    let patch = structured(&text, &spliced.text, &spliced.changes);
    Ok(answer(&target, told, old, new, which, (patch, &done)))
}

fn answer(
    target: &Target<'_>,
    text: String,
    old: &str,
    new: &str,
    which: Which,
    (patch, done): (Value, &Replaced),
) -> ToolOutput {
    ToolOutput::ok(text).with(json!({
        "filePath": target.named,
        "oldString": old,
        "newString": new,
        "replaceAll": which == Which::All,
        "structuredPatch": patch,
        "fileState": done.state,
    }))
}

/// The answer of a tool that changed a file: what was done, notes, and how it looks now.
pub(super) fn told(what: String, notes: &[String], shown: &str) -> String {
    let mut text = what;
    for note in notes {
        text.push_str("; ");
        text.push_str(note);
    }
    text.push('.');
    if !shown.is_empty() {
        text.push_str("\nNow:\n");
        text.push_str(shown);
    }
    text
}

/// What of the file's form was kept that the model does not see.
pub(super) fn kept(text: &str, encoding: Encoding) -> Vec<String> {
    let ends = is_crlf(text).then(|| "its CRLF line ends were kept".to_owned());
    let form = encoding.name().map(|name| format!("it stays {name}"));
    ends.into_iter().chain(form).collect()
}

/// Why nothing was changed, and what to do.
fn refusal(target: &Target<'_>, text: &str, old: &str, why: &NoSplice) -> String {
    let name = target.name();
    match why {
        NoSplice::Same { but_line_ends: false } => "old_string and new_string are the same".to_owned(),
        NoSplice::Same { but_line_ends: true } => format!(
            "old_string and new_string differ only in how lines end, which Edit keeps as it is in {name}; change that \
             with a command, such as sed"
        ),
        NoSplice::Absent => format!("old_string was not found in {name}: {}", nearest(text, old)),
        NoSplice::Several { count, lines } => format!(
            "old_string occurs {count} times in {name}, in {}: give more of the lines around the one you mean, or set \
             replace_all to change all",
            name_lines(lines)
        ),
        NoSplice::TooMany => format!("old_string occurs too often in {name}; change it with a command, such as sed"),
        NoSplice::TooLarge { bytes } => {
            format!("{name} would have {bytes} bytes, and files of more than {EDIT_BYTES} can't be edited")
        }
    }
}
