//! The task board as tools of a session's main conversation, the hooks that are asked about its cards, and the
//! approval of plans.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Running, World, bash, book, call, eventually, lead_rule, lines_of, turn};

const ID: &str = "33333333-2222-4333-8444-999999999999";

fn create(subject: &str) -> Value {
    call("TaskCreate", json!({"subject": subject, "description": format!("{subject}, all of it")}))
}

fn update(input: Value) -> Value {
    call("TaskUpdate", input)
}

fn list() -> Value {
    call("TaskList", json!({}))
}

fn hook(command: &str) -> Value {
    json!([{"hooks": [{"type": "command", "command": command}]}])
}

/// Settings of the project.
fn settings(world: &World, settings: &Value) {
    world.file(".claude/settings.json", settings.to_string());
}

#[test]
fn a_session_works_at_the_board_that_scripts_see() {
    let world = World::new();
    world.lead(&["team", "create", "t"]).run().expect(0);
    world.lead(&["team", "join", "t", "--as", "bot"]).run().expect(0);
    let calls = [create("First"), create("Second"), update(json!({"taskId": "2", "addBlockedBy": ["1"]})), list()];
    let book = book(
        &world,
        &[lead_rule(&[
            turn("", &calls),
            turn("", &[update(json!({"taskId": 1, "status": "in_progress"})), create("Third")]),
            turn("", &[update(json!({"taskId": "#1", "status": "completed"})), list()]),
            turn("", &[update(json!({"taskId": "3", "status": "deleted"})), call("TaskGet", json!({"taskId": "3"}))]),
            turn("", &[update(json!({"taskId": "2", "addBlocks": ["2"]})), create("Fourth")]),
            turn("over", &[]),
        ])],
    );
    let lead = world.headless(&book.model(), "go").args(&["--session-id", ID]);
    assert_eq!(lead.env("CLAUDE_CODE_TASK_LIST_ID", "t").run().expect(0).result(), "over");
    let results = book.last().results();
    let wanted = [
        ("Task #1 created successfully: First", false),
        ("Task #2 created successfully: Second", false),
        ("Updated task #2 blockedBy", false),
        ("#1 [pending] First\n#2 [pending] Second [blocked by #1]", false),
        ("Updated task #1 status", false),
        ("Task #3 created successfully: Third", false),
        ("Updated task #1 status", false),
        ("#1 [completed] First\n#2 [pending] Second\n#3 [pending] Third", false),
        ("Updated task #3 deleted", false),
        ("there is no task #3; there are #1, #2", true),
        ("task #2 can't block itself", true),
        ("Task #4 created successfully: Fourth", false),
    ];
    assert_eq!(results, wanted.map(|(text, is_error)| (text.to_owned(), is_error)));
    let rows = world.lead(&["task", "list", "--team", "t", "--json"]).run().expect(0).json();
    let shown = |row: &Value| [row["id"].clone(), row["status"].clone(), row["subject"].clone()];
    let rows: Vec<_> = rows.as_array().unwrap().iter().map(shown).collect();
    let row = |id: &str, status: &str, subject: &str| [json!(id), json!(status), json!(subject)];
    assert_eq!(rows, [row("1", "completed", "First"), row("2", "pending", "Second"), row("4", "pending", "Fourth")]);
    // Programs that read transcripts find results in the form they know.
    let session = world.session(ID);
    let transcript = world.config().join("projects");
    let file = walk(&transcript).into_iter().find(|path| path.ends_with(&format!("{ID}.jsonl"))).unwrap();
    let lines = lines_of(std::path::Path::new(&file));
    let kept: Vec<&Value> =
        lines.iter().map(|line| &line["toolUseResult"]).filter(|result| result.is_object()).collect();
    assert_eq!(*kept[0], json!({"task": {"id": "1", "subject": "First"}}));
    let finished = json!({
        "success": true, "taskId": "1", "updatedFields": ["status"],
        "statusChange": {"from": "in_progress", "to": "completed"},
    });
    assert_eq!(*kept[6], finished);
    assert_eq!(kept[7]["tasks"][1], json!({"id": "2", "subject": "Second", "status": "pending", "blockedBy": []}));
    session.check();
    world.assert_nothing_left();
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(walk(&path)),
            path => found.push(path.display().to_string()),
        }
    }
    found
}

#[test]
fn a_session_has_a_list_of_its_own_which_outlives_its_process() {
    let world = World::new();
    let book = book(
        &world,
        &[lead_rule(&[
            turn("", &[create("First")]),
            turn("half", &[]),
            turn("", &[create("Second"), list()]),
            turn("over", &[]),
        ])],
    );
    world.headless(&book.model(), "go").args(&["--session-id", ID]).run().expect(0);
    assert!(world.config().join("tasks").join(ID).join("1.json").exists());
    world.headless(&book.model(), "go on").args(&["--resume", ID]).run().expect(0);
    let last = book.last().results().pop();
    assert_eq!(last, Some(("#1 [pending] First\n#2 [pending] Second".to_owned(), false)));
    // A list that no folder can be named after is nobody's.
    let bad = crate::support::book(&world, &[lead_rule(&[turn("", &[create("First")]), turn("{{result.1}}", &[])])]);
    let told = world.headless(&bad.model(), "go").env("CLAUDE_CODE_TASK_LIST_ID", "../x").run();
    assert!(told.expect(0).result().contains("the task list id \"../x\" can't be used"), "{told:?}");
    assert_eq!(fs::read_dir(world.config().join("tasks")).unwrap().count(), 1);
}

#[test]
fn hooks_of_the_settings_refuse_cards_of_sessions_and_of_scripts() {
    let world = World::new();
    world.lead(&["team", "create", "t"]).run().expect(0);
    let ask =
        "cat > \"$CLAUDE_PROJECT_DIR/created.json\"; [ ! -e closed ] || { echo 'the board is closed' >&2; exit 2; }";
    let finish = r#"cat > done.json; [ -e tested ] || echo '{"decision": "block", "reason": "run the tests first"}'"#;
    settings(&world, &json!({"hooks": {"TaskCreated": hook(ask), "TaskCompleted": hook(finish)}}));
    let told = |file: &str| serde_json::from_slice::<Value>(&fs::read(world.cwd().join(file)).unwrap()).unwrap();
    let finish = || update(json!({"taskId": "1", "status": "completed"}));
    let book = book(
        &world,
        &[lead_rule(&[
            turn("", &[create("First"), bash("touch closed"), create("Second"), finish(), list()]),
            turn("", &[bash("touch tested; rm closed"), finish(), create("Third")]),
            turn("over", &[]),
        ])],
    );
    let lead = world.headless(&book.model(), "go").args(&["--session-id", ID]);
    lead.env("CLAUDE_CODE_TASK_LIST_ID", "t").run().expect(0);
    let results = book.last().results();
    let shown: Vec<(&str, bool)> = results.iter().map(|(text, is_error)| (text.as_str(), *is_error)).collect();
    assert_eq!(shown[0], ("Task #1 created successfully: First", false));
    assert_eq!(shown[2], ("a TaskCreated hook refused it: the board is closed", true));
    assert_eq!(shown[3], ("a TaskCompleted hook refused it: run the tests first", true));
    assert_eq!(shown[4], ("#1 [pending] First", false));
    assert_eq!(shown[6..], [("Updated task #1 status", false), ("Task #3 created successfully: Third", false)]);
    let created = told("created.json");
    let transcript = format!("{ID}.jsonl");
    assert!(created["transcript_path"].as_str().is_some_and(|path| path.ends_with(&transcript)), "{created}");
    let rest = [
        ("session_id", json!(ID)),
        ("cwd", json!(world.cwd())),
        ("hook_event_name", json!("TaskCreated")),
        ("permission_mode", json!("bypassPermissions")),
        ("task_id", json!("3")),
        ("task_subject", json!("Third")),
        ("task_description", json!("Third, all of it")),
        ("teammate_name", Value::Null),
    ];
    for (key, value) in rest {
        assert_eq!(created[key], value, "{key}");
    }

    // The same by script.
    fs::remove_file(world.cwd().join("tested")).unwrap();
    let refused = world.lead(&["task", "update", "3", "--team", "t", "--status", "completed"]).run();
    refused.expect(3).says(&["lead: refused: a TaskCompleted hook says: run the tests first"]);
    assert_eq!(told("done.json")["team_name"], "t");
    fs::write(world.cwd().join("closed"), "").unwrap();
    let refused = world.lead(&["task", "create", "--team", "t", "--subject", "Fourth", "--json"]).run();
    let error = refused.expect(3).json()["error"].clone();
    assert_eq!(error["message"], "refused: a TaskCreated hook says: the board is closed");
    let rows = world.lead(&["task", "list", "--team", "t", "--json"]).run().expect(0).json();
    let ids: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["id"]).collect();
    assert_eq!(ids, ["1", "3"]);
    world.assert_nothing_left();
}

#[test]
fn a_broken_hook_is_told_with_its_place_and_stops_nothing() {
    let world = World::new();
    let broken = json!([{"hooks": [{"type": "command"}, {"type": "command", "command": "echo oh no >&2; exit 7"}]}]);
    settings(&world, &json!({"hooks": {"TaskCreated": broken}}));
    let book = book(&world, &[lead_rule(&[turn("", &[create("First")]), turn("{{result.1}}", &[])])]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "Task #1 created successfully: First");
    done.says(&[
        ".claude/settings.json at line 1, column",
        "`hooks.TaskCreated[0].hooks[0].command` is missing",
        "the TaskCreated hook \"echo oh no >&2; exit 7\" is passed over: it failed (exit code 7): oh no",
    ]);
    let doctor = world.lead(&["doctor"]).run();
    assert!(doctor.expect(1).stdout.contains("`hooks.TaskCreated[0].hooks[0].command` is missing"), "{doctor:?}");
}

#[test]
fn a_hook_ends_with_the_session_that_waits_for_it() {
    let world = World::new();
    settings(&world, &json!({"hooks": {"TaskCreated": hook("echo $$ > asked.new; mv asked.new asked; sleep 1000")}}));
    let book = book(&world, &[lead_rule(&[turn("", &[create("First")]), turn("over", &[])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("asked");
    run.signal(nix::sys::signal::Signal::SIGINT);
    run.wait().expect(130);
    world.assert_nothing_left();
    let cards = fs::read_dir(world.config().join("tasks").join(ID)).unwrap();
    assert!(!cards.flatten().any(|file| file.file_name() == "1.json"));
}

/// Waits for the one question at the desk; its id and tool.
fn question(world: &World) -> (String, String) {
    let rows = eventually("a question", || {
        let rows = world.lead(&["permissions", "list", "--json"]).run().expect(0).json();
        let rows = rows.as_array().cloned().unwrap_or_default();
        if rows.len() == 1 { Ok(rows) } else { Err(rows) }
    });
    let text = |key: &str| rows[0][key].as_str().unwrap().to_owned();
    (text("id"), text("tool"))
}

fn answer(world: &World, tool: &str, args: &[&str]) {
    let (id, asks) = question(world);
    assert_eq!(asks, tool);
    world.lead(&["permissions", args[0], &id]).args(&args[1..]).run().expect(0);
}

#[test]
fn an_approved_plan_may_be_carried_out_and_one_that_is_not_is_revised() {
    let world = World::new();
    let plan = |plan: &str| call("ExitPlanMode", json!({"plan": plan}));
    let book = book(
        &world,
        &[lead_rule(&[
            turn("", &[bash("touch early"), plan("vague")]),
            turn("", &[plan("exact")]),
            turn("", &[bash("touch a")]),
            turn("", &[bash("touch b")]),
            turn("", &[plan("once more")]),
            turn("over", &[]),
        ])],
    );
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--permission-mode", "plan"]);
    let lead = lead.args(&["--output-format", "json", "--permission-prompt-tool", "desk"]);
    let run: Running = lead.env("LEAD_LOG", "info").start();
    answer(&world, "ExitPlanMode", &["deny", "--reason", "say which files"]);
    let (id, _) = question(&world);
    let always = world.lead(&["permissions", "allow", &id, "--always"]).run();
    always.says(&["each plan is decided about for itself"]);
    // A rule that is written down has all settings read again, which say plan.
    answer(&world, "Bash", &["allow", "--always"]);
    eventually("settings that were read", || {
        let said = run.stderr();
        if said.contains("new permission rules hold from here on, mode default") { Ok(()) } else { Err(said) }
    });
    answer(&world, "Bash", &["allow"]);
    run.wait().expect(0);
    let results = book.last().results();
    assert!(results[0].1 && results[0].0.contains("mode plan"), "{results:?}");
    assert!(results[1].1 && results[1].0.contains("say which files"), "{results:?}");
    assert_eq!(results[2].0, "The plan is approved; the permission mode is default. Carry it out now.");
    assert!(results[5].1 && results[5].0.contains("you are not in plan mode (mode default)"), "{results:?}");
    assert!(!world.cwd().join("early").exists() && world.cwd().join("b").exists());
}

#[test]
fn without_anybody_to_ask_a_plan_stays_a_plan() {
    let world = World::new();
    let plan = call("ExitPlanMode", json!({"plan": "p"}));
    let book = book(&world, &[lead_rule(&[turn("", &[plan]), turn("{{result.1}}", &[])])]);
    let lead = world.lead(&["-p", "go", "--model", &book.model(), "--permission-mode", "plan"]);
    let done = lead.args(&["--output-format", "json", "--allowed-tools", "ExitPlanMode"]).run();
    assert!(done.expect(0).result().contains("nobody can be asked"), "{done:?}");
    assert_eq!(done.json()["permission_denials"][0]["tool_name"], "ExitPlanMode");
}
