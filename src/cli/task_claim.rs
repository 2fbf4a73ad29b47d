//! `lead task claim`: a card for a script. Of many that want one, one gets it; the others are told
//! who, or with `--wait` try again at the next change.

use super::caller::refuse_agents_without;
use super::error::{CliError, Exit};
use super::output::Output;
use super::task::ClaimArgs;
use super::task_row::{TaskRow, owners};
use super::teams::Teams;
use super::vigil::{Vigil, Woken, deadline_in};
use crate::core::team::claim::Wanted;
use crate::core::team::roster::Backend;
use crate::core::team::{Card, Refusal, Status};
use crate::store::team::{Team, TeamError};

pub(super) fn run(args: &ClaimArgs, teams: &Teams<'_>, out: &mut Output) -> Result<Exit, CliError> {
    refuse_agents_without(&teams.runtime, "TaskUpdate", "take tasks without TaskUpdate")?;
    let team = teams.find(args.team.as_deref())?;
    let me = teams.speaker(&team, Some(&args.name))?.name;
    let wanted = args.task.map_or(Wanted::Next, Wanted::This);
    let card = match args.wait {
        true => wait(args, &team, wanted, &me, teams)?,
        false => claim(&team, wanted, &me, teams)?,
    };
    let id = card.id.or(args.task).ok_or_else(|| CliError::Refused("the task has no number".to_owned()))?;
    let row = TaskRow::of(id, &card);
    if args.json {
        out.json(&row)?;
    } else {
        out.line(&format!("{}  {}", row.id, crate::core::text::one_line(&row.subject, 300)))?;
    }
    Ok(Exit::Success)
}

fn claim(team: &Team, wanted: Wanted, me: &str, teams: &Teams<'_>) -> Result<Card, CliError> {
    owners(team, teams, |owners| team.board().claim(wanted, me, owners)).map(|claimed| claimed.card)
}

fn wait(args: &ClaimArgs, team: &Team, wanted: Wanted, me: &str, teams: &Teams<'_>) -> Result<Card, CliError> {
    let deadline = deadline_in(args.timeout);
    let board = team.board();
    board.prepare()?;
    let mut vigil = Vigil::over(board.path())?;
    loop {
        // Before the try: whoever ends after it wakes us.
        let roster = team.roster()?;
        let scripts = roster.members().filter(|m| m.backend() == Backend::External && m.name != me);
        vigil.mind(team, scripts.map(|m| m.name.as_str()))?;
        match claim(team, wanted, me, teams) {
            Err(CliError::Team(error)) if !is_over(&error) => {}
            claimed => return claimed,
        }
        match vigil.wait(deadline)? {
            Woken::Changed => {}
            Woken::Gone => return Err(TeamError::NoTeam { name: team.name(), known: Vec::new() }.into()),
            Woken::TimedOut => {
                let what = match wanted {
                    Wanted::Next => "no task could be claimed".to_owned(),
                    Wanted::This(id) => format!("task #{id} could not be claimed"),
                };
                return Err(CliError::TimedOut { what, waited: args.timeout.unwrap_or_default() });
            }
        }
    }
}

/// Whether nothing that may still happen to the cards there are would help.
fn is_over(error: &TeamError) -> bool {
    let TeamError::Refused(refusal) = error else { return true };
    match refusal {
        Refusal::NothingToClaim { blocked, in_progress, .. } => blocked + in_progress == 0,
        Refusal::Owned { .. } | Refusal::Blocked { .. } => false,
        Refusal::NotPending { status, .. } => status != Status::InProgress.as_str(),
        Refusal::Unknown { .. } | Refusal::Itself(_) | Refusal::Circle { .. } | Refusal::NotMember { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::team::CardId;

    #[test]
    fn it_waits_for_what_can_still_come() {
        let id = CardId::new(1).unwrap();
        let nothing = |blocked, in_progress| Refusal::NothingToClaim { blocked, in_progress, completed: 1 };
        for (refusal, over) in [
            (nothing(0, 0), true),
            (nothing(1, 0), false),
            (nothing(0, 1), false),
            (Refusal::Owned { id, owner: "a".into() }, false),
            (Refusal::Blocked { id, by: vec![id] }, false),
            (Refusal::NotPending { id, status: "in_progress".into() }, false),
            (Refusal::NotPending { id, status: "completed".into() }, true),
            (Refusal::Unknown { id: "#1".into(), known_ids: vec![] }, true),
        ] {
            assert_eq!(is_over(&TeamError::Refused(refusal.clone())), over, "{refusal}");
        }
        assert!(is_over(&TeamError::BadName("x".into())));
    }
}
