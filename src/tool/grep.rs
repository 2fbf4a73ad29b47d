//! `Grep`: files by content, with ripgrep's engine in this process.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{HidePath, blocking, deliver, newest_first, open_regular, search_root, shown, stopped, walk};
use super::grep_sink::{Mode, Page, Sight};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;

/// Larger files are only searched when they are named.
const FILE_BYTES: u64 = 64 << 20;
/// Most memory one search may take for a line, or with `multiline` for a file.
const HEAP_BYTES: usize = 64 << 20;

const PARAMETERS: [&str; 14] = [
    "pattern",
    "path",
    "glob",
    "output_mode",
    "-A",
    "-B",
    "-C",
    "context",
    "-n",
    "-i",
    "type",
    "head_limit",
    "offset",
    "multiline",
];

/// The tool.
#[derive(Clone, Default)]
pub struct Grep {
    hides: Option<HidePath>,
}

impl Grep {
    /// Leaves out the files that `hides` names.
    pub fn hiding(hides: HidePath) -> Self {
        Self { hides: Some(hides) }
    }
}

impl Tool for Grep {
    fn name(&self) -> Cow<'_, str> {
        "Grep".into()
    }

    fn spec(&self) -> ToolSpec {
        let count = |text: &str| json!({"type": "integer", "minimum": 0, "description": text});
        ToolSpec {
            name: "Grep".to_owned(),
            description: "Searches file contents for a regular expression (Rust syntax, as ripgrep). By default \
                          returns the files that match, the most recently changed first; output_mode content shows \
                          the lines, count how many there are per file. Files that .gitignore excludes and binary \
                          files are left out."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Regular expression"},
                    "path": {"type": "string", "description": "File or folder to search; default: the working folder"},
                    "glob": {"type": "string", "description": "Only files that match, such as `*.ts` or `src/**`; `!` excludes"},
                    "output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"]},
                    "-A": count("Lines shown after each match (content)"),
                    "-B": count("Lines shown before each match (content)"),
                    "-C": count("Lines shown before and after each match (content)"),
                    "context": count("The same as -C"),
                    "-n": {"type": "boolean", "description": "Line numbers (content); default true"},
                    "-i": {"type": "boolean", "description": "Ignore case"},
                    "type": {"type": "string", "description": "Only files of a type, such as rust, py, js"},
                    "head_limit": count("At most this many lines or files; 0 = all"),
                    "offset": count("Leave out this many lines or files at the beginning"),
                    "multiline": {"type": "boolean", "description": "Matches may span lines, and `.` matches newlines"}
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn describe(&self, input: &Value) -> Activity {
        let pattern = input.get("pattern").and_then(Value::as_str).unwrap_or_default();
        Activity {
            tool: "Grep".to_owned(),
            description: format!("Search for {}", one_line(pattern, 80)),
            is_search: true,
            is_read: false,
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let (input, hides) = (input.clone(), self.hides.clone());
        Box::pin(blocking(context, move |context| {
            search(&input, context, hides.as_ref()).unwrap_or_else(ToolOutput::error)
        }))
    }
}

/// What to search for and how to show it.
struct Query {
    matcher: RegexMatcher,
    searcher: Searcher,
    root: PathBuf,
    globs: Override,
    types: Types,
    mode: Mode,
    numbers: bool,
    /// Whether lines around matches are shown.
    surrounded: bool,
}

/// What was met on the way that the model should know.
#[derive(Default)]
struct Skipped {
    large: usize,
    failed: usize,
}

fn search(input: &Value, context: &ToolContext, hides: Option<&HidePath>) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &PARAMETERS)?;
    let mut query = Query::new(&arguments, context)?;
    let mut page = Page::new(arguments.count("offset")?, arguments.count("head_limit")?);
    let mut skipped = Skipped::default();
    let metadata =
        std::fs::metadata(&query.root).map_err(|error| format!("{} can't be searched: {error}", shown(&query.root)))?;
    let mut matching = Vec::new();
    if metadata.is_dir() {
        let mut walker = walk(&query.root);
        walker.sort_by_file_name(Ord::cmp);
        for entry in walker.build() {
            if context.cancel.is_cancelled() || page.is_full() {
                break;
            }
            let Ok(entry) = entry else {
                skipped.failed += 1;
                continue;
            };
            let path = entry.path();
            if !entry.file_type().is_some_and(|t| t.is_file()) || !query.selects(path) || hides.is_some_and(|h| h(path))
            {
                continue;
            }
            if entry.metadata().is_ok_and(|m| m.len() > FILE_BYTES) {
                skipped.large += 1;
            } else if query.search_file(path, &mut page, context, &mut matching).is_err() {
                skipped.failed += 1;
            }
        }
    } else {
        let path = query.root.clone();
        if hides.is_some_and(|h| h(&path)) {
            return Err(format!("a rule denies reading {}", shown(&path)));
        }
        query
            .search_file(&path, &mut page, context, &mut matching)
            .map_err(|error| format!("{} can't be searched: {error}", shown(&path)))?;
    }
    let files = matching.len();
    if query.mode == Mode::Files {
        newest_first(&mut matching);
        matching.iter().for_each(|(_, path)| page.line(&shown(path)));
    }
    let mut notices: Vec<String> = stopped(&context.cancel).into_iter().map(str::to_owned).collect();
    notices.extend(page.notice());
    notices.extend(skipped.notice());
    let structured = json!({"mode": query.mode.word(), "numFiles": files, "numLines": page.lines()});
    if files == 0 {
        notices.insert(0, format!("No matches in {}", shown(&query.root)));
    }
    Ok(ToolOutput::ok(deliver(context, page.text(), notices)).with(structured))
}

impl Query {
    fn new(arguments: &Arguments<'_>, context: &ToolContext) -> Result<Self, String> {
        let root = search_root(&context.cwd, arguments.text("path")?);
        let mode = Mode::parse(arguments.text("output_mode")?)?;
        let multiline = arguments.flag("multiline")?.unwrap_or(false);
        let around = arguments.count("-C")?.or(arguments.count("context")?).unwrap_or(0);
        let before = arguments.count("-B")?.unwrap_or(around);
        let after = arguments.count("-A")?.unwrap_or(around);
        let mut regex = RegexMatcherBuilder::new();
        regex.multi_line(true).case_insensitive(arguments.flag("-i")?.unwrap_or(false));
        if multiline {
            regex.dot_matches_new_line(true);
        } else {
            regex.line_terminator(Some(b'\n'));
        }
        let matcher = regex.build(arguments.required("pattern")?).map_err(|error| {
            format!(
                "the pattern is no regular expression: {error}\nescape characters that are meant literally, such as `\\{{` or `\\(`; \
                 a pattern over several lines needs multiline: true"
            )
        })?;
        let mut searcher = SearcherBuilder::new();
        searcher
            .line_number(true)
            .multi_line(multiline)
            .heap_limit(Some(HEAP_BYTES))
            .binary_detection(BinaryDetection::quit(0));
        if mode == Mode::Content {
            searcher.before_context(before).after_context(after);
        }
        Ok(Self {
            matcher,
            searcher: searcher.build(),
            globs: globs(arguments.text("glob")?.unwrap_or_default(), &root)?,
            types: types(arguments.text("type")?.unwrap_or_default())?,
            root,
            mode,
            numbers: arguments.flag("-n")?.unwrap_or(true),
            surrounded: mode == Mode::Content && before + after > 0,
        })
    }

    fn selects(&self, path: &Path) -> bool {
        !self.globs.matched(path, false).is_ignore() && !self.types.matched(path, false).is_ignore()
    }

    fn search_file(
        &mut self,
        path: &Path,
        page: &mut Page,
        context: &ToolContext,
        matching: &mut Vec<(SystemTime, PathBuf)>,
    ) -> std::io::Result<()> {
        let (file, metadata) = open_regular(path)?;
        let name = shown(path);
        let mut sight = Sight::new(self.mode, &name, self.numbers, self.surrounded, page, &context.cancel);
        let result = self.searcher.search_file(&self.matcher, &file, &mut sight);
        if sight.finish() {
            matching.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), path.to_path_buf()));
        }
        result
    }
}

impl Skipped {
    fn notice(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.large > 0 {
            parts.push(format!("{} files over 64 MiB were left out", self.large));
        }
        if self.failed > 0 {
            parts.push(format!("{} files or folders could not be read", self.failed));
        }
        (!parts.is_empty()).then(|| format!("[{}]", parts.join("; ")))
    }
}

/// Several patterns may stand in one text, with commas or blanks between them.
fn globs(text: &str, root: &Path) -> Result<Override, String> {
    let fail = |error: ignore::Error| format!("the glob can't be used: {error}");
    let mut builder = OverrideBuilder::new(root);
    let mut depth = 0u32;
    let separate = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    };
    for glob in text.split(separate).filter(|g| !g.is_empty()) {
        builder.add(glob).map_err(fail)?;
    }
    builder.build().map_err(fail)
}

fn types(name: &str) -> Result<Types, String> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    if name.is_empty() {
        return Ok(Types::empty());
    }
    builder.select(name);
    builder.build().map_err(|_| {
        let known = builder.definitions();
        let begins = |d: &str| name.chars().next().is_some_and(|c| d.starts_with(c.to_ascii_lowercase()));
        let names: Vec<&str> = known.iter().map(|d| d.name()).filter(|d| begins(d)).collect();
        format!("there is no file type {name:?}; types with that letter: {}; or use glob", names.join(", "))
    })
}
