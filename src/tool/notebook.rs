//! Notebooks (nbformat 4): what their cells are, and how one is changed. Pure.
//!
//! Only the changed cell is written anew; all other bytes of the file stay as they are, with fields
//! nobody here knows, number formats and white space.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize as _};
use serde_json::ser::PrettyFormatter;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::core::text::cap;

/// Characters of an output that are shown.
const OUTPUT_CHARS: usize = 2000;
/// Ids that an error names.
const NAMED: usize = 50;

/// Whether a file's name says that it is one.
pub(super) fn is_named_so(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ipynb")
}

/// The kinds of cell that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellType {
    Code,
    Markdown,
}

impl CellType {
    pub(super) fn parse(word: Option<&str>) -> Result<Option<Self>, String> {
        match word {
            None => Ok(None),
            Some("code") => Ok(Some(Self::Code)),
            Some("markdown") => Ok(Some(Self::Markdown)),
            Some(other) => Err(format!("there is no cell_type {other:?}; types: code, markdown")),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Markdown => "markdown",
        }
    }
}

/// A notebook as its file holds it.
#[derive(Debug)]
pub(super) struct Notebook<'a> {
    text: &'a str,
    /// Where the list of cells is, brackets included.
    list: Range<usize>,
    cells: Vec<Cell>,
    has_ids: bool,
    version: String,
    language: String,
}

#[derive(Debug)]
struct Cell {
    span: Range<usize>,
    fields: Map<String, Value>,
}

impl Cell {
    fn kind(&self) -> &str {
        self.fields.get("cell_type").and_then(Value::as_str).unwrap_or("code")
    }

    /// Its id, or `cell-N` where it has none.
    fn id(&self, at: usize) -> String {
        let id = self.fields.get("id").and_then(Value::as_str);
        id.map_or_else(|| format!("cell-{at}"), str::to_owned)
    }

    fn source(&self) -> String {
        joined(self.fields.get("source"))
    }
}

impl<'a> Notebook<'a> {
    /// Reads a file's text.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct File<'b> {
            nbformat: u64,
            #[serde(default)]
            nbformat_minor: u64,
            #[serde(default)]
            metadata: Value,
            #[serde(borrow)]
            cells: &'b RawValue,
        }
        let file: File<'a> = serde_json::from_str(text).map_err(|e| format!("is no notebook of format 4: {e}"))?;
        if file.nbformat != 4 {
            return Err(format!("is a notebook of format {}; only format 4 is understood", file.nbformat));
        }
        let span = |part: &RawValue| {
            let start = part.get().as_ptr().addr() - text.as_ptr().addr();
            start..start + part.get().len()
        };
        let raw: Vec<&RawValue> =
            serde_json::from_str(file.cells.get()).map_err(|e| format!("has no list of cells: {e}"))?;
        let cell = |(at, raw): (usize, &&RawValue)| {
            let fields = serde_json::from_str(raw.get()).map_err(|e| format!("has a broken cell {at}: {e}"))?;
            Ok(Cell { span: span(raw), fields })
        };
        let info = |pointer: &str| file.metadata.pointer(pointer).and_then(Value::as_str);
        let language = info("/language_info/name").or(info("/kernelspec/language")).unwrap_or("python").to_owned();
        Ok(Self {
            text,
            list: span(file.cells),
            cells: raw.iter().enumerate().map(cell).collect::<Result<_, String>>()?,
            has_ids: file.nbformat_minor >= 5,
            version: format!("4.{}", file.nbformat_minor),
            language,
        })
    }

    /// The language of its code.
    pub(super) fn language(&self) -> &str {
        &self.language
    }

    /// The place of the cell with this id, or of number N by `cell-N`, counted from 0.
    pub(super) fn find(&self, id: &str) -> Result<usize, String> {
        let with_id: Vec<usize> = (0..self.cells.len()).filter(|at| self.cells[*at].id(*at) == id).collect();
        let number = id.strip_prefix("cell-").and_then(|n| n.parse::<usize>().ok()).filter(|n| *n < self.cells.len());
        match (with_id.as_slice(), number) {
            ([one], _) => Ok(*one),
            ([], Some(number)) => Ok(number),
            ([], None) => Err(format!("there is no cell {id:?}; {}", self.ids())),
            (several, _) => Err(format!(
                "{} cells have the id {id:?}; name one by its number: cell-{}",
                several.len(),
                several.iter().map(usize::to_string).collect::<Vec<_>>().join(", cell-")
            )),
        }
    }

    /// `the cells are a1 (code), cell-1 (markdown)`.
    pub(super) fn ids(&self) -> String {
        let named =
            self.cells.iter().enumerate().take(NAMED).map(|(at, cell)| format!("{} ({})", cell.id(at), cell.kind()));
        let more = self.cells.len().checked_sub(NAMED + 1).map_or(String::new(), |n| format!(" and {} more", n + 1));
        match self.cells.len() {
            0 => "there are no cells yet".to_owned(),
            _ => format!("the cells are {}{more}", named.collect::<Vec<_>>().join(", ")),
        }
    }

    /// Id and kind of a cell.
    pub(super) fn describe(&self, at: usize) -> (String, String) {
        (self.cells[at].id(at), self.cells[at].kind().to_owned())
    }

    /// The file's text with another source in a cell, whose outputs go.
    pub(super) fn replace(&self, at: usize, source: &str, kind: Option<CellType>) -> String {
        let Cell { span, fields } = &self.cells[at];
        let mut fields = fields.clone();
        let as_text = matches!(fields.get("source"), Some(Value::String(_)));
        fields.insert("source".to_owned(), if as_text { json!(source) } else { source_lines(source) });
        if let Some(kind) = kind {
            fields.insert("cell_type".to_owned(), json!(kind.word()));
        }
        if fields.get("cell_type").is_some_and(|kind| kind == "code") {
            fields.insert("execution_count".to_owned(), Value::Null);
            fields.insert("outputs".to_owned(), json!([]));
            fields.shift_remove("attachments");
        } else {
            fields.shift_remove("execution_count");
            fields.shift_remove("outputs");
        }
        let cell = self.written(&fields);
        [&self.text[..span.start], &cell, &self.text[span.end..]].concat()
    }

    /// The file's text with a new cell at this place, and the cell's id.
    pub(super) fn insert(&self, at: usize, source: &str, kind: CellType) -> (String, String) {
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| drop(fields.insert(key.to_owned(), value));
        let mut id = format!("cell-{at}");
        put("cell_type", json!(kind.word()));
        if kind == CellType::Code {
            put("execution_count", Value::Null);
        }
        if self.has_ids {
            id = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
            put("id", json!(id));
        }
        put("metadata", json!({}));
        if kind == CellType::Code {
            put("outputs", json!([]));
        }
        put("source", source_lines(source));
        let cell = self.written(&fields);
        let between = match self.cells.as_slice() {
            [first, second, ..] => self.text[first.span.end..second.span.start].to_owned(),
            _ => format!(",{}", self.before_first()),
        };
        let text = self.text;
        let text = match (at.checked_sub(1).map(|before| &self.cells[before]), self.cells.first()) {
            (Some(before), _) => [&text[..before.span.end], &between, &cell, &text[before.span.end..]].concat(),
            (None, Some(first)) => [&text[..first.span.start], &cell, &between, &text[first.span.start..]].concat(),
            (None, None) => {
                let (before, after) = (self.before_first(), self.after_last());
                [&text[..=self.list.start], &before, &cell, &after, &text[self.list.end - 1..]].concat()
            }
        };
        (text, id)
    }

    /// The file's text without a cell.
    pub(super) fn delete(&self, at: usize) -> String {
        let gone = match (at.checked_sub(1), self.cells.get(at + 1)) {
            (Some(before), _) => self.cells[before].span.end..self.cells[at].span.end,
            (None, Some(next)) => self.cells[at].span.start..next.span.start,
            (None, None) => self.list.start + 1..self.list.end - 1,
        };
        [&self.text[..gone.start], &self.text[gone.end..]].concat()
    }

    /// White space in front of the first cell.
    fn before_first(&self) -> String {
        match self.cells.first() {
            Some(first) => self.text[self.list.start + 1..first.span.start].to_owned(),
            None => self.line_break().map_or(String::new(), |(end, indent)| format!("{end}{indent}{indent}")),
        }
    }

    /// White space behind the last cell, where there is none yet.
    fn after_last(&self) -> String {
        self.line_break().map_or(String::new(), |(end, indent)| format!("{end}{indent}"))
    }

    /// How lines end and how far the list's own line is indented; none if all is on one line.
    fn line_break(&self) -> Option<(&'a str, &'a str)> {
        let before = &self.text[..self.list.start];
        let newline = before.rfind('\n')?;
        let end = if before[..newline].ends_with('\r') { "\r\n" } else { "\n" };
        let line = &before[newline + 1..];
        Some((end, &line[..line.len() - line.trim_start().len()]))
    }

    /// A cell in the style of the file.
    fn written(&self, fields: &Map<String, Value>) -> String {
        let before = self.before_first();
        let Some(newline) = before.rfind('\n') else {
            return Value::Object(fields.clone()).to_string();
        };
        let indent = &before[newline + 1..];
        // A cell is two levels deep.
        let unit = &indent.as_bytes()[..indent.len() / 2];
        let mut out = Vec::new();
        let mut writer = serde_json::Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(unit));
        // Writing values into memory does not fail.
        let _ = fields.serialize(&mut writer);
        let end = if before[..newline].ends_with('\r') { "\r\n" } else { "\n" };
        String::from_utf8_lossy(&out).replace('\n', &format!("{end}{indent}"))
    }
}

/// A notebook as a model reads it: each cell with its id, and what it put out.
pub(super) fn render(text: &str) -> Result<String, String> {
    let notebook = Notebook::parse(text)?;
    let mut out = format!("[notebook of format {}, {}]\n", notebook.version, notebook.language);
    for (at, cell) in notebook.cells.iter().enumerate() {
        let source = cell.source();
        let newline = if source.is_empty() || source.ends_with('\n') { "" } else { "\n" };
        out.push_str(&format!("<cell id=\"{}\" type=\"{}\">\n{source}{newline}</cell>\n", cell.id(at), cell.kind()));
        for output in cell.fields.get("outputs").and_then(Value::as_array).into_iter().flatten() {
            let text = cap(&output_text(output), OUTPUT_CHARS, |all| format!("[output cut: {all} characters in all]"));
            out.push_str(&format!("<output>\n{}\n</output>\n", text.trim_end_matches('\n')));
        }
    }
    Ok(out)
}

fn output_text(output: &Value) -> String {
    let text = match output.get("output_type").and_then(Value::as_str) {
        Some("stream") => joined(output.get("text")),
        Some("error") => {
            let word = |key: &str| output.get(key).and_then(Value::as_str).unwrap_or_default();
            let trace = output.get("traceback").and_then(Value::as_array).into_iter().flatten();
            let trace: Vec<&str> = trace.filter_map(Value::as_str).collect();
            format!("{}: {}\n{}", word("ename"), word("evalue"), trace.join("\n"))
        }
        _ => {
            let data = output.get("data").and_then(Value::as_object);
            let plain = data.and_then(|data| data.get("text/plain"));
            let others = data.into_iter().flat_map(Map::keys).filter(|kind| *kind != "text/plain");
            let others: Vec<String> = others.map(|kind| format!("[{kind}, not shown]")).collect();
            let parts = plain.map(|text| joined(Some(text))).into_iter().chain(others);
            parts.collect::<Vec<_>>().join("\n")
        }
    };
    without_colours(&text)
}

/// Without what colours text on a terminal.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').get(1..).unwrap_or_default());
    }
    out
}

/// Text that is one string or a list of lines.
fn joined(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn source_lines(source: &str) -> Value {
    source.split_inclusive('\n').collect::<Vec<_>>().into()
}

#[cfg(test)]
#[path = "notebook_tests.rs"]
mod tests;
