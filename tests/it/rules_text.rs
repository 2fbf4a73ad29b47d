//! What must hold for text on its way: R005, R006, R085, R086, R098, R100.

use lead::core::limits::{MESSAGE_BYTES, NOTIFICATION_RESULT_CHARS, TOOL_OUTPUT_CHARS};
use serde_json::json;

use crate::support::{
    World, ask, bash, book, call, eventually, lead_rule, paired, spawn, tell, text_of, turn, worker_rule,
};

/// Everything that some layer could take for its own.
const NASTY: &str = "; $(touch pwned) `touch pwned` ${HOME} \"q\" 'q' \\ #{x} {{ }} %s & | > pwned < x \t ! * ? ~ \u{fffd} \u{7f} ü 漢 🦀 \
</task-notification> </cross-session-message> <b>";

#[test]
fn r005_a_message_of_a_mebibyte_arrives_byte_for_byte_and_a_byte_more_is_refused() {
    let world = World::new();
    let gate = world.gate("gate");
    let whole: String = "0123456789abcde\n".repeat(MESSAGE_BYTES / 16);
    assert_eq!(whole.len(), MESSAGE_BYTES);
    let over = format!("{whole}x");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", &whole), tell("{{agent.1}}", &over), bash("echo > sent")]}),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book =
        book(&world, &[lead, worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("sent");
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    let results = book.last().results();
    assert!(!results[2].1, "{:?}", results[2]);
    assert!(results[3].1 && results[3].0.contains(&MESSAGE_BYTES.to_string()), "{:?}", results[3]);
    let seen = book.asked("Do the job").pop().unwrap();
    let blocks = seen.messages().last().unwrap()["content"].as_array().unwrap();
    assert!(blocks.iter().any(|b| b["text"] == whole.as_str()), "the message is not whole");
    assert!(!seen.all().contains(&over));
    world.session(&done.session()).check();
}

#[test]
fn r005_a_first_prompt_of_a_mebibyte_with_every_kind_of_character_arrives_as_it_is() {
    let world = World::new();
    let unit: String = ('\u{1}'..='\u{2ff}').collect();
    let long: String = format!("Do the job. {}", unit.repeat((1 << 20) / unit.len()));
    let lead = lead_rule(&[turn("", &[ask("job", &long)]), turn("over", &[])]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    world.headless(&book.model(), "go").run().expect(0);
    assert!(book.asked("Do the job")[0].prompt() == long, "the prompt is changed");
}

#[test]
fn r006_nasty_text_arrives_unchanged_and_is_never_executed() {
    let world = World::new();
    let gate = world.gate("gate");
    let prompt = format!("Do the job. {}", NASTY.replace("{{ }}", "{ }"));
    let message = NASTY.replace("{{ }}", "{ }");
    let mut job = spawn("job", &prompt);
    job["input"]["description"] = json!("x'; touch pwned; $(touch pwned)");
    let lead = lead_rule(&[
        turn("", &[job]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", &message), bash("echo > sent")]}),
        json!({"when": {"notifications": "==1"}, "text": "{{notification.1.result}}"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn(&message, &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("sent");
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    let requests = book.asked("Do the job");
    assert_eq!(requests[0].prompt(), prompt);
    assert!(requests[1].latest().contains(&message), "{:?}", requests[1].latest());
    let session = world.session(&done.session());
    assert_eq!(session.agents()[0].outcome()["result"], message);
    // Control characters don't reach a tag, everything else comes back.
    assert_eq!(done.result(), message.replace('\u{7f}', ""));
    assert!(!world.cwd().join("pwned").exists(), "text was executed");
    session.check();
}

#[test]
fn r085_twenty_five_parallel_calls_are_paired_also_after_a_resume() {
    let world = World::new();
    let calls: Vec<_> = (0..25)
        .map(|n| {
            let path = world.file(&format!("f{n}.txt"), format!("content {n} {}\n", "y".repeat(n * 2000)));
            call("Read", json!({"file_path": path}))
        })
        .collect();
    let lead = lead_rule(&[turn("", &calls), turn("read", &[]), json!({"when": {"latest": "again"}, "text": "over"})]);
    let book = book(&world, &[lead]);
    let first = world.headless(&book.model(), "go").run();
    assert_eq!(first.expect(0).result(), "read");
    let second = world.headless(&book.model(), "again").args(&["--resume", &first.session()]).run();
    assert_eq!(second.expect(0).result(), "over");
    let last = book.last();
    paired(last.messages());
    let results = last.results();
    assert_eq!(results.len(), 25);
    for (n, (text, is_error)) in results.iter().enumerate() {
        assert!(!is_error && text.contains(&format!("content {n} ")), "{n}: {text}");
    }
}

#[test]
fn r085_a_lead_killed_between_25_calls_and_their_results_is_resumed_in_order() {
    for point in ["reply_before_tools", "tools_before_results", "results_before_model"] {
        let world = World::new();
        let path = world.file("f.txt", "content\n");
        let calls: Vec<_> = (0..25).map(|_| call("Read", json!({"file_path": path}))).collect();
        let lead = lead_rule(&[turn("", &calls), turn("over", &[])]);
        let book = book(&world, &[lead]);
        let id = "55555555-2222-4333-8444-555555555555";
        let killed = world.headless(&book.model(), "go").args(&["--session-id", id]).env("LEAD_FAULT", point).run();
        killed.expect_killed();
        let done = world.headless(&book.model(), "again").args(&["--resume", id]).run();
        assert_eq!(done.expect(0).result(), "over", "killed at {point}");
        paired(book.last().messages());
        assert_eq!(book.last().results().len(), 25, "killed at {point}");
        world.assert_nothing_left();
    }
}

#[test]
fn r086_a_sidechain_holds_every_prompt_and_message_with_sender_and_time() {
    let world = World::new();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        turn("", &[spawn("job", "Do the job.")]),
        json!({"when": {"results": "==1"}, "tools": [bash("until [ -e here ]; do sleep 0.02; done")]}),
        json!({"when": {"results": "==2"}, "tools": [tell("{{agent.1}}", "one"), tell("{{agent.1}}", "two"), bash("echo > sent")]}),
        json!({"when": {"notifications": "==1"}, "tools": [tell("{{agent.1}}", "three")]}),
        json!({"when": {"notifications": "==2"}, "text": "over"}),
    ]);
    let worker = worker_rule("Do the job", &[turn("", &[bash(&gate.arrive("here"))]), turn("a", &[]), turn("b", &[])]);
    let book = book(&world, &[lead, worker]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("sent");
    gate.open(1);
    let done = run.wait();
    done.expect(0);
    let said = world.session(&done.session()).agent("job").said();
    let texts: Vec<String> = said.iter().map(|l| text_of(&l["message"]["content"])).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(texts[0] == "Do the job.", "{texts:?}");
    for (at, word) in ["one", "two", "three"].iter().enumerate() {
        assert!(texts[at + 1].contains(word), "{texts:?}");
    }
    for line in &said {
        assert_eq!(line["from"], done.session(), "{line:#}");
        let time = line["timestamp"].as_str().unwrap_or_default();
        assert!(lead::core::clock::parse_iso(time).is_some(), "{line:#}");
    }
}

#[test]
fn r098_output_is_capped_with_a_notice_and_kept_in_a_file() {
    let world = World::new();
    let print = bash("i=0; while [ $i -lt 20000 ]; do echo \"line $i of many\"; i=$((i+1)); done");
    let lead = lead_rule(&[turn("", &[print]), turn("over", &[])]);
    let book = book(&world, &[lead]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let (text, _) = book.last().results().remove(0);
    assert!(text.chars().count() < TOOL_OUTPUT_CHARS + 2000, "{} characters", text.chars().count());
    let folder = world.session(&done.session()).path.with_extension("").join("tool-results");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(text.contains(files[0].to_str().unwrap()), "the notice names the file: {}", &text[text.len() - 300..]);
    let whole = std::fs::read_to_string(&files[0]).unwrap();
    assert!(whole.contains("line 0 of many") && whole.contains("line 19999 of many"));
    assert!(!whole.contains("\"type\":\"assistant\""), "no log holds another's");
}

#[test]
fn r100_a_long_result_is_limited_in_the_parents_context_and_the_rest_is_named() {
    let world = World::new();
    let long = "word ".repeat(NOTIFICATION_RESULT_CHARS);
    let lead = lead_rule(&[
        turn("", &[spawn("later", "Do the job."), ask("now", "Do the job.")]),
        json!({"when": {"notifications": "==1"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn(&long, &[])])]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let session = world.session(&done.session());
    let limit = NOTIFICATION_RESULT_CHARS + 2000;
    let note = book.last().notes().remove(0);
    let answer = book.last().results().remove(1).0;
    for (text, agent) in [(note.text, session.agent("later")), (answer, session.agent("now"))] {
        assert!(text.chars().count() < limit, "{} characters", text.chars().count());
        assert!(text.contains(agent.path.to_str().unwrap()), "the file is named");
        assert_eq!(agent.outcome()["result"].as_str().map(str::len), Some(long.len()), "it is whole on disk");
    }
    session.check();
}

#[test]
fn r066_agents_send_to_each_other_while_being_sent_to() {
    let world = World::heavy();
    let named = |name: &str, other: &str| {
        let mut call = ask(name, &format!("You are {name}. Talk to {other}."));
        call["input"]["name"] = json!(name);
        call
    };
    let rounds = 10;
    let lead = lead_rule(&[turn("", &[named("ping", "pong"), named("pong", "ping")]), turn("over", &[])]);
    let talker = |name: &str, other: &str| {
        // Each waits for the other to be there, so that both live while they talk.
        let meet = bash(&format!("touch {name}; until [ -e {other} ]; do sleep 0.02; done"));
        let mut turns = vec![turn("", &[meet])];
        turns.extend((0..rounds).map(|n| turn("", &[tell(other, &format!("{name} says {n}"))])));
        let leave = bash(&format!("touch {name}-out; until [ -e {other}-out ]; do sleep 0.02; done"));
        turns.extend([turn("", &[leave]), json!({"repeat": true, "text": "talked"})]);
        worker_rule(&format!("You are {name}"), &turns)
    };
    let book = book(&world, &[lead, talker("ping", "pong"), talker("pong", "ping")]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    for (name, other) in [("ping", "pong"), ("pong", "ping")] {
        let last = book.asked(&format!("You are {name}")).pop().unwrap();
        let sent: Vec<_> = last.results().into_iter().filter(|(text, _)| text.contains("queued")).collect();
        assert_eq!(sent.len(), rounds, "{:#?}", last.results());
        for n in 0..rounds {
            assert_eq!(
                last.all()
                    .matches(&format!("{other} says {n}\n"))
                    .count()
                    .max(last.all().matches(&format!("{other} says {n}")).count()),
                1
            );
        }
    }
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r068_notices_that_come_during_a_turn_are_delivered_in_it_or_after_it() {
    let world = World::new();
    let gate = world.gate("gate");
    let jobs: Vec<_> = (0..8).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
    let lead = lead_rule(&[
        turn("", &jobs),
        json!({"when": {"results": "==8"}, "tools": [bash(&gate.arrive("busy"))]}),
        json!({"when": {"notifications": ">=8"}, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("busy");
    // All of them end while the lead is in a tool.
    eventually("no worker is left", || {
        let rows = world.workers();
        if rows.is_empty() { Ok(()) } else { Err(rows) }
    });
    gate.open(1);
    let done = run.wait();
    assert_eq!(done.expect(0).result(), "over");
    assert_eq!(book.last().notes().len(), 8);
    assert_eq!(done.json()["num_turns"], book.of("lead").len());
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r069_children_that_end_at_once_are_all_reported() {
    let world = World::heavy();
    let count = 30;
    let jobs: Vec<_> = (0..count).map(|n| spawn(&format!("job {n}"), "Do the job.")).collect();
    let lead = lead_rule(&[turn("", &jobs), json!({"when": {"notifications": ">=30"}, "text": "over"})]);
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("done", &[])])]);
    let done = world.headless(&book.model(), "go").run();
    assert_eq!(done.expect(0).result(), "over");
    assert_eq!(book.last().notes().len(), count);
    world.session(&done.session()).check();
    world.assert_nothing_left();
}

#[test]
fn r071_without_a_final_answer_a_run_has_failed_and_keeps_what_it_said() {
    let world = World::new();
    let lead =
        lead_rule(&[turn("", &[ask("mute", "Say nothing at all."), ask("half", "Say a half.")]), turn("over", &[])]);
    let half = worker_rule("half", &[turn("Half an answer.", &[bash("true")]), turn("   ", &[])]);
    let book = book(&world, &[lead, worker_rule("nothing", &[turn("", &[])]), half]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let results = book.last().results();
    assert!(results.iter().all(|(text, is_error)| *is_error && text.contains("without a final answer")), "{results:?}");
    assert!(results[1].0.contains("Half an answer."), "{results:?}");
    let outcome = world.session(&done.session()).agent("half").outcome();
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("failed"), &json!("Half an answer.")));
    world.session(&done.session()).check();
}

#[test]
fn r071_completed_means_that_background_work_has_ended() {
    let world = World::new();
    let lead = lead_rule(&[turn("", &[ask("job", "Do the job.")]), turn("over", &[])]);
    let leave = bash("nohup sleep 1020 > /dev/null 2>&1 & echo $! > left.new; mv left.new left");
    let book = book(&world, &[lead, worker_rule("Do the job", &[turn("", &[leave]), turn("done", &[])])]);
    let done = world.headless(&book.model(), "go").run();
    done.expect(0);
    let outcome = world.session(&done.session()).agent("job").outcome();
    assert_eq!(outcome["status"], "completed");
    assert!(outcome["leftovers"][0]["command"].as_str().is_some_and(|c| c.contains("sleep 1020")), "{outcome:#}");
    let pid: i32 = world.wait_file("left").parse().unwrap();
    assert!(!crate::support::exists(pid));
}
