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
    variables: Vec<(&'static str, String)>,
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
        let program = program.to_string_lossy().into_owned();
        Self { program, args, variables: Vec::new(), surroundings: Surroundings::Own }
    }

    /// With one more variable in its environment.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.variables.push((name, value));
        self
    }

    /// A command line for the shell.
    fn peer(line: &str) -> Self {
        let args = vec!["-c".to_owned(), format!("exec {line}")];
        Self { program: "sh".to_owned(), args, variables: Vec::new(), surroundings: Surroundings::Callers }
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
            command.current_dir(place.cwd()).env_clear().envs(place.environment()).envs(self.variables.iter().cloned());
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
pub struct Series {
    /// From start to end.
    pub wall: Samples,
    /// User and system time.
    pub cpu: Samples,
    /// Peak memory.
    pub peak: Samples,
}

/// Runs the commands in turn, each so many times.
pub async fn in_turn<const N: usize>(
    scope: &Scope,
    place: &Place,
    tasks: &[Task; N],
    repetitions: usize,
) -> Res<[Series; N]> {
    let mut all = std::array::from_fn(|_| Series::default());
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

/// `lead --version`, and `lead ps` with many living agents.
pub async fn verbs(scope: &mut Scope) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let place = Place::new(&scope.folder)?;
    let version = ["--version"];
    let tasks = [Task::new(&programs.bare, &version), Task::new(&programs.lead, &version)];
    let [limit, ours] = in_turn(scope, &place, &tasks, scope.count(200, 20)).await?;
    let (limit, ours) = (Some(limit.wall), ours.wall);
    let name = "lead --version".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit, ours, target: Target::AtMost(3e3) });

    for (count, frozen) in [(100, 0), (500, 50)] {
        listing(scope, count, frozen).await?;
    }
    Ok(())
}

/// `lead ps` with so many living agents, the first of which are frozen: it must not ask them.
async fn listing(scope: &mut Scope, count: usize, frozen: usize) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let place = Place::new(&scope.folder)?;
    let mut agents = Vec::new();
    for _ in 0..count {
        agents.push(start_worker(&programs, &place, place.agent()?).await?);
    }
    for (held, _) in agents.iter().take(frozen) {
        held.freeze()?;
    }
    let folder = place.runtime().to_string_lossy().into_owned();
    let tasks = [Task::new(&programs.bare, &["--read", &folder]), Task::new(&programs.lead, &["ps"])];
    for task in &tasks {
        let listed = output_of(&place, task)?.lines().count();
        if listed < agents.len() {
            return Err(format!("{task} lists {listed} lines of {} agents", agents.len()).into());
        }
    }
    let [limit, ours] = in_turn(scope, &place, &tasks, scope.count(100, 10)).await?;
    end_all(agents);
    let (limit, ours) = (Some(limit.wall), ours.wall);
    let name = match frozen {
        0 => format!("lead ps, {count} agents"),
        _ => format!("lead ps, {count}, {frozen} frozen"),
    };
    scope.add(Row { name, unit: Unit::Micros, limit, ours, target: Target::Times(2.0) });
    Ok(())
}

/// `lead -p` with a model that answers at once within it, and any other command beside it.
pub async fn oneshot(scope: &mut Scope, peer: Option<&str>) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    std::fs::write(place.path("one.yaml"), "agents:\n  - turns:\n      - {text: measured}\n")?;
    let programs = Rc::clone(&scope.programs);
    let model = format!("playbook:{}", place.path("one.yaml").display());
    let tasks =
        [Task::new(&programs.bare, &["--once"]), Task::new(&programs.lead, &["-p", "--model", &model, "Say it."])];
    must_answer(&place, &tasks[1])?;
    let repetitions = scope.count(100, 10);
    let [limit, ours, peer] = match peer {
        None => {
            let [limit, ours] = in_turn(scope, &place, &tasks, repetitions).await?;
            [limit, ours, Series::default()]
        }
        Some(line) => {
            let [limit, ours] = tasks;
            in_turn(scope, &place, &[limit, ours, Task::peer(line)], repetitions).await?
        }
    };
    let row = |name: &str, unit, limit: &Samples, ours: &Samples, target| {
        let (name, limit, ours) = (name.to_owned(), Some(limit.clone()), ours.clone());
        Row { name, unit, limit, ours, target }
    };
    scope.add(row("lead -p, one turn", Unit::Micros, &limit.wall, &ours.wall, Target::Times(1.5)));
    scope.add(row("its CPU time", Unit::Micros, &limit.cpu, &ours.cpu, Target::Open));
    scope.add(row("its peak memory", Unit::Kib, &limit.peak, &ours.peak, Target::AtMost(12.0 * 1024.0)));
    if !peer.wall.is_empty() {
        scope.add(row("peer beside lead -p: wall", Unit::Micros, &ours.wall, &peer.wall, Target::Open));
        scope.add(row("peer beside lead -p: CPU", Unit::Micros, &ours.cpu, &peer.cpu, Target::Open));
        scope.add(row("peer beside lead -p: memory", Unit::Kib, &ours.peak, &peer.peak, Target::Open));
    }
    Ok(())
}

/// The size of the programs beside the limit's; symbols are part of it where they were not stripped.
pub fn size(scope: &mut Scope) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let kib =
        |path: &Path| -> Res<Samples> { Ok(Samples::from_iter([std::fs::metadata(path)?.len() as f64 / 1024.0])) };
    let all = [("lead", &programs.lead), ("lead-worker", &programs.worker), ("lead-teammate", &programs.teammate)];
    for (name, path) in all {
        let name = format!("size of {name}");
        let (limit, ours) = (Some(kib(&programs.bare)?), kib(path)?);
        scope.add(Row { name, unit: Unit::Kib, limit, ours, target: Target::Open });
    }
    Ok(())
}

/// Runs a `lead -p` once before it is measured: it must answer what its model says.
pub fn must_answer(place: &Place, asked: &Task) -> Res<()> {
    let said = output_of(place, asked)?;
    if said.trim() == "measured" { Ok(()) } else { Err(format!("{asked} answered {said:?}").into()) }
}
