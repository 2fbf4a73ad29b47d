//! The list of cards as it is shown, and which list holds for whom.

use super::board::Cards;
use super::card::{Card, CardId, Status};
use super::kept::Kept;
use super::links::Links;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number.
    pub id: CardId,
    /// Subject.
    pub subject: String,
    /// Status.
    pub status: Status,
    /// Owner.
    pub owner: Option<String>,
    /// What it still waits for.
    pub blocked_by: Vec<CardId>,
    /// Why it was taken from its owner, while nobody has it.
    pub note: Option<String>,
}

/// The list: completed blockers are hidden.
pub fn rows(cards: &Cards) -> Vec<Row> {
    let links = Links::of(cards);
    let row = |(id, card): (&CardId, &Kept<Card>)| Row {
        id: *id,
        subject: card.subject.clone(),
        status: card.status.clone(),
        owner: card.owner().map(str::to_owned),
        blocked_by: links.open_blockers(*id, cards),
        note: card.note().filter(|_| card.owner().is_none()).map(str::to_owned),
    };
    cards.iter().map(row).collect()
}

/// Where the id of a task list comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// The variable `CLAUDE_CODE_TASK_LIST_ID`.
    Variable,
    /// The team one is in.
    Member,
    /// The team one leads.
    Lead,
    /// One's session.
    Session,
}

/// The list that holds for a process: the first there is.
pub fn list_id<'a>(
    variable: Option<&'a str>,
    member_of: Option<&'a str>,
    leads: Option<&'a str>,
    session: &'a str,
) -> (&'a str, ListSource) {
    let variable = variable.filter(|v| !v.is_empty()).map(|id| (id, ListSource::Variable));
    let member = member_of.map(|id| (id, ListSource::Member));
    let lead = leads.map(|id| (id, ListSource::Lead));
    variable.or(member).or(lead).unwrap_or((session, ListSource::Session))
}
