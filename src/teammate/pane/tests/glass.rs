//! A pseudo terminal: the pane has one end, an emulator and the test have the other.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::sync::Notify;

use super::super::{PaneEvent, PaneInput};
use super::{all_rows, terminal};

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Glass {
    pub(super) slave: OwnedFd,
    master: Option<Arc<OwnedFd>>,
    emulator: Arc<Mutex<vt100::Parser>>,
    seen: Arc<Notify>,
    /// Whoever holds this keeps the terminal from being read.
    eyes: Arc<Mutex<()>>,
    events: Mutex<Vec<PaneEvent>>,
    /// Its end ends the reader.
    reader: Option<(UnixStream, JoinHandle<()>)>,
}

impl Glass {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let master = Arc::new(master);
        let (stop, stopped) = UnixStream::pair().unwrap();
        let mut glass = Self {
            slave,
            master: Some(master.clone()),
            emulator: Arc::new(Mutex::new(terminal(columns, rows))),
            seen: Arc::new(Notify::new()),
            eyes: Arc::new(Mutex::new(())),
            events: Mutex::new(Vec::new()),
            reader: None,
        };
        glass.resize(columns, rows);
        let (emulator, seen, eyes) = (glass.emulator.clone(), glass.seen.clone(), glass.eyes.clone());
        let reader = std::thread::spawn(move || {
            let mut file = File::from(master.try_clone().unwrap());
            let mut buffer = [0; 16 << 10];
            loop {
                let mut polled = [PollFd::new(&file, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
                poll(&mut polled, None).unwrap();
                if !polled[1].revents().is_empty() {
                    return;
                }
                let _open = eyes.lock().unwrap();
                match file.read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => emulator.lock().unwrap().process(&buffer[..bytes]),
                }
                seen.notify_one();
            }
        });
        glass.reader = Some((stop, reader));
        glass
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master(), size).unwrap();
        let mut emulator = self.emulator.lock().unwrap();
        emulator.screen_mut().set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
    }

    fn master(&self) -> &OwnedFd {
        self.master.as_ref().unwrap()
    }

    pub(super) fn type_in(&self, text: &str) {
        File::from(self.master().try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
    }

    /// For what is more than the terminal holds: somebody must read meanwhile.
    pub(super) fn type_slowly(&self, text: String) -> JoinHandle<()> {
        let mut file = File::from(self.master().try_clone().unwrap());
        std::thread::spawn(move || file.write_all(text.as_bytes()).unwrap())
    }

    /// What another program writes on the terminal.
    pub(super) fn write_as_other(&self, bytes: &[u8]) {
        rustix::io::write(&self.slave, bytes).unwrap();
    }

    pub(super) fn close_eyes(&self) -> MutexGuard<'_, ()> {
        self.eyes.lock().unwrap()
    }

    /// Ends the terminal as a terminal program does that is closed.
    pub(super) fn hang_up(&mut self) {
        self.end_reader();
        self.master = None;
    }

    fn end_reader(&mut self) {
        if let Some((stop, reader)) = self.reader.take() {
            drop(stop);
            let _ = reader.join();
        }
    }

    pub(super) fn rows(&self) -> Vec<String> {
        all_rows(&mut self.emulator.lock().unwrap())
    }

    /// What was typed until now.
    pub(super) fn events(&self) -> Vec<PaneEvent> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    /// Waits for `input` until the rows are as wanted.
    pub(super) async fn until(&self, input: &mut PaneInput, what: &str, is_so: impl Fn(&[String]) -> bool) {
        self.until_seen(input, what, |parser| is_so(&all_rows(parser))).await;
    }

    /// See [`Self::until`].
    pub(super) async fn until_seen(
        &self,
        input: &mut PaneInput,
        what: &str,
        is_so: impl Fn(&mut vt100::Parser) -> bool,
    ) {
        let wait = async {
            while !is_so(&mut self.emulator.lock().unwrap()) {
                tokio::select! {
                    event = input.next() => self.events.lock().unwrap().push(event),
                    () = self.seen.notified() => {}
                }
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let rows = self.rows();
            panic!("{what}: not after {PATIENCE:?}; last seen: {:#?}", &rows[rows.len().saturating_sub(20)..]);
        }
    }

    /// Waits until this is the next event.
    pub(super) async fn until_event(&self, input: &mut PaneInput, wanted: &PaneEvent) {
        let event = tokio::time::timeout(PATIENCE, input.next()).await.expect("an event");
        assert!(event == *wanted, "not what was typed: {}", &format!("{event:?}")[..100]);
    }

    /// Waits until the terminal is as wanted, while nobody waits for the pane.
    pub(super) fn eventually(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        eventually(what, || {
            let found = is_so(self.emulator.lock().unwrap().screen());
            found.then_some(()).ok_or_else(|| self.rows())
        });
    }

    /// See [`Self::eventually`].
    pub(super) fn eventually_rows(&self, is_so: impl Fn(&[String]) -> bool) {
        eventually("rows", || {
            let rows = self.rows();
            if is_so(&rows) { Ok(()) } else { Err(rows) }
        });
    }
}

impl Drop for Glass {
    fn drop(&mut self) {
        self.end_reader();
    }
}

/// Looks until there is what is looked for.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, Vec<String>>) -> T {
    let begun = Instant::now();
    let (_open, nothing) = mpsc::channel::<()>();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if begun.elapsed() > PATIENCE => panic!("{what}: not after {PATIENCE:?}; last seen: {seen:#?}"),
            Err(_) => drop(nothing.recv_timeout(Duration::from_millis(15))),
        }
    }
}
