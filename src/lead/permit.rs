//! Who answers questions of permission (spec 8.2): in a headless run nobody, at once, unless the
//! desk was asked for; then the person, from any terminal, for as long as `lead.permissionTimeout`.

use std::time::Instant;

use tokio::sync::oneshot;

use super::ask::Asker;
use super::desk::{NotOne, Waiting};
use super::options::Questions;
use super::session::{Inner, Session};
use crate::core::clock;
use crate::core::frame::Frame;
use crate::core::ids::{self, AgentId};
use crate::core::question::{OpenQuestion, Question, Verdict};
use crate::core::text;
use crate::endpoint::{Identity, identify, nobody_to_ask, unanswered};
use crate::permission::rule_for;
use crate::settings::{RuleKind, add_rule};
use crate::wire::Link;

impl Session {
    /// The main conversation or an agent asks whether a call may run.
    pub(super) fn on_question(&mut self, asker: Asker, question: Question, reply: oneshot::Sender<Verdict>) {
        let refuse = |reply: oneshot::Sender<Verdict>, why: &str| {
            let _ = reply.send(nobody_to_ask(&question, why));
        };
        if self.options.questions == Questions::Denied {
            return refuse(reply, "nobody can be asked in this run");
        }
        if self.quit.is_some() {
            return refuse(reply, "the session is ending");
        }
        // Asked by rules from before the person's latest answer.
        if rule_for(&question.tool, &question.input).is_ok_and(|rule| self.permitted.contains(&rule)) {
            let _ = reply.send(Verdict::Allow);
            return;
        }
        let patience = self.options.settings.lead.permission_timeout;
        let id = ids::random_question();
        let put = self.desk.put(id, asker, question.clone(), reply, Instant::now(), patience);
        match put.map(|waiting| waiting.id.clone()) {
            Err(reply) => refuse(reply, "too many questions wait for an answer"),
            Ok(id) => {
                self.tell_question(&id);
                self.dirty = true;
            }
        }
    }

    /// A question that nobody sees is never answered: it is told whether or not progress is.
    fn tell_question(&self, id: &str) {
        let Some(waiting) = self.desk.iter().find(|w| w.id == id) else { return };
        let question = &waiting.question;
        let (agent, name) = self.who_asks(&waiting.asker);
        let what = text::for_terminal(&text::one_line(&question.description, 200));
        tracing::warn!(
            "{name} ({agent}) asks for permission: {} {what} ({}); answer with: lead permissions allow|deny {id}",
            question.tool,
            text::for_terminal(&question.reason)
        );
    }

    fn who_asks(&self, asker: &Asker) -> (String, String) {
        match asker {
            Asker::Main | Asker::Person | Asker::Session(_) => {
                (asker.label(&self.id), "the main conversation".to_owned())
            }
            Asker::Agent(id) => {
                let meta = self.supervisor.get(id).map(|slot| &slot.meta);
                let name = meta.map(|m| m.name.clone().unwrap_or_else(|| m.agent_type.clone()));
                // One of another program.
                let name = name.or_else(|| id.as_member().map(|(name, _)| name.to_owned()));
                (id.as_str().to_owned(), name.unwrap_or_else(|| "agent".to_owned()))
            }
        }
    }

    /// Whose time is over is denied.
    pub(super) fn on_overdue_questions(&mut self) {
        let patience = self.options.settings.lead.permission_timeout;
        for waiting in self.desk.overdue(Instant::now()) {
            let verdict = unanswered(&waiting.question, patience);
            waiting.answer(verdict);
        }
    }

    /// What waits at the desk, for anybody who looks.
    pub(super) fn open_questions(&mut self) -> Frame {
        self.desk.forget(None);
        let (now, now_ms) = (Instant::now(), clock::now_ms());
        let millis = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let row = |waiting: &Waiting| {
            let (agent, name) = self.who_asks(&waiting.asker);
            OpenQuestion {
                id: waiting.id.clone(),
                agent,
                name,
                session: self.id.as_str().to_owned(),
                question: waiting.question.clone(),
                since_ms: now_ms.saturating_sub(millis(now.saturating_duration_since(waiting.since))),
                until_ms: now_ms.saturating_add(millis(waiting.until.saturating_duration_since(now))),
            }
        };
        Frame::QuestionList { questions: self.desk.iter().map(row).collect() }
    }

    /// An answer from outside counts only if it is the person's: no model answers its own question,
    /// or another's.
    pub(super) fn permit(&mut self, id: &str, verdict: Verdict, always: bool, link: Link, seq: u64) {
        let identity = identify(&self.runtime, link.peer());
        let answer = match self.answer(id, verdict, &identity) {
            Ok(question) if always => return self.permit_always(&question, link, seq),
            Ok(_) => Frame::Done,
            Err((code, message)) => error(code, message),
        };
        let _ = link.reply(seq, answer);
    }

    /// Answers a question; what was asked.
    fn answer(&mut self, id: &str, verdict: Verdict, identity: &Identity) -> Result<Question, (&'static str, String)> {
        if *identity != Identity::Person {
            let who = identity.label();
            return Err(("refused", format!("{who} is an agent or session, and only the person answers questions")));
        }
        self.desk.forget(None);
        let waiting = self.desk.take(id).map_err(|not_one| match not_one {
            NotOne::Unknown => ("not_found", format!("no question {id:?} waits in this session")),
            NotOne::Several(ids) => ("refused", format!("{id:?} is the beginning of {}", ids.join(", "))),
        })?;
        let question = waiting.question.clone();
        let leaves_plan = waiting.asker == Asker::Main && question.tool == "ExitPlanMode" && verdict == Verdict::Allow;
        if leaves_plan {
            // Before the call runs: it tells the model which mode holds.
            self.leave_plan_mode();
        }
        if waiting.answer(verdict) {
            Ok(question)
        } else {
            Err(("not_found", format!("{id} is not waited for any more")))
        }
    }

    /// Writes the rule that permits such calls into the project's own settings, in a task: others may
    /// hold the file for a while. The session notices the change of the file like any other.
    fn permit_always(&self, question: &Question, link: Link, seq: u64) {
        let rule = rule_for(&question.tool, &question.input);
        let file = self.options.sources.local().ok_or_else(|| "this session has no project settings".to_owned());
        let durability = self.options.settings.lead.durability;
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            let added = rule.and_then(|rule| {
                let file = file?;
                let added = add_rule(&file, RuleKind::Allow, &rule, durability).map(|_| rule);
                added.map_err(|error| text::with_causes(&error))
            });
            let answer = match added {
                Ok(rule) => {
                    // A session whose loop has ended has no questions left.
                    let _ = inner.blocking_send(Inner::Permitted { rule });
                    Frame::Done
                }
                // The one call is permitted all the same.
                Err(why) => error("failed", format!("permitted this once; it can't be permitted always: {why}")),
            };
            let _ = link.reply(seq, answer);
        });
    }

    /// Who asked the same meanwhile need not be answered one by one.
    pub(super) fn permit_alike(&mut self, rule: &str) {
        // Those that are on their way here were decided before the rule was read.
        self.permitted.insert(rule.to_owned());
        let is_alike = |q: &Question| rule_for(&q.tool, &q.input).is_ok_and(|of_this| of_this == rule);
        for waiting in self.desk.take_all(is_alike) {
            waiting.answer(Verdict::Allow);
        }
    }

    /// Nothing that waits is of an agent that has ended.
    pub(super) fn forget_questions(&mut self, ended: &AgentId) {
        self.desk.forget(Some(ended));
    }
}

fn error(code: &str, message: String) -> Frame {
    Frame::Error { code: code.to_owned(), message }
}
