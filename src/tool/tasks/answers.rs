//! What the tools of the task board answer (formats B.5): texts for the model, and results as other programs
//! read them. What others wrote on cards is kept on one line where lines mean something.

use serde_json::{Value, json};

use super::desk::Changed;
use crate::core::limits::TOOL_OUTPUT_CHARS;
use crate::core::team::list::Row;
use crate::core::team::{Card, CardId, Status};
use crate::core::text::{cap, one_line};
use crate::store::team::board::Listing;
use crate::tool::ToolOutput;

/// Characters of a subject on a line.
const SUBJECT_CHARS: usize = 300;

/// Told to a member that has completed a card.
pub(super) const LOOK_FURTHER: &str = "\n\nLook at TaskList now for your next card: one of yours, or the first that is \
pending, nobody's and not blocked. What this one unblocked can be begun.";

/// Told to a lead that has much done and nothing checked.
pub(super) const NUDGE: &str = "\n\nThree or more cards are completed, and none is about verification. Before you \
report, have the whole checked: put a card for it on the board, and give it to somebody who did not do the work.";

/// Completed cards of a lead from which it should have something verified.
const NUDGE_FROM: usize = 3;

pub(super) fn created(card: &Card) -> ToolOutput {
    let id = card.id.map(|id| id.to_string()).unwrap_or_default();
    ToolOutput::ok(format!("Task #{id} created successfully: {}", subject(&card.subject)))
        .with(json!({"task": {"id": id, "subject": card.subject}}))
}

pub(super) fn updated(id: CardId, changed: &Changed) -> ToolOutput {
    let updated = &changed.updated;
    let mut text = match updated.fields.as_slice() {
        [] => format!("Task #{id} is as it was: nothing is different"),
        fields => format!("Updated task #{id} {}", fields.join(", ")),
    };
    if let (Some(owner), Some(why)) = (&updated.new_owner, &changed.untold) {
        text.push_str(&format!("\n{} was not told of it: {why}", one_line(owner, 80)));
    }
    let mut result = json!({"success": true, "taskId": id, "updatedFields": updated.fields});
    if let Some((from, to)) = &updated.status {
        result["statusChange"] = json!({"from": from, "to": to});
    }
    ToolOutput::ok(text).with(result)
}

pub(super) fn deleted(id: CardId, card: &Card) -> ToolOutput {
    ToolOutput::ok(format!("Updated task #{id} deleted")).with(json!({
        "success": true,
        "taskId": id,
        "updatedFields": ["deleted"],
        "statusChange": {"from": card.status, "to": "deleted"},
    }))
}

pub(super) fn shown(id: CardId, card: &Card) -> ToolOutput {
    let mut lines = vec![
        format!("Task #{id}: {}", subject(&card.subject)),
        format!("Status: {}", one_line(card.status.as_str(), 40)),
        format!("Owner: {}", card.owner().map_or_else(|| "nobody".to_owned(), |owner| one_line(owner, 80))),
    ];
    for (name, ids) in [("Blocked by", &card.blocked_by), ("Blocks", &card.blocks)] {
        if !ids.is_empty() {
            lines.push(format!("{name}: {}", numbers(ids)));
        }
    }
    if let Some(note) = card.note().filter(|_| card.owner().is_none()) {
        lines.push(format!("Note: {}", one_line(note, 300)));
    }
    if let Some(metadata) = card.metadata.as_ref().filter(|metadata| !metadata.is_empty()) {
        lines.push(format!("Metadata: {}", Value::Object(metadata.clone())));
    }
    lines.push(format!("Description:\n{}", card.description));
    let text = cap(&lines.join("\n"), TOOL_OUTPUT_CHARS, |all| format!("[cut: it has {all} characters]"));
    let mut task = json!({
        "id": id,
        "subject": card.subject,
        "description": card.description,
        "status": card.status,
        "blocks": card.blocks,
        "blockedBy": card.blocked_by,
    });
    for (key, value) in [("owner", card.owner()), ("activeForm", card.active_form.as_deref())] {
        if let Some(value) = value {
            task[key] = json!(value);
        }
    }
    ToolOutput::ok(text).with(json!({"task": task}))
}

pub(super) fn listed(listing: &Listing) -> ToolOutput {
    let task = |row: &Row| {
        let mut task = json!({"id": row.id, "subject": row.subject, "status": row.status});
        if let Some(owner) = &row.owner {
            task["owner"] = json!(owner);
        }
        task["blockedBy"] = json!(row.blocked_by);
        task
    };
    let tasks: Vec<Value> = listing.rows.iter().map(task).collect();
    ToolOutput::ok(list_text(listing)).with(json!({"tasks": tasks}))
}

fn list_text(listing: &Listing) -> String {
    if listing.rows.is_empty() {
        return "There are no tasks.".to_owned();
    }
    let line = |row: &Row| {
        let why = listing.damaged.iter().find(|(id, _)| *id == row.id).map(|(_, why)| why.as_str());
        (line(row, why), row.status == Status::Completed)
    };
    let lines: Vec<(String, bool)> = listing.rows.iter().map(line).collect();
    let length = |lines: &[&str]| lines.iter().map(|line| line.chars().count() + 1).sum::<usize>();
    let mut shown: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
    if length(&shown) <= TOOL_OUTPUT_CHARS {
        return shown.join("\n");
    }
    // What is still to be done counts more.
    shown = lines.iter().filter(|(_, is_completed)| !is_completed).map(|(line, _)| line.as_str()).collect();
    let mut room = TOOL_OUTPUT_CHARS;
    shown.retain(|line| {
        let rest = room.checked_sub(line.chars().count() + 1);
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    let left_out = lines.len() - shown.len();
    format!(
        "{}\n[{left_out} of {} tasks are left out, the completed ones first; TaskGet shows one by its number]",
        shown.join("\n"),
        lines.len()
    )
}

/// `#2 [pending] Second (worker) [blocked by #1]`.
fn line(row: &Row, damaged: Option<&str>) -> String {
    let mut line = format!("#{} [{}] {}", row.id, one_line(row.status.as_str(), 40), subject(&row.subject));
    if let Some(owner) = &row.owner {
        line.push_str(&format!(" ({})", one_line(owner, 80)));
    }
    if !row.blocked_by.is_empty() {
        line.push_str(&format!(" [blocked by {}]", numbers(&row.blocked_by)));
    }
    if let Some(note) = &row.note {
        line.push_str(&format!(" [note: {}]", one_line(note, 120)));
    }
    if let Some(why) = damaged {
        line.push_str(&format!("[can't be read: {}]", one_line(why, 120)));
    }
    line
}

fn subject(text: &str) -> String {
    one_line(text, SUBJECT_CHARS)
}

fn numbers(ids: &[CardId]) -> String {
    ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ")
}

/// Whether the main conversation `me` has completed much, and no card is about verification.
pub(super) fn lacks_verification(rows: &[Row], me: &str) -> bool {
    let is_mine = |row: &&Row| row.owner.as_deref().is_none_or(|owner| owner == me);
    let completed = rows.iter().filter(|row| row.status == Status::Completed).filter(is_mine).count();
    completed >= NUDGE_FROM && !rows.iter().any(|row| row.subject.to_lowercase().contains("verif"))
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
