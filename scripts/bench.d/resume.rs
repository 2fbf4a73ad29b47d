//! What it costs to go on from a large transcript: behind a compaction, where its end is enough, and
//! without one, where all of it must be read.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use lead::core::clock::iso;
use lead::core::entry::{Boundary, Line, Place as LinePlace, Said, Talk};
use lead::core::ids::{SessionId, random_uuid};
use lead::core::message::{Block, Message, Role, Usage};
use lead::store::atomic::create_private_dir;
use serde_json::json;

use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::whole::{Task, in_turn};
use crate::{Res, Scope};

/// The argument that makes this program resume from a transcript.
pub const RESUME: &str = "--resume";
/// What stands behind a compaction.
const SUMMARY: &str = "A summary.";
/// Bytes of a large transcript.
const LARGE: u64 = 100 << 20;

/// Reads a transcript back and does nothing else: for its memory.
pub fn resume_main(path: &Path) -> ExitCode {
    match lead::store::history::resume(path) {
        Ok(history) if !history.messages.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Resuming.
pub async fn resume(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    behind_a_compaction(scope, &place).await?;
    let path = place.path("passed.jsonl");
    write_passed_over(&path)?;
    let [limit, ours] = in_turn(scope, &place, &of_whole(scope, &path, "--scan"), scope.count(7, 2)).await?;
    scope.add(Row {
        name: "resume, 100 MiB of other lines".to_owned(),
        unit: Unit::Micros,
        limit: Some(limit.wall),
        ours: ours.wall,
        target: Target::AtMost(250e3),
    });
    let path = place.path("talk.jsonl");
    write_talk(&path)?;
    let [limit, ours] = in_turn(scope, &place, &of_whole(scope, &path, "--scan"), scope.count(7, 2)).await?;
    scope.add(Row {
        name: "resume, 100 MiB of talk".to_owned(),
        unit: Unit::Micros,
        limit: Some(limit.wall),
        ours: ours.wall,
        target: Target::AtMost(250e3),
    });
    let [limit, ours] = in_turn(scope, &place, &of_whole(scope, &path, "--hold"), 3).await?;
    scope.add(Row {
        name: "its peak memory, beside its lines'".to_owned(),
        unit: Unit::Kib,
        limit: Some(limit.peak),
        ours: ours.peak,
        target: Target::Above(8.0 * 1024.0),
    });
    Ok(())
}

/// The limit does with all of a file what `limit` says; ours goes on from it.
fn of_whole(scope: &Scope, path: &Path, limit: &str) -> [Task; 2] {
    let text = path.to_string_lossy();
    [Task::new(&scope.programs.bare, &[limit, &text]), Task::new(&scope.programs.bench, &[RESUME, &text])]
}

async fn behind_a_compaction(scope: &mut Scope, place: &Place) -> Res<()> {
    let [small, large] = [SessionId::random(), SessionId::random()];
    let path = |id: &SessionId| place.config().session(&place.cwd(), id);
    create_private_dir(path(&small).parent().ok_or("a session without a folder")?)?;
    let needed = write_compacted(&path(&small), 0)?;
    let of_large = write_compacted(&path(&large), LARGE)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(50, 5) {
        let mut bytes = vec![0; usize::try_from(of_large)?];
        let begun = Instant::now();
        let file = File::open(path(&large))?;
        file.read_exact_at(&mut bytes, file.metadata()?.len() - of_large)?;
        limit.push(begun.elapsed().as_secs_f64() * 1e6);
        let begun = Instant::now();
        let history = lead::store::history::resume(&path(&large))?;
        ours.push(begun.elapsed().as_secs_f64() * 1e6);
        if history.messages.first().is_none_or(|first| first.text() != SUMMARY) {
            return Err("the end of the transcript does not begin with its compaction".into());
        }
    }
    if needed != of_large {
        return Err("the two transcripts do not end alike".into());
    }
    let name = "end of 100 MiB, compacted".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::AtMost(10e3) });

    fs::write(place.path("again.yaml"), "agents:\n  - otherwise: {text: measured}\n")?;
    let model = format!("playbook:{}", place.path("again.yaml").display());
    let lead = Rc::clone(&scope.programs);
    let tasks =
        [small, large].map(|id| Task::new(&lead.lead, &["-p", "--model", &model, "--resume", id.as_str(), "Go on."]));
    let [limit, ours] = in_turn(scope, place, &tasks, scope.count(50, 5)).await?;
    scope.add(Row {
        name: "lead --resume, beside a small one".to_owned(),
        unit: Unit::Micros,
        limit: Some(limit.wall),
        ours: ours.wall,
        target: Target::Above(10e3),
    });
    Ok(())
}

/// A transcript of at least `before` bytes that was compacted, and some talk behind it; how many
/// bytes are needed to go on.
fn write_compacted(path: &Path, before: u64) -> Res<u64> {
    let mut file = Lines::create(path)?;
    while file.length < before {
        file.turn()?;
    }
    let begin = file.length;
    let uuid = random_uuid();
    file.put(&Line::Boundary(Box::new(Boundary { uuid: uuid.clone(), ..Boundary::default() })))?;
    file.last = Some(uuid);
    file.say(Message::user(vec![Block::text(SUMMARY)]))?;
    (0..20).try_for_each(|_| file.turn())?;
    file.file.flush()?;
    Ok(file.length - begin)
}

/// Nearly all lines are of kinds that are passed over, so that a reader goes through to the
/// beginning and keeps little.
fn write_passed_over(path: &Path) -> Res<()> {
    let mut file = Lines::create(path)?;
    let other = json!({"type": "progress", "uuid": random_uuid(), "data": "x".repeat(4 << 10)}).to_string();
    while file.length < LARGE {
        file.turn()?;
        (0..99).try_for_each(|_| file.put_bytes(other.as_bytes()))?;
    }
    Ok(file.file.flush()?)
}

/// Nothing but turns.
fn write_talk(path: &Path) -> Res<()> {
    let mut file = Lines::create(path)?;
    while file.length < LARGE {
        file.turn()?;
    }
    Ok(file.file.flush()?)
}

/// A transcript being written.
struct Lines {
    file: BufWriter<File>,
    length: u64,
    last: Option<String>,
    turns: usize,
}

impl Lines {
    fn create(path: &Path) -> Res<Self> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut lines = Self { file, length: 0, last: None, turns: 0 };
        lines.say(Message::user(vec![Block::text("Read everything.")]))?;
        Ok(lines)
    }

    fn put(&mut self, line: &Line) -> Res<()> {
        self.put_bytes(&line.to_bytes()?)
    }

    fn put_bytes(&mut self, line: &[u8]) -> Res<()> {
        self.file.write_all(line)?;
        self.file.write_all(b"\n")?;
        self.length += line.len() as u64 + 1;
        Ok(())
    }

    fn say(&mut self, message: Message) -> Res<()> {
        let said = talk(self.last.take(), message);
        self.last = Some(said.uuid.clone());
        self.put(&Line::Talk(Box::new(said)))
    }

    /// A reply of some words that reads a file, and what is in it: 4 KiB of code.
    fn turn(&mut self) -> Res<()> {
        self.turns += 1;
        let id = format!("toolu_{:024x}", self.turns);
        let words = Block::text("I look at the next file. ".repeat(10));
        self.say(Message::assistant(vec![words]))?;
        self.say(Message::assistant(vec![Block::tool_use(
            &id,
            "Read",
            json!({"file_path": "/home/user/src/main.rs"}),
        )]))?;
        let code = "    let value = compute(\"an item\", &mut others)?; // see above\n".repeat(64);
        self.say(Message::user(vec![Block::tool_result(&id, code, false)]))
    }
}

/// A line of a session.
pub fn talk(parent_uuid: Option<String>, message: Message) -> Talk {
    let is_reply = message.role == Role::Assistant;
    let of_reply = |text: &str| is_reply.then(|| text.to_owned());
    Talk {
        parent_uuid,
        is_sidechain: false,
        agent_id: None,
        kind: message.role,
        message: Said {
            id: is_reply.then(|| format!("msg_{}", random_uuid())),
            kind: of_reply("message"),
            message,
            model: of_reply("a-model"),
            stop_reason: of_reply("tool_use"),
            usage: is_reply.then(Usage::default),
        },
        uuid: random_uuid(),
        timestamp: iso(0),
        origin: None,
        msg_id: None,
        from: None,
        tool_use_result: None,
        is_meta: None,
        is_compact_summary: None,
        is_visible_in_transcript_only: None,
        run: None,
        place: LinePlace {
            user_type: "external".to_owned(),
            entrypoint: "sdk-cli".to_owned(),
            cwd: "/home/user/project".to_owned(),
            session_id: "0f8fad5b-d9cb-469f-a165-70867728950e".to_owned(),
            version: "0.1.0".to_owned(),
            git_branch: "main".to_owned(),
            team_name: None,
            agent_name: None,
        },
    }
}
