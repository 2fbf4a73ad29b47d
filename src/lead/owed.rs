//! The results that are owed to the sender of messages (spec 7.1): one per message, in their order,
//! each held until the agents that its turn started have ended and reported. A pure value; a session
//! with a plain prompt owes nothing here.

use std::collections::{HashSet, VecDeque};

use crate::agent::TurnEnd;
use crate::core::ids::AgentId;

/// What is owed.
#[derive(Debug, Default)]
pub(super) struct Owed {
    results: VecDeque<Owing>,
    /// For whose message the running (or latest) turn works.
    current: Option<u64>,
    next: u64,
}

#[derive(Debug)]
struct Owing {
    number: u64,
    agents: HashSet<AgentId>,
    /// How its latest turn ended.
    end: Option<TurnEnd>,
}

impl Owed {
    /// The turn of a message begins.
    pub(super) fn message(&mut self) {
        self.results.push_back(Owing { number: self.next, agents: HashSet::new(), end: None });
        self.current = Some(self.next);
        self.next += 1;
    }

    /// A turn begins that tells of these agents.
    pub(super) fn notified(&mut self, agents: &[AgentId]) {
        let owner = agents.iter().find_map(|id| self.results.iter().find(|r| r.agents.contains(id)));
        self.current = owner.map(|r| r.number);
    }

    /// The running turn started or continued an agent.
    pub(super) fn started(&mut self, id: &AgentId) {
        for owing in &mut self.results {
            owing.agents.remove(id);
        }
        if let Some(owing) = self.results.iter_mut().find(|r| Some(r.number) == self.current) {
            owing.agents.insert(id.clone());
        }
    }

    /// A turn ended.
    pub(super) fn turn_ended(&mut self, end: &TurnEnd) {
        if let Some(owing) = self.results.iter_mut().find(|r| Some(r.number) == self.current) {
            owing.end = Some(end.clone());
        }
    }

    /// The next result that can be given: its turns are over and none of its agents `has_more` to say.
    pub(super) fn due(&mut self, turn_runs: bool, has_more: impl Fn(&AgentId) -> bool) -> Option<TurnEnd> {
        let first = self.results.front_mut()?;
        if (turn_runs && self.current == Some(first.number)) || first.agents.iter().any(has_more) {
            return None;
        }
        let end = first.end.take()?;
        self.results.pop_front();
        Some(end)
    }

    /// Whether a result is owed.
    pub(super) fn is_any(&self) -> bool {
        !self.results.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> TurnEnd {
        TurnEnd::Answer { text: text.to_owned(), stop_reason: None }
    }

    #[test]
    fn a_result_is_held_until_its_agents_have_reported() {
        let (mut owed, agent) = (Owed::default(), AgentId::random());
        assert_eq!(owed.due(false, |_| false), None);
        owed.message();
        assert_eq!(owed.due(true, |_| false), None, "its turn runs");
        owed.started(&agent);
        owed.turn_ended(&said("later"));
        assert_eq!(owed.due(false, |_| true), None, "its agent runs");
        owed.notified(std::slice::from_ref(&agent));
        assert_eq!(owed.due(true, |_| false), None, "its agent's report is being read");
        owed.turn_ended(&said("done"));
        assert_eq!(owed.due(false, |_| false), Some(said("done")));
        assert!(!owed.is_any());
    }

    #[test]
    fn results_come_in_the_order_of_the_messages_and_wait_for_their_own_agents_only() {
        let (mut owed, first, second) = (Owed::default(), AgentId::random(), AgentId::random());
        owed.message();
        owed.started(&first);
        owed.turn_ended(&said("one"));
        owed.message();
        owed.started(&second);
        owed.turn_ended(&said("two"));
        assert_eq!(owed.due(false, |id| *id == first), None, "the second waits for the first");
        owed.notified(std::slice::from_ref(&first));
        owed.turn_ended(&said("one, done"));
        let runs = |id: &AgentId| *id == second;
        assert_eq!(owed.due(false, runs), Some(said("one, done")));
        assert_eq!(owed.due(false, runs), None);
        assert_eq!(owed.due(false, |_| false), Some(said("two")));
    }

    #[test]
    fn an_agent_that_a_later_message_continues_is_that_message_s() {
        let (mut owed, agent) = (Owed::default(), AgentId::random());
        owed.message();
        owed.started(&agent);
        owed.turn_ended(&said("one"));
        owed.message();
        owed.started(&agent);
        assert_eq!(owed.due(true, |_| true), Some(said("one")));
        owed.turn_ended(&said("two"));
        assert_eq!(owed.due(false, |_| true), None);
    }
}
