use serde_json::json;

use super::*;
use crate::agent::input::Input;
use crate::agent::step::{Call, Class, Classify, Event};
use crate::core::agent::Activity;
use crate::core::message::asks_for_summary;
use crate::model::playbook::check_request;
use crate::tool::ToolOutput;

struct AllRead;
impl Classify for AllRead {
    fn classify(&self, call: &Call) -> (Class, Activity) {
        let tool = call.name.clone();
        (Class::Read, Activity { tool, description: String::new(), is_search: false, is_read: true })
    }
}

/// A conversation and all requests it sent, each checked as a strict provider would.
struct Run {
    conversation: Conversation,
    calls: u32,
}

impl Run {
    fn new(window: u64) -> Self {
        Self { conversation: Conversation::new(vec![], None).with_window(window, 0), calls: 0 }
    }

    /// What an event leads to: a letter per effect.
    fn step(&mut self, event: Event) -> String {
        let effects = self.conversation.step(event, &AllRead);
        effects.iter().map(|effect| self.letter(effect)).collect::<Vec<_>>().join(" ")
    }

    fn letter(&self, effect: &Effect) -> String {
        match effect {
            Effect::RecordReply(_) => "reply".into(),
            Effect::RecordUser(_) => "user".into(),
            Effect::CallModel => {
                well_formed(self.conversation.messages());
                "model".into()
            }
            Effect::Summarise { messages, .. } => {
                well_formed(messages);
                assert!(asks_for_summary(messages));
                "summarise".into()
            }
            Effect::RecordCompaction(_) => "compaction".into(),
            Effect::RunTools(_) => "tools".into(),
            Effect::CancelRunning => "cancel".into(),
            Effect::EndTurn(TurnEnd::Failed { message, .. }) => format!("failed({message})"),
            Effect::EndTurn(end) => format!("{end:?}").split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    fn say(&mut self, text: &str) -> String {
        self.step(Event::Inputs(vec![Input { text: text.into(), ..Input::default() }]))
    }

    fn answers(&mut self, text: &str, tokens: u64) -> String {
        self.step(Event::Reply(reply(vec![Block::text(text)], tokens)))
    }

    /// The model reads a file; up to what follows the result.
    fn reads(&mut self, path: &str, tokens: u64) -> String {
        self.calls += 1;
        let id = format!("t{}", self.calls);
        let call = Block::tool_use(&id, "Read", json!({"file_path": path}));
        assert_eq!(self.step(Event::Reply(reply(vec![call], tokens))), "reply tools");
        self.step(Event::ToolDone { id, output: ToolOutput::ok(format!("content of {path}")) })
    }

    fn summarised(&mut self, text: &str) -> String {
        self.step(Event::Summarised { reply: reply(vec![Block::text(text)], 7), files: vec![] })
    }

    fn overflows(&mut self) -> String {
        self.step(Event::ModelFailed(ModelError::Overflow { status: 413, message: "too long".into() }))
    }

    fn all(&self) -> String {
        self.conversation.messages().iter().map(Message::text).collect::<Vec<_>>().join("\n")
    }
}

fn reply(content: Vec<Block>, tokens: u64) -> Reply {
    let usage = Usage { input_tokens: tokens, ..Usage::default() };
    Reply { id: "m".into(), model: "x".into(), content, stop_reason: None, usage }
}

fn well_formed(messages: &[Message]) {
    let request = crate::core::message::Request {
        model: "x".into(),
        system: String::new(),
        messages: messages.to_vec(),
        tools: vec![],
        web_search: false,
        max_tokens: 1,
        caller: crate::core::message::Caller::default(),
    };
    if let Err(what) = check_request(&request) {
        panic!("{what}: {messages:#?}");
    }
}

#[test]
fn ninety_percent_of_the_window_are_the_limit() {
    for (window, used, compacts) in [(1000, 899, false), (1000, 900, true), (0, u64::MAX, false)] {
        let mut run = Run::new(window);
        assert_eq!(run.say("go"), "user model");
        let next = run.reads("a", used);
        assert_eq!(next, if compacts { "user summarise" } else { "user model" }, "{used} of {window}");
        assert_eq!(run.conversation.is_compacting(), compacts);
    }
}

#[test]
fn after_tools_the_summary_takes_the_place_of_all_and_the_turn_goes_on() {
    let mut run = Run::new(1000);
    run.say("go");
    assert_eq!(run.reads("a", 950), "user summarise");
    assert_eq!(run.summarised("all about it"), "compaction model");
    assert_eq!(run.conversation.messages().len(), 1);
    assert!(run.all().contains("all about it") && !run.all().contains("content of"));
    assert_eq!(run.answers("done", 100), "reply Answer");
    assert_eq!(run.conversation.progress().turns, 3, "the summary is a reply too");
    assert_eq!(run.conversation.usage().input_tokens, 950 + 7 + 100);
    assert_eq!(run.say("more"), "user model", "the count began anew");
}

#[test]
fn a_new_turn_keeps_its_request_word_for_word() {
    let mut run = Run::new(1000);
    run.say("first");
    run.answers("answer", 950);
    assert_eq!(run.say("second, exactly so"), "user summarise");
    assert_eq!(run.summarised("short"), "compaction model");
    assert!(run.all().contains("second, exactly so") && !run.all().contains("answer\n"), "{}", run.all());
}

#[test]
fn a_long_request_is_cut_at_a_quarter_of_the_window() {
    for (len, cut) in [(1000, false), (1001, true)] {
        let mut run = Run::new(1000);
        run.say("first");
        run.answers("answer", 950);
        run.say(&"ä".repeat(len / 2 + len % 2));
        run.summarised("short");
        assert_eq!(run.all().contains("[cut:"), cut, "{len}");
    }
}

#[test]
fn an_overflow_compacts_once_and_a_second_one_fails() {
    let mut run = Run::new(1000);
    assert_eq!(run.say("go"), "user model");
    assert_eq!(run.overflows(), "summarise");
    assert_eq!(run.summarised("short"), "compaction model");
    let end = run.overflows();
    assert!(end.starts_with("failed(the conversation is too long"), "{end}");
    assert!(run.conversation.is_idle());
}

#[test]
fn an_overflow_after_tools_compacts_and_after_a_reply_it_may_again() {
    let mut run = Run::new(0);
    run.say("go");
    assert_eq!(run.reads("a", 10), "user model");
    assert_eq!(run.overflows(), "summarise");
    assert_eq!(run.summarised("short"), "compaction model");
    assert_eq!(run.reads("b", 10), "user model");
    assert_eq!(run.overflows(), "summarise");
    assert_eq!(run.summarised("shorter"), "compaction model");
    assert_eq!(run.answers("done", 10), "reply Answer");
}

#[test]
fn an_overflow_right_after_a_compaction_by_size_fails() {
    let mut run = Run::new(1000);
    run.say("go");
    run.reads("a", 950);
    run.summarised("short");
    assert!(run.overflows().starts_with("failed("));
}

#[test]
fn three_failures_in_a_row_end_the_turn_and_two_do_not() {
    let failed = || Event::ModelFailed(ModelError::Api { status: 500, message: "broken".into() });
    let no_text = || Event::Summarised { reply: reply(vec![Block::text(" ")], 1), files: vec![] };
    let call = Block::tool_use("z", "Read", json!({}));
    let mut run = Run::new(1000);
    run.say("go");
    run.reads("a", 950);
    assert_eq!(run.step(failed()), "summarise");
    assert_eq!(run.step(no_text()), "summarise");
    let end = run.step(Event::Summarised { reply: reply(vec![Block::text("x"), call], 1), files: vec![] });
    assert!(
        end.starts_with("failed(the conversation could not be summarised") && end.contains("called a tool"),
        "{end}"
    );
    assert!(run.conversation.is_idle());

    // The next turn tries anew, with a count of its own.
    assert_eq!(run.say("again"), "user summarise");
    assert_eq!(run.step(failed()), "summarise");
    assert_eq!(run.step(failed()), "summarise");
    assert_eq!(run.summarised("short"), "compaction model");
}

#[test]
fn a_cancel_during_the_summary_leaves_the_conversation_as_it_was() {
    for event in [
        Event::ModelFailed(ModelError::Cancelled),
        Event::ModelFailed(ModelError::Overflow { status: 413, message: String::new() }),
        Event::Summarised { reply: reply(vec![Block::text("too late")], 1), files: vec![] },
    ] {
        let mut run = Run::new(1000);
        run.say("go");
        run.reads("a", 950);
        let before = run.conversation.messages().to_vec();
        assert_eq!(run.say("a message"), "");
        assert_eq!(run.step(Event::Cancel), "cancel");
        assert_eq!(run.step(event), "Cancelled");
        assert_eq!(run.conversation.messages(), before);
        assert!(run.conversation.pending() > 0 && run.conversation.is_idle());
    }
}

#[test]
fn a_cancelled_call_that_overflows_is_not_summarised() {
    let mut run = Run::new(1000);
    run.say("go");
    assert_eq!(run.step(Event::Cancel), "cancel");
    assert!(run.overflows().starts_with("failed("));
}

#[test]
fn messages_that_arrive_during_the_summary_come_after_it() {
    let mut run = Run::new(1000);
    run.say("go");
    run.reads("a", 950);
    assert_eq!(run.say("and this"), "");
    assert_eq!(run.summarised("short"), "compaction user model");
    let all = run.all();
    assert!(all.find("short") < all.find("and this"), "{all}");
}

#[test]
fn what_is_not_asked_for_changes_nothing() {
    let mut run = Run::new(1000);
    assert_eq!(run.summarised("unasked"), "");
    run.say("go");
    assert_eq!(run.summarised("unasked"), "");
    run.reads("a", 950);
    assert_eq!(run.answers("unasked", 1), "");
    assert_eq!(run.step(Event::ToolDone { id: "t1".into(), output: ToolOutput::ok("x") }), "");
}

#[test]
fn a_summary_that_overflows_is_asked_for_less_each_time() {
    let mut run = Run::new(0);
    run.say("the task");
    (0..8).for_each(|i| drop(run.reads(&format!("file{i}"), 10)));
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let overflow = Event::ModelFailed(ModelError::Overflow { status: 413, message: String::new() });
        let effects = run.conversation.step(overflow, &AllRead);
        let Some(Effect::Summarise { messages, files }) = effects.first() else { panic!("{effects:?}") };
        well_formed(messages);
        assert!(messages[0].text().contains("the task"));
        assert_eq!(files.len(), FILES, "files are those of the whole conversation");
        lengths.push(messages.len());
    }
    assert_eq!(lengths[0], 17);
    assert!(lengths[0] > lengths[1] && lengths[1] > lengths[2] && lengths[2] >= 3, "{lengths:?}");
    assert!(run.overflows().starts_with("failed("));
    // Nothing to drop: the same request again, never one that is cut within an exchange.
    let one = [Message::user(vec![Block::text("x")])];
    assert_eq!(shortened(&one, 2, 3), one);
}

#[test]
fn the_latest_files_are_each_named_once_and_remembered_over_compactions() {
    let mut run = Run::new(1000);
    run.say("go");
    ["a", "b", "a", "c", "d", "e"].iter().for_each(|path| drop(run.reads(path, 10)));
    run.reads("f", 950);
    run.summarised("short");
    run.reads("d", 10);
    let call = Block::tool_use("g", "Grep", json!({"file_path": "no"}));
    run.step(Event::Reply(reply(vec![call], 950)));
    let effects = run.conversation.step(Event::ToolDone { id: "g".into(), output: ToolOutput::ok("") }, &AllRead);
    let Some(Effect::Summarise { files, .. }) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(*files, ["a", "c", "e", "f", "d"]);
}

#[test]
fn files_share_their_bytes() {
    let mut left = 10;
    assert_eq!(attach("a", "12345", &mut left).map(|f| f.text).as_deref(), Some("12345"));
    let cut = attach("b", "1234ä", &mut left).map(|f| f.text).unwrap_or_default();
    assert!(cut.starts_with("1234\n[cut"), "{cut}");
    assert_eq!(attach("c", "1", &mut left), None);
    let mut left = 5;
    assert_eq!(attach("a", "12345", &mut left).map(|f| f.text).as_deref(), Some("12345"), "just fits");
}

#[test]
fn the_turn_limit_counts_no_summaries() {
    let mut run = Run { conversation: Conversation::new(vec![], Some(2)).with_window(1000, 0), calls: 0 };
    run.say("go");
    assert_eq!(run.reads("a", 950), "user summarise");
    assert_eq!(run.summarised("short"), "compaction model");
    assert_eq!(run.reads("b", 950), "user MaxTurns");
}

#[test]
fn a_conversation_resumed_near_its_limit_is_summarised_first() {
    let history = vec![Message::user(vec![Block::text("old")]), Message::assistant(vec![Block::text("told")])];
    let mut run = Run { conversation: Conversation::new(history, None).with_window(1000, 900), calls: 0 };
    assert_eq!(run.say("new"), "user summarise");
}

/// Replies that read on, the last of them with `tokens`; what the last one led to.
fn reads_on(run: &mut Run, replies: usize, tokens: u64) -> String {
    (1..replies).for_each(|_| assert_eq!(run.reads("a", 10), "user model"));
    run.reads("a", tokens)
}

#[test]
fn three_compactions_in_a_row_that_make_no_room_end_the_turn() {
    for replies in [1, 2] {
        let mut run = Run::new(1000);
        run.say("go");
        assert_eq!(run.reads("a", 950), "user summarise");
        for _ in 0..2 {
            assert_eq!(run.summarised("short"), "compaction model");
            assert_eq!(reads_on(&mut run, replies, 950), "user summarise");
        }
        assert_eq!(run.summarised("short"), "compaction model");
        let end = reads_on(&mut run, replies, 950);
        assert!(end.starts_with("user failed(the conversation was summarised 3 times"), "{end}");
        assert!(end.contains("950 of 1000 tokens") && end.contains("lead.contextWindow"), "{end}");
        assert!(run.conversation.is_idle());
        // The next turn tries anew.
        assert_eq!(run.say("again"), "user summarise");
    }
}

#[test]
fn compactions_that_make_room_may_go_on_for_ever() {
    let mut run = Run::new(1000);
    run.say("go");
    assert_eq!(run.reads("a", 950), "user summarise");
    for _ in 0..5 {
        assert_eq!(run.summarised("short"), "compaction model");
        assert_eq!(reads_on(&mut run, 3, 950), "user summarise");
    }
    // Two that make none don't count once one has made some.
    for replies in [2, 2, 3, 2, 2, 3] {
        assert_eq!(run.summarised("short"), "compaction model");
        assert_eq!(reads_on(&mut run, replies, 950), "user summarise");
    }
}

#[test]
fn overflows_after_each_reply_end_the_turn_where_the_window_is_unknown() {
    let mut run = Run::new(0);
    run.say("go");
    assert_eq!(run.reads("a", 10), "user model");
    for _ in 0..3 {
        assert_eq!(run.overflows(), "summarise");
        assert_eq!(run.summarised("short"), "compaction model");
        assert_eq!(run.reads("a", 10), "user model");
    }
    let end = run.overflows();
    assert!(
        end.starts_with("failed(the conversation was summarised 3 times") && end.contains("too long for the model"),
        "{end}"
    );
}

#[test]
fn an_image_that_waits_for_an_answer_outlives_the_summary() {
    let image = Block::Other(json!({"type": "image", "source": {"type": "base64", "data": "x".repeat(5000)}}));
    let mut run = Run::new(1000);
    run.say("first");
    run.answers("answer", 950);
    let blocks = vec![image.clone(), Block::text("what is it?")];
    let input = Input { text: "what is it?".into(), blocks, ..Input::default() };
    assert_eq!(run.step(Event::Inputs(vec![input])), "user summarise");
    assert_eq!(run.summarised("short"), "compaction model");
    let content = &run.conversation.messages()[0].content;
    let at = content.iter().position(|b| *b == image);
    assert!(at.is_some() && content.last().and_then(Block::as_text) == Some("what is it?"), "{content:?}");
}

#[test]
fn refused_thoughts_are_left_out_and_the_call_is_repeated_once() {
    let refused = || Event::ModelFailed(ModelError::Thoughts { message: "not mine".into() });
    let thought = Block::Other(json!({"type": "thinking", "thinking": "hm", "signature": "s"}));
    let mut run = Run::new(1000);
    run.say("go");
    let call = Block::tool_use("t", "Read", json!({"file_path": "a"}));
    run.step(Event::Reply(reply(vec![thought, call], 950)));
    assert_eq!(run.step(Event::ToolDone { id: "t".into(), output: ToolOutput::ok("x") }), "user summarise");
    assert_eq!(run.step(refused()), "summarise", "that is no failure of the summary");
    assert!(run.conversation.messages().iter().flat_map(|m| &m.content).all(|b| !b.is_thinking()));
    assert_eq!(run.summarised("short"), "compaction model");
    let end = run.step(refused());
    assert!(end.starts_with("failed(the model does not take the thoughts"), "{end}");
}
