//! What a team costs: a message until an idle member has it, and panes until their members are ready.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use lead::core::ids::random_uuid;
use lead::core::limits::Durability;
use lead::store::team::Team;

use crate::crew::{Crew, Members, TEAM, Tail, Tmux};
use crate::held::start;
use crate::mailbox::letter;
use crate::place::Place;
use crate::raw::Raw;
use crate::report::{Row, Samples, Target, Unit};
use crate::{Res, Scope};

/// Members that are started at once.
pub const CROWD: usize = 32;

/// From the call that sends a message to its line in the transcript of a member that has nothing to
/// do. The limit is a file renamed into a folder, and the line that a bare process writes when it is
/// told of it. Both lines are noticed in the same way, by a thread that does nothing else: whoever
/// sends has locks to give back when the message is there already.
pub async fn seen(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    let mut crew = Crew::start(&scope.programs, &place, 1, Members::Rest, None)?;
    let mates = crew.rest(&place, 1)?;
    let mate = mates.first().ok_or("no member")?;
    let team = Team::open(&place.config(), TEAM, Durability::Process)?;
    let (folder, woken) = (place.path("wake"), place.path("woken"));
    fs::create_dir(&folder)?;
    fs::write(&woken, "")?;
    let paths = [&folder, &woken].map(|path| path.to_string_lossy().into_owned());
    let (bare, stream) = start(&scope.programs.bare, &["--wake", &paths[0], &paths[1]], &place)?;
    let mut link = Raw::new(stream);
    link.next().await?.ok_or("the bare process ended before it watched")?;
    let (mut line, mut transcript) = (Tail::of(&woken)?, Tail::of(Path::new(&mate.state.transcript))?);
    let (mut limit, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..scope.count(300, 30) {
        // Nothing else is awaited, so here a signal is noticed.
        tokio::task::yield_now().await;
        let id = random_uuid();
        let temp = place.path("mail.tmp");
        fs::write(&temp, &id)?;
        let move_in = || Ok(fs::rename(&temp, folder.join("mail.json"))?);
        let took = line.after(move_in, &bare, |line| line == id.as_bytes())?;
        limit.push(took.as_secs_f64() * 1e6);

        let letter = letter("m0");
        let has_id = |line: &[u8]| memchr::memmem::find(line, letter.msg_id.as_bytes()).is_some();
        let took = transcript.after(|| Ok(team.send(&letter).map(drop)?), &crew.lead, has_id)?;
        ours.push(took.as_secs_f64() * 1e6);
        crew.rest_again(&team, "m0")?;
    }
    let name = "mail, until an idle member has it".to_owned();
    let target = Target::AtMostAndTail(500.0, 5e3);
    scope.add(Row { name, unit: Unit::Micros, limit: Some(limit), ours, target });
    Ok(())
}

/// From the kill -9 of a member that rests until its lead has put it to its model.
pub async fn lost(scope: &mut Scope) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let mut ours = Samples::default();
    for _ in 0..scope.count(20, 3) {
        tokio::task::yield_now().await;
        let place = Place::new(&scope.folder)?;
        let mut crew = Crew::start(&programs, &place, 1, Members::Rest, None)?;
        let mates = crew.rest(&place, 1)?;
        let mate = mates.first().ok_or("no member")?;
        ours.push(crew.kill(mate)?.as_secs_f64() * 1e6);
    }
    let target = Target::AtMost(1e6);
    let name = "a member killed, until its lead knows".to_owned();
    scope.add(Row { name, unit: Unit::Micros, limit: None, ours, target });
    Ok(())
}

/// Members that are started at once, until the last is ready: in panes, and without. The limit of the
/// first are as many panes that do nothing.
pub async fn panes(scope: &mut Scope) -> Res<()> {
    let programs = Rc::clone(&scope.programs);
    let (mut limit, mut ours, mut headless) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..scope.count(10, 2) {
        tokio::task::yield_now().await;
        let place = Place::new(&scope.folder)?;
        let tmux = Tmux::start(&place)?;
        let begun = Instant::now();
        tmux.split(&place, CROWD)?;
        limit.push(begun.elapsed().as_secs_f64() * 1e6);
        drop(place);

        let place = Place::new(&scope.folder)?;
        let tmux = Tmux::start(&place)?;
        let crew = Crew::start(&programs, &place, CROWD, Members::Wait, Some(&tmux))?;
        ours.push(crew.took.as_secs_f64() * 1e6);
        drop(crew);
        drop(place);

        let place = Place::new(&scope.folder)?;
        let crew = Crew::start(&programs, &place, CROWD, Members::Wait, None)?;
        headless.push(crew.took.as_secs_f64() * 1e6);
    }
    let each = |all: &Samples| all.map(|all| all / CROWD as f64);
    let row = |name: String, limit: &Samples, ours: &Samples, target| Row {
        name,
        unit: Unit::Micros,
        limit: Some(limit.clone()),
        ours: ours.clone(),
        target,
    };
    scope.add(row(format!("{CROWD} members ready in panes"), &limit, &ours, Target::AtMost(100e3)));
    scope.add(row("of them each".to_owned(), &each(&limit), &each(&ours), Target::Above(3e3)));
    scope.add(row("panes beside members without".to_owned(), &headless, &ours, Target::Open));
    Ok(())
}
