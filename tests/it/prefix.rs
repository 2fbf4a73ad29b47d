//! What a session sends begins, byte for byte, with what it sent before: a provider's cache is keyed by
//! that. Checked over a whole session with tools, thoughts, agents and a resume in the middle.

use serde_json::{Value, json};

use crate::support::{Request, Server, World, ask, bash, book, call, lead_rule, spawn, turn, worker_rule};

const ID: &str = "33333333-2222-4333-8444-777777777777";
/// As it stands in requests, behind the last field of a block.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// The body as it was sent.
fn body(request: &Request) -> &str {
    request.0["body"].as_str().unwrap()
}

/// Fails unless the cache finds in each request all that was marked in the one before.
fn stable(requests: &[Request]) {
    for (at, pair) in requests.windows(2).enumerate() {
        let (before, after) = (body(&pair[0]), body(&pair[1]));
        assert!(after.matches(MARK).count() <= 4 && after.matches("cache_control").count() <= 4, "{after}");
        let cached = before[..before.rfind(MARK).unwrap()].replace(MARK, "");
        let next = after.replace(MARK, "");
        let same = cached.bytes().zip(next.bytes()).take_while(|(a, b)| a == b).count();
        let shown = |text: &str| text.get(same.saturating_sub(80)..(same + 80).min(text.len())).map(str::to_owned);
        assert_eq!(same, cached.len(), "request {at} and the next differ: {:?} / {:?}", shown(&cached), shown(&next));
        // The mark behind which nothing is lost sits in the message before the latest one, too.
        assert!(before.matches(MARK).count() >= 3, "{before}");
    }
}

fn read(path: &str) -> Value {
    call("Read", json!({"file_path": path}))
}

/// The turns of one half of the session: tools of every kind, and words that JSON writes in its own way.
fn turns(from: usize, count: usize) -> Vec<Value> {
    let odd = "größe \u{1f914} \"quoted\" \\ </x> \u{2028} \u{7} tab\t end";
    (from..from + count)
        .map(|n| {
            let text = format!("step {n}: {odd}");
            let mut turn = match n % 6 {
                0 => turn(&text, &[read("a.txt"), read("b.txt"), bash(&format!("echo {n}"))]),
                1 => turn("", &[bash(&format!("printf '%s\\n' 'out {n} é' '{{\"n\": 1.10}}'"))]),
                2 => turn(&text, &[call("Grep", json!({"pattern": "line", "output_mode": "content", "-n": true}))]),
                3 => turn("", &[read("missing.txt"), bash("exit 3")]),
                4 => turn(
                    &text,
                    &[call(
                        "Glob",
                        json!({"pattern": "*", "n": 1.10, "big": 12345678901234567890u64, "e": 1e2, "z": null}),
                    )],
                ),
                _ => turn("\n", &[call("Glob", json!({"pattern": "*.txt"})), call("Grep", json!({"pattern": "x"}))]),
            };
            if n % 3 == 0 {
                turn["thinking"] = json!(format!("thought {n} {odd}"));
            }
            turn
        })
        .collect()
}

#[test]
fn thirty_turns_and_a_resume_keep_every_byte_that_was_sent() {
    let world = World::new();
    world.file("a.txt", "line one\nline \"two\" é\n");
    world.file("b.txt", (0..200).map(|n| format!("line {n}\n")).collect::<String>());
    let launch = turn("agents", &[spawn("async", "Do the async job."), ask("sync", "Do the sync job.")]);
    let told = |text: &str| json!({"when": {"notifications": ">=1"}, "text": text});
    let second = [vec![launch], turns(15, 14), vec![told("both are done")], vec![turn("wait", &[])]].concat();
    let lead = lead_rule(&[turns(0, 15), vec![turn("half of it", &[])], second].concat());
    let worker = worker_rule("Do the .*job", &[turns(0, 6), vec![turn("done", &[])]].concat());
    let book = book(&world, &[lead, worker]);
    let server = Server::start(&world, &book);
    let first = server.headless(&world, "go: \u{2028} \"first\"").args(&["--session-id", ID]).run();
    assert_eq!(first.expect(0).result(), "half of it");
    assert_eq!(book.requests().len(), 16);
    let args = ["--resume", ID];
    let second = server.headless(&world, "and the other half\n").args(&args).run();
    assert_eq!(second.expect(0).result(), "both are done");

    drop(server);

    let lead = book.of("lead");
    assert!((32..=33).contains(&lead.len()), "{}: 16, then 15 with tools and one or two answers", lead.len());
    stable(&lead);
    for prompt in ["Do the async job.", "Do the sync job."] {
        let worker = book.asked(prompt);
        assert_eq!(worker.len(), 7);
        stable(&worker);
    }
    let session = world.session(ID);
    session.paired();
    session.check();
    world.assert_nothing_left();
}
