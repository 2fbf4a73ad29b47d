//! The session's command queue (spec 2.1): a pure value. Priorities `now` < `next` < `later`;
//! within one, first in, first out.

use std::collections::VecDeque;

use crate::agent::Input;

/// When an entry is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// At the next tool-round boundary of the running turn.
    Now,
    /// With the next turn: what people and other sessions say.
    Next,
    /// With the next turn, after those: notifications.
    Later,
}

/// Something to tell the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When.
    pub priority: Priority,
    /// What.
    pub input: Input,
}

/// What waits for a turn. Every change bumps `generation`, so that a reader knows whether its
/// snapshot is old.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    now: VecDeque<Input>,
    next: VecDeque<Input>,
    later: VecDeque<Input>,
    generation: u64,
}

impl Queue {
    /// Adds an entry.
    pub fn push(&mut self, priority: Priority, input: Input) {
        self.lane(priority).push_back(input);
        self.generation += 1;
    }

    /// Takes the best entry that `filter` accepts.
    pub fn dequeue(&mut self, filter: impl Fn(&Entry) -> bool) -> Option<Entry> {
        for priority in [Priority::Now, Priority::Next, Priority::Later] {
            let lane = self.lane(priority);
            let at = lane.iter().position(|input| filter(&Entry { priority, input: input.clone() }));
            if let Some(input) = at.and_then(|at| lane.remove(at)) {
                self.generation += 1;
                return Some(Entry { priority, input });
            }
        }
        None
    }

    /// Takes everything, best first: the inputs of one turn.
    pub fn drain(&mut self) -> Vec<Input> {
        let mut all: Vec<Input> = self.now.drain(..).collect();
        all.extend(self.next.drain(..));
        all.extend(self.later.drain(..));
        if !all.is_empty() {
            self.generation += 1;
        }
        all
    }

    /// What waits, best first.
    pub fn snapshot(&self) -> Vec<Entry> {
        let lanes = [(Priority::Now, &self.now), (Priority::Next, &self.next), (Priority::Later, &self.later)];
        lanes
            .into_iter()
            .flat_map(|(priority, lane)| lane.iter().map(move |input| Entry { priority, input: input.clone() }))
            .collect()
    }

    /// Counts changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.next.is_empty() && self.later.is_empty()
    }

    fn lane(&mut self, priority: Priority) -> &mut VecDeque<Input> {
        match priority {
            Priority::Now => &mut self.now,
            Priority::Next => &mut self.next,
            Priority::Later => &mut self.later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Input {
        Input { text: text.to_owned(), ..Input::default() }
    }

    fn texts(inputs: Vec<Input>) -> Vec<String> {
        inputs.into_iter().map(|i| i.text).collect()
    }

    #[test]
    fn drains_by_priority_then_in_order() {
        let mut q = Queue::default();
        q.push(Priority::Later, input("n1"));
        q.push(Priority::Next, input("u1"));
        q.push(Priority::Later, input("n2"));
        q.push(Priority::Now, input("!"));
        q.push(Priority::Next, input("u2"));
        assert_eq!(q.snapshot().len(), 5);
        assert_eq!(texts(q.drain()), ["!", "u1", "u2", "n1", "n2"]);
        assert!(q.is_empty());
    }

    #[test]
    fn dequeue_takes_the_best_that_is_accepted() {
        let mut q = Queue::default();
        q.push(Priority::Later, input("n1"));
        q.push(Priority::Next, input("u1"));
        let before = q.generation();
        let only_later = |e: &Entry| e.priority == Priority::Later;
        assert_eq!(q.dequeue(only_later).map(|e| e.input.text), Some("n1".to_owned()));
        assert!(q.generation() > before);
        assert_eq!(q.dequeue(only_later), None);
        assert_eq!(q.dequeue(|_| true).map(|e| e.input.text), Some("u1".to_owned()));
    }

    #[test]
    fn a_burst_of_a_thousand_takes_one_turn() {
        let mut q = Queue::default();
        (0..1000).for_each(|i| q.push(Priority::Later, input(&i.to_string())));
        assert_eq!(q.drain().len(), 1000);
        assert!(q.is_empty());
    }
}
