//! Opening panes: one script for all requests that wait. Each pane begins as a window of its own,
//! which has a name nobody else has; there it gets its mark, so that no pane is ever without one, and
//! then it is moved beside the others. If that fails it stays where it is: no agent is lost for want of
//! room.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::error::PaneError;
use super::place::{Window, place};
use super::quote::{colour, mark, title};
use super::script::{Answer, Script};
use super::server::{AGENT, TmuxServer};
use super::window::{self, BORDER_FORMAT, COLOUR, SEAT};

/// The program that starts the pane's program in the environment it is to have. tmux hands a program
/// without arguments to a shell, and sets some variables itself; neither reaches the pane this way.
const ENV: &str = "/usr/bin/env";

/// Variables that are tmux's to set in a pane.
const OF_TMUX: [&str; 8] =
    ["TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "PWD", "COLUMNS", "LINES"];

/// Variables that tmux sets whatever it is told; they are set behind it.
const OVERRULED: [&str; 2] = ["PATH", "SHELL"];

/// A pane that is wanted.
#[derive(Clone, Debug)]
pub struct PaneRequest {
    /// Whose it is, `name@team`: the mark by which it is known again.
    pub agent: String,
    /// What stands on its border.
    pub title: String,
    /// A colour of members or `#rrggbb`.
    pub colour: String,
    /// The program's working folder.
    pub cwd: PathBuf,
    /// The program's environment, beside what tmux tells it of its terminal. Whoever may debug this
    /// user's processes can read it; no secrets.
    pub environment: Vec<(String, String)>,
    /// The program, by its full path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A pane that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPane {
    /// Its id, such as `%7`, unique on its server.
    pub id: String,
    /// The pid of its program.
    pub pid: i32,
    /// The name of the session it is in.
    pub session: String,
    /// The name of the window it is in.
    pub window: String,
    /// The socket of its server.
    pub socket: PathBuf,
}

impl PaneRequest {
    /// Whether it can be met at all.
    pub(super) fn check(&self) -> Result<(), PaneError> {
        let unfit = |what: String| Err(PaneError::Unfit { what });
        if !self.cwd.is_dir() {
            return Err(PaneError::NoFolder { path: self.cwd.clone() });
        }
        if !self.program.is_absolute() || as_text(&self.program)?.contains('=') {
            return unfit(format!("{:?} is no full path without `=`, as programs in panes need", self.program));
        }
        as_text(&self.cwd)?;
        let variables = self.environment.iter().flat_map(|(name, value)| [name, value]);
        if self.arguments.iter().chain(variables).any(|text| text.contains('\0')) {
            return unfit("no argument and no variable can hold a byte 0".to_owned());
        }
        Ok(())
    }

    /// Its variables that tmux takes.
    fn variables(&self) -> impl Iterator<Item = &(String, String)> {
        let is_name = |name: &str| !name.is_empty() && !name.contains('=') && !OF_TMUX.contains(&name);
        self.environment.iter().filter(move |(name, _)| is_name(name))
    }

    /// The pane's command. `others` are the variables that its server and session would add.
    fn command(&self, others: &[String]) -> Result<Vec<String>, PaneError> {
        let mine: HashSet<&str> = self.variables().map(|(name, _)| name.as_str()).collect();
        let is_unwanted = |name: &str| !mine.contains(name) && !OF_TMUX.contains(&name);
        let unwanted = others.iter().map(String::as_str).chain(OVERRULED).filter(|name| is_unwanted(name));
        let mut words = vec![ENV.to_owned()];
        words.extend(unwanted.flat_map(|name| ["-u", name]).map(str::to_owned));
        let overruled = self.variables().filter(|(name, _)| OVERRULED.contains(&name.as_str()));
        words.extend(overruled.map(|(name, value)| format!("{name}={value}")));
        words.push(as_text(&self.program)?.to_owned());
        words.extend(self.arguments.iter().cloned());
        Ok(words)
    }
}

fn as_text(path: &Path) -> Result<&str, PaneError> {
    path.to_str().ok_or_else(|| PaneError::Unfit { what: format!("the path {path:?} is not UTF-8") })
}

/// What was found out before panes are opened.
pub(super) struct Surroundings {
    /// Id of the session of the lead's pane.
    pub(super) session: String,
    /// Windows for agents' panes, that of the lead first.
    pub(super) windows: Vec<Window>,
    /// Names of the variables that the server and the session give to panes.
    variables: Vec<String>,
}

/// Looks at the windows around the lead's pane.
pub(super) async fn look_around(server: &TmuxServer, seat: &str) -> Result<Surroundings, PaneError> {
    let mut script = Script::default();
    script.add(["display-message", "-p", "-t", seat, "lead:seat #{pane_id} #{session_id} #{window_id}"]);
    let fields = "#{window_id} #{window_width} #{window_height} #{window_panes} #{window_zoomed_flag}";
    script.add(["list-windows", "-t", seat, "-F", &format!("lead:window {fields} #{{{SEAT}}}")]);
    // Last, since a value may have lines that look like anything.
    script.add(["display-message", "-p", "-t", seat, "lead:variables"]);
    script.add(["show-environment", "-g"]);
    script.add(["show-environment", "-t", seat]);
    let answer = server.run(&script).await?;
    let seen = answer.tagged("seat").next();
    let Some(&[id, session, own]) = seen.as_deref() else { return Err(gone(server, seat)) };
    if id != seat {
        return Err(gone(server, seat));
    }
    let mut windows = Vec::new();
    for fields in answer.before("variables").tagged("window") {
        let &[target, columns, rows, panes, zoomed, whose] = &fields[..] else { continue };
        let (Ok(columns), Ok(rows), Ok(panes)) = (columns.parse(), rows.parse(), panes.parse()) else { continue };
        let window =
            Window { target: target.to_owned(), columns, rows, panes, is_zoomed: zoomed == "1", is_new: false };
        match target {
            own_id if own_id == own => windows.insert(0, window),
            _ if whose == seat => windows.push(window),
            _ => {}
        }
    }
    let name = |line: &str| {
        let name = line.split_once('=')?.0;
        let is_name = name.bytes().all(|b| b.is_ascii_graphic()) && !name.is_empty();
        is_name.then(|| name.to_owned())
    };
    let mut variables: Vec<String> = answer.behind("variables").filter_map(name).collect();
    variables.sort_unstable();
    variables.dedup();
    Ok(Surroundings { session: session.to_owned(), windows, variables })
}

fn gone(server: &TmuxServer, seat: &str) -> PaneError {
    PaneError::SeatGone { socket: server.socket().to_owned(), pane: seat.to_owned() }
}

/// Opens panes; for each of the requests, all of which were checked, what came of it.
pub(super) async fn open(
    server: &TmuxServer,
    seat: &str,
    requests: &[&PaneRequest],
) -> Result<Vec<Result<OpenPane, PaneError>>, PaneError> {
    let mut around = look_around(server, seat).await?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    // As targets: in this session, by exactly this name.
    let names: Vec<String> = (0..requests.len()).map(|i| format!("lead-{}-{i}", &id[..12])).collect();
    let targets: Vec<String> = names.iter().map(|name| format!("{}:={name}", around.session)).collect();
    let places = place(&mut around.windows, &targets);

    let mut script = Script::default();
    let mut touched = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        begin(&mut script, i, request, &names[i], &around)?;
        let taker = &around.windows[places[i]];
        window::prepare(&mut script, &taker.target, seat);
        if touched.insert(places[i]) && !taker.is_new {
            window::tile(&mut script, &taker.target);
        }
        if taker.target != targets[i] {
            let last = format!("{}.{{bottom-right}}", taker.target);
            script.add(["join-pane", "-d", "-s", targets[i].as_str(), "-t", &last]);
            window::tile(&mut script, &taker.target);
        }
    }
    for (i, request) in requests.iter().enumerate().filter(|(i, _)| around.windows[places[*i]].target == targets[*i]) {
        script.add(["rename-window", "-t", &targets[i], &window::name(&request.agent)]);
    }
    script.add(["list-panes", "-s", "-t", &around.session, "-F", "lead:at #{pane_id} #{window_id} #{window_name}"]);
    script.add(["display-message", "-p", "-t", &around.session, "lead:in #{session_name}"]);
    let answer = server.run(&script).await?;
    let opened = (0..requests.len()).map(|i| opened(server, &answer, i)).collect();
    keep_the_unmoved(server, seat, requests, &names, &targets, &answer).await;
    Ok(opened)
}

/// The pane as a window of its own, with its mark.
fn begin(
    script: &mut Script,
    i: usize,
    request: &PaneRequest,
    name: &str,
    around: &Surroundings,
) -> Result<(), PaneError> {
    let target = format!("{}:={name}", around.session);
    let mut words = ["new-window", "-d", "-t"].map(str::to_owned).to_vec();
    words.push(format!("{}:", around.session));
    words.extend(["-n", name, "-P", "-F"].map(str::to_owned));
    words.push(format!("lead:new {i} #{{pane_id}} #{{pane_pid}}"));
    words.extend(["-c".to_owned(), super::quote::format(as_text(&request.cwd)?)]);
    for (name, value) in request.variables() {
        words.extend(["-e".to_owned(), format!("{name}={value}")]);
    }
    words.push("--".to_owned());
    words.extend(request.command(&around.variables)?);
    script.add(words);
    let options = [
        (AGENT, mark(&request.agent)),
        (COLOUR, colour(&request.colour).to_owned()),
        ("remain-on-exit", "failed".to_owned()),
        ("pane-border-format", BORDER_FORMAT.to_owned()),
    ];
    for (option, value) in &options {
        script.add(["set-option", "-p", "-t", &target, option, value]);
    }
    script.add(["select-pane", "-t", &target, "-T", &title(&request.title)]);
    Ok(())
}

fn opened(server: &TmuxServer, answer: &Answer, i: usize) -> Result<OpenPane, PaneError> {
    let number = i.to_string();
    let new = answer.tagged("new").find(|fields| fields.first() == Some(&number.as_str()));
    let found = new.as_deref().and_then(|fields| match fields {
        &[_, id, pid] => Some((id.to_owned(), pid.parse().ok()?)),
        _ => None,
    });
    let Some((id, pid)) = found else { return Err(PaneError::Refused { said: answer.complaints() }) };
    let window = answer.tagged("at").find(|at| at.first() == Some(&id.as_str()));
    let window = window.and_then(|at| Some(at.get(2..)?.join(" "))).unwrap_or_default();
    let session = answer.tagged("in").next().unwrap_or_default().join(" ");
    Ok(OpenPane { id, pid, session, window, socket: server.socket().to_owned() })
}

/// Panes that could not be moved beside others stay in windows of their own, which take further ones.
/// That is for looks: the panes are open whatever comes of it.
async fn keep_the_unmoved(
    server: &TmuxServer,
    seat: &str,
    requests: &[&PaneRequest],
    names: &[String],
    targets: &[String],
    answer: &Answer,
) {
    let mut script = Script::default();
    let unmoved: HashSet<String> = answer.tagged("at").filter_map(|at| Some(at.get(2..)?.join(" "))).collect();
    for i in (0..requests.len()).filter(|&i| unmoved.contains(&names[i])) {
        window::prepare(&mut script, &targets[i], seat);
        script.add(["rename-window", "-t", &targets[i], &window::name(&requests[i].agent)]);
    }
    if !script.is_empty() {
        let _ = server.run(&script).await;
    }
}
