//! Questions of permission on the agent's side: they are asked over the owner link, survive the
//! owner (its successor is asked again when it adopts the agent), and are denied when nobody
//! answers in time (spec 8.2). A detached agent has nobody to ask, so it is denied at once.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::agent::Desk;
use crate::core::agent::Owner;
use crate::core::frame::Frame;
use crate::core::limits::{self, deadlines};
use crate::core::question::{Question, Verdict};
use crate::model::BoxFuture;
use crate::proc::deadline;
use crate::wire::Link;

/// A question on its way to the main loop, and who waits for the answer.
pub struct Asked {
    /// The question.
    pub question: Question,
    /// Takes the answer; closed when nobody waits any more.
    pub reply: oneshot::Sender<Verdict>,
}

/// A [`Desk`] that queues questions for the main loop.
pub struct QueueDesk(pub mpsc::Sender<Asked>);

impl Desk for QueueDesk {
    fn ask(&self, question: Question) -> BoxFuture<'_, Verdict> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let ending = || Verdict::Deny { reason: "this process is ending and asked nobody".to_owned() };
            match self.0.send(Asked { question, reply }).await {
                Ok(()) => answer.await.unwrap_or_else(|_| ending()),
                Err(_) => ending(),
            }
        })
    }
}

/// The words for a question that can be put to nobody; `why` says what kind of run it is.
pub fn nobody_to_ask(question: &Question, why: &str) -> Verdict {
    Verdict::Deny { reason: format!("it needs a person's permission ({}), and {why}", question.reason) }
}

/// The words for a question that nobody answered.
pub fn unanswered(question: &Question, waited: Duration) -> Verdict {
    let waited = humantime::format_duration(waited);
    nobody_to_ask(question, &format!("nobody answered within {waited} (lead.permissionTimeout)"))
}

/// What the loop hears of questions.
pub enum QuestionEvent {
    /// The agent's own conversation asks.
    Asked(Asked),
    /// The owner has answered the question of this number.
    Answered(u64, Verdict),
    /// Nobody has answered the oldest one in time.
    Overdue,
}

fn detached(asked: Asked) {
    let verdict = nobody_to_ask(&asked.question, "nobody can be asked: this agent runs detached");
    let _ = asked.reply.send(verdict);
}

struct Open {
    number: u64,
    asked: Asked,
    until: Instant,
}

/// The questions of one agent.
pub(super) struct Questions {
    asked: mpsc::Receiver<Asked>,
    answers: mpsc::Receiver<(u64, Verdict)>,
    answer: mpsc::Sender<(u64, Verdict)>,
    open: Vec<Open>,
    numbers: u64,
    patience: Duration,
}

impl Questions {
    /// None yet, and the desk that takes them. Each waits for `patience`.
    pub(super) fn new(patience: Duration) -> (Self, QueueDesk) {
        let (sender, asked) = mpsc::channel(limits::REQUESTS_IN_FLIGHT);
        let (answer, answers) = mpsc::channel(limits::REQUESTS_IN_FLIGHT);
        (Self { asked, answers, answer, open: Vec::new(), numbers: 0, patience }, QueueDesk(sender))
    }

    /// The next thing to handle; safe to drop and call again.
    pub(super) async fn next(&mut self) -> QuestionEvent {
        let until = self.open.first().map(|open| open.until);
        tokio::select! {
            Some(asked) = self.asked.recv() => QuestionEvent::Asked(asked),
            Some((number, verdict)) = self.answers.recv() => QuestionEvent::Answered(number, verdict),
            () = deadline(until), if until.is_some() => QuestionEvent::Overdue,
        }
    }

    /// Handles an event; questions go to the owner over `link`.
    pub(super) fn handle(&mut self, event: QuestionEvent, owner: Owner, link: &Link) {
        match event {
            QuestionEvent::Asked(asked) if owner == Owner::None => detached(asked),
            QuestionEvent::Asked(asked) => {
                self.numbers += 1;
                // The owner's own limit is the same; its words come first.
                let until = Instant::now() + self.patience + deadlines().reply;
                let open = Open { number: self.numbers, asked, until };
                if owner == Owner::Lead {
                    self.put(&open, link);
                }
                self.open.push(open);
            }
            QuestionEvent::Answered(number, verdict) => {
                if let Some(at) = self.open.iter().position(|open| open.number == number) {
                    let _ = self.open.remove(at).asked.reply.send(verdict);
                }
            }
            QuestionEvent::Overdue => {
                let now = Instant::now();
                for open in self.open.extract_if(.., |open| open.until <= now) {
                    let verdict = unanswered(&open.asked.question, self.patience);
                    let _ = open.asked.reply.send(verdict);
                }
            }
        }
    }

    /// A new owner is asked all that is open.
    pub(super) fn put_again(&mut self, link: &Link) {
        self.open.retain(|open| !open.asked.reply.is_closed());
        self.open.iter().for_each(|open| self.put(open, link));
    }

    /// The owner has let the agent go: what it has not answered nobody will.
    pub(super) fn let_go(&mut self) {
        self.open.drain(..).for_each(|open| detached(open.asked));
    }

    /// Puts a question to the owner, in a task of its own. An owner that goes away has not answered.
    fn put(&self, open: &Open, link: &Link) {
        let (link, answers, number) = (link.clone(), self.answer.clone(), open.number);
        let question = open.asked.question.clone();
        let left = open.until.saturating_duration_since(Instant::now());
        tokio::spawn(async move {
            let verdict = match link.request(Frame::Permission { question: question.clone() }, left).await {
                Ok(Frame::PermissionAnswer { verdict }) => verdict,
                Ok(Frame::Error { message, .. }) => nobody_to_ask(&question, &message),
                Ok(_) => nobody_to_ask(&question, "the lead answered something else"),
                Err(_) => return,
            };
            let _ = answers.send((number, verdict)).await;
        });
    }
}
