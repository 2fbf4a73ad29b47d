//! Tests of the pure step machine: every order of events that decides something.

use serde_json::json;

use super::step::*;
use crate::agent::input::{Input, UserLine};
use crate::core::agent::Activity;
use crate::core::message::{Block, Known, Reply, Role, Usage};
use crate::model::ModelError;
use crate::tool::ToolOutput;

struct ByName;
impl Classify for ByName {
    fn classify(&self, call: &Call) -> (Class, Activity) {
        let class = match call.name.as_str() {
            "Read" => Class::Read,
            "Agent" => Class::Agents,
            _ => Class::Exclusive,
        };
        let activity =
            Activity { tool: call.name.clone(), description: String::new(), is_search: false, is_read: false };
        (class, activity)
    }
}

fn input(text: &str) -> Event {
    Event::Inputs(vec![Input { text: text.into(), ..Input::default() }])
}

fn reply(text: &str, tools: &[(&str, &str)]) -> Event {
    let mut content = Vec::new();
    if !text.is_empty() {
        content.push(Block::text(text));
    }
    content.extend(tools.iter().map(|(id, name)| Block::tool_use(*id, *name, json!({}))));
    let usage = Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() };
    Event::Reply(Reply { id: "m".into(), model: "x".into(), content, stop_reason: None, usage })
}

fn done(id: &str) -> Event {
    Event::ToolDone { id: id.into(), output: ToolOutput::ok(format!("out {id}")) }
}

fn ran(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|e| match e {
            Effect::RunTools(calls) => Some(calls.iter().map(|c| c.id.clone()).collect::<Vec<_>>()),
            _ => None,
        })
        .flatten()
        .collect()
}

fn kinds(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .map(|e| match e {
            Effect::RecordReply(_) => "reply",
            Effect::RecordUser(_) => "user",
            Effect::CallModel => "model",
            Effect::Summarise { .. } => "summarise",
            Effect::RecordCompaction(_) => "compaction",
            Effect::RunTools(_) => "tools",
            Effect::CancelRunning => "cancel",
            Effect::EndTurn(_) => "end",
        })
        .collect()
}

#[test]
fn records_come_before_what_depends_on_them() {
    let mut c = Conversation::new(vec![], None);
    assert_eq!(kinds(&c.step(input("hi"), &ByName)), ["user", "model"]);
    assert_eq!(kinds(&c.step(reply("", &[("1", "Read")]), &ByName)), ["reply", "tools"]);
    assert_eq!(kinds(&c.step(done("1"), &ByName)), ["user", "model"]);
    assert_eq!(kinds(&c.step(reply("bye", &[]), &ByName)), ["reply", "end"]);
    assert!(c.is_idle());
    assert_eq!(c.progress().turns, 2);
    assert_eq!(c.progress().total_tokens(), 14);
}

#[test]
fn reads_run_together_and_others_alone_in_order() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    let tools = [("r1", "Read"), ("r2", "Read"), ("b1", "Bash"), ("b2", "Bash"), ("r3", "Read")];
    assert_eq!(ran(&c.step(reply("", &tools), &ByName)), ["r1", "r2"]);
    assert!(ran(&c.step(done("r2"), &ByName)).is_empty());
    assert_eq!(ran(&c.step(done("r1"), &ByName)), ["b1"]);
    assert_eq!(ran(&c.step(done("b1"), &ByName)), ["b2"]);
    assert_eq!(ran(&c.step(done("b2"), &ByName)), ["r3"]);
    let effects = c.step(done("r3"), &ByName);
    let Some(Effect::RecordUser(lines)) = effects.first() else { panic!("{effects:?}") };
    let ids: Vec<&str> = lines
        .iter()
        .map(|l| match l {
            UserLine::ToolResult { tool_use_id, .. } => tool_use_id.as_str(),
            UserLine::Input(_) => "input",
        })
        .collect();
    assert_eq!(ids, ["r1", "r2", "b1", "b2", "r3"]);
}

#[test]
fn at_most_ten_reads_run_at_a_time_and_agents_are_not_counted() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    let names: Vec<String> = (0..24).map(|i| format!("t{i}")).collect();
    let tools: Vec<(&str, &str)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), if i % 2 == 0 { "Read" } else { "Agent" })).collect();
    let first = ran(&c.step(reply("", &tools), &ByName));
    assert_eq!(first.len(), 22);
    assert_eq!(ran(&c.step(done("t0"), &ByName)), ["t20"]);
}

#[test]
fn a_message_appears_at_the_boundary_after_the_results_and_prolongs_a_turn() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    c.step(reply("", &[("1", "Read")]), &ByName);
    assert!(c.step(input("also this"), &ByName).is_empty());
    assert_eq!(kinds(&c.step(done("1"), &ByName)), ["user", "user", "model"]);
    let last = c.messages().last().cloned();
    let Some(last) = last else { panic!("no message") };
    assert!(matches!(last.content[0], Block::Known(Known::ToolResult { .. })));
    assert_eq!(last.content[1].as_text(), Some("also this"));
    assert!(c.step(input("and this"), &ByName).is_empty());
    assert_eq!(kinds(&c.step(reply("done", &[]), &ByName)), ["reply", "user", "model"]);
    assert_eq!(kinds(&c.step(reply("done too", &[]), &ByName)), ["reply", "end"]);
}

#[test]
fn cancelling_in_a_tool_round_pairs_every_call_with_a_result() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    c.step(reply("", &[("1", "Bash"), ("2", "Bash")]), &ByName);
    assert_eq!(kinds(&c.step(Event::Cancel, &ByName)), ["cancel"]);
    let effects = c.step(done("1"), &ByName);
    assert_eq!(kinds(&effects), ["user", "end"]);
    assert_eq!(effects[1], Effect::EndTurn(TurnEnd::Cancelled));
    let results = c.messages().last().map_or(0, |m| m.content.len());
    assert_eq!(results, 2);
}

#[test]
fn cancelling_a_model_call_ends_the_turn_even_when_messages_wait() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    c.step(input("more"), &ByName);
    assert_eq!(kinds(&c.step(Event::Cancel, &ByName)), ["cancel"]);
    assert_eq!(kinds(&c.step(Event::ModelFailed(ModelError::Cancelled), &ByName)), ["end"]);
    assert_eq!(c.pending(), 1);
}

#[test]
fn a_reply_that_calls_tools_and_crosses_a_cancellation_ends_the_turn() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    assert_eq!(kinds(&c.step(Event::Cancel, &ByName)), ["cancel"]);
    let effects = c.step(reply("", &[("1", "Read"), ("2", "Bash")]), &ByName);
    assert_eq!(kinds(&effects), ["reply", "user", "end"]);
    assert_eq!(effects[2], Effect::EndTurn(TurnEnd::Cancelled));
    assert!(c.is_idle());
    assert_eq!(c.messages().last().map_or(0, |m| m.content.len()), 2, "each call has a result");
}

#[test]
fn the_turn_limit_counts_replies_and_lets_the_last_one_answer() {
    let mut c = Conversation::new(vec![], Some(2));
    c.step(input("hi"), &ByName);
    c.step(reply("", &[("1", "Read")]), &ByName);
    c.step(done("1"), &ByName);
    let effects = c.step(reply("", &[("2", "Read")]), &ByName);
    assert_eq!(kinds(&effects), ["reply", "tools"]);
    assert_eq!(c.step(done("2"), &ByName).last(), Some(&Effect::EndTurn(TurnEnd::MaxTurns)));

    let mut c = Conversation::new(vec![], Some(1));
    c.step(input("hi"), &ByName);
    assert_eq!(kinds(&c.step(reply("answer", &[]), &ByName)), ["reply", "end"]);
}

#[test]
fn blank_replies_are_not_sent_back_and_roles_alternate() {
    let mut c = Conversation::new(vec![], None);
    c.step(input("hi"), &ByName);
    c.step(reply("  ", &[]), &ByName);
    c.step(input("again"), &ByName);
    assert_eq!(c.messages().len(), 1);
    assert_eq!(c.messages()[0].role, Role::User);
    assert_eq!(c.messages()[0].content.len(), 2);
}

#[test]
fn late_and_unknown_events_change_nothing() {
    let mut c = Conversation::new(vec![], None);
    assert!(c.step(done("nobody"), &ByName).is_empty());
    assert!(c.step(reply("unasked", &[]), &ByName).is_empty());
    assert!(c.step(Event::Cancel, &ByName).is_empty());
    c.step(input("hi"), &ByName);
    c.step(reply("", &[("1", "Read")]), &ByName);
    c.step(done("1"), &ByName);
    assert!(c.step(done("1"), &ByName).is_empty());
}

#[test]
fn a_note_is_recorded_and_starts_or_prolongs_no_turn() {
    let note = || Event::Note(Input { text: "by the way".into(), ..Input::default() });
    let mut c = Conversation::new(Vec::new(), None);
    assert_eq!(kinds(&c.step(note(), &ByName)), ["user"]);
    assert!(c.is_idle());
    assert_eq!(kinds(&c.step(input("go"), &ByName)), ["user", "model"]);
    assert_eq!(c.messages().len(), 1, "one user message holds both");
    assert_eq!(kinds(&c.step(note(), &ByName)), [""; 0]);
    assert_eq!(kinds(&c.step(reply("", &[("1", "Read")]), &ByName)), ["reply", "tools"]);
    assert_eq!(kinds(&c.step(done("1"), &ByName)), ["user", "user", "model"], "shown at the boundary");
    assert_eq!(kinds(&c.step(note(), &ByName)), [""; 0]);
    assert_eq!(kinds(&c.step(reply("done", &[]), &ByName)), ["reply", "user", "end"]);
    assert!(c.is_idle());
}
