//! `lead permissions`: the questions that wait at the desks of living leads, and the person's answer
//! to them, from any terminal. Every lead is asked at once and each has a deadline, so that a frozen
//! one holds nothing up.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::caller::refuse_agents;
use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::ours;
use super::output::{self, Output};
use super::table::{self, Align, Column};
use crate::core::clock;
use crate::core::frame::Frame;
use crate::core::limits::deadlines;
use crate::core::question::{OpenQuestion, Verdict};
use crate::store::runtime::{Registered, RuntimeDir};
use crate::wire::{dial_and_greet, parse_address};

/// Arguments of `lead permissions`.
#[derive(Args, Debug)]
#[command(
    after_help = "Sessions ask only if they were started with --permission-prompt-tool desk; others deny at once.\n\
                  Exit codes: 0 done, 3 refused, 4 no such question."
)]
pub(super) struct PermissionsArgs {
    #[command(subcommand)]
    pub verb: PermissionsVerb,
}

/// What to do with questions.
#[derive(Debug, Subcommand)]
pub(super) enum PermissionsVerb {
    /// List the questions that wait for an answer
    List(ListArgs),
    /// Permit a call that is asked about
    Allow(AllowArgs),
    /// Forbid a call that is asked about
    Deny(DenyArgs),
}

/// Arguments of `lead permissions list`.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Print JSON: an array with a row for each question
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lead permissions allow`.
#[derive(Args, Debug)]
pub(super) struct AllowArgs {
    /// The question: its id or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
    /// Permit such calls from now on: adds a rule to .claude/settings.local.json of the project
    #[arg(long)]
    always: bool,
    /// Print JSON: the question that was answered
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lead permissions deny`.
#[derive(Args, Debug)]
pub(super) struct DenyArgs {
    /// The question: its id or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
    /// Tell the model why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON: the question that was answered
    #[arg(long)]
    pub json: bool,
}

impl PermissionsArgs {
    pub(super) fn json(&self) -> bool {
        match &self.verb {
            PermissionsVerb::List(args) => args.json,
            PermissionsVerb::Allow(args) => args.json,
            PermissionsVerb::Deny(args) => args.json,
        }
    }
}

/// A row of `lead permissions list --json`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    id: &'a str,
    agent: &'a str,
    name: &'a str,
    session: &'a str,
    tool: &'a str,
    input: &'a Value,
    description: &'a str,
    reason: &'a str,
    since_ms: u64,
    until_ms: u64,
}

impl<'a> Row<'a> {
    fn of(open: &'a OpenQuestion) -> Self {
        Self {
            id: &open.id,
            agent: &open.agent,
            name: &open.name,
            session: &open.session,
            tool: &open.question.tool,
            input: &open.question.input,
            description: &open.question.description,
            reason: &open.question.reason,
            since_ms: open.since_ms,
            until_ms: open.until_ms,
        }
    }
}

pub(super) fn run(args: &PermissionsArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::System { action: "start the runtime", source })?;
    match &args.verb {
        PermissionsVerb::List(list) => {
            let questions = runtime.block_on(waiting(folders, &dir))?;
            print(&questions.into_iter().map(|(_, open)| open).collect::<Vec<_>>(), list.json, out)
        }
        PermissionsVerb::Allow(allow) => {
            let answer = Answer { id: &allow.id, verdict: Verdict::Allow, always: allow.always };
            let answered = runtime.block_on(answer.give(folders, &dir))?;
            say(&answered, "permitted", allow.json, out)
        }
        PermissionsVerb::Deny(deny) => {
            let said = deny.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
            let reason = said.map_or_else(|| "the person said no".to_owned(), |r| format!("the person said no: {r}"));
            let answer = Answer { id: &deny.id, verdict: Verdict::Deny { reason }, always: false };
            let answered = runtime.block_on(answer.give(folders, &dir))?;
            say(&answered, "forbidden", deny.json, out)
        }
    }
}

fn print(questions: &[OpenQuestion], json: bool, out: &mut Output) -> Result<Exit, CliError> {
    if json {
        out.json(&questions.iter().map(Row::of).collect::<Vec<_>>())?;
        return Ok(Exit::Success);
    }
    if questions.is_empty() {
        output::tell("lead: no question waits for an answer");
        return Ok(Exit::Success);
    }
    const COLUMNS: [Column; 6] = [
        ("ID", Align::Left, 10),
        ("AGENT", Align::Left, 36),
        ("NAME", Align::Left, 24),
        ("LEFT", Align::Right, 6),
        ("CALL", Align::Left, 80),
        ("WHY", Align::Left, 80),
    ];
    let now = clock::now_ms();
    let row = |open: &OpenQuestion| {
        let left = table::short_duration(Duration::from_millis(open.until_ms.saturating_sub(now)));
        let call = format!("{} {}", open.question.tool, open.question.description);
        vec![open.id.clone(), open.agent.clone(), open.name.clone(), left, call, open.question.reason.clone()]
    };
    out.text(&table::render(&COLUMNS, &questions.iter().map(row).collect::<Vec<_>>()))?;
    Ok(Exit::Success)
}

fn say(open: &OpenQuestion, done: &str, json: bool, out: &mut Output) -> Result<Exit, CliError> {
    if json {
        out.json(&Row::of(open))?;
    } else {
        let call = format!("{} {}", open.question.tool, open.question.description);
        out.line(&crate::core::text::one_line(&format!("{done}  {}  {call}", open.agent), 200))?;
    }
    Ok(Exit::Success)
}

/// All questions at the desks of living leads, oldest first, each with its lead.
async fn waiting(folders: &Folders, dir: &RuntimeDir) -> Result<Vec<(Registered, OpenQuestion)>, CliError> {
    let leads = ours(folders, dir)?.into_iter().filter(|r| r.alive && r.entry.role == "lead");
    let asked: Vec<_> = leads
        .map(|lead| {
            let asked = tokio::spawn(ask(lead.entry.address.clone(), Frame::Questions, deadlines().status));
            (lead, asked)
        })
        .collect();
    let mut found = Vec::new();
    for (lead, asked) in asked {
        match asked.await {
            Ok(Ok(Frame::QuestionList { questions })) => {
                found.extend(questions.into_iter().map(|open| (lead.clone(), open)));
            }
            // One that is of an older build, or ends just now, has no questions.
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(error)) => {
                output::tell(&format!(
                    "lead: session {} (pid {}) does not say what it asks: {error}",
                    lead.entry.session, lead.entry.pid
                ));
            }
        }
    }
    found.sort_by_key(|(_, open)| open.since_ms);
    Ok(found)
}

async fn ask(address: String, frame: Frame, limit: Duration) -> Result<Frame, crate::wire::WireError> {
    let path = parse_address(&address)?;
    let asked = async {
        let (link, _inbox, _) = dial_and_greet(&path, "shell", "").await?;
        link.request(frame, limit).await
    };
    asked.await
}

/// An answer of the person.
struct Answer<'a> {
    id: &'a str,
    verdict: Verdict,
    always: bool,
}

impl Answer<'_> {
    async fn give(self, folders: &Folders, dir: &RuntimeDir) -> Result<OpenQuestion, CliError> {
        refuse_agents(dir, "answer questions of permission")?;
        let text = self.id.trim();
        let begins =
            |open: &OpenQuestion| !text.is_empty() && (open.id.starts_with(text) || open.id[2..].starts_with(text));
        let mut found: Vec<_> = waiting(folders, dir).await?.into_iter().filter(|(_, open)| begins(open)).collect();
        if found.len() > 1 {
            let candidates = found.into_iter().map(|(_, open)| open.id).collect();
            return Err(CliError::Ambiguous { text: text.to_owned(), candidates });
        }
        let Some((lead, open)) = found.pop() else { return Err(CliError::NoQuestion(text.to_owned())) };
        let permit = Frame::Permit { id: open.id.clone(), verdict: self.verdict, always: self.always };
        match ask(lead.entry.address, permit, deadlines().reply).await? {
            Frame::Done => Ok(open),
            Frame::Error { code, .. } if code == "not_found" => Err(CliError::NoQuestion(open.id)),
            Frame::Error { message, .. } => Err(CliError::Refused(message)),
            _ => Err(CliError::Refused("the session answered something else".to_owned())),
        }
    }
}
