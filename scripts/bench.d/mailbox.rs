//! What a message to a teammate costs until it lies in the mailbox, beside the least that locks which
//! other programs respect can cost: flock, a lock folder, all of the file read and written with one
//! more entry, renamed into place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use fs2::FileExt;
use lead::core::ids::random_uuid;
use lead::core::limits::Durability;
use lead::core::paths::ConfigDir;
use lead::core::team::{Letter, Member};
use lead::store::team::{NewTeam, Team, create};

use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::{Res, Scope};

/// The argument that makes this program one of many who write.
pub const WRITE: &str = "--write-mail";
/// How many write at the same time.
const WRITERS: usize = 16;
/// A message of usual length.
const TEXT: &str = "The parser handles nested comments now; two tests of the lexer still fail, see src/lexer.rs:120 \
                    and 164. I go on with them unless you want the printer first.";

/// Appending alone, to longer and longer mailboxes, and with others.
pub fn mailbox(scope: &mut Scope) -> Res<()> {
    for messages in [0, 100, 1000] {
        append(scope, messages)?;
    }
    crowd(scope)
}

fn append(scope: &mut Scope, messages: usize) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let team = team(&place.config())?;
    let path = team.inboxes().join("worker.json");
    let entries: Vec<String> = (0..messages).map(|_| entry()).collect::<Res<_>>()?;
    let content = if messages == 0 { "[]".to_owned() } else { format!("[\n{}\n]", entries.join(",\n")) };
    let bare = Bare::new(&place.path("bare.flock"), &path)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(500, 50) {
        fs::write(&path, &content)?;
        let begun = Instant::now();
        bare.append(&entry()?)?;
        limit.push(begun.elapsed().as_secs_f64() * 1e6);
        fs::write(&path, &content)?;
        let begun = Instant::now();
        send(&team)?;
        ours.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = format!("mail, {messages} there already");
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::Times(1.5) });
    Ok(())
}

fn crowd(scope: &mut Scope) -> Res<()> {
    let count = scope.count(50, 10);
    let mut per_message = [Samples::default(), Samples::default()];
    let mut slowest = per_message.clone();
    for _ in 0..scope.count(7, 2) {
        for (at, way) in ["bare", "ours"].into_iter().enumerate() {
            let place = Place::new(&scope.folder)?;
            let team = team(&place.config())?;
            let begun = Instant::now();
            let each = write_all_at_once(&scope.programs.bench, &place, way, count)?;
            per_message[at].push(begun.elapsed().as_secs_f64() * 1e6 / (WRITERS * count) as f64);
            let there = team.mailbox("worker")?.look()?.mail.len();
            if there != WRITERS * count {
                return Err(format!("{there} of {} messages are there ({way})", WRITERS * count).into());
            }
            slowest[at].push(each.p99());
        }
    }
    let [limit, ours] = per_message;
    let name = format!("mail of {WRITERS} at once, each");
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::Times(1.5) });
    let name = "its slowest in a hundred".to_owned();
    let [limit, ours] = slowest;
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::AtMost(50e3) });
    Ok(())
}

/// All writers, from their start to the end of the last; what each message took.
fn write_all_at_once(bench: &Path, place: &Place, way: &str, count: usize) -> Res<Samples> {
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let mut command = Command::new(bench);
        command.args([WRITE, way, &count.to_string()]).env_clear().envs(place.environment());
        writers.push(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    }
    let mut each = Vec::new();
    for writer in writers {
        let output = writer.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a writer ended with {}", output.status).into());
        }
        each.extend(String::from_utf8(output.stdout)?.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?);
    }
    Ok(each.into_iter().collect())
}

/// One of many: writes its messages and says what each took.
pub fn write_main(way: &str, count: &str) -> ExitCode {
    let write = || -> Res<()> {
        let config = ConfigDir::new(std::env::var(lead::core::env::CONFIG_DIR)?);
        let team = Team::open(&config, "bench", Durability::Process)?;
        let bare = Bare::new(&config.root().join("bare.flock"), &team.inboxes().join("worker.json"))?;
        let mut times = String::new();
        for _ in 0..count.parse()? {
            let begun = Instant::now();
            match way {
                "bare" => bare.append(&entry()?)?,
                _ => send(&team)?,
            }
            times.push_str(&format!("{}\n", begun.elapsed().as_secs_f64() * 1e6));
        }
        Ok(io::stdout().write_all(times.as_bytes())?)
    };
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// A team with as many members as one has.
fn team(config: &ConfigDir) -> Res<Team> {
    let new = NewTeam { name: "bench".to_owned(), description: None, lead: None, created_ms: 0 };
    let team = create(config, &new, Durability::Process)?.team;
    for name in ["worker", "researcher", "tester", "writer"] {
        let prompt = Some("Look at the lexer and tell the others what you find. ".repeat(10));
        team.add_member(&Member { name: name.to_owned(), prompt, ..Member::default() })?;
    }
    Ok(team)
}

/// What a member is told.
pub fn letter(to: &str) -> Letter {
    Letter {
        to: to.to_owned(),
        from: "researcher".to_owned(),
        text: TEXT.to_owned(),
        summary: Some("Lexer: two tests fail".to_owned()),
        color: Some("green".to_owned()),
        sent_ms: 1_767_225_600_000,
        msg_id: random_uuid(),
    }
}

fn send(team: &Team) -> Res<()> {
    let _sent = team.send(&letter("worker"))?;
    Ok(())
}

fn entry() -> Res<String> {
    Ok(serde_json::to_string(&letter("worker").to_mail())?)
}

/// The least: no roster, no limits, no thought of what a dead process left.
struct Bare {
    flock: File,
    path: PathBuf,
    lock: PathBuf,
    temp: PathBuf,
}

impl Bare {
    fn new(flock: &Path, path: &Path) -> Res<Self> {
        let flock = OpenOptions::new().create(true).append(true).open(flock)?;
        Ok(Self { flock, path: path.to_owned(), lock: path.with_extension("lock"), temp: path.with_extension("tmp") })
    }

    fn append(&self, entry: &str) -> Res<()> {
        FileExt::lock_exclusive(&self.flock)?;
        fs::create_dir(&self.lock)?;
        let mut bytes = match fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => b"[]".to_vec(),
            bytes => bytes?,
        };
        let end = bytes.trim_ascii_end().len().saturating_sub(1);
        bytes.truncate(end);
        let separator = if bytes.trim_ascii_end() == b"[" { "\n" } else { ",\n" };
        let kept = bytes.trim_ascii_end().len();
        bytes.truncate(kept);
        for part in [separator, entry, "\n]"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        fs::write(&self.temp, &bytes)?;
        fs::rename(&self.temp, &self.path)?;
        fs::remove_dir(&self.lock)?;
        Ok(FileExt::unlock(&self.flock)?)
    }
}
