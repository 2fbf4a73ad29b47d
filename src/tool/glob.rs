//! `Glob`: files by name, newest first.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{HidePath, blocking, deliver, newest_first, search_root, shown, stopped, walk};
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text::one_line;

const MOST: usize = 100;

/// The tool.
#[derive(Clone, Default)]
pub struct Glob {
    hides: Option<HidePath>,
}

impl Glob {
    /// Leaves out the files that `hides` names.
    pub fn hiding(hides: HidePath) -> Self {
        Self { hides: Some(hides) }
    }
}

impl Tool for Glob {
    fn name(&self) -> Cow<'_, str> {
        "Glob".into()
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Glob".to_owned(),
            description: "Finds files by a pattern such as `**/*.rs` or `src/{a,b}/*.ts` and returns up to 100 \
                          absolute paths, the most recently changed first. A pattern without `/` matches in every \
                          folder. Files that .gitignore excludes are left out."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Pattern, relative to the folder searched"},
                    "path": {"type": "string", "description": "Folder to search; default: the working folder"}
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
            tool: "Glob".to_owned(),
            description: format!("Find {}", one_line(pattern, 80)),
            is_search: true,
            is_read: false,
        }
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let (input, hides) = (input.clone(), self.hides.clone());
        Box::pin(blocking(context, move |context| {
            find(&input, context, hides.as_ref()).unwrap_or_else(ToolOutput::error)
        }))
    }
}

fn find(input: &Value, context: &ToolContext, hides: Option<&HidePath>) -> Result<ToolOutput, String> {
    let arguments = Arguments::new(input, &["pattern", "path"])?;
    let root = search_root(&context.cwd, arguments.text("path")?);
    let pattern = arguments.required("pattern")?;
    let matcher = compile(pattern, &root)?;
    match std::fs::metadata(&root) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(format!("{} is a file; give a folder as `path`", shown(&root))),
        Err(error) => return Err(format!("the folder {} can't be searched: {error}", shown(&root))),
    }
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in walk(&root).build().flatten() {
        if context.cancel.is_cancelled() {
            break;
        }
        let is_file = entry.file_type().is_some_and(|t| !t.is_dir());
        let matches = entry.path().strip_prefix(&root).is_ok_and(|inside| matcher.is_match(inside));
        if is_file && matches && !hides.is_some_and(|h| h(entry.path())) {
            let changed = entry.metadata().ok().and_then(|m| m.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((changed, entry.into_path()));
        }
    }
    newest_first(&mut files);
    let found = files.len();
    files.truncate(MOST);
    let lines: Vec<String> = files.iter().map(|(_, path)| shown(path)).collect();
    let mut notices: Vec<String> = stopped(&context.cancel).into_iter().map(str::to_owned).collect();
    if found > MOST {
        notices.push(format!("[{} more files match; narrow the pattern or the path]", found - MOST));
    }
    let structured = json!({"numFiles": found.min(MOST), "filenames": lines, "truncated": found > MOST});
    if found == 0 && notices.is_empty() {
        return Ok(ToolOutput::ok(format!("No files match {pattern} in {}", shown(&root))).with(structured));
    }
    Ok(ToolOutput::ok(deliver(context, &lines.join("\n"), notices)).with(structured))
}

/// Patterns only reach below `root`, which is the folder that permission was given for.
fn compile(pattern: &str, root: &Path) -> Result<GlobMatcher, String> {
    let inside = match Path::new(pattern).strip_prefix(root) {
        Ok(rest) => rest.to_str().unwrap_or(pattern),
        Err(_) => pattern.strip_prefix("./").unwrap_or(pattern),
    };
    if inside.starts_with('/') || inside.split('/').any(|part| part == "..") {
        return Err(format!("the pattern {pattern:?} leads out of the folder searched; give that folder as `path`"));
    }
    let anywhere = if inside.contains('/') { inside.to_owned() } else { format!("**/{inside}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    Ok(glob.map_err(|error| format!("the pattern can't be used: {error}"))?.compile_matcher())
}
