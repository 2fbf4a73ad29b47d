//! Whole processes: verbs that only look, and one prompt answered by an instant model. Each run is
//! timed by a small process of its own, which also knows its peak memory.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use serde::Deserialize;

use crate::held::{end_all, start_worker};
use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::{Res, Scope};

/// What one run took.
#[derive(Clone, Debug, Deserialize)]
pub struct Took {
    ok: bool,
    status: String,
    /// From its start to its end.
    pub wall_us: f64,
    /// User and system time, its children included.
    pub cpu_us: f64,
    /// Of the largest of its processes.
    pub peak_kib: f64,
}

/// A command and what surrounds it.
#[derive(Clone, Debug)]
pub struct Task {
    program: String,
    args: Vec<String>,
    surroundings: Surroundings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surroundings {
    /// The measurement's own folders and nothing of the caller's environment.
    Own,
    /// The caller's environment, with what a foreign program needs of it.
    Callers,
}

impl Task {
    /// Of a program of ours.
    pub fn new(program: &Path, args: &[&str]) -> Self {
        let args = args.iter().map(|&a| a.to_owned()).collect();
        Self { program: program.to_string_lossy().into_owned(), args, surroundings: Surroundings::Own }
    }

    /// A command line for the shell.
    fn peer(line: &str) -> Self {
        let args = vec!["-c".to_owned(), format!("exec {line}")];
        Self { program: "sh".to_owned(), args, surroundings: Surroundings::Callers }
    }

    fn command(&self, place: &Place, wrapper: Option<&Path>) -> Command {
        let mut command = match wrapper {
            None => Command::new(&self.program),
            Some(wrapper) => {
                let mut command = Command::new(wrapper);
                command.arg("--run").arg(&self.program);
                command
            }
        };
        command.args(&self.args).stdin(Stdio::null());
        if self.surroundings == Surroundings::Own {
            command.current_dir(place.cwd()).env_clear().envs(place.environment());
        }
        command
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.args.join(" "))
    }
}

/// Runs a command to its end. A failure of it is an error.
pub async fn run_whole(scope: &Scope, place: &Place, task: &Task) -> Res<Took> {
    // Nothing is awaited while it runs, so here a signal is noticed.
    tokio::task::yield_now().await;
    let timed = task.command(place, Some(&scope.programs.bare)).output()?;
    if !timed.status.success() {
        return Err(format!("{task} could not be run: {}", String::from_utf8_lossy(&timed.stderr)).into());
    }
    let took: Took = serde_json::from_slice(&timed.stdout)?;
    if took.ok { Ok(took) } else { Err(format!("{task} failed: {}", took.status).into()) }
}

/// What a command prints. A failure of it is an error that holds what it said.
fn output_of(place: &Place, task: &Task) -> Res<String> {
    let output = task.command(place, None).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{task} failed ({}): {said}", output.status).into())
}

/// What several runs of one command took.
#[derive(Default)]
struct Series {
    wall: Samples,
    cpu: Samples,
    peak: Samples,
}

async fn in_turn(scope: &Scope, place: &Place, tasks: &[Task], repetitions: usize) -> Res<Vec<Series>> {
    let mut all: Vec<Series> = tasks.iter().map(|_| Series::default()).collect();
    for _ in 0..repetitions {
        for (series, task) in all.iter_mut().zip(tasks) {
            let took = run_whole(scope, place, task).await?;
            series.wall.push(took.wall_us);
            series.cpu.push(took.cpu_us);
            series.peak.push(took.peak_kib);
        }
    }
    Ok(all)
}

async fn two_in_turn(scope: &Scope, place: &Place, tasks: &[Task; 2], repetitions: usize) -> Res<[Series; 2]> {
    in_turn(scope, place, tasks, repetitions).await?.try_into().map_err(|_| "two tasks were measured".into())
}

/// `lead --version`, and `lead ps` with a hundred living agents.
pub async fn verbs(scope: &mut Scope) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let place = Place::new(&scope.folder)?;
    let version = ["--version"];
    let tasks = [Task::new(&programs.bare, &version), Task::new(&programs.lead, &version)];
    let [limit, ours] = two_in_turn(scope, &place, &tasks, scope.count(200, 20)).await?;
    let (limit, ours) = (Some(limit.wall), ours.wall);
    let name = "lead --version".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit, ours, target: Target::AtMost(3e3) });

    let mut agents = Vec::new();
    for _ in 0..100 {
        agents.push(start_worker(&programs, &place, place.agent()?).await?);
    }
    let folder = place.runtime().to_string_lossy().into_owned();
    let tasks = [Task::new(&programs.bare, &["--read", &folder]), Task::new(&programs.lead, &["ps"])];
    for task in &tasks {
        let listed = output_of(&place, task)?.lines().count();
        if listed < agents.len() {
            return Err(format!("{task} lists {listed} lines of {} agents", agents.len()).into());
        }
    }
    let [limit, ours] = two_in_turn(scope, &place, &tasks, scope.count(100, 10)).await?;
    end_all(agents);
    let (limit, ours) = (Some(limit.wall), ours.wall);
    let name = "lead ps, 100 agents".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit, ours, target: Target::Times(2.0) });
    Ok(())
}

/// `lead -p` with a model that answers at once, a later turn of it, and any other command.
pub async fn oneshot(scope: &mut Scope, peer: Option<&str>) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let call = "      - {tools: [{name: Read, input: {file_path: note}}]}\n".repeat(LATER_TURNS);
    std::fs::write(place.path("one.yaml"), "agents:\n  - turns:\n      - {text: measured}\n")?;
    std::fs::write(place.path("many.yaml"), format!("agents:\n  - turns:\n{call}      - {{text: measured}}\n"))?;
    std::fs::write(place.cwd().join("note"), "a line\n")?;
    let programs = Rc::clone(&scope.programs);
    let ask = |file: &str| {
        let model = format!("playbook:{}", place.path(file).display());
        Task::new(&programs.lead, &["-p", "--model", &model, "Say it."])
    };
    let mut tasks = vec![Task::new(&programs.bare, &["--once"]), ask("one.yaml"), ask("many.yaml")];
    for asked in &tasks[1..] {
        let said = output_of(&place, asked)?;
        if said.trim() != "measured" {
            return Err(format!("{asked} answered {said:?}").into());
        }
    }
    tasks.extend(peer.map(Task::peer));
    let mut series = in_turn(scope, &place, &tasks, scope.count(100, 10)).await?.into_iter();
    let (Some(limit), Some(one), Some(many)) = (series.next(), series.next(), series.next()) else {
        return Err("three tasks were measured".into());
    };
    let row = |name: &str, unit, limit: &Samples, ours: &Samples, target| {
        let (name, limit, ours) = (name.to_owned(), Some(limit.clone()), ours.clone());
        Row { name, unit, limit, ours, target }
    };
    scope.add(row("lead -p, one turn", Unit::Micros, &limit.wall, &one.wall, Target::Times(1.5)));
    scope.add(row("its CPU time", Unit::Micros, &limit.cpu, &one.cpu, Target::Open));
    scope.add(row("its peak memory", Unit::Kib, &limit.peak, &one.peak, Target::AtMost(12.0 * 1024.0)));
    let later = (many.wall.median() - one.wall.median()) / LATER_TURNS as f64;
    let (name, ours) = ("each later turn, one Read".to_owned(), Samples::from_iter([later]));
    scope.add(Row { name, unit: Unit::Micros, limit: None, ours, target: Target::AtMost(3e3) });
    if let Some(peer) = series.next() {
        scope.add(row("peer beside lead -p: wall", Unit::Micros, &one.wall, &peer.wall, Target::Open));
        scope.add(row("peer beside lead -p: CPU", Unit::Micros, &one.cpu, &peer.cpu, Target::Open));
        scope.add(row("peer beside lead -p: memory", Unit::Kib, &one.peak, &peer.peak, Target::Open));
    }
    Ok(())
}

/// Turns with a tool call in the long conversation.
const LATER_TURNS: usize = 10;
