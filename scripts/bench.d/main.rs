//! Measures lead beside its limits; `scripts/bench` builds and starts it.

mod agents;
mod crew;
mod files;
mod held;
mod http;
mod mailbox;
mod place;
mod raw;
mod report;
mod resume;
mod socket;
mod teams;
mod whole;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use held::Programs;
use report::{HEAD, Row};

/// What a measurement returns. Whatever can't be measured ends the program.
type Res<T> = Result<T, Box<dyn std::error::Error>>;

/// Measure lead beside the limit of what it is made of
#[derive(Parser)]
struct Args {
    /// Few repetitions, for a look
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Measure this part only (can be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,
    /// Where to put the files of the measurement; how fast files are made there counts [default: /tmp]
    #[arg(long, value_name = "FOLDER", default_value = "/tmp", hide_default_value = true)]
    dir: PathBuf,
    /// Also time this command as a whole process, in turn with `lead -p`
    #[arg(long, value_name = "CMD")]
    peer: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Ready,
    Crowd,
    Memory,
    Idle,
    Socket,
    Files,
    Resume,
    Mailbox,
    Seen,
    Lost,
    Panes,
    Verbs,
    Oneshot,
    Http,
    Size,
}

/// How much is measured, with what, and the results so far.
struct Scope {
    programs: Rc<Programs>,
    folder: PathBuf,
    quick: bool,
    json: bool,
    rows: Vec<Row>,
}

impl Scope {
    /// A number of repetitions.
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    fn add(&mut self, row: Row) {
        if !self.json {
            // Nobody reads any more: the result is nobody's.
            let _ = writeln!(io::stdout(), "{row}");
        }
        self.rows.push(row);
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next()) {
        (Some(socket::ECHO), None, None) => return socket::echo_main(),
        (Some(resume::RESUME), Some(path), None) => return resume::resume_main(Path::new(&path)),
        (Some(mailbox::WRITE), Some(way), Some(count)) => return mailbox::write_main(&way, &count),
        _ => {}
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Res<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let scope = Scope {
        programs: Rc::new(Programs::find()?),
        folder: args.dir.clone(),
        quick: args.quick,
        json: args.json,
        rows: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // What was started is ended by the drop of the measurement.
        tokio::select! {
            done = measure(scope, args) => done,
            _ = interrupt.recv() => Err("interrupted".into()),
            _ = terminate.recv() => Err("terminated".into()),
        }
    })
}

async fn measure(mut scope: Scope, args: &Args) -> Res<()> {
    if !args.json {
        writeln!(io::stdout(), "{HEAD}")?;
    }
    for &part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(&part) {
            continue;
        }
        match part {
            Part::Ready => agents::ready(&mut scope).await?,
            Part::Crowd => agents::crowd(&mut scope).await?,
            Part::Memory => agents::memory(&mut scope).await?,
            Part::Idle => agents::idle(&mut scope).await?,
            Part::Socket => socket::socket(&mut scope).await?,
            Part::Files => files::files(&mut scope).await?,
            Part::Resume => resume::resume(&mut scope).await?,
            Part::Mailbox => mailbox::mailbox(&mut scope)?,
            Part::Seen => teams::seen(&mut scope).await?,
            Part::Lost => teams::lost(&mut scope).await?,
            Part::Panes => teams::panes(&mut scope).await?,
            Part::Verbs => whole::verbs(&mut scope).await?,
            Part::Oneshot => whole::oneshot(&mut scope, args.peer.as_deref()).await?,
            Part::Http => http::http(&mut scope).await?,
            Part::Size => whole::size(&mut scope)?,
        }
    }
    if args.json {
        let rows: Vec<_> = scope.rows.iter().map(Row::to_json).collect();
        let result = json!({
            "version": lead::core::frame::BUILD,
            "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "quick": args.quick,
            "rows": rows,
        });
        writeln!(io::stdout(), "{result}")?;
    }
    Ok(())
}
