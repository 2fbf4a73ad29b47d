//! Processes that the measurements start. However a measurement ends, its processes end with it.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lead::core::frame::{BUILD, Frame, PROTOCOL, Welcome};
use lead::core::paths::AgentFiles;
use lead::proc::{Process, spawn_agent};
use lead::wire::{Connection, Inbox, Link, PeerStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;

use crate::Res;
use crate::place::Place;
use crate::raw::Raw;

/// How long anything may take that ends by itself.
pub const SOON: Duration = Duration::from_secs(60);

/// Kills a process and its group when dropped, and waits until it is gone, so that the folders it
/// writes to can be removed.
pub struct Held {
    pid: i32,
    pidfd: OwnedFd,
    owner: Owner,
}

enum Owner {
    Child(Child),
    Agent(Process),
}

impl Held {
    fn new(pid: i32, owner: Owner) -> io::Result<Self> {
        let pidfd = Pid::from_raw(pid)
            .ok_or(io::ErrorKind::NotFound)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| io::Error::from(errno).kind()))?;
        Ok(Self { pid, pidfd, owner })
    }

    /// A child that leads its process group.
    pub fn of_child(child: Child) -> Res<Self> {
        Ok(Self::new(child.id().cast_signed(), Owner::Child(child))?)
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it ends within `limit`. Blocks.
    fn has_ended(&self, limit: Duration) -> bool {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&limit)).is_ok_and(|n| n > 0)
    }

    /// Lets `window` pass while it lives. Blocks.
    pub fn watch(&self, window: Duration) -> Res<()> {
        if self.has_ended(window) {
            Err(format!("pid {} ended while it was measured", self.pid).into())
        } else {
            Ok(())
        }
    }

    /// Waits until something can be read, while it lives. Blocks.
    pub fn watch_for(&self, source: BorrowedFd<'_>, limit: Duration) -> Res<()> {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::new(&source, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&limit))?;
        match fds.map(|fd| fd.revents().contains(PollFlags::IN)) {
            [_, true] => Ok(()),
            [true, false] => Err(format!("pid {} ended while it was measured", self.pid).into()),
            _ if ready == 0 => Err(format!("pid {} did not do in time what is measured", self.pid).into()),
            _ => Err("what is waited for can't be read".into()),
        }
    }

    /// Stops it from running, until it is killed.
    pub fn freeze(&self) -> Res<()> {
        Ok(pidfd_send_signal(&self.pidfd, Signal::STOP)?)
    }

    fn kill(&self) {
        if self.has_ended(Duration::ZERO) {
            return;
        }
        match &self.owner {
            // Not waited for yet, so the number is still its own.
            Owner::Child(_) => drop(Pid::from_raw(self.pid).map(|pid| kill_process_group(pid, Signal::KILL))),
            Owner::Agent(process) => drop(process.kill()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.kill();
        self.has_ended(Duration::from_secs(5));
        if let Owner::Child(child) = &mut self.owner {
            let _ = child.try_wait();
        }
    }
}

/// Ends many at once, which is faster than one by one.
pub fn end_all<T>(all: Vec<(Held, T)>) {
    all.iter().for_each(|(held, _)| held.kill());
}

/// The programs next to this one, and of the product.
pub struct Programs {
    /// The measuring program.
    pub bench: PathBuf,
    /// The limit.
    pub bare: PathBuf,
    /// A model that answers at once, and its least client.
    pub instant: PathBuf,
    /// `lead`.
    pub lead: PathBuf,
    /// `lead-worker`.
    pub worker: PathBuf,
    /// `lead-teammate`.
    pub teammate: PathBuf,
}

impl Programs {
    /// Finds them.
    pub fn find() -> Res<Self> {
        let bench = std::env::current_exe()?;
        let examples = bench.parent().ok_or("no folder around this program")?;
        let built = examples.parent().ok_or("no folder around the examples")?;
        let (bare, instant) = (examples.join("bare"), examples.join("instant"));
        let (lead, worker) = (built.join("lead"), built.join("lead-worker"));
        let teammate = built.join("lead-teammate");
        for program in [&bare, &instant, &lead, &worker, &teammate] {
            if !program.is_file() {
                return Err(format!("{} is missing: start this by scripts/bench", program.display()).into());
            }
        }
        Ok(Self { bench, bare, instant, lead, worker, teammate })
    }
}

/// Starts a process with a link on its fd 0 and nothing else around it: how fast it can be.
pub fn start(program: &Path, args: &[&str], place: &Place) -> Res<(Held, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(program)
        .args(args)
        .current_dir(place.cwd())
        .env_clear()
        .envs(place.environment())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::options().create(true).append(true).open(place.path("log"))?))
        .process_group(0)
        .spawn()?;
    Ok((Held::of_child(child)?, UnixStream::from_std(ours)?))
}

/// Starts the limit of a worker and waits for its greeting.
pub async fn start_bare(programs: &Programs, place: &Place) -> Res<(Held, Raw)> {
    let (held, stream) = start(&programs.bare, &["--hello"], place)?;
    let mut link = Raw::new(stream);
    link.next().await?.ok_or("the bare process ended before its greeting")?;
    Ok((held, link))
}

/// Starts the worker that [`Place::agent`] made up and waits until it is ready, as a lead does.
pub async fn start_worker(
    programs: &Programs,
    place: &Place,
    (welcome, files): (Welcome, AgentFiles),
) -> Res<(Held, (Link, Inbox))> {
    let id = welcome.config.id.as_str().to_owned();
    let args = ["--role", "worker", "--id", &id].map(str::to_owned);
    let spawned = spawn_agent(&programs.worker, &args, &place.cwd(), &place.environment(), &files.log())?;
    let pid = spawned.process.pid();
    let held = Held::new(pid, Owner::Agent(spawned.process))?;
    let (link, mut inbox) = Connection::start(PeerStream::of_child(spawned.link, pid, None));
    let died =
        || format!("a worker ended before it was ready: {}", std::fs::read_to_string(files.log()).unwrap_or_default());
    match inbox.recv().await.ok_or_else(died)?.frame {
        Frame::Hello(hello) if hello.protocol == PROTOCOL && hello.build == BUILD => {}
        other => return Err(format!("a worker greeted with {other:?}").into()),
    }
    link.send(Frame::Welcome(Box::new(welcome)))?;
    loop {
        match inbox.recv().await.ok_or_else(died)?.frame {
            Frame::Ready { .. } => return Ok((held, (link, inbox))),
            Frame::Refused { reason } => return Err(format!("a worker refused to start: {reason}").into()),
            _ => {}
        }
    }
}
