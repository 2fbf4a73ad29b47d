//! Whole teams of real processes, from `TeamCreate` to `TeamDelete`.

use serde_json::{Value, json};

use crate::support::{
    Book, SHUTDOWN, World, add, bash, book, call, create_team, lead_rule, member_rule, no_team_left, of_member,
    once_told, say, tell, wait_question, whenever,
};

fn create(subject: &str) -> Value {
    call("TaskCreate", json!({"subject": subject, "description": format!("{subject}, all of it")}))
}

fn update(input: Value) -> Value {
    call("TaskUpdate", input)
}

fn decides(verdict: Value) -> Value {
    let mut answer = json!({"type": "plan_approval_response", "request_id": "{{capture.id}}"});
    answer.as_object_mut().unwrap().extend(verdict.as_object().unwrap().clone());
    say("cat", answer)
}

fn plan(text: &str) -> String {
    format!(r#"plan-approval-request request_id="(?P<id>[^"]+)" teammate_id="cat">\s*{text}"#)
}

/// Card 1 waits for the gate, card 2 for card 1, card 3 for card 2 and is dan's. The gate opens when cat's
/// second plan is carried out; dan's card needs a permission; then word goes round, and eve ends, on the
/// second request.
pub fn five(world: &World) -> Book {
    let mode_plan = json!({"description": "Plan it", "prompt": "You are cat; plan.", "name": "cat", "mode": "plan"});
    let lead = lead_rule(&[
        json!({"tools": [create_team("crew")]}),
        json!({"tools": [create("one"), create("two"), create("three"), create("gate")]}),
        json!({"tools": [
            update(json!({"taskId": "4", "status": "in_progress"})),
            update(json!({"taskId": "1", "addBlockedBy": ["4"]})),
            update(json!({"taskId": "2", "addBlockedBy": ["1"]})),
            update(json!({"taskId": "3", "addBlockedBy": ["2"]})),
        ]}),
        json!({"tools": [
            add("ann", "You are ann; wait."), add("bob", "You are bob; wait."), call("Agent", mode_plan),
            add("dan", "You are dan; wait."), add("eve", "You are eve; wait."),
        ]}),
        json!({"tools": [update(json!({"taskId": "3", "owner": "dan"}))]}),
        once_told(&plan("vague"), &[decides(json!({"approve": false, "feedback": "say which files"}))]),
        once_told(&plan("exact"), &[decides(json!({"approve": true}))]),
        once_told("the plan is carried out", &[update(json!({"taskId": "4", "status": "completed"}))]),
        once_told("eve is ready", &[say("eve", json!({"type": "shutdown_request", "reason": "all is done"}))]),
        once_told("one more thing", &[call("TaskList", json!({})), say("eve", json!({"type": "shutdown_request"}))]),
        once_told(r#"teammate-terminated teammate_id="eve""#, &[call("TeamDelete", json!({"wait_ms": 60_000}))]),
        json!({"when": {"latest": "is removed"}, "text": "over"}),
    ]);
    let card = r#"task-card id="(?P<card>\d+)""#;
    let works = || whenever(card, &[update(json!({"taskId": "{{capture.card}}", "status": "completed"}))]);
    let no = json!({
        "type": "shutdown_response", "request_id": "{{capture.id}}", "approve": false, "reason": "one more thing",
    });
    let write = call("Write", json!({"file_path": world.cwd().join("planned"), "content": "yes\n"}));
    let propose = |plan: &str| call("ExitPlanMode", json!({"plan": plan}));
    book(
        world,
        &[
            lead,
            member_rule("ann", &[works(), once_told("hello all", &[tell("bob", "hello from ann")])]),
            member_rule("bob", &[works(), once_told("hello from ann", &[tell("eve", "the ring is closed")])]),
            member_rule(
                "cat",
                &[
                    json!({"tools": [propose("vague")]}),
                    once_told("say which files", &[propose("exact")]),
                    once_told("plan is approved", &[write]),
                    json!({"when": {"results": ">=3"}, "tools": [tell("team-lead", "the plan is carried out")]}),
                    works(),
                ],
            ),
            member_rule(
                "dan",
                &[
                    once_told(r#"task-card id="3""#, &[bash("touch granted; echo was it")]),
                    once_told("was it", &[update(json!({"taskId": "3", "status": "completed"}))]),
                    once_told("Updated task #3", &[tell("eve", "dan is through")]),
                    works(),
                ],
            ),
            member_rule(
                "eve",
                &[
                    json!({"when": {"latest": SHUTDOWN}, "tools": [say("team-lead", no)]}),
                    works(),
                    once_told("dan is through", &[tell("*", "hello all")]),
                    once_told("the ring is closed", &[tell("team-lead", "eve is ready")]),
                ],
            ),
        ],
    )
}

/// What was said and done, whatever the members run in.
pub fn check_five(world: &World, book: &Book) {
    let last = book.last();
    let results = last.results();
    assert!(results.iter().all(|(_, is_error)| !is_error), "{results:#?}");
    let list = results.iter().find(|(text, _)| text.contains("#1 [")).unwrap_or_else(|| panic!("{results:#?}"));
    // Who took the first two is chance.
    let rows: Vec<&str> = list.0.lines().collect();
    let begin = |row: usize, text: &str| assert!(rows[row].starts_with(text), "{}", list.0);
    begin(0, "#1 [completed] one (");
    begin(1, "#2 [completed] two (");
    assert_eq!(rows[2..], ["#3 [completed] three (dan)", "#4 [completed] gate"]);
    for file in ["planned", "granted"] {
        assert!(world.cwd().join(file).exists(), "{file}");
    }
    let requests = book.requests();
    for (name, heard) in [("ann", "hello all"), ("bob", "hello all"), ("cat", "hello all"), ("dan", "hello all")] {
        let said = of_member(&requests, name).pop().unwrap().all();
        assert_eq!(said.matches(heard).count(), 1, "{name}: {said}");
    }
    let cat = of_member(&requests, "cat").pop().unwrap().results();
    assert!(cat[0].1 && cat[0].0.contains("say which files"), "{cat:?}");
    no_team_left(world);
}

#[test]
fn a_team_of_five_works_from_its_first_card_to_its_end() {
    let world = World::heavy();
    let book = five(&world);
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"]);
    let lead = lead.args(&["--permission-prompt-tool", "desk"]);
    let run = lead.start();
    let id = wait_question(&world, "Bash");
    world.lead(&["permissions", "allow", &id]).run().expect(0);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    // The first plan, and nothing else.
    let denials = done.json()["permission_denials"].clone();
    let refused: Vec<&Value> = denials.as_array().unwrap().iter().map(|denial| &denial["tool_name"]).collect();
    assert_eq!(refused, ["ExitPlanMode"]);
    check_five(&world, &book);
}
