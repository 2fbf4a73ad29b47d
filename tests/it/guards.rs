//! What an agent must not do it does not get through its shell either: neither by a verb nor by a
//! frame of its own (spec 1.5, 5.6).

use std::path::PathBuf;

use lead::core::frame::{Delivery, Frame};
use lead::core::ids::AgentId;
use lead::core::question::Verdict;
use lead::wire::{dial_and_greet, parse_address};
use serde_json::{Value, json};

use crate::support::{
    Book, World, ask, bash, book, lead_rule, pid_of, resuming, spawn, spawned, text, turn, worker_rule,
};

const ID: &str = "dddddddd-2222-4333-8444-555555555555";
const KEY: &str = "spawn_11111111-2222-4333-8444-555555555555";

/// The variables of [`speaks_from_an_agent_s_shell`]: an address, an agent there, a file.
const SPEAK_TO: &str = "LT_SPEAK_TO";
const SPEAK_OF: &str = "LT_SPEAK_OF";
const SPEAK_OUT: &str = "LT_SPEAK_OUT";

fn speak(address: &str, frames: Vec<Frame>) -> Vec<Frame> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (link, _inbox, _) = dial_and_greet(&parse_address(address).unwrap(), "shell", "").await.unwrap();
        let mut answers = Vec::new();
        for frame in frames {
            answers.push(link.request(frame, std::time::Duration::from_secs(30)).await.unwrap());
        }
        answers
    })
}

fn start(prompt: &str) -> Frame {
    Frame::Call { tool: "Agent".to_owned(), tool_use_id: KEY.to_owned(), input: json!({ "prompt": prompt }) }
}

fn words(to: Option<&str>) -> Frame {
    let text = "psst".to_owned();
    let to = to.map(str::to_owned);
    Frame::Deliver(Delivery {
        notify_idle: false,
        msg_id: KEY.to_owned(),
        to,
        text,
        summary: None,
        from: Some("user".to_owned()),
        now: true,
    })
}

/// Not a test of its own: agents' shells run it to send frames without any verb's check.
#[test]
fn speaks_from_an_agent_s_shell() {
    let Ok(to) = std::env::var(SPEAK_TO) else { return };
    let (of, out) = (std::env::var(SPEAK_OF).unwrap(), PathBuf::from(std::env::var(SPEAK_OUT).unwrap()));
    let id = AgentId::parse(&of).unwrap();
    let stop = |id| Frame::Stop { id, kill: true, reason: "mine".to_owned() };
    let frames = vec![
        start("quick job"),
        words(Some(&of)),
        words(None),
        stop(Some(id.clone())),
        stop(None),
        Frame::Background { id },
        Frame::HandOver,
        Frame::Permit { id: "p-0".to_owned(), verdict: Verdict::Allow, always: true },
    ];
    let answers: Vec<String> = speak(&to, frames).iter().map(|a| format!("{a:?}\n")).collect();
    std::fs::write(out.with_extension("new"), answers.concat()).unwrap();
    std::fs::rename(out.with_extension("new"), out).unwrap();
}

fn a_book(world: &World, shell: &str, victim: &crate::support::Gate) -> Book {
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [spawn("victim", "slow job"), spawn("other", "shell job")]}),
        json!({"when": {"latest": "^sync"}, "tools": [spawn("victim", "slow job"), ask("other", "shell job")]}),
        json!({"when": {"notifications": ">=2"}, "text": "over"}),
        json!({"repeat": true, "text": "waiting"}),
    ]);
    let slow = [turn("Begun.", &[bash(&victim.arrive("victim-here"))]), json!({"repeat": true, "text": "untouched"})];
    let wait = "until [ -e victim-here ]; do sleep 0.05; done";
    let shell = [turn("", &[bash(&format!("{wait}\n{shell}"))]), turn("tried", &[])];
    book(
        world,
        &[lead, worker_rule("slow", &slow), worker_rule("shell", &shell), worker_rule("", &[turn("done", &[])])],
    )
}

/// A script that writes the exit code of each command into a file.
fn script(commands: &[(&str, String)]) -> String {
    let lead = env!("CARGO_BIN_EXE_lead");
    let mut lines = vec![
        format!("L='{lead}'; : > err"),
        "V=$(ls $CLAUDE_CONFIG_DIR/lead/agents | grep -v $LEAD_AGENT_ID | head -1)".to_owned(),
    ];
    lines.extend(
        commands
            .iter()
            .map(|(name, command)| format!("{command} </dev/null >>out-{name} 2>>err; echo \"{name} $?\" >>codes.new")),
    );
    lines.push("mv codes.new codes".to_owned());
    lines.join("\n")
}

fn codes(world: &World) -> Vec<(String, i32)> {
    let text = world.wait_file("codes");
    let split = |line: &str| {
        let (name, code) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), code.parse().unwrap())
    };
    text.lines().map(split).collect()
}

#[test]
fn an_agent_s_shell_may_look_and_not_touch() {
    let world = World::heavy();
    let victim = world.gate("victim");
    let refused = [
        ("spawn", "$L spawn --model playbook:survey x"),
        ("spawn-into", &format!("$L spawn --session {ID} x")),
        ("stop", "$L stop $V"),
        ("kill", "$L kill $V"),
        ("background", "$L background $V"),
        ("reap", "$L reap"),
        ("dry-reap", "$L reap --dry-run"),
        ("rm", &format!("$L sessions rm {ID}")),
        ("hand-over", &format!("$L hand-over {ID}")),
        ("allow", "$L permissions allow p-0"),
        ("deny", "$L permissions deny p-0"),
        ("send", "$L send $V hello"),
        ("send-to-lead", &format!("$L send {ID} hello")),
        // Neither does a clean environment help, nor a detour.
        ("stop-bare", "env -i HOME=$HOME PATH=$PATH LEAD_RUNTIME_DIR=$LEAD_RUNTIME_DIR CLAUDE_CONFIG_DIR=$CLAUDE_CONFIG_DIR $L stop $V"),
        ("stop-away", "setsid -w $L stop $V"),
        ("session", "$L -p --model playbook:survey x"),
    ]
    .map(|(name, command)| (name, command.to_owned(), 3));
    let looking = [
        ("ps", "$L ps", 0),
        ("sessions", "$L sessions", 0),
        ("show", &format!("$L sessions show {ID}"), 0),
        ("logs", "$L logs $V", 0),
        ("transcript", "$L transcript $V", 0),
        ("result", "$L result $V", 3),
        ("wait", "$L wait $V --timeout 100ms", 5),
        ("attach", "$L attach $V", 0),
    ]
    .map(|(name, command, code)| (name, command.to_owned(), code));
    let all: Vec<_> = refused.iter().chain(&looking).cloned().collect();
    let commands: Vec<(&str, String)> = all.iter().map(|(name, command, _)| (*name, command.clone())).collect();
    let book = a_book(&world, &script(&commands), &victim);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    let codes = codes(&world);
    let said = std::fs::read_to_string(world.cwd().join("err")).unwrap();
    let expected: Vec<(String, i32)> = all.iter().map(|(name, _, code)| ((*name).to_owned(), *code)).collect();
    assert_eq!(codes, expected, "{said}");
    for reason in
        ["start agents", "hand a session over", "answer questions of permission", "send messages without SendMessage"]
    {
        assert!(said.contains(&format!("agents can't {reason}")), "{reason}: {said}");
    }
    victim.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    let agents = world.session(ID).agents();
    assert_eq!(agents.len(), 2, "nothing was started");
    assert!(agents.iter().all(|a| a.outcome()["status"] == "completed"), "nobody was stopped");
    assert_eq!(world.session(ID).agent("victim").said().len(), 1, "nobody was told anything");
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn an_agent_with_send_message_sends_as_itself_through_its_shell() {
    let world = World::heavy();
    let victim = world.gate("victim");
    let commands = [("send", "$L send $V 'through the shell'".to_owned()), ("stop", "$L stop $V".to_owned())];
    let book = a_book(&world, &script(&commands), &victim);
    let run = world.headless(&book.model(), "sync").args(&["--session-id", ID]).start();
    assert_eq!(codes(&world), [("send".to_owned(), 0), ("stop".to_owned(), 3)]);
    victim.open(1);
    run.wait();
    let agent = world.session(ID).agent("other").id;
    let said = world.session(ID).agent("victim").said();
    assert_eq!(said.len(), 2, "{said:#?}");
    assert_eq!(said[1]["from"], json!(agent), "it is told who said it");
    world.assert_nothing_left();
}

#[test]
fn frames_from_an_agent_s_shell_are_refused_by_leads_and_agents() {
    let world = World::heavy();
    let victim = world.gate("victim");
    let exe = std::env::current_exe().unwrap();
    let speak = |address: &str, file: &str| {
        format!(
            "{SPEAK_TO}=\"{address}\" {SPEAK_OF}=$V {SPEAK_OUT}=\"$PWD/{file}\" '{}' --exact guards::speaks_from_an_agent_s_shell >>{file}.log 2>&1",
            exe.display()
        )
    };
    let lead = env!("CARGO_BIN_EXE_lead");
    let address = |role: &str| {
        format!(
            "$('{lead}' ps --json | tr '{{' '\\n' | grep '\"role\":\"{role}\"' | grep -v $LEAD_AGENT_ID | grep -o 'uds:[^\"]*' | head -1)"
        )
    };
    let commands = [("lead", speak(&address("lead"), "by-lead")), ("agent", speak(&address("worker"), "by-agent"))];
    let book = a_book(&world, &script(&commands), &victim);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    let answered = |file: &str| -> Vec<String> { world.wait_file(file).lines().map(str::to_owned).collect() };
    assert_eq!(codes(&world), [("lead".to_owned(), 0), ("agent".to_owned(), 0)]);
    // A lead has nothing to stop but its agents, and an agent starts and moves none.
    for (file, refusals) in [
        ("by-lead", [true, true, true, true, false, true, true, true]),
        ("by-agent", [false, true, true, true, true, false, false, false]),
    ] {
        let answers = answered(file);
        assert_eq!(answers.len(), 8, "{answers:#?}");
        for (answer, refused) in answers.iter().zip(refusals) {
            let code = if refused { "refused" } else { "unsupported" };
            assert!(answer.contains(&format!("code: \"{code}\"")), "{file}: {answer}");
        }
    }
    victim.open(1);
    assert_eq!(run.wait().expect(0).result(), "over");
    let agents = world.session(ID).agents();
    assert!(agents.len() == 2 && agents.iter().all(|a| a.outcome()["status"] == "completed"));
    assert_eq!(world.session(ID).agent("victim").said().len(), 1);
    assert!(!book.last().all().contains("psst"));
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn r054_a_request_that_is_made_again_starts_no_second_agent() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"repeat": true, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("", &[turn("done", &[])])]);
    let run = world.headless(&book.model(), "go").args(&["--session-id", ID]).start();
    world.wait_file("lead-here");
    let address = text(&world.ps(&[])[0], "address");
    let answers: Vec<Frame> = std::thread::scope(|s| {
        let calls: Vec<_> = (0..4).map(|_| s.spawn(|| speak(&address, vec![start("quick job")]).remove(0))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut ids: Vec<String> = answers
        .into_iter()
        .map(|answer| match answer {
            Frame::CallResult { is_error: false, structured: Some(fields), .. } => text(&fields, "agentId"),
            other => panic!("{other:?}"),
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    world.lead(&["wait", &ids[0]]).run().expect(0);
    gate.open(1);
    run.wait().expect(0);
    assert_eq!((world.session(ID).agents().len(), book.of("worker").len()), (1, 1));
    world.session(ID).check();
    world.assert_nothing_left();
}

#[test]
fn a_lead_carries_out_nothing_else_for_those_outside() {
    let world = World::heavy();
    let gate = world.gate("gate");
    let lead = lead_rule(&[
        json!({"when": {"latest": "^go"}, "tools": [bash(&gate.arrive("lead-here"))]}),
        json!({"repeat": true, "text": "over"}),
    ]);
    let book = book(&world, &[lead, worker_rule("", &[turn("done", &[])])]);
    let row = spawned(&world, &book, "quick job", &[]);
    world.wait_quiet();
    let run = world.headless(&book.model(), "go").start();
    world.wait_file("lead-here");
    let address = text(&world.ps(&[])[0], "address");
    let call = |tool: &str, input: Value| Frame::Call { tool: tool.to_owned(), tool_use_id: "t".to_owned(), input };
    let frames = vec![
        call("Bash", json!({"command": "touch /tmp/never"})),
        call("TaskStop", json!({"task_id": text(&row, "id")})),
        call("Agent", json!({"prompt": "x", "subagent_type": "worker"})),
        words(Some("uds:/tmp/somewhere.sock")),
        words(Some("nobody")),
    ];
    let answers = speak(&address, frames);
    assert!(
        answers[..2].iter().all(|a| matches!(a, Frame::Error { code, .. } if code == "unsupported")),
        "{answers:?}"
    );
    assert!(matches!(&answers[2], Frame::CallResult { is_error: true, .. }), "{answers:?}");
    for answer in &answers[3..] {
        assert!(matches!(answer, Frame::Delivered(d) if d.outcome == "refused"), "{answer:?}");
    }
    gate.open(1);
    run.wait().expect(0);
    assert!(pid_of(&row) > 1);
    resuming(&world, &book, &text(&row, "session"), None).run().expect(0);
    world.assert_nothing_left();
}
