//! `Read`: lines of a text file, numbered. Streams, so the size of the file does not matter, and
//! never waits on a pipe or device.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{NOTICE_ROOM, blocking, open_regular, shown};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::limits::TOOL_OUTPUT_CHARS;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;

const LINES: usize = 2000;
const LINE_CHARS: usize = 2000;
/// Most bytes of a line that are kept; a character has at most four.
const LINE_BYTES: usize = LINE_CHARS * 4;
const CHUNK_BYTES: u64 = 64 * 1024;
/// A file with a null byte in its first this many bytes is binary.
const PROBE_BYTES: usize = 8192;
/// Entries of a folder that are compared with a name that was not found.
const SIBLINGS: usize = 10_000;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read;

impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Read".to_owned(),
            description: "Reads a text file and returns its lines with their numbers, as `cat -n` would. By default \
                          the first 2000 lines; use offset and limit for other parts of a long file. Lines over 2000 \
                          characters are cut. Folders can't be read: use Glob. Several files can be read in one \
                          message."
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
        Box::pin(blocking(context, move |context| read(&input, context).unwrap_or_else(ToolOutput::error)))
    }
}

fn read(input: &Value, context: &ToolContext) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &["file_path", "offset", "limit", "pages"])?;
    if arguments.text("pages")?.is_some_and(|pages| !pages.is_empty()) {
        return Err("`pages` is for PDF files, which can't be read here; use offset and limit for text".to_owned());
    }
    let path = context.cwd.join(arguments.required("file_path")?);
    let first = arguments.count("offset")?.unwrap_or(1).max(1);
    let limit = match arguments.count("limit")? {
        Some(0) => return Err("`limit` is 0, expected at least 1".to_owned()),
        limit => limit.unwrap_or(LINES),
    };
    let (file, metadata) = open_regular(&path).map_err(|error| explain(&path, &error))?;
    let mut lines = Lines { reader: BufReader::with_capacity(64 * 1024, file), chunk: Vec::new(), number: 0 };
    let broken = |error: io::Error| format!("{} can't be read: {error}", shown(&path));
    if lines.look_binary().map_err(broken)? {
        return Err(format!(
            "{} is a binary file ({} bytes), which can't be shown as text",
            shown(&path),
            metadata.len()
        ));
    }
    let mut out = String::new();
    let mut characters = 0;
    let mut count = 0;
    let mut notice = None;
    let more = |next: usize| format!("[lines {first} to {}; more follow: continue with offset {next}]", next - 1);
    while notice.is_none() {
        if count == limit {
            notice = (!lines.is_at_end().map_err(broken)?).then(|| more(lines.number + 1));
            break;
        }
        let wanted = lines.number + 1 >= first;
        let Some(line) = lines.next(wanted).map_err(broken)? else { break };
        let text = if wanted { numbered(lines.number, &line) } else { String::new() };
        characters += text.chars().count();
        if context.cancel.is_cancelled() {
            notice = Some("[cancelled]".to_owned());
        } else if characters > TOOL_OUTPUT_CHARS - NOTICE_ROOM {
            notice = Some(more(lines.number));
        } else if wanted {
            out.push_str(&text);
            count += 1;
        }
    }
    if count == 0 && notice.is_none() {
        return match lines.number {
            0 => Ok(ToolOutput::ok("[the file is empty]")),
            total => Err(format!("offset {first} is beyond the end: {} has {total} lines", shown(&path))),
        };
    }
    out.push_str(&notice.unwrap_or_default());
    let structured = json!({"type": "text", "file": {"filePath": path, "startLine": first, "numLines": count}});
    Ok(ToolOutput::ok(out.trim_end_matches('\n')).with(structured))
}

/// One line of a file, cut to what is shown.
struct Line {
    /// The beginning.
    kept: Vec<u8>,
    /// Length in bytes, without the newline.
    length: usize,
}

struct Lines {
    reader: BufReader<File>,
    chunk: Vec<u8>,
    /// Number of the line read last.
    number: usize,
}

impl Lines {
    fn look_binary(&mut self) -> io::Result<bool> {
        let start = self.reader.fill_buf()?;
        Ok(start[..start.len().min(PROBE_BYTES)].contains(&0))
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }

    /// The next line, or `None` at the end; an unwanted one is only counted.
    fn next(&mut self, wanted: bool) -> io::Result<Option<Line>> {
        let mut line = Line { kept: Vec::new(), length: 0 };
        let mut begun = false;
        loop {
            self.chunk.clear();
            // In pieces, since a line may be as long as the file.
            (&mut self.reader).take(CHUNK_BYTES).read_until(b'\n', &mut self.chunk)?;
            let ended = self.chunk.last() == Some(&b'\n');
            let part = &self.chunk[..self.chunk.len() - usize::from(ended)];
            if wanted && line.kept.len() < LINE_BYTES {
                line.kept.extend_from_slice(&part[..part.len().min(LINE_BYTES - line.kept.len())]);
            }
            line.length += part.len();
            if ended || self.chunk.is_empty() {
                begun |= ended;
                self.number += usize::from(begun);
                return Ok(begun.then_some(line));
            }
            begun = true;
        }
    }
}

fn numbered(number: usize, line: &Line) -> String {
    let text = String::from_utf8_lossy(&line.kept);
    match text.char_indices().nth(LINE_CHARS) {
        None if line.length == line.kept.len() => format!("{number:>6}\t{text}\n"),
        cut => {
            let end = cut.map_or(text.len(), |(at, _)| at);
            format!("{number:>6}\t{} [line cut: {} bytes in all]\n", &text[..end], line.length)
        }
    }
}

/// Why a file can't be opened, and what to do instead.
fn explain(path: &Path, error: &io::Error) -> String {
    let name = shown(path);
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no file {name}{}", alternatives(path)),
        io::ErrorKind::IsADirectory => format!("{name} is a folder; use Glob with `path` set to it to see its files"),
        io::ErrorKind::PermissionDenied => format!("{name} can't be read: the system denies access"),
        _ => format!("{name} can't be read: {error}"),
    }
}

/// `; similar names there: a, b`, or the folder that is missing.
fn alternatives(path: &Path) -> String {
    let (Some(folder), Some(wanted)) = (path.parent(), path.file_name()) else { return String::new() };
    let Ok(entries) = std::fs::read_dir(folder) else {
        let existing = folder.ancestors().find(|f| f.is_dir());
        return existing.map_or(String::new(), |f| format!("; the path exists up to {}", shown(f)));
    };
    let wanted = wanted.to_string_lossy().to_lowercase();
    let most = 1 + wanted.chars().count() / 3;
    let mut close: Vec<(usize, String)> = entries
        .take(SIBLINGS)
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            // Names of very different length are not worth the comparison.
            let distance =
                (name.len().abs_diff(wanted.len()) <= 4 * most).then(|| distance(&wanted, &name.to_lowercase()))?;
            (distance <= most).then_some((distance, name))
        })
        .collect();
    close.sort_unstable();
    let names: Vec<String> = close.into_iter().take(3).map(|(_, name)| shown(Path::new(&name))).collect();
    if names.is_empty() { String::new() } else { format!("; similar names there: {}", names.join(", ")) }
}

/// How many characters must be added, dropped or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
