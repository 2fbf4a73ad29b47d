//! Sessions and an agent that send to each other all at once, while one of them is frozen for a while
//! and one is killed (spec 2.3).

use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    KEY, MODEL, Piped, Server, World, bash, eventually, free_port, long, pid_of, signal, tell, text, text_of,
    worker_rule,
};

/// Replies that send, of each session; messages of each to the other session; and those to the agent,
/// which looks up less often than it is sent to. Ten thousand in the long run.
fn size() -> (usize, usize, usize) {
    if long() { (40, 100, 25) } else { (4, 40, 10) }
}

/// How a session is played: a round goes out when the other's round before has come, those of the
/// second half when the person says so.
fn talker(me: &str, other: &str, address: &str, agent: &str) -> Value {
    let (count, to_other, to_agent) = size();
    let rounds = (0..count).map(|round| {
        let told = |to: &str, address: &str, each: usize| -> Vec<Value> {
            (round * each..(round + 1) * each).map(|n| tell(address, &format!("{me}-{to} {n}."))).collect()
        };
        let when = match round {
            0 => format!("I am {me}"),
            half if half == count / 2 => "go on".to_owned(),
            _ => format!(r"{other}-{me} {}\.", round * to_other - 1),
        };
        let calls = [told(other, address, to_other), told("w", agent, to_agent)].concat();
        json!({"when": {"any": when}, "tools": calls})
    });
    let turns: Vec<Value> = rounds.chain([json!({"repeat": true, "text": "heard"})]).collect();
    json!({"match": {"role": "^lead$", "prompt": format!("I am {me}")}, "turns": turns})
}

/// A session that reads lines; its first words are not said yet.
fn listening(world: &World, url: &str) -> Piped {
    let args = ["-p", "--model", MODEL, "--output-format", "stream-json", "--input-format", "stream-json"];
    let lead = world.lead(&args).args(&["--permission-mode", "bypassPermissions"]);
    let mut piped = lead.env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", KEY).piped();
    let mut out = std::mem::replace(&mut piped.stdout, sink());
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    piped
}

/// An end of a pipe that says nothing.
fn sink() -> std::process::ChildStdout {
    let quiet = std::process::Command::new("true").stdout(std::process::Stdio::piped()).spawn();
    let mut quiet = quiet.unwrap();
    quiet.wait().unwrap();
    quiet.stdout.unwrap()
}

fn say(to: &mut Piped, words: &str) {
    let line = json!({"type": "user", "message": {"role": "user", "content": words}});
    to.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The whole lines of a transcript that grows.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The numbers in the messages `from-to N.` that the transcript's model was shown, in order; fails at a
/// message that stands there twice.
fn shown(lines: &[Value], stream: &str) -> Vec<usize> {
    let messages = lines.iter().filter(|l| l["type"] == "user" && l["msgId"].is_string());
    let (mut ids, mut numbers) = (HashSet::new(), Vec::new());
    for line in messages {
        assert!(ids.insert(text(line, "msgId")), "shown twice: {line:#}");
        let said = text_of(&line["message"]["content"]);
        numbers.extend(number(&said, stream));
    }
    numbers
}

fn number(said: &str, stream: &str) -> Option<usize> {
    said.split_once(&format!("{stream} "))?.1.split_once('.')?.0.parse().ok()
}

/// What the sender was told of each of its messages of this stream, by number: whether it was taken.
fn answers(lines: &[Value], stream: &str) -> BTreeMap<usize, bool> {
    let blocks = || lines.iter().flat_map(|l| l["message"]["content"].as_array().into_iter().flatten());
    let results: BTreeMap<String, bool> = blocks()
        .filter(|b| b["type"] == "tool_result")
        .map(|b| (text(b, "tool_use_id"), b["is_error"] != true))
        .collect();
    let calls = blocks().filter(|b| b["type"] == "tool_use" && b["name"] == "SendMessage");
    calls
        .filter_map(|b| Some((number(b["input"]["message"].as_str()?, stream)?, *results.get(b["id"].as_str()?)?)))
        .collect()
}

#[test]
fn r033_everything_is_shown_once_and_in_order_though_one_is_frozen_and_one_killed() {
    let (count, to_other, to_agent) = size();
    let world = World::heavy().with_limits("message_interval=1us,reply=100s,handshake=100s");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let worker = json!({"repeat": true, "tools": [bash("sleep 0.05")]});
    let own = world.file("w.yaml", json!({"agents": [worker_rule("", &[worker])]}).to_string());
    let model = format!("playbook:{}", own.display());
    let args = ["spawn", "--json", "--model", &model, "--permission-mode", "bypassPermissions", "Look up."];
    let agent = world.lead(&args).run().expect(0).json();
    let (mut a, mut b) = (listening(&world, &url), listening(&world, &url));
    let rows = eventually("two sessions", || {
        let rows = world.ps(&[]);
        let leads: Vec<_> = rows.iter().filter(|r| r["role"] == "lead" && r["address"].is_string()).cloned().collect();
        if leads.len() == 2 { Ok(leads) } else { Err(rows) }
    });
    let row = |piped: &Piped| rows.iter().find(|r| pid_of(r) == piped.running.pid()).unwrap();
    let [to_a, to_b] = [&a, &b].map(|piped| text(row(piped), "address"));
    let paths = [&a, &b].map(|piped| std::path::PathBuf::from(text(row(piped), "transcript")));
    let agent_at = text(&agent, "address");
    let book = [talker("a", "b", &to_b, &agent_at), talker("b", "a", &to_a, &agent_at)];
    let book = world.file("book.yaml", json!({ "agents": book }).to_string());
    let server = Server::of_file(&world, &book.display().to_string(), port);

    say(&mut a, "I am a.");
    say(&mut b, "I am b.");
    let enqueued = |path: &Path| lines(path).iter().filter(|l| l["type"] == "queue-operation").count();
    eventually("b hears of a", || if enqueued(&paths[1]) > 0 { Ok(()) } else { Err(()) });
    b.running.signal(Signal::SIGSTOP);
    for n in 0..5 {
        let sent = world.lead(&["send", "--json", &text(&agent, "id"), &format!("person-w {n}.")]).run();
        assert_eq!(sent.expect(0).json()["outcome"], "queued", "a frozen one holds nobody else up");
    }
    b.running.signal(Signal::SIGCONT);
    let streams = [(&paths[0], "b-a"), (&paths[1], "a-b")];
    let all_shown = |rounds: std::ops::Range<usize>| {
        for round in rounds {
            eventually(&format!("both were shown round {round}"), || {
                let seen = streams.map(|(path, stream)| {
                    let last = format!("{stream} {}.", (round + 1) * to_other - 1);
                    // Once as written down when it came, once as shown.
                    std::fs::read_to_string(path).unwrap_or_default().matches(&last).count()
                });
                if seen == [2, 2] { Ok(()) } else { Err(seen) }
            });
        }
    };
    all_shown(0..count / 2);

    say(&mut a, "go on");
    say(&mut b, "go on");
    signal(pid_of(&agent), Signal::SIGKILL);
    all_shown(count / 2..count);
    for session in [a, b] {
        drop(session.stdin);
        session.running.wait().expect(0);
    }
    drop(server);

    let [of_a, of_b] = paths.map(|path| lines(&path));
    let all: Vec<usize> = (0..count * to_other).collect();
    for (receiver, sender, stream) in [(&of_b, &of_a, "a-b"), (&of_a, &of_b, "b-a")] {
        assert_eq!(shown(receiver, stream), all, "each once, in order");
        let answers = answers(sender, stream);
        assert!(answers.len() == all.len() && answers.values().all(|taken| *taken), "{answers:?}");
    }
    let of_agent = lines(Path::new(&text(&agent, "transcript")));
    assert_eq!(shown(&of_agent, "person-w"), [0, 1, 2, 3, 4]);
    for (sender, stream) in [(&of_a, "a-w"), (&of_b, "b-w")] {
        let answers = answers(sender, stream);
        assert_eq!(answers.len(), count * to_agent);
        let taken: Vec<usize> = of_agent
            .iter()
            .filter(|l| l["type"] == "queue-operation")
            .filter_map(|l| number(l["content"].as_str()?, stream))
            .collect();
        assert!(taken.is_sorted() && taken.len() < answers.len(), "{taken:?}");
        assert_eq!(taken.first(), Some(&0));
        // More than may wait are refused, and then they are not there.
        assert!((0..count / 2 * to_agent).all(|n| answers[&n] == taken.contains(&n)), "{answers:?} {taken:?}");
        // One that it wrote down when it was killed may not have been answered any more.
        assert!(answers.iter().all(|(n, ok)| !ok || taken.contains(n)), "what was told as taken is there");
        assert_eq!(answers.get(&(answers.len() - 1)), Some(&false), "the senders of the dead one are told");
        let seen = shown(&of_agent, stream);
        assert!(taken.starts_with(&seen), "{seen:?} of {taken:?}");
    }
    world.lead(&["reap"]).run().expect(0);
    world.assert_nothing_left();
}
