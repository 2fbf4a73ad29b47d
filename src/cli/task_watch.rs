//! `lead task watch`: a line or a row for each card that changes, woken by events.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::error::{CliError, Exit};
use super::output::{self, Output};
use super::task_row::{TaskRow, ids, owners};
use super::teams::Teams;
use super::vigil::{Vigil, Woken, deadline_in};
use crate::core::team::{CardId, Refusal};
use crate::store::team::{Team, TeamError};

/// Arguments of `lead task watch`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 the team was deleted, 4 no such team, 5 timed out.")]
pub(super) struct WatchArgs {
    /// The team; without it that of LEAD_TEAM
    #[arg(long)]
    team: Option<String>,
    /// Begin with the tasks as they are
    #[arg(long)]
    all: bool,
    /// End after this time, such as 100ms, 20s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Print JSON: an object on each line
    #[arg(long)]
    pub json: bool,
}

/// What happened to a card.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Change {
    /// `present` (it was there before), `created`, `changed`, `removed`.
    change: &'static str,
    /// Names of the fields that are another now.
    changed: Vec<String>,
    #[serde(flatten)]
    task: TaskRow,
}

type Cards = BTreeMap<CardId, TaskRow>;

pub(super) fn run(args: &WatchArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    let team = teams.find(args.team.as_deref())?;
    let deadline = deadline_in(args.timeout);
    let board = team.board();
    board.prepare()?;
    let mut vigil = Vigil::over(board.path())?;
    let mut cards = Cards::new();
    let mut is_first = true;
    loop {
        vigil.mind(&team, cards.values().filter_map(|card| card.owner.as_deref()))?;
        let now = read(&team, teams)?;
        let changes = if is_first && !args.all { Vec::new() } else { changes(&cards, &now, is_first) };
        // Whoever began something is minded before there is a wait.
        let is_new = |card: &TaskRow| card.owner.is_some() && !cards.values().any(|old| old.owner == card.owner);
        let again = now.values().any(is_new);
        for change in changes {
            if args.json {
                out.json(&change)?;
            } else {
                out.line(&line(&change))?;
            }
        }
        out.flush()?;
        (cards, is_first) = (now, false);
        if again {
            continue;
        }
        match vigil.wait(deadline)? {
            Woken::Changed => {}
            Woken::TimedOut => return Ok(Exit::TimedOut),
            Woken::Gone => {
                output::tell(&format!("lead: the team {} was deleted", team.folder()));
                return Ok(Exit::Success);
            }
        }
    }
}

fn read(team: &Team, teams: &Teams<'_>) -> Result<Cards, CliError> {
    let listing = owners(team, teams, |owners| team.board().list(owners))?;
    let mut cards = Cards::new();
    for listed in listing.rows.iter().filter(|row| listing.damaged.iter().all(|(id, _)| *id != row.id)) {
        match team.board().get(listed.id) {
            Ok(card) => {
                let row = TaskRow { blocked_by: ids(&listed.blocked_by), ..TaskRow::of(listed.id, &card) };
                cards.insert(listed.id, row);
            }
            // Removed just now.
            Err(TeamError::Refused(Refusal::Unknown { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(cards)
}

/// What happened between two looks, in the order of numbers.
fn changes(before: &Cards, now: &Cards, is_first: bool) -> Vec<Change> {
    let mut changes: Vec<(CardId, Change)> = Vec::new();
    for (id, card) in now {
        let change = match before.get(id) {
            None if is_first => Change { change: "present", changed: Vec::new(), task: card.clone() },
            None => Change { change: "created", changed: Vec::new(), task: card.clone() },
            Some(old) if old == card => continue,
            Some(old) => Change { change: "changed", changed: fields(old, card), task: card.clone() },
        };
        changes.push((*id, change));
    }
    for (id, card) in before.iter().filter(|(id, _)| !now.contains_key(id)) {
        changes.push((*id, Change { change: "removed", changed: Vec::new(), task: card.clone() }));
    }
    changes.sort_by_key(|(id, _)| *id);
    changes.into_iter().map(|(_, change)| change).collect()
}

fn fields(old: &TaskRow, new: &TaskRow) -> Vec<String> {
    let (Ok(Value::Object(old)), Ok(Value::Object(new))) = (serde_json::to_value(old), serde_json::to_value(new))
    else {
        return Vec::new();
    };
    new.into_iter().filter(|(name, value)| old.get(name) != Some(value)).map(|(name, _)| name).collect()
}

fn line(change: &Change) -> String {
    let what = match change.changed.is_empty() {
        true => change.change.to_owned(),
        false => format!("{} {}", change.change, change.changed.join(",")),
    };
    format!("{}  [{what}]", change.task.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::team::{Card, Status};

    fn cards(all: &[(u64, &str, Status)]) -> Cards {
        let card = |(number, subject, status): &(u64, &str, Status)| {
            let id = CardId::new(*number).unwrap();
            let card = Card { subject: (*subject).to_owned(), status: status.clone(), ..Card::default() };
            (id, TaskRow::of(id, &card))
        };
        all.iter().map(card).collect()
    }

    #[test]
    fn each_card_that_is_another_comes_once_and_in_order() {
        let before = cards(&[(1, "a", Status::Pending), (2, "b", Status::Pending), (3, "c", Status::Pending)]);
        let now = cards(&[(1, "a", Status::Pending), (3, "d", Status::Completed), (10, "e", Status::Pending)]);
        let lines: Vec<String> = changes(&before, &now, false).iter().map(line).collect();
        assert_eq!(
            lines,
            ["#2  pending  b  [removed]", "#3  completed  d  [changed subject,status]", "#10  pending  e  [created]"]
        );
        assert!(changes(&now, &now, false).is_empty());
        assert!(changes(&Cards::new(), &now, true).iter().all(|c| c.change == "present"));
    }
}
