//! Cards of a task board as rows, for people and for scripts.

use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::table::{self, Align};
use super::teams::Teams;
use crate::core::team::list::Row;
use crate::core::team::{Card, CardId};
use crate::core::text;
use crate::store::team::board::Owners;
use crate::store::team::{Team, TeamError};

/// A card with everything on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TaskRow {
    pub id: String,
    pub subject: String,
    pub description: String,
    pub active_form: Option<String>,
    pub status: String,
    pub owner: Option<String>,
    /// Cards that wait for it.
    pub blocks: Vec<String>,
    /// Cards it waits for; in `watch` only those that are not completed.
    pub blocked_by: Vec<String>,
    /// Why it was last taken from an owner.
    pub note: Option<String>,
    pub metadata: Option<Value>,
}

pub(super) fn ids(ids: &[CardId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

impl TaskRow {
    pub(super) fn of(id: CardId, card: &Card) -> Self {
        Self {
            id: id.to_string(),
            subject: card.subject.clone(),
            description: card.description.clone(),
            active_form: card.active_form.clone(),
            status: card.status.as_str().to_owned(),
            owner: card.owner().map(str::to_owned),
            blocks: ids(&card.blocks),
            blocked_by: ids(&card.blocked_by),
            note: card.note().map(str::to_owned),
            metadata: card.metadata.clone().map(Value::Object),
        }
    }

    /// On one line.
    pub(super) fn line(&self) -> String {
        let waits = (!self.blocked_by.is_empty()).then(|| format!("(waits for {})", numbers(&self.blocked_by)));
        let parts = [Some(self.status.clone()), self.owner.clone(), Some(self.subject.clone()), waits];
        let mut line = format!("#{}", self.id);
        for part in parts.into_iter().flatten() {
            line.push_str("  ");
            line.push_str(&text::one_line(&part, 200));
        }
        line
    }

    /// All of it.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("task        #{}", self.id),
            format!("subject     {}", text::one_line(&self.subject, 500)),
            format!("status      {}", text::one_line(&self.status, 80)),
            format!("owner       {}", text::one_line(self.owner.as_deref().unwrap_or("nobody"), 80)),
        ];
        for (name, list) in [("after       ", &self.blocked_by), ("blocks      ", &self.blocks)] {
            if !list.is_empty() {
                lines.push(format!("{name}{}", numbers(list)));
            }
        }
        let note = self.note.as_deref().filter(|_| self.owner.is_none());
        lines.extend(note.map(|note| format!("note        {}", text::one_line(note, 500))));
        lines.extend(
            self.metadata.as_ref().map(|data| format!("metadata    {}", text::for_terminal(&data.to_string()))),
        );
        if !self.description.is_empty() {
            lines.extend([String::new(), text::for_terminal(&self.description)]);
        }
        lines
    }
}

fn numbers(ids: &[String]) -> String {
    ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ")
}

/// A card, as it is listed.
#[derive(Debug, Serialize)]
pub(super) struct ListRow {
    id: String,
    subject: String,
    status: String,
    owner: Option<String>,
    /// What it still waits for.
    blocked_by: Vec<String>,
    /// Why it was taken from its owner, while nobody has it.
    note: Option<String>,
    /// Why its file can't be read.
    error: Option<String>,
}

impl ListRow {
    pub(super) fn of(row: &Row, damaged: &[(CardId, String)]) -> Self {
        Self {
            id: row.id.to_string(),
            subject: row.subject.clone(),
            status: row.status.as_str().to_owned(),
            owner: row.owner.clone(),
            blocked_by: ids(&row.blocked_by),
            note: row.note.clone(),
            error: damaged.iter().find(|(id, _)| *id == row.id).map(|(_, reason)| reason.clone()),
        }
    }
}

pub(super) fn render(rows: &[ListRow]) -> String {
    let columns = [
        ("TASK", Align::Left, 10),
        ("STATUS", Align::Left, 12),
        ("OWNER", Align::Left, 30),
        ("SUBJECT", Align::Left, 60),
        ("WAITS FOR", Align::Left, 40),
        ("NOTE", Align::Left, 60),
    ];
    let cells = |row: &ListRow| {
        vec![
            format!("#{}", row.id),
            row.status.clone(),
            row.owner.clone().unwrap_or_default(),
            row.subject.clone(),
            numbers(&row.blocked_by),
            row.error.clone().or(row.note.clone()).unwrap_or_default(),
        ]
    };
    table::render(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Does something on the board of a team with what is known of owners' lives.
pub(super) fn owners<T>(
    team: &Team,
    teams: &Teams<'_>,
    work: impl FnOnce(Owners<'_>) -> Result<T, TeamError>,
) -> Result<T, CliError> {
    let life = |owner: &str| team.life(owner, &|member| teams.is_alive(team, member));
    let note = |owner: &str| format!("{owner} is gone");
    Ok(work(Owners { life: &life, note: &note })?)
}
