//! `NotebookEdit`: replaces, inserts or deletes one cell of a notebook.

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::edit::{activity, told};
use super::files::blocking;
use super::notebook::{CellType, Notebook, render};
use super::patch::{difference, excerpt};
use super::target::Target;
use super::{BoxFuture, Tool, ToolContext, ToolOutput};
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotebookEdit;

impl Tool for NotebookEdit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "NotebookEdit".to_owned(),
            description: "Changes one cell of a Jupyter notebook (.ipynb) that was read before in this conversation: \
                          replaces its source, inserts a new cell behind it (or at the beginning, without cell_id), \
                          or deletes it. Read shows the ids of the cells; a cell without one is named cell-N, \
                          counted from 0. The outputs of a replaced code cell are removed; nothing else of the file \
                          changes."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "notebook_path": {"type": "string", "description": "The file; a relative path starts at the working folder"},
                    "cell_id": {"type": "string", "description": "The cell to replace or delete, or to insert behind"},
                    "new_source": {"type": "string", "description": "The cell's new source"},
                    "cell_type": {"type": "string", "enum": ["code", "markdown"], "description": "Needed for insert; else the cell's own"},
                    "edit_mode": {"type": "string", "enum": ["replace", "insert", "delete"], "description": "Default replace"}
                },
                "required": ["notebook_path", "new_source"],
                "additionalProperties": false
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn describe(&self, input: &Value) -> Activity {
        activity("NotebookEdit", "Edit", input.get("notebook_path"))
    }

    fn run<'a>(&'a self, input: &'a Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let input = input.clone();
        Box::pin(blocking(context, move |context| edit(&input, context).unwrap_or_else(ToolOutput::error)))
    }
}

fn edit(input: &Value, context: &ToolContext) -> Result<ToolOutput, String> {
    let known = ["notebook_path", "cell_id", "new_source", "cell_type", "edit_mode"];
    let arguments = Arguments::new(input, &known)?;
    let path = arguments.required("notebook_path")?;
    let kind = CellType::parse(arguments.text("cell_type")?)?;
    let mode = arguments.text("edit_mode")?.unwrap_or("replace");
    let id = arguments.text("cell_id")?.filter(|id| !id.is_empty());
    let target = Target::find(context, path)?;
    let (text, encoding) = target.text()?;
    let notebook = Notebook::parse(&text).map_err(|why| format!("{} {why}", target.name()))?;
    target.check_seen()?;
    let in_file = |why: String| format!("{}: {why}", target.name());
    let named = || match id {
        Some(id) => notebook.find(id).map_err(in_file),
        None => Err(in_file(format!("`cell_id` is missing: {}", notebook.ids()))),
    };
    let (after, at, id, done) = match mode {
        "replace" => {
            let at = named()?;
            (notebook.replace(at, arguments.given("new_source")?, kind), Some(at), notebook.describe(at).0, "replaced")
        }
        "insert" => {
            let kind = kind.ok_or("`cell_type` is missing: an inserted cell is code or markdown")?;
            let at = if id.is_some() { named()? + 1 } else { 0 };
            let (after, id) = notebook.insert(at, arguments.given("new_source")?, kind);
            (after, Some(at), id, "inserted")
        }
        "delete" => {
            let at = named()?;
            (notebook.delete(at), None, notebook.describe(at).0, "deleted")
        }
        other => return Err(format!("there is no edit_mode {other:?}; modes: replace, insert, delete")),
    };
    // Nothing is written that could not be read again.
    let changed = Notebook::parse(&after).map_err(|why| format!("{} can't be changed so: it {why}", target.name()))?;
    let replaced = target.replace(&encoding.encode(&after))?;
    let kind = at.map(|at| changed.describe(at).1);
    // As Read shows it, with the same numbers.
    let (seen, now) = (render(&text)?, render(&after)?);
    let shown = excerpt(&seen, &now, &difference(&seen, &now));
    let what = match &kind {
        Some(kind) => format!("cell {id} ({kind}) of {} was {done}", target.name()),
        None => format!("cell {id} of {} was {done}", target.name()),
    };
    Ok(ToolOutput::ok(told(what, &replaced.notes, &shown)).with(json!({
        "notebook_path": target.named,
        "cell_id": id,
        "cell_type": kind,
        "edit_mode": mode,
        "new_source": arguments.text("new_source")?.unwrap_or_default(),
        "language": changed.language(),
        "fileState": replaced.state,
    })))
}
