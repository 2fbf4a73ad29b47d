//! The prompt of a headless run: from the argument, from standard input, or from both (spec 7.1).

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::CliError;
use crate::core::limits;

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

/// Puts the prompt together: `argument`, then what standard input says, joined by a newline. `None`
/// if both are empty. A pipe that says nothing for `silence` is given up, which `tell` is told.
pub(super) fn read(
    argument: Option<String>,
    silence: Duration,
    tell: impl FnOnce(&str),
) -> Result<Option<String>, CliError> {
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let piped = match stdin {
        Ok(file) if !file.is_terminal() => {
            listen(&file, silence).map_err(|source| CliError::System { action: "read standard input", source })?
        }
        // Closed, or a person sits there, whose words are for the screen.
        _ => Said::Bytes(Vec::new()),
    };
    let piped = match piped {
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

fn too_long() -> CliError {
    CliError::usage(format!("the prompt is too long: it may have {} bytes", limits::PROMPT_BYTES))
        .with_hint("put the text into a file and name the file in the prompt")
}

/// Reads to the end. What may stay open in silence, a pipe or a socket, has `silence` to say its
/// first byte; a writer that began is waited for.
fn listen(file: &File, silence: Duration) -> io::Result<Said> {
    let kind = file.metadata()?.file_type();
    if (kind.is_fifo() || kind.is_socket()) && !wait_readable(file, silence)? {
        return Ok(Said::Nothing);
    }
    let mut bytes = Vec::new();
    let mut rest = file;
    loop {
        match (&mut rest).take((limits::PROMPT_BYTES + 1 - bytes.len()) as u64).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() > limits::PROMPT_BYTES => return Ok(Said::TooMuch),
            Ok(_) => return Ok(Said::Bytes(bytes)),
            // Somebody made the pipe non-blocking.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(wait_readable(file, Duration::MAX)?),
            Err(e) => return Err(e),
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
