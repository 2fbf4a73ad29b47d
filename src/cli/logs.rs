//! `lead logs`: what an agent or session does, a line per event; with `-f` until it ends.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ended::{appears, end_of};
use super::error::{CliError, Exit};
use super::events::{LogEvent, events_of};
use super::folders::Folders;
use super::lookup::{Subject, find_subject, ours};
use super::output::Output;
use crate::core::entry::parse_line;
use crate::core::text;
use crate::store::reader::{Follow, StartAt};

/// Arguments of `lead logs`.
#[derive(Args, Debug)]
pub(super) struct LogsArgs {
    /// The agent or session: its id, the beginning of it, or the name of an agent that runs
    agent: String,
    /// Go on printing until it ends
    #[arg(short, long)]
    follow: bool,
    /// Print what its process wrote on standard error
    #[arg(long, conflicts_with = "json")]
    stderr: bool,
    /// Print JSON: an array of events; with --follow an object on each line
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &LogsArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let runtime = folders.open_runtime()?;
    let subject = find_subject(&args.agent, folders, &ours(folders, &runtime)?)?;
    if let Subject::Agent(target) = &subject
        && !appears(&target.files)?
    {
        return Err(CliError::NeverStarted(target.id.clone()));
    }
    if args.stderr {
        return print_stderr(&subject, args.follow, out);
    }
    let mut collected = Vec::new();
    let path = subject.transcript();
    each_line(path, StartAt::Start, args.follow.then_some(path), &mut |seen| {
        let Seen::Line(bytes) = seen else { return out.flush() };
        let Ok(line) = parse_line(bytes) else { return Ok(()) };
        for event in events_of(&line) {
            print(event, args, &mut collected, out)?;
        }
        Ok(())
    })?;
    if args.json && !args.follow {
        out.json(&collected)?;
    }
    Ok(Exit::Success)
}

fn print(event: LogEvent, args: &LogsArgs, collected: &mut Vec<LogEvent>, out: &mut Output) -> Result<(), CliError> {
    match (args.json, args.follow) {
        (true, false) => collected.push(event),
        (true, true) => out.json(&event)?,
        (false, _) => out.line(&event.line())?,
    }
    Ok(())
}

fn print_stderr(subject: &Subject, follow: bool, out: &mut Output) -> Result<Exit, CliError> {
    let Subject::Agent(target) = subject else {
        return Err(CliError::usage("a session has no log of its own: it writes to the terminal it was started from"));
    };
    let log = target.files.log();
    let held = follow.then_some(target.files.transcript());
    each_line(&log, StartAt::Start, held, &mut |seen| match seen {
        Seen::Line(bytes) => out.line(&text::for_terminal(&String::from_utf8_lossy(bytes))),
        Seen::All => out.flush(),
    })?;
    Ok(Exit::Success)
}

/// What was seen of a file that grows.
pub(super) enum Seen<'a> {
    /// A line.
    Line(&'a [u8]),
    /// All there is for now: somebody watches.
    All,
}

type Each<'a> = &'a mut dyn FnMut(Seen<'_>) -> Result<(), CliError>;

/// Hands every line of `path` from `from` on to `each`; with `held` until the lock of that file is
/// free and all is read that was written under it. Blocks.
pub(super) fn each_line(path: &Path, from: StartAt, held: Option<&Path>, each: Each<'_>) -> Result<(), CliError> {
    let mut lines = Follow::open(path, from)?;
    let mut end = held.map(end_of).transpose()?;
    loop {
        while let Some(line) = lines.try_next()? {
            each(Seen::Line(&line))?;
        }
        let Some(ended) = &mut end else { return Ok(()) };
        each(Seen::All)?;
        if wait(&lines, ended)? {
            // What was written last may have come between the last read and the end.
            end = None;
        }
    }
}

/// Waits for news or the end; true if it is the end.
pub(super) fn wait(news: &impl AsFd, end: &mut UnixStream) -> Result<bool, CliError> {
    let mut polled = [PollFd::new(news.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(CliError::System { action: "wait for more", source: e.into() }),
        }
    }
    let ended = polled[1].any().unwrap_or(false);
    Ok(ended && end.read(&mut [0]).is_ok_and(|n| n == 0))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;
    use crate::store::atomic::Durability;
    use crate::store::transcript::TranscriptWriter;

    #[test]
    fn following_ends_with_the_lock_and_misses_nothing() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("t.jsonl");
            let mut writer = TranscriptWriter::create(&path, Durability::Process).unwrap();
            writer.append_raw(&["{\"n\":0}"]).unwrap();
            let (seen, when_seen) = mpsc::channel();
            std::thread::scope(|s| {
                let path = &path;
                s.spawn(move || {
                    each_line(path, StartAt::Start, Some(path), &mut |line| {
                        if let Seen::Line(line) = line {
                            seen.send(String::from_utf8_lossy(line).into_owned()).unwrap();
                        }
                        Ok(())
                    })
                    .unwrap();
                });
                assert_eq!(when_seen.recv().unwrap(), "{\"n\":0}");
                writer.append_raw(&["{\"n\":1}", "{\"n\":2}"]).unwrap();
                drop(writer);
            });
            assert_eq!(when_seen.iter().collect::<Vec<_>>(), ["{\"n\":1}", "{\"n\":2}"]);
        }
    }

    #[test]
    fn without_following_it_ends_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let _writer = TranscriptWriter::create(&path, Durability::Process).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"a\":1}\n{\"torn").unwrap();
        let mut lines = 0;
        each_line(&path, StartAt::Start, None, &mut |_| {
            lines += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(lines, 1);
    }
}
