//! `Read`: lines of a text file, numbered; the cells of a notebook; an image. Streams, so the size of
//! the file does not matter, and never waits on a pipe or device.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{NOTICE_ROOM, blocking_with, open_regular, shown};
use super::folder_instructions::block;
use super::lines::Lines;
use super::missing::explain;
use super::seen::{Hashing, hash, read_whole, state_of};
use super::text_file::{Encoding, decode, looks_binary};
use super::{BoxFuture, Tool, ToolContext, ToolOutput, image, notebook};
use crate::core::agent::Activity;
use crate::core::knowledge::SHOWN_INSTRUCTIONS;
use crate::core::limits::{EDIT_BYTES, TOOL_OUTPUT_CHARS};
use crate::core::message::ToolSpec;
use crate::core::text::one_line;
use crate::settings::instructions::InstructionFile;

const LINES: usize = 2000;
const BUFFER_BYTES: usize = 64 * 1024;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read;

impl Tool for Read {
    fn name(&self) -> Cow<'_, str> {
        "Read".into()
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Read".to_owned(),
            description: "Reads a text file and returns its lines with their numbers, as `cat -n` would. By default \
                          the first 2000 lines; use offset and limit for other parts of a long file. Lines over 2000 \
                          characters are cut. A notebook (.ipynb) is shown as its cells with their ids and outputs; \
                          PNG, JPEG, GIF and WebP images are shown as images. Folders can't be read: use Glob. \
                          Several files can be read in one message. A file must be read before it can be changed."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "file_path": {"type": "string", "description": "The file; a relative path starts at the working folder"},
                    "offset": {"type": "integer", "minimum": 0, "description": "First line to read, counted from 1"},
                    "limit": {"type": "integer", "exclusiveMinimum": 0, "description": "How many lines to read"}
                },
                "required": ["file_path"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn describe(&self, input: &Value) -> Activity {
        let path = input.get("file_path").and_then(Value::as_str).unwrap_or_default();
        Activity {
            tool: "Read".to_owned(),
            description: format!("Read {}", one_line(path, 80)),
            is_search: false,
            is_read: true,
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let input = input.clone();
        Box::pin(async move {
            let work = move |context: &ToolContext| -> Result<_, String> {
                let output = read(&input, context)?;
                let path = input.get("file_path").and_then(Value::as_str).unwrap_or_default();
                Ok((output, context.instructions.of(&context.cwd.join(path))))
            };
            let (output, found) = match blocking_with(context, work).await {
                Ok(Ok(read)) => read,
                Ok(Err(what)) => return ToolOutput::error(what),
                Err(failed) => return failed,
            };
            // Claimed here, where nothing can lose them any more: reads run side by side.
            match context.instructions.claim(found) {
                files if files.is_empty() => output,
                files => with_instructions(output, &files),
            }
        })
    }
}

/// The output with these files below it, which its structured result lists.
fn with_instructions(mut output: ToolOutput, files: &[InstructionFile]) -> ToolOutput {
    output.text.push_str(&block(files));
    let mut structured = output.structured.take().unwrap_or_else(|| json!({}));
    structured[SHOWN_INSTRUCTIONS] = files.iter().map(|file| json!(file.real)).collect();
    output.with(structured)
}

/// Which lines are wanted.
struct Part {
    first: usize,
    limit: usize,
}

/// What was read, before the agent's memory of it is added.
struct Shown {
    output: ToolOutput,
    sha256: Option<String>,
}

fn read(input: &Value, context: &ToolContext) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &["file_path", "offset", "limit", "pages"])?;
    if arguments.text("pages")?.is_some_and(|pages| !pages.is_empty()) {
        return Err("`pages` is for PDF files, which can't be read here; use offset and limit for text".to_owned());
    }
    let path = context.cwd.join(arguments.required("file_path")?);
    let part = Part {
        first: arguments.count("offset")?.unwrap_or(1).max(1),
        limit: match arguments.count("limit")? {
            Some(0) => return Err("`limit` is 0, expected at least 1".to_owned()),
            limit => limit.unwrap_or(LINES),
        },
    };
    let (file, metadata) = open_regular(&path).map_err(|error| explain(&path, &error))?;
    let Shown { mut output, sha256 } = show(&path, file, &metadata, &part, context)?;
    // What a cancel cut off was not seen.
    if !context.cancel.is_cancelled() {
        // The file's own name: a change by way of a link is a change of the same file.
        let real: PathBuf = path.canonicalize().unwrap_or_else(|_| path.clone());
        let state = state_of(&real, &metadata, sha256);
        if let Some(Value::Object(structured)) = &mut output.structured {
            structured.insert("fileState".to_owned(), json!(state));
        }
        context.state().see(state);
    }
    Ok(output)
}

/// Shows a file in the way that fits what it is.
fn show(path: &Path, file: File, metadata: &Metadata, part: &Part, context: &ToolContext) -> Result<Shown, String> {
    let broken = |error: io::Error| format!("{} can't be read: {error}", shown(path));
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, Hashing::new(file, metadata.len()));
    let start = reader.fill_buf().map_err(broken)?;
    let encoding = Encoding::of(start);
    if let Some(kind) = image::Kind::of(start) {
        let content = read_whole(reader).map_err(broken)?.ok_or_else(|| too_large(path, metadata))?;
        let output = image::show(&shown(path), kind, &content)?;
        return Ok(Shown { output, sha256: Some(hash(&content)) });
    }
    if start.starts_with(b"%PDF-") {
        return Err(format!(
            "{} is a PDF file ({} bytes), which can't be shown here; take its text out with a command, such as \
             pdftotext",
            shown(path),
            metadata.len()
        ));
    }
    if encoding.is_utf16() {
        let content = read_whole(reader).map_err(broken)?.ok_or_else(|| too_large(path, metadata))?;
        let (text, _) = decode(&content).map_err(|not| format!("{} {}", shown(path), not.explain()))?;
        let notes = encoding.name().map(|name| format!("[the file is {name}]"));
        let output = lines(path, text.as_bytes(), part, notes, context)?;
        return Ok(Shown { output, sha256: Some(hash(&content)) });
    }
    if looks_binary(start) {
        return Err(format!(
            "{} is a binary file ({} bytes), which can't be shown as text",
            shown(path),
            metadata.len()
        ));
    }
    if notebook::is_named_so(path) && metadata.len() <= EDIT_BYTES as u64 {
        let content = read_whole(reader).map_err(broken)?.ok_or_else(|| too_large(path, metadata))?;
        let cells = std::str::from_utf8(&content).ok().and_then(|text| notebook::render(text).ok());
        let output = match cells {
            Some(cells) => lines(path, cells.as_bytes(), part, None, context)?,
            // Broken ones are shown as they are, so that they can be mended.
            None => {
                let notice = Some("[this is no valid notebook; it is shown as plain text]".to_owned());
                lines(path, &content[..], part, notice, context)?
            }
        };
        return Ok(Shown { output, sha256: Some(hash(&content)) });
    }
    reader.consume(encoding.mark().len());
    let output = lines(path, &mut reader, part, None, context)?;
    let sha256 = reader.into_inner().finish().map_err(broken)?;
    Ok(Shown { output, sha256 })
}

fn too_large(path: &Path, metadata: &Metadata) -> String {
    format!("{} has {} bytes; files of its kind are shown up to {EDIT_BYTES}", shown(path), metadata.len())
}

/// The lines of `text` that are wanted, with numbers and with notices below.
fn lines(
    path: &Path,
    text: impl BufRead,
    part: &Part,
    note: Option<String>,
    context: &ToolContext,
) -> Result<ToolOutput, String> {
    let broken = |error: io::Error| format!("{} can't be read: {error}", shown(path));
    let Part { first, limit } = *part;
    let mut lines = Lines::new(text, &context.cancel);
    let mut out = String::new();
    let mut characters = 0;
    let mut count = 0;
    let (mut crlf, mut lossy) = (0, false);
    let mut end = None;
    let more = |next: usize| format!("[lines {first} to {}; more follow: continue with offset {next}]", next - 1);
    while end.is_none() {
        if count == limit {
            end = (!lines.is_at_end().map_err(broken)?).then(|| more(lines.number + 1));
            break;
        }
        let wanted = lines.number + 1 >= first;
        let Some(line) = lines.next(wanted).map_err(broken)? else { break };
        let text = if wanted { line.numbered(lines.number) } else { String::new() };
        characters += text.chars().count();
        if context.cancel.is_cancelled() {
            end = Some("[cancelled]".to_owned());
        } else if characters > TOOL_OUTPUT_CHARS - NOTICE_ROOM {
            end = Some(more(lines.number));
        } else if wanted {
            out.push_str(&text);
            count += 1;
            crlf += usize::from(line.is_crlf());
            lossy |= !line.is_text();
        }
    }
    let structured = json!({"type": "text", "file": {"filePath": path, "startLine": first, "numLines": count}});
    if count == 0 && end.is_none() {
        return match lines.number {
            0 => Ok(ToolOutput::ok("[the file is empty]").with(structured)),
            total => Err(format!("offset {first} is beyond the end: {} has {total} lines", shown(path))),
        };
    }
    let ends = (crlf > 0).then(|| match crlf == count {
        true => "[lines end with CRLF]".to_owned(),
        false => format!("[{crlf} of these lines end with CRLF]"),
    });
    let broken = lossy.then(|| "[not all of it is valid UTF-8: what is not is shown as \u{fffd}]".to_owned());
    let notices: Vec<String> = [end, note, ends, broken].into_iter().flatten().collect();
    out.push_str(&notices.join("\n"));
    Ok(ToolOutput::ok(out.trim_end_matches('\n')).with(structured))
}
