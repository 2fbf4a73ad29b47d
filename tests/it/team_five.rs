//! A whole team of five: cards with dependencies claimed by themselves, peers that write to each other,
//! a plan that is approved at the second attempt, a permission given by the person, a shutdown that is
//! refused once, and a team that leaves nothing. Headless, and the same in real tmux panes.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    Book, Lead, Request, Tmux, World, agent, bash, book, call, calls, eventually, lead_rule, recorded, turn,
};

const YES: &str = r#"shutdown-request request_id="(?P<id>[^"]+)""#;
const CARD: &str = r#"task-card id="(?P<card>\d+)""#;

/// Sends something to somebody.
fn say(to: &str, message: Value) -> Value {
    let mut input = json!({"to": to, "message": message});
    if input["message"].is_string() {
        input["summary"] = json!("a word to somebody else");
    }
    call("SendMessage", input)
}

fn when(latest: &str, tools: &[Value]) -> Value {
    json!({"when": {"latest": latest}, "tools": tools})
}

/// Played as often as it fits.
fn each(mut turn: Value) -> Value {
    turn["repeat"] = json!(true);
    turn
}

fn answer(approve: bool) -> Value {
    let mut message = json!({"type": "shutdown_response", "request_id": "{{capture.id}}", "approve": approve});
    if !approve {
        message["reason"] = json!("not before I have thought");
    }
    say("team-lead", message)
}

/// A member that also completes every card it gets, and agrees to end.
fn member(name: &str, turns: &[Value]) -> Value {
    let mut all = turns.to_vec();
    all.extend([
        each(when(CARD, &[call("TaskUpdate", json!({"taskId": "{{capture.card}}", "status": "completed"}))])),
        when("Updated task #4", &[call("Write", json!({"file_path": "cards", "content": "done"}))]),
        each(when(YES, &[answer(true)])),
    ]);
    let mut rule = agent(json!({"role": "^teammate$", "name": format!("^{name}$")}), &all);
    rule["otherwise"] = json!({"text": "resting"});
    rule
}

fn add(name: &str, more: Value) -> Value {
    let mut input = json!({"description": "a member", "prompt": format!("You are {name}."), "name": name});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    call("Agent", input)
}

fn card(subject: &str) -> Value {
    call("TaskCreate", json!({"subject": subject, "description": "do it"}))
}

fn five(world: &World) -> Book {
    let plan = r#"plan-approval-request request_id="(?P<id>[^"]+)""#;
    let judge = |approve: bool| {
        let mut message = json!({"type": "plan_approval_response", "request_id": "{{capture.id}}", "approve": approve});
        if !approve {
            message["feedback"] = json!("name the file");
        }
        say("cal", message)
    };
    let waits = |id: &str, by: &[&str]| call("TaskUpdate", json!({"taskId": id, "addBlockedBy": by}));
    let end = |name: &str| say(name, json!({"type": "shutdown_request", "reason": "all is done"}));
    let lead = lead_rule(&[
        turn("", &[call("TeamCreate", json!({"team_name": "five"}))]),
        turn("", &["one", "two", "three", "four"].map(card)),
        turn("", &[waits("3", &["1", "2"]), waits("4", &["3"])]),
        turn(
            "",
            &[
                add("ann", json!({})),
                add("bob", json!({})),
                add("cal", json!({"mode": "plan"})),
                add("dan", json!({})),
                add("eve", json!({})),
            ],
        ),
        when(plan, &[judge(false)]),
        when(plan, &[judge(true)]),
        when("is approved", &[bash("sh wait.sh")]),
        when("all is there", &[end("eve")]),
        when("shutdown-rejected", &[end("eve")]),
        when("teammate-terminated teammate_id=\"eve\"", &[call("TeamDelete", json!({}))]),
        when("members are active", &[call("TeamDelete", json!({"wait_ms": 30000}))]),
        json!({"when": {"latest": "is removed"}, "text": "over"}),
        // Whoever writes to all before all are there, or when one has left, writes to those who are.
        turn("", &[say("bob", json!("all are here"))]),
        each(turn("so it goes on", &[])),
    ]);
    // What each of these waits for may come together with a card, which goes first.
    let mut bob = member("bob", &[]);
    bob["turns"].as_array_mut().unwrap().extend([
        json!({"when": {"any": "all are here"}, "tools": [say("*", json!("hello all"))]}),
        json!({"when": {"any": "delivered to 5 of 5"}, "tools": [
            call("Write", json!({"file_path": "said", "content": "to all"}))]}),
    ]);
    let rules = [
        lead,
        member("ann", &[turn("", &[say("bob", json!("hello bob; $(touch x) `y` \"z\""))])]),
        bob,
        member(
            "cal",
            &[
                turn("", &[call("ExitPlanMode", json!({"plan": "write something"}))]),
                when("was not approved: name the file", &[call("ExitPlanMode", json!({"plan": "write built"}))]),
                when("approved", &[call("Write", json!({"file_path": "built", "content": "by cal"}))]),
                when("built", &[say("team-lead", json!("it is built"))]),
            ],
        ),
        member(
            "dan",
            &[
                turn("", &[bash("touch granted; echo touched")]),
                when("touched", &[say("team-lead", json!("it was permitted"))]),
            ],
        ),
        member("eve", &[turn("I am eve", &[]), when(YES, &[answer(false)])]),
    ];
    let wait =
        "until [ -e cards ] && [ -e said ] && [ -e built ] && [ -e granted ]; do sleep 0.02; done; echo all is there";
    world.file("wait.sh", wait);
    book(world, &rules)
}

/// Runs it to its end, and says yes to the one question there is.
fn run(world: &World, book: &Book, lead: Lead<'_>, at_work: impl FnOnce()) {
    let run = lead.start();
    let question = eventually("dan's question", || {
        let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
        let of_dan = rows.as_array().and_then(|rows| rows.iter().find(|row| row["agent"] == "dan@five").cloned());
        of_dan.ok_or(rows)
    });
    assert_eq!((&question["tool"], &question["name"]), (&json!("Bash"), &json!("dan")), "{question}");
    assert!(!world.cwd().join("granted").exists());
    at_work();
    world.lead(&["permissions", "allow", question["id"].as_str().unwrap()]).run().expect(0);
    let done = run.wait();
    done.expect(0);
    assert_eq!(done.json()["result"], "over", "{done:#?}");
    assert!(world.cwd().join("granted").exists());
    assert_eq!(fs::read_to_string(world.cwd().join("built")).unwrap(), "by cal");
    assert!(!world.cwd().join("x").exists());

    // Each card once, and none before those it waits for.
    let asked = book.of("teammate");
    let cards = |request: &Request| {
        let done = |text: &str| Some(text.strip_prefix("Updated task #")?.chars().take(1).collect::<String>());
        request.results().iter().filter_map(|(text, _)| done(text)).collect::<Vec<_>>()
    };
    let mut once: Vec<String> =
        ["ann", "bob", "cal", "dan", "eve"].iter().flat_map(|name| cards(&last_of(book, name))).collect();
    once.sort();
    assert_eq!(once, ["1", "2", "3", "4"]);
    // Who is shown a card has claimed it, before anybody can be shown one that waits for it.
    let shown = |card: &str| {
        let card = format!("<task-card id=\"{card}\"");
        asked.iter().position(|request| request.all().contains(&card)).unwrap()
    };
    assert!(shown("3") > shown("1").max(shown("2")) && shown("4") > shown("3"));

    // What peers say to each other, byte for byte but for what marks it as theirs.
    let heard = |name: &str| last_of(book, name).all();
    let hello = "<teammate-message teammate_id=\"ann\" color=\"blue\" summary=\"a word to somebody else\">\nhello bob; $(touch x) `y` \"z\"\n</teammate-message>";
    assert!(heard("bob").contains(hello), "{}", heard("bob"));
    for name in ["ann", "cal", "dan", "eve"] {
        assert!(heard(name).contains("hello all"), "{name}: {}", heard(name));
    }
    let told = book.of("lead").pop().unwrap().all();
    for words in ["not before I have thought", "members are active", "it is built", "it was permitted", "is removed"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_nothing_of_a_team(world);
}

/// The last that a member asked its model.
fn last_of(book: &Book, name: &str) -> Request {
    let prompt = format!("You are {name}.");
    book.of("teammate").into_iter().rfind(|request| request.prompt().contains(&prompt)).unwrap()
}

/// Neither roster nor cards nor links are left.
fn assert_nothing_of_a_team(world: &World) {
    for folder in ["teams", "tasks", "lead/agents"] {
        let left: Vec<_> = fs::read_dir(world.config().join(folder)).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
}

fn lead<'w>(world: &'w World, book: &Book) -> Lead<'w> {
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]);
    lead.args(&["--permission-prompt-tool", "desk", "--allowed-tools", "Bash(sh wait.sh)"])
}

#[test]
fn five_members_work_headless_and_leave_nothing() {
    let world = World::heavy();
    let book = five(&world);
    let lead = lead(&world, &book);
    run(&world, &book, lead, || {
        eventually("five members in ps", || {
            let rows = world.ps(&[]);
            let members = rows.iter().filter(|row| row["role"] == "teammate" && row["team"] == "five").count();
            if members == 5 { Ok(()) } else { Err(rows) }
        });
    });
    world.assert_nothing_left();
}

#[test]
fn r001_r004_five_members_work_in_panes_of_tmux_and_leave_nothing() {
    let world = World::heavy();
    if recorded(&world).is_none() {
        return;
    }
    let Some(tmux) = Tmux::start(&world, "", 200, 60) else { return };
    let before = tmux.panes("#{pane_id} #{window_id} #{pane_width}");
    let book = five(&world);
    let lead = tmux.vars().iter().fold(lead(&world, &book), |lead, (name, value)| lead.env(name, value));
    run(&world, &book, lead, || {
        eventually("five panes that show their members and what they say", || {
            let ids = tmux.panes("#{pane_id}");
            let texts: Vec<String> = ids.iter().map(|id| tmux.call(&["capture-pane", "-p", "-t", id])).collect();
            let shows = |words: &[&str]| texts.iter().any(|text| words.iter().all(|word| text.contains(word)));
            let all =
                ["ann", "bob", "cal", "dan", "eve"].iter().all(|name| shows(&[&format!("{name}  "), "team five"]));
            if ids.len() == 6 && all && shows(&["I am eve", ">"]) && shows(&["@ann: hello bob; $(touch x)"]) {
                Ok(())
            } else {
                Err(texts)
            }
        });
    });
    eventually("panes as before", || {
        let now = tmux.panes("#{pane_id} #{window_id} #{pane_width}");
        if now == before { Ok(()) } else { Err(now) }
    });
    let (argv, scripts) = calls(&world);
    assert!(!argv.is_empty() && argv.iter().all(|line| !line.contains("send-keys")) && !scripts.contains("send-keys"));
}
