//! What an agent's process costs: until it is ready, alone and many at once; its memory; and what
//! it does while it has nothing to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::crew::{Crew, Members, Tmux};
use crate::held::{Held, end_all, start_bare, start_worker};
use crate::place::Place;
use crate::report::{Row, Samples, Target, Unit};
use crate::teams::CROWD;
use crate::{Res, Scope};

/// Long enough for a process to have done what follows its start.
const SETTLE: Duration = Duration::from_millis(700);

/// Long enough for threads to be gone that have had nothing to do: a runtime keeps them for ten seconds.
const THREADS_END: Duration = Duration::from_secs(12);

/// From the call that starts it to `Ready`, one after the other.
pub async fn ready(scope: &mut Scope) -> Res<()> {
    let repetitions = scope.count(200, 20);
    let place = Place::new(&scope.folder)?;
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..repetitions {
        let begun = Instant::now();
        let bare = start_bare(&scope.programs, &place).await?;
        limit.push(micros(begun));
        drop(bare);
        let agent = place.agent()?;
        let begun = Instant::now();
        let worker = start_worker(&scope.programs, &place, agent).await?;
        ours.push(micros(begun));
        drop(worker);
    }
    let target = Target::TimesAndTail(1.5, 3.0);
    scope.add(Row { name: "worker ready".to_owned(), unit: Unit::Micros, limit: Some(limit), ours, target });
    Ok(())
}

/// Many at once, until the last is ready; and the memory of each where that is expected of us.
pub async fn crowd(scope: &mut Scope) -> Res<()> {
    for (count, rounds) in [(100, scope.count(7, 2)), (500, scope.count(5, 1))] {
        let (mut limit, mut ours) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            let place = Rc::new(Place::new(&scope.folder)?);
            let begun = Instant::now();
            let all = start_all(count, |_| {
                let (programs, place) = (Rc::clone(&scope.programs), Rc::clone(&place));
                async move { start_bare(&programs, &place).await }
            });
            let all = all.await?;
            limit.push(micros(begun));
            end_all(all);
            let place = Rc::new(Place::new(&scope.folder)?);
            let mut agents = (0..count).map(|_| place.agent()).collect::<Res<Vec<_>>>()?.into_iter();
            let begun = Instant::now();
            let all = start_all(count, |_| {
                let (programs, place, agent) = (Rc::clone(&scope.programs), Rc::clone(&place), agents.next());
                async move { start_worker(&programs, &place, agent.ok_or("no agent")?).await }
            });
            let all = all.await?;
            ours.push(micros(begun));
            end_all(all);
        }
        let name = format!("{count} ready at once");
        scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target: Target::Times(2.0) });
    }
    Ok(())
}

/// Each start is a task of its own, as in a lead.
async fn start_all<L: 'static, F: Future<Output = Res<(Held, L)>> + 'static>(
    count: usize,
    start: impl FnMut(usize) -> F,
) -> Res<Vec<(Held, L)>> {
    let mut starting = JoinSet::new();
    (0..count).map(start).for_each(|one| drop(starting.spawn_local(one)));
    let mut all = Vec::with_capacity(count);
    while let Some(one) = starting.join_next().await {
        all.push(one??);
    }
    Ok(all)
}

/// Proportional set size of one idle process alone, and of each of a hundred.
pub async fn memory(scope: &mut Scope) -> Res<()> {
    let place = Rc::new(Place::new(&scope.folder)?);
    for (count, target) in [(1, 3.0 * 1024.0), (100, 0.6 * 1024.0)] {
        let bare = start_all(count, |_| {
            let (programs, place) = (Rc::clone(&scope.programs), Rc::clone(&place));
            async move { start_bare(&programs, &place).await }
        });
        let limit = settled_memory(bare.await?)?;
        let workers = start_all(count, |_| {
            let (programs, place) = (Rc::clone(&scope.programs), Rc::clone(&place));
            async move { start_worker(&programs, &place, place.agent()?).await }
        });
        let ours = settled_memory(workers.await?)?;
        let name = if count == 1 { "PSS of an idle worker".to_owned() } else { format!("PSS of each of {count}") };
        scope.add(Row { name, unit: Unit::Kib, limit: Some(limit), ours, target: Target::AtMost(target) });
    }
    drop(place);
    for (count, target) in [(1, Target::AtMost(3.0 * 1024.0)), (CROWD, Target::Open)] {
        let place = Rc::new(Place::new(&scope.folder)?);
        let bare = start_all(count, |_| {
            let (programs, place) = (Rc::clone(&scope.programs), Rc::clone(&place));
            async move { start_bare(&programs, &place).await }
        });
        let limit = settled_memory(bare.await?)?;
        let crew = Crew::start(&scope.programs, &place, count, Members::Rest, None)?;
        let mates = crew.rest(&place, count)?;
        crew.lead.watch(SETTLE)?;
        let ours = mates.iter().map(|mate| pss_kib(mate.pid)).collect::<Res<Samples>>()?;
        let name =
            if count == 1 { "PSS of an idle member".to_owned() } else { format!("PSS of each of {count} members") };
        scope.add(Row { name, unit: Unit::Kib, limit: Some(limit), ours, target });
    }
    Ok(())
}

fn settled_memory<L>(all: Vec<(Held, L)>) -> Res<Samples> {
    if let Some((first, _)) = all.first() {
        first.watch(SETTLE)?;
    }
    let sizes = all.iter().map(|(held, _)| pss_kib(held.pid())).collect::<Res<Samples>>();
    end_all(all);
    sizes
}

fn pss_kib(pid: i32) -> Res<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    number_after(&text, "Pss:").ok_or_else(|| "no Pss in smaps_rollup".into())
}

/// Times that an idle process is run, and how long it runs, per second.
pub async fn idle(scope: &mut Scope) -> Res<()> {
    let window = Duration::from_secs(scope.count(10, 3) as u64);
    let place = Place::new(&scope.folder)?;
    let bare = start_bare(&scope.programs, &place).await?;
    let worker = start_worker(&scope.programs, &place, place.agent()?).await?;
    let crew = Crew::start(&scope.programs, &place, 1, Members::Rest, None)?;
    let in_panes = Place::new(&scope.folder)?;
    let tmux = Tmux::start(&in_panes)?;
    let crew_in_panes = Crew::start(&scope.programs, &in_panes, 1, Members::Rest, Some(&tmux))?;
    let mate = |crew: &Crew, place| -> Res<i32> { Ok(crew.rest(place, 1)?.first().ok_or("no member")?.pid) };
    let all = [
        ("worker", worker.0.pid()),
        ("lead with a team", crew.lead.pid()),
        ("member", mate(&crew, &place)?),
        ("member in a pane", mate(&crew_in_panes, &in_panes)?),
    ];
    let look = || -> Res<(Ran, Vec<Ran>)> {
        Ok((Ran::of(bare.0.pid())?, all.iter().map(|&(_, pid)| Ran::of(pid)).collect::<Res<_>>()?))
    };
    worker.0.watch(THREADS_END)?;
    let before = look()?;
    let begun = Instant::now();
    worker.0.watch(window)?;
    let after = look()?;
    let seconds = begun.elapsed().as_secs_f64();
    for (i, (who, _)) in all.iter().enumerate() {
        let mut add = |name: String, unit, of: fn(&Spent) -> f64| {
            let per_second = |before, after: &Ran| Samples::from_iter([of(&after.since(before)) / seconds]);
            let (limit, ours) = (per_second(&before.0, &after.0), per_second(&before.1[i], &after.1[i]));
            scope.add(Row { name, unit, limit: Some(limit), ours, target: Target::AtMost(0.0) });
        };
        add(format!("wake-ups, idle {who}"), Unit::Hertz, |spent| spent.switches);
        add("its CPU time in a second".to_owned(), Unit::Micros, |spent| spent.cpu_us);
    }
    Ok(())
}

/// What the scheduler did with the threads of a process so far, by thread.
struct Ran(BTreeMap<OsString, Spent>);

#[derive(Clone, Copy, Default)]
struct Spent {
    switches: f64,
    cpu_us: f64,
}

impl Ran {
    fn of(pid: i32) -> Res<Self> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            let (id, thread) = (thread.file_name(), thread.path());
            let mut spent = Spent::default();
            let status = fs::read_to_string(thread.join("status"))?;
            for name in ["\nvoluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"] {
                spent.switches += number_after(&status, name).ok_or("no context switches in status")?;
            }
            let schedule = fs::read_to_string(thread.join("schedstat"))?;
            spent.cpu_us = number_after(&schedule, "").ok_or("no time in schedstat")? / 1e3;
            threads.insert(id, spent);
        }
        Ok(Self(threads))
    }

    /// What all of them did since then. A thread that has ended meanwhile ran for that.
    fn since(&self, before: &Self) -> Spent {
        let ended = before.0.keys().filter(|id| !self.0.contains_key(*id)).count();
        let mut spent = Spent { switches: ended as f64, cpu_us: 0.0 };
        for (id, now) in &self.0 {
            let then = before.0.get(id).copied().unwrap_or_default();
            spent.switches += now.switches - then.switches;
            spent.cpu_us += now.cpu_us - then.cpu_us;
        }
        spent
    }
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    text.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

fn micros(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}
