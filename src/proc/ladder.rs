//! The stop ladder: ask → SIGTERM → SIGKILL → give up, each rung with a deadline. One pure type
//! for agents, tools and hooks; whoever owns the process carries out the actions and feeds back
//! what happened.

use std::time::Instant;

use crate::core::limits::deadlines;

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// It was asked to stop.
    Ask,
    /// Its group got SIGTERM.
    Term,
    /// Its group got SIGKILL.
    Kill,
    /// Nothing helped: not even SIGKILL ended it in time (a process stuck in the kernel).
    GaveUp,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderEvent {
    /// The first one: get on the ladder.
    Started,
    /// [`Ladder::deadline`] was reached.
    DeadlinePassed,
    /// Somebody wants it faster: SIGKILL now.
    Escalate,
    /// The process has ended.
    Exited,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderAction {
    /// Send the request to stop.
    AskStop,
    /// SIGTERM and SIGCONT to the group.
    TermGroup,
    /// SIGKILL to the group.
    KillGroup,
    /// Nothing: wait for the next event.
    Wait,
    /// It has ended.
    Done,
    /// It can't be ended.
    GiveUp,
}

/// Where a process is on its way to its end.
#[derive(Clone, Debug)]
pub struct Ladder {
    rung: Rung,
    exited: bool,
    deadline: Instant,
}

impl Ladder {
    /// Enters at a rung; nothing happens before [`LadderEvent::Started`].
    pub fn new(enter: Rung, now: Instant) -> Self {
        let mut ladder = Self { rung: enter, exited: false, deadline: now };
        ladder.enter(enter, now);
        ladder
    }

    /// The next action. Events may come in any order and more than once.
    pub fn next(&mut self, event: LadderEvent, now: Instant) -> LadderAction {
        match (event, self.rung) {
            (LadderEvent::Exited, _) => {
                self.exited = true;
                LadderAction::Done
            }
            _ if self.exited => LadderAction::Done,
            (_, Rung::GaveUp) => LadderAction::GiveUp,
            (LadderEvent::Started, rung) => self.enter(rung, now),
            (LadderEvent::DeadlinePassed, _) if now < self.deadline => LadderAction::Wait,
            (LadderEvent::DeadlinePassed, Rung::Ask) => self.enter(Rung::Term, now),
            (LadderEvent::DeadlinePassed, Rung::Term) => self.enter(Rung::Kill, now),
            (LadderEvent::DeadlinePassed, Rung::Kill) => self.enter(Rung::GaveUp, now),
            (LadderEvent::Escalate, Rung::Ask | Rung::Term) => self.enter(Rung::Kill, now),
            (LadderEvent::Escalate, Rung::Kill) => LadderAction::Wait,
        }
    }

    /// When to report [`LadderEvent::DeadlinePassed`]; none at the end of the ladder.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.exited && self.rung != Rung::GaveUp).then_some(self.deadline)
    }

    /// The rung it is on.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    fn enter(&mut self, rung: Rung, now: Instant) -> LadderAction {
        let limits = deadlines();
        let (wait, action) = match rung {
            Rung::Ask => (limits.stop_ask, LadderAction::AskStop),
            Rung::Term => (limits.stop_term, LadderAction::TermGroup),
            Rung::Kill => (limits.stop_kill, LadderAction::KillGroup),
            Rung::GaveUp => (std::time::Duration::ZERO, LadderAction::GiveUp),
        };
        self.rung = rung;
        self.deadline = now + wait;
        action
    }
}

#[cfg(test)]
mod tests {
    use super::LadderAction::*;
    use super::LadderEvent::*;
    use super::*;
    use std::time::Duration;

    /// Passes each deadline in turn and returns the actions until the end.
    fn climb(enter: Rung) -> Vec<LadderAction> {
        let mut now = Instant::now();
        let mut ladder = Ladder::new(enter, now);
        let mut actions = vec![ladder.next(Started, now)];
        while let Some(deadline) = ladder.deadline() {
            assert!(deadline > now, "each rung has time");
            now = deadline;
            actions.push(ladder.next(DeadlinePassed, now));
        }
        actions
    }

    #[test]
    fn deadlines_lead_up_from_every_entrance() {
        assert_eq!(climb(Rung::Ask), [AskStop, TermGroup, KillGroup, GiveUp]);
        assert_eq!(climb(Rung::Term), [TermGroup, KillGroup, GiveUp]);
        assert_eq!(climb(Rung::Kill), [KillGroup, GiveUp]);
    }

    #[test]
    fn the_end_is_the_end_on_every_rung() {
        for enter in [Rung::Ask, Rung::Term, Rung::Kill] {
            let now = Instant::now();
            let late = now + Duration::from_secs(60);
            for first in [Started, DeadlinePassed, Escalate] {
                let mut ladder = Ladder::new(enter, now);
                ladder.next(first, late);
                assert_eq!(ladder.next(Exited, late), Done);
                assert_eq!(ladder.deadline(), None);
                for after in [Started, DeadlinePassed, Escalate, Exited] {
                    assert_eq!(ladder.next(after, late), Done, "{enter:?} {first:?} {after:?}");
                }
            }
        }
    }

    #[test]
    fn haste_goes_straight_to_the_kill_and_once_only() {
        let now = Instant::now();
        for enter in [Rung::Ask, Rung::Term] {
            let mut ladder = Ladder::new(enter, now);
            ladder.next(Started, now);
            assert_eq!(ladder.next(Escalate, now), KillGroup);
            assert_eq!(ladder.next(Escalate, now), Wait);
            assert_eq!(ladder.rung(), Rung::Kill);
            assert_eq!(ladder.next(DeadlinePassed, now + deadlines().stop_kill), GiveUp);
        }
    }

    #[test]
    fn an_early_timer_changes_nothing() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Rung::Ask, now);
        ladder.next(Started, now);
        let deadline = ladder.deadline();
        assert_eq!(ladder.next(DeadlinePassed, now + deadlines().stop_ask - Duration::from_millis(1)), Wait);
        assert_eq!((ladder.rung(), ladder.deadline()), (Rung::Ask, deadline));
    }

    #[test]
    fn what_was_given_up_may_still_end() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Rung::Kill, now);
        ladder.next(Started, now);
        let late = now + Duration::from_secs(60);
        assert_eq!(ladder.next(DeadlinePassed, late), GiveUp);
        for event in [Started, DeadlinePassed, Escalate] {
            assert_eq!(ladder.next(event, late), GiveUp);
        }
        assert_eq!(ladder.next(Exited, late), Done);
    }
}
