//! The prompt of a headless run: from the argument, from standard input, or from both (spec 7.1).

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use super::error::{CliError, with_causes};
use crate::core::limits;
use crate::lead::{InputKind, Inputs, SessionInput};

/// What standard input had to say.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// All there was.
    Bytes(Vec<u8>),
    /// Not a byte within the time: nobody may ever write to it.
    Nothing,
    /// More than a prompt may have.
    TooMuch,
}

/// A prompt, or where it comes from.
pub(super) enum Prompt {
    /// It is known; none = there is none.
    Known(Option<String>),
    /// A pipe may have more to say: the session starts meanwhile.
    Coming(Inputs),
}

/// Puts the prompt together: `argument`, then what standard input says, joined by a newline. A pipe
/// beside an argument is read by a thread of its own, so that it does not hold the start up. One that
/// says nothing for `silence` is given up, which `tell` is told.
pub(super) fn read(
    argument: Option<String>,
    silence: Duration,
    tell: impl FnOnce(&str) + Send + 'static,
) -> Result<Prompt, CliError> {
    let cant = |source| CliError::System { action: "read standard input", source };
    let file = match io::stdin().as_fd().try_clone_to_owned().map(File::from) {
        Ok(file) if !file.is_terminal() => file,
        // Closed, or a person sits there, whose words are for the screen.
        _ => return join(argument, String::new()).map(Prompt::Known),
    };
    if argument.as_ref().is_none_or(|a| a.trim().is_empty()) || !may_be_silent(&file).map_err(cant)? {
        let said = listen(&file, silence).map_err(cant)?;
        return whole(argument, said, silence, tell).map(Prompt::Known);
    }
    let (sender, receiver) = mpsc::channel(1);
    let listener = move || {
        let said = listen(&file, silence).map_err(cant).and_then(|said| whole(argument, said, silence, tell));
        let said = match said {
            Ok(text) => SessionInput::Message { text: text.unwrap_or_default(), blocks: Vec::new(), id: None },
            Err(error) => SessionInput::Unusable(with_causes(&error)),
        };
        // A session that is over by now needs no prompt.
        let _ = sender.blocking_send(said);
    };
    std::thread::Builder::new().name("prompt".to_owned()).spawn(listener).map_err(cant)?;
    Ok(Prompt::Coming(Inputs { receiver, kind: InputKind::Prompt }))
}

/// The prompt, now that standard input had its say.
fn whole(
    argument: Option<String>,
    said: Said,
    silence: Duration,
    tell: impl FnOnce(&str),
) -> Result<Option<String>, CliError> {
    let piped = match said {
        Said::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Said::TooMuch => return Err(too_long()),
        Said::Nothing => {
            let waited = humantime::format_duration(silence);
            tell(&format!("lead: nothing came on standard input for {waited}; going on without it"));
            String::new()
        }
    };
    join(argument, piped)
}

fn join(argument: Option<String>, piped: String) -> Result<Option<String>, CliError> {
    let argument = argument.filter(|a| !a.trim().is_empty());
    let piped = Some(piped).filter(|p| !p.trim().is_empty());
    let prompt = match (argument, piped) {
        (Some(argument), Some(piped)) => Some(format!("{argument}\n{piped}")),
        (argument, piped) => argument.or(piped),
    };
    match prompt {
        Some(prompt) if prompt.len() > limits::PROMPT_BYTES => Err(too_long()),
        prompt => Ok(prompt),
    }
}

/// A text that was promised on standard input (`-`), to its end, however long that takes. `None` if it
/// has more than `limit` bytes.
pub(super) fn promised(limit: usize) -> Result<Option<String>, CliError> {
    let cant = |source| CliError::System { action: "read standard input", source };
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from).map_err(cant)?;
    let mut bytes = Vec::new();
    Waiting(file).take(limit as u64 + 1).read_to_end(&mut bytes).map_err(cant)?;
    Ok((bytes.len() <= limit).then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

pub(super) fn too_long() -> CliError {
    CliError::usage(format!("the prompt is too long: it may have {} bytes", limits::PROMPT_BYTES))
        .with_hint("put the text into a file and name the file in the prompt")
}

/// Reads to the end. What may stay open in silence, a pipe or a socket, has `silence` to say its
/// first byte; a writer that began is waited for.
fn listen(file: &File, silence: Duration) -> io::Result<Said> {
    if may_be_silent(file)? && !wait_readable(file, silence)? {
        return Ok(Said::Nothing);
    }
    let mut bytes = Vec::new();
    Waiting(file.try_clone()?).take(limits::PROMPT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() > limits::PROMPT_BYTES { Said::TooMuch } else { Said::Bytes(bytes) })
}

/// Whether it may stay open and say nothing.
fn may_be_silent(file: &File) -> io::Result<bool> {
    let kind = file.metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_socket())
}

/// Waits for what is read, even if somebody made the pipe non-blocking.
pub(super) struct Waiting(pub(super) File);

impl Read for Waiting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(wait_readable(&self.0, Duration::MAX)?),
                read => return read,
            }
        }
    }
}

/// Waits until there is something to read, an end included. False when the time is over.
fn wait_readable(file: &File, longest: Duration) -> io::Result<bool> {
    let deadline = Instant::now().checked_add(longest);
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if deadline.is_some_and(|at| Instant::now() >= at) => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn pair() -> (UnixStream, File) {
        let (writer, reader) = UnixStream::pair().unwrap();
        (writer, File::from(OwnedFd::from(reader)))
    }

    #[test]
    fn r094_a_silent_open_pipe_is_given_up() {
        let (_writer, reader) = pair();
        assert_eq!(listen(&reader, Duration::from_millis(30)).unwrap(), Said::Nothing);
    }

    #[test]
    fn a_pipe_that_began_is_read_to_its_end() {
        let (mut writer, reader) = pair();
        let (read_some, when_read) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|s| {
            s.spawn(move || {
                writer.write_all(b"a").unwrap();
                // Longer than the silence that would be given up at the start.
                assert!(when_read.recv_timeout(Duration::from_millis(60)).is_err());
                writer.write_all(b"bc").unwrap();
            });
            assert_eq!(listen(&reader, Duration::from_millis(20)).unwrap(), Said::Bytes(b"abc".to_vec()));
            drop(read_some);
        });
    }

    #[test]
    fn an_ended_pipe_and_an_empty_file_say_nothing_at_once() {
        let (writer, reader) = pair();
        drop(writer);
        assert_eq!(listen(&reader, LONG).unwrap(), Said::Bytes(vec![]));
        assert_eq!(listen(&File::open("/dev/null").unwrap(), LONG).unwrap(), Said::Bytes(vec![]));
    }

    #[test]
    fn a_non_blocking_pipe_is_waited_for() {
        let (mut writer, reader) = pair();
        let duplicate = UnixStream::from(OwnedFd::from(reader.try_clone().unwrap()));
        duplicate.set_nonblocking(true).unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                writer.write_all(b"x").unwrap();
                writer.write_all(b"y").unwrap();
            });
            assert_eq!(listen(&reader, LONG).unwrap(), Said::Bytes(b"xy".to_vec()));
        });
    }

    #[test]
    fn the_limit_holds_at_n_and_not_at_n_plus_one() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; limits::PROMPT_BYTES]).unwrap();
        let read = |file: &File| {
            use std::io::Seek;
            let mut file = file.try_clone().unwrap();
            file.rewind().unwrap();
            listen(&file, LONG).unwrap()
        };
        assert!(matches!(read(&file), Said::Bytes(bytes) if bytes.len() == limits::PROMPT_BYTES));
        file.write_all(b"x").unwrap();
        assert_eq!(read(&file), Said::TooMuch);
        assert!(join(Some("x".repeat(limits::PROMPT_BYTES)), String::new()).is_ok());
        let error = join(Some("x".repeat(limits::PROMPT_BYTES)), "y".to_owned()).unwrap_err();
        assert!(error.to_string().contains("10485760"), "{error}");
    }

    #[test]
    fn argument_and_input_are_joined_by_a_newline() {
        let join = |a: Option<&str>, p: &str| join(a.map(str::to_owned), p.to_owned()).unwrap();
        assert_eq!(join(Some("a"), "b\n"), Some("a\nb\n".to_owned()));
        assert_eq!(join(Some("a"), " \n"), Some("a".to_owned()));
        assert_eq!(join(None, "b"), Some("b".to_owned()));
        assert_eq!(join(Some(" "), ""), None);
    }
}
