//! `lead attach`: shows what an agent or session says while it says it, and sends it what is typed.
//! It follows the transcript, so nothing depends on whether the process answers.

use std::io::BufRead;
use std::path::PathBuf;

use clap::Args;
use tokio::sync::mpsc;

use super::ended::{Fate, Lead, appears, fate};
use super::error::{CliError, Exit};
use super::events::events_of;
use super::folders::Folders;
use super::logs::{Seen, each_line};
use super::lookup::{Subject, find_subject, ours};
use super::output::{self, Output};
use super::post::{Message, Recipient, SendRow, post};
use super::send::first_words;
use super::stop::async_runtime;
use crate::core::agent::RunStatus;
use crate::core::entry::{Line, Talk, parse_line};
use crate::core::ids;
use crate::core::limits;
use crate::core::message::{Block, Known, Role};
use crate::proc::{Signals, StopSignal};
use crate::store::reader::{StartAt, tail};
use crate::store::runtime::RuntimeDir;

/// Arguments of `lead attach`.
#[derive(Args, Debug)]
#[command(
    after_help = "A line that is typed is sent as `lead send` sends it. Ctrl-C, or the end of the input, detaches.\nExit codes: 0 detached or it completed, 1 it failed or was killed, 4 unknown."
)]
pub(super) struct AttachArgs {
    /// The agent or session: its id, the beginning of it, or the name of an agent that runs
    agent: String,
    /// Print JSON: an object on each line
    #[arg(long)]
    pub json: bool,
}

/// Lines that wait to be sent, or to be shown.
const WAITING: usize = 64;

pub(super) fn run(args: &AttachArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    let subject = find_subject(&args.agent, folders, &ours(folders, &dir)?)?;
    if let Subject::Agent(target) = &subject
        && !appears(&target.files)?
    {
        return Err(CliError::NeverStarted(target.id.clone()));
    }
    let runtime = async_runtime()?;
    let left = runtime.block_on(follow(args, &subject, folders, &dir, out));
    // A thread that reads the terminal, or a wait for a lock, must not hold the exit up.
    runtime.shutdown_background();
    match (left?, &subject) {
        (Left::Ended, Subject::Agent(target)) => Ok(match fate(target, &dir, Lead::MayRecord)? {
            Fate::Ended(outcome) if outcome.status != RunStatus::Completed => Exit::Failed,
            _ => Exit::Success,
        }),
        (Left::Signal(signal), _) => Ok(Exit::Signal(signal)),
        (Left::Ended | Left::Detached, _) => Ok(Exit::Success),
    }
}

/// Why nothing more is shown.
enum Left {
    /// It has ended.
    Ended,
    /// The person went away.
    Detached,
    /// Something ended this program.
    Signal(StopSignal),
}

async fn follow(
    args: &AttachArgs,
    subject: &Subject,
    folders: &Folders,
    dir: &RuntimeDir,
    out: &mut Output,
) -> Result<Left, CliError> {
    let mut signals = Signals::listen().map_err(|source| CliError::System { action: "listen to signals", source })?;
    let path = subject.transcript().to_owned();
    // Of an agent, what it says in its latest run; of a session, what it says from now on.
    let (from, run) = match subject {
        Subject::Agent(_) => (StartAt::Start, tail(&path)?.last_run),
        Subject::Session(..) => (StartAt::End, 0),
    };
    let mut lines = lines_of(path, from);
    let mut typed = Some(typed_lines());
    let (mut to_send, mut sent) = sender(args, subject, folders, dir);
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                None => return Ok(Left::Ended),
                Some(Said::All) => out.flush()?,
                Some(Said::Failed(error)) => return Err(error),
                Some(Said::Line(bytes)) => match parse_line(&bytes) {
                    Ok(Line::Talk(talk)) if talk.run.is_some_and(|r| r < run) => {}
                    Ok(Line::Outcome(outcome)) if outcome.run < run => {}
                    Ok(line) => show(&line, args.json, out)?,
                    Err(_) => {}
                },
            },
            line = next(&mut typed) => match (line, &to_send) {
                (Some(line), _) if line.trim().is_empty() => {}
                (Some(line), Some(queue)) => {
                    if queue.try_send(line).is_err() {
                        output::tell("lead: too many lines wait to be sent; the last one was dropped");
                    }
                }
                (Some(_), None) => {}
                (None, _) => {
                    // What was typed before is still sent; its answers end the loop.
                    typed = None;
                    to_send = None;
                }
            },
            answer = sent.recv() => match answer {
                Some(answer) => tell(answer),
                None => {
                    out.flush()?;
                    return Ok(Left::Detached);
                }
            },
            signal = signals.recv() => {
                out.flush()?;
                return Ok(if signal == StopSignal::Interrupt { Left::Detached } else { Left::Signal(signal) });
            }
        }
    }
}

/// What the transcript's reader tells.
enum Said {
    Line(Vec<u8>),
    /// All there is for now.
    All,
    Failed(CliError),
}

/// The lines of a transcript, until its writer is gone; read by a thread of its own.
fn lines_of(path: PathBuf, from: StartAt) -> mpsc::Receiver<Said> {
    let (sender, lines) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let gone = || CliError::System { action: "show it", source: std::io::ErrorKind::BrokenPipe.into() };
        let read = each_line(&path, from, Some(&path), &mut |seen| {
            let said = match seen {
                Seen::Line(bytes) => Said::Line(bytes.to_vec()),
                Seen::All => Said::All,
            };
            // Nobody looks any more: that ends the thread.
            sender.blocking_send(said).map_err(|_| gone())
        });
        if let Err(error) = read {
            let _ = sender.blocking_send(Said::Failed(error));
        }
    });
    lines
}

async fn next(typed: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}

/// The lines of standard input, read by a thread of its own, which nothing interrupts.
fn typed_lines() -> mpsc::Receiver<String> {
    let (sender, typed) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    typed
}

type Answer = Result<SendRow, CliError>;

/// Sends lines one after the other; the answers come in their order, and end with the last one.
fn sender(
    args: &AttachArgs,
    subject: &Subject,
    folders: &Folders,
    dir: &RuntimeDir,
) -> (Option<mpsc::Sender<String>>, mpsc::Receiver<Answer>) {
    let (to_send, mut lines) = mpsc::channel::<String>(WAITING);
    let (answer, answers) = mpsc::channel(1);
    let (named, to) = (args.agent.clone(), Recipient::Known(subject.clone()));
    let (folders, dir) = (folders.clone(), dir.clone());
    tokio::spawn(async move {
        while let Some(text) = lines.recv().await {
            let row = if text.len() > limits::MESSAGE_BYTES {
                Err(CliError::usage(format!("a line may have {} bytes", limits::MESSAGE_BYTES)))
            } else {
                let summary = Some(first_words(&text));
                let message = Message { id: ids::random_uuid(), text, summary, now: false };
                post(&message, &named, &to, &folders, &dir).await
            };
            if answer.send(row).await.is_err() {
                return;
            }
        }
    });
    (Some(to_send), answers)
}

fn tell(answer: Answer) {
    match answer {
        Ok(row) => output::tell(&format!("lead: {}: {}", row.outcome, crate::core::text::for_terminal(&row.message))),
        Err(error) => output::tell(&error.for_person()),
    }
}

/// What is said stands there as it was said; what is done has a line of its own.
fn show(line: &Line, json: bool, out: &mut Output) -> Result<(), CliError> {
    let said = spoken(line);
    for event in events_of(line) {
        match (&said, json) {
            (_, true) => out.json(&event)?,
            (Some(text), false) if event.what == "text" => out.answer(text)?,
            (_, false) => out.line(&event.line())?,
        }
    }
    Ok(())
}

/// The text of a reply's line; a line has one block.
fn spoken(line: &Line) -> Option<&str> {
    let Line::Talk(talk) = line else { return None };
    let Talk { kind: Role::Assistant, message, .. } = &**talk else { return None };
    message.message.content.iter().find_map(|block| match block {
        Block::Known(Known::Text { text }) => Some(text.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(lines: &[serde_json::Value], json: bool) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = Output::to(Box::new(file.reopen().unwrap()));
        for line in lines {
            show(&parse_line(line.to_string().as_bytes()).unwrap(), json, &mut out).unwrap();
        }
        out.flush().unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn what_is_said_is_shown_whole_and_what_is_done_on_a_line() {
        let talk = |kind: &str, content| json!({"type": kind, "parentUuid": null, "uuid": "u", "message": {"role": kind, "content": content}});
        let long = format!("first\n{}", "x".repeat(1000));
        let said = talk("assistant", json!([{"type": "text", "text": long}]));
        let call =
            talk("assistant", json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]));
        assert_eq!(shown(&[said.clone(), call.clone()], false), format!("{long}\nassistant  call  Bash ls\n"));
        let events = shown(&[said, call], true);
        let whats: Vec<String> = events
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["what"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(whats, ["text", "call"]);
    }
}
