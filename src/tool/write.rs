//! `Write`: makes a file, or replaces all of one that was read.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::edit::{activity, kept, told};
use super::files::blocking;
use super::patch::{difference, excerpt, structured};
use super::target::Target;
use super::text_file::{Encoding, decode, is_crlf};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write;

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Write".to_owned(),
            description: "Writes a file, making the folders it lies in. A file that exists is replaced as a whole; it \
                          must have been read before in this conversation, and not have changed since. To change \
                          parts of a file use Edit."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "file_path": {"type": "string", "description": "The file; a relative path starts at the working folder"},
                    "content": {"type": "string", "description": "All of what the file is to hold"}
                },
                "required": ["file_path", "content"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("Write", "Write", input.get("file_path"))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let input = input.clone();
        Box::pin(blocking(context, move |context| write(&input, context).unwrap_or_else(ToolOutput::error)))
    }
}

fn write(input: &Value, context: &ToolContext) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &["file_path", "content"])?;
    let path = arguments.required("file_path")?;
    let content = arguments.given("content")?;
    let target = Target::find(context, path)?;
    target.check_seen()?;
    let Some(existing) = &target.existing else {
        let done = target.replace(content.as_bytes())?;
        let lines = content.lines().count();
        let text = told(format!("{} was made ({lines} lines)", target.name()), &done.notes, "");
        return Ok(ToolOutput::ok(text).with(json!({
            "type": "create",
            "filePath": target.named,
            "content": content,
            "structuredPatch": [],
            "fileState": done.state,
        })));
    };
    // Of what is no text, or too much of it, no form can be kept.
    let old = existing.content.as_deref().and_then(|bytes| decode(bytes).ok());
    let (before, encoding) = old.unwrap_or((String::new(), Encoding::Utf8));
    // A model sees lines without their ends: if it gives none of these, it means those of the file.
    let after = match is_crlf(&before) && !content.contains("\r\n") {
        true => content.replace('\n', "\r\n"),
        false => content.to_owned(),
    };
    let done = target.replace(&encoding.encode(after.strip_prefix('\u{feff}').unwrap_or(&after)))?;
    let changes = difference(&before, &after);
    let notes = [if is_crlf(&after) { kept(&before, encoding) } else { kept("", encoding) }, done.notes].concat();
    let shown = excerpt(&before, &after, &changes);
    let what = if changes.is_empty() { "was written as it was before" } else { "was replaced" };
    Ok(ToolOutput::ok(told(format!("{} {what}", target.name()), &notes, &shown)).with(json!({
        "type": "update",
        "filePath": target.named,
        "content": content,
        "structuredPatch": structured(&before, &after, &changes),
        "fileState": done.state,
    })))
}
