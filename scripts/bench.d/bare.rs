//! The limit that `scripts/bench` measures against: processes that do the least their counterpart
//! needs, on the same runtime and the same libc. Started by the measuring program only.

mod raw;

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use serde_json::json;
use tokio::net::UnixStream;

use raw::Raw;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["--version"] => writeln!(io::stdout(), "{} (bare)", env!("CARGO_PKG_VERSION")),
        ["--hello"] => on_runtime(hello()),
        ["--once"] => on_runtime(async { writeln!(io::stdout(), "done") }),
        ["--echo"] => on_runtime(echo()),
        ["--wake", folder, file] => wake(Path::new(folder), Path::new(file)),
        ["--read", folder] => read_registry(Path::new(folder)),
        ["--scan", file] => scan(Path::new(file)),
        ["--hold", file] => hold(Path::new(file)),
        ["--run", command, args @ ..] => run(command, args),
        _ => Err(io::Error::other("it is started by scripts/bench")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn on_runtime(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The parent's link on fd 0.
fn link() -> io::Result<Raw> {
    let stream = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    Ok(Raw::new(UnixStream::from_std(stream)?))
}

/// An agent that greets and then has nothing to do.
async fn hello() -> io::Result<()> {
    #[derive(Serialize)]
    struct Envelope {
        seq: u64,
        re: u64,
        frame: Hello,
    }
    #[derive(Serialize)]
    struct Hello {
        t: &'static str,
        protocol: u32,
        build: &'static str,
        role: &'static str,
        id: &'static str,
    }
    let (build, id) = (env!("CARGO_PKG_VERSION"), "a-0123456789abcdef");
    let frame = Hello { t: "hello", protocol: 1, build, role: "worker", id };
    let mut link = link()?;
    link.send(&Envelope { seq: 1, re: 0, frame }).await?;
    while link.next().await?.is_some() {}
    Ok(())
}

/// Adds what files hold that are renamed into a folder to another file, a line each, until the parent's
/// link on fd 0 ends. Says there first that it watches.
fn wake(folder: &Path, file: &Path) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    inotify.add_watch(folder, AddWatchFlags::IN_MOVED_TO)?;
    let mut file = File::options().append(true).open(file)?;
    let stdin = io::stdin();
    StdUnixStream::from(stdin.as_fd().try_clone_to_owned()?).write_all(&[0; 4])?;
    loop {
        let mut ready =
            [PollFd::new(inotify.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::NONE)?;
        if ready[1].any() == Some(true) {
            return Ok(());
        }
        for name in inotify.read_events()?.into_iter().filter_map(|event| event.name) {
            let mut line = fs::read(folder.join(name))?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
    }
}

/// Sends back each message that has a number; the others only arrive.
async fn echo() -> io::Result<()> {
    let mut link = link()?;
    while let Some(mut message) = link.receive().await? {
        if message.seq != 0 {
            message.re = message.seq;
            link.send(&message).await?;
        }
    }
    Ok(())
}

/// Reads what a list of the living must read, and tells who lives.
fn read_registry(folder: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let mut entry = Vec::new();
        let mut file = File::open(&path)?;
        file.read_to_end(&mut entry)?;
        let alive = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let state = fs::read(path.with_extension("state"))?;
        writeln!(out, "{} {alive} {} {}", path.display(), entry.len(), state.len())?;
    }
    Ok(())
}

/// Reads a file from one end to the other.
fn scan(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; 256 << 10];
    while file.read(&mut chunk)? > 0 {}
    Ok(())
}

/// Reads the lines of a file and keeps them: the memory that they need.
fn hold(path: &Path) -> io::Result<()> {
    let lines = BufReader::new(File::open(path)?).split(b'\n').collect::<io::Result<Vec<_>>>()?;
    writeln!(io::stdout(), "{}", lines.len())
}

/// Runs a command and prints what it took. Done here and not by the measuring program since the
/// peak memory of a process counts from before its exec: it is never less than its parent's.
fn run(command: &str, args: &[&str]) -> io::Result<()> {
    let mut command = Command::new(command);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.spawn()?.wait()?;
    let wall = begun.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let took = json!({
        "ok": status.success(),
        "status": status.to_string(),
        "wall_us": wall.as_secs_f64() * 1e6,
        "cpu_us": usage.user_time().num_microseconds() + usage.system_time().num_microseconds(),
        "peak_kib": usage.max_rss(),
    });
    writeln!(io::stdout(), "{took}")
}
