//! What agents know beside their prompt: web pages, skills, `CLAUDE.md` files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{
    Book, Done, KEY, Lead, Request, Server, World, agent, ask, book, call, lead_rule, turn, worker_rule,
};

fn read(path: &str) -> Value {
    call("Read", json!({"file_path": path}))
}

fn skill(name: &str, args: Option<&str>) -> Value {
    let mut input = json!({"skill": name});
    if let Some(args) = args {
        input["args"] = json!(args);
    }
    call("Skill", input)
}

/// A file below the config folder.
fn config_file(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.config().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// A headless run in mode `default`: only what needs no permission runs.
fn plainly<'w>(world: &'w World, book: &Book) -> Lead<'w> {
    world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "json"])
}

fn system(request: &Request) -> &str {
    request.0["system"].as_str().unwrap()
}

/// The places of these parts in the text, which must stand in this order.
fn in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        let at = text[from..].find(part).unwrap_or_else(|| panic!("{part:?} is not (or not there) in {text}"));
        from += at + part.len();
    }
}

/// Serves these answers, one per connection, by path.
fn site(pages: Vec<(&'static str, String)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.extend(byte);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let asked = head.split(' ').nth(1).unwrap_or_default();
            let answer = pages.iter().find(|(path, _)| *path == asked).map_or("HTTP/1.1 404 No\r\n\r\n", |(_, a)| a);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn page(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

#[test]
fn a_page_is_fetched_where_a_rule_permits_its_host() {
    let world = World::new();
    let port = site(vec![("/tea", page("text/html", "<h1>Tea</h1><p>3 &euro;"))]);
    let fetch =
        |host: &str| call("WebFetch", json!({"url": format!("http://{host}:{port}/tea"), "prompt": "the price"}));
    let book = book(&world, &[lead_rule(&[turn("", &[fetch("127.0.0.1"), fetch("localhost")]), turn("done", &[])])]);
    let done = plainly(&world, &book).args(&["--allowed-tools", "WebFetch(domain:127.0.0.1)"]).run();
    assert_eq!(done.expect(0).result(), "done");
    let results = book.last().results();
    assert!(!results[0].1 && results[0].0.contains("# Tea\n\n3 €"), "{results:?}");
    assert!(results[0].0.ends_with("Look in it for: the price"), "{results:?}");
    assert!(results[1].1 && results[1].0.contains("Permission denied"), "{results:?}");
    assert_eq!(done.json()["permission_denials"].as_array().map(Vec::len), Some(1));
    let lines = world.session(&done.session()).lines();
    let fetched = lines.iter().find(|l| l["toolUseResult"]["code"] == 200).unwrap();
    assert_eq!(fetched["toolUseResult"]["url"], format!("http://127.0.0.1:{port}/tea"));
}

#[test]
fn a_worker_fetches_too_and_ends_with_its_turn() {
    let world = World::new();
    // Accepts, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    let fetch = call("WebFetch", json!({"url": url, "prompt": "x"}));
    let rules = [
        lead_rule(&[turn("", &[ask("fetch it", "Fetch it.")]), turn("done", &[])]),
        worker_rule("Fetch", &[turn("", &[fetch]), turn("got", &[])]),
    ];
    let book = book(&world, &rules);
    let world = world.with_limits("web_fetch=300ms");
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "done");
    let results = book.asked("Fetch")[1].results();
    assert!(results[0].1 && results[0].0.contains("took longer than 300ms"), "{results:?}");
}

#[test]
fn skills_are_listed_called_and_handed_to_workers() {
    let world = World::new();
    config_file(&world, "skills/mine/SKILL.md", "---\nname: mine\ndescription: The user's own\n---\nMINE $ARGUMENTS");
    world.file(".claude/skills/deploy/SKILL.md", "---\ndescription: How to deploy\n---\nDEPLOY by hand, see steps.md");
    world.file(".claude/skills/deploy/steps.md", "first, second");
    world.file(".claude/skills/quiet/SKILL.md", "---\ndescription: hush\ndisable-model-invocation: true\n---\nQUIET");
    let broken = world.file(".claude/skills/bad/SKILL.md", "---\nname: bad\ndescription: a: b\n---\n");
    let mine = world.config().join("skills/mine/SKILL.md").display().to_string();
    let calls =
        [skill("deploy", None), skill("mine", Some("x y")), skill("quiet", None), skill("../bad", None), read(&mine)];
    let rules = [
        lead_rule(&[
            turn("", &calls),
            turn(
                "",
                &[
                    ask("work", "Work."),
                    call("Agent", json!({"description": "look", "prompt": "Look.", "subagent_type": "Explore"})),
                ],
            ),
            turn("done", &[]),
        ]),
        worker_rule("Work", &[turn("", &[skill("deploy", None)]), turn("worked", &[])]),
        worker_rule("Look", &[turn("seen", &[])]),
    ];
    let book = book(&world, &rules);
    let done = plainly(&world, &book).run();
    assert_eq!(done.expect(0).result(), "done");
    done.says(&["skill was left out", &format!("{}, line 3", broken.display())]);
    let results = book.of("lead")[1].results();
    let folder = world.cwd().join(".claude/skills/deploy");
    in_order(&results[0].0, &["Skill deploy", &folder.display().to_string(), "\n\nDEPLOY by hand, see steps.md"]);
    assert!(results[1].0.ends_with("MINE x y") && !results[1].1, "{results:?}");
    assert!(results[2].1 && results[2].0.contains("for the user to call"), "{results:?}");
    assert!(results[3].1 && results[3].0.ends_with("the skills are: deploy, mine"), "{results:?}");
    assert!(!results[4].1 && results[4].0.contains("MINE"), "what a skill names may be read: {results:?}");
    let first = &book.of("lead")[0];
    in_order(system(first), &["# Skills", "- deploy: How to deploy\n", "- mine: The user's own\n"]);
    assert!(!system(first).contains("hush") && first.tools().contains(&"Skill"));
    let worker = &book.asked("Work")[0];
    assert!(system(worker).contains("- deploy: How to deploy") && worker.tools().contains(&"Skill"));
    assert!(book.asked("Work")[1].results()[0].0.contains("DEPLOY"));
    let explorer = &book.asked("Look")[0];
    assert!(!system(explorer).contains("# Skills") && !explorer.tools().contains(&"Skill"));
    // A session without skills does not offer the tool.
    let bare = World::new();
    let empty = crate::support::book(&bare, &[lead_rule(&[turn("hi", &[])])]);
    plainly(&bare, &empty).run().expect(0);
    assert!(!empty.last().tools().contains(&"Skill") && !system(&empty.last()).contains("# Skills"));
}

#[test]
fn the_stream_and_doctor_tell_of_skills() {
    let world = World::new();
    world.file(".claude/skills/b/SKILL.md", "---\ndescription: x\n---\n");
    world.file(".claude/skills/a/SKILL.md", "---\ndescription: x\n---\n");
    let book = book(&world, &[lead_rule(&[turn("hi", &[])])]);
    let done = world.lead(&["-p", "go", "--model", &book.model(), "--output-format", "stream-json"]).run();
    let init: Value = serde_json::from_str(done.expect(0).stdout.lines().next().unwrap()).unwrap();
    assert_eq!(init["skills"], json!(["a", "b"]));
    world.lead(&["doctor", "--check"]).run().expect(0);
    let broken = world.file(".claude/skills/c/SKILL.md", "---\nname: [x\n");
    let found = world.lead(&["doctor", "--json"]).run();
    let findings = found.expect(1).json()["findings"].clone();
    let what = findings[0]["what"].as_str().unwrap();
    assert!(what.contains(&format!("{}, line 1", broken.display())), "{what}");
}

/// The files of instructions that the tests read.
fn instructed(world: &World) {
    config_file(world, "CLAUDE.md", "PERSON @own.md");
    config_file(world, "own.md", "OWN");
    fs::create_dir(world.cwd().join(".git")).unwrap();
    world.file("CLAUDE.md", "PROJECT @docs/style.md\n`@no.md`");
    world.file("no.md", "NOT IMPORTED");
    world.file("docs/style.md", "STYLE");
    world.file("CLAUDE.local.md", "LOCAL");
    world.file("sub/CLAUDE.md", "SUBFOLDER");
    world.file("sub/a.txt", "a");
    world.file("sub/b.txt", "b");
}

#[test]
fn instructions_reach_the_lead_and_its_workers() {
    let world = World::new();
    instructed(&world);
    let look = call("Agent", json!({"description": "look", "prompt": "Look.", "subagent_type": "Explore"}));
    let rules = [
        lead_rule(&[turn("", &[ask("work", "Work."), look]), turn("done", &[])]),
        worker_rule("Work", &[turn("", &[read("sub/a.txt")]), turn("worked", &[])]),
        worker_rule("Look", &[turn("", &[read("sub/a.txt")]), turn("seen", &[])]),
    ];
    let book = book(&world, &rules);
    let done = plainly(&world, &book).run();
    assert_eq!(done.expect(0).result(), "done");
    let all = ["# Instructions", "\nPERSON", "\nOWN\n", "\nPROJECT", "\nSTYLE\n", "\nLOCAL\n"];
    let lead = book.of("lead");
    in_order(system(&lead[0]), &all);
    assert!(!system(&lead[0]).contains("NOT IMPORTED") && !system(&lead[0]).contains("SUBFOLDER"));
    assert_eq!(system(&lead[0]), system(&lead[1]), "the prefix stays the same");
    in_order(system(&book.asked("Work")[0]), &all);
    assert!(book.asked("Work")[1].results()[0].0.contains("SUBFOLDER"));
    let explorer = book.asked("Look");
    assert!(!system(&explorer[0]).contains("# Instructions") && !explorer[1].results()[0].0.contains("SUBFOLDER"));
    // A system prompt of the caller's own replaces ours, not what people wrote.
    let brief = crate::support::book(&world, &[lead_rule(&[turn("hi", &[])])]);
    plainly(&world, &brief).args(&["--system-prompt", "BE BRIEF"]).run().expect(0);
    in_order(system(&brief.last()), &[&["BE BRIEF"][..], &all].concat());
}

fn resumed<'w>(world: &'w World, book: &Book, first: &Done) -> Lead<'w> {
    let args = ["-p", "more", "--resume", &first.session(), "--model", &book.model(), "--output-format", "json"];
    world.lead(&args)
}

/// How often the subfolder's file is in a request.
fn shown(request: &Request) -> usize {
    request.all().matches("SUBFOLDER").count()
}

#[test]
fn a_folder_s_instructions_come_once_also_after_a_resume() {
    let world = World::new();
    instructed(&world);
    fs::create_dir(world.root().join("outside")).unwrap();
    fs::write(world.root().join("outside/CLAUDE.md"), "OUTSIDE").unwrap();
    fs::write(world.root().join("outside/x.txt"), "x").unwrap();
    let outside = world.root().join("outside/x.txt").display().to_string();
    let lead = lead_rule(&[
        turn("", &[read("sub/a.txt"), read("sub/b.txt"), read(&outside)]),
        turn("one", &[]),
        turn("", &[read("sub/b.txt")]),
        turn("two", &[]),
    ]);
    let book = book(&world, &[lead]);
    let add = ["--add-dir", &*world.root().join("outside").display().to_string()].map(str::to_owned);
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    let first = plainly(&world, &book).args(&add).run();
    assert_eq!(first.expect(0).result(), "one");
    let results = book.last().results();
    assert!(results.iter().all(|(_, is_error)| !is_error), "{results:?}");
    assert_eq!(shown(&book.last()), 1);
    let with: Vec<bool> = results.iter().map(|(text, _)| text.contains("<system-reminder>")).collect();
    assert_eq!(with.iter().filter(|with| **with).count(), 1, "{results:?}");
    assert!(!book.last().all().contains("OUTSIDE"));
    let recorded: Vec<Value> = world
        .session(&first.session())
        .lines()
        .iter()
        .map(|line| line["toolUseResult"]["instructions"].clone())
        .filter(Value::is_array)
        .collect();
    assert_eq!(recorded, [json!([world.cwd().join("sub/CLAUDE.md")])]);
    // What was changed meanwhile is read when the session starts again.
    world.file("CLAUDE.md", "PROJECT CHANGED");
    let second = resumed(&world, &book, &first).run();
    assert_eq!(second.expect(0).result(), "two");
    assert_eq!(shown(&book.last()), 1, "{}", book.last().all());
    assert!(system(&book.last()).contains("PROJECT CHANGED"));
}

#[test]
fn after_a_compaction_a_folder_s_instructions_come_again() {
    let world = World::new();
    instructed(&world);
    let rules = [agent(
        json!({"role": "^lead$"}),
        &[
            json!({"when": {"summary": true}, "text": "SUMMARY", "repeat": true}),
            json!({"when": {"latest": "^go"}, "tools": [read("sub/a.txt")], "usage": {"input_tokens": 180_000}}),
            json!({"when": {"latest": "SUMMARY"}, "tools": [read("sub/b.txt")]}),
            turn("done", &[]),
        ],
    )];
    let book = book(&world, &rules);
    let done = plainly(&world, &book).run();
    assert_eq!(done.expect(0).result(), "done");
    let last = book.last();
    assert!(last.prompt().contains("SUMMARY") && shown(&last) == 1, "{}", last.all());
    assert_eq!(book.requests().iter().filter(|r| r.latest().contains("<summary-request>") && shown(r) == 1).count(), 1);
}

/// A turn in which the provider searches, and what it finds in the next.
fn searching(id: &str, text: &str) -> Value {
    json!({
        "text": text,
        "blocks": [{"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "tea"}}],
        "stop_reason": "pause_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}},
    })
}

fn finding(id: &str, text: &str) -> Value {
    let found =
        json!({"type": "web_search_result", "url": "https://a.example/", "title": "T", "encrypted_content": "Ev=="});
    json!({
        "blocks": [
            {"type": "web_search_tool_result", "tool_use_id": id, "content": [found]},
            {"type": "text", "text": text, "citations": [{"type": "web_search_result_location", "encrypted_index": "E="}]},
        ],
    })
}

/// The provider's tools that the bodies of these requests offer.
fn searches_offered(requests: &[Request]) -> Vec<usize> {
    let bodies = requests.iter().map(|r| r.0["body"].as_str().unwrap().matches("web_search_20250305").count());
    bodies.collect()
}

#[test]
fn the_provider_searches_pauses_and_goes_on() {
    let world = World::new();
    let lead = lead_rule(&[searching("s1", "I look."), finding("s1", "It is 3 EUR."), turn("As I said.", &[])]);
    let book = book(&world, &[lead]);
    let server = Server::start(&world, &book);
    let done = server.headless(&world, "go").run();
    assert_eq!(done.expect(0).result(), "It is 3 EUR.");
    let json = done.json();
    assert_eq!(json["modelUsage"]["claude-sonnet-4-5"]["webSearchRequests"], 1);
    assert_eq!(json["usage"]["server_tool_use"]["web_search_requests"], 1);
    assert!(json["total_cost_usd"].as_f64().unwrap() > 0.01, "{json}");
    assert_eq!(book.requests().len(), 2, "the pause is answered by the same request with what came");
    let kinds = |messages: &[Value]| -> Vec<String> {
        let blocks = messages[1]["content"].as_array().unwrap().iter();
        blocks.map(|b| b["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(book.last().messages()), ["server_tool_use", "text"]);
    let session = world.session(&done.session());
    let blocks: Vec<Value> = session.lines().iter().map(|l| l["message"]["content"][0].clone()).collect();
    assert!(blocks.contains(&finding("s1", "It is 3 EUR.")["blocks"][0]), "{blocks:#?}");
    // Another process sends all of it back as it came.
    let args = ["-p", "more", "--resume", &done.session(), "--output-format", "json"];
    let more = world.lead(&args).env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
    let more = more.args(&["--permission-mode", "bypassPermissions", "--model", "sonnet"]).run();
    assert_eq!(more.expect(0).result(), "As I said.");
    let last = book.last();
    assert_eq!(kinds(last.messages()), ["server_tool_use", "text", "web_search_tool_result", "text"]);
    assert_eq!(last.messages()[1]["content"][3], finding("s1", "It is 3 EUR.")["blocks"][1]);
    assert_eq!(last.messages()[1]["content"][2], finding("s1", "It is 3 EUR.")["blocks"][0]);
}

#[test]
fn a_search_beside_tools_of_ours_is_answered_after_them() {
    let world = World::new();
    let mut mixed = searching("s1", "I look.");
    mixed["tools"] = json!([call("Bash", json!({"command": "echo out", "description": "Say a word"}))]);
    mixed["stop_reason"] = json!("tool_use");
    let book = book(&world, &[lead_rule(&[mixed, finding("s1", "Found.")])]);
    let done = Server::start(&world, &book).headless(&world, "go").run();
    assert_eq!(done.expect(0).result(), "Found.");
    assert_eq!(book.last().messages()[2]["content"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_a_search_left_open_does_not_spoil_the_session() {
    let world = World::new();
    let broken = json!({"error": {"status": 400, "message": "no", "times": 1}});
    let book = book(&world, &[lead_rule(&[searching("s1", "I look."), broken, turn("Fine.", &[])])]);
    let server = Server::start(&world, &book);
    let failed = server.headless(&world, "go").run();
    failed.expect(1);
    let args = ["-p", "more", "--resume", &failed.session(), "--output-format", "json", "--model", "sonnet"];
    let more = world.lead(&args).env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
    // A strict provider refuses a search without its result.
    assert_eq!(more.args(&["--permission-mode", "bypassPermissions"]).run().expect(0).result(), "Fine.");
    assert!(!book.last().0.to_string().contains("server_tool_use"));
}

#[test]
fn a_search_is_offered_only_where_nobody_would_be_asked() {
    for (args, is_offered) in [
        (&["--permission-mode", "default"][..], false),
        (&["--permission-mode", "default", "--allowed-tools", "WebSearch"], true),
        (&["--permission-mode", "plan"], false),
        (&["--permission-mode", "bypassPermissions"], true),
        (&["--permission-mode", "bypassPermissions", "--disallowed-tools", "WebSearch"], false),
        (&["--permission-mode", "bypassPermissions", "--tools", "Read"], false),
    ] {
        let world = World::new();
        let book = book(&world, &[lead_rule(&[turn("hi", &[])])]);
        let server = Server::start(&world, &book);
        let lead = world.lead(&["-p", "go", "--model", "sonnet", "--output-format", "stream-json"]).args(args);
        let done = lead.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY).run();
        let init: Value = serde_json::from_str(done.expect(0).stdout.lines().next().unwrap()).unwrap();
        assert_eq!(init["tools"].as_array().unwrap().contains(&json!("WebSearch")), is_offered, "{args:?}");
        assert_eq!(searches_offered(&book.requests()), [usize::from(is_offered)], "{args:?}");
    }
    // A playbook can't search.
    let world = World::new();
    let book = book(&world, &[lead_rule(&[turn("hi", &[])])]);
    let args = ["-p", "go", "--model", &book.model(), "--output-format", "stream-json"];
    let done = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]).run();
    let init: Value = serde_json::from_str(done.expect(0).stdout.lines().next().unwrap()).unwrap();
    assert!(!init["tools"].as_array().unwrap().contains(&json!("WebSearch")));
}

#[test]
fn searches_of_workers_are_counted() {
    let world = World::new();
    let rules = [
        lead_rule(&[turn("", &[ask("work", "Work.")]), turn("done", &[])]),
        worker_rule("Work", &[searching("s1", "I look."), finding("s1", "Found.")]),
    ];
    let book = book(&world, &rules);
    let done = Server::start(&world, &book).headless(&world, "go").run();
    assert_eq!(done.expect(0).result(), "done");
    assert!(book.last().results()[0].0.starts_with("Found."), "{:?}", book.last().results());
    assert_eq!(searches_offered(&book.asked("Work")), [1, 1]);
    assert_eq!(done.json()["modelUsage"]["claude-sonnet-4-5"]["webSearchRequests"], 1);
}
