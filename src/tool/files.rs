//! Opening, walking and naming files, for the tools that look into them.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ignore::WalkBuilder;
use nix::fcntl::OFlag;
use tokio_util::sync::CancellationToken;

use super::{ToolContext, ToolOutput};
use crate::core::limits::{TOOL_OUTPUT_BYTES, TOOL_OUTPUT_CHARS, deadlines};

/// Tells which files a search leaves out because a rule denies reading them.
pub type HidePath = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Room for the notices below an output, characters.
pub(super) const NOTICE_ROOM: usize = 600;

/// Runs `work` where it may block. After a cancel it gets a moment to come back with what it has;
/// one that hangs (a dead network file system) is left behind.
pub(super) async fn blocking(
    context: &ToolContext,
    work: impl FnOnce(&ToolContext) -> ToolOutput + Send + 'static,
) -> ToolOutput {
    blocking_with(context, work).await.unwrap_or_else(|failed| failed)
}

/// Like [`blocking`], for work that has more to say than what the model is told.
pub(super) async fn blocking_with<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce(&ToolContext) -> T + Send + 'static,
) -> Result<T, ToolOutput> {
    let inner = context.clone();
    let mut task = tokio::task::spawn_blocking(move || work(&inner));
    let joined = tokio::select! {
        joined = &mut task => Some(joined),
        () = context.cancel.cancelled() => tokio::time::timeout(deadlines().drain, task).await.ok(),
    };
    match joined {
        Some(Ok(done)) => Ok(done),
        Some(Err(_)) => Err(ToolOutput::error("the tool broke down; try another way")),
        None => Err(ToolOutput::error("cancelled")),
    }
}

/// Opens a regular file for reading without ever waiting. What is no regular file is an error
/// that says what it is.
pub(super) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Looked at before it is opened: opening alone can make a device act.
    regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    Ok((file, metadata))
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is {what}, not a file")))
}

/// The file or folder that `path` names for an agent working in `cwd`; none = `cwd` itself.
pub(super) fn search_root(cwd: &Path, path: Option<&str>) -> PathBuf {
    cwd.join(path.unwrap_or_default()).components().collect()
}

/// A walk below `root` by ripgrep's rules: `.gitignore` and the like count, hidden files are
/// included, `.git` folders are not, links are not followed.
pub(super) fn walk(root: &Path) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder.hidden(false).follow_links(false).filter_entry(|e| e.depth() == 0 || e.file_name() != ".git");
    builder
}

/// A path on one line: what would break the line is escaped, and the name quoted.
pub(super) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains(char::is_control) { format!("{text:?}") } else { text.into_owned() }
}

/// Newest first, then by name.
pub(super) fn newest_first(files: &mut [(SystemTime, PathBuf)]) {
    files.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
}

pub(super) fn stopped(cancel: &CancellationToken) -> Option<&'static str> {
    cancel.is_cancelled().then_some("[cancelled: this is what was found until then]")
}

/// The text a model sees: whole if it is short enough, else its beginning, the rest in a file that
/// is named. `notices` follow in any case.
pub(super) fn deliver(context: &ToolContext, text: &str, mut notices: Vec<String>) -> String {
    let room = TOOL_OUTPUT_CHARS - NOTICE_ROOM;
    let mut shown = text.trim_end_matches('\n');
    if let Some((at, _)) = shown.char_indices().nth(room) {
        let characters = shown.chars().count();
        // Whole lines, unless one line is all there is.
        shown = shown[..at].rfind('\n').map_or(&shown[..at], |end| &shown[..end]);
        notices.push(match keep_whole(context, text) {
            Ok(path) => format!(
                "[cut: {characters} characters in all; the whole is in {}; narrow the search, or Read that file with offset]",
                path.display()
            ),
            Err(error) => format!("[cut: {characters} characters in all, which could not be kept ({error}); narrow the search]"),
        });
    }
    let mut out = shown.to_owned();
    for notice in notices {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&notice);
    }
    out
}

/// Writes at most [`TOOL_OUTPUT_BYTES`] of `text` to the call's file under `results`.
pub(super) fn keep_whole(context: &ToolContext, text: &str) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(&context.results)?;
    let path = context.results.join(format!("{}.txt", context.tool_use_id));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    file.write_all(&text.as_bytes()[..text.len().min(TOOL_OUTPUT_BYTES)])?;
    Ok(path)
}
