//! The permission desk: questions of the main conversation and of agents that wait for the person's
//! answer (spec 8.2). A pure table; who may answer is decided by whoever takes the answer in.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::ask::Asker;
use crate::core::ids::AgentId;
use crate::core::question::{Question, Verdict};

/// Questions that may wait at a time.
const OPEN_QUESTIONS: usize = 1024;

/// A question that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// `p-` + 8 hex digits.
    pub id: String,
    pub asker: Asker,
    pub question: Question,
    pub since: Instant,
    pub until: Instant,
    reply: oneshot::Sender<Verdict>,
}

impl Waiting {
    /// Answers it. False if nobody waits for the answer any more.
    pub(super) fn answer(self, verdict: Verdict) -> bool {
        self.reply.send(verdict).is_ok()
    }
}

/// Why an id names no single question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotOne {
    /// None has it.
    Unknown,
    /// These have it as a beginning.
    Several(Vec<String>),
}

/// All that waits, oldest first.
#[derive(Debug, Default)]
pub(super) struct Desk {
    waiting: Vec<Waiting>,
}

impl Desk {
    /// Puts a question on the desk for `patience`; the id it has there. The reply comes back if the
    /// desk is full. A question that is put again (by an agent that was adopted) takes the place of
    /// the one before.
    pub(super) fn put(
        &mut self,
        id: String,
        asker: Asker,
        question: Question,
        reply: oneshot::Sender<Verdict>,
        now: Instant,
        patience: Duration,
    ) -> Result<&Waiting, oneshot::Sender<Verdict>> {
        self.waiting.retain(|w| w.asker != asker || w.question.tool_use_id != question.tool_use_id);
        if self.waiting.len() >= OPEN_QUESTIONS {
            return Err(reply);
        }
        self.waiting.push(Waiting { id, asker, question, since: now, until: now + patience, reply });
        let at = self.waiting.len() - 1;
        Ok(&self.waiting[at])
    }

    /// Takes the question that `text` is the id, or the beginning of the id, of.
    pub(super) fn take(&mut self, text: &str) -> Result<Waiting, NotOne> {
        let begins = |w: &Waiting| !text.is_empty() && (w.id.starts_with(text) || w.id["p-".len()..].starts_with(text));
        let found: Vec<usize> = (0..self.waiting.len()).filter(|at| begins(&self.waiting[*at])).collect();
        match found[..] {
            [] => Err(NotOne::Unknown),
            [at] => Ok(self.waiting.remove(at)),
            _ => Err(NotOne::Several(found.iter().map(|at| self.waiting[*at].id.clone()).collect())),
        }
    }

    /// Takes those whose time is over.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Waiting> {
        self.waiting.extract_if(.., |w| w.until <= now).collect()
    }

    /// Takes those that `wanted` picks.
    pub(super) fn take_all(&mut self, wanted: impl Fn(&Question) -> bool) -> Vec<Waiting> {
        self.waiting.extract_if(.., |w| wanted(&w.question)).collect()
    }

    /// When the next one's time is over.
    pub(super) fn next_until(&self) -> Option<Instant> {
        self.waiting.iter().map(|w| w.until).min()
    }

    /// Drops what nobody waits for any more: cancelled turns and agents that have ended.
    pub(super) fn forget(&mut self, ended: Option<&AgentId>) {
        self.waiting.retain(|w| {
            !w.reply.is_closed() && !matches!((&w.asker, ended), (Asker::Agent(id), Some(ended)) if id == ended)
        });
    }

    /// Whether an agent, or with none anybody, waits for an answer.
    pub(super) fn waits(&self, agent: Option<&AgentId>) -> bool {
        self.waiting.iter().any(|w| match (agent, &w.asker) {
            (None, _) => true,
            (Some(agent), Asker::Agent(id)) => agent == id,
            (Some(_), Asker::Main | Asker::Person | Asker::Session(_)) => false,
        })
    }

    /// All that wait, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(call: &str) -> Question {
        Question {
            tool_use_id: call.to_owned(),
            tool: "Bash".to_owned(),
            input: json!({"command": "make"}),
            description: "make".to_owned(),
            reason: "mode default: Bash asks".to_owned(),
        }
    }

    fn agent() -> AgentId {
        AgentId::parse("a-1111111111111111").unwrap()
    }

    fn put(desk: &mut Desk, id: &str, asker: Asker, call: &str, now: Instant) -> oneshot::Receiver<Verdict> {
        let (reply, answer) = oneshot::channel();
        desk.put(id.to_owned(), asker, question(call), reply, now, Duration::from_secs(5)).unwrap();
        answer
    }

    #[test]
    fn questions_are_found_by_a_beginning_that_only_one_has() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        let mut first = put(&mut desk, "p-11112222", Asker::Main, "t1", now);
        let _second = put(&mut desk, "p-11113333", Asker::Main, "t2", now);
        assert_eq!(desk.take("p-9").unwrap_err(), NotOne::Unknown);
        assert_eq!(desk.take("").unwrap_err(), NotOne::Unknown);
        let both = vec!["p-11112222".to_owned(), "p-11113333".to_owned()];
        assert_eq!(desk.take("p-1111").unwrap_err(), NotOne::Several(both));
        assert!(desk.take("11112").unwrap().answer(Verdict::Allow));
        assert_eq!(first.try_recv().unwrap(), Verdict::Allow);
        assert_eq!(desk.take("p-11112222").unwrap_err(), NotOne::Unknown, "an answer counts once");
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        drop(put(&mut desk, "p-00000001", Asker::Main, "t1", now));
        let _of_agent = put(&mut desk, "p-00000002", Asker::Agent(agent()), "t1", now);
        let _main = put(&mut desk, "p-00000003", Asker::Main, "t3", now);
        desk.forget(None);
        assert_eq!(desk.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(), ["p-00000002", "p-00000003"]);
        assert!(desk.waits(Some(&agent())));
        desk.forget(Some(&agent()));
        assert!(!desk.waits(Some(&agent())) && desk.waits(None));
    }

    #[test]
    fn one_that_is_put_again_takes_the_place_of_the_first() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        let _lost = put(&mut desk, "p-00000001", Asker::Agent(agent()), "t1", now);
        let mut answer = put(&mut desk, "p-00000002", Asker::Agent(agent()), "t1", now);
        assert_eq!(desk.iter().count(), 1);
        desk.take("p-00000002").unwrap().answer(Verdict::Allow);
        assert_eq!(answer.try_recv().unwrap(), Verdict::Allow);
    }

    #[test]
    fn time_is_over_at_the_limit_and_the_desk_is_bounded() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        let answers: Vec<_> = (0..OPEN_QUESTIONS)
            .map(|n| put(&mut desk, &format!("p-{n:08x}"), Asker::Main, &n.to_string(), now))
            .collect();
        let (reply, _answer) = oneshot::channel();
        assert!(desk.put("p-f".to_owned(), Asker::Main, question("x"), reply, now, Duration::ZERO).is_err());
        let until = now + Duration::from_secs(5);
        assert_eq!(desk.next_until(), Some(until));
        assert!(desk.overdue(until - Duration::from_nanos(1)).is_empty());
        assert_eq!(desk.overdue(until).len(), answers.len());
    }
}
