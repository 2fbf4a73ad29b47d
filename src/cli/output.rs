//! The one way to standard output, and the one to standard error. Standard output carries results
//! only. A reader that is slow is waited for; one that is gone ends the program quietly.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use super::error::CliError;
use crate::core::text;

/// Bytes collected before they are written.
const BUFFER: usize = 64 << 10;

/// Where results go.
pub(super) struct Output {
    sink: BufWriter<Box<dyn Write>>,
    is_terminal: bool,
}

impl Output {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        let stdout = io::stdout();
        let mut out = match stdout.as_fd().try_clone_to_owned() {
            Ok(fd) => Self::to(Box::new(Patient(File::from(fd)))),
            Err(_) => Self::to(Box::new(io::stdout())),
        };
        out.is_terminal = stdout.is_terminal();
        out
    }

    /// Anywhere else.
    pub(super) fn to(sink: Box<dyn Write>) -> Self {
        Self { sink: BufWriter::with_capacity(BUFFER, sink), is_terminal: false }
    }

    /// Writes `text` as it is.
    pub(super) fn text(&mut self, text: &str) -> Result<(), CliError> {
        self.sink.write_all(text.as_bytes()).map_err(CliError::Output)
    }

    /// Writes `text` and a newline, unless it ends with one.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.text(text)?;
        if text.ends_with('\n') { Ok(()) } else { self.text("\n") }
    }

    /// Writes what a model said, and a newline unless it ends with one: byte for byte for programs,
    /// without what a terminal could obey for people.
    pub(super) fn answer(&mut self, text: &str) -> Result<(), CliError> {
        self.answer_part(text)?;
        if text.ends_with('\n') { Ok(()) } else { self.text("\n") }
    }

    /// Like [`Self::answer`], for a part of it.
    pub(super) fn answer_part(&mut self, text: &str) -> Result<(), CliError> {
        if self.is_terminal { self.text(&text::for_terminal(text)) } else { self.text(text) }
    }

    /// Writes `bytes` as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.sink.write_all(bytes).map_err(CliError::Output)
    }

    /// Writes `value` as JSON on one line.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer(&mut self.sink, value).map_err(|e| CliError::Output(e.into()))?;
        self.text("\n")
    }

    /// Hands everything written so far to the reader. To be called at the end: a drop swallows
    /// errors.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        self.sink.flush().map_err(CliError::Output)
    }
}

/// A descriptor that other programs may have made non-blocking (it is a property of the open file,
/// which they share with us): when it is full, it is waited for.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells the person something on standard error. Nobody may read it; that is no error.
pub(super) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether somebody watches standard error.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn r095_a_slow_reader_of_a_non_blocking_pipe_gets_everything() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let text = "0123456789abcdef".repeat(200_000);
        std::thread::scope(|s| {
            let text = &text;
            s.spawn(move || {
                let mut out = Output::to(Box::new(Patient(File::from(std::os::fd::OwnedFd::from(writer)))));
                out.line(text).unwrap();
                out.flush().unwrap();
            });
            let mut seen = String::new();
            reader.read_to_string(&mut seen).unwrap();
            assert_eq!(seen.len(), text.len() + 1);
        });
    }

    #[test]
    fn r095_a_closed_pipe_is_told_apart() {
        let (writer, reader) = UnixStream::pair().unwrap();
        drop(reader);
        let mut out = Output::to(Box::new(Patient(File::from(std::os::fd::OwnedFd::from(writer)))));
        out.line("x").unwrap();
        let error = out.flush().unwrap_err();
        assert!(matches!(&error, CliError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe), "{error}");
    }
}
