//! Members in panes of a real tmux: hidden and shown, typed into, interrupted, resized, crashed and
//! brought back, closed by the person. The lead has the seat that the test's server offers.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Book, Tmux, World, bash, book, call, calls, eventually, exists, optional, program, recorded, signal,
};
use crate::team_members::{Led, entry, lead_in, maker, members, transcript};

/// A lead in the seat of `tmux`.
fn lead_at<'w>(world: &'w World, tmux: &Tmux<'_>, book: &Book) -> Led<'w> {
    lead_in(world, book, &tmux.vars(), &["--permission-mode", "bypassPermissions"], "go")
}

fn pid(row: &Value) -> i32 {
    i32::try_from(row["pid"].as_i64().unwrap()).unwrap()
}

/// The id of a member's pane, which is its own.
fn pane_of(world: &World, tmux: &Tmux<'_>, name: &str) -> String {
    let entry = entry(world, name);
    assert_eq!((&entry["backendType"], &entry["tmuxSocket"]), (&json!("tmux"), &json!(tmux.socket())), "{entry}");
    let pane = entry["tmuxPaneId"].as_str().unwrap().to_owned();
    assert_eq!(tmux.tell(&pane, "#{@lead_agent}"), format!("{name}@demo"));
    pane
}

/// The panes that the roster says are hidden.
fn hidden(world: &World) -> Value {
    let roster = fs::read_to_string(world.config().join("teams/demo/config.json")).unwrap();
    let roster: Value = serde_json::from_str(&roster).unwrap();
    roster.get("hiddenPaneIds").cloned().unwrap_or_else(|| json!([]))
}

/// What a pane shows, and what has left it upwards.
fn shown(tmux: &Tmux<'_>, pane: &str) -> String {
    tmux.call(&["capture-pane", "-p", "-S", "-", "-t", pane])
}

/// Waits until a pane shows this.
fn wait_shown(tmux: &Tmux<'_>, pane: &str, words: &str) {
    eventually(&format!("the pane shows {words:?}"), || match shown(tmux, pane) {
        text if text.contains(words) => Ok(()),
        text => Err(text),
    });
}

fn send(world: &World, name: &str, text: &str) {
    world.lead(&["team", "send", name, text, "--team", "demo"]).run().expect(0);
}

/// A turn that is played once, when this is the latest that was said.
fn told(latest: &str, tools: &[Value]) -> Value {
    json!({"when": {"latest": latest}, "tools": tools})
}

/// User lines of a member's transcript that hold this.
fn heard(row: &Value, part: &str) -> usize {
    transcript(row).iter().filter(|l| l["type"] == "user" && l.to_string().contains(part)).count()
}

/// Ends the session and checks that all is as it was before there were members.
fn end_as_before(world: &World, tmux: &Tmux<'_>, led: Led<'_>, before: &[String]) {
    led.end().expect(0);
    assert_eq!(looks(tmux), before);
    assert!(!world.config().join("teams/demo").exists());
    let (calls, scripts) = calls(world);
    assert!(calls.iter().all(|call| !call.contains("send-keys")) && !scripts.contains("send-keys"));
}

fn looks(tmux: &Tmux<'_>) -> Vec<String> {
    tmux.panes("#{session_name} #{window_id} #{pane_id} #{pane_width}x#{pane_height} #{pane-border-status}")
}

#[test]
fn a_members_pane_is_hidden_and_shown_while_the_member_works_on() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let before = looks(&tmux);
    let gate = world.gate("gate");
    let works = told("to the gate", &[bash(&format!("{}; echo through", gate.arrive("here")))]);
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[works], true)]);
    let led = lead_at(&world, &tmux, &book);
    let [ann, bob] = ["ann", "bob"].map(|name| led.wait(name, "idle"));
    led.wait_made();
    let [a, b] = ["ann", "bob"].map(|name| pane_of(&world, &tmux, name));
    let window = |pane: &str| tmux.tell(pane, "#{window_id}");
    let seat = window(&tmux.seat);
    assert_eq!([window(&a), window(&b)], [seat.clone(), seat.clone()]);
    send(&world, "ann", "to the gate");
    world.wait_file("here");

    let unchanged = ["ann", "bob"].map(|name| entry(&world, name));
    let verb = |verb: &str, name: &str| world.lead(&["team", verb, name, "--team", "demo", "--json"]).run();
    for _ in 0..2 {
        let said = verb("hide", "ann").expect(0).json();
        assert_eq!((&said["state"], &said["pane"]), (&json!("hidden"), &json!(a)), "{said}");
        assert_ne!(window(&a), seat);
        assert_eq!((window(&b), hidden(&world)), (seat.clone(), json!([a])));
    }
    let team = world.lead(&["team", "show", "demo", "--json"]).run().expect(0).json();
    let row = team["members"].as_array().unwrap().iter().find(|m| m["name"] == "ann").unwrap();
    assert_eq!((&row["state"], &row["pid"]), (&json!("running"), &ann["pid"]), "{team}");
    assert_eq!(["ann", "bob"].map(|name| entry(&world, name)), unchanged);
    // Out of sight it ends its turn, and hears what comes next.
    gate.open(1);
    led.wait("ann", "idle");
    send(&world, "ann", "out of sight");
    wait_shown(&tmux, &a, "out of sight");
    for _ in 0..2 {
        let said = verb("unhide", "ann").expect(0).json();
        assert_eq!((&said["state"], &said["pane"]), (&json!("shown"), &json!(a)), "{said}");
        assert_eq!((window(&a), hidden(&world)), (seat.clone(), json!([])));
    }
    wait_shown(&tmux, &a, "through");
    assert_eq!([&led.wait("ann", "idle")["pid"], &led.wait("bob", "idle")["pid"]], [&ann["pid"], &bob["pid"]]);
    world.lead(&["team", "hide", "eve", "--team", "demo"]).run().expect(4).says(&["eve", "ann, bob"]);

    // One that leaves takes its pane along, hidden or not.
    verb("hide", "bob").expect(0);
    world.lead(&["team", "shutdown", "bob", "--team", "demo"]).run().expect(0);
    eventually("the hidden pane of who left is forgotten", || match hidden(&world) {
        none if none == json!([]) => Ok(()),
        some => Err(some),
    });
    assert!(!tmux.panes("#{pane_id}").contains(&b));
    verb("hide", "ann").expect(0);
    end_as_before(&world, &tmux, led, &before);
}

#[test]
fn a_crashed_members_pane_is_readable_until_it_comes_back_in_another() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let before = looks(&tmux);
    let gate = world.gate("gate");
    let speaks = json!({"when": {"latest": "You are ann"}, "text": "famous last words"});
    let works = json!({"when": {"latest": r"to the gate\s*</teammate-message>\s*\z"}, "tools": [bash(&gate.arrive("here"))],
        "repeat": true});
    let book = book(&world, &[maker(&["ann", "bob"]), members(&[speaks, works], true)]);
    let led = lead_at(&world, &tmux, &book);
    let ann = led.wait("ann", "idle");
    led.wait("bob", "idle");
    led.wait_made();
    for round in 1..=2 {
        let old = pane_of(&world, &tmux, "ann");
        if round == 2 {
            world.lead(&["team", "hide", "ann", "--team", "demo"]).run().expect(0);
        }
        led.wait("ann", "idle");
        send(&world, "ann", &format!("{round}: to the gate"));
        let shell: i32 = world.wait_file("here").parse().unwrap();
        fs::remove_file(world.cwd().join("here")).unwrap();
        // One letter is taken in while it works and not shown to it, one finds nobody.
        send(&world, "ann", &format!("letter {round} in a turn"));
        eventually("it is taken in", || match transcript(&ann).last().unwrap() {
            last if last.to_string().contains("in a turn") => Ok(()),
            last => Err(last.clone()),
        });
        signal(pid(&led.wait("ann", "running")), Signal::SIGKILL);
        led.wait("ann", "failed");
        eventually("the roster says so", || match entry(&world, "ann") {
            ann if ann["isActive"] == false => Ok(()),
            ann => Err(ann),
        });
        send(&world, "ann", &format!("letter {round} for later"));
        eventually("its tool is gone", || if exists(shell) { Err(shell) } else { Ok(()) });
        // What it said can be read where it was said, and how it ended.
        assert_eq!(tmux.tell(&old, "#{pane_dead}"), "1");
        wait_shown(&tmux, &old, "to the gate");
        assert!(round == 2 || shown(&tmux, &old).contains("famous last words"), "{}", shown(&tmux, &old));
        eventually("the lead is told how", || match book.of("lead").pop().unwrap().all() {
            told if told.matches("<teammate-terminated").count() == round && told.contains("SIGKILL") => Ok(()),
            told => Err(told),
        });

        let again = world.lead(&["team", "add", "demo", "ann", "--resume", "--json"]).run().expect(0).json();
        assert_eq!((&again["resumed"], &again["backend"]), (&json!(true), &json!("tmux")), "{again}");
        let new = pane_of(&world, &tmux, "ann");
        assert_ne!(new, old);
        assert!(!tmux.panes("#{pane_id}").contains(&old), "the old pane makes way");
        assert_eq!(tmux.tell(&new, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
        assert_eq!(hidden(&world), json!([]), "the new one is in sight");
        wait_shown(&tmux, &new, &format!("letter {round} for later"));
        for part in (1..=round).flat_map(|n| ["in a turn", "for later"].map(|when| format!("letter {n} {when}"))) {
            eventually("each letter comes once", || match heard(&ann, &part) {
                1 => Ok(()),
                other => Err((part.clone(), other)),
            });
        }
        led.wait("ann", "idle");
        assert_eq!((heard(&ann, "You are ann; work"), heard(&ann, "Your process had ended")), (1, round));
        let last = book.of("teammate").into_iter().rfind(|r| r.0["caller"]["name"] == "ann").unwrap();
        assert!(last.all().contains("You are ann; work") && last.all().contains("famous last words"));
    }
    // That of one who does not come back goes with the team.
    let crashed = pane_of(&world, &tmux, "bob");
    signal(pid(&led.wait("bob", "idle")), Signal::SIGKILL);
    led.wait("bob", "failed");
    eventually("the pane of one who was killed stays", || match tmux.tell(&crashed, "#{pane_dead}").as_str() {
        "1" => Ok(()),
        other => Err(other.to_owned()),
    });
    end_as_before(&world, &tmux, led, &before);
}

#[test]
fn r059_a_pane_that_is_closed_is_its_members_end_and_the_others_work_on() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let before = looks(&tmux);
    let gate = world.gate("gate");
    let card = r#"task-card id="(?P<card>\d+)""#;
    let done = call("TaskUpdate", json!({"taskId": "1", "status": "completed"}));
    let turns = [told(card, &[bash(&format!("{}; echo through", gate.arrive("here")))]), told("through", &[done])];
    let mut lead = maker(&["ann", "bob", "cat"]);
    lead["turns"].as_array_mut().unwrap().push(json!({"when": {"latest": "teammate-terminated"}, "text": "heard"}));
    let book = book(&world, &[lead, members(&turns, true)]);
    let led = lead_at(&world, &tmux, &book);
    let names = ["ann", "bob", "cat"];
    names.iter().for_each(|name| drop(led.wait(name, "idle")));
    led.wait_made();
    world.lead(&["task", "create", "--team", "demo", "--subject", "a card"]).run().expect(0);
    let cards = || world.lead(&["task", "list", "--team", "demo", "--json"]).run().expect(0).json();
    let owner_of = |cards: &Value| cards[0]["owner"].as_str().unwrap_or_default().to_owned();
    let shell: i32 = world.wait_file("here").parse().unwrap();
    let owner = owner_of(&cards());
    let row = led.wait(&owner, "running");
    fs::remove_file(world.cwd().join("here")).unwrap();

    tmux.call(&["kill-pane", "-t", &pane_of(&world, &tmux, &owner)]);
    led.wait(&owner, "failed");
    eventually("its process and its tool are gone", || {
        if exists(pid(&row)) || exists(shell) { Err((pid(&row), shell)) } else { Ok(()) }
    });
    eventually("the roster says so", || match entry(&world, &owner) {
        gone if gone["isActive"] == false => Ok(()),
        gone => Err(gone),
    });
    let team = world.lead(&["team", "show", "demo", "--json"]).run().expect(0).json();
    for member in team["members"].as_array().unwrap().iter().filter(|m| m["name"] != "team-lead") {
        let expected = if member["name"] == owner.as_str() { "gone" } else { "running" };
        assert_eq!(member["state"], expected, "{team}");
    }
    let living = world.ps(&["--team", "demo"]);
    assert!(living.iter().all(|row| row["name"] != owner.as_str() || row["state"] == "failed"), "{living:?}");
    eventually("the lead is told, once", || {
        let told = book.of("lead").pop().unwrap().all();
        let count = told.matches(&format!("<teammate-terminated teammate_id=\"{owner}\"")).count();
        if count == 1 && told.contains("SIGHUP") { Ok(()) } else { Err(told) }
    });
    // The card is another's, who does it.
    world.wait_file("here");
    let next = owner_of(&cards());
    assert!(names.contains(&next.as_str()) && next != owner, "{next}");
    gate.open(1);
    eventually("the card is done", || match cards() {
        cards if cards[0]["status"] == "completed" => Ok(()),
        cards => Err(cards),
    });
    led.wait(&next, "idle");

    // It comes back in another pane.
    world.lead(&["team", "add", "demo", &owner, "--resume"]).run().expect(0);
    led.wait(&owner, "idle");
    pane_of(&world, &tmux, &owner);
    end_as_before(&world, &tmux, led, &before);
}

/// The rows of a pane that are not empty.
fn rows(tmux: &Tmux<'_>, pane: &str) -> Vec<String> {
    let text = tmux.call(&["capture-pane", "-p", "-t", pane]);
    text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_person_types_into_a_members_pane_interrupts_its_turn_and_changes_its_size() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 120, 40) else { return };
    let before = looks(&tmux);
    let gate = world.gate("gate");
    let works = told("to the gate", &[bash(&gate.arrive("here"))]);
    let book = book(&world, &[maker(&["ann"]), members(&[works], true)]);
    let led = lead_at(&world, &tmux, &book);
    let ann = led.wait("ann", "idle");
    led.wait_made();
    let pane = pane_of(&world, &tmux, "ann");
    let keys = |keys: &[&str]| drop(tmux.call(&[&["send-keys", "-t", &pane], keys].concat()));
    keys(&["-l", "who are you; $(touch x) #{pane_id} 研"]);
    wait_shown(&tmux, &pane, "> who are you; $(touch x) #{pane_id} 研");
    keys(&["Enter"]);
    let asked = eventually("it is what a person says", || {
        let asked = book.of("teammate");
        let found = asked.iter().find(|r| r.latest().contains("who are you")).cloned();
        found.ok_or(asked.len())
    });
    assert_eq!(asked.latest(), "who are you; $(touch x) #{pane_id} 研", "not as a message of a member");
    led.wait("ann", "idle");
    let line = transcript(&ann).into_iter().find(|l| l["type"] == "user" && l.to_string().contains("who are you"));
    let line = line.unwrap();
    assert!(!line.to_string().contains("teammate-message") && line["isMeta"] != true, "{line}");

    // Ctrl-C ends the turn and what it runs.
    keys(&["to the gate", "Enter"]);
    let shell: i32 = world.wait_file("here").parse().unwrap();
    assert_eq!(led.wait("ann", "running")["pid"], ann["pid"]);
    keys(&["C-c"]);
    assert_eq!(led.wait("ann", "idle")["pid"], ann["pid"], "the member is there");
    eventually("its tool is gone", || if exists(shell) { Err(shell) } else { Ok(()) });
    let told = eventually("the lead is told why it rests", || {
        let told: String = world.session(&led.session).lines().iter().map(|l| l["message"].to_string()).collect();
        if told.contains("interrupted") { Ok(told) } else { Err(told) }
    });
    assert_eq!(told.matches("teammate-terminated").count(), 0);
    keys(&["and now", "Enter"]);
    eventually("it goes on", || match book.of("teammate").pop().unwrap() {
        last if last.latest().contains("and now") => Ok(()),
        last => Err(last.latest()),
    });
    led.wait("ann", "idle");

    // One status and one input line at the bottom, whatever the size.
    let is_drawn = |width: &str, height: &str, typed: &str| {
        eventually(&format!("drawn in {width}x{height}"), || {
            let size = tmux.tell(&pane, "#{pane_width} #{pane_height}");
            let rows = rows(&tmux, &pane);
            let ends = rows.iter().rev().take(2).rev().cloned().collect::<Vec<_>>();
            let is_right =
                ends.len() == 2 && ends[0].starts_with("ann  idle") && ends[1] == format!("> {typed}").trim_end();
            let once = |what: &str| rows.iter().filter(|row| *row == what).count() == 1;
            if is_right && once(&ends[0]) && once(&ends[1]) { Ok(()) } else { Err((size, rows)) }
        });
    };
    keys(&["half a line"]);
    is_drawn("its", "own", "half a line");
    for (width, height) in [("20", "5"), ("120", "40"), ("33", "9"), ("20", "5"), ("200", "60")] {
        tmux.call(&["resize-window", "-t", &pane, "-x", width, "-y", height]);
        // Its pane is half of the window, which has a title on its border.
        is_drawn(width, height, "half a line");
    }
    keys(&["Enter"]);
    eventually("what was begun before is said", || match book.of("teammate").pop().unwrap() {
        last if last.latest() == "half a line" => Ok(()),
        last => Err(last.latest()),
    });
    led.wait("ann", "idle");
    is_drawn("the", "last size", "");
    tmux.call(&["resize-window", "-t", &tmux.seat, "-x", "120", "-y", "40"]);
    assert!(!world.cwd().join("x").exists());
    end_as_before(&world, &tmux, led, &before);
}

#[test]
fn r001_r007_r008_members_work_in_a_tmux_that_is_as_unkind_as_can_be() {
    let name = "#(touch bad) #{pane_id} ##[x %Y 'q\" $HOME `touch bad`;";
    let world = World::with_tree(name);
    let Some(real) = optional("tmux") else { return };
    let eater = program(&world, "eater", "#!/bin/sh\nexec cat > /dev/null\n");
    let shells = [Some(eater), optional("fish"), optional("csh")];
    for (i, user_shell) in shells.into_iter().flatten().enumerate() {
        recorded(&world).unwrap();
        let socket = format!("s{i} #(touch bad),;");
        let shell = user_shell.display();
        let config = format!(
            "set -g base-index 1\nset -g pane-base-index 1\nset -g renumber-windows on\n\
             set -g default-shell '{shell}'\nset -g default-command '{shell} -l'\n"
        );
        let tmux = Tmux::at(&world, &socket, &config, 160, 48, &["sh", "-c", "exec cat"]);
        let session = tmux.tell(&tmux.seat, "#{session_id}");
        // No `#(…)` in these: tmux itself executes that for whoever looks.
        tmux.call(&["rename-session", "-t", &tmux.seat, "a #{pane_id} %1 ';"]);
        tmux.call(&["rename-window", "-t", &tmux.seat, "#{pane_id} %Y \"';"]);
        tmux.call(&["select-pane", "-t", &tmux.seat, "-T", "#{pane_id} %1;"]);
        // The person looks at another window, of two panes.
        let other = tmux.call(&["new-window", "-P", "-F", "#{pane_id}", "-t", &session, "exec cat"]);
        tmux.call(&["split-window", "-t", &other, "exec cat"]);
        // By a script, since what ends with `;` would end the command of the person's own tmux.
        let look = format!("TMUX= exec '{}' -u -S '{}' attach -t '{session}'", real.display(), tmux.socket().display());
        let person = Tmux::at(&world, &format!("person{i}"), "", 160, 48, &["sh", "-c", &look]);
        eventually("the person is there", || match tmux.call(&["list-clients"]) {
            none if none.is_empty() => Err(none),
            _ => Ok(()),
        });
        let seen = || tmux.call(&["list-clients", "-F", "#{session_id} #{window_id} #{pane_id} #{window_layout}"]);
        let before = (looks(&tmux), seen());

        let words = "#(touch bad) #{pane_id} %1 %Y q'\"q `touch bad` $(touch bad) a;";
        let tell = call("SendMessage", json!({"to": "bob", "summary": words, "message": words}));
        let book = book(&world, &[maker(&["ann", "bob"]), members(&[told("say it", &[tell])], true)]);
        let led = lead_at(&world, &tmux, &book);
        // From then on the roster says where they are.
        led.wait_made();
        let mut gone = Vec::new();
        for member in ["ann", "bob"] {
            let row = led.wait(member, "idle");
            let pane = pane_of(&world, &tmux, member);
            gone.push(pid(&row));
            assert_eq!(row["cwd"], json!(world.cwd()));
            assert_eq!(tmux.tell(&pane, "#{pane_pid}"), row["pid"].to_string(), "{shell}");
            assert_eq!(tmux.tell(&pane, "#{pane_title}"), member);
            assert_eq!(tmux.tell(&pane, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
        }
        send(&world, "ann", &format!("say it: {words}"));
        wait_shown(&tmux, &pane_of(&world, &tmux, "bob"), "@ann: #(touch bad) #{pane_id} %1 %Y q'\"q");
        led.wait("bob", "idle");
        eventually("bob was asked with the very words", || {
            let last = book.of("teammate").into_iter().rfind(|r| r.0["caller"]["name"] == "bob").unwrap().all();
            if last.contains(&format!("\n{words}\n</teammate-message>")) { Ok(()) } else { Err(last) }
        });
        assert_eq!(seen(), before.1, "nobody moved what the person looks at");
        end_as_before(&world, &tmux, led, &before.0);
        assert!(gone.into_iter().all(|pid| !exists(pid)), "{shell}");
        for folder in [world.cwd(), world.root(), "/".as_ref()] {
            assert!(!folder.join("bad").exists(), "something was executed in {folder:?}");
        }
        drop(person);
    }
}
