//! Where the lines of a run go: to standard output as they come, by a thread of their own, or into
//! an array that is printed at the end.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::output::Output;

/// Takes lines, without newline, and never waits.
pub(super) enum Sink {
    /// Written by a thread. The queue has no bound, since a session must not wait for its reader: an
    /// agent that is not listened to looks hung. What can wait here is bounded by what transcripts
    /// hold, and is on disk by then.
    Written(Sender<Line>),
    /// Kept.
    Kept(Mutex<Vec<Vec<u8>>>),
}

/// What the thread is given.
pub(super) enum Line {
    /// A line.
    Json(Vec<u8>),
    /// There are no more. Senders may live on in tasks that nobody waits for.
    Last,
}

/// How the thread ended.
pub(super) type Written = oneshot::Receiver<Result<(), CliError>>;

impl Sink {
    /// Lines go to `out`, each as soon as it comes. `unheard` fires when nobody reads them any more.
    pub(super) fn written(
        out: impl FnOnce() -> Output + Send + 'static,
        unheard: CancellationToken,
    ) -> io::Result<(Self, Written)> {
        let (sender, lines) = mpsc::channel();
        let (done, written) = oneshot::channel();
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            let end = write_all(&lines, &mut out());
            if end.is_err() {
                unheard.cancel();
            }
            let _ = done.send(end);
        })?;
        Ok((Self::Written(sender), written))
    }

    /// Lines are kept.
    pub(super) fn kept() -> Self {
        Self::Kept(Mutex::default())
    }

    /// One more line.
    pub(super) fn line(&self, json: Vec<u8>) {
        match self {
            // A thread that is gone has said why.
            Self::Written(sender) => drop(sender.send(Line::Json(json))),
            Self::Kept(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).push(json),
        }
    }

    /// There are no more lines.
    pub(super) fn end(&self) {
        if let Self::Written(sender) = self {
            let _ = sender.send(Line::Last);
        }
    }

    /// Prints what was kept as one array.
    pub(super) fn print(&self, out: &mut Output) -> Result<(), CliError> {
        let Self::Kept(lines) = self else { return Ok(()) };
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        out.text("[")?;
        for (at, line) in lines.iter().enumerate() {
            out.text(if at == 0 { "" } else { "," })?;
            out.bytes(line)?;
        }
        out.text("]\n")
    }
}

/// Writes until the last line; what is there goes out together, and nothing waits in a buffer for
/// the next line to come.
fn write_all(lines: &Receiver<Line>, out: &mut Output) -> Result<(), CliError> {
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                out.flush()?;
                match lines.recv() {
                    Ok(line) => line,
                    Err(_) => return Ok(()),
                }
            }
            Err(TryRecvError::Disconnected) => return out.flush(),
        };
        match line {
            Line::Json(json) => {
                out.bytes(&json)?;
                out.text("\n")?;
            }
            Line::Last => return out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn r095_a_line_is_out_before_the_next_one_comes_and_the_last_ends_it() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        let (sink, written) = Sink::written(move || Output::to(Box::new(writer)), CancellationToken::new()).unwrap();
        sink.line(b"{\"a\":1}".to_vec());
        let mut seen = [0; 8];
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"{\"a\":1}\n");
        sink.line(b"{}".to_vec());
        sink.end();
        written.await.unwrap().unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "{}\n");
    }

    #[tokio::test]
    async fn r095_a_reader_that_is_gone_is_told_of() {
        let (writer, reader) = UnixStream::pair().unwrap();
        drop(reader);
        let unheard = CancellationToken::new();
        let (sink, written) = Sink::written(move || Output::to(Box::new(writer)), unheard.clone()).unwrap();
        sink.line(b"{}".to_vec());
        unheard.cancelled().await;
        sink.line(b"{}".to_vec());
        assert!(matches!(written.await.unwrap(), Err(CliError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn what_is_kept_is_printed_as_an_array() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        let sink = Sink::kept();
        sink.line(b"{\"a\":1}".to_vec());
        sink.line(b"{}".to_vec());
        let mut out = Output::to(Box::new(writer));
        sink.print(&mut out).and_then(|()| out.flush()).unwrap();
        drop(out);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "[{\"a\":1},{}]\n");
    }
}
