//! What a run costs beyond the requests it makes: `lead -p` over HTTP with a model on this machine
//! that answers at once, beside the least client of the same model.

use std::rc::Rc;

use lead::core::env;

use crate::held::{Held, start};
use crate::place::Place;
use crate::raw::Raw;
use crate::report::{Row, Samples, Target, Unit};
use crate::whole::{Task, in_turn, must_answer};
use crate::{Res, Scope};

/// Turns with a tool call in the long conversation.
const LATER_TURNS: usize = 20;

/// The model, as long as it is held.
struct Instant {
    address: String,
    _ends_with: (Held, Raw),
}

impl Instant {
    async fn start(scope: &Scope, place: &Place) -> Res<Self> {
        let (held, stream) = start(&scope.programs.instant, &["--serve"], place)?;
        let mut link = Raw::new(stream);
        let told = link.receive().await?.ok_or("the model ended before it served")?;
        Ok(Self { address: told.body, _ends_with: (held, link) })
    }
}

/// One turn, and each later one.
pub async fn http(scope: &mut Scope) -> Res<()> {
    let place = Place::new(&scope.folder)?;
    std::fs::write(place.cwd().join("note"), "a line\n")?;
    let model = Instant::start(scope, &place).await?;
    let programs = Rc::clone(&scope.programs);
    let requests = |times: usize| Task::new(&programs.instant, &["--ask", &model.address, &times.to_string()]);
    let turns = |calls: usize| {
        Task::new(&programs.lead, &["-p", "--model", "anthropic:claude-instant", "Say it."])
            .with(env::BASE_URL, format!("http://{}/{calls}", model.address))
            .with(env::API_KEY, "a key of the measurement".to_owned())
    };
    let tasks = [requests(1), turns(0), requests(1 + LATER_TURNS), turns(LATER_TURNS)];
    must_answer(&place, &tasks[1])?;
    must_answer(&place, &tasks[3])?;
    let [limit, one, later_limit, later] = in_turn(scope, &place, &tasks, scope.count(100, 10)).await?;
    let per_turn = |more: &Samples, one: &Samples| (more.median() - one.median()) / LATER_TURNS as f64;
    let request = per_turn(&later_limit.wall, &limit.wall);
    let own = per_turn(&later.wall, &one.wall) - request;
    scope.add(Row {
        name: "lead -p over HTTP, one turn".to_owned(),
        unit: Unit::Micros,
        limit: Some(limit.wall),
        ours: one.wall,
        target: Target::Times(1.5),
    });
    scope.add(Row {
        name: "its CPU time".to_owned(),
        unit: Unit::Micros,
        limit: Some(limit.cpu),
        ours: one.cpu,
        target: Target::Open,
    });
    scope.add(Row {
        name: "its peak memory".to_owned(),
        unit: Unit::Kib,
        limit: Some(limit.peak),
        ours: one.peak,
        target: Target::AtMost(12.0 * 1024.0),
    });
    scope.add(Row {
        name: "own part of a later turn, one Read".to_owned(),
        unit: Unit::Micros,
        limit: Some(Samples::from_iter([request])),
        ours: Samples::from_iter([own]),
        target: Target::AtMost(3e3),
    });
    Ok(())
}
