//! Flags of a run that concern its model: fallback, budget, tools, schema, detaching, prompts; and
//! `lead model serve` and `lead doctor`.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    KEY, MODEL, Request, Server, Session, World, against, ask, bash, book, call, check_ends, check_whole, eventually,
    free_port, is, lead_rule, lines, spawn, turn, worker_rule,
};

/// One repetition, so that a model that fails is asked twice.
const ONE: &str = r#"{"lead":{"contextWindow":100000000,"retry":{"attempts":1,"base":"1ms","cap":"1ms"}}}"#;

/// Fails unless the transcript says once that the other model took over, before that one's first reply.
fn switched(session: &Session, to: &str, reason: &str) {
    let lines = session.lines();
    let told: Vec<usize> = (0..lines.len()).filter(|at| lines[*at]["subtype"] == "lead_model_switch").collect();
    let [at] = told[..] else { panic!("{lines:#?}") };
    assert!(lines[at]["to"].as_str().unwrap().ends_with(to), "{:#}", lines[at]);
    assert!(lines[at]["reason"].as_str().unwrap().contains(reason), "{:#}", lines[at]);
    assert_eq!(lines[at + 1]["type"], "assistant", "it stands before the first reply of the other model");
    session.paired();
}

#[test]
fn a_model_that_is_overloaded_or_used_up_is_replaced_by_its_fallback() {
    for status in [529, 429] {
        let world = World::new();
        let mut first = turn("", &[bash("echo 1")]);
        first["error"] = json!({"status": status, "message": "full", "times": 2});
        first["usage"] = json!({"input_tokens": 0, "output_tokens": 1_000_000});
        let book = book(&world, &[lead_rule(&[first, turn("done", &[])])]);
        let server = Server::start(&world, &book);
        let (sonnet, haiku) = (MODEL, "claude-haiku-4-5");
        let done = server.headless(&world, "go").args(&["--settings", ONE, "--fallback-model", haiku]).run();
        let json = done.expect(0).json();
        let asked: Vec<Value> = book.requests().iter().map(|r| r.0["model"].clone()).collect();
        assert_eq!(asked, [sonnet, sonnet, haiku, haiku], "it does not go back");
        done.says(&[&status.to_string(), haiku, "--fallback-model"]);
        assert_eq!(json["modelUsage"][sonnet]["outputTokens"], 0);
        let cost = json["modelUsage"][haiku]["costUSD"].as_f64().unwrap();
        assert!((5.0..5.1).contains(&cost), "{json:#}");
        assert_eq!(json["total_cost_usd"], json["modelUsage"][haiku]["costUSD"]);
        switched(&world.session(&done.session()), haiku, &status.to_string());
        server.headless(&world, "go").args(&["--fallback-model", MODEL]).run().expect(2);
    }
}

#[test]
fn a_model_that_can_t_be_reached_is_replaced_by_its_fallback() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("", &[bash("echo 1")]), turn("done", &[])])]);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let args = ["--settings", ONE, "--fallback-model", &book.model()];
    let done = against(&world, &nobody, MODEL, "go").args(&args).run();
    assert_eq!((done.expect(0).result().as_str(), book.requests().len()), ("done", 2));
    done.says(&["no reply", "tried 2 times", "--fallback-model"]);
    switched(&world.session(&done.session()), book.model().split_once(':').unwrap().1, "no reply");
    // Without a fallback that is the end.
    let failed = against(&world, &nobody, MODEL, "go").args(&["--settings", ONE]).run();
    let json = failed.expect(1).json();
    assert_eq!((&json["is_error"], &json["subtype"]), (&json!(true), &json!("error_during_execution")), "{json:#}");
    world.session(&failed.session()).paired();
}

#[test]
fn a_stream_tells_of_the_fallback_and_withdraws_what_was_cut() {
    let world = World::new();
    let mut first = turn("looking", &[bash("echo 1")]);
    first["fault"] = json!({"kind": "cut_in_tool", "times": 2});
    let book = book(&world, &[lead_rule(&[first, turn("done", &[])])]);
    let server = Server::start(&world, &book);
    let args = ["--settings", ONE, "--fallback-model", "claude-haiku-4-5", "--include-partial-messages"];
    let done = server.streaming(&world, "go").args(&args).run();
    let stream = lines(&done.expect(0).stdout);
    let result = check_ends(&stream);
    assert_eq!((&result["result"], book.requests().len()), (&json!("done"), 4));
    let session = world.session(result["session_id"].as_str().unwrap());
    check_whole(&stream, &session, 0);
    session.paired();
    let told: Vec<&Value> = stream.iter().filter(|l| is(l, "lead_model_switch")).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["to"], "anthropic:claude-haiku-4-5");
    let withdrawn: Vec<&Value> =
        stream.iter().filter(|l| is(l, "lead_retry")).map(|l| &l["discarded_message_id"]).collect();
    let begun: Vec<&Value> =
        stream.iter().filter(|l| l["event"]["type"] == "message_start").map(|l| &l["event"]["message"]["id"]).collect();
    assert_eq!(withdrawn[..], begun[..2], "each of the two that were cut");
    assert_eq!(begun.len(), 4);
}

#[test]
fn a_fallback_goes_on_without_the_thoughts_of_the_other_model() {
    let world = World::new();
    let think = |mut turn: Value| {
        turn["thinking"] = json!("hm");
        turn
    };
    let mut second = think(turn("", &[bash("echo 2")]));
    second["error"] = json!({"status": 529, "message": "full", "times": 2});
    let turns = [think(turn("", &[bash("echo 1")])), second, think(turn("", &[bash("echo 3")])), turn("done", &[])];
    let book = book(&world, &[lead_rule(&turns)]);
    let server = Server::start(&world, &book);
    let haiku = "claude-haiku-4-5";
    let done = server.headless(&world, "go").args(&["--settings", ONE, "--fallback-model", haiku]).run();
    assert_eq!(done.expect(0).result(), "done");
    let thoughts = |r: &Request| {
        r.messages()
            .iter()
            .flat_map(|m| m["content"].as_array().unwrap().clone())
            .filter(|b| b["type"] == "thinking")
            .count()
    };
    let asked: Vec<(Value, usize)> = book.requests().iter().map(|r| (r.0["model"].clone(), thoughts(r))).collect();
    // The strict server refuses thoughts that another model signed; they are left out from then on.
    let (first, other) = (json!(MODEL), json!(haiku));
    let wanted = [(&first, 0), (&first, 1), (&first, 1), (&other, 1), (&other, 0), (&other, 1), (&other, 2)];
    assert_eq!(asked, wanted.map(|(model, thoughts)| (model.clone(), thoughts)));
    let session = world.session(&done.session());
    session.paired();
    let kept = session.lines().iter().filter(|l| l["message"]["content"][0]["type"] == "thinking").count();
    assert_eq!(kept, 3, "the transcript has them all");
}

#[test]
fn a_budget_ends_the_run_when_it_is_exceeded() {
    let world = World::new();
    let mut dear = turn("", &[bash("echo 1")]);
    dear["usage"] = json!({"input_tokens": 0, "output_tokens": 1_000_000});
    let book = book(&world, &[lead_rule(&[dear, turn("done", &[])])]);
    let server = Server::start(&world, &book);
    // A million tokens are dear, not too long.
    let wide = r#"{"lead":{"contextWindow":100000000}}"#;
    let run = |usd: &str| server.headless(&world, "go").args(&["--settings", wide, "--max-budget-usd", usd]).run();
    let over = run("14.99");
    let json = over.expect(1).json();
    assert_eq!((&json["subtype"], &json["is_error"]), (&json!("error_max_budget_usd"), &json!(true)), "{json:#}");
    assert_eq!((&json["total_cost_usd"], book.requests().len()), (&json!(15.0), 1), "nothing more is asked");
    assert!(json["errors"][0].as_str().unwrap().contains("--max-budget-usd"), "{json:#}");
    world.session(&over.session()).paired();
    let within = run("15.1");
    assert_eq!(within.expect(0).result(), "done");
}

#[test]
fn agents_spend_the_same_budget_at_the_price_that_was_set() {
    let world = World::new();
    let mut dear = turn("found it", &[]);
    dear["usage"] = json!({"input_tokens": 1_000_000, "output_tokens": 0, "cache_read_input_tokens": 1_000_000});
    let rules =
        [lead_rule(&[turn("", &[ask("Look", "task one")]), turn("done", &[])]), worker_rule("task one", &[dear])];
    let book = book(&world, &rules);
    let server = Server::start(&world, &book);
    let prices = r#"{"lead":{"prices":{"claude-sonnet-4-5":{"input":2,"output":0,"cacheRead":1}}}}"#;
    let run = |usd: &str| {
        let args = ["--settings", prices, "--max-budget-usd", usd];
        server.headless(&world, "go").args(&args).run()
    };
    let done = run("3.1");
    let json = done.expect(0).json();
    let cost = json["total_cost_usd"].as_f64().unwrap();
    assert!((3.0..3.1).contains(&cost), "{json:#}");
    assert!(json["usage"]["input_tokens"].as_u64().unwrap() < 1_000_000, "the main conversation's alone: {json:#}");
    let over = run("2.9");
    assert_eq!(over.expect(1).json()["subtype"], "error_max_budget_usd");
    world.session(&over.session()).paired();
}

#[test]
fn a_model_without_a_price_counts_as_nothing_and_that_is_said() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("", &[bash("echo 1")]), turn("done", &[])])]);
    let server = Server::start(&world, &book);
    let done = against(&world, server.url(), "claude-new-1", "go").run();
    assert_eq!(done.expect(0).json()["total_cost_usd"], 0.0);
    assert_eq!(done.stderr.matches("claude-new-1").count(), 1, "{done:#?}");
    done.says(&["lead.prices"]);
}

#[test]
fn tools_are_restricted_to_those_named() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("", &[bash("echo ran > ran.txt")]), turn("done", &[])])]);
    let run = |tools: &str| world.headless(&book.model(), "go").args(&["--tools", tools]).run();
    run("Read,Grep").expect(0);
    assert_eq!(book.last().tools(), ["Grep", "Read"]);
    let results = book.last().results();
    assert!(results[0].1 && results[0].0.contains("no tool named \"Bash\""), "{results:?}");
    assert!(!world.cwd().join("ran.txt").exists());
    run("").expect(0);
    assert_eq!(book.last().tools(), Vec::<&str>::new());
    run("Read,Nope").expect(2);
}

const SCHEMA: &str = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;

#[test]
fn a_structured_answer_ends_the_run() {
    let world = World::new();
    let give = |n: Value| call("StructuredOutput", json!({"n": n}));
    let turns = [
        turn("", &[give(json!("three"))]),
        turn("here", &[bash("echo ran > ran.txt"), give(json!(3))]),
        turn("never asked", &[]),
    ];
    let book = book(&world, &[lead_rule(&turns)]);
    let server = Server::start(&world, &book);
    let done = server.headless(&world, "go").args(&["--json-schema", SCHEMA]).run();
    let json = done.expect(0).json();
    assert_eq!((&json["structured_output"], &json["result"]), (&json!({"n": 3}), &json!("{\"n\":3}")), "{json:#}");
    assert_eq!((&json["subtype"], book.requests().len()), (&json!("success"), 2), "{json:#}");
    let (told, is_error) = book.last().results().remove(0);
    assert!(is_error && told.contains("/n") && told.contains("integer"), "{told}");
    assert_eq!(world.wait_file("ran.txt"), "ran", "what was called before it ran");
    let session = world.session(&done.session());
    session.paired();
    // In the text form the answer is the JSON.
    let text = world.lead(&["-p", "go", "--model", &book.model(), "--json-schema", SCHEMA]).run();
    assert_eq!(text.expect(0).stdout, "{\"n\":3}\n");
}

#[test]
fn an_answer_in_another_form_is_not_taken() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("it is three", &[]), turn("three!", &[]), turn("3", &[])])]);
    let run = |args: &[&str]| world.headless(&book.model(), "go").args(args).run();
    let done = run(&["--json-schema", SCHEMA]);
    let json = done.expect(1).json();
    assert!(json["errors"][0].as_str().unwrap().contains("StructuredOutput"), "{json:#}");
    assert_eq!((&json["structured_output"], book.requests().len()), (&Value::Null, 3));
    assert!(book.last().latest().contains("StructuredOutput"));
    run(&["--json-schema", "{"]).expect(2);
    run(&["--json-schema", r#"{"type":"string"}"#]).expect(2);
    run(&["--json-schema", "no-such-file.json"]).expect(2);
    assert_eq!(book.requests().len(), 3);
    run(&[]).expect(0);
    assert!(!book.last().tools().contains(&"StructuredOutput"), "offered only with a schema");
}

#[test]
fn detached_agents_go_on_and_report_to_the_next_run() {
    let world = World::new();
    let gate = world.gate("gate");
    let book = book(
        &world,
        &[
            lead_rule(&[
                turn("", &[spawn("Slow", "task one")]),
                json!({"when": {"notifications": ">=1"}, "text": "heard: {{notification.1.result}}"}),
                turn("under way", &[]),
            ]),
            worker_rule("task one", &[turn("", &[bash(&gate.arrive("there"))]), turn("one done", &[])]),
        ],
    );
    let server = Server::start(&world, &book);
    let done = server.headless(&world, "go").args(&["--detach"]).run();
    let json = done.expect(0).json();
    assert_eq!(json["result"], "under way");
    let id = json["detached"][0].as_str().unwrap_or_else(|| panic!("{json:#}")).to_owned();
    let row = eventually("a detached worker", || {
        let rows = world.workers();
        rows.iter().find(|r| r["detached"] == true).cloned().ok_or(rows)
    });
    assert_eq!((&row["id"], &row["orphaned"]), (&json!(id), &json!(false)));
    world.wait_file("there");
    gate.open(1);
    world.lead(&["wait", &id]).run().expect(0);
    let resumed = world.lead(&["-p", "--resume", &done.session(), "--model", "sonnet", "--output-format", "json"]);
    let resumed = resumed.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY).run();
    assert_eq!(resumed.expect(0).result(), "heard: one done");
    let session = world.session(&done.session());
    session.paired();
    session.check();
    let text = world.lead(&["-p", "hi", "--detach", "--model", &book.model()]).run();
    text.says(&["left running: a-", "lead ps"]).expect(0);
    world.wait_file("there");
    gate.open(1);
    let id = text.stderr.split_once("running: ").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap();
    world.lead(&["wait", id]).run().expect(0);
}

#[test]
fn prompts_folders_and_permissions_reach_the_model() {
    let world = World::new();
    let other = world.root().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("note.txt"), "from elsewhere\n").unwrap();
    let read = call("Read", json!({"file_path": other.join("note.txt")}));
    let book = book(&world, &[lead_rule(&[turn("", &[read]), turn("{{result.1}}", &[])])]);
    let (model, folder) = (book.model(), other.to_str().unwrap());
    let run = |args: &[&str]| world.lead(&["-p", "go", "--model", &model]).args(args).run();
    let plain = run(&[]);
    assert!(plain.expect(0).stdout.contains("Permission denied"), "{plain:#?}");
    let added = run(&["--add-dir", folder, "--append-system-prompt", "Speak Latin."]);
    assert!(added.expect(0).stdout.contains("from elsewhere"), "{added:#?}");
    let system = book.last().0["system"].as_str().unwrap().to_owned();
    assert!(system.contains("Working folder: ") && system.ends_with("Speak Latin."), "{system}");
    let moved = run(&["--cwd", folder, "--system-prompt", "Be brief."]);
    assert!(moved.expect(0).stdout.contains("from elsewhere"), "{moved:#?}");
    assert!(book.last().0["system"].as_str().unwrap().starts_with("Be brief."));
}

#[test]
fn serving_tells_its_address_first_and_what_is_wrong_else() {
    let world = World::new();
    let served = book(&world, &[lead_rule(&[turn("hi", &[])])]);
    let running = world.lead(&["model", "serve", "--json", "--playbook", &served.file()]).start();
    let url = eventually("the address", || match running.stdout() {
        said if said.ends_with('\n') => Ok(said),
        said => Err(said),
    });
    let url: Value = serde_json::from_str(&url).unwrap();
    let url = url["base_url"].as_str().unwrap().to_owned();
    let port = url.strip_prefix("http://127.0.0.1:").unwrap();
    let taken = world.lead(&["model", "serve", "--playbook", "survey", "--port", port]).run();
    taken.expect(3).says(&[port, "in use", "--port"]);
    running.signal(Signal::SIGINT);
    running.wait().expect(130);

    let broken = world.file("broken.yaml", "agents:\n  - turn: []\n");
    let broken = world.lead(&["model", "serve", "--playbook", broken.to_str().unwrap()]).run();
    broken.expect(2).says(&["broken.yaml", "line 2"]);
    assert_eq!(broken.stdout, "");
    world.lead(&["model", "serve", "--playbook", "/no/such/book"]).run().expect(2).says(&["/no/such/book"]);
}

#[test]
fn without_credentials_one_screen_says_which_ways_there_are() {
    let world = World::new();
    for args in [&["--model", "sonnet"][..], &[]] {
        let done = world.lead(&["-p", "go"]).args(args).env("ANTHROPIC_API_KEY", "").run();
        done.expect(2).says(&[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "playbook:FILE",
            "lead demo",
        ]);
        assert!(done.stdout.is_empty() && done.stderr.lines().count() <= 16, "{done:#?}");
    }
    let json = world.lead(&["-p", "go", "--model", "sonnet", "--output-format", "json"]).run();
    assert_eq!(json.expect(2).json()["is_error"], true);
    assert!(!world.config().join("projects").exists(), "nothing of a session is made");
}

#[test]
fn doctor_looks_at_the_provider_without_asking_the_model() {
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("hi", &[])])]);
    let server = Server::start(&world, &book);
    let doctor = |url: &str| world.lead(&["doctor"]).env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", KEY);
    let well = doctor(server.url()).run();
    assert!(well.expect(0).stdout.contains(server.url()) && well.stdout.contains("ANTHROPIC_API_KEY"), "{well:#?}");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let unreachable = doctor(&nobody).run();
    assert!(
        unreachable.expect(1).stdout.contains("found: ") && unreachable.stdout.contains(&nobody),
        "{unreachable:#?}"
    );
    let json = doctor(&nobody).args(&["--json"]).run();
    assert_eq!(json.expect(1).json()["provider"]["address"], nobody);
    let keyless = world.lead(&["doctor"]).env("ANTHROPIC_MODEL", "sonnet").run();
    assert!(keyless.expect(1).stdout.contains("no credentials"), "{keyless:#?}");
    let unconcerned = world.lead(&["doctor", "--json"]).run();
    assert_eq!(unconcerned.expect(0).json()["provider"], Value::Null, "nothing says that there is a provider");
    for done in [&well, &unreachable, &json] {
        assert!(!format!("{done:?}").contains(KEY), "{done:#?}");
    }
    assert!(book.requests().is_empty(), "no prompt was sent");
}
