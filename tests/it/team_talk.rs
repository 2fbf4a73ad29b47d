//! Mail between members that run: when it is read, what it wakes, and that rest is told once and costs
//! nothing.

use serde_json::{Value, json};

use crate::support::{
    Book, SHUTDOWN, World, add, bash, book, create_team, eventually, lead_rule, lines_of, member_rule, no_team_left,
    of_member, once_told, tell, text_of, times, wait_member,
};

fn leads(members: &[&str], more: &[Value]) -> Value {
    let added: Vec<Value> = members.iter().map(|name| add(name, &format!("You are {name}; begin."))).collect();
    let mut turns = vec![json!({"tools": [create_team("t")]}), json!({"tools": added})];
    turns.extend(more.iter().cloned());
    lead_rule(&turns)
}

/// What the user lines of the lead's transcript say, in order.
fn told(world: &World, session: &str) -> Vec<String> {
    let lines = lines_of(&world.session(session).path);
    lines.iter().filter(|l| l["type"] == "user").map(|l| text_of(&l["message"]["content"])).collect()
}

fn count(told: &[String], what: &str) -> usize {
    told.iter().filter(|text| text.contains(what)).count()
}

fn send(world: &World, to: &str, text: &str) {
    world.lead(&["team", "send", to, text, "--team", "t"]).run().expect(0);
}

#[test]
fn r028_mail_for_a_busy_member_comes_at_its_next_tool_boundary() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = book(
        &world,
        &[
            leads(&["ann"], &[]),
            member_rule(
                "ann",
                &[json!({"tools": [bash(&gate.arrive("here"))]}), once_told("a word", &[bash("echo next")])],
            ),
        ],
    );
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    send(&world, "ann", "a word between");
    eventually("the message is taken", || {
        let inbox = world.lead(&["inbox", "read", "ann", "--team", "t", "--unread", "--json"]).run().expect(0).json();
        if inbox == json!([]) { Ok(()) } else { Err(inbox) }
    });
    gate.open(1);
    run.wait().expect(0);
    let asked = of_member(&book.requests(), "ann");
    // The request that brings the result of the tool has the message, too.
    assert_eq!(asked[1].results().len(), 1);
    assert!(asked[1].latest().contains("a word between"), "{}", asked[1].latest());
    assert_eq!(asked.last().unwrap().all().matches(">\na word between").count(), 1);
    no_team_left(&world);
}

#[test]
fn r034_rest_is_told_once_after_the_report_and_costs_no_turn() {
    let world = World::new();
    let report = tell("team-lead", "the report of ann");
    let book = book(&world, &[leads(&["ann"], &[]), member_rule("ann", &[json!({"tools": [report]})])]);
    let done = world.headless(&book.model(), "go").run();
    let said = told(&world, &done.expect(0).session());
    assert_eq!((count(&said, "<teammate-idle"), count(&said, "the report of ann")), (1, 1), "{said:#?}");
    let at = |what: &str| said.iter().position(|text| text.contains(what)).unwrap();
    assert!(at("the report of ann") < at("<teammate-idle"), "{said:#?}");
    // TeamCreate, Agent, the end of that turn, the report.
    let asked = book.of("lead").len();
    assert!((3..=4).contains(&asked), "{asked} requests: {said:#?}");
    no_team_left(&world);
}

#[test]
fn r027_an_idle_member_begins_a_turn_when_mail_or_a_card_comes() {
    let world = World::new();
    let gate = world.gate("gate");
    let card = r#"task-card id="(?P<card>\d+)""#;
    let finish = json!({"name": "TaskUpdate", "input": {"taskId": "{{capture.card}}", "status": "completed"}});
    let book = book(
        &world,
        &[
            leads(&["ann", "bob"], &[]),
            member_rule(
                "ann",
                &[
                    once_told("wake up", &[bash("echo yes > woken")]),
                    once_told(card, &[bash("echo yes > worked"), finish]),
                ],
            ),
            member_rule("bob", &[json!({"tools": [bash(&gate.arrive("here"))]})]),
        ],
    );
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("here");
    wait_member(&world, "ann", "idle");
    send(&world, "ann", "wake up");
    world.wait_file("woken");
    wait_member(&world, "ann", "idle");
    world.lead(&["task", "create", "--team", "t", "--subject", "late"]).run().expect(0);
    world.wait_file("worked");
    wait_member(&world, "ann", "idle");
    gate.open(1);
    let said = told(&world, &run.wait().expect(0).session());
    assert_eq!(count(&said, r#"<teammate-idle teammate_id="ann""#), 3, "{said:#?}");
    no_team_left(&world);
}

fn relays(world: &World) -> Book {
    book(
        world,
        &[
            leads(&["ann", "bob"], &[once_told("bob has it", &[bash("echo yes > heard")])]),
            member_rule("ann", &[json!({"tools": [tell("bob", "pass it on")]})]),
            member_rule("bob", &[once_told("pass it on", &[tell("team-lead", "bob has it")])]),
        ],
    )
}

#[test]
fn mail_that_comes_just_when_its_reader_rests_keeps_the_run_alive() {
    for _ in 0..times(6, 60) {
        let world = World::new();
        let book = relays(&world);
        world.headless(&book.model(), "go").run().expect(0);
        assert!(world.cwd().join("heard").exists(), "{}", world.describe());
        no_team_left(&world);
    }
}

#[test]
fn r006_text_between_members_arrives_as_it_was_written_and_is_not_obeyed() {
    let world = World::new();
    let nasty = "a; touch bad; `touch bad` $(touch bad) 'q\" \\ #{pane_id} #(touch bad) %s {x}\ttab\nline ä \u{1f600};";
    let book = book(
        &world,
        &[
            leads(&["ann", "bob"], &[]),
            member_rule("ann", &[json!({"tools": [tell("bob", nasty)]})]),
            member_rule("bob", &[]),
        ],
    );
    world.headless(&book.model(), "go").run().expect(0);
    let heard = of_member(&book.requests(), "bob").iter().map(|r| r.all()).find(|all| all.contains("touch bad"));
    let heard = lead::core::text::unescape(&heard.unwrap());
    assert!(heard.contains(nasty), "{heard}");
    assert!(!world.cwd().join("bad").exists());
    no_team_left(&world);
    assert!(SHUTDOWN.starts_with("shutdown"));
}
