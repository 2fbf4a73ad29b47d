//! Where the lines of a run go: to standard output as they come, by a thread of their own, or into
//! an array that is printed at the end.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::output::Output;
use super::spool::Spool;

/// Takes lines, without newline, and never waits for whoever reads them: an agent that is not listened
/// to would look hung. What nobody has read yet waits in a [`Spool`].
pub(super) enum Sink {
    /// Written by a thread.
    Written(Arc<Queue>),
    /// Kept.
    Kept(Mutex<Kept>),
}

/// What waits for the thread.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    spool: Spool,
    /// There are no more. Whoever adds lines may live on in tasks that nobody waits for.
    is_last: bool,
    /// Why nothing more is written, unless the thread says so itself.
    failed: Option<io::Error>,
    /// The thread is gone.
    is_over: bool,
}

/// An array that grows.
#[derive(Default)]
pub(super) struct Kept {
    spool: Spool,
    is_begun: bool,
    failed: Option<io::Error>,
}

/// How the thread ended.
pub(super) type Written = oneshot::Receiver<Result<(), CliError>>;

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    /// Lines go to `out`, each as soon as it comes. `unheard` fires when nobody reads them any more.
    pub(super) fn written(
        out: impl FnOnce() -> Output + Send + 'static,
        unheard: CancellationToken,
    ) -> io::Result<(Self, Written)> {
        let queue = Arc::new(Queue::default());
        let (done, written) = oneshot::channel();
        let lines = Arc::clone(&queue);
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            let end = write_all(&lines, &mut out());
            lines.lock().is_over = true;
            if end.is_err() {
                unheard.cancel();
            }
            let _ = done.send(end);
        })?;
        Ok((Self::Written(queue), written))
    }

    /// Lines are kept.
    pub(super) fn kept() -> Self {
        Self::Kept(Mutex::default())
    }

    /// One more line.
    pub(super) fn line(&self, mut json: Vec<u8>) {
        match self {
            Self::Written(queue) => {
                let mut waiting = queue.lock();
                // A thread that is gone has said why.
                if waiting.is_over || waiting.is_last || waiting.failed.is_some() {
                    return;
                }
                json.push(b'\n');
                if let Err(error) = waiting.spool.push(&json) {
                    waiting.failed = Some(error);
                }
                queue.changed.notify_one();
            }
            Self::Kept(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let before = if kept.is_begun { b"," } else { b"[" };
                kept.is_begun = true;
                if let Err(error) = kept.spool.push(before).and_then(|()| kept.spool.push(&json)) {
                    kept.failed.get_or_insert(error);
                }
            }
        }
    }

    /// There are no more lines.
    pub(super) fn end(&self) {
        if let Self::Written(queue) = self {
            queue.lock().is_last = true;
            queue.changed.notify_one();
        }
    }

    /// Prints what was kept as one array.
    pub(super) fn print(&self, out: &mut Output) -> Result<(), CliError> {
        let Self::Kept(kept) = self else { return Ok(()) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = kept.failed.take() {
            return Err(cant_keep(error));
        }
        let mut chunk = Vec::new();
        while !kept.spool.is_empty() {
            kept.spool.take(&mut chunk).map_err(cant_keep)?;
            out.bytes(&chunk)?;
        }
        out.text(if kept.is_begun { "]\n" } else { "[]\n" })
    }
}

fn cant_keep(source: io::Error) -> CliError {
    CliError::System { action: "keep output that is not read yet in a temporary file", source }
}

/// Writes until the last line; what is there goes out together, and nothing waits in a buffer for
/// the next line to come.
fn write_all(queue: &Queue, out: &mut Output) -> Result<(), CliError> {
    let mut chunk = Vec::new();
    loop {
        {
            let mut waiting = queue.lock();
            if waiting.spool.is_empty() {
                // The reader gets all there is before this thread sleeps.
                drop(waiting);
                out.flush()?;
                waiting = queue.lock();
            }
            while waiting.spool.is_empty() && !waiting.is_last && waiting.failed.is_none() {
                waiting = queue.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.spool.is_empty() {
                // What was taken before it failed is out by now.
                return match waiting.failed.take() {
                    Some(error) => Err(cant_keep(error)),
                    None => out.flush(),
                };
            }
            waiting.spool.take(&mut chunk).map_err(cant_keep)?;
        }
        out.bytes(&chunk)?;
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
